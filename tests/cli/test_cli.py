from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.agent.texts import say
from daemon.api.schemas import CheckView, ReloadView, views_of_faults
from daemon.app.main import EXIT_CODES as CODES_WITHOUT_DAEMON
from daemon.cli.call import DETACHED, EXIT_CODES, NOT_FOUND, REFUSED, USAGE, exit_code_of
from daemon.cli.client import Unreachable
from daemon.cli.doctor import write_checks
from daemon.cli.main import _report_unreachable
from daemon.cli.progress import RunProgress
from daemon.cli.render import OutputStream, parse_instant
from daemon.cli.routines import write_waiting_runs
from daemon.cli.verbs import VERBS
from daemon.models import ApprovalRequest, Outcome, Reason, Run, Status
from daemon.store.lock import lock_state
from tests.api.harness import NOW, STEPS, ApiHarness, make_error
from tests.cli.agentctl import COMMAND, agentctl, environment, on_terminal, start


async def take_requested_run(harness: ApiHarness) -> Run:
    """Wait until a client has asked for a run, and take it."""
    run = await harness.journal.runs.claim(
        (await harness.engine.triggered_runs.get()).id, owner="test"
    )
    assert run is not None
    return run


async def complete_requested_run(
    harness: ApiHarness,
    status: Status = Status.SUCCEEDED,
    *,
    delivery_outcome: str | None = None,
    **changes: Any,
) -> None:
    """Live the run that a client asks for, and send its report if told to."""
    run = await take_requested_run(harness)
    await harness.write_steps(run, *STEPS)
    await harness.end(
        run, status, deliver=[("file", {"path": "x.md"})] if delivery_outcome else (), **changes
    )
    for delivery in await harness.journal.outbox.find(run=run.id):
        if delivery_outcome == "delivered":
            await harness.journal.outbox.mark_delivered(delivery.id, "/w/reports/x.md")
        else:
            await harness.journal.outbox.mark_failed(delivery.id, "the folder is gone", None)


# --- asking and printing


async def test_list_is_green_only_if_run_and_delivery_succeeded(harness: ApiHarness) -> None:
    await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    (delivery,) = await harness.journal.outbox.find()
    await harness.journal.outbox.mark_delivered(delivery.id, "/w/x.md")
    assert "✓  daily-report" in (await agentctl(harness.path, "list")).out
    await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    output = (await agentctl(harness.path, "list")).out
    assert "»  daily-report" in output
    assert "succeeded, being delivered" in output
    delivery, *_ = await harness.journal.outbox.find()
    await harness.journal.outbox.mark_failed(delivery.id, "gone", None)
    output = (await agentctl(harness.path, "list")).out
    assert "✗  daily-report" in output
    assert "succeeded, delivery failed" in output


async def test_list_shows_the_first_routines_before_it_has_asked_for_the_others(
    harness: ApiHarness, tmp_path: Path
) -> None:
    (routine, *_) = (await agentctl(harness.path, "list", "--json")).json["items"]
    is_first_shown = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        if request.startswith("/v1/status"):
            body: dict[str, Any] = {"fault": None, "active": []}
        elif "cursor" in request:
            await is_first_shown.wait()
            body = {"items": [{**routine, "name": "zebra"}], "next": None}
        else:
            body = {"items": [{**routine, "name": "ant"}], "next": "ant"}
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(text)}\r\nconnection: close\r\n"
        writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + text)
        writer.close()

    path = tmp_path / "paging.sock"
    server = await asyncio.start_unix_server(answer, os.fspath(path))
    process = await start(path, "list")
    assert process.stdout
    assert b"ROUTINE" in await process.stdout.readline()
    assert b"ant" in await process.stdout.readline()
    is_first_shown.set()
    output = await process.stdout.read()
    assert b"zebra" in output and b"ROUTINE" not in output
    assert await process.wait() == 0
    server.close()
    await server.wait_closed()


def test_doctor_is_not_all_well_where_it_warns() -> None:
    def last_lines(*states: str) -> list[str]:
        stream = io.StringIO()
        checks = [
            {"name": f"check {number}", "state": state, "found": "", "fix": ""}
            for number, state in enumerate(states)
        ]
        write_checks(OutputStream(stream, {}), checks)
        return stream.getvalue().rpartition("\n\n")[2].splitlines()

    assert last_lines("ok", "ok") == ["all is well"]
    assert last_lines("ok", "warn") == ["! 1 thing to look at: check 1", "0 things to mend"]
    assert last_lines("fail", "warn", "warn") == [
        "! 2 things to look at: check 1, check 2",
        "1 thing to mend",
    ]
    assert last_lines("fail") == ["1 thing to mend"]


