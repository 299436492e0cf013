from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.call import EXIT_CODES, NOT_FOUND, REFUSED, USAGE, exit_code_of
from daemon.cli.verbs import VERBS
from daemon.models import Outcome, Reason, Run, Status
from tests.api.harness import NOW, STEPS, ApiHarness, broken
from tests.cli.agentctl import COMMAND, agentctl, environment, on_terminal, start


async def take_requested_run(harness: ApiHarness) -> Run:
    """Wait until a client has asked for a run, and take it."""
    run = await harness.journal.runs.claim((await harness.engine.triggered.get()).id, owner="test")
    assert run is not None
    return run


async def complete_requested_run(
    harness: ApiHarness,
    status: Status = Status.SUCCEEDED,
    *,
    delivered: str | None = None,
    **changes: Any,
) -> None:
    """Live the run that a client asks for, and send its report if told to."""
    run = await take_requested_run(harness)
    await harness.write_steps(run, *STEPS)
    await harness.end(
        run, status, deliver=[("file", {"path": "x.md"})] if delivered else (), **changes
    )
    for delivery in await harness.journal.outbox.find(run=run.id):
        if delivered == "delivered":
            await harness.journal.outbox.mark_delivered(delivery.id, "/w/reports/x.md")
        else:
            await harness.journal.outbox.mark_failed(delivery.id, "the folder is gone", None)


# --- asking and printing


async def test_list_is_green_only_where_run_and_delivery_are(harness: ApiHarness) -> None:
    await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    (delivery,) = await harness.journal.outbox.find()
    await harness.journal.outbox.mark_delivered(delivery.id, "/w/x.md")
    assert "✓  daily-report" in (await agentctl(harness.path, "list")).out
    await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    pending = (await agentctl(harness.path, "list")).out
    assert "»  daily-report" in pending
    assert "succeeded, being delivered" in pending
    delivery, *_ = await harness.journal.outbox.find()
    await harness.journal.outbox.mark_failed(delivery.id, "gone", None)
    failed = (await agentctl(harness.path, "list")).out
    assert "✗  daily-report" in failed
    assert "succeeded, delivery failed" in failed


async def test_list_tells_of_broken_and_paused_routines(harness: ApiHarness) -> None:
    harness.engine.faults["broken"] = broken("broken")
    harness.engine.now = datetime.now(UTC)
    await harness.engine.pause("heartbeat")
    said = await agentctl(harness.path, "list")
    assert said.code == 0
    assert 'broken.toml: trigger.cron: minute is 0-59 (found "61 * * * *"); use 1' in said.out
    one, two, three = said.out.splitlines()[1:4]
    assert one.startswith("✗  broken")
    assert re.search(r" CES?T \(in ", two)  # its next start, absolute and relative
    assert "  paused  " in three


async def test_an_empty_house_says_what_to_do(harness: ApiHarness) -> None:
    harness.engine.routines.clear()
    assert "One TOML file each" in (await agentctl(harness.path, "list")).out
    assert (await agentctl(harness.path, "runs")).out.startswith(
        "Nothing has run yet. agentctl run ROUTINE starts one"
    )
    assert (await agentctl(harness.path, "next")).out.startswith(
        "Nothing is scheduled: agentctl new NAME"
    )
    assert (await agentctl(harness.path, "slots")).out == "No slot has come yet.\n"
    assert (await agentctl(harness.path, "deliveries")).out == "Nothing has been delivered yet.\n"


async def test_status_tells_where_everything_is(harness: ApiHarness) -> None:
    await harness.take()
    said = await agentctl(harness.path, "status")
    assert said.code == 0
    assert f"process {os.getpid()}" in said.out
    assert str(harness.path) in said.out
    assert "1 running" in said.out
    assert "Under way" in said.out
    assert "heartbeat" in said.out


async def test_show_next_runs_slots_and_deliveries_read_like_sentences(harness: ApiHarness) -> None:
    run = await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    await harness.journal.slots.account(
        "heartbeat", first=NOW, last=NOW, count=3, outcome=Outcome.MISSED, reason=Reason.DOWN
    )
    shown = (await agentctl(harness.path, "show", "daily-report")).out
    assert 'run.prompt = "Write the report."' in shown
    assert f"run {run.id[-8:]}" in shown
    following = (await agentctl(harness.path, "next", "heartbeat", "-n", "2")).out
    assert following.count("heartbeat") == 2
    assert "CET" in following
    assert (
        run.id[-8:]
        in (await agentctl(harness.path, "runs", "daily-report", "--status", "succeeded")).out
    )
    slots = (await agentctl(harness.path, "slots")).out
    assert "3 missed: down" in slots
    assert f"ran, run {run.id[-8:]}" in slots
    assert "on its way" in (await agentctl(harness.path, "deliveries", "--run", run.id[-8:])).out


