"""A start that makes a new database where there was one before: it was deleted or not restored, or
its disk is not mounted.

The daemon starts all the same, since a new database may be meant, and a person is told.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from daemon.app.installation import store_url
from daemon.definitions.words import display

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.store.incidents import IncidentRepository

log = structlog.get_logger()

# How much of the log is read: a start writes `engine.started` among its first lines.
_LOG_BYTES = 1 << 20


class EarlierFile(NamedTuple):
    """A file that an earlier daemon has written."""

    path: Path
    written_at: datetime
    """When it was last written, before this start has written to it."""


def find_trace_of_lost_history(installation: Installation) -> EarlierFile | None:
    """Return a file that only an earlier daemon on this state folder can have written, if the
    database that it had is not there; None if it is there, or on a server.
    """
    state = installation.state
    if store_url(installation) or (state / "agentd.db").exists():
        return None
    candidates = (
        *([installation.log_file] if _has_started_before(installation.log_file) else []),
        state / "approvals.toml",
        state / "memory" / "MEMORY.md",
        *sorted(state.glob("agentd.db.before-upgrade-*")),
    )
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        return None
    return EarlierFile(path, datetime.fromtimestamp(path.stat().st_mtime, UTC))


def _has_started_before(log_file: Path) -> bool:
    """Tell whether a daemon that wrote this log has come so far as to have a database. A start that
    failed before, by a fault in policy.toml for example, writes a log as well.
    """
    try:
        with log_file.open("rb") as file:
            return b'"engine.started"' in file.read(_LOG_BYTES)
    except OSError:
        return False


async def report_lost_history(incidents: IncidentRepository, trace: EarlierFile) -> None:
    """Log that history is missing, and send a notice to the first of `[incidents] to`."""
    text = (
        f"The database agentd.db was not in the state folder, and a new one was made; but "
        f"{display(trace.path)}, last written {trace.written_at:%Y-%m-%d %H:%M} UTC, is of an "
        "earlier daemon. Runs, memory and approvals of before are not in the new one. If that was "
        "not meant: stop agentd, and bring the old database back or restore a backup with "
        "agentd restore."
    )
    log.warning(
        "database.history_missing", trace=str(trace.path), written=trace.written_at.isoformat()
    )
    await incidents.warn_once(
        "history_missing",
        trace.path.name,
        1,
        kind="history.missing",
        title="A new database, and no history",
        text=text,
    )
