"""A start that makes a new database where there was one before: it was deleted or not restored, or
its disk is not mounted.

The daemon starts all the same, since a new database may be meant, and a person is told.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from daemon.app.installation import store_url
from daemon.definitions.words import display

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.store.incidents import IncidentRepository

log = structlog.get_logger()

# Of the log: a start writes `engine.started` among its first lines.
_LOG_BYTES = 1 << 20


def find_traces_of_lost_history(installation: Installation) -> tuple[Path, ...]:
    """Return files that only an earlier daemon on this state folder can have written, if the
    database that it had is not there; empty if it is there, or on a server.
    """
    state = installation.state
    if store_url(installation) or (state / "agentd.db").exists():
        return ()
    log_file = installation.log_file
    traces = [log_file] if _has_started_before(log_file) else []
    others = (state / "approvals.toml", state / "memory" / "MEMORY.md")
    return (
        *traces,
        *(path for path in others if path.is_file()),
        *sorted(state.glob("agentd.db.before-upgrade-*")),
    )


def _has_started_before(log_file: Path) -> bool:
    """Tell whether a daemon that wrote this log has come so far as to have a database. A start that
    failed before, by a fault in policy.toml for example, writes a log as well.
    """
    try:
        with log_file.open("rb") as file:
            return b'"engine.started"' in file.read(_LOG_BYTES)
    except OSError:
        return False


async def report_lost_history(incidents: IncidentRepository, traces: tuple[Path, ...]) -> None:
    """Log that history is missing, and send a notice to the first of `[incidents] to`."""
    path = traces[0]
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    text = (
        f"The database agentd.db was not in the state folder, and a new one was made; but "
        f"{display(path)}, last written {written:%Y-%m-%d %H:%M} UTC, is of an earlier daemon. "
        "Runs, memory and approvals of before are not in the new one. If that was not meant: stop "
        "agentd, and bring the old database back or restore a backup with agentd restore."
    )
    log.warning("database.history_missing", trace=str(path), written=written.isoformat())
    await incidents.warn_once(
        "history_missing",
        path.name,
        1,
        kind="history.missing",
        title="A new database, and no history",
        text=text,
    )
