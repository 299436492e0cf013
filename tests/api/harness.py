"""A daemon without a scheduler: the real journal, bus, server and socket; runs are lived by the
tests themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

from daemon.api.context import ApiContext, ProcessFacts
from daemon.api.listener import open_listener
from daemon.api.schemas import CheckView, ReloadView
from daemon.api.server import ApiServer
from daemon.definitions.routines.routine import Routine
from daemon.definitions.schedule import Schedule
from daemon.errors import ConfigError, Fault, NotFound, RunUnderWay
from daemon.models import Json, Run, Status, Step, StepKind, Usage, new_id
from daemon.policy.policy import Policy
from daemon.policy.policy_file import PolicyFile
from daemon.runs.events import EventBus, end_of, event_of_step
from daemon.scheduler.routine_times import schedule_of
from daemon.store.database import Database
from daemon.store.journal import Claim, Journal, RoutineState
from daemon.telemetry.metrics import Metrics
from daemon.telemetry.redaction import Secrets
from tests.empty_database import copy_empty_database

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def clock() -> datetime:
    return NOW


@dataclass(frozen=True)
class Access:
    """Who may speak, by uid."""

    operators: frozenset[int]
    readers: frozenset[int] = frozenset()


class FakeEngine:
    """Who knows the routines: an engine whose schedule is written down beforehand."""

    def __init__(self, journal: Journal, routines: Sequence[Routine]) -> None:
        self.journal = journal
        self.routines: dict[str, Routine] = {routine.name: routine for routine in routines}
        self.faults: dict[str, ConfigError] = {}
        self.states: dict[str, RoutineState] = {}
        self.unrehearsed_routines: set[str] = set()
        self.triggered_runs: asyncio.Queue[Run] = asyncio.Queue()
        self.now = NOW
        """From when on its schedules fire; a client that counts the hours until then has the real
        time.
        """

    async def open(self) -> None:
        self.states = await self.journal.routines.set_baselines(
            {name: routine.schedule_key for name, routine in self.routines.items()}
        )

    async def run_now(
        self,
        name: str,
        *,
        event: str | None = None,
        trigger: str = "manual",
        run_input: Json | None = None,
    ) -> Run:
        if name not in self.routines:
            raise NotFound(f"there is no routine {name!r}")
        event = event or new_id()
        for run in await self.journal.runs.find(name):
            if run.event == event:
                return run
            if not run.status.has_ended:
                raise RunUnderWay(name, run.id, run.status.value)
        claim = Claim(
            routine=name,
            definition=self.routines[name].dump(),
            trigger=trigger,
            slot=NOW,
            goal=self.routines[name].run.prompt,
            event=event,
            input=run_input,
        )
        (run,) = await self.journal.slots.claim([claim])
        assert run is not None
        self.triggered_runs.put_nowait(run)
        return run

    async def pause(
        self, name: str, *, until: datetime | None = None, length: timedelta | None = None
    ) -> None:
        await self.journal.routines.pause(name, until=self.now + length if length else until)
        self.states = await self.journal.routines.get_states()

    async def resume(self, name: str) -> None:
        await self.journal.routines.resume(name)
        self.states = await self.journal.routines.get_states()

    def paced_start(self, name: str) -> datetime | None:
        return None

    def next_slots(
        self, name: str, count: int = 3, *, after: datetime | None = None
    ) -> list[datetime]:
        every = self.routines[name].trigger.every or timedelta(hours=1)
        first = NOW + every * (((after or self.now) - NOW) // every + 1)
        return [first + every * number for number in range(count)]

    def schedule(self, routine: Routine) -> Schedule:
        return schedule_of(routine, zone="Europe/Berlin")

    def describe_schedule(self, routine: Routine) -> str:
        return f"every {routine.trigger.every or 'hour'}"

    def describe_host_mismatch(self, routine: Routine) -> str:
        return ""


class FakeRunQueue:
    """Who lives the runs: here only the line in front of the door."""

    def __init__(self) -> None:
        self.run_ids: list[str] = []
        self.interrupted_ids: asyncio.Queue[str] = asyncio.Queue()

    def queue_position(self, run_id: str) -> int | None:
        return self.run_ids.index(run_id) if run_id in self.run_ids else None

    def positions(self) -> dict[str, int]:
        return {run_id: index for index, run_id in enumerate(self.run_ids)}

    def interrupt(self, run_id: str) -> bool:
        self.interrupted_ids.put_nowait(run_id)
        return True


@dataclass
class ApiHarness:
    """Everything a test may touch."""

    journal: Journal
    engine: FakeEngine
    run_queue: FakeRunQueue
    events: EventBus
    server: ApiServer
    api: ApiContext
    path: Path

    async def claim(self, name: str = "daily-report") -> Run:
        return await self.engine.run_now(name)

    async def take(self, name: str = "daily-report") -> Run:
        run = await self.journal.runs.claim((await self.claim(name)).id, owner="test")
        assert run is not None
        return run

    async def write_steps(self, run: Run, *steps: Step) -> None:
        """Commit steps and ring for them, as runs/run.py does."""
        for step in await self.journal.runs.append(run, *steps):
            if event := event_of_step(run, step):
                self.events.publish(run.id, event)

    async def end(
        self,
        run: Run,
        status: Status = Status.SUCCEEDED,
        *,
        deliver: Sequence[tuple[str, dict[str, Any]]] = (),
        **changes: Any,
    ) -> Run:
        fields: dict[str, Any] = {
            "report": "# All is well\n\nNothing to do.",
            "ended": NOW + timedelta(seconds=3),
        }
        run = await self.journal.runs.end(run.to(status, **(fields | changes)), deliver)
        self.events.publish(run.id, end_of(run))
        return run

    async def complete_run(self, name: str = "daily-report", **changes: Any) -> Run:
        """Live a run with one gathered fact, one model call and one refused tool call."""
        run = await self.take(name)
        await self.write_steps(run, *STEPS)
        run = replace(
            run, usage=Usage(input=1200, cache_read=800, output=85), provider="local", model="m-1"
        )
        return await self.end(run, iterations=1, **changes)


STEPS = (
    Step(
        kind=StepKind.CALL,
        iteration=0,
        call_id="gather.host",
        body={
            "tool": "sysinfo",
            "arguments": {"parts": ["load"]},
            "repeatable": True,
            "verdict": {"effect": "allow", "rule": "rule 1 (sysinfo)"},
        },
    ),
    Step(
        kind=StepKind.RESULT,
        iteration=0,
        call_id="gather.host",
        body={
            "tool": "sysinfo",
            "ok": True,
            "text": "load 0.1\nfine",
            "seconds": 0.012,
            "value": {"load": 0.1},
        },
    ),
    Step(
        kind=StepKind.PROMPT,
        iteration=0,
        body={
            "system": "You are agentd.\n\nBe careful.",
            "sections": {"identity": 15, "safety": 11},
            "functions": [{"name": "shell", "description": "run", "parameters": {}}],
            "provider": "local",
            "model": "m-1",
        },
    ),
    Step(kind=StepKind.MESSAGE, iteration=0, body={"text": "Write the report.", "source": "goal"}),
    Step(
        kind=StepKind.LLM,
        iteration=1,
        body={
            "content": "Let me look.",
            "calls": [{"name": "shell", "arguments": {"command": "rm -rf /"}, "id": "c1"}],
            "finish": "tool_calls",
            "usage": {
                "input": 1200,
                "cache_read": 800,
                "cache_write": 0,
                "output": 85,
                "reasoning": 0,
            },
            "model": "m-1",
            "seconds": 0.5,
        },
    ),
    Step(
        kind=StepKind.CALL,
        iteration=1,
        call_id="1.0",
        body={
            "tool": "shell",
            "arguments": {"command": "rm -rf /"},
            "repeatable": False,
            "verdict": {"effect": "deny", "rule": "default", "reason": "nothing allows it"},
        },
    ),
    Step(
        kind=StepKind.RESULT,
        iteration=1,
        call_id="1.0",
        body={
            "tool": "shell",
            "ok": False,
            "text": "[failed] denied\nby default\nor not\nat all",
            "seconds": 0.0,
        },
    ),
)


def routine(name: str, **fields: Any) -> Routine:
    return Routine.model_validate({"name": name, "run": {"prompt": "Write the report."}, **fields})


@asynccontextmanager
async def open_harness(
    folder: Path,
    *,
    socket: Path | None = None,
    env: Mapping[str, str] | None = None,
    access: Any = None,
    budget: Any = None,
    reload: Any = None,
    edit: bool = False,
) -> AsyncIterator[ApiHarness]:
    """Open a harness on a folder and serve its API until the block ends."""
    database = await Database.open(copy_empty_database(folder / "agentd.db"))
    journal = Journal(database, clock=clock)
    daily = routine(
        "daily-report",
        description="What happened",
        trigger={"every": "1d"},
        path=folder / "daily-report.toml",
    )
    engine = FakeEngine(journal, [daily, routine("heartbeat", trigger={"every": "30m"})])
    await engine.open()
    run_queue, events = FakeRunQueue(), EventBus()
    path = socket or folder / "run" / "agentd.sock"

    async def reload_nothing() -> ReloadView:
        return ReloadView(added=["new"], changed=[], removed=[], files=[], restart=[], faults=[])

    async def rename(old: str, new: str) -> list[str]:
        engine.routines = {
            new if name == old else name: routine for name, routine in engine.routines.items()
        }
        return []

    async def adopt(name: str) -> Path:
        return path / f"{name}.toml"

    async def remove(name: str) -> None:
        del engine.routines[name]

    async def examine() -> list[CheckView]:
        return [CheckView(name="Python", state="ok", found="3.11", fix="")]

    async def list_caps(routines: Any) -> list[Any]:
        return []

    config = SimpleNamespace(
        file=folder / "config.toml",
        provider="local",
        provider_names=(),
        target_names=(),
        budget=budget or SimpleNamespace(day=None, month=None),
        ui=SimpleNamespace(edit=edit),
        routines_path=folder,
    )
    missing_part: Any = None
    api = ApiContext(
        version="0.0.test",
        process=ProcessFacts(
            pid=os.getpid(),
            start=datetime(2026, 11, 20, 8, tzinfo=UTC),
            state=folder,
            socket=path,
            log_file=folder / "agentd.jsonl",
        ),
        access=access or Access(operators=frozenset({os.geteuid(), 0})),
        settings=SimpleNamespace(
            config=config,
            zone=ZoneInfo("Europe/Berlin"),
            policy=Policy.of(PolicyFile(version=1), folder),
        ),
        clock=SimpleNamespace(now=clock),
        administration=SimpleNamespace(
            fault=None,
            reload=reload or reload_nothing,
            take_up_changes=reload_nothing,
            reload_by_request=reload or reload_nothing,
            reload_if_valid=reload or reload_nothing,
            routine_checks=tuple,
            recipe_files=dict,
            rename=rename,
            examine=examine,
        ),
        journal=journal,
        memory=missing_part,
        erasure=missing_part,
        events=events,
        metrics=Metrics(),
        outbox=SimpleNamespace(wake=lambda: None),
        sandbox_detection=SimpleNamespace(current=SimpleNamespace(level="bubblewrap")),
        mcp_servers=SimpleNamespace(configs={}),
        engine=engine,
        agent_routines=SimpleNamespace(
            adopt=adopt, remove_for_person=remove, folder=folder / "routines.d"
        ),
        queue=run_queue,
        runs=SimpleNamespace(services=SimpleNamespace(secrets=Secrets())),
        budget_ledger=SimpleNamespace(list_caps=list_caps),
        approvals=missing_part,
        conversations=missing_part,
        in_cluster=False,
    )
    server = ApiServer(api, open_listener(path, env or {}))
    serving = asyncio.create_task(server.serve())
    await server.ready()
    try:
        yield ApiHarness(
            journal=journal,
            engine=engine,
            run_queue=run_queue,
            events=events,
            server=server,
            api=api,
            path=server.path,
        )
    finally:
        server.stop()
        await serving
        await database.close()


def make_error(name: str) -> ConfigError:
    return ConfigError(
        Fault(
            file=f"{name}.toml",
            key="trigger.cron",
            found='"61 * * * *"',
            problem="minute is 0-59",
            hint="use 1",
        )
    )


@dataclass
class Answer:
    """What came back over the socket."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


async def ask(
    path: Path,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Speak HTTP by hand, as curl would."""
    reader, writer = await asyncio.open_unix_connection(os.fspath(path))
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: agentd",
        "Connection: close",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
    try:
        return parse(await reader.read())
    finally:
        writer.close()
        await writer.wait_closed()


def parse(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return Answer(status=int(first.split()[1]), headers=headers, raw=body)
