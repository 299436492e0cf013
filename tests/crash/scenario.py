"""What outlives a process: the file of its journal, vendors, tools that have left a mark, people,
receivers.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from daemon.agent.texts import say
from daemon.errors import BadKey, Overloaded, ToolFailed
from daemon.models import (
    FunctionCall,
    Json,
    LLMMessage,
    LLMResponse,
    Receipt,
    Status,
    ToolContext,
    Usage,
)
from daemon.providers import LLMProvider
from daemon.store.rows import decode
from daemon.tools.builtin import finish, subagent
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.registry import FunctionRegistry

GOAL = "Do what is to be done."
ONCE = ("act", "tidy", "sign", "break")
"""Tools that change something: none of their calls may start twice."""
AGAIN = ("redo", "look")
REFUSED = ("bar", "ghost")
"""Calls that never start: what the policy denies, and what is not there."""
TOOLS = (*ONCE, *AGAIN, "bar")

_LOOKING = threading.Lock()

Turn = tuple[str, ...]
"""What a model asks for in one turn: names of tools; empty: it says nothing at all."""


@dataclass(frozen=True)
class Script:
    """What happens around a run, whoever executes it."""

    turns: Sequence[Turn] = ()
    busy: Sequence[tuple[int, int]] = ()
    """Turns at which the vendor is too busy, and how often before it answers."""
    down: int | None = None
    """From which turn on the first vendor takes no key any more."""
    spare: bool = False
    """Whether there is a second vendor to fail over to."""
    message_turns: Sequence[int] = ()
    """Turns in which a person tells the run something while the model thinks."""
    cancel_turn: int | None = None
    """The turn in which a person cancels the run."""
    refuses: bool = False
    """Whether whoever is asked says no."""
    end: str = "text"
    """How the model ends it: text, report, silence, failure."""
    routine: str = "work"
    """Which routine it is: see process.py."""

    @property
    def numbered_calls(self) -> list[list[tuple[str, int]]]:
        """The calls of each turn, each with a number of its own."""
        numbers = iter(range(1, 1000))
        return [[(name, next(numbers)) for name in turn] for turn in self.turns]

    @property
    def comes_to(self) -> Status:
        """How its run ends if nothing happens to it."""
        if self.cancel_turn is not None:
            return Status.CANCELLED
        if self.routine == "gated":
            return Status.SKIPPED
        silent = sum(not turn for turn in self.turns)
        return Status.FAILED if self.end == "failure" or silent > 1 else Status.SUCCEEDED


@dataclass
class CrashScenario:
    """What outlives each process."""

    folder: Path
    script: Script
    start_counts: Counter[int] = field(default_factory=Counter)
    messages: list[tuple[int, str, str]] = field(default_factory=list)
    questions: list[tuple[int, str]] = field(default_factory=list)
    """The delivery and the target of each message that asked people to approve a call."""
    fault_counts: Counter[int] = field(default_factory=Counter)
    wishes: list[str] = field(default_factory=list)
    """What people want of the run: `cancel`, or `tell` and a turn."""
    confirmed_wishes: set[str] = field(default_factory=set)
    """What of that they were told that it is done; what they were not, they want again."""
    is_down: bool = False
    broken_promises: list[str] = field(default_factory=list)
    """Promises that were broken where everybody sees it."""
    _eye: sqlite3.Connection | None = None
    _is_closed: bool = False

    @property
    def file(self) -> Path:
        return self.folder / "agentd.db"

    def as_it_is(self) -> CrashScenario:
        """Return a copy that what happens from now on leaves as it is."""
        fields = {name: copy(value) for name, value in vars(self).items() if name != "_eye"}
        return CrashScenario(**fields)

    def same_as(self, later: CrashScenario) -> bool:
        """Tell whether nothing was noted between two moments."""
        own_state, later_state = vars(self).copy(), vars(later).copy()
        for state in (own_state, later_state):
            state.pop("_eye")
            state.pop("folder")
        return own_state == later_state

    def look(self, query: str, *values: Any) -> list[Any]:
        """Ask the file itself, past the process: what is there now is there for whoever comes
        next.
        """
        # a thread of a tool may look as well, also one that lives on when all is over
        with _LOOKING:
            if self._eye is None:
                if self._is_closed:
                    raise RuntimeError("this scenario has ended")
                self._eye = sqlite3.connect(
                    f"{self.file.as_uri()}?mode=ro", uri=True, check_same_thread=False
                )
            return self._eye.execute(query, values).fetchall()

    def close(self) -> None:
        with _LOOKING:
            self._is_closed = True
            if self._eye is not None:
                self._eye.close()
                self._eye = None


_RECORDED = """
SELECT count(*) FROM step JOIN run ON run.id = run_id
WHERE routine = ? AND goal = ? AND kind = ? AND iteration BETWEEN ? AND ?
"""
_UNDER_WAY = """
SELECT body FROM step AS call JOIN run ON run.id = run_id
WHERE routine = ? AND goal = ? AND kind = 'call' AND NOT EXISTS
    (SELECT 1 FROM step WHERE run_id = call.run_id AND call_id = call.call_id AND kind = 'result')