async def test_list_shows_broken_and_paused_routines(harness: ApiHarness) -> None:
    harness.engine.faults["broken"] = make_error("broken")
    harness.engine.now = datetime.now(UTC)
    await harness.engine.pause("heartbeat")
    result = await agentctl(harness.path, "list")
    assert result.code == 0
    assert 'broken.toml: trigger.cron: minute is 0-59 (found "61 * * * *"); use 1' in result.out
    first, second, third = result.out.splitlines()[1:4]
    assert first.startswith("✗  broken")
    assert re.search(r" CES?T \(in ", second)  # its next start, absolute and relative
    assert "  paused  " in third


async def test_next_of_a_paused_routine_names_the_command_that_says_why(
    harness: ApiHarness,
) -> None:
    name = next(iter(harness.engine.routines))
    await agentctl(harness.path, "pause", name)
    output = (await agentctl(harness.path, "next", name)).out
    assert output == (
        f"{name} starts at no known time: agentctl why {name} says what it waits for.\n"
    )


async def test_empty_lists_name_the_next_step(harness: ApiHarness) -> None:
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


async def test_status_shows_paths_and_active_runs(harness: ApiHarness) -> None:
    await harness.take()
    result = await agentctl(harness.path, "status")
    assert result.code == 0
    assert f"process {os.getpid()}" in result.out
    assert str(harness.path) in result.out
    assert "1 running" in result.out
    assert "Under way" in result.out
    assert "heartbeat" in result.out


async def test_show_next_runs_slots_and_deliveries_read_like_sentences(harness: ApiHarness) -> None:
    run = await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    await harness.journal.slots.account(
        "heartbeat", first=NOW, last=NOW, count=3, outcome=Outcome.MISSED, reason=Reason.DOWN
    )
    output = (await agentctl(harness.path, "show", "daily-report")).out
    assert 'run.prompt = "Write the report."' in output
    assert f"run {run.id[-8:]}" in output
    following = (await agentctl(harness.path, "next", "heartbeat", "-n", "2")).out
    assert following.count("heartbeat") == 2
    assert "CET" in following
    assert (
        run.id[-8:]
        in (await agentctl(harness.path, "runs", "daily-report", "--status", "succeeded")).out
    )
    slots = (await agentctl(harness.path, "slots")).out
    assert "3 missed: down" in slots
    assert run.id[-8:] not in slots, "a run by hand is no slot"
    assert run.id in (await agentctl(harness.path, "slots", "--json")).out
    assert "on its way" in (await agentctl(harness.path, "deliveries", "--run", run.id[-8:])).out


async def test_inspect_shows_prompt_calls_verdicts_results_usage_and_deliveries(
    harness: ApiHarness,
) -> None:
    run = await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    result = await agentctl(harness.path, "inspect", run.id[-8:])
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
        assert part in result.out
    assert "You are agentd." not in result.out
    full = await agentctl(harness.path, "inspect", "--full", run.id)
    assert "You are agentd." in full.out
    assert "at all" in full.out


async def test_inspect_of_a_routine_shows_its_last_run(harness: ApiHarness) -> None:
    await harness.complete_run()
    run = await harness.complete_run()
    assert run.id in (await agentctl(harness.path, "inspect", "daily-report")).out
    assert f"event     {run.event}" in (await agentctl(harness.path, "inspect", run.id)).out
    assert "event  " not in (await on_terminal(harness.path, "inspect", run.id)).out, "no hash"
    assert (
        await agentctl(harness.path, "inspect", "heartbeat")
    ).err == "agentctl: heartbeat has never run\n"
    assert (await agentctl(harness.path, "inspect", "daily-reprot")).code == 4


async def test_inspect_of_a_running_run_shows_its_unfinished_call(harness: ApiHarness) -> None:
    run = await harness.take()
    await harness.write_steps(run, *STEPS[:-1])
    result = await agentctl(harness.path, "inspect", run.id)
    assert "shell rm -rf /  no result yet" in result.out


async def test_json_output_equals_the_api_answer(harness: ApiHarness) -> None:
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
    inspection = json.loads((await agentctl(harness.path, "inspect", run.id, "--json")).out)
    assert [step["seq"] for step in inspection["steps"]] == list(range(7))
    assert (
        json.loads((await agentctl(harness.path, "pause", "heartbeat", "--json")).out)["state"]
        == "paused"
    )
    assert (
        json.loads((await agentctl(harness.path, "version", "--json")).out)["agentd"] == "0.0.test"
    )


