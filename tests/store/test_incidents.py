"""One alert per cause, reminders and one recovery, over crashes and processes."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from daemon.errors import NotFound
from daemon.memory.erasure import journal_rows
from daemon.models import (
    ApprovalRequest,
    Delivery,
    DeliveryStatus,
    Run,
    Status,
    WaitingNotice,
    new_id,
)
from daemon.store.connection import Connection
from daemon.store.incidents import IncidentSettings, signature_of
from daemon.store.journal import Claim, Journal
from daemon.testing import FakeClock
from tests.properties import scaled_settings
from tests.store.conftest import Ledger

MAIL = [("mail", {})]
HOUR = timedelta(hours=1)


async def end_run(
    ledger: Ledger,
    clock: FakeClock,
    status: Status = Status.FAILED,
    detail: str | None = "exit 1",
    **more: object,
) -> Run:
    """Let the routine run to this end, an hour after the last time."""
    clock.move_to(clock.now() + HOUR)
    to, trigger = more.pop("to", MAIL), more.pop("trigger", "cron")
    claim = Claim(
        routine="daily",
        definition="{}",
        trigger=str(trigger),
        slot=clock.now(),
        goal="g",
        event=new_id(),
    )
    [run] = await ledger.journal.slots.claim([claim])
    claimed_run = await ledger.journal.runs.claim(run.id, owner="me")
    assert claimed_run is not None
    return await ledger.journal.runs.end(claimed_run.to(status, detail=detail, **more), to)  # type: ignore[arg-type]


async def list_deliveries(journal: Journal, target: str = "mail") -> list[str]:
    """Return what is on its way to a target, oldest first: the end of a run, or the kind of a
    notice.
    """
    deliveries = [
        delivery
        for delivery in reversed(await journal.outbox.find(limit=1000))
        if delivery.target == target
    ]
    return [
        _kind(delivery)
        for delivery in deliveries
        if delivery.status is not DeliveryStatus.SUPPRESSED
    ]


def _kind(delivery: Delivery) -> str:
    return str(delivery.options.get("notice") or delivery.report.status.value)


async def test_a_repeatedly_failing_routine_alerts_once(ledger: Ledger, clock: FakeClock) -> None:
    for number in range(5):
        await end_run(ledger, clock, detail=f"exit 1 after {number} s, run {new_id()}")
    assert await list_deliveries(ledger.journal) == ["failed"]
    [incident] = await ledger.journal.incidents.find()
    assert (incident.subject, incident.count, incident.targets) == ("routine daily", 5, ("mail",))
    assert len(await ledger.journal.outbox.find(status=DeliveryStatus.SUPPRESSED)) == 4, (
        "they are kept for the record"
    )


async def test_another_cause_is_another_incident(ledger: Ledger, clock: FakeClock) -> None:
    await end_run(ledger, clock, detail="exit 1")
    await end_run(ledger, clock, detail="the key is wrong")
    await end_run(ledger, clock, Status.TIMED_OUT, detail="not done within 600 s")
    assert await list_deliveries(ledger.journal) == ["failed", "failed", "timed_out"]


async def test_an_incident_sends_reminders_and_one_recovery(
    ledger: Ledger, clock: FakeClock
) -> None:
    for _ in range(50):
        await end_run(ledger, clock)
    assert await list_deliveries(ledger.journal) == ["failed"] * 3, "at 0, 24 and 48 hours"
    for _ in range(3):
        await end_run(ledger, clock, Status.SUCCEEDED, None)
    assert (await list_deliveries(ledger.journal))[3:].count("incident.recovered") == 1
    assert await ledger.journal.incidents.find() == []
    [over] = await ledger.journal.incidents.find(closed=True)
    assert over.count == 50 and over.closed is not None


async def test_a_routine_that_fails_once_a_day_sends_a_reminder_each_day(
    ledger: Ledger, clock: FakeClock
) -> None:
    for minutes in (0, -10, 5, -3):  # it takes now more, now less time until it fails
        await end_run(ledger, clock)
        clock.move_to(clock.now() + 23 * HOUR + timedelta(minutes=minutes))
    assert await list_deliveries(ledger.journal) == ["failed"] * 4


async def test_room_on_the_disk_ends_no_incident_of_a_damaged_database(ledger: Ledger) -> None:
    incidents = ledger.journal.incidents
    incidents.settings = IncidentSettings(to=("mail",))
    await incidents.report("database", "row 7 missing", cause="damaged")
    await incidents.report("database", "the disk is full", cause="takes nothing")
    await incidents.resolve("database", cause="takes nothing")
    [incident] = await incidents.find()
    assert incident.detail == "row 7 missing"
    kinds = await list_deliveries(ledger.journal)
    assert kinds == ["incident.opened", "incident.opened", "incident.recovered"]
    await incidents.resolve("database", cause="damaged")
    last_end, first_end, *_ = await ledger.journal.outbox.find()
    assert [delivery.options["title"] for delivery in (first_end, last_end)] == [
        'database: the incident "takes nothing" is over, another one is open',
        "database works again",
    ]


async def test_a_silent_success_sends_the_recovery(ledger: Ledger, clock: FakeClock) -> None:
    await end_run(ledger, clock)
    await end_run(ledger, clock, Status.SUCCEEDED, None, silent=True)
    assert await list_deliveries(ledger.journal) == ["failed", "incident.recovered"]


async def test_a_flapping_routine_alerts_once_within_the_cool_down(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.settings = IncidentSettings(cool_down=2 * HOUR)
    for _ in range(5):
        await end_run(ledger, clock)
        await end_run(ledger, clock, Status.SUCCEEDED, None, silent=True)
    assert await list_deliveries(ledger.journal) == ["failed", "incident.recovered"]
    [incident] = await ledger.journal.incidents.find(closed=True)
    assert incident.count == 5


async def test_an_acknowledged_incident_sends_no_reminders_until_its_recovery(
    ledger: Ledger, clock: FakeClock
) -> None:
    await end_run(ledger, clock)
    [incident] = await ledger.journal.incidents.find()
    assert (
        await ledger.journal.incidents.acknowledge(incident.id, existing_subjects=["routine daily"])
    ).closed is None
    clock.move_to(clock.now() + timedelta(days=7))
    await end_run(ledger, clock)
    assert await list_deliveries(ledger.journal) == ["failed"]
    await end_run(ledger, clock, Status.SUCCEEDED, None)
    clock.move_to(clock.now() + timedelta(days=1))
    await end_run(ledger, clock)
    assert await list_deliveries(ledger.journal) == [
        "failed",
        "incident.recovered",
        "succeeded",
        "failed",
    ]
    with pytest.raises(NotFound):
        await ledger.journal.incidents.acknowledge(99, existing_subjects=[])


async def test_acknowledging_closes_the_incident_of_a_removed_routine(
    ledger: Ledger, clock: FakeClock
) -> None:
    await end_run(ledger, clock)
    [incident] = await ledger.journal.incidents.find()
    assert (
        await ledger.journal.incidents.acknowledge(incident.id, existing_subjects=["routine other"])
    ).closed is not None


async def test_a_failed_manual_run_opens_no_incident(ledger: Ledger, clock: FakeClock) -> None:
    await end_run(ledger, clock, trigger="manual")
    assert await ledger.journal.incidents.find() == []
    assert await list_deliveries(ledger.journal) == ["failed"], (
        "its report goes where it always does"
    )


@pytest.mark.parametrize("to", [[], [("chat", {})]])
async def test_a_failed_question_opens_no_incident(
    ledger: Ledger, clock: FakeClock, to: list[tuple[str, dict[str, object]]]
) -> None:
    ledger.journal.incidents.settings = IncidentSettings(to=("mail",))
    await end_run(ledger, clock, trigger="ask", to=to)
    assert await ledger.journal.incidents.find() == []
    assert await list_deliveries(ledger.journal) == [], "whoever asked is told in the answer"


async def test_file_and_log_targets_receive_every_failure_during_an_incident(
    ledger: Ledger, clock: FakeClock
) -> None:
    places = [("file", {"path": "{run}.md"}), ("log", {}), *MAIL]
    for _ in range(3):
        await end_run(ledger, clock, to=places)
    assert [
        len(await list_deliveries(ledger.journal, name)) for name in ("file", "log", "mail")
    ] == [3, 3, 1]


async def test_a_routine_without_alert_targets_uses_the_targets_of_the_config(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.settings = IncidentSettings(to=("ops",))
    for _ in range(3):
        await end_run(ledger, clock, to=[("file", {"path": "x.md"})])
    assert await list_deliveries(ledger.journal, "ops") == ["failed"]
    await end_run(ledger, clock, Status.SUCCEEDED, None, to=[])
    assert await list_deliveries(ledger.journal, "ops") == ["failed", "incident.recovered"]


async def test_a_file_target_by_another_name_calls_nobody(ledger: Ledger, clock: FakeClock) -> None:
    ledger.journal.incidents.settings = IncidentSettings(
        to=("ops",), record_targets=frozenset({"archive"})
    )
    for _ in range(3):
        await end_run(ledger, clock, to=[("archive", {})])
    assert await list_deliveries(ledger.journal, "archive") == ["failed"] * 3
    assert await list_deliveries(ledger.journal, "ops") == ["failed"]


async def test_alerts_of_a_broken_target_go_to_another_target(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.settings = IncidentSettings(to=("mail", "ops"))
    await end_run(ledger, clock)
    [alert] = await ledger.journal.outbox.find()
    with capture_logs() as logs:
        for _ in range(4):
            await ledger.journal.incidents.report("target mail", "451 later", delivery=alert.id)
    assert logs == [], "somebody was told"
    assert sorted(await list_deliveries(ledger.journal, "ops")) == ["failed", "incident.opened"]
    await ledger.journal.outbox.mark_delivered(alert.id, "there")
    assert [incident.subject for incident in await ledger.journal.incidents.find()] == [
        "routine daily"
    ]
    assert sorted(await list_deliveries(ledger.journal, "ops")) == [
        "failed",
        "incident.opened",
        "incident.recovered",
    ]


@pytest.mark.parametrize("of_run", [True, False], ids=["of a run", "of the daemon"])
async def test_an_alert_goes_to_another_target_once_though_the_clock_is_set_back(
    ledger: Ledger, clock: FakeClock, of_run: bool
) -> None:
    incidents = ledger.journal.incidents
    if of_run:
        incidents.settings = IncidentSettings(to=("ops",))
        await end_run(ledger, clock)
    else:
        incidents.settings = IncidentSettings(to=("mail",))
        await incidents.report("provider a", "it is down")
        incidents.settings = IncidentSettings(to=("ops",))
    [alert] = await ledger.journal.outbox.find()
    assert alert.target == "mail"
    clock.move_to(clock.now() - 3 * HOUR)
    for _ in range(2):
        await incidents.report("target mail", "451 later", delivery=alert.id)
    assert len(await list_deliveries(ledger.journal, "ops")) == 2, (
        "the alert, and that mail is in trouble"
    )


async def test_an_incident_without_a_working_target_is_logged_once(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.settings = IncidentSettings(to=("mail",))
    with capture_logs() as logs:
        for error in ("451 later", "452 later"):
            await ledger.journal.incidents.report("target mail", error)
    [line] = logs
    assert (line["event"], line["subject"], line["error"]) == (
        "incident.undeliverable",
        "target mail",
        "451 later",
    )
    assert await ledger.journal.outbox.find() == []


@pytest.mark.parametrize("older", [False, True], ids=["of this version", "of an older version"])
async def test_cancelling_a_run_suppresses_its_unsent_approval_request_of_any_version(
    ledger: Ledger, clock: FakeClock, older: bool
) -> None:
    run = await ledger.start_run()
    approval_request = ApprovalRequest(
        call_id="1.0", tool="shell", request={}, digest="d", rule="rule 1"
    )
    notice = WaitingNotice(
        title="t", head="h", questions=((new_id(), "q"),), targets=("mail", "phone")
    )
    await ledger.journal.approvals.park(
        run, [approval_request], timeout=HOUR, detail="waits", notice=notice
    )
    if older:  # it had no such column
        await ledger.db.write(
            lambda connection: connection.execute("UPDATE outbox SET kind = NULL")
        )
    assert {delivery.kind for delivery in await ledger.journal.outbox.find()} == {"question"}
    await ledger.journal.runs.request_cancel(run.id)
    assert {delivery.status for delivery in await ledger.journal.outbox.find()} == {
        DeliveryStatus.SUPPRESSED
    }


@pytest.mark.parametrize("is_tainted", [False, True])
async def test_a_question_about_a_call_of_a_tainted_run_says_so_to_its_channel(
    ledger: Ledger, is_tainted: bool
) -> None:
    run = await ledger.start_run()
    approval_request = ApprovalRequest(
        call_id="1.0", tool="shell", request={}, digest="d", rule="rule 1"
    )
    notice = WaitingNotice(
        title="t",
        head="h",
        questions=((new_id(), "q"),),
        targets=("mail",),
        is_tainted=is_tainted,
    )
    await ledger.journal.approvals.park(
        run, [approval_request], timeout=HOUR, detail="waits", notice=notice
    )
    (question,) = await ledger.journal.outbox.find()
    assert question.options.get("tainted", False) is is_tainted


async def test_an_incident_survives_a_restart(ledger: Ledger, clock: FakeClock) -> None:
    await end_run(ledger, clock)
    other_ledger = Ledger(ledger.db, clock)
    await end_run(other_ledger, clock)
    assert await list_deliveries(ledger.journal) == ["failed"]


@pytest.mark.parametrize(
    ("error", "later_error"),
    [
        ("exit 1 after 3.5 s", "exit 2 after 12 s"),
        ("run 01M7Y1XG80JRPSQFYG5PZBA4WP failed", "run 01M7Y1XG8ZJRPSQFYG5PZBA4WQ failed"),
        ("at 0x7f0f5084de10", "at 0x7fe17c73d350"),
        ("request 3f2b8c1d-77aa-4f not found", "request 9a2b8c1d-71aa-4f not found"),
        ("2026-11-20 08:30: Late", "2026-11-21 09:00: late"),
    ],
)
def test_errors_with_the_same_words_have_the_same_signature(error: str, later_error: str) -> None:
    assert signature_of(error) == signature_of(later_error)


@scaled_settings()
@given(st.text(max_size=2000))
def test_any_error_has_a_signature(text: str) -> None:
    assert len(signature_of(text)) <= 200 and signature_of(text) == signature_of(f" {text} ")


async def test_removing_a_routine_closes_its_incident_and_says_so_once(
    ledger: Ledger, clock: FakeClock
) -> None:
    await end_run(ledger, clock)
    for _ in range(2):
        await ledger.journal.incidents.close_of_removed(["daily", "weekly"])
    assert await ledger.journal.incidents.find() == []
    assert await list_deliveries(ledger.journal) == ["failed", "incident.recovered"]
    notice = (await ledger.journal.outbox.find())[0]
    assert notice.options["title"] == "daily was removed, and its incident is closed"


SENTENCE = "the walrus Ada at 47 Shore Road did not answer"


async def list_copies(ledger: Ledger) -> list[str]:
    """Return the options of all deliveries and the rows of all incidents."""
    rows = await ledger.db.read(
        lambda connection: [
            *connection.execute("SELECT options, coalesce(error, '') FROM outbox"),
            *connection.execute("SELECT detail, signature FROM incident"),
        ]
    )
    return [column for row in rows for column in row]


@pytest.mark.parametrize("recovers", [True, False])
async def test_an_erased_run_leaves_its_error_in_no_delivery_and_no_incident(
    ledger: Ledger, clock: FakeClock, recovers: bool
) -> None:
    to = [("mail", {"detail": SENTENCE, "trigger": "cron"})]
    other_run = await end_run(ledger, clock, detail="exit 1", to=[("mail", {"detail": "exit 1"})])
    run = await end_run(ledger, clock, detail=SENTENCE, to=to)
    if recovers:
        await end_run(ledger, clock, Status.SUCCEEDED, None)
    assert "walrus" in str(await list_copies(ledger))
    await ledger.db.write(
        lambda connection: journal_rows.erase_run(connection, run.id, clock.now()), durable=True
    )
    copies = await list_copies(ledger)
    assert "walrus" not in str(copies) and "Shore Road" not in str(copies)
    assert f'"detail":"{other_run.detail}"' in str(copies)
    assert {
        delivery.options.get("trigger")
        for delivery in await ledger.journal.outbox.find(run=run.id)
        if "notice" not in delivery.options
    } == {"cron"}
    assert (await ledger.journal.audit.verify()).broken is None


async def test_the_failure_after_an_erasure_is_a_new_incident(
    ledger: Ledger, clock: FakeClock
) -> None:
    for _ in range(2):
        run = await end_run(ledger, clock, detail=SENTENCE)
        await ledger.db.write(
            lambda connection, run=run: journal_rows.erase_run(connection, run.id, clock.now())
        )
    await end_run(ledger, clock, detail=SENTENCE)
    assert len(await ledger.journal.incidents.find()) == 3
    await end_run(ledger, clock, Status.SUCCEEDED, None)
    assert await ledger.journal.incidents.find() == []


async def test_quotes_in_deliveries_and_incidents_are_found_and_overwritten(
    ledger: Ledger, clock: FakeClock
) -> None:
    to = [("mail", {"detail": SENTENCE, "trigger": "cron"})]
    run = await end_run(ledger, clock, detail=SENTENCE, to=to)

    def overwrite(connection: Connection) -> set[str]:
        quoting_texts = [
            text for text in journal_rows.read_texts(connection, [run.id]) if b"walrus" in text.body
        ]
        for text in quoting_texts:
            journal_rows.rewrite(connection, text, lambda body: body.replace(b"walrus", b"[gone]"))
        return {text.table for text in quoting_texts}

    assert await ledger.db.write(overwrite) == {"run", "outbox", "incident"}
    copies = str(await list_copies(ledger))
    assert "walrus" not in copies and '"trigger":"cron"' in copies
    [incident] = await ledger.journal.incidents.find()
    assert incident.detail == SENTENCE.replace("walrus", "[gone]")


def test_each_table_that_an_erasure_changes_is_written_anew() -> None:
    source = Path(journal_rows.__file__).read_text()
    tables = set(re.findall(r"(?:UPDATE|DELETE FROM) ([a-z]+)\b", source))
    assert {"novelty", "outbox"} < tables
    assert tables | {"incident"} <= set(journal_rows._TABLES_WITH_TEXT)


async def end_with_withheld(ledger: Ledger, clock: FakeClock, **more: object) -> Run:
    """Let the routine succeed in silence, an answer of it withheld."""
    clock.move_to(clock.now() + HOUR)
    trigger = str(more.pop("trigger", "cron"))
    claim = Claim(
        routine="daily",
        definition="{}",
        trigger=trigger,
        slot=clock.now(),
        goal="g",
        event=new_id(),
    )
    [run] = await ledger.journal.slots.claim([claim])
    claimed_run = await ledger.journal.runs.claim(run.id, owner="me")
    assert claimed_run is not None
    await ledger.journal.audit.quarantine(
        run=run.id, routine="daily", call_id="1.0", tool="http_request", reason="r", text="t"
    )
    return await ledger.journal.runs.end(claimed_run.to(Status.SUCCEEDED, silent=True), MAIL)


async def test_withheld_answers_alert_once_until_nothing_is_withheld(
    ledger: Ledger, clock: FakeClock
) -> None:
    for _ in range(3):
        await end_with_withheld(ledger, clock)
    assert await list_deliveries(ledger.journal) == ["incident.opened"]
    [incident] = await ledger.journal.incidents.find()
    assert (incident.subject, incident.count) == ("injection check of daily", 3)
    assert incident.detail == "1 answer was withheld by the injection check: agentctl quarantine"
    await end_run(ledger, clock)
    assert len(await ledger.journal.incidents.find()) == 2, "a failure says nothing of it"
    await end_run(ledger, clock, Status.SUCCEEDED, None, silent=True)
    assert await ledger.journal.incidents.find() == []
    deliveries = await ledger.journal.outbox.find(limit=10)
    titles = [delivery.options.get("title") for delivery in deliveries]
    assert "nothing was withheld from daily any more" in titles


async def test_whoever_starts_a_run_by_hand_sees_what_was_withheld(
    ledger: Ledger, clock: FakeClock
) -> None:
    await end_with_withheld(ledger, clock, trigger="manual")
    assert await ledger.journal.incidents.find() == []


async def test_withheld_answers_of_a_routine_without_targets_alert_those_of_incidents(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.settings = IncidentSettings(
        to=("pager",), record_targets=frozenset({"mail"})
    )
    await end_with_withheld(ledger, clock)
    assert await list_deliveries(ledger.journal, "pager") == ["incident.opened"]
    await ledger.journal.incidents.close_of_removed(["daily"])
    assert await ledger.journal.incidents.find() == []
