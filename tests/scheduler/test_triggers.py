"""Event triggers on a real journal and real files: each event starts one run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from daemon.errors import NotFound, Refused
from daemon.models import Run, Status
from tests.engine_harness import EngineHarness, at, routine


class Workplace(EngineHarness):
    """An engine with a workspace, whose next run a test can wait for."""

    def __init__(self, folder: Path, time: FrozenDateTimeFactory) -> None:
        super().__init__(folder, time)
        self.workspace = folder / "workspace"
        (self.workspace / "inbox").mkdir(parents=True)
        self.came: asyncio.Queue[Run] = asyncio.Queue()

    async def submit(self, run: Run) -> None:
        await super().submit(run)
        self.came.put_nowait(run)

    async def next_run(self) -> Run:
        async with asyncio.timeout(60):
            return await self.came.get()

    async def paths(self, run: Run) -> list[str]:
        return list((await self.journal.runs.get_input(run.id))["paths"])

    def drop(self, *names: str, text: str = "x") -> None:
        for name in names:
            (self.workspace / "inbox" / name).write_text(text)

    async def end(self, run: Run, status: Status = Status.SUCCEEDED) -> Run:
        """Live a run for a minute."""
        claimed_run = await self.journal.runs.claim(run.id, owner="test")
        self.time.tick(60)
        assert claimed_run
        return await self.journal.runs.end(claimed_run.to(status, report="said"))


@pytest.fixture
def time() -> Iterator[FrozenDateTimeFactory]:
    with freeze_time("2026-01-01 08:00", real_asyncio=True) as frozen_time:
        yield frozen_time


@pytest.fixture
async def harness(tmp_path: Path, time: FrozenDateTimeFactory) -> AsyncIterator[Workplace]:
    harness = Workplace(tmp_path, time)
    yield harness
    if harness.db:
        await harness.engine.stop()
        await harness.crash()


@pytest.fixture
def log_events() -> Iterator[asyncio.Queue[dict[str, Any]]]:
    """What goes to the log, one event after the other."""
    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def note(_logger: object, _method: str, event: dict[str, Any]) -> str:
        queue.put_nowait(event)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[note])
    yield queue
    structlog.configure(**before)


async def next_log_event(log_events: asyncio.Queue[dict[str, Any]], name: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (event := await log_events.get())["event"] != name:
            pass
    return event


def inbox(name: str = "inbox", trigger: dict[str, Any] | None = None, **more: Any) -> Any:
    watch = {"watch": ["inbox/*"], "settle": timedelta(seconds=0.1), **(trigger or {})}
    return routine(name, watch, **more)


def after(name: str, *parents: str, **trigger: Any) -> Any:
    return routine(name, {"after": list(parents), **trigger})


BACKUP = routine("backup", {})


# --- files


async def test_files_landing_together_start_one_run_with_their_paths(
    harness: Workplace,
) -> None:
    await harness.boot(inbox())
    harness.drop("b.csv", "a.csv")
    run = await harness.next_run()
    assert (run.trigger, run.slot, run.goal) == ("watch", at("01 08:00"), "say inbox")
    assert await harness.paths(run) == ["inbox/a.csv", "inbox/b.csv"]
    assert run.event is not None and run.event.startswith("inbox/a.csv and 1 more (")
    assert await harness.rows() == ["01 08:00 ran"]


async def test_files_landed_during_a_downtime_start_one_run_at_start(
    harness: Workplace,
) -> None:
    await harness.boot(inbox())
    await harness.crash()
    harness.drop("a.csv")
    await harness.boot(inbox())
    run = await harness.next_run()
    assert await harness.paths(run) == ["inbox/a.csv"]
    await harness.end(run)
    harness.drop("b.csv")
    await harness.boot(inbox())
    assert await harness.paths(await harness.next_run()) == ["inbox/b.csv"]


async def test_kill_9_between_claim_and_run_starts_nothing_twice(harness: Workplace) -> None:
    await harness.boot(inbox())
    harness.drop("a.csv")
    run = await harness.next_run()
    await harness.boot(inbox())
    assert [recovered_run.id for recovered_run in await harness.journal.runs.recover("me")] == [
        run.id
    ]
    await harness.end(run)
    harness.drop("b.csv")
    assert await harness.paths(await harness.next_run()) == ["inbox/b.csv"]
    assert len(await harness.journal.slots.find()) == 2


async def test_each_file_version_starts_one_run_despite_an_edit_of_the_prompt(
    harness: Workplace,
) -> None:
    await harness.boot(inbox())
    harness.drop("a.csv")
    await harness.end(await harness.next_run())
    await harness.reload(inbox(run={"prompt": "another"}))
    harness.drop("a.csv", text="a newer version")
    run = await harness.next_run()
    assert (await harness.paths(run), run.goal) == (["inbox/a.csv"], "another")
    assert len(await harness.journal.slots.find()) == 2


async def test_each_routine_records_its_own_file_versions(harness: Workplace) -> None:
    await harness.boot(inbox())
    harness.drop("a.csv")
    await harness.end(await harness.next_run())
    await harness.reload(inbox(), inbox("second"))
    run = await harness.next_run()
    assert (run.routine, await harness.paths(run)) == ("second", ["inbox/a.csv"])


async def test_files_landing_during_a_run_start_one_run_afterwards(
    harness: Workplace, log_events: asyncio.Queue[dict[str, Any]]
) -> None:
    await harness.boot(inbox())
    harness.drop("a.csv")
    first = await harness.next_run()
    harness.drop("b.csv", "c.csv")
    assert (await next_log_event(log_events, "files.waiting"))["reason"] == "overlap"
    await harness.end(first)
    assert await harness.paths(await harness.next_run()) == ["inbox/b.csv", "inbox/c.csv"]


async def test_files_wait_for_the_end_of_a_pause(
    harness: Workplace, log_events: asyncio.Queue[dict[str, Any]]
) -> None:
    await harness.boot(inbox())
    await harness.engine.pause("inbox")
    harness.drop("a.csv")
    assert (await next_log_event(log_events, "files.waiting"))["reason"] == "paused"
    await harness.engine.resume("inbox")
    assert await harness.paths(await harness.next_run()) == ["inbox/a.csv"]


async def test_files_start_a_run_at_the_end_of_a_timed_pause(
    harness: Workplace, log_events: asyncio.Queue[dict[str, Any]]
) -> None:
    await harness.boot(inbox())
    await harness.engine.pause("inbox", until=at("01 10:00"))
    harness.drop("a.csv")
    await next_log_event(log_events, "files.waiting")
    await harness.quiet()
    assert harness.next_start == at("01 10:00")
    await harness.reach("01 10:00")
    assert (await harness.next_run()).slot == at("01 10:00")


async def test_files_landing_outside_active_hours_wait_for_them(
    harness: Workplace, log_events: asyncio.Queue[dict[str, Any]]
) -> None:
    await harness.boot(inbox(trigger={"active_hours": "09:00-17:00"}))
    harness.drop("a.csv")
    assert (await next_log_event(log_events, "files.waiting"))["reason"] == "quiet_hours"
    await harness.quiet()
    await harness.reach("01 09:00")
    assert (await harness.next_run()).slot == at("01 09:00")


async def test_files_over_max_per_day_wait_for_the_next_day(
    harness: Workplace, log_events: asyncio.Queue[dict[str, Any]]
) -> None:
    await harness.boot(inbox(gate={"max_per_day": 1}))
    harness.drop("a.csv")
    await harness.end(await harness.next_run())
    harness.drop("b.csv")
    assert (await next_log_event(log_events, "files.waiting"))[
        "until"
    ] == "2026-01-02T00:00:00+00:00"
    await harness.quiet()
    await harness.reach("02 00:00")
    assert await harness.paths(await harness.next_run()) == ["inbox/b.csv"]


async def test_files_wait_for_the_idle_gate(
    harness: Workplace, log_events: asyncio.Queue[dict[str, Any]]
) -> None:
    await harness.boot(inbox(gate={"idle": timedelta(hours=2)}), BACKUP)
    await harness.engine.run_now("backup")
    await harness.next_run()
    harness.drop("a.csv")
    assert (await next_log_event(log_events, "files.waiting"))[
        "until"
    ] == "2026-01-01T10:00:00+00:00"
    await harness.quiet()
    await harness.reach("01 10:00")
    assert (await harness.next_run()).routine == "inbox"


async def test_files_start_a_run_when_an_edit_opens_the_gate(
    harness: Workplace, log_events: asyncio.Queue[dict[str, Any]]
) -> None:
    await harness.boot(inbox(trigger={"active_hours": "09:00-17:00"}))
    harness.drop("a.csv")
    await next_log_event(log_events, "files.waiting")
    await harness.quiet()
    await harness.reload(inbox())
    assert await harness.paths(await harness.next_run()) == ["inbox/a.csv"]


async def test_a_disabled_routine_takes_no_files_until_it_is_enabled(harness: Workplace) -> None:
    await harness.boot(inbox(enabled=False), inbox("other"))
    harness.drop("a.csv")
    assert (await harness.next_run()).routine == "other"
    await harness.reload(inbox(), inbox("other"))
    assert (await harness.next_run()).routine == "inbox"


async def test_versions_of_long_removed_files_are_forgotten_at_start(harness: Workplace) -> None:
    await harness.boot(inbox())
    harness.drop("gone.csv", "kept.csv")
    await harness.end(await harness.next_run())
    (harness.workspace / "inbox/gone.csv").unlink()
    await harness.crash()
    harness.time.move_to(at("2026-06-01T08:00"))
    await harness.boot(inbox())
    harness.drop("new.csv")
    assert await harness.paths(await harness.next_run()) == ["inbox/new.csv"]
    assert {path for path, _ in await harness.journal.slots.get_seen_files("inbox")} == {
        "inbox/kept.csv",
        "inbox/new.csv",
    }


async def test_files_of_a_long_quiet_folder_that_is_away_for_days_start_no_second_run(
    harness: Workplace,
) -> None:
    usb, unmounted = harness.workspace / "usb", harness.folder / "unmounted"
    usb.mkdir()
    (usb / "b.csv").write_text("x")
    harness.drop("a.csv")
    await harness.boot(inbox(trigger={"watch": ["inbox/*", "usb/*"]}))
    run = await harness.next_run()
    assert await harness.paths(run) == ["inbox/a.csv", "usb/b.csv"]
    await harness.end(run)
    await harness.quiet()
    assert harness.next_start == at("02 08:00"), "they are looked at once a day"
    await harness.reach("2026-04-20T08:00")
    usb.rename(unmounted)
    harness.drop("new.csv")
    await harness.end(await harness.next_run())
    await harness.quiet()
    await harness.reach("2026-04-23T08:00")
    unmounted.rename(usb)
    harness.drop("newer.csv")
    assert await harness.paths(await harness.next_run()) == ["inbox/newer.csv"]


# --- chains


async def test_an_after_trigger_starts_a_run_with_the_earlier_report(
    harness: Workplace,
) -> None:
    await harness.boot(BACKUP, after("report", "backup"))
    first = await harness.engine.run_now("backup")
    await harness.end(first)
    await harness.quiet()
    _, second = harness.submitted_runs
    assert (second.routine, second.trigger, second.event, second.slot) == (
        "report",
        "after",
        first.id,
        at("01 08:01"),
    )
    run_input = {"routine": "backup", "run": first.id, "status": "succeeded", "report": "said"}
    assert await harness.journal.runs.get_input(second.id) == run_input


@pytest.mark.parametrize(
    ("on", "starts"),
    [
        ("succeeded", {Status.SUCCEEDED}),
        ("failed", {Status.FAILED, Status.TIMED_OUT, Status.INTERRUPTED}),
        (
            "ended",
            {
                Status.SUCCEEDED,
                Status.FAILED,
                Status.TIMED_OUT,
                Status.INTERRUPTED,
                Status.CANCELLED,
            },
        ),
    ],
)
async def test_after_trigger_depends_on_the_ending_of_the_other_routine(
    harness: Workplace, on: str, starts: set[Status]
) -> None:
    retry = {"run": {"prompt": "x", "retry": {"pause_after": 0}}}
    await harness.boot(BACKUP, routine("report", {"after": ["backup"], "on": on}, **retry))
    statuses = set()
    for status in (status for status in Status if status.has_ended):
        before = len(harness.submitted_runs)
        await harness.end(await harness.engine.run_now("backup"), status)
        await harness.quiet()
        if len(harness.submitted_runs) == before + 2:
            statuses.add(status)
            await harness.end(harness.submitted_runs[-1])
    assert statuses == starts


async def test_an_after_trigger_fires_for_a_cancelled_waiting_run(harness: Workplace) -> None:
    await harness.boot(BACKUP, after("report", "backup", on="ended"))
    run = await harness.engine.run_now("backup")
    harness.time.tick(60)
    await harness.journal.runs.request_cancel(run.id)
    await harness.quiet()
    assert [run.routine for run in harness.submitted_runs] == ["backup", "report"]


async def test_chain_of_after_triggers_runs_to_its_end(harness: Workplace) -> None:
    await harness.boot(BACKUP, after("sync", "backup"), after("report", "backup", "sync"))
    await harness.end(await harness.engine.run_now("backup"))
    await harness.quiet()
    sync = next(run for run in harness.submitted_runs if run.routine == "sync")
    report = next(run for run in harness.submitted_runs if run.routine == "report")
    await harness.end(report)
    await harness.end(sync)
    await harness.quiet()
    assert [run.routine for run in harness.submitted_runs].count("report") == 2


async def test_kill_9_between_two_chained_runs_loses_no_run(
    harness: Workplace,
) -> None:
    await harness.boot(BACKUP, after("report", "backup"))
    run = await harness.engine.run_now("backup")
    harness.journal.runs.on_ended = lambda run: None  # the process dies before it could hear
    await harness.end(run)
    await harness.crash()
    await harness.reach("01 09:00")
    for _ in range(3):
        await harness.boot(BACKUP, after("report", "backup"))
    assert [run.routine for run in harness.submitted_runs] == ["backup", "report"]
    assert harness.submitted_runs[1].event == run.id


async def test_a_run_ended_before_the_routine_existed_starts_no_run(harness: Workplace) -> None:
    await harness.boot(BACKUP)
    await harness.end(await harness.engine.run_now("backup"))
    await harness.reach("01 09:00")
    await harness.reload(BACKUP, after("report", "backup"))
    await harness.boot(BACKUP, after("report", "backup"))
    assert len(harness.submitted_runs) == 1


async def test_a_run_active_when_the_routine_was_added_starts_its_after_trigger(
    harness: Workplace,
) -> None:
    await harness.boot(BACKUP)
    run = await harness.engine.run_now("backup")
    await harness.reach("01 09:00")
    await harness.reload(BACKUP, after("report", "backup"))
    await harness.reach("01 10:00")
    await harness.end(run)
    await harness.quiet()
    assert [run.routine for run in harness.submitted_runs] == ["backup", "report"]


async def test_an_after_trigger_during_a_pause_is_skipped_for_good(
    harness: Workplace,
) -> None:
    await harness.boot(BACKUP, after("report", "backup"))
    await harness.engine.pause("report")
    await harness.end(await harness.engine.run_now("backup"))
    await harness.quiet()
    assert await harness.rows("report") == ["01 08:01 skipped paused"]
    await harness.engine.resume("report")
    await harness.boot(BACKUP, after("report", "backup"))
    assert len(harness.submitted_runs) == 1


async def test_an_after_trigger_of_a_broken_file_fires_once_corrected(
    harness: Workplace,
) -> None:
    await harness.boot(BACKUP, after("report", "backup"))
    await harness.boot(BACKUP, faulty_names=["report"])
    await harness.end(await harness.engine.run_now("backup"))
    await harness.boot(BACKUP, faulty_names=["report"])
    await harness.reload(BACKUP, after("report", "backup"))
    assert [run.routine for run in harness.submitted_runs] == ["backup", "report"]


async def test_an_edit_that_closes_a_cycle_with_kept_definitions_is_refused(
    harness: Workplace,
) -> None:
    await harness.boot(routine("a", {}), after("b", "a"))
    # b's file is broken now and keeps coming after a; so a cannot come after b
    changes = await harness.reload(after("a", "b"), faulty_names=["b"])
    assert not changes
    assert "a → b → a" in str(harness.engine.faults["a"])
    assert harness.engine.routines["a"].trigger.after == ()
    await harness.reload(after("a", "b"), routine("b", {}))
    assert harness.engine.faults == {}
    assert harness.engine.routines["a"].trigger.after == ("b",)


# --- webhooks

DOOR = routine("door", {"webhook": True})


async def test_a_webhook_starts_a_run_with_its_body(harness: Workplace) -> None:
    await harness.boot(DOOR)
    run = await harness.engine.start_by_webhook("door", event="m-1", body={"who": "Ada"})
    assert (run.routine, run.trigger, harness.submitted_runs) == ("door", "webhook", [run])
    assert await harness.journal.runs.get_input(run.id) == {"who": "Ada"}


async def test_the_same_message_is_the_same_run_also_after_a_crash(harness: Workplace) -> None:
    await harness.boot(DOOR)
    run = await harness.engine.start_by_webhook("door", event="m-1", body={})
    await harness.boot(DOOR)
    assert (await harness.engine.start_by_webhook("door", event="m-1", body={})).id == run.id
    assert len(harness.submitted_runs) == 1


async def test_only_routines_with_a_webhook_trigger_start_by_webhook(harness: Workplace) -> None:
    await harness.boot(DOOR, BACKUP, routine("off", {"webhook": True}, enabled=False))
    for name in ("backup", "off", "nothing"):
        with pytest.raises(NotFound, match="there is no webhook"):
            await harness.engine.start_by_webhook(name, event="m-1", body={})
    assert harness.engine.webhook_routines == ["door"]


async def test_webhook_event_with_a_reserved_name_gets_its_own_run(harness: Workplace) -> None:
    await harness.boot(routine("door", {"webhook": True}, first_run=True))
    (first,) = harness.submitted_runs
    await harness.end(first)
    assert (
        await harness.engine.start_by_webhook("door", event="first_run", body={})
    ).id != first.id


async def test_a_refused_webhook_has_a_reason_and_is_accepted_when_sent_again(
    harness: Workplace,
) -> None:
    await harness.boot(DOOR)
    await harness.engine.pause("door")
    harness.time.tick(60)
    with pytest.raises(Refused, match="door does not run now: it is paused; send it again later"):
        await harness.engine.start_by_webhook("door", event="m-1", body={})
    assert await harness.rows() == ["01 08:01 skipped paused"]
    await harness.engine.resume("door")
    run = await harness.engine.start_by_webhook("door", event="m-1", body={})
    with pytest.raises(Refused, match="a run of it is under way"):
        await harness.engine.start_by_webhook("door", event="m-2", body={})
    assert harness.submitted_runs == [run]


# --- machines


@pytest.mark.parametrize("globs", [["box-*"], ["BOX-1"], ["*.example.org"], ["other", "box-?"], []])
async def test_a_routine_starts_on_the_machines_it_names(
    harness: Workplace, globs: list[str]
) -> None:
    bound_routine = routine("daily", {"cron": "0 9 * * *", "machines": globs})
    await harness.boot(bound_routine)
    assert harness.engine.describe_host_mismatch(bound_routine) == ""
    await harness.reach("01 09:00")
    assert harness.starts == ["daily 01 09:00"]


async def test_a_routine_of_another_machine_starts_only_manually(
    harness: Workplace,
) -> None:
    far = {"machines": ["laptop", "box-2"]}
    routines = [
        routine("daily", {"cron": "0 9 * * *", **far}, first_run=True),
        inbox("files", far),
        after("chained", "by-hand", **far),
        routine("door", {"webhook": True, **far}),
        routine("by-hand", {}),
    ]
    await harness.boot(*routines)
    harness.drop("a.csv")
    await harness.end(await harness.engine.run_now("by-hand"))
    await harness.reach("01 12:00")
    with pytest.raises(NotFound):
        await harness.engine.start_by_webhook("door", event="m", body={})
    assert [run.routine for run in harness.submitted_runs] == ["by-hand"]
    assert await harness.rows("daily") == []
    assert harness.engine.next_slots("daily") == []
    assert harness.engine.describe_schedule(routines[0]) == (
        "at 09:00, UTC; not on this machine: box-1.example.org is none of laptop, box-2"
    )
    assert (await harness.engine.run_now("daily")).routine == "daily"


# --- words


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({"watch": ["inbox/*.csv"]}, "when a file lands in inbox/*.csv"),
        ({"watch": ["a/*", "b/*", "c/*"]}, "when a file lands in a/*, b/* or c/*"),
        (
            {"watch": ["inbox/*"], "active_hours": "08:00-17:00"},
            "when a file lands in inbox/* within 08:00-17:00, UTC",
        ),
        ({"webhook": True, "on_start": True}, "by webhook and when the daemon starts"),
        ({"after": ["backup"]}, "after backup succeeded"),
        ({"after": ["backup", "sync"], "on": "failed"}, "after backup or sync failed"),
        ({"after": ["backup"], "on": "ended"}, "after backup ended"),
        ({}, "by hand only"),
    ],
)
async def test_triggers_are_described_in_words(
    harness: Workplace, trigger: dict[str, Any], words: str
) -> None:
    await harness.boot()
    assert harness.engine.describe_schedule(routine("x", trigger)) == words
