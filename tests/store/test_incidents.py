"""One alert per cause, a reminder, one word when it is over: through crashes and from one process
to the next.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import NotFound
from daemon.models import (
    ApprovalRequest,
    Delivery,
    DeliveryStatus,
    Run,
    Status,
    WaitingNotice,
    new_id,
)
from daemon.store.incidents import Alerting, signature_of
from daemon.store.journal import Claim, Journal
from daemon.testing import FakeClock
from tests.properties import scaled_settings
from tests.store.conftest import Ledger

MAIL = [("mail", {})]
HOUR = timedelta(hours=1)


async def ran(
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
    [run] = await ledger.journal.slots.open([claim])
    taken = await ledger.journal.runs.claim(run.id, owner="me")
    assert taken is not None
    return await ledger.journal.runs.end(taken.to(status, detail=detail, **more), to)  # type: ignore[arg-type]


async def sent(journal: Journal, target: str = "mail") -> list[str]:
    """Return what is on its way to a target, oldest first: the end of a run, or the kind of a
    notice.
    """
    found = [
        each for each in reversed(await journal.outbox.find(limit=1000)) if each.target == target
    ]
    return [_kind(each) for each in found if each.status is not DeliveryStatus.SUPPRESSED]


def _kind(delivery: Delivery) -> str:
    return str(delivery.options.get("notice") or delivery.report.status.value)


async def test_a_broken_job_calls_once_however_often_it_fails(
    ledger: Ledger, clock: FakeClock
) -> None:
    for number in range(5):
        await ran(ledger, clock, detail=f"exit 1 after {number} s, run {new_id()}")
    assert await sent(ledger.journal) == ["failed"]
    [incident] = await ledger.journal.incidents.find()
    assert (incident.subject, incident.count, incident.targets) == ("routine daily", 5, ("mail",))
    assert len(await ledger.journal.outbox.find(status=DeliveryStatus.SUPPRESSED)) == 4, (
        "they are kept for the record"
    )


async def test_another_cause_is_another_incident(ledger: Ledger, clock: FakeClock) -> None:
    await ran(ledger, clock, detail="exit 1")
    await ran(ledger, clock, detail="the key is wrong")
    await ran(ledger, clock, Status.TIMED_OUT, detail="not done within 600 s")
    assert await sent(ledger.journal) == ["failed", "failed", "timed_out"]


async def test_who_was_told_is_reminded_and_told_once_when_it_is_over(
    ledger: Ledger, clock: FakeClock
) -> None:
    for _ in range(50):
        await ran(ledger, clock)
    assert await sent(ledger.journal) == ["failed"] * 3, "at 0, 24 and 48 hours"
    for _ in range(3):
        await ran(ledger, clock, Status.SUCCEEDED, None)
    assert (await sent(ledger.journal))[3:].count("incident.recovered") == 1
    assert await ledger.journal.incidents.find() == []
    [over] = await ledger.journal.incidents.find(closed=True)
    assert over.count == 50 and over.closed is not None


async def test_a_silent_success_brings_the_word_of_recovery_too(
    ledger: Ledger, clock: FakeClock
) -> None:
    await ran(ledger, clock)
    await ran(ledger, clock, Status.SUCCEEDED, None, silent=True)
    assert await sent(ledger.journal) == ["failed", "incident.recovered"]


async def test_a_job_that_flickers_does_not_call_each_time(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.alerting = Alerting(cool_down=2 * HOUR)
    for _ in range(5):
        await ran(ledger, clock)
        await ran(ledger, clock, Status.SUCCEEDED, None, silent=True)
    assert await sent(ledger.journal) == ["failed", "incident.recovered"]
    [incident] = await ledger.journal.incidents.find(closed=True)
    assert incident.count == 5


async def test_acknowledged_means_no_more_reminders_until_it_is_over(
    ledger: Ledger, clock: FakeClock
) -> None:
    await ran(ledger, clock)
    [incident] = await ledger.journal.incidents.find()
    assert (
        await ledger.journal.incidents.acknowledge(incident.id, known=["routine daily"])
    ).closed is None
    clock.move_to(clock.now() + timedelta(days=7))
    await ran(ledger, clock)
    assert await sent(ledger.journal) == ["failed"]
    await ran(ledger, clock, Status.SUCCEEDED, None)
    clock.move_to(clock.now() + timedelta(days=1))
    await ran(ledger, clock)
    assert await sent(ledger.journal) == ["failed", "incident.recovered", "succeeded", "failed"]
    with pytest.raises(NotFound):
        await ledger.journal.incidents.acknowledge(99, known=[])


async def test_the_incident_of_a_routine_that_is_gone_is_over_once_a_person_knows(
    ledger: Ledger, clock: FakeClock
) -> None:
    await ran(ledger, clock)
    [incident] = await ledger.journal.incidents.find()
    assert (
        await ledger.journal.incidents.acknowledge(incident.id, known=["routine other"])
    ).closed is not None


async def test_what_a_person_tries_by_hand_calls_nobody_else(
    ledger: Ledger, clock: FakeClock
) -> None:
    await ran(ledger, clock, trigger="manual")
    assert await ledger.journal.incidents.find() == []
    assert await sent(ledger.journal) == ["failed"], "its report goes where it always does"


async def test_records_are_written_whatever_is_known(ledger: Ledger, clock: FakeClock) -> None:
    places = [("file", {"path": "{run}.md"}), ("log", {}), *MAIL]
    for _ in range(3):
        await ran(ledger, clock, to=places)
    assert [len(await sent(ledger.journal, name)) for name in ("file", "log", "mail")] == [3, 3, 1]


async def test_a_routine_that_tells_nobody_has_its_alert_told_where_config_says(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.alerting = Alerting(to=("ops",))
    for _ in range(3):
        await ran(ledger, clock, to=[("file", {"path": "x.md"})])
    assert await sent(ledger.journal, "ops") == ["failed"]
    await ran(ledger, clock, Status.SUCCEEDED, None, to=[])
    assert await sent(ledger.journal, "ops") == ["failed", "incident.recovered"]


async def test_a_target_that_takes_nothing_is_told_elsewhere_and_its_alert_goes_there(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.alerting = Alerting(to=("mail", "ops"))
    await ran(ledger, clock)
    [alert] = await ledger.journal.outbox.find()
    for _ in range(4):
        assert (
            await ledger.journal.incidents.report("target mail", "451 later", delivery=alert.id)
            is None
        )
    assert sorted(await sent(ledger.journal, "ops")) == ["failed", "incident.opened"]
    await ledger.journal.outbox.mark_delivered(alert.id, "there")
    assert [each.subject for each in await ledger.journal.incidents.find()] == ["routine daily"]
    assert sorted(await sent(ledger.journal, "ops")) == [
        "failed",
        "incident.opened",
        "incident.recovered",
    ]


async def test_where_every_place_is_broken_the_caller_is_told_to_say_it(
    ledger: Ledger, clock: FakeClock
) -> None:
    ledger.journal.incidents.alerting = Alerting(to=("mail",))
    unheard = await ledger.journal.incidents.report("target mail", "451 later")
    assert unheard is not None and unheard.subject == "target mail"
    assert await ledger.journal.incidents.report("target mail", "452 later") is None, (
        "once is enough"
    )
    assert await ledger.journal.outbox.find() == []


@pytest.mark.parametrize("older", [False, True], ids=["of this version", "of an older version"])
async def test_an_unsent_question_is_withdrawn_with_its_run_whichever_version_wrote_it(
    ledger: Ledger, clock: FakeClock, older: bool
) -> None:
    run = await ledger.running()
    approval_request = ApprovalRequest(
        call_id="1.0", tool="shell", request={}, digest="d", rule="rule 1"
    )
    notice = WaitingNotice(
        title="t", head="h", questions=((new_id(), "q"),), targets=("mail", "phone")
    )
    await ledger.journal.approvals.park(
        run, [approval_request], patience=HOUR, detail="waits", notice=notice
    )
    if older:  # it had no such column
        await ledger.db.write(
            lambda connection: connection.execute("UPDATE outbox SET kind = NULL")
        )
    assert {each.kind for each in await ledger.journal.outbox.find()} == {"question"}
    await ledger.journal.runs.request_cancel(run.id)
    assert {each.status for each in await ledger.journal.outbox.find()} == {
        DeliveryStatus.SUPPRESSED
    }


async def test_an_incident_outlives_the_process(ledger: Ledger, clock: FakeClock) -> None:
    await ran(ledger, clock)
    other = Ledger(ledger.db, clock)
    await ran(other, clock)
    assert await sent(ledger.journal) == ["failed"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exit 1 after 3.5 s", "exit 2 after 12 s"),
        ("run 01M7Y1XG80JRPSQFYG5PZBA4WP failed", "run 01M7Y1XG8ZJRPSQFYG5PZBA4WQ failed"),
        ("at 0x7f0f5084de10", "at 0x7fe17c73d350"),
        ("request 3f2b8c1d-77aa-4f not found", "request 9a2b8c1d-71aa-4f not found"),
        ("2026-11-20 08:30: Late", "2026-11-21 09:00: late"),
    ],
)
def test_a_cause_is_known_again_by_its_words(one: str, other: str) -> None:
    assert signature_of(one) == signature_of(other)


@scaled_settings()
@given(st.text(max_size=2000))
def test_any_error_has_a_signature(text: str) -> None:
    assert len(signature_of(text)) <= 200 and signature_of(text) == signature_of(f" {text} ")