async def test_pause_resume_reload_and_cancel_report_their_effect(harness: ApiHarness) -> None:
    assert (await agentctl(harness.path, "pause", "heartbeat")).out.startswith(
        "heartbeat is paused until `agentctl"
    )
    assert (await agentctl(harness.path, "resume", "heartbeat")).out.startswith(
        "heartbeat goes on; next: "
    )
    assert (await agentctl(harness.path, "reload")).out == "added new\n"
    run = await harness.claim()
    result = await agentctl(harness.path, "cancel", run.id)
    assert result.out == f"run {run.id[-8:]} of daily-report is cancelled\n"
    assert (await agentctl(harness.path, "cancel", run.id)).code == 5


async def test_cancel_waits_until_the_run_has_ended(harness: ApiHarness) -> None:
    run = await harness.take()
    cancelling = asyncio.create_task(agentctl(harness.path, "cancel", run.id))
    await harness.run_queue.interrupted_ids.get()
    await harness.end(run, Status.CANCELLED, report=None)
    assert (await cancelling).out == f"run {run.id[-8:]} of daily-report is cancelled\n"


@pytest.mark.parametrize(
    "words",
    [["--socket", "X", "V"], ["--socket=X", "V"], ["V", "--socket", "X"], ["V", "--socket=X"]],
)
@pytest.mark.parametrize("verb", ["status", "doctor"])
async def test_the_socket_option_may_stand_anywhere(
    harness: ApiHarness, words: list[str], verb: str
) -> None:
    arguments = [word.replace("X", str(harness.path)).replace("V", verb) for word in words]
    assert (await agentctl(harness.path.parent / "none.sock", *arguments)).code == 0


async def test_doctor_asks_the_daemon(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "doctor")
    assert result.code == 0
    assert "✓  Python  3.11" in result.out


@pytest.mark.parametrize(
    "words", [("doctor",), ("doctor", "--json"), ("reload",), ("reload", "--json")]
)
async def test_json_has_the_exit_code_of_the_text(
    harness: ApiHarness, words: tuple[str, ...]
) -> None:
    async def examine() -> list[CheckView]:
        return [CheckView(name="Python", state="fail", found="2.7", fix="take a newer one")]

    async def reload() -> ReloadView:
        faults = views_of_faults(make_error("heartbeat"))
        return ReloadView(added=[], changed=[], removed=[], files=[], restart=[], faults=faults)

    harness.api.administration.examine = examine  # type: ignore[method-assign]
    harness.api.administration.reload_by_request = reload  # type: ignore[method-assign]
    result = await agentctl(harness.path, *words)
    assert result.code == 1
    if "--json" in words:
        assert json.loads(result.out).keys() & {"checks", "faults"}


async def test_policy_takes_json_before_it_and_says_its_subcommands(
    harness: ApiHarness, tmp_path: Path
) -> None:
    result = await agentctl(harness.path, "policy")
    assert (result.code, result.err.splitlines()[-1]) == (
        2,
        "agentctl policy: error: the following arguments are required: VERB",
    )
    draft = tmp_path / "draft.toml"
    draft.write_text("version = 1\n")
    (tmp_path / "config.toml").touch()
    result = await agentctl(harness.path, "--json", "policy", "check", str(draft))
    assert result.code == 0, result.err
    assert json.loads(result.out)["rules"] == 0


# --- run


async def test_run_streams_its_steps_and_ends_with_the_report_alone_on_stdout(
    harness: ApiHarness,
) -> None:
    command = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    await complete_requested_run(harness, delivery_outcome="delivered")
    result = await command
    assert result.code == 0
    assert result.out == "# All is well\n\nNothing to do.\n"
    progress = result.err.splitlines()
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


async def test_paths_in_the_home_folder_are_printed_with_a_tilde_and_whole_in_json(
    harness: ApiHarness,
) -> None:
    report = str(harness.path.parent / "reports/x.md")  # agentctl runs with this folder as its home
    run = await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    [delivery] = await harness.journal.outbox.find()
    await harness.journal.outbox.mark_delivered(delivery.id, report)
    for words in (("inspect", run.id), ("deliveries",)):
        text = (await agentctl(harness.path, *words)).out
        assert "~/reports/x.md" in text
        assert report not in text
        assert report in (await agentctl(harness.path, *words, "--json")).out


async def test_the_list_of_approvals_names_the_command_that_shows_the_whole_of_a_long_call(
    harness: ApiHarness,
) -> None:
    body = "".join(f"line {number}, " for number in range(1_000))
    request = ApprovalRequest(
        call_id="1.0",
        tool="http_request",
        request={
            "tool": "http_request",
            "arguments": {"body": body, "method": "POST", "url": "http://a.example/"},
        },
        digest="0" * 64,
        rule="rule 1",
    )
    await harness.journal.approvals.park(
        await harness.take("heartbeat"), [request], timeout=timedelta(days=9999), detail="asks"
    )
    listing = await agentctl(harness.path, "approvals")
    assert "url = 'http://a.example/', method = 'POST', body = 'line 0," in listing.out
    assert "characters left out" in listing.out and body not in listing.out
    command = re.search(r"\(agentctl (approvals \w+) shows all\)", listing.out)
    assert command is not None
    whole = await agentctl(harness.path, *command[1].split())
    assert whole.code == 0 and f"method = 'POST', body = '{body}'" in whole.out
    assert "left out" not in whole.out
    assert (await agentctl(harness.path, "approvals", "NOSUCH")).code == NOT_FOUND


