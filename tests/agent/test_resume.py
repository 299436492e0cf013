"""A crash at any moment repeats no recorded model call and no side effect."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.agent.agent import Agent, AgentServices
from daemon.agent.loop import LoopLimits
from daemon.models import Status, StepKind
from daemon.providers import create_provider
from daemon.tools.registry import FunctionRegistry
from tests.agent.conftest import Rules, calls
from tests.properties import scaled_settings


class Crash(BaseException):
    """The process is gone."""


class Journal:
    """Steps that outlive a crash, and a crash at the n-th commit: before it holds, or right
    after.
    """

    def __init__(self, steps, crash_at, *, before_commit, alone):
        self.steps, self.crash_at, self.before_commit, self.commits = (
            steps,
            crash_at,
            before_commit,
            0,
        )
        self.is_exclusive, self._riding = alone, []

    async def append(self, *steps, durable=False):
        self.commits += 1
        if self.before_commit and self.commits == self.crash_at:
            raise Crash
        self.steps += [*self._riding, *steps]
        self._riding = []
        if self.commits == self.crash_at:
            raise Crash

    def write_lazily(self, *steps):
        self._riding += steps

    def end(self):
        """Write what rides with the run's end."""
        self.steps += self._riding


class ResumedAgent:
    """What outlives a crash: the journal, the effects, and the model's vendor."""

    def __init__(self, script, *, alone=True):
        self.script, self.is_exclusive = script, alone
        self.steps = []
        self.effects = []
        self.safe_when_asked = []
        """By question: the kinds of the steps that outlive a crash by then."""

    wants_deltas = False

    def emit(self, event):
        """Note which steps are safe when the model is asked."""
        if event["type"] == "thinking":
            self.safe_when_asked.append([step.kind.value for step in self.steps])

    async def live(self, crash_at=None, *, before_commit=False):
        """Live the run from its steps until it ends, or until the commit at which it dies."""
        journal = Journal(
            self.steps, crash_at, before_commit=before_commit, alone=self.is_exclusive
        )
        registry = FunctionRegistry()

        async def write(n: int) -> str:
            """Write."""
            self.effects.append(n)
            return f"wrote {n}"

        async def look(n: int) -> str:
            """Look."""
            return f"saw {n}"

        def finish(report: str = "") -> str:
            """End."""
            return "ended"

        registry.register("write", None, write)
        registry.register("look", None, look, read_only=True)
        registry.register("finish", None, finish, read_only=True)
        answer_count = sum(step.kind is StepKind.LLM for step in self.steps)
        provider = create_provider("scripted", replies=self.script[answer_count:])
        agent = Agent(
            provider,
            registry,
            policy=Rules(),
            steps=self.steps,
            limits=LoopLimits(attempts=1),
            services=AgentServices(step_writer=journal, events=self),
        )
        reply = await agent.process_message("Go.")
        journal.end()
        return reply, journal.commits


def turn(kinds):
    return calls(*[{"name": kind, "arguments": {"n": n}} for n, kind in kinds])


turns = st.lists(
    st.lists(st.sampled_from(["write", "look"]), min_size=1, max_size=4), min_size=0, max_size=4
)


def script_of(shape):
    count = 0
    script = []
    for kinds in shape:
        numbered_calls = []
        for kind in kinds:
            numbered_calls.append((count, kind))
            count += 1
        script.append(turn(numbered_calls))
    return [*script, "The report."]


@scaled_settings(40)
@given(shape=turns, before=st.booleans(), alone=st.booleans())
def test_a_crash_at_any_commit_repeats_nothing(shape, before, alone):
    script = script_of(shape)
    whole = ResumedAgent(script, alone=alone)
    _, commits = asyncio.run(whole.live())
    for crash_at in range(1, commits + 1):
        agent = ResumedAgent(script, alone=alone)
        with pytest.raises(Crash):
            asyncio.run(agent.live(crash_at, before_commit=before))
        reply, _ = asyncio.run(agent.live())
        assert reply.content == "The report."
        assert reply.status is Status.SUCCEEDED
        assert len(agent.effects) == len(set(agent.effects)), "a side effect happened twice"
        llm = [step for step in agent.steps if step.kind is StepKind.LLM]
        assert len(llm) == len(script), "a recorded answer was asked for again"


def test_call_of_unknown_outcome_is_reported_to_the_model_and_not_repeated():
    script = script_of([["write"]])
    agent = ResumedAgent(script)
    with pytest.raises(Crash):
        # prompt, then answer and call: dies right before the tool starts
        asyncio.run(agent.live(2))
    asyncio.run(agent.live())
    assert agent.effects == []
    (result,) = [step for step in agent.steps if step.kind is StepKind.RESULT]
    assert result.body["text"] == "[failed] interrupted: outcome unknown; check before retrying"


def test_interrupted_read_only_call_is_repeated():
    agent = ResumedAgent(script_of([["look"]]))
    with pytest.raises(Crash):
        asyncio.run(agent.live(2))
    asyncio.run(agent.live())
    (result,) = [step for step in agent.steps if step.kind is StepKind.RESULT]
    assert result.body["ok"] is True


def test_a_resumed_run_keeps_its_frozen_prompt():
    agent = ResumedAgent(script_of([["look"]]))
    with pytest.raises(Crash):
        asyncio.run(agent.live(2))
    before = [step for step in agent.steps if step.kind is StepKind.PROMPT]
    asyncio.run(agent.live())
    assert [step for step in agent.steps if step.kind is StepKind.PROMPT] == before


def test_result_of_a_changing_call_is_durable_before_the_next_model_call():
    agent = ResumedAgent(script_of([["write"], ["look", "write"]]))
    asyncio.run(agent.live())
    assert [kinds.count("result") for kinds in agent.safe_when_asked] == [0, 1, 3]


def test_repeatable_result_is_written_during_the_model_call():
    agent = ResumedAgent(script_of([["look"], ["look"]]))
    asyncio.run(agent.live())
    assert [kinds.count("result") for kinds in agent.safe_when_asked] == [0, 0, 1]


def test_shared_store_makes_every_step_durable_before_the_model_call():
    agent = ResumedAgent(script_of([["look"], ["look", "write"]]), alone=False)
    asyncio.run(agent.live())
    assert [kinds.count("result") for kinds in agent.safe_when_asked] == [0, 1, 3]
    assert all(kinds[:2] == ["prompt", "message"] for kinds in agent.safe_when_asked)
