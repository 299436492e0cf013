"""Open the journal's database: the file in the state folder, or the server that several daemons
share.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from daemon.errors import ConfigError, Fault
from daemon.store.database import Database


async def open_database(
    path: Path,
    url: str = "",
    *,
    wait: timedelta = timedelta(),
    when_away: Callable[[str], None] = lambda problem: None,
) -> Database:
    """Open SQLite's file at `path`, or the PostgreSQL database of `url` unless that is empty.

    Waits for a server that does not answer, up to `wait`; `when_away` is called with the problem
    before each attempt, in another thread. Raises ConfigError if the database cannot be used,
    DatabaseAway if its server does not answer in time.
    """
    if not url:
        return await Database.open(path)
    refuse_without_extra()
    from daemon.store.postgres.database import PostgresDatabase  # 30 MiB that SQLite does without

    return await PostgresDatabase.connect(url, path, wait=wait, when_away=when_away)


def refuse_without_extra() -> None:
    """Raise ConfigError if the extra postgres is not installed."""
    try:
        import daemon.store.postgres.database  # noqa: F401
    except ImportError as error:
        hint = "pip install 'agentd-routines[postgres]'"
        raise ConfigError(
            Fault(
                file="config.toml",
                key="store.url",
                found="",
                problem=f"needs the extra postgres ({error})",
                hint=hint,
            )
        ) from error