async def test_inspect_shows_prompt_calls_verdicts_results_usage_and_deliveries(
    harness: ApiHarness,
) -> None:
    run = await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    said = await agentctl(harness.path, "inspect", run.id[-8:])
    for part in (
        f"run {run.id}",
        "identity          15 characters",
        "offered      shell",
        "Write the report.",
        'host: sysinfo parts=["load"]',
        "allowed by rule 1 (sysinfo)",
        "shell rm -rf /",
        "denied by default: nothing allows it",
        "1 more line (--full shows them)",
        "1,200 tokens in, 800 of them from the cache",
        "# All is well",
        "file: on its way",
    ):
        assert part in said.out
    assert "You are agentd." not in said.out
    full = await agentctl(harness.path, "inspect", "--full", run.id)
    assert "You are agentd." in full.out
    assert "at all" in full.out


async def test_inspect_of_a_routine_shows_its_last_run(harness: ApiHarness) -> None:
    await harness.complete_run()
    run = await harness.complete_run()
    assert run.id in (await agentctl(harness.path, "inspect", "daily-report")).out
    assert (
        await agentctl(harness.path, "inspect", "heartbeat")
    ).err == "agentctl: heartbeat has never run\n"
    assert (await agentctl(harness.path, "inspect", "daily-reprot")).code == 4


async def test_inspect_of_a_run_under_way_shows_the_call_it_is_in(harness: ApiHarness) -> None:
    run = await harness.take()
    await harness.write_steps(run, *STEPS[:-1])
    said = await agentctl(harness.path, "inspect", run.id)
    assert "shell rm -rf /  no result yet" in said.out


async def test_json_is_what_the_api_said(harness: ApiHarness) -> None:
    run = await harness.complete_run()
    for verb in ("status", "list", "runs", "next", "slots", "deliveries"):
        json.loads((await agentctl(harness.path, verb, "--json")).out)
    assert (
        json.loads((await agentctl(harness.path, "--json", "runs")).out)["items"][0]["id"] == run.id
    )
    assert (
        json.loads((await agentctl(harness.path, "show", "heartbeat", "--json")).out)["name"]
        == "heartbeat"
    )
    inspected = json.loads((await agentctl(harness.path, "inspect", run.id, "--json")).out)
    assert [step["seq"] for step in inspected["steps"]] == list(range(7))
    assert (
        json.loads((await agentctl(harness.path, "pause", "heartbeat", "--json")).out)["state"]
        == "paused"
    )
    assert (
        json.loads((await agentctl(harness.path, "version", "--json")).out)["agentd"] == "0.0.test"
    )


async def test_pause_resume_reload_and_cancel_say_what_they_did(harness: ApiHarness) -> None:
    assert (await agentctl(harness.path, "pause", "heartbeat")).out.startswith(
        "heartbeat is paused until `agentctl"
    )
    assert (await agentctl(harness.path, "resume", "heartbeat")).out.startswith(
        "heartbeat goes on; next: "
    )
    assert (await agentctl(harness.path, "reload")).out == "added new\n"
    run = await harness.claim()
    said = await agentctl(harness.path, "cancel", run.id)
    assert said.out == f"run {run.id[-8:]} of daily-report is cancelled\n"
    assert (await agentctl(harness.path, "cancel", run.id)).code == 5


async def test_cancel_waits_until_the_run_has_ended(harness: ApiHarness) -> None:
    run = await harness.take()
    asked = asyncio.create_task(agentctl(harness.path, "cancel", run.id))
    await harness.run_queue.interrupted.get()
    await harness.end(run, Status.CANCELLED, report=None)
    assert (await asked).out == f"run {run.id[-8:]} of daily-report is cancelled\n"


@pytest.mark.parametrize(
    "words",
    [["--socket", "X", "V"], ["--socket=X", "V"], ["V", "--socket", "X"], ["V", "--socket=X"]],
)
@pytest.mark.parametrize("verb", ["status", "doctor"])
async def test_the_socket_may_be_named_anywhere(
    harness: ApiHarness, words: list[str], verb: str
) -> None:
    named = [word.replace("X", str(harness.path)).replace("V", verb) for word in words]
    assert (await agentctl(harness.path.parent / "none.sock", *named)).code == 0


