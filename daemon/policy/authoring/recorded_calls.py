"""The calls of earlier runs, read from the journal while a daemon may be writing to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from daemon.models import Json
from daemon.store.read_only import onlooker_at
from daemon.store.rows import decode, to_microseconds
from daemon.store.statements import Connection


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """One call that a model or a gather step asked for, and what became of it."""

    run: str
    routine: str
    tool: str
    arguments: Json
    effect: str
    """The verdict of that time."""
    approved: bool
    """A person allowed it."""
    tainted: bool
    at: datetime

    @property
    def ran(self) -> bool:
        return self.effect == "allow" or self.approved

    @property
    def subject(self) -> str:
        """The command, path, URL, name or query of the call; empty if it has none."""
        values = (self.arguments.get(key) for key in ("command", "path", "url", "name", "query"))
        return next((value for value in values if isinstance(value, str)), "")


def recorded(state: Path, url: str = "", *, since: datetime, routine: str = "") -> list[Recorded]:
    """Return the calls since a moment, oldest first; ConfigError if there is no journal that can be
    read.
    """
    database = onlooker_at(state, url)
    return asyncio.run(database.read(lambda connection: list(_calls(connection, since, routine))))


def _calls(connection: Connection, since: datetime, routine: str) -> Iterator[Recorded]:
    rows = connection.execute(
        "SELECT step.run_id, run.routine, step.at, step.body FROM step JOIN run ON run.id = "
        "step.run_id"
        " WHERE step.kind = 'call' AND step.at >= ? AND (CAST(? AS TEXT) = '' OR run.routine = ?)"
        " ORDER BY step.at, step.seq",
        (to_microseconds(since), routine, routine),
    )
    for run, name, at, column in rows:
        body = decode(column)
        verdict, arguments = body.get("verdict"), body.get("arguments")
        if not verdict or not isinstance(
            arguments, dict
        ):  # it was never judged: malformed, or over a limit
            continue
        yield Recorded(
            run=run,
            routine=name,
            tool=str(body.get("tool", "")),
            arguments=arguments,
            effect=str(verdict.get("effect", "")),
            approved=bool(body.get("approval")),
            tainted=bool(body.get("taint")),
            at=datetime.fromtimestamp(at / 1e6, UTC),
        )
