"""The calls of earlier runs, read from the journal while a daemon may be writing to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from daemon.models import Json
from daemon.store.connection import Connection
from daemon.store.read_only import open_database_read_only
from daemon.store.rows import decode, to_microseconds

# How the ids of calls begin that a `[[gather]]` makes.
GATHER_CALL = "gather."


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedCall:
    """One call that a model or a gather step asked for, and what became of it."""

    run: str
    routine: str
    """By the name under which the policy judges it: `maker/name` if an agent made it; for a
    sub-agent the routine of the run that it works for.
    """
    tool: str
    arguments: Json
    effect: str
    """The effect of the verdict when the call was recorded: allow, ask or deny."""
    approved: bool
    """Whether a person allowed the call."""
    tainted: bool
    at: datetime
    is_observed: bool = False
    """The routine was observed then (`mode = "observe"`)."""
    is_default_denial: bool = False
    """No rule spoke of it, and nobody was asked."""
    is_by_person: bool = False
    """A person chose its words: in a `[[gather]]` of the routine, or for `policy explain`."""

    @property
    def was_run(self) -> bool:
        """Whether the call was run: the policy allowed it, or a person did."""
        return self.effect == "allow" or self.approved

    @property
    def subject(self) -> str:
        """The command, path, URL, name or query of the call; empty if it has none."""
        values = (self.arguments.get(key) for key in ("command", "path", "url", "name", "query"))
        return next((value for value in values if isinstance(value, str)), "")


def load_recorded_calls(
    state: Path, url: str = "", *, since: datetime, routine: str = ""
) -> list[RecordedCall]:
    """Return the calls since a moment, oldest first; ConfigError if there is no journal that can be
    read.
    """
    database = open_database_read_only(state, url)
    return asyncio.run(database.read(lambda connection: list(_calls(connection, since, routine))))


def _calls(connection: Connection, since: datetime, routine: str) -> Iterator[RecordedCall]:
    rows = connection.execute(
        "SELECT step.run_id, run.routine, run.trigger, step.call_id, step.at, step.body,"
        " definition.body FROM step"
        " JOIN run ON run.id = step.run_id LEFT JOIN definition ON definition.hash = run.definition"
        " WHERE step.kind = 'call' AND step.at >= ?"
        " AND (CAST(? AS TEXT) = '' OR run.routine IN (?, 'subagent'))"
        " ORDER BY step.at, step.seq",
        (to_microseconds(since), routine, routine),
    )
    for run, routine_of_run, trigger, call_id, at, encoded_body, definition in rows:
        name, policy_name = _names_of(definition, routine_of_run)
        if routine and name != routine:
            continue
        body = decode(encoded_body)
        verdict, arguments = body.get("verdict"), body.get("arguments")
        # the policy never judged this call, as it was malformed or over a limit
        if not verdict or not isinstance(arguments, dict):
            continue
        yield RecordedCall(
            run=run,
            routine=policy_name,
            tool=str(body.get("tool", "")),
            arguments=arguments,
            effect=str(verdict.get("effect", "")),
            approved=bool(body.get("approval")),
            tainted=bool(body.get("taint")),
            at=datetime.fromtimestamp(at / 1e6, UTC),
            is_observed=body.get("mode") == "observe",
            is_default_denial=(
                verdict.get("effect") == "deny"
                and verdict.get("rule") == "default"
                and "asked" not in body
            ),
            # not where an agent wrote the routine, or the names of new files stand in its calls
            is_by_person=(
                str(call_id).startswith(GATHER_CALL)
                and policy_name == name
                and trigger not in ("subagent", "watch")
            ),
        )


@lru_cache(maxsize=1024)  # the runs of a routine share a definition
def _names_of(definition: str | None, routine_of_run: str) -> tuple[str, str]:
    """Return the name of the routine that a run has the rights of, and its name for the policy.

    `definition` is that of the run; `routine_of_run` counts where it is missing or has no name.
    """
    values = json.loads(definition or "{}")
    name = str(values.get("name") or routine_of_run)
    origin = values.get("origin")
    return name, f"{origin['routine']}/{name}" if origin else name