async def test_doctor_asks_the_daemon(harness: ApiHarness) -> None:
    said = await agentctl(harness.path, "doctor")
    assert said.code == 0
    assert "✓  Python  3.11" in said.out


# --- run


async def test_run_streams_its_steps_and_ends_with_the_report_alone_on_stdout(
    harness: ApiHarness,
) -> None:
    asked = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    await complete_requested_run(harness, delivered="delivered")
    said = await asked
    assert said.code == 0
    assert said.out == "# All is well\n\nNothing to do.\n"
    progress = said.err.splitlines()
    assert progress[0].startswith("daily-report  run ")
    assert progress[1:] == [
        '  ✓ host: sysinfo parts=["load"]  12 ms',
        "  Let me look.",
        "  ✗ shell rm -rf /",
        "    [failed] denied",
        "    by default",
        "    or not",
        "✓ succeeded",
        "✓ file: /w/reports/x.md",
    ]


@pytest.mark.parametrize(
    ("status", "delivered", "code", "told"),
    [
        (Status.SUCCEEDED, "failed", 6, "given up after 1 attempt: the folder is gone"),
        (Status.FAILED, None, 1, "failed: because"),
        (Status.TIMED_OUT, None, 1, "timed out: because"),
        (Status.CANCELLED, None, 1, "cancelled: because"),
        (Status.SKIPPED, None, 7, "skipped: because"),
    ],
)
async def test_the_exit_code_says_how_the_run_and_its_delivery_ended(
    harness: ApiHarness, status: Status, delivered: str | None, code: int, told: str
) -> None:
    asked = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    await complete_requested_run(
        harness, status, delivered=delivered, detail=None if delivered else "because"
    )
    said = await asked
    assert (said.code, told in said.err) == (code, True)


async def test_a_run_that_waits_for_a_person_is_not_waited_for(harness: ApiHarness) -> None:
    asked = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    run = await take_requested_run(harness)
    await harness.journal._db.write(
        lambda db: db.execute("UPDATE run SET status = 'waiting', detail = 'shell: rm'")
    )
    harness.events.publish(run.id, {"type": "run_waiting"})
    said = await asked
    assert said.code == 8
    assert "waiting: shell: rm" in said.err


async def test_a_silent_run_says_so_and_prints_nothing(harness: ApiHarness) -> None:
    asked = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    await complete_requested_run(harness, report="", silent=True)
    said = await asked
    assert (said.code, said.out) == (0, "")
    assert "✓ nothing to report" in said.err


async def test_run_with_json_prints_the_ended_run_and_nothing_else(harness: ApiHarness) -> None:
    asked = asyncio.create_task(agentctl(harness.path, "run", "daily-report", "--json"))
    await complete_requested_run(harness)
    said = await asked
    assert json.loads(said.out)["status"] == "succeeded"
    assert said.err == ""


async def test_detach_prints_the_id_and_follow_goes_on_with_it(harness: ApiHarness) -> None:
    run_id = (await agentctl(harness.path, "run", "daily-report", "--detach")).out.strip()
    asked = asyncio.create_task(agentctl(harness.path, "inspect", "-f", run_id))
    await complete_requested_run(harness)
    said = await asked
    assert said.out == "# All is well\n\nNothing to do.\n"
    assert "✓ host: sysinfo" in said.err


async def test_ctrl_c_detaches_and_says_how_to_go_on(harness: ApiHarness) -> None:
    process = await start(harness.path, "run", "daily-report")
    assert process.stderr is not None
    await process.stderr.readline()
    run = await take_requested_run(harness)
    await harness.write_steps(run, *STEPS[:2])
    assert "sysinfo" in (await process.stderr.readline()).decode()
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    name = run.id[-8:]
    assert process.returncode == 130
    assert out == b""
    assert f"detached; run {name} goes on in the daemon." in err.decode()
    assert f"agentctl inspect -f {name}" in err.decode()
    assert not (await harness.journal.runs.get(run.id)).cancel


