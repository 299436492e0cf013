"""A process that may die at any of its writes, and the world that outlives it.

Everything between the routine and its effects is the real thing: the journal on an SQLite file, memory, policy, host,
executor, approvals, sub-agents, outbox. Only what the outside sees is noted down in the `World`: what was asked,
which tools started, what was sent. Death is a property of the database that is handed in (`Mortal`): at one of its
writes the process ends, before that write is kept or after. What a process has handed in before is in line before it,
and kept; what comes later is not. A process that dies before a write may go on for as long as it does not wait for it.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from daemon.agent.texts import say
from daemon.approvals import Approvals, Remembered
from daemon.config import load_config
from daemon.delegation import Delegation
from daemon.delivery import Outbox
from daemon.errors import Overloaded, StoreFull
from daemon.events import Events
from daemon.executors import LocalExecutor
from daemon.functions import FunctionRegistry
from daemon.host import RunHost
from daemon.mcp import Servers
from daemon.memory import Memory
from daemon.models import FunctionCall, Json, LLMMessage, LLMResponse, Receipt, Run, Status, ToolContext, Usage
from daemon.money import Purse
from daemon.policy import Policy
from daemon.providers import LLMProvider
from daemon.redact import Secrets
from daemon.routines import Routine
from daemon.run import live
from daemon.skills import Shelf
from daemon.store import Claim, Database, Journal
from daemon.talk import Talk, routine_of
from daemon.timer import SleepTimer
from daemon.tools import finish, subagent
from daemon.tools.subagent import SUBAGENT

SLOT = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
GOAL = "Do what is to be done."
TOOLS = ("act", "redo", "look", "sign")
CONFIG = 'provider = "oracle"\n[providers.oracle]\nkind = "scripted"\nreplies = ["-"]\n'
RULES = {"act": "allow", "redo": "allow", "look": "allow", "subagent": "allow", "sign": "ask"}
POLICY = "\n".join(
    [
        "version = 1",
        *(f'[[rule]]\ntool = "{tool}"\neffect = "{effect}"' for tool, effect in RULES.items()),
        '[routine.work]\ntainted_tools = ["act", "redo", "look", "subagent"]\n',
    ]
)
ROUTINE = {
    "name": "work",
    "run": {
        "mode": "agent",
        "prompt": GOAL,
        "tools": [*TOOLS, "subagent"],
        "memory": "recall+store",
        "retry": {"attempts": 50, "backoff": timedelta(milliseconds=1), "max": timedelta(milliseconds=1)},
        "max_iterations": 50,
    },
    "gather": [{"name": "first", "tool": "look", "args": {"n": 77}}],
    "deliver": [{"to": "alpha"}, {"to": "beta"}],
}
STEPS_UNTIL_DEATH = 40  # turns of the loop that a process lives on after a write that nobody will confirm


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Fate:
    """At which of its writes a process dies; never by default."""

    number: int = -1
    kept: bool = False
    """Whether that write is still kept."""
    writes: int = 0
    dead: bool = False
    doomed: bool = False


class Mortal:
    """The database of a process that dies as its fate says."""

    shared = False

    def __init__(self, inner: Database, fate: Fate, died: asyncio.Event) -> None:
        self.path, self._inner, self._fate, self._died = inner.path, inner, fate, died
        self._unanswered: list[asyncio.Future[Any]] = []

    def submit(self, work: Any, *, durable: bool = False, lazily: bool = False) -> asyncio.Future[Any]:
        number, self._fate.writes = self._fate.writes, self._fate.writes + 1
        if self._fate.dead:
            raise Crash
        if not self._fate.doomed and number != self._fate.number:
            return self._inner.submit(work, durable=durable, lazily=lazily)
        answer = asyncio.get_running_loop().create_future()
        self._unanswered.append(answer)
        if not self._fate.doomed:
            self._fate.doomed = True
            if self._fate.kept:
                self._inner.submit(work, durable=durable).add_done_callback(lambda _: self._die())
            else:
                self._linger(STEPS_UNTIL_DEATH)
        return answer

    async def write(self, work: Any, *, durable: bool = False) -> Any:
        return await self.submit(work, durable=durable)

    async def read(self, work: Any) -> Any:
        if self._fate.dead:
            raise Crash
        return await self._inner.read(work)

    async def settled(self) -> None:
        await self._inner.settled()

    def _linger(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._linger, turns - 1)
        else:
            self._die()

    def _die(self) -> None:
        self._fate.dead = True
        self._died.set()
        for answer in self._unanswered:
            if not answer.done():
                answer.set_exception(Crash())
                answer.exception()  # nobody is left to miss it


Turn = tuple[str, ...]
"""What a model asks for in one turn: names of tools."""


@dataclass
class World:
    """What outlives each process."""

    folder: Path
    script: Sequence[Turn]
    faults: int = 0
    """How often the vendor is too busy to answer the second question."""
    told: str = ""
    """What a person tells the run before it has begun; empty: nothing."""
    started: Counter[int] = field(default_factory=Counter)
    sent: list[tuple[int, str, str]] = field(default_factory=list)
    faulted: int = 0
    broken: list[str] = field(default_factory=list)
    """Promises that were broken in front of the world."""
    acknowledged: set[str] = field(default_factory=set)

    @property
    def file(self) -> Path:
        return self.folder / "agentd.db"

    def look(self, query: str, *values: Any) -> list[Any]:
        """Ask the file itself, past the process: what is there now is there for whoever comes next."""
        connection = sqlite3.connect(f"{self.file.as_uri()}?mode=ro", uri=True)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    @property
    def numbered(self) -> list[list[tuple[str, int]]]:
        """The calls of each turn, each with a number of its own."""
        numbers = iter(range(1, 1000))
        return [[(name, next(numbers)) for name in turn] for turn in self.script]


_ANSWERED = """
SELECT count(*) FROM step JOIN run ON run.id = run_id
WHERE routine = ? AND goal = ? AND kind = 'llm' AND iteration = ?
"""


class Oracle(LLMProvider):
    """A vendor that answers by what the conversation is and how far it has come, and remembers who asked."""

    kind: ClassVar[str] = "scripted"
    name, model_name = "oracle", "oracle"

    def __init__(self, world: World, fate: Fate) -> None:
        self._world, self._fate = world, fate

    def supports_function_calling(self) -> bool:
        return True

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        world, turn = self._world, sum(message.role == "assistant" for message in messages)
        if self._fate.dead:
            raise Crash
        goal = next(message.content for message in messages if message.role == "user")
        who = "parent" if GOAL in goal else goal.splitlines()[0]
        if who == "parent" and turn == 1 and world.faulted < world.faults:
            world.faulted += 1
            raise Overloaded("too many requests")
        routine, task = ("work", GOAL) if who == "parent" else (SUBAGENT, who)
        if world.look(_ANSWERED, routine, task, turn + 1) != [(0,)]:
            world.broken.append(f"answer {turn} of {who} was asked for again")
        said = _said(messages)
        if who != "parent":
            calls = [("act", 1000 * int(who.split()[-1]))] if turn == 0 else []
        else:
            calls = world.numbered[turn] if turn < len(world.script) else []
        return LLMResponse(
            content="" if calls else f"{who} reports: {said}",
            function_calls=tuple(
                FunctionCall(name=name, id=f"{turn}-{number}", arguments=_arguments(name, number))
                for name, number in calls
            ),
            finish_reason="tool_calls" if calls else "stop",
            usage=Usage(input=10, output=5),
            model="oracle",
        )


def _arguments(name: str, number: int) -> Json:
    return {"task": f"part {number}"} if name == "subagent" else {"n": number}


def _said(messages: Sequence[LLMMessage]) -> str:
    """Return the calls and results of a conversation in their order; one of unknown outcome counts as done."""
    asked = [call.arguments for message in messages for call in message.tool_calls]
    heard = [message.content for message in messages if message.role == "tool"]
    assert len(asked) == len(heard), "a call was left without a result, or a result told twice"
    pairs = zip(asked, heard, strict=True)
    return ", ".join(str(asked["n"]) if "n" in asked else "child" for asked, text in pairs if _went_well(asked, text))


def _went_well(asked: Json, text: str) -> bool:
    number = asked.get("n")
    return f"done {number}" in text or say("interrupted", "en") in text or (number is None and "reports: " in text)


class Channel:
    """A target that takes everything."""

    def __init__(self, world: World, fate: Fate, target: str) -> None:
        self._world, self._fate, self._target = world, fate, target

    async def send(self, delivery: Any) -> Receipt:
        if self._fate.dead:
            raise Crash
        self._world.sent.append((delivery.id, self._target, delivery.report.text))
        return Receipt(detail=f"{self._target} has it")


class Timer:
    def open(self, *, rang: Any, stepped: Any) -> None: ...
    def set(self, at: datetime | None) -> None: ...
    def close(self) -> None: ...


class Clock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class Stage:
    """Tools that leave a mark on the world, and look first whether the journal knows of them; made once for all."""

    process: Process

    def tools(self) -> FunctionRegistry:
        registry = FunctionRegistry()
        finish.register(registry)
        subagent.register(registry, lambda: self.process.delegation)

        def mark(context: ToolContext, n: int) -> str:
            world = self.process.world
            if self.process.fate.dead:
                raise Crash
            known = world.look("SELECT kind FROM step WHERE run_id = ? AND call_id = ?", context.run, context.call)
            if ("call",) not in known:
                world.broken.append(f"call {n} started before its step was committed")
            if ("result",) in known:
                world.broken.append(f"call {n} started again after its result was committed")
            world.started[n] += 1
            return f"done {n}"

        async def act(context: ToolContext, n: int) -> str:
            """Change something."""
            return mark(context, n)

        async def redo(context: ToolContext, n: int) -> str:
            """Change something that may be changed twice."""
            return mark(context, n)

        async def look(context: ToolContext, n: int) -> str:
            """Look."""
            return mark(context, n)

        async def sign(context: ToolContext, n: int) -> str:
            """Change what a person has to allow."""
            return mark(context, n)

        registry.register("act", None, act)
        registry.register("redo", None, redo, idempotent=True)
        registry.register("look", None, look, read_only=True)
        registry.register("sign", None, sign)
        return registry


@dataclass
class Settings:
    """What all processes read from the disk: read once, for thousands of them."""

    config: Any
    policy: Policy
    routine: Routine
    template: Path
    stage: Stage
    registry: FunctionRegistry


async def settle(folder: Path) -> Settings:
    """Write config, policy and an empty database."""
    for name, text in (("config.toml", CONFIG), ("policy.toml", POLICY)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    (folder / "ws").mkdir()
    database = await Database.open(folder / "template.db")
    await database.close()
    stage = Stage()
    return Settings(
        stage=stage,
        registry=stage.tools(),
        config=load_config(folder / "config.toml"),
        policy=Policy.load(folder / "policy.toml", workspace=folder / "ws", tools=TOOLS),
        routine=Routine.model_validate(ROUTINE),
        template=folder / "template.db",
    )


def world_in(folder: Path, settings: Settings, script: Sequence[Turn], **more: Any) -> World:
    """Return a world with an empty journal in it."""
    folder.mkdir()
    world = World(folder, script, **more)
    shutil.copy(settings.template, world.file)
    return world


class Process:
    """What `app.py` builds for runs; it stands for `host.Rooms`."""

    owner, boot, zone, skills = "test", SLOT, ZoneInfo("UTC"), Shelf
    traces = None
    outbox: Outbox

    def __init__(self, world: World, settings: Settings, database: Any, fate: Fate) -> None:
        self.world, self.fate, self.config, self.policy = world, fate, settings.config, settings.policy
        self.routine, self.clock, self.secrets, self.events = settings.routine, Clock(), Secrets(), Events()
        self.journal = Journal(database, clock=self.clock.now)
        self.memory = Memory(database, clock=self.clock.now)
        self.ladder = SimpleNamespace(sandbox=self._sandbox, known=None)
        self.providers = SimpleNamespace(chain=lambda routine: [Oracle(world, fate)])
        self.purse = Purse(self.journal, clock=self.clock, zone=lambda: self.zone, config=lambda: self.config)
        self.registry = settings.registry
        settings.stage.process = self
        self.servers = Servers({}, self.registry, secret=lambda name: None)
        self.targets = SimpleNamespace()
        self.outbox = Outbox(
            journal=self.journal, channel=lambda target: Channel(world, fate, target), clock=self.clock
        )
        self.executor = LocalExecutor(self._live, max_concurrent=4, clock=self.clock.now, timer=SleepTimer(self.clock))
        self.approvals = Approvals(
            self.journal,
            lambda: self.policy,
            Remembered(world.folder / "approvals.toml"),
            submit=self.executor.submit,
            clock=self.clock,
            timer=Timer(),
        )
        self.talk = Talk(
            self.journal,
            self.memory,
            routine=lambda: routine_of(self.config),
            provider=lambda: Oracle(world, fate),
            submit=self.executor.submit,
            clock=self.clock.now,
            language=lambda: "en",
            route=lambda: False,
        )

    @cached_property
    def host(self) -> RunHost:
        host = RunHost(self, self.world.folder)
        host.backoff = 0.0001
        return host

    @cached_property
    def delegation(self) -> Delegation:
        return Delegation(self.host)

    async def _sandbox(self) -> Any:
        return SimpleNamespace(level="landlock")

    async def _live(self, run_id: str) -> Run | None:
        run = await live(run_id, self.host)
        if run is not None and run.status.ended:
            await self.talk.ended(run)
        return run

    async def work(self) -> Run:
        """Do what a daemon does from its start on, until the run has ended and its report is where it should be."""
        world, journal = self.world, self.journal
        await self.memory.open()
        await self.talk.open()
        left = [run for run in await journal.recover(self.owner) if run.trigger != SUBAGENT]
        run = await self.opened()
        if world.told and "told" not in world.acknowledged:
            await self.talk.tell(run, world.told, event="told")
            world.acknowledged.add("told")
        self.executor.hold(each for each in await journal.active() if each.status is Status.WAITING)
        await self.executor.submit_all(left)
        if run.status is Status.QUEUED and run.id not in {each.id for each in left}:
            await self.executor.submit(run)
        run = await self.until_ended(run)
        await self.outbox.flush()
        return run

    async def until_ended(self, run: Run) -> Run:
        """Answer what is asked until the run has ended."""
        journal = self.journal
        while not (run := await journal.get(run.id)).status.ended:
            if lived := self.executor.running.get(run.id):
                with suppress(Exception):
                    await lived
            elif run.status is Status.WAITING:
                for asked in await journal.approvals(run=run.id):
                    if asked.status == "pending":
                        with suppress(StoreFull):  # whoever is told that asks again
                            await self.approvals.approve(asked.id, by="me")
            else:
                await asyncio.sleep(0.0005)
        return run

    async def opened(self) -> Run:
        """Return the run of the slot, which one of the processes has opened."""
        claim = Claim(
            routine="work", definition=self.routine.dump(), trigger="cron", slot=SLOT, goal=self.routine.run.prompt
        )
        (opened,) = await self.journal.open_slots([claim])
        return opened or (await self.journal.runs("work"))[0]


async def life(world: World, settings: Settings, fate: Fate | None = None) -> Run | None:
    """Live on the world's journal until all is done, or until death: then None."""
    fate, died, loop = fate or Fate(), asyncio.Event(), asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, told: None if fate.dead else loop.default_exception_handler(told))
    inner = await Database.open(world.file)
    process = Process(world, settings, Mortal(inner, fate, died), fate)
    work, death = asyncio.ensure_future(process.work()), asyncio.ensure_future(died.wait())
    try:
        await asyncio.wait((work, death), return_when=asyncio.FIRST_COMPLETED)
        return None if fate.dead else await work
    finally:
        await _buried(inner.close)


async def _buried(close: Callable[[], Awaitable[None]]) -> None:
    """Let nothing of a process be left; what it still tries finds its database dead."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await close()
