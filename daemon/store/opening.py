"""Which database the journal is in: a file in the state folder, or a server that several daemons
share.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from daemon.errors import ConfigError, Fault
from daemon.store.database import Database

POSTGRES = ("postgresql://", "postgres://")


async def open_database(
    path: Path,
    url: str = "",
    *,
    wait: timedelta = timedelta(),
    when_away: Callable[[str], None] = lambda problem: None,
) -> Database:
    """Open SQLite's file at `path`, or the PostgreSQL database of a URL.

    A server that is away is waited for as long as `wait`; `when_away` is told so, in words, before
    each wait and in another thread. ConfigError says what is wrong with the database; DatabaseAway
    if its server is still away.
    """
    if not url:
        return await Database.open(path)
    refuse_without_extra()
    from daemon.store.postgres.database import PostgresDatabase  # 30 MiB that SQLite does without

    return await PostgresDatabase.connect(url, path, wait=wait, when_away=when_away)


def refuse_without_extra() -> None:
    """Raise ConfigError where what speaks to a server is not installed."""
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