def test_progress_says_that_and_why_a_run_was_put_off() -> None:
    screen = io.StringIO()
    event = {
        "type": "run_retry_scheduled",
        "until": "2026-11-20T10:00:07.000Z",
        "detail": "nobody listens",
    }
    RunProgress(OutputStream(screen, {})).show(event)
    until = parse_instant(event["until"])
    assert f"put off until {until:%H:%M:%S}: nobody listens" in screen.getvalue()


def test_progress_does_not_tell_a_person_what_a_denial_tells_a_model() -> None:
    screen = io.StringIO()
    told = say("denied", "en", rule="default", reason="no rule allows shell", allowed="")
    event = {"type": "tool_finished", "tool": "shell", "ok": False, "seconds": 0, "preview": told}
    RunProgress(OutputStream(screen, {})).show(event)
    assert screen.getvalue().endswith("    [error] denied by default: no rule allows shell.\n")


def test_progress_shows_the_letters_of_all_languages() -> None:
    screen = io.StringIO()
    item = {"title": "Störung 故障\x1b[2J\x9b2J"}
    event = {"type": "tool_started", "tool": "report_items", "args": {"items": [item]}}
    progress = RunProgress(OutputStream(screen, {}))
    progress.show(event)
    progress.show({"type": "tool_finished", "tool": "report_items", "ok": True, "seconds": 0})
    assert 'items=[{"title": "Störung 故障\\u001b[2J\ufffd2J"}]' in screen.getvalue()


async def test_run_of_a_routine_that_runs_follows_that_run(harness: ApiHarness) -> None:
    run = await harness.take()
    request = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    while not harness.events.is_followed(run.id):
        await asyncio.sleep(0)
    await harness.end(run)
    result = await request
    assert (result.code, result.out) == (0, "# All is well\n\nNothing to do.\n")
    assert result.err.splitlines()[0] == (
        "a run of daily-report is under way already; it is followed"
    )


async def test_run_again_starts_another_run_after_the_one_under_way(harness: ApiHarness) -> None:
    run = await harness.take()
    request = asyncio.create_task(agentctl(harness.path, "run", "daily-report", "--again"))
    while not harness.events.is_followed(run.id):
        await asyncio.sleep(0)
    assert harness.engine.triggered_runs.get_nowait().id == run.id
    assert harness.engine.triggered_runs.empty()
    await harness.end(run, report="The first one.")
    await complete_requested_run(harness, report="The second one.")
    result = await request
    assert (result.code, result.out) == (0, "The second one.\n")
    assert result.err.splitlines()[0] == (
        "a run of daily-report is under way; another one starts when it has ended"
    )
    assert len(await harness.journal.runs.find("daily-report")) == 2


async def test_run_again_without_a_run_under_way_is_a_run(harness: ApiHarness) -> None:
    request = asyncio.create_task(agentctl(harness.path, "run", "daily-report", "--again"))
    await complete_requested_run(harness)
    assert (await request).code == 0
    assert len(await harness.journal.runs.find("daily-report")) == 1


async def test_run_again_is_refused_while_a_run_waits_for_an_approval(harness: ApiHarness) -> None:
    run = await harness.take()
    request = asyncio.create_task(agentctl(harness.path, "run", "daily-report", "--again"))
    while not harness.events.is_followed(run.id):
        await asyncio.sleep(0)
    await harness.journal._db.write(lambda db: db.execute("UPDATE run SET status = 'waiting'"))
    harness.events.publish(run.id, {"type": "run_waiting"})
    later = await agentctl(harness.path, "run", "daily-report", "--again")
    for result in (await request, later):
        assert (result.code, result.out) == (5, "")
        assert "answer it: agentctl approvals" in result.err or "wait for it" in result.err
    assert "answer it: agentctl approvals" in later.err
    assert len(await harness.journal.runs.find("daily-report")) == 1


