"""Gates: conditions checked before a model is called, by command, by random moments and by earlier
reports.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.agent.tool_calls import ToolCallRunner
from daemon.cli import inspect
from daemon.cli.call import SKIPPED
from daemon.definitions.schedule import Schedule
from daemon.models import Outcome, Reason, Status, StepKind, ToolContext
from daemon.policy.policy import Policy
from daemon.runs.execute import UNGATED_TRIGGERS
from daemon.runs.run import supervise
from daemon.scheduler.slots import next_random_moment, random_moments
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.testing import TestApp
from daemon.tools.builtin import shell
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from tests.cli.agentctl import agentctl
from tests.empty_database import copy_empty_database
from tests.engine_harness import EngineHarness as Ledger
from tests.engine_harness import at, routine
from tests.properties import scaled_settings
from tests.replaying import ReplayedApp
from tests.runs.test_run import START, RunHarness

# --- command

POLICY = """
version = 1
[limits]
shell_seconds = 1
[[rule]]
tool = "shell"
effect = "allow"
argv = [["test", "cat", "sleep", "touch"]]
"""


class GatedHarness(RunHarness):
    """A host whose gates run real programs in a real workspace."""

    def __init__(self, journal, folder, command, **fields):
        super().__init__(journal, ["I looked.", "And again."], gate={"command": command}, **fields)
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (folder / "policy.toml").write_text(POLICY)
        self.real = Policy.load(folder / "policy.toml", workspace=self.workspace)
        self.tools = FunctionRegistry()
        shell.register_for_gates(self.tools, SimpleNamespace(policy=self.real))

    def gate_call_runner_for(self, run, routine):
        context = ToolContext(run=run.id, routine=run.routine, workspace=self.workspace)
        return ToolCallRunner(
            registry=self.tools,
            executor=ToolExecutor(self.tools),
            policy=self.real,
            context=context,
            offered_tools=["shell"],
            redact=self.redact,
        )


@pytest.fixture
async def journal(tmp_path):
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    yield Journal(database, clock=lambda: START)
    await database.close()


TODO = ["test", "-s", "inbox/to do"]


async def test_a_failing_gate_command_skips_the_run_before_facts_are_gathered(journal, tmp_path):
    harness = GatedHarness(journal, tmp_path, TODO, gather=[{"name": "host", "tool": "disks"}])
    run = await harness.run_once()
    assert (run.status, run.detail) == (
        Status.SKIPPED,
        "the gate's command said no: test -s 'inbox/to do'",
    )
    assert harness.provider.calls == []
    call, result = await journal.runs.get_steps(run.id)
    assert (call.kind, call.iteration, call.call_id) == (StepKind.CALL, 0, "gate.command")
    assert call.body["verdict"]["effect"] == "allow"
    assert result.body["value"] == {"exit_code": 1, "output": ""}
    (slot, *_) = await journal.slots.find()
    assert (slot.outcome, slot.reason) == (Outcome.SKIPPED, Reason.GATE)
    assert await journal.outbox.find() == []


async def test_a_succeeding_gate_command_lets_the_run_start(journal, tmp_path):
    harness = GatedHarness(journal, tmp_path, TODO, gather=[{"name": "host", "tool": "disks"}])
    (harness.workspace / "inbox").mkdir()
    (harness.workspace / "inbox/to do").write_text("water the plants")
    run = await harness.run_once()
    assert (run.status, run.report) == (Status.SUCCEEDED, "I looked.")
    assert "exit_code" not in harness.provider.calls[-1].messages[-1].content, (
        "the model is not told of the gate"
    )


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (["test", "1", "-eq", "x"], "the gate's command failed with exit code 2: test 1 -eq x: "),
        (["sleep", "30"], "the gate's command was not run: sleep 30: [failed] stopped after 1 s"),
        (
            ["rm", "-rf", "."],
            "the gate's command may not run: rm -rf .: no rule allows the program rm",
        ),
        (["test", "a\nb"], "the gate's command may not run: test 'a b': "),
    ],
)
async def test_a_gate_command_that_cannot_run_fails_the_run_with_the_reason(
    journal, tmp_path, command, detail
):
    harness = GatedHarness(journal, tmp_path, command)
    run = await harness.run_once()
    assert run.status is Status.FAILED
    assert run.detail.startswith(detail)
    assert "\n" not in run.detail
    assert harness.provider.calls == []


@pytest.mark.parametrize("trigger", ["manual", "first_run", "once"])
async def test_run_started_by_a_person_skips_the_gate(journal, tmp_path, trigger):
    harness = GatedHarness(journal, tmp_path, TODO)
    run = await harness.run_once(trigger=trigger, event="e")
    assert run.status is Status.SUCCEEDED


async def test_a_resumed_run_keeps_the_result_of_its_gate(journal, tmp_path):
    harness = GatedHarness(
        journal, tmp_path, ["test", "!", "-e", "seen"], gather=[{"name": "host", "tool": "stuck"}]
    )
    has_started = asyncio.Event()

    async def hang() -> None:
        """Wait."""
        has_started.set()
        await asyncio.Event().wait()

    harness.registry.register("stuck", None, hang, read_only=True)
    run = await harness.open()
    task = asyncio.create_task(supervise(run.id, harness))
    await has_started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (harness.workspace / "seen").touch()
    harness.registry.get_function("stuck")
    task = asyncio.create_task(supervise(run.id, harness))
    has_started.clear()
    await has_started.wait()  # it got past the gate once more
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    commands = [
        step for step in await journal.runs.get_steps(run.id) if step.call_id == "gate.command"
    ]
    assert len(commands) == 2, "one call and its result"


async def test_an_interrupted_gate_command_is_not_run_twice(journal, tmp_path):
    harness = GatedHarness(journal, tmp_path, ["touch", "seen"])
    run = await harness.open()
    claimed_run = await journal.runs.claim(run.id, owner="dies")
    body = {"tool": "shell", "arguments": {"command": "touch seen"}, "repeatable": False}
    from daemon.models import Step

    await journal.runs.append(
        claimed_run, Step(kind=StepKind.CALL, iteration=0, call_id="gate.command", body=body)
    )
    await journal.runs.recover("test")
    ended_run = await supervise(run.id, harness)
    assert ended_run.status is Status.FAILED
    assert "interrupted" in ended_run.detail
    assert not (harness.workspace / "seen").exists()


# --- moments

HOURS = st.builds(
    lambda start, length: (
        f"{start // 60:02}:{start % 60:02}-{(start + length) // 60 % 24:02}:"
        f"{(start + length) % 60:02}"
    ),
    st.integers(0, 1439),
    st.integers(60, 1439),
)


@scaled_settings(100)
@given(
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe"]),
    HOURS,
    st.sampled_from(
        [{"every": timedelta(minutes=30)}, {"cron": "*/20 * * * *"}, {"cron": "0 * * * 1-5"}]
    ),
    st.integers(1, 6),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
)
def test_random_moments_are_slots_spread_over_the_active_hours(zone, hours, trigger, number, now):
    schedule = Schedule.of(timezone=zone, active_hours=hours, **trigger)
    begin, end = schedule.window(now)
    moments = random_moments(schedule, "heartbeat", number, now)
    assert begin <= now
    assert now < end or not schedule.is_active(now)
    assert len(moments) <= number
    assert list(moments) == sorted(set(moments))
    for slot in moments:
        assert begin <= slot < end
        assert schedule.is_active(slot)
        assert schedule.prev(slot) == slot
    parts = [int((slot - begin) / ((end - begin) / number)) for slot in moments]
    assert len(set(parts)) == len(parts)
    inside = begin + (end - begin) / 2
    assert random_moments(schedule, "heartbeat", number, inside) == moments, (
        "the whole day long they are the same"
    )


def test_random_moments_differ_by_day_and_by_routine():
    schedule = Schedule.of(
        timezone="Europe/Berlin", every=timedelta(minutes=10), active_hours="08:00-21:00"
    )
    days = [datetime(2026, 3, day, 12, tzinfo=UTC) for day in range(1, 29)]
    moments_by_day = [
        [
            f"{slot.astimezone(ZoneInfo('Europe/Berlin')):%H:%M}"
            for slot in random_moments(schedule, "a", 2, day)
        ]
        for day in days
    ]
    assert all(len(moment) == 2 for moment in moments_by_day)
    assert len({tuple(moment) for moment in moments_by_day}) > 20
    assert random_moments(schedule, "a", 2, days[0]) != random_moments(schedule, "b", 2, days[0])


def test_active_hours_past_midnight_belong_to_the_first_day():
    schedule = Schedule.of(timezone="UTC", every=timedelta(minutes=30), active_hours="21:00-08:00")
    evening, morning = datetime(2026, 1, 1, 22, tzinfo=UTC), datetime(2026, 1, 2, 7, tzinfo=UTC)
    assert schedule.window(evening) == schedule.window(morning)
    assert random_moments(schedule, "owl", 3, evening) == random_moments(
        schedule, "owl", 3, morning
    )
    assert schedule.window(evening)[0].date() == date(2026, 1, 1)


def greeting(**gate):
    return routine(
        "heartbeat",
        {"every": timedelta(minutes=30), "timezone": "UTC", "active_hours": "08:00-21:00"},
        gate={"moments": 2, **gate},
        deliver=[{"to": "log"}],
    )


async def speak(harness: Ledger, is_delivered: bool | None = True) -> None:
    """Live what is queued; its report arrives, is lost, or is still on its way (None)."""
    for run in await harness.journal.runs.find_active():
        claimed_run = await harness.journal.runs.claim(run.id, owner="test")
        now = datetime.now(UTC)
        await harness.journal.runs.end(
            claimed_run.to(Status.SUCCEEDED, ended=now, report="Hello."), [("log", {})]
        )
        for delivery in await harness.journal.outbox.find(run=run.id):
            if is_delivered:
                await harness.journal.outbox.mark_delivered(delivery.id, "said")
            elif is_delivered is False:
                await harness.journal.outbox.mark_failed(delivery.id, "nobody there", None)


async def through_the_day(harness: Ledger, day: str = "02", **how) -> list[str]:
    for half_hour in range(16, 43):
        await harness.reach(f"{day} {half_hour // 2:02}:{half_hour % 2 * 30:02}")
        await speak(harness, **how)
    return [
        run.slot.strftime("%H:%M")
        for run in harness.submitted_runs
        if run.slot.strftime("%d") == day
    ]


def draw_moments(day: str = "02") -> list[str]:
    schedule = Schedule.of(timezone="UTC", every=timedelta(minutes=30), active_hours="08:00-21:00")
    return [
        f"{slot:%H:%M}" for slot in random_moments(schedule, "heartbeat", 2, at(f"{day} 12:00"))
    ]


async def settle_in(harness: Ledger, **gate) -> None:
    """Boot in the evening, when the day's moments are over."""
    harness.time.move_to(at("01 22:00"))
    await harness.boot(greeting(**gate))


