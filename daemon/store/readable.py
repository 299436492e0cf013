"""Why the database file of a state folder cannot be read without a daemon, as one sentence."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

from daemon.errors import ConfigError, Fault

_HINT = "name the daemon's state folder with --state, as the user it runs as"


def require_database_file(path: Path, consequence: str) -> None:
    """Raise ConfigError if there is no file at the path; `consequence` says what follows then."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise _unreadable(path, f"is not there: {consequence}") from None
    except OSError as error:
        raise _unreadable(path, f"cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise _unreadable(path, "is no file, so it is not the database")


def explain_read_error(path: Path, error: sqlite3.Error) -> ConfigError:
    """Return what is raised in place of an error of SQLite, with what to do about it."""
    # SQLITE_ERROR: a table or column is missing
    if (
        isinstance(error, sqlite3.OperationalError)
        and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    ):
        problem = "was written by another version of agentd"
        hint = "start agentd once, which brings it up to date"
        return _unreadable(path, problem, hint)
    return _unreadable(path, f"cannot be read: {error}")


def _unreadable(path: Path, problem: str, hint: str = _HINT) -> ConfigError:
    return ConfigError(Fault(file=str(path), key="", found="", problem=problem, hint=hint))