@pytest.mark.parametrize(
    ("status", "delivery_outcome", "code", "expected_text"),
    [
        (Status.SUCCEEDED, "failed", 6, "given up after 1 attempt: the folder is gone"),
        (Status.FAILED, None, 1, "failed: because"),
        (Status.TIMED_OUT, None, 1, "timed out: because"),
        (Status.CANCELLED, None, 1, "cancelled: because"),
        (Status.SKIPPED, None, 7, "skipped: because"),
    ],
)
async def test_the_exit_code_says_how_the_run_and_its_delivery_ended(
    harness: ApiHarness, status: Status, delivery_outcome: str | None, code: int, expected_text: str
) -> None:
    command = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    await complete_requested_run(
        harness,
        status,
        delivery_outcome=delivery_outcome,
        detail=None if delivery_outcome else "because",
    )
    result = await command
    assert (result.code, expected_text in result.err) == (code, True)


async def test_run_returns_when_the_run_waits_for_an_approval(harness: ApiHarness) -> None:
    command = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    run = await take_requested_run(harness)
    await harness.journal._db.write(
        lambda db: db.execute("UPDATE run SET status = 'waiting', detail = 'shell: rm'")
    )
    harness.events.publish(run.id, {"type": "run_waiting"})
    result = await command
    assert result.code == 8
    assert "waiting: shell: rm" in result.err


async def test_list_and_status_say_first_what_waits_for_a_person(harness: ApiHarness) -> None:
    await harness.take()
    assert "your word" not in (await agentctl(harness.path, "list")).out
    await harness.journal._db.write(lambda db: db.execute("UPDATE run SET status = 'waiting'"))
    text = "daily-report waits for your word: agentctl approvals"
    assert (await agentctl(harness.path, "list")).out.splitlines()[0] == text
    assert (await agentctl(harness.path, "status")).out.splitlines()[1] == text


async def test_status_says_why_a_delivery_waits_unless_an_incident_does(
    harness: ApiHarness,
) -> None:
    run = await harness.complete_run(deliver=[("mail", {}), ("log", {})])
    outbox, later = harness.journal.outbox, NOW + timedelta(minutes=5)
    log, mail = await outbox.find_of_runs([run.id])
    await outbox.mark_delivered(log.id, "logged")

    async def line() -> str:
        lines = (await agentctl(harness.path, "status")).out.splitlines()
        return next(line for line in lines if line.startswith("  deliveries"))

    assert await line() == "  deliveries  1 delivered, 1 pending"
    await outbox.mark_failed(mail.id, "nobody listens at relay.lan:2525\n" + "x" * 200, later)
    text = await line()
    assert "1 pending; mail: not yet: nobody listens at relay.lan:2525 xxx" in text
    assert "x…; next try " in text and len(text) < 200
    await harness.journal.incidents.report("target mail", "nobody listens", delivery=mail.id)
    assert await line() == "  deliveries  1 delivered, 1 pending"


async def test_a_list_of_incidents_says_that_there_are_more(harness: ApiHarness) -> None:
    for number in range(3):
        await harness.journal.incidents.report(f"target t{number}", "nobody listens")
    assert "there are more" not in (await agentctl(harness.path, "incidents", "-n", "3")).out
    short_list = (await agentctl(harness.path, "incidents", "-n", "2")).out
    assert short_list.endswith("\nthere are more: -n 10 shows them\n")


def test_of_many_routines_that_wait_for_a_person_the_first_are_named() -> None:
    stream = io.StringIO()
    out = OutputStream(stream, {})
    runs = [{"routine": f"r{number // 2}", "status": "waiting"} for number in range(14)]
    write_waiting_runs(out, [{"routine": "busy", "status": "running"}, *runs])
    write_waiting_runs(out, runs[:3])
    assert stream.getvalue().splitlines() == [
        "r0, r1, r2, r3, r4 and 2 more wait for your word: agentctl approvals",
        "r0, r1 wait for your word: agentctl approvals",
    ]


async def test_a_silent_run_prints_no_report(harness: ApiHarness) -> None:
    command = asyncio.create_task(agentctl(harness.path, "run", "daily-report"))
    await complete_requested_run(harness, report="", silent=True)
    result = await command
    assert (result.code, result.out) == (0, "")
    assert "✓ nothing to report" in result.err


async def test_run_with_json_prints_the_ended_run_and_nothing_else(harness: ApiHarness) -> None:
    command = asyncio.create_task(agentctl(harness.path, "run", "daily-report", "--json"))
    await complete_requested_run(harness)
    result = await command
    assert json.loads(result.out)["status"] == "succeeded"
    assert result.err == ""


async def test_detach_prints_the_id_and_follow_goes_on_with_it(harness: ApiHarness) -> None:
    run_id = (await agentctl(harness.path, "run", "daily-report", "--detach")).out.strip()
    command = asyncio.create_task(agentctl(harness.path, "inspect", "-f", run_id))
    await complete_requested_run(harness)
    result = await command
    assert result.out == "# All is well\n\nNothing to do.\n"
    assert "✓ host: sysinfo" in result.err


async def test_ctrl_c_detaches_and_names_the_command_to_follow(harness: ApiHarness) -> None:
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