async def test_a_daemon_that_stops_in_the_middle_is_told_and_the_run_goes_on_later(
    harness: ApiHarness,
) -> None:
    process = await start(harness.path, "run", "daily-report")
    assert process.stderr is not None
    await process.stderr.readline()
    run = await take_requested_run(harness)
    await harness.write_steps(run, *STEPS[:2])
    await process.stderr.readline()
    harness.server.stop()
    _, err = await process.communicate()
    assert process.returncode == 3
    assert f"run {run.id[-8:]} goes on when it starts again" in err.decode()
    assert "Start it with: agentd" in err.decode()


async def test_a_daemon_that_stops_right_after_the_run_takes_nothing_away(
    harness: ApiHarness,
) -> None:
    process = await start(harness.path, "run", "daily-report")
    assert process.stderr is not None
    await process.stderr.readline()
    run = await take_requested_run(harness)
    await harness.write_steps(run, *STEPS[:2])
    await (
        process.stderr.readline()
    )  # it follows the run: before that, nobody could tell it of the end
    await harness.write_steps(run, *STEPS[2:])
    await harness.end(run)
    harness.server.stop()
    out, err = await process.communicate()
    assert process.returncode == 0
    assert out == b"# All is well\n\nNothing to do.\n"
    assert "✓ succeeded" in err.decode()


async def test_a_lost_answer_is_asked_for_again_and_starts_nothing_twice(
    harness: ApiHarness, tmp_path: Path
) -> None:
    path, seen = tmp_path / "flaky.sock", 0

    async def flaky(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        request = head + await reader.readexactly(size)
        behind, onwards = await asyncio.open_unix_connection(os.fspath(harness.path))
        onwards.write(request)
        answer = await behind.read()
        onwards.close()
        if head.startswith(b"POST"):
            seen += 1
        if not head.startswith(b"POST") or seen > 1:  # the first answer gets lost
            writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(flaky, os.fspath(path))
    said = await agentctl(path, "run", "daily-report", "--detach")
    server.close()
    assert (said.code, seen) == (0, 2)
    assert [run.id for run in await harness.journal.runs.find()] == [said.out.strip()]


async def test_a_refusal_names_the_run_in_the_way(harness: ApiHarness) -> None:
    run = await harness.claim()
    said = await agentctl(harness.path, "run", "daily-report")
    assert said.code == 5
    assert run.id in said.err


# --- what goes wrong


async def test_without_a_daemon_it_is_said_where_one_was_looked_for_and_how_to_start_one(
    tmp_path: Path,
) -> None:
    said = await agentctl(tmp_path / "none.sock", "list")
    assert (said.code, said.out) == (3, "")
    assert said.err.splitlines() == [
        "agentctl: no daemon answers. Looked at:",
        f"  {tmp_path}/none.sock: no such file",
        "Start it with: agentd",
    ]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["lst"], 2, "there is no verb 'lst'; did you mean 'list'?"),
        (["xyzzy"], 2, "`agentctl help` shows what there is"),
        (["--frobnicate"], 2, "unknown option --frobnicate"),
        (["run"], 2, "required: ROUTINE"),
        (["runs", "--statu", "x"], 2, "unrecognized arguments"),
        (["runs", "--status", "happy"], 2, "expected one of queued"),
        (["slots", "-n", "1001"], 2, "from 1 to 1000"),
        (["show", "daily-reprot"], 4, "did you mean 'daily-report'?"),
        (["run", "daily-reprot"], 4, "did you mean 'daily-report'?"),
        (["inspect", "01ZZZZZZZZ"], 4, "01ZZZZZZZZ"),
        (["cancel", "01ZZZZZZZZ"], 4, "01ZZZZZZZZ"),
        (["help", "lst"], 2, "did you mean 'list'?"),
    ],
)
async def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    harness: ApiHarness, words: list[str], code: int, told: str
) -> None:
    said = await agentctl(harness.path, *words)
    assert said.code == code
    assert told in said.err
    assert "Traceback" not in said.err


async def test_a_reload_with_faults_prints_each_of_them(
    harness: ApiHarness, tmp_path: Path
) -> None:
    async def reload() -> None:
        raise broken("heartbeat")

    harness.api.administration.reload = reload  # type: ignore[method-assign]
    said = await agentctl(harness.path, "reload")
    assert said.code == 5
    assert "nothing was changed" in said.err
    assert 'heartbeat.toml: trigger.cron: minute is 0-59 (found "61 * * * *"); use 1' in said.err


