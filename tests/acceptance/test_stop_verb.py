"""`agentctl stop` ends the daemon, and says what it waits for."""

import asyncio
import json

import pytest

from tests.acceptance.story import Vendor

pytestmark = pytest.mark.process
HELLO = '[run]\nprompt = "Say hello."\n'


async def test_stop_returns_once_the_daemon_has_ended(home):
    await home.start()
    result = await home.agentctl("stop")
    assert (result.code, result.out) == (0, "agentd has stopped\n")
    assert result.err == f"agentd (process {home.pid}) stops\n"
    assert await home.process.wait() == 0
    again = await home.agentctl("stop")
    assert again.code == 3 and "no daemon answers" in again.err


async def start_with_a_waiting_run(home, vendor):
    """Start the daemon, and a run that waits for its model; return the id of the run."""
    home.write(
        "config.toml",
        'provider = "local"\n[daemon]\ngrace = "1h"\n[providers.local]\nkind = "open_source"\n'
        f'base_url = "{vendor.url}/v1"\nmodel = "m"\n',
    )
    await home.start()
    run = (await home.agentctl("run", "hello", "--detach")).out.strip()
    await vendor.wait_for_requests(1)
    return run


@pytest.mark.slow
async def test_stop_names_the_runs_it_waits_for_and_with_now_waits_for_none(home):
    home.routine("hello", HELLO)
    async with Vendor([{"hang": True}, "Hello."]) as vendor:
        run = await start_with_a_waiting_run(home, vendor)
        late = await home.agentctl("stop", "--timeout", "0.1s")
        assert late.code == 1 and late.out == ""
        assert "it waits for 1 run: hello\n" in late.err and "--now does not wait" in late.err
        assert home.is_running
        # its API has closed by now: the second request is that of somebody who asked before
        home.process.terminate()
        assert await home.process.wait() == 0
        await home.start()
        assert (await home.until(run, "run_ended"))["report"] == "Hello."


@pytest.mark.slow
async def test_stop_now_suspends_runs(home):
    home.routine("hello", HELLO)
    async with Vendor([{"hang": True}, "Hello."]) as vendor:
        run = await start_with_a_waiting_run(home, vendor)
        result = await home.agentctl("stop", "--now", "--json")
        assert result.code == 0
        assert json.loads(result.out) == {"pid": home.pid, "stopped": True}
        assert await home.process.wait() == 0
        await home.start()
        assert (await home.until(run, "run_ended"))["report"] == "Hello."


async def test_a_daemon_in_another_process_than_the_listener_is_not_signalled(home, tmp_path):
    """Behind a socket that another process holds, as systemd and containers do."""
    await home.start()

    handlers = []

    async def pass_on(reader, writer):
        handlers.append(asyncio.current_task())
        target_reader, target_writer = await asyncio.open_unix_connection(str(home.socket))

        async def copy(source, sink):
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(copy(reader, target_writer), copy(target_reader, writer))
        await writer.wait_closed()
        await target_writer.wait_closed()

    server = await asyncio.start_unix_server(pass_on, str(tmp_path / "front.sock"))
    async with server:
        result = await home.run("agentctl", "--socket", tmp_path / "front.sock", "stop")
        await asyncio.gather(*handlers)
    assert result.code == 5 and "systemctl stop agentd.socket" in result.err
    assert (await home.agentctl("status")).code == 0