async def test_run_reports_a_daemon_that_stops_during_the_run(
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


async def test_run_prints_the_report_of_a_daemon_that_stops_after_the_run(
    harness: ApiHarness,
) -> None:
    process = await start(harness.path, "run", "daily-report")
    assert process.stderr is not None
    await process.stderr.readline()
    run = await take_requested_run(harness)
    await harness.write_steps(run, *STEPS[:2])
    # it follows the run: before that, nobody could tell it of the end
    await process.stderr.readline()
    await harness.write_steps(run, *STEPS[2:])
    await harness.end(run)
    harness.server.stop()
    out, err = await process.communicate()
    assert process.returncode == 0
    assert out == b"# All is well\n\nNothing to do.\n"
    assert "✓ succeeded" in err.decode()


async def test_a_lost_answer_is_requested_again_without_a_second_run(
    harness: ApiHarness, tmp_path: Path
) -> None:
    path, requests = tmp_path / "flaky.sock", 0

    async def flaky(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        request = head + await reader.readexactly(size)
        behind, onwards = await asyncio.open_unix_connection(os.fspath(harness.path))
        onwards.write(request)
        answer = await behind.read()
        onwards.close()
        if head.startswith(b"POST"):
            requests += 1
        if not head.startswith(b"POST") or requests > 1:  # the first answer gets lost
            writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(flaky, os.fspath(path))
    result = await agentctl(path, "run", "daily-report", "--detach")
    server.close()
    assert (result.code, requests) == (0, 2)
    assert [run.id for run in await harness.journal.runs.find()] == [result.out.strip()]


async def test_a_refused_run_names_the_active_run(harness: ApiHarness) -> None:
    run = await harness.claim()
    result = await agentctl(harness.path, "run", "daily-report", "--detach")
    assert result.code == 5
    assert run.id in result.err


# --- what goes wrong


async def test_without_a_daemon_agentctl_names_tried_sockets_and_the_start_command(
    tmp_path: Path,
) -> None:
    result = await agentctl(tmp_path / "none.sock", "list")
    assert (result.code, result.out) == (3, "")
    assert result.err.splitlines() == [
        "agentctl: no daemon answers. Looked at:",
        f"  {tmp_path}/none.sock: no such file",
        "Start it with: agentd, and the --config and --state of the one that was there",
    ]


async def test_a_unit_is_started_without_further_options(tmp_path: Path) -> None:
    unit = tmp_path / ".config/systemd/user/agentd.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    result = await agentctl(tmp_path / "none.sock", "list", env={"HOME": str(tmp_path)})
    assert result.err.splitlines()[-1] == "Start it with: systemctl --user start agentd"


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc/locks of Linux")
@pytest.mark.parametrize("is_held", [True, False])
def test_a_daemon_that_does_not_listen_yet_is_told_from_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_held: bool,
) -> None:
    monkeypatch.setenv("AGENTD_STATE", str(tmp_path))
    lock = lock_state(tmp_path)
    try:
        if not is_held:  # as a killed daemon leaves it: with its number, which others may get
            lock.release()
            (tmp_path / "agentd.lock").write_text(f"{os.getpid()}\n")
        assert _report_unreachable(Unreachable(("a", "no such file"), ("b", "none"))) == 3
    finally:
        lock.release()
    text = capsys.readouterr().err
    assert (f"Process {os.getpid()} has the state folder {tmp_path}: a daemon " in text) == is_held
    assert ("Start it with: " in text) != is_held


@pytest.mark.parametrize(
    ("words", "code", "expected_text"),
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
        (["run", "dail"], 4, "did you mean 'daily-report'?"),
        (["inspect", "01ZZZZZZZZ"], 4, "01ZZZZZZZZ"),
        (["cancel", "01ZZZZZZZZ"], 4, "01ZZZZZZZZ"),
        (["help", "lst"], 2, "did you mean 'list'?"),
    ],
)
async def test_errors_are_one_line_with_an_exit_code(
    harness: ApiHarness, words: list[str], code: int, expected_text: str
) -> None:
    result = await agentctl(harness.path, *words)
    assert result.code == code
    assert expected_text in result.err
    assert "Traceback" not in result.err


async def test_a_reload_with_faults_prints_each_fault(harness: ApiHarness, tmp_path: Path) -> None:
    async def reload() -> None:
        raise make_error("heartbeat")

    harness.api.administration.reload_by_request = reload  # type: ignore[method-assign]
    result = await agentctl(harness.path, "reload")
    assert result.code == 5
    assert "nothing was changed" in result.err
    assert 'heartbeat.toml: trigger.cron: minute is 0-59 (found "61 * * * *"); use 1' in result.err