async def test_a_routine_with_moments_runs_at_its_random_moments_and_skips_other_slots(
    harness: Ledger,
) -> None:
    await settle_in(harness)
    assert await through_the_day(harness) == draw_moments()
    assert all(
        "skipped gate" in row or "ran" in row or "quiet_hours" in row
        for row in await harness.rows()
    )


async def test_restart_keeps_the_random_moments(harness: Ledger) -> None:
    await settle_in(harness)
    first, second = draw_moments()
    await harness.reach(f"02 {first}")
    await speak(harness)
    await harness.boot(greeting())
    assert await through_the_day(harness) == [first, second]


async def test_an_undelivered_report_leaves_its_random_moment_to_the_next_slot(
    harness: Ledger,
) -> None:
    await settle_in(harness)
    first, _ = draw_moments()
    await harness.reach(f"02 {first}")
    await speak(harness, is_delivered=False)
    await harness.reach((at(f"02 {first}") + timedelta(minutes=30)).isoformat()[:16])
    await speak(harness)
    await harness.reach((at(f"02 {first}") + timedelta(minutes=60)).isoformat()[:16])
    greetings = [run for run in harness.submitted_runs if run.slot >= at("02 00:00")]
    assert len(greetings) == 2, "the second one arrived and has used the moment up"


