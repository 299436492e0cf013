"""How the daemon stops: runs get their time, unless whoever stops it has none."""

import signal

import pytest

from tests.acceptance.story import Vendor

pytestmark = pytest.mark.process
HELLO = '[run]\nprompt = "Say hello."\n'


async def test_a_second_ctrl_c_suspends_the_runs_at_once_and_the_next_start_goes_on(home):
    home.routine("hello", HELLO)
    async with Vendor([{"hang": True}, "Hello."]) as vendor:
        providers = (
            f'[providers.local]\nkind = "open_source"\nbase_url = "{vendor.url}/v1"\nmodel = "m"\n'
        )
        home.write("config.toml", f'provider = "local"\n{providers}[daemon]\ngrace = "1h"\n')
        await home.start()
        run = (await home.agentctl("run", "hello", "--detach")).out.strip()
        await vendor.asked(1)
        home.process.send_signal(signal.SIGINT)
        while b"executor.draining" not in (home.state / "logs/agentd.jsonl").read_bytes():
            assert home.process.returncode is None
        assert await home.stop(signal.SIGINT) == 0
        assert "Traceback" not in home.complaints
        await home.start()
        assert (await home.until(run, "run_ended"))["report"] == "Hello."