async def test_a_closed_pipe_prints_no_error(harness: ApiHarness) -> None:
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
    result = await agentctl(tmp_path / "none.sock")
    assert result.code == 0
    assert all(f"  {name} " in result.out for name in VERBS)
    assert all(f"  {code}  {about}" in result.out for code, about in EXIT_CODES)
    without_daemon = {code for _, code in CODES_WITHOUT_DAEMON}
    assert {*without_daemon, DETACHED} <= dict(EXIT_CODES).keys()
    assert "--detach" in (await agentctl(tmp_path / "none.sock", "help", "run")).out
    assert "--since" in (await agentctl(tmp_path / "none.sock", "logs", "--help")).out


async def test_version_works_without_a_daemon(tmp_path: Path) -> None:
    result = await agentctl(tmp_path / "none.sock", "version")
    assert result.code == 0
    assert "agentd is not running" in result.out


async def test_logs_are_read_without_a_daemon(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "logs").mkdir(parents=True)
    line = (
        '{"at": "2026-11-20T08:30:00.000Z", "level": "info", "event": "run.finished", "run": "R1"}'
    )
    (state / "logs" / "agentd.jsonl").write_text(line + "\n")
    result = await agentctl(
        tmp_path / "none.sock", "logs", "--json", env={"STATE_DIRECTORY": str(state)}
    )
    assert (result.code, result.out) == (0, line + "\n")
    assert (
        "run.finished"
        in (await agentctl(tmp_path / "none.sock", "logs", "--state", str(state))).out
    )
    missing_result = await agentctl(tmp_path / "none.sock", "logs", "--state", str(tmp_path / "no"))
    assert (missing_result.code, "there is no log at" in missing_result.err) == (4, True)


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    """A folder with a config, a policy and a routine that is misspelt."""
    (tmp_path / "config.toml").write_text('provider = "offline"')
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "routines").mkdir()
    (tmp_path / "routines" / "bad.toml").write_text('descrption = "x"\n[run]\nprompt = "hello"\n')
    return tmp_path


@pytest.mark.slow
async def test_doctor_and_validate_work_without_a_daemon(
    config_folder: Path,
) -> None:
    unused_socket = config_folder / "none.sock"
    env = {
        "AGENTD_CONFIG": str(config_folder / "config.toml"),
        "STATE_DIRECTORY": str(config_folder / "state"),
    }
    examination = await agentctl(unused_socket, "doctor", env=env)
    assert examination.code == 1
    assert "✗  routines" in examination.out
    assert 'did you mean "description"' in examination.out
    assert f"no daemon answers at {unused_socket}" in examination.err
    assert (
        json.loads((await agentctl(unused_socket, "doctor", "--json", env=env)).out)["ok"] is False
    )
    validation = await agentctl(unused_socket, "validate", str(config_folder))
    assert (validation.code, "descrption" in validation.out) == (1, True)


async def test_validate_checks_the_config_of_the_running_daemon(
    harness: ApiHarness, tmp_path: Path
) -> None:
    # where this daemon says its config is
    (tmp_path / "config.toml").write_text('providr = "offline"')
    (tmp_path / "routines").mkdir(exist_ok=True)
    (tmp_path / "routines" / "pages.toml").write_text("")
    for words in (("--json",), ("pages",)):
        result = await agentctl(harness.path, "validate", *words)
        assert result.code == 1
        assert "providr" in result.out