async def test_a_reader_that_has_seen_enough_causes_no_complaint(harness: ApiHarness) -> None:
    for _ in range(30):
        await harness.complete_run()
    command = " ".join(f"'{word}'" for word in [*COMMAND, "runs", "-n", "30"]) + " | head -n 1"
    process = await asyncio.create_subprocess_shell(
        command,
        env=environment(harness.path.parent, AGENTD_SOCKET=str(harness.path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert b"ROUTINE" in out
    assert err == b""


# --- without a daemon


async def test_help_lists_every_verb_and_exit_code(tmp_path: Path) -> None:
    said = await agentctl(tmp_path / "none.sock")
    assert said.code == 0
    assert all(f"  {name} " in said.out for name in VERBS)
    assert all(f"  {code}  {about}" in said.out for code, about in EXIT_CODES)
    assert "--detach" in (await agentctl(tmp_path / "none.sock", "help", "run")).out
    assert "--since" in (await agentctl(tmp_path / "none.sock", "logs", "--help")).out


async def test_version_works_without_a_daemon(tmp_path: Path) -> None:
    said = await agentctl(tmp_path / "none.sock", "version")
    assert said.code == 0
    assert "agentd is not running" in said.out


async def test_logs_are_read_without_a_daemon(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "logs").mkdir(parents=True)
    line = (
        '{"at": "2026-11-20T08:30:00.000Z", "level": "info", "event": "run.finished", "run": "R1"}'
    )
    (state / "logs" / "agentd.jsonl").write_text(line + "\n")
    said = await agentctl(
        tmp_path / "none.sock", "logs", "--json", env={"STATE_DIRECTORY": str(state)}
    )
    assert (said.code, said.out) == (0, line + "\n")
    assert (
        "run.finished"
        in (await agentctl(tmp_path / "none.sock", "logs", "--state", str(state))).out
    )
    missing = await agentctl(tmp_path / "none.sock", "logs", "--state", str(tmp_path / "no"))
    assert (missing.code, "there is no log at" in missing.err) == (4, True)


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """A folder with a config, a policy and a routine that is misspelt."""
    (tmp_path / "config.toml").write_text('provider = "offline"')
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "routines").mkdir()
    (tmp_path / "routines" / "bad.toml").write_text('descrption = "x"\n[run]\nprompt = "hello"\n')
    return tmp_path


async def test_doctor_and_validate_work_exactly_when_the_daemon_will_not_start(
    configured: Path,
) -> None:
    nobody = configured / "none.sock"
    env = {
        "AGENTD_CONFIG": str(configured / "config.toml"),
        "STATE_DIRECTORY": str(configured / "state"),
    }
    examined = await agentctl(nobody, "doctor", env=env)
    assert examined.code == 1
    assert "✗  routines" in examined.out
    assert 'did you mean "description"' in examined.out
    assert f"no daemon answers at {nobody}" in examined.err
    assert json.loads((await agentctl(nobody, "doctor", "--json", env=env)).out)["ok"] is False
    validated = await agentctl(nobody, "validate", str(configured))
    assert (validated.code, "descrption" in validated.out) == (1, True)


async def test_validate_looks_at_what_the_daemon_reads(harness: ApiHarness, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'providr = "offline"'
    )  # where this daemon says its config is
    said = await agentctl(harness.path, "validate", "--json")
    assert said.code == 1
    assert "providr" in said.out


# --- on a terminal


async def test_colour_is_for_terminals_and_for_those_who_want_it(harness: ApiHarness) -> None:
    await harness.complete_run()
    assert "\x1b[32m✓\x1b[0m" in (await on_terminal(harness.path, "list")).out
    assert "\x1b" not in (await on_terminal(harness.path, "list", env={"NO_COLOR": "1"})).out
    assert "\x1b" not in (await on_terminal(harness.path, "list", env={"TERM": "dumb"})).out
    assert "\x1b" not in (await agentctl(harness.path, "list")).out


@pytest.mark.parametrize("columns", [60, 80, 120])
async def test_tables_fit_the_terminal(harness: ApiHarness, columns: int) -> None:
    from daemon.cli.render import display_width

    run = await harness.take("heartbeat")
    await harness.end(
        run, Status.FAILED, report=None, detail="服务器没有回答；" * 10 + " and so on" * 20
    )
    plain = {"NO_COLOR": "1"}
    for verb in ("list", "runs"):
        lines = (await on_terminal(harness.path, verb, columns=columns, env=plain)).out.splitlines()
        assert max(display_width(line) for line in lines) <= columns
        assert any("…" in line for line in lines)


async def test_a_live_run_shows_what_is_under_way_and_leaves_no_trace_of_it(
    harness: ApiHarness,
) -> None:
    asked = asyncio.create_task(on_terminal(harness.path, "run", "daily-report"))
    await complete_requested_run(harness)
    said = await asked
    assert said.code == 0
    assert "\x1b[2mat work" in said.out
    screen = [line.rpartition("\r\x1b[K")[2] for line in said.out.rstrip("\n").split("\n")]
    assert not any("at work" in line for line in screen)
    assert screen[-1] == "Nothing to do."


async def test_a_report_cannot_take_over_the_terminal(harness: ApiHarness) -> None:
    asked = asyncio.create_task(
        on_terminal(harness.path, "run", "daily-report", env={"NO_COLOR": "1"})
    )
    await complete_requested_run(harness, report="before \x1b]0;owned\x07 after")
    said = await asked
    assert "\x1b]" not in said.out
    assert "after" in said.out


async def test_a_terminal_without_utf_8_gets_plain_signs(harness: ApiHarness) -> None:
    await harness.complete_run()
    said = await on_terminal(harness.path, "list", env={"PYTHONIOENCODING": "ascii"})
    assert "+" in said.out
    assert "?" not in said.out


async def test_text_that_a_terminal_has_no_letters_for_is_no_reason_to_fail(
    harness: ApiHarness,
) -> None:
    run = await harness.take()
    await harness.end(run, report="日报：一切正常 …")
    said = await on_terminal(harness.path, "inspect", run.id, env={"PYTHONIOENCODING": "latin-1"})
    assert said.code == 0
    assert "Report" in said.out


# --- what it costs


PLAIN = """
import sys
from daemon.cli.main import main
code = main(sys.argv[1:])
heavy = {"argparse", "asyncio", "dataclasses", "inspect", "logging", "pathlib", "unicodedata",
         "zoneinfo", "anthropic", "httpx", "openai", "pydantic", "sqlite3", "sqlmodel", "starlette",
         "structlog", "uvicorn"}
loaded = sorted(heavy & set(sys.modules))
assert not loaded, loaded
sys.exit(code)
"""


@pytest.mark.parametrize("verb", ["list", "status", "runs"])
async def test_the_plain_path_imports_next_to_nothing(harness: ApiHarness, verb: str) -> None:
    await harness.complete_run()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PLAIN,
        verb,
        # as where nothing is compiled yet: an install that its user may only read
        env=environment(
            harness.path.parent,
            AGENTD_SOCKET=str(harness.path),
            PYTHONPYCACHEPREFIX=str(harness.path.parent),
        ),
        stdout=subprocess.DEVNULL,
    )
    assert await process.wait() == 0


def test_the_exit_code_of_a_run_follows_from_its_status_and_deliveries() -> None:
    assert exit_code_of(Status.SUCCEEDED, ["delivered", "pending"]) == 0
    assert exit_code_of(Status.SUCCEEDED, ["delivered", "failed"]) == 6
    assert exit_code_of(Status.FAILED, ["failed"]) == 1
    assert [exit_code_of(status, []) for status in Status] == [0, 0, 8, 0, 7, 1, 1, 1, 1]


async def test_a_delivery_given_up_is_shown_sent_again_and_dropped(harness: ApiHarness) -> None:
    await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    delivery, *_ = await harness.journal.outbox.find()
    await harness.journal.outbox.mark_failed(delivery.id, "no such mailbox", None)
    told = (await agentctl(harness.path, "deliveries", "--status", "failed")).out
    assert "no such mailbox" in told and f"agentctl deliveries retry {delivery.id}" in told
    again = await agentctl(harness.path, "deliveries", "retry", str(delivery.id))
    assert (
        again.out
        == f"delivery {delivery.id} of daily-report to {delivery.target} is being sent again\n"
    )
    await agentctl(harness.path, "deliveries", "drop", str(delivery.id))
    assert "dropped by a person" in (await agentctl(harness.path, "deliveries")).out
    assert (await agentctl(harness.path, "deliveries", "drop", str(delivery.id))).code == REFUSED
    assert (await agentctl(harness.path, "deliveries", "retry", "4711")).code == NOT_FOUND
    assert (await agentctl(harness.path, "deliveries", "retry")).code == USAGE