"""


class Oracle(LLMProvider):
    """A vendor that answers by what the conversation is and how far it has come, and remembers who
    asked.
    """

    kind: ClassVar[str] = "scripted"
    model_name = "oracle"

    def __init__(self, scenario: CrashScenario, people: People, name: str = "oracle") -> None:
        self._scenario, self._people = scenario, people
        self.name = name

    def supports_function_calling(self) -> bool:
        return True

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        scenario, script = self._scenario, self._scenario.script
        turn = sum(message.role == "assistant" for message in messages)
        goal = next(message.content for message in messages if message.role == "user")
        agent = "parent" if GOAL in goal else goal.splitlines()[0]
        parent = agent == "parent"
        self._check(
            agent,
            turn,
            {
                line
                for message in messages
                if message.role == "tool"
                for line in message.content.splitlines()
            },
        )
        if parent and script.down is not None and turn >= script.down:
            scenario.is_down = True
        if self.name == "oracle" and scenario.is_down:
            raise BadKey("this key is not valid any more")
        if parent and scenario.fault_counts[turn] < dict(script.busy).get(turn, 0):
            scenario.fault_counts[turn] += 1
            raise Overloaded("too many requests")
        if parent and turn in script.message_turns:
            await self._people.want(f"tell {turn}")
        if (
            parent and turn == script.cancel_turn
        ):  # by somebody whom the end of this run does not end
            await asyncio.shield(asyncio.ensure_future(self._people.want("cancel")))
        return self._answer(agent, turn, messages)

    def _check(self, agent: str, turn: int, tool_results: set[str]) -> None:
        """Look whether a good daemon would have asked this."""
        whose = ("work", GOAL) if agent == "parent" else (SUBAGENT, agent)
        (turn_count,) = self._scenario.look(_RECORDED, *whose, "llm", 1, 1000)[0]
        if turn_count > turn:
            self._scenario.broken_promises.append(f"answer {turn} of {agent} was asked for again")
        if turn_count < turn:
            self._scenario.broken_promises.append(
                f"answer {turn} of {agent} was asked for before the one before it was kept"
            )
        for (body,) in self._scenario.look(_UNDER_WAY, *whose):
            # that it is unknown what a call did need not be kept: it would be found unknown again
            if (
                not (call := decode(body))["repeatable"]
                and f"done {call['arguments']['n']}" in tool_results
            ):
                self._scenario.broken_promises.append(
                    f"{agent} went on before the result of {call} was written"
                )
        if self.name == "oracle" and self._scenario.look(
            _RECORDED, *whose, "failover", 0, 1000
        ) != [(0,)]:
            self._scenario.broken_promises.append(
                f"{agent} went back to the vendor that it had given up"
            )

    def _answer(self, agent: str, turn: int, messages: Sequence[LLMMessage]) -> LLMResponse:
        scenario = self._scenario
        text = f"{agent} reports: {_last_text(messages)}"
        if agent != "parent":
            calls = [("act", 1000 * int(agent.split()[-1]))] if turn == 0 else []
        elif turn < len(scenario.script.turns):
            calls, text = scenario.script.numbered_calls[turn], ""
        else:
            calls = []
        function_calls = [
            FunctionCall(name=name, id=f"{turn}-{n}", arguments=_arguments(name, n))
            for name, n in calls
        ]
        if (
            agent == "parent"
            and turn >= len(scenario.script.turns)
            and (ending := _ending(scenario.script.end, text))
        ):
            function_calls, text = (
                [FunctionCall(name="finish", id=f"{turn}-0", arguments=ending)],
                "",
            )
        return LLMResponse(
            content="" if function_calls else text,
            function_calls=tuple(function_calls),
            finish_reason="tool_calls" if function_calls else "stop",
            usage=Usage(input=10, output=5),
            model=self.name,
        )


def _arguments(name: str, number: int) -> Json:
    return {"task": f"part {number}"} if name == SUBAGENT else {"n": number}


def _ending(how: str, text: str) -> Json | None:
    match how:
        case "report":
            return {"report": text}
        case "silence":
            return {"notify": False, "reason": "nothing new"}
        case "failure":
            return {"status": "failed", "reason": text}
    return None


def _last_text(messages: Sequence[LLMMessage]) -> str:
    """Return what became of the calls of a conversation, in their order; what may have happened
    counts as done.
    """
    calls = [call for message in messages for call in message.tool_calls]
    tool_messages = [message for message in messages if message.role == "tool"]
    assert [call.id for call in calls] == [message.tool_call_id for message in tool_messages], (
        "a call without its one result"
    )
    return ", ".join(
        _outcome(call, message.content) for call, message in zip(calls, tool_messages, strict=True)
    )


def _outcome(call: FunctionCall, text: str) -> str:
    number = call.arguments.get("n")
    if "[error]" in text:
        return f"not {number}"
    is_expected = (
        f"done {number}" in text or f"broke {number}" in text or say("interrupted", "en") in text
    )
    assert is_expected or (call.name == SUBAGENT and "reports: " in text), (
        f"{call} brought {text!r}"
    )
    return str(number if number is not None else call.arguments["task"])


class People:
    """Who wants something of the run while it lives, and wants it again until somebody says that it
    is done.
    """

    def __init__(self, scenario: CrashScenario, doing: Callable[[str], Awaitable[object]]) -> None:
        self._scenario, self._doing = scenario, doing

    async def want(self, wish: str) -> None:
        if wish in self._scenario.confirmed_wishes:
            return
        if wish not in self._scenario.wishes:
            self._scenario.wishes.append(wish)
        await self._doing(wish)
        self._scenario.confirmed_wishes.add(wish)

    async def ask_again(self) -> None:
        for wish in list(self._scenario.wishes):
            await self.want(wish)


class Channel:
    """A target that takes everything."""

    def __init__(self, scenario: CrashScenario, target: str) -> None:
        self._scenario, self._target = scenario, target

    async def send(self, delivery: Any) -> Receipt:
        if delivery.kind == "question":
            self._scenario.questions.append((delivery.id, self._target))
        else:
            self._scenario.messages.append((delivery.id, self._target, delivery.report.text))
        return Receipt(detail=f"{self._target} has it")


def tools(scenario: Callable[[], CrashScenario], subagents: Any) -> FunctionRegistry:
    """Return tools that leave a mark in the folder of the scenario, and look first whether the
    journal knows of them.
    """
    registry = FunctionRegistry()
    finish.register(registry)
    subagent.register(registry, subagents)

    def mark(context: ToolContext, n: int) -> str:
        there = scenario()
        steps = there.look(
            "SELECT kind FROM step WHERE run_id = ? AND call_id = ?", context.run, context.call
        )
        if ("call",) not in steps:
            there.broken_promises.append(f"call {n} started before its step was committed")
        if ("result",) in steps:
            there.broken_promises.append(f"call {n} started again after its result was committed")
        there.start_counts[n] += 1
        return f"done {n}"

    async def act(context: ToolContext, n: int) -> str:
        """Change something."""
        return mark(context, n)

    def tidy(context: ToolContext, n: int) -> str:
        """Change something, in a thread."""
        return mark(context, n)

    async def sign(context: ToolContext, n: int) -> str:
        """Change what a person has to allow."""
        return mark(context, n)

    async def fail(context: ToolContext, n: int) -> str:
        """Change something and fail."""
        mark(context, n)
        raise ToolFailed(f"it broke {n}")

    async def redo(context: ToolContext, n: int) -> str:
        """Change something that may be changed twice."""
        return mark(context, n)

    async def look(context: ToolContext, n: int) -> str:
        """Look."""
        return mark(context, n)

    async def bar(context: ToolContext, n: int) -> str:
        """Do what nobody may."""
        return mark(context, n)

    for name, function in (
        ("act", act),
        ("tidy", tidy),
        ("sign", sign),
        ("break", fail),
        ("bar", bar),
    ):
        registry.register(name, None, function)
    registry.register("redo", None, redo, idempotent=True)
    registry.register("look", None, look, read_only=True)
    return registry