async def test_a_state_folder_named_by_a_variable_comes_before_that_of_the_running_daemon(
    harness: ApiHarness, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("")  # where this daemon says its config is
    other = tmp_path / "other"
    result = await agentctl(
        harness.path, "backup", str(tmp_path / "copy"), env={"AGENTD_STATE": str(other)}
    )
    assert result.code != 0
    assert f"{other}/agentd.db: is not there: nothing to back up" in result.out + result.err


# --- on a terminal


async def test_output_is_coloured_only_on_terminals_that_allow_it(harness: ApiHarness) -> None:
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


@pytest.mark.parametrize("verb", [("why", "heartbeat"), ("run", "no-such-routine")])
async def test_sentences_are_broken_between_words_at_a_terminal_only(
    harness: ApiHarness, verb: tuple[str, ...]
) -> None:
    piped = await agentctl(harness.path, *verb)
    (sentence,) = (piped.out + piped.err).splitlines()
    shown = await on_terminal(harness.path, *verb, columns=30, env={"NO_COLOR": "1"})
    lines = shown.out.splitlines()
    assert len(lines) > 1
    assert max(len(line) for line in lines if " " in line.strip()) <= 30
    assert " ".join(map(str.strip, lines)) == sentence


async def test_progress_of_a_run_is_shown_and_removed_at_its_end(
    harness: ApiHarness,
) -> None:
    command = asyncio.create_task(on_terminal(harness.path, "run", "daily-report"))
    await complete_requested_run(harness)
    output = await command
    assert output.code == 0
    assert "\x1b[2mat work" in output.out
    screen = [line.rpartition("\r\x1b[K")[2] for line in output.out.rstrip("\n").split("\n")]
    assert not any("at work" in line for line in screen)
    assert screen[-1] == "Nothing to do."


async def test_a_report_cannot_send_terminal_sequences(harness: ApiHarness) -> None:
    command = asyncio.create_task(
        on_terminal(harness.path, "run", "daily-report", env={"NO_COLOR": "1"})
    )
    await complete_requested_run(harness, report="before \x1b]0;owned\x07 after")
    output = await command
    assert "\x1b]" not in output.out
    assert "after" in output.out


async def test_a_terminal_without_utf_8_gets_plain_signs(harness: ApiHarness) -> None:
    await harness.complete_run()
    output = await on_terminal(harness.path, "list", env={"PYTHONIOENCODING": "ascii"})
    assert "+" in output.out
    assert "?" not in output.out


async def test_unencodable_text_does_not_fail_on_a_terminal(
    harness: ApiHarness,
) -> None:
    run = await harness.take()
    await harness.end(run, report="日报：一切正常 …")
    output = await on_terminal(harness.path, "inspect", run.id, env={"PYTHONIOENCODING": "latin-1"})
    assert output.code == 0
    assert "Report" in output.out


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


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["list", "status", "runs"])
async def test_simple_verbs_import_few_modules(harness: ApiHarness, verb: str) -> None:
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
    output = (await agentctl(harness.path, "deliveries", "--status", "failed")).out
    assert "no such mailbox" in output and f"agentctl deliveries retry {delivery.id}" in output
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


async def test_report_prints_the_last_report_and_nothing_else(harness: ApiHarness) -> None:
    empty_result = await agentctl(harness.path, "report")
    assert (empty_result.code, empty_result.out) == (
        4,
        "",
    ) and "nothing was reported yet" in empty_result.err
    await harness.complete_run(report="# First\n\nOne.\n")
    await harness.complete_run(report="# Second\n\nTwo \x1b[31m.\n")
    await harness.end(await harness.take(), report="All is well.", silent=True)
    await harness.end(await harness.take("heartbeat"), report="Pulse.")
    await harness.end(await harness.take(), Status.FAILED, report=None, detail="no")
    assert (await agentctl(harness.path, "report")).out == "Pulse.\n"
    last = await agentctl(harness.path, "report", "daily-report")
    assert (last.code, last.out, last.err) == (0, "# Second\n\nTwo \ufffd[31m.\n", "")
    record = json.loads((await agentctl(harness.path, "report", "daily-report", "--json")).out)
    assert record["routine"] == "daily-report" and record["report"].startswith("# Second")
    result = await on_terminal(harness.path, "report", "daily-report")
    assert result.out.startswith("\x1b[1;4mSecond\x1b[0m\n\nTwo")
    unknown = await agentctl(harness.path, "report", "dialy-report")
    assert unknown.code == 4 and "daily-report" in unknown.err


async def test_pause_all_pauses_every_routine_that_would_start_before_its_end(
    harness: ApiHarness,
) -> None:
    assert (await agentctl(harness.path, "pause")).code == 2
    assert (await agentctl(harness.path, "pause", "heartbeat", "--all")).code == 2
    await harness.engine.pause("heartbeat")
    result = await agentctl(harness.path, "pause", "--all", "--until", "2h")
    assert result.code == 0 and "daily-report" in result.out and "heartbeat" not in result.out
    assert "or `agentctl resume --all`; by hand they still run" in result.out
    assert all(harness.engine.states[name].paused for name in harness.engine.routines)
    assert harness.engine.states["heartbeat"].paused_until is None, "it was paused before"
    first_end = harness.engine.states["daily-report"].paused_until
    longer = await agentctl(harness.path, "pause", "--all", "--until", "2099-01-04")
    assert "daily-report" in longer.out and "heartbeat" not in longer.out
    assert harness.engine.states["daily-report"].paused_until > first_end
    for earlier in ("2099-01-04", "2098-01-04"):
        again = await agentctl(harness.path, "pause", "--all", "--until", earlier)
        assert (again.code, again.out) == (0, "nothing is left to pause\n")
    for_ever = await agentctl(harness.path, "pause", "--all")
    assert "daily-report" in for_ever.out
    assert harness.engine.states["daily-report"].paused_until is None
    again = await agentctl(harness.path, "pause", "--all")
    assert (again.code, again.out) == (0, "nothing is left to pause\n")
    assert json.loads((await agentctl(harness.path, "pause", "--all", "--json")).out) == {
        "paused": []
    }