async def test_a_pending_delivery_uses_up_its_random_moment(harness: Ledger) -> None:
    await settle_in(harness)
    assert await through_the_day(harness, is_delivered=None) == draw_moments()


async def test_a_silent_run_leaves_its_random_moment_to_the_next_slot(harness: Ledger) -> None:
    await settle_in(harness)
    first, _ = draw_moments()
    await harness.reach(f"02 {first}")
    (run,) = [
        run for run in await harness.journal.runs.find_active() if run.slot == at(f"02 {first}")
    ]
    claimed_run = await harness.journal.runs.claim(run.id, owner="test")
    await harness.journal.runs.end(
        claimed_run.to(Status.SUCCEEDED, ended=at(f"02 {first}"), silent=True), [("log", {})]
    )
    following = at(f"02 {first}") + timedelta(minutes=30)
    await harness.reach(following.isoformat()[:16])
    assert harness.submitted_runs[-1].slot == following


async def test_a_busy_operator_delays_the_random_moment_and_reports_never_follow_directly(
    harness: Ledger,
) -> None:
    await settle_in(harness, idle="4h")
    _, second = draw_moments()
    seen_at = at(f"02 {second}") - timedelta(minutes=10)
    await harness.journal.key_values.put("operator_seen", seen_at.isoformat())
    await harness.reach(seen_at.isoformat()[:16])
    before = len(harness.submitted_runs)
    await speak(harness)
    await harness.reach((seen_at + timedelta(hours=3)).isoformat()[:16])
    assert len(harness.submitted_runs) == before, "somebody is at work"


