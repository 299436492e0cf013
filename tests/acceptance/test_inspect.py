"""`agentctl inspect` shows all of a run: prompt, calls, approvals, costs and deliveries."""

import asyncio
import signal

import pytest

from tests.acceptance.page.conftest import HOSTILE, toml
from tests.cli.agentctl import agentctl, start


async def test_inspect_shows_every_step_of_a_run(home):
    says = toml(HOSTILE)
    write = f'{{ name = "file_write", arguments = {{ path = "notes.md", content = {says} }} }}'
    look = '{ name = "file_list", arguments = { path = "." } }'
    home.write(
        "config.toml",
        f"""
[providers.asks]
kind = "scripted"
price = {{ input = 2.0, output = 10.0 }}
replies = [{{ text = "Let me look.", reasoning = "Hm, a list.", tool_calls = [{look}, {write}] }}, "All done."]
""",  # noqa: E501
    )
    home.write(
        "policy.toml",
        'version = 1\n[[rule]]\ntool = "file_list"\neffect = "allow"\n'
        '[[rule]]\ntool = "file_write"\npaths = ["**"]\neffect = "ask"\n',
    )
    home.routine(
        "notes",
        (
            '[run]\nmode = "agent"\nprovider = "asks"\ntools = ["file_*"]\nprompt = '
            '"Write."\n[[deliver]]\nto = "log"\n'
        ),
    )
    await home.start()
    assert (await home.agentctl("run", "notes")).code == 8
    waiting_output = (await home.agentctl("inspect", "notes")).out
    (approval,) = (await home.agentctl("approvals", "--json")).json["items"]
    name = approval["id"][-8:]
    assert f"{name} pending: file_write path = 'notes.md'" in waiting_output
    await home.agentctl("approve", approval["id"])
    await home.agentctl("inspect", "notes", "--follow")
    output = (await home.agentctl("inspect", "notes")).out
    for part in (
        "offered      finish, file_read, file_list, file_write",
        "file_list .",
        "allowed by rule 1 (file_list)",
        "  tainted\n",
        f"{name} used by uid ",
        "attempts  2",
        "taint     tainted: it has read what strangers wrote",
        "sandbox   ",
        "✓ log: the daemon's log",
    ):
        assert part in output, part
    assert output.count(" out, $0.0") == 2  # what each answer was paid
    assert "You are agentd" not in output and "Hm, a list." not in output
    full = (await home.agentctl("inspect", "notes", "--full")).out
    assert "  identity " in full and "    You are agentd" in full and "Hm, a list." in full
    assert '"path": "notes.md"' in full and "\u202e" not in full
    run_view = (await home.agentctl("inspect", "notes", "--json")).json
    assert [call["outcome"] for call in run_view["calls"]] == ["answered", "answered"]
    assert [approval["status"] for approval in run_view["approvals"]] == ["used"]
    costs = [call["usd"] for call in run_view["calls"]]
    assert min(costs) > 0 and sum(costs) == pytest.approx(run_view["usd"])
    file = home.folder / "run.html"
    assert (await home.agentctl("inspect", "notes", "--html", file)).code == 0
    page = file.read_text("utf-8")
    assert "All done." in page and "<a " not in page and "http-equiv" in page
    assert "used" in page and "$0.0" in page and "file_list, file_write" in page


async def test_inspect_shows_model_calls_without_an_answer(home, unused_address):
    home.write(
        "config.toml",
        '[providers.gone]\nkind = "open_source"\nmodel = "m"\nbase_url = '
        f'"http://{unused_address}/v1"\ntimeout = "5s"\n'
        '[providers.says]\nkind = "scripted"\nreplies = ["Hello."]\n',
    )
    home.routine(
        "hello",
        '[run]\nprovider = "gone"\nfallback = ["says"]\nprompt = "Hi"\n[[deliver]]\nto = "log"\n',
    )
    await home.start()
    assert (await home.agentctl("run", "hello")).out == "Hello.\n"
    output = (await home.agentctl("inspect", "hello")).out
    assert "gone gave no answer, says is asked" in output
    assert "gone / m: no answer, nothing to pay  0 in, 0 out" in output


async def test_a_report_written_to_a_pipe_has_no_terminal_sequences(home):
    answers = '["\\u202egnp.exe\\u001b[2J\u3000好", "\\u202egnp.exe"]'
    home.write("config.toml", f'[providers.says]\nkind = "scripted"\nreplies = {answers}\n')
    home.routine("hello", '[run]\nprovider = "says"\nprompt = "Hi"\n[[deliver]]\nto = "log"\n')
    await home.start()
    assert (await home.agentctl("run", "hello")).out == "\ufffdgnp.exe\ufffd[2J\u3000好\n"
    assert (await home.agentctl("run", "hello", "--json")).json["report"] == "\u202egnp.exe"


async def test_agentctl_events_ends_with_ctrl_c_and_reports_a_stopped_daemon(home):
    home.routine("hello", '[run]\nprompt = "Hi"\n[[deliver]]\nto = "log"\n')
    await home.start()
    following = [await start(home.socket, "events", *more) for more in (["--follow"], ["--json"])]
    first_lines = [asyncio.create_task(process.stdout.readline()) for process in following]
    async with asyncio.timeout(120):
        # whoever listens later hears of a later run
        while not all(line.done() for line in first_lines):
            await home.agentctl("run", "hello")
    people, programs = following
    people.send_signal(signal.SIGINT)
    _, output = await people.communicate()
    assert (people.returncode, output) == (130, b"")
    await home.stop()
    _, output = await programs.communicate()
    assert programs.returncode == 3 and output.startswith(b"the daemon stopped. Start it with: ")
    assert (await agentctl(home.socket, "events")).code == 3
