"""Each run ends in exactly one way, which its row names with the reason."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.agent.loop import LoopLimits
from daemon.agent.prompt import Persona, PromptContext
from daemon.agent.tool_calls import ToolCallRunner
from daemon.definitions.routines.routine import Routine
from daemon.errors import BadKey, DaemonError, NothingListens, Overloaded, ToolFailed
from daemon.models import DeliveryStatus, Outcome, Status, StepKind, Taint, ToolContext, Usage
from daemon.policy.policy import Policy
from daemon.providers import create_provider
from daemon.runs.events import EventBus
from daemon.runs.retry import hash_to_fraction
from daemon.runs.run import supervise
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal
from daemon.store.opening import open_database
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from tests.agent.conftest import Rules, call, calls
from tests.empty_database import copy_empty_database
from tests.runs.bare_run_context import BareRunContext

START = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


class RunHarness(BareRunContext):
    """A small run context: a real journal, a script for a model, and a few functions."""

    def __init__(self, journal, replies=(), **routine):
        super().__init__()
        self.journal, self.events, self.owner, self.zone = (
            journal,
            EventBus(),
            "test",
            "Europe/Berlin",
        )
        self.moment = START
        self.archived_replies = []
        self.provider = create_provider("scripted", replies=replies)
        self.policy = Rules()
        self.registry = FunctionRegistry()
        self.disk = "71 %"

        def disks() -> dict:
            """Disks."""
            if self.disk == "broken":
                raise OSError("no such disk")
            return {"disks": self.disk}

        def finish(notify: bool = True, reason: str = "") -> str:
            """End."""
            return "ended"

        self.registry.register(
            "disks",
            None,
            disks,
            read_only=True,
            changes=lambda before, after: (
                [f"{before['disks']} → {after['disks']}"] if before != after else []
            ),
        )

        def peek(path: str) -> str:
            """Look."""
            if path.endswith(".key"):
                raise ToolFailed("keys stay closed")
            return f"begins like {path}"

        self.registry.register("finish", None, finish, read_only=True)
        self.registry.register("peek", None, peek, read_only=True)
        fields = {"run": {"prompt": "Report."}, "deliver": [{"to": "file", "path": "r.md"}]}
        self.routine = Routine.model_validate({"name": "daily", **fields, **routine})

    def now(self):
        return self.moment

    def redact(self, text):
        return text.replace("s3cr3t", "[secret]")

    async def routine_of(self, run):
        return Routine.restore(await self.journal.runs.get_definition(run.definition))

    def context(self, run):
        return ToolContext(run=run.id, routine=run.routine, workspace=Path("/nowhere"))

    def call_runner_for(self, run, routine):
        return ToolCallRunner(
            registry=self.registry,
            executor=ToolExecutor(self.registry),
            policy=self.policy,
            context=self.context(run),
            offered_tools=self.registry.names(),
            redact=self.redact,
        )

    def gate_call_runner_for(self, run, routine):
        return self.call_runner_for(run, routine)

    async def agent_for(self, run, routine, record, deadline):
        tools = [*routine.run.tools, "finish"] if routine.run.mode == "agent" else []
        return Agent(
            self.provider,
            self.registry,
            options=AgentOptions(
                prompt_context=PromptContext(
                    persona=Persona(),
                    workspace=Path("/nowhere"),
                    now=self.moment,
                    zone=UTC,
                    routine=run.routine,
                    silent_token=routine.run.silent_token or "",
                ),
                tool_context=self.context(run),
                offered_tools=tools,
                limits=LoopLimits(attempts=1),
                deadline=deadline,
            ),
            services=AgentServices(policy=self.policy, step_writer=record, redact=self.redact),
            steps=record.steps,
        )

    async def archive(self, run, routine, reply, steps):
        self.archived_replies.append((run.id, reply.content))
        return Usage()

    async def open(self, trigger="cron", event=None, outcome=Outcome.RAN, **more):
        claim = Claim(
            routine=self.routine.name,
            definition=self.routine.dump(),
            trigger=trigger,
            slot=self.moment,
            goal=self.routine.run.prompt,
            event=event,
            outcome=outcome,
            **more,
        )
        (run,) = await self.journal.slots.claim([claim])
        return run

    async def run_once(self, **claim):
        """Open a slot, live its run, and move on by a day."""
        run = await self.open(**claim)
        await supervise(run.id, self)
        self.moment += timedelta(days=1)
        return await self.journal.runs.get(run.id)


@pytest.fixture
def now():
    """The moment by the clock of the journal, to be changed in place."""
    return [START]


@pytest.fixture
async def journal(tmp_path, now):
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    yield Journal(database, clock=lambda: now[0])
    await database.close()


GATHER = [{"name": "host", "tool": "disks"}]


async def test_a_run_with_an_answer_succeeds_and_its_report_is_pending(journal):
    harness = RunHarness(journal, ["All is well."])
    run = await harness.run_once()
    assert (run.status, run.report, run.iterations) == (Status.SUCCEEDED, "All is well.", 1)
    (delivery,) = await journal.outbox.find(run=run.id)
    assert (delivery.target, delivery.status) == ("file", DeliveryStatus.PENDING)
    assert delivery.report.scheduled_zone == "Europe/Berlin"
    assert harness.wakeups == 1
    assert harness.archived_replies == [(run.id, "All is well.")]


async def test_an_ended_run_says_for_how_long_it_was_under_way(journal):
    harness = RunHarness(journal, ["first"])
    assert (await harness.run_once()).active > 0


async def test_the_prompt_shows_facts_and_their_changes(journal):
    harness = RunHarness(journal, ["first", "second"], gather=GATHER)
    await harness.run_once()
    harness.disk = "84 %"
    await harness.run_once()
    goal = harness.provider.calls[-1].messages[-1].content
    assert "84 %" in goal
    assert "71 % → 84 %" in goal


async def test_a_closed_gate_calls_no_model_and_costs_nothing(journal):
    harness = RunHarness(journal, ["first"], gather=GATHER, gate={"changed": ["host.disks"]})
    first, second = await harness.run_once(), await harness.run_once()
    assert (first.status, second.status) == (Status.SUCCEEDED, Status.SKIPPED)
    assert second.detail == "nothing changed in host.disks since the last good run"
    assert second.usage.total == 0
    assert await journal.outbox.find(run=second.id) == []
    (slot, *_) = await journal.slots.find("daily")
    assert (slot.outcome, slot.run) == (Outcome.SKIPPED, second.id)


async def test_the_gate_opens_when_the_fact_changes(journal):
    harness = RunHarness(
        journal, ["first", "second"], gather=GATHER, gate={"changed": ["host.disks"]}
    )
    await harness.run_once()
    harness.disk = "84 %"
    assert (await harness.run_once()).status is Status.SUCCEEDED


async def test_a_run_whose_last_success_is_damaged_compares_with_nothing(journal):
    harness = RunHarness(
        journal, ["first", "second"], gather=GATHER, gate={"changed": ["host.disks"]}
    )
    await harness.run_once(trigger="cron")
    await journal._db.write(
        lambda connection: connection.execute("UPDATE step SET body = 'x no JSON'")
    )
    with capture_logs() as logs:
        second = await harness.run_once(trigger="cron")
    assert (second.status, second.report) == (Status.SUCCEEDED, "second")
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "run.nothing_to_compare"
    ]


async def test_a_manual_run_ignores_the_changed_gate(journal):
    harness = RunHarness(
        journal, ["first", "second"], gather=GATHER, gate={"changed": ["host.disks"]}
    )
    await harness.run_once()
    assert (await harness.run_once(trigger="manual", event="e1")).status is Status.SUCCEEDED


async def test_a_required_fact_that_cannot_be_gathered_fails_the_run(journal):
    harness = RunHarness(journal, ["I could not look."], gather=GATHER)
    harness.disk = "broken"
    run = await harness.run_once()
    assert (run.status, run.detail) == (Status.FAILED, "could not gather: host")
    assert run.report == "I could not look."


async def test_an_optional_fact_may_fail(journal):
    harness = RunHarness(journal, ["I could not look."], gather=[{**GATHER[0], "required": False}])
    harness.disk = "broken"
    assert (await harness.run_once()).status is Status.SUCCEEDED


async def test_a_rule_without_a_reason_is_named_where_it_denies_a_gather_step(journal):
    harness = RunHarness(journal, ["Nothing."], gather=GATHER)
    text = 'version = 1\n[[rule]]\ntool = "disks"\neffect = "deny"\n'
    harness.policy = Policy.read(text, workspace=Path("/"))
    run = await harness.run_once()
    assert (run.status, run.detail) == (
        Status.FAILED,
        "could not gather host: the policy denies it (rule 1 (disks))",
    )


async def test_a_denied_gather_step_fails_the_run_and_no_model_is_asked(journal):
    harness = RunHarness(journal, ["Nothing."], gather=GATHER)
    harness.policy = Rules(denied_tools=["disks"])
    run = await harness.run_once()
    assert run.status is Status.FAILED
    assert run.detail.startswith("could not gather host: ")
    assert harness.provider.calls == []


PEEK = {"name": "content", "tool": "peek", "args": {"path": "{path}"}, "required": False}
LANDED = {"trigger": "watch", "event": "e", "input": {"paths": ["inbox/a.csv", "inbox/b.key"]}}


async def test_prompt_of_a_file_run_lists_the_files_and_their_facts(journal):
    harness = RunHarness(journal, ["Two files."], trigger={"watch": ["inbox/*"]}, gather=[PEEK])
    run = await harness.run_once(**LANDED)
    assert (run.status, run.goal) == (Status.SUCCEEDED, "Report.")
    facts = {fact.name: fact for fact in harness.provider.calls[-1].messages[-1].facts}
    assert facts["files that landed"].text == "- inbox/a.csv\n- inbox/b.key"
    assert facts["content: inbox/a.csv"].text == "begins like inbox/a.csv"
    assert not facts["content: inbox/b.key"].ok
    calls_made = [
        step.call_id for step in await journal.runs.get_steps(run.id) if step.kind is StepKind.CALL
    ]
    assert calls_made == ["gather.content: inbox/a.csv", "gather.content: inbox/b.key"]


async def test_an_unreadable_required_file_fails_the_run(journal):
    harness = RunHarness(
        journal, ["One file."], trigger={"watch": ["inbox/*"]}, gather=[PEEK | {"required": True}]
    )
    run = await harness.run_once(**LANDED)
    assert (run.status, run.detail) == (Status.FAILED, "could not gather: content: inbox/b.key")


async def test_resumed_run_gets_the_same_prompt(journal):
    harness = RunHarness(journal, [Overloaded("later"), "Done."], trigger={"webhook": True})
    run = await harness.open(trigger="webhook", event="webhook m", input={"who": "Ada"})
    assert (await supervise(run.id, harness)).status is Status.QUEUED
    assert (await supervise(run.id, harness)) is None, "not before its time"
    assert "Ada" in harness.provider.calls[-1].messages[-1].content


async def test_a_silent_run_is_a_success_that_delivers_nothing(journal):
    harness = RunHarness(journal, ["NOTHING"], run={"prompt": "Report.", "silent_token": "NOTHING"})
    run = await harness.run_once()
    assert (run.status, run.silent, run.report) == (Status.SUCCEEDED, True, "")
    assert [delivery.status for delivery in await journal.outbox.find(run=run.id)] == [
        DeliveryStatus.SUPPRESSED
    ]


async def test_a_permanent_vendor_error_fails_the_run_in_one_line(journal):
    harness = RunHarness(journal, [BadKey("the key was refused: s3cr3t")])
    run = await harness.run_once()
    assert (run.status, run.detail) == (Status.FAILED, "the key was refused: [secret]")
    assert [delivery.status for delivery in await journal.outbox.find(run=run.id)] == [
        DeliveryStatus.PENDING
    ]


async def test_a_run_that_ends_without_a_reply_counts_the_answers_that_it_had(journal):
    look = calls(call("peek", path="notes.txt"))
    harness = RunHarness(
        journal,
        [look, BadKey("the key was refused")],
        run={"mode": "agent", "prompt": "Report.", "tools": ["peek"]},
    )
    run = await harness.run_once()
    assert (run.status, run.iterations) == (Status.FAILED, 1)


async def test_a_temporary_error_queues_the_run_and_the_next_attempt_continues(journal, now):
    harness = RunHarness(journal, [Overloaded("busy", retry_after=7), "Here."], gather=GATHER)
    run = await harness.open()
    put_off = await supervise(run.id, harness)
    assert put_off.status is Status.QUEUED
    assert START + timedelta(seconds=7) <= put_off.not_before <= START + timedelta(seconds=30)
    now[0] = START + timedelta(minutes=1)
    ended_run = await supervise(run.id, harness)
    assert (ended_run.status, ended_run.report, ended_run.attempt) == (Status.SUCCEEDED, "Here.", 2)
    gathers = [
        step
        for step in await journal.runs.get_steps(run.id)
        if step.iteration == 0 and step.kind is StepKind.CALL
    ]
    assert len(gathers) == 1, "what was gathered is not gathered again"


async def test_a_retry_that_is_due_at_once_is_a_retry(journal, now, tmp_path):
    retry = {"attempts": 3, "backoff": "0.001s", "max": "0.001s"}
    replies = [Overloaded("busy"), Overloaded("busy"), "Here."]
    harness = RunHarness(journal, replies, run={"prompt": "x", "retry": retry})
    run = await harness.open()
    assert (await supervise(run.id, harness)).status is Status.QUEUED
    # The number of the attempt decides the random part of the delay: take one that rounds it to 0.
    is_zero = (hash_to_fraction(f"{run.id} {number}") < 0.0005 for number in count(1))
    with closing(sqlite3.connect(tmp_path / "agentd.db")) as record, record:
        attempts_before = next(number for number, zero in enumerate(is_zero) if zero)
        record.execute("UPDATE run SET attempt = ?", (attempts_before,))
    now[0] += timedelta(minutes=1)
    put_off = await supervise(run.id, harness)
    assert (put_off.status, put_off.not_before) == (Status.QUEUED, START)
    assert (await supervise(run.id, harness)).status is Status.SUCCEEDED


async def test_a_lasting_temporary_error_uses_up_the_attempts(journal, now):
    harness = RunHarness(journal, [Overloaded("busy")] * 3)
    run = await harness.open()
    for _ in range(3):
        ended_run = await supervise(run.id, harness)
        now[0] = START + timedelta(days=1)
    assert (ended_run.status, ended_run.detail) == (Status.FAILED, "busy")


async def test_a_run_over_its_timeout_is_timed_out(journal):
    harness = RunHarness(
        journal,
        [calls(call("stuck"))],
        run={"mode": "agent", "prompt": "x", "timeout": "1s", "tools": ["stuck"]},
    )

    async def hang() -> None:
        """Wait."""
        await asyncio.Event().wait()

    harness.registry.register("stuck", None, hang)
    run = await harness.run_once()
    assert (run.status, run.detail) == (Status.TIMED_OUT, "not done within 1 s of active time")
    assert run.usage.total > 0, "what was spent until then is counted"


async def stopped_in_the_middle(harness):
    """Live a run until its tool has started, and return it with its task."""
    has_started = asyncio.Event()

    async def hang() -> None:
        """Wait."""
        has_started.set()
        await asyncio.Event().wait()

    harness.registry.register("stuck", None, hang)
    run = await harness.open()
    task = asyncio.create_task(supervise(run.id, harness))
    await has_started.wait()
    return run, task


STUCK = {"mode": "agent", "prompt": "x", "tools": ["stuck"]}


async def test_a_cancelled_run_ends_and_notifies_its_followers(journal):
    harness = RunHarness(journal, [calls(call("stuck"))], run=STUCK)
    run, task = await stopped_in_the_middle(harness)
    follower = harness.events.follow(run.id)
    await journal.runs.request_cancel(run.id)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await journal.runs.get(run.id)).status is Status.CANCELLED
    assert (await anext(follower))["type"] == "run_ended"


async def test_the_end_of_the_process_suspends_a_run_and_the_next_process_continues_it(journal):
    harness = RunHarness(journal, [calls(call("stuck")), "I looked, it is done."], run=STUCK)
    run, task = await stopped_in_the_middle(harness)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await journal.runs.get(run.id)).status is Status.QUEUED
    ended_run = await supervise(run.id, harness)
    assert (ended_run.status, ended_run.report) == (Status.SUCCEEDED, "I looked, it is done.")
    tool_result = harness.provider.calls[-1].messages[-1].content
    assert tool_result == "[failed] interrupted: outcome unknown; check before retrying"


async def test_a_run_that_kills_its_process_three_times_is_interrupted(journal):
    harness = RunHarness(journal, ["never"])
    run = await harness.open()
    for _ in range(3):
        await journal.runs.claim(run.id, owner="dies")
        await journal.runs.recover("test")
    ended_run = await supervise(run.id, harness)
    assert ended_run.status is Status.INTERRUPTED
    assert "3 attempts in a row died without a new step" in ended_run.detail
    assert harness.provider.calls == []


async def test_an_ended_run_is_not_executed_again(journal):
    harness = RunHarness(journal, ["once"])
    run = await harness.run_once()
    assert await supervise(run.id, harness) is None
    assert len(harness.provider.calls) == 1


async def test_ping_is_sent_after_the_run_is_recorded(journal, tmp_path):
    harness = RunHarness(journal, ["ok"], ping="alive")
    pings = []

    async def ping(target, run):
        with closing(sqlite3.connect(tmp_path / "agentd.db")) as record:
            pings.append(
                (
                    target,
                    *record.execute(
                        "SELECT status, attempt FROM run WHERE id = ?", (run.id,)
                    ).fetchone(),
                )
            )

    harness.ping = ping
    await harness.run_once()
    assert pings == [("alive", "running", 1)]


async def test_run_cancelled_before_its_start_calls_no_model(journal):
    harness = RunHarness(journal, ["never"])
    run = await harness.open()
    beginning = asyncio.create_task(supervise(run.id, harness))
    await journal.runs.request_cancel(run.id)
    assert await beginning is None
    assert harness.provider.calls == []
    assert (await journal.runs.get(run.id)).status is Status.CANCELLED


async def test_a_run_keeps_the_definition_of_its_start(journal):
    harness = RunHarness(journal, ["ok"])
    run = await harness.open()
    harness.routine = Routine.model_validate(
        {"name": "daily", "run": {"prompt": "Something else."}}
    )
    await supervise(run.id, harness)
    assert harness.provider.calls[-1].messages[-1].content == "Report."


async def test_a_cancellation_during_the_claim_leaves_the_run_queued(journal):
    harness = RunHarness(journal, ["never"])
    run = await harness.open()
    task = asyncio.create_task(supervise(run.id, harness))
    await asyncio.sleep(0)  # it has asked the journal for the run, and no more
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await journal.runs.get(run.id)).status is Status.QUEUED


async def test_an_internal_error_fails_the_run_in_one_line(journal):
    harness = RunHarness(journal, ["never"])

    async def fail(run, routine, record, deadline):
        raise ZeroDivisionError("oops")

    harness.agent_for = fail
    run = await harness.run_once()
    assert run.status is Status.FAILED
    assert run.detail == "a fault of agentd itself (ZeroDivisionError: oops); its log has more"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        MemoryError(),
        OSError(24, "Too many open files"),
        BlockingIOError(11, "Resource temporarily unavailable"),
    ],
    ids=["threads", "memory", "descriptors", "processes"],
)
async def test_a_run_for_which_the_machine_lacks_room_is_tried_again_later(journal, error):
    harness = RunHarness(journal, ["never"])

    async def fail(run, routine, record, deadline):
        raise error

    harness.agent_for = fail
    run = await harness.run_once()
    assert run.status is Status.QUEUED
    assert run.not_before is not None
    assert "this machine lacks room" in run.detail


async def test_an_unreadable_definition_fails_the_run(journal):
    harness = RunHarness(journal, ["never"])
    run = await harness.open()

    async def unreadable(run):
        raise DaemonError("the definition cannot be read by this version")

    harness.routine_of = unreadable
    await supervise(run.id, harness)
    ended_run = await journal.runs.get(run.id)
    assert (ended_run.status, ended_run.detail) == (
        Status.FAILED,
        "the definition cannot be read by this version",
    )


@pytest.mark.slow
async def test_a_run_leased_by_another_process_is_executed_only_by_takeover(postgres_url, tmp_path):
    database = await open_database(tmp_path / "x", postgres_url)
    others_journal, our_journal = (Journal(database, clock=lambda: START) for _ in range(2))
    run = await RunHarness(others_journal).open()
    assert await others_journal.runs.claim(run.id, owner="another process")
    harness = RunHarness(our_journal, ["Done."])
    assert await supervise(run.id, harness) is None
    assert (await our_journal.runs.get(run.id)).status is Status.RUNNING
    assert (await supervise(run.id, harness, takeover=True)).report == "Done."
    await database.close()


async def open_subagents(harness, *parents):
    """Queue one run of a sub-agent for each of these runs."""

    def subagent(task: str) -> str:
        """Delegate."""
        return task

    harness.registry.register("subagent", None, subagent)
    claims = [
        Claim(
            routine="subagent",
            definition=harness.routine.dump(),
            trigger="subagent",
            slot=START,
            goal="x",
            event=f"{parent.id}/1.0",
        )
        for parent in parents
    ]
    return await harness.journal.slots.claim(claims)


async def test_the_end_of_a_run_cancels_its_subagents_and_those_of_no_other_run(journal):
    run_options = {"mode": "agent", "prompt": "x", "tools": ["subagent"]}
    harness = RunHarness(journal, ["Done."], run=run_options)
    parent, other_parent = [await harness.open(event=event) for event in ("first", "second")]
    children = await open_subagents(harness, parent, other_parent)
    assert (await supervise(parent.id, harness)).status is Status.SUCCEEDED
    statuses = [(await journal.runs.get(child.id)).status for child in children]
    assert statuses == [Status.CANCELLED, Status.QUEUED]


async def test_the_end_of_the_process_leaves_the_subagents_of_a_run_to_the_next_process(journal):
    run_options = {"mode": "agent", "prompt": "x", "tools": ["stuck", "subagent"]}
    harness = RunHarness(journal, [calls(call("stuck"))], run=run_options)
    run, task = await stopped_in_the_middle(harness)
    (child,) = await open_subagents(harness, run)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    statuses = [(await journal.runs.get(run_id)).status for run_id in (run.id, child.id)]
    assert statuses == [Status.QUEUED, Status.QUEUED]


async def test_an_attempt_put_off_is_logged_with_its_time_and_its_reason(journal):
    harness = RunHarness(journal, [Overloaded("busy: s3cr3t", retry_after=7)])
    run = await harness.open()
    with capture_logs() as lines:
        queued_run = await supervise(run.id, harness)
    (line,) = [line for line in lines if line["event"] == "run.retry_scheduled"]
    assert line["log_level"] == "warning"
    assert (line["until"], line["detail"]) == (queued_run.not_before.isoformat(), "busy: [secret]")


@pytest.mark.parametrize(
    ("trigger", "status"),
    [
        ("manual", Status.FAILED),
        ("ask", Status.FAILED),
        ("rehearsal", Status.FAILED),
        ("cron", Status.QUEUED),
        ("webhook", Status.QUEUED),
        ("agent", Status.QUEUED),
    ],
)
async def test_a_run_that_a_person_waits_for_fails_at_once_where_no_server_is_started(
    journal, trigger, status
):
    harness = RunHarness(journal, [NothingListens("nothing listens there")] * 3)
    run = await harness.run_once(trigger=trigger)
    assert (run.status, run.detail) == (status, "nothing listens there")
    assert (run.not_before is None) == (status is Status.FAILED)


async def test_a_run_that_a_model_has_answered_waits_for_its_server_to_come_back(journal):
    harness = RunHarness(
        journal,
        [calls(call("peek", path="a")), *[NothingListens("gone")] * 3],
        run={"prompt": "x", "mode": "agent", "tools": ["peek"]},
    )
    assert (await harness.run_once(trigger="manual")).status is Status.QUEUED


@pytest.mark.parametrize(
    ("origin", "taint"),
    [
        ({"origin": {"routine": "maker", "run": "m1", "tainted": True}}, Taint.TAINTED),
        ({"origin": {"routine": "maker", "run": "m1", "tainted": False}}, Taint.NONE),
        ({}, Taint.NONE),
    ],
)
async def test_a_run_begins_tainted_where_the_run_that_made_its_routine_was(journal, origin, taint):
    harness = RunHarness(journal, ["Done."], **origin)
    run_taints = []

    async def note_taint(run, routine, record, deadline):
        run_taints.append(run.taint)
        return await RunHarness.agent_for(harness, run, routine, record, deadline)

    harness.agent_for = note_taint
    assert (await harness.run_once()).status is Status.SUCCEEDED
    assert run_taints == [taint]


async def test_a_report_names_the_time_zone_of_its_routine(journal):
    trigger = {"cron": "0 9 * * *", "timezone": "Asia/Tokyo"}
    run = await RunHarness(journal, ["Done."], trigger=trigger).run_once()
    (delivery,) = await journal.outbox.find(run=run.id)
    assert delivery.report.scheduled_zone == "Asia/Tokyo"


async def test_usage_of_a_memory_summary_counts_for_the_run(journal):
    plain_run = await RunHarness(journal, ["Done."]).run_once()
    harness = RunHarness(journal, ["Done."])

    async def archive(run, routine, reply, steps):
        return Usage(input=300, output=20)

    harness.archive = archive
    run = await harness.run_once(event="again")
    assert run.usage == plain_run.usage + Usage(input=300, output=20)