async def test_a_random_moment_before_the_baseline_is_past(harness: Ledger) -> None:
    first, second = draw_moments()
    harness.time.move_to(at(f"02 {first}") + timedelta(minutes=1))
    await harness.boot(greeting())
    assert await through_the_day(harness) == [second]


async def test_the_schedule_of_a_routine_with_moments_names_its_random_moments(
    harness: Ledger,
) -> None:
    await settle_in(harness)
    slots = "every 30 minutes within 08:00-21:00, UTC"
    assert harness.engine.describe_schedule(greeting()) == f"at 2 random moments of a day ({slots})"
    assert (
        harness.engine.describe_schedule(greeting(moments=1))
        == f"at a random moment of a day ({slots})"
    )


async def test_next_fires_are_the_random_moments_only(harness: Ledger) -> None:
    await settle_in(harness)
    days = ("02", "03", "04")
    expected = [at(f"{day} {moment}") for day in days for moment in draw_moments(day)]
    assert harness.engine.next_slots("heartbeat", 6) == expected
    assert harness.engine.next_slots("heartbeat", 1, after=expected[0]) == expected[1:2]


def test_random_moments_of_weekdays_continue_after_the_weekend() -> None:
    schedule = Schedule.of(
        timezone="Europe/Berlin",
        every=timedelta(minutes=10),
        active_hours="22:00-06:00",
        active_days="mon-fri",
    )
    moment, moments = datetime(2026, 3, 1, tzinfo=UTC), []
    while len(moments) < 50:
        moment = next_random_moment(schedule, "owl", 3, moment)
        assert moment is not None
        assert moment in random_moments(schedule, "owl", 3, moment)
        moments.append(moment)
    assert moments == sorted(set(moments))
    nights = {schedule.window(moment)[0].astimezone(schedule.zone) for moment in moments}
    assert {night.isoweekday() for night in nights} == {1, 2, 3, 4, 5}


def test_a_one_time_schedule_has_no_later_random_moment() -> None:
    schedule = Schedule.of(timezone="UTC", at=at("02 09:00"))
    assert next_random_moment(schedule, "once", 1, at("02 10:00")) is None


# --- the others


async def test_silent_runs_do_not_count_toward_max_per_day(harness: Ledger) -> None:
    harness.time.move_to(at("02 00:30"))
    await harness.boot(
        routine(
            "watchman",
            {"every": timedelta(hours=1), "timezone": "UTC"},
            gate={"max_per_day": 1},
            deliver=[],
        )
    )
    for hour in ("01", "02"):
        await harness.reach(f"02 {hour}:00")
        (run,) = await harness.journal.runs.find_active()
        claimed_run = await harness.journal.runs.claim(run.id, owner="test")
        await harness.journal.runs.end(
            claimed_run.to(Status.SUCCEEDED, ended=datetime.now(UTC), silent=hour == "01"),
            [("alive", {"ping": "success"})],
        )
    await harness.reach("02 05:00")
    assert (await harness.rows())[-1] == "02 03:00 to 02 05:00, 3 skipped gate"


