"""A daemon in this process: real journal, real runs, models that read from a script or stand behind
a socket.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from daemon.app.installation import Installation
from daemon.app.parts import App
from daemon.app.wiring import open_app
from daemon.definitions.config.loading import load_config
from daemon.definitions.paths import socket_in
from daemon.errors import ConfigError
from daemon.models import Run, new_id
from daemon.telemetry.redaction import Secrets
from tests.blank import blank
from tests.replaying import all_identical

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Clock:
    """A clock that stands until it is turned."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment

    def turn(self, **by: float) -> None:
        self.moment += timedelta(**by)


class Home:
    """A folder of definitions, and daemons opened on it one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.clock = folder, folder / "state", Clock()
        (folder / "routines").mkdir()
        self.write("policy.toml", "version = 1\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)

    def routine(self, name: str, text: str) -> None:
        self.write(f"routines/{name}.toml", text)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Daemon]:
        self.state.mkdir(mode=0o700, exist_ok=True)
        blank(self.state / "agentd.db")
        place = Installation(
            config=load_config(self.folder / "config.toml"),
            state=self.state,
            socket=socket_in(self.state, uid=os.getuid()),
            log_file=self.state / "logs" / "agentd.jsonl",
            console=False,
            env={},
            secrets=Secrets(),
        )
        async with open_app(place, clock=self.clock) as app:
            loaded = await app.reloader.load_routines()
            await app.scheduling.engine.load(loaded)
            app.runs.parts.context.backoff = 0.001
            yield Daemon(app, loaded.faults)
            await all_identical(app)


class Daemon:
    """The daemon, and what tests ask of it."""

    def __init__(self, app: App, faults: Any) -> None:
        self.app = app
        self.journal, self.engine = app.store.journal, app.scheduling.engine
        self.parts = app.runs.parts
        self.faults: dict[str, ConfigError] = faults

    async def run(self, name: str) -> Run:
        """Run a routine to its end."""
        run = await self.engine.trigger(name, event=new_id())
        while (run := await self.journal.get(run.id)).status in ("queued", "running"):
            lived = self.app.runs.queue.running.get(run.id)
            assert lived, f"run {run.status}: {run.detail}"
            await lived
        return run

    async def rows(self, columns: str) -> list[tuple[Any, ...]]:
        """Return the ledger of calls."""
        query = f"SELECT {columns} FROM spending ORDER BY id"
        return await self.journal._db.read(lambda connection: connection.execute(query).fetchall())

    def log(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of the log that tell of this event."""
        lines = self.app.installation.log_file.read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def provider(self, name: str) -> Any:
        return self.app.settings.providers.get(name)