async def test_a_skipped_slot_keeps_the_gate_key_that_closed_it(
    harness: Ledger,
) -> None:
    await settle_in(harness, idle="4h")
    await harness.journal.key_values.put("operator_seen", at(f"02 {draw_moments()[0]}").isoformat())
    await through_the_day(harness)
    await harness.reload(greeting())
    rows = {
        row.rule
        for row in await harness.journal.slots.find("heartbeat", limit=1000)
        if row.reason is Reason.GATE
    }
    assert rows == {"moments = 2", 'idle = "4h"'}


# --- by hand


async def test_no_gate_holds_for_a_run_by_hand_and_inspect_says_so(tmp_path):
    app = TestApp(tmp_path)
    app.write_routine(
        "load",
        """
[trigger]
every = "1h"
[run]
mode = "script"
[[gather]]
name = "load"
tool = "file_list"
[gate]
changed = ["load"]
idle = "1h"
max_per_day = 1
moments = 1
command = ["test", "-e", "go"]
[[deliver]]
to = "log"
""",
    )
    app.write_routine("free", '[run]\nmode = "script"\n[[gather]]\nname = "a"\ntool = "sysinfo"\n')
    rules = [f'[[rule]]\ntool = "{tool}"\neffect = "allow"\n' for tool in ("sysinfo", "file_list")]
    app.write("policy.toml", f"version = 1\n{''.join(rules)}")
    async with app, app.serve_api() as socket:
        for _ in range(2):  # the second finds all gates closed: the facts are those of the first
            run = await app.run("load")
            assert run.status is Status.SUCCEEDED, run.detail
        output = (await agentctl(socket, "inspect", run.id)).out
        assert (
            "gate      a run by hand looks at none: changed, idle, max_per_day, moments, command "
            "did not count" in " ".join(output.split("\n"))
        )
        ungated_run = await app.run("free")
        assert "gate" not in (await agentctl(socket, "inspect", ungated_run.id)).out


def test_inspect_knows_how_runs_are_started_that_look_at_no_gate():
    assert frozenset(inspect.UNGATED_TRIGGERS) == UNGATED_TRIGGERS


# --- a person who asks for the gate

COUNTED = """
[run]
mode = "script"
[[gather]]
name = "files"
tool = "file_list"
[gate]
{gate}
[[deliver]]
to = "log"
"""


@pytest.fixture
def app(tmp_path):
    app = ReplayedApp(tmp_path)
    rules = '[[rule]]\ntool = "file_list"\neffect = "allow"\n'
    rules += '[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["test"]\n'
    app.write("policy.toml", f"version = 1\n{rules}")
    return app


async def run_gated(app, **body):
    answer = await app.request("POST", "/v1/routines/count/run", {"gate": True, **body})
    if answer.status != 200:
        return answer.json["detail"]
    return await app.finish(answer.json["id"])


@pytest.mark.parametrize("gate", ['changed = ["files"]', 'command = ["test", "-e", "go"]'])
async def test_a_run_by_hand_asks_the_gate_where_a_person_wants_it(app, gate):
    app.write_routine("count", COUNTED.format(gate=gate))
    async with app, app.serve_api() as socket:
        (app.workspace / "a").touch()
        assert (await app.run("count")).status is Status.SUCCEEDED
        run = await run_gated(app)
        assert run.status is Status.SKIPPED
        assert "nothing changed in files" in run.detail or "test -e go" in run.detail
        assert "looks at none" not in (await agentctl(socket, "inspect", run.id)).out
        result = await agentctl(socket, "run", "count", "--gate")
        assert result.code == SKIPPED
        assert f"skipped: {run.detail}" in " ".join(result.err.split())
        (app.workspace / "go").touch()
        result = await agentctl(socket, "run", "count", "--gate")
        assert (result.code, "go" in result.out) == (0, True), result.err


async def test_a_gate_that_is_closed_before_there_is_a_run_refuses_it(app):
    app.write_routine("count", COUNTED.format(gate='max_per_day = 1\nidle = "1h"'))
    async with app:
        (app.workspace / "a").touch()
        run = await run_gated(app, event="first")
        assert run.status is Status.SUCCEEDED, "who asks is not idle, and that does not count"
        await app.deliver()
        assert await run_gated(app, event="second") == (
            "the gate of count is closed: max_per_day = 1; without --gate it runs all the same"
        )
        assert (await run_gated(app, event="first")).id == run.id
        assert (await app.run("count")).status is Status.SUCCEEDED
