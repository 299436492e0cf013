"""A connection to PostgreSQL by psycopg that runs the journal's statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import psycopg
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.types.string import StrDumper

from daemon.errors import ConfigError, Fault
from daemon.store.connection import Cursor

if TYPE_CHECKING:
    from sqlalchemy import Engine

BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

# A server whose network fails is noticed within half a minute.
_SETTINGS: dict[str, Any] = {
    "application_name": "agentd",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# A process that is stopped or cut off in a transaction holds the lock of all writers, so the server
# ends its session.
_OPTIONS = "-c idle_in_transaction_session_timeout=5s -c timezone=UTC"
MINIMUM_VERSION = 130_000  # PostgreSQL 13.0, as libpq writes the version of a server

_SIZE_OF_ROWS = """
SELECT (SELECT coalesce(sum(pg_column_size(step.*)), 0) FROM step)
    + (SELECT coalesce(sum(pg_column_size(text.*)), 0) FROM text)
    + (SELECT coalesce(sum(pg_column_size(run.*)), 0) FROM run)
    + (SELECT coalesce(sum(pg_column_size(outbox.*)), 0) FROM outbox)
    + (SELECT coalesce(sum(pg_column_size(audit.*)), 0) FROM audit)
    + (SELECT coalesce(sum(pg_column_size(memory_segment.*)), 0) FROM memory_segment)
    + (SELECT coalesce(sum(pg_column_size(memory_item.*)), 0) FROM memory_item)
"""


class _TimedConnection(psycopg.Connection[Any]):
    """A connection that fails when the server sends nothing for `answer_timeout` seconds, as behind
    a network that drops every packet.
    """

    answer_timeout: float | None = None
    """Seconds that an answer may take; None: no limit."""

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        if self.answer_timeout is not None:
            options.setdefault("timeout", self.answer_timeout)
        try:
            return super().wait(gen, *arguments, **options)
        except psycopg.OperationalError as error:
            # an error of the server has a state, and one of a lost connection leaves no statement
            # under way
            if (
                error.sqlstate
                or self.pgconn.transaction_status != psycopg.pq.TransactionStatus.ACTIVE
            ):
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.answer_timeout:g} s") from error


class _TextDumper(StrDumper):
    """Write NUL as U+FFFD: a text of PostgreSQL cannot hold NUL."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(
            obj.replace("\x00", "\N{REPLACEMENT CHARACTER}") if "\x00" in obj else obj
        )


class _BoolDumper(Dumper):
    """Write a bool as 1 or 0: the columns are numbers, as in SQLite."""

    oid = psycopg.adapters.types["int2"].oid

    def dump(self, obj: bool) -> Buffer | None:
        return b"1" if obj else b"0"


class _NumericLoader(Loader):
    """Read NUMERIC, which sums of BIGINT are, as int, or as float if it has a fraction."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text else int(text)


class PostgresConnection:
    """One connection to the server, outside of any transaction until a BEGIN is executed.

    See store/connection.py for what the methods that SQLite has as well promise.
    """

    refusal_errors: ClassVar = (
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.UndefinedFile,
    )
    """What `control` raises where the server lacks a feature or refuses it to our role."""

    def __init__(self, driver: _TimedConnection) -> None:
        self.driver = driver
        """psycopg's connection, for what only PostgreSQL has."""
        self.now = 0
        """When the current write transaction began, by the server's clock: microseconds since 1970.
        """

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        return self.driver.execute(_use_psycopg_marks(statement), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        self.driver.cursor().executemany(_use_psycopg_marks(statement), rows)

    def control(self, statements: str) -> Any:
        """Run one or several statements without parameters; returns the cursor of the first."""
        return self.driver.execute(statements)

    @cached_property
    def engine(self) -> Engine:
        from daemon.store.queries.session import engine_over  # 20 MiB, for the queries of people

        url = "postgresql+psycopg://"
        return engine_over(self.driver, url, begin=BEGIN_READ, use_native_hstore=False)

    def lease_clock(self, own_time: int) -> int:
        return self.now

    def size(self) -> int:
        (size,) = self.control("SELECT pg_database_size(current_database())").fetchone()
        return int(size)

    def used(self) -> int:
        # A deleted row leaves room in its table that the server fills again and does not count.
        (size,) = self.control(_SIZE_OF_ROWS).fetchone()
        return int(size)

    def shrink(self, least: int) -> int:
        return 0

    def truncate_log(self) -> None: ...

    def rewrite(self, tables: Sequence[str]) -> None:
        self.control(f"VACUUM (FULL) {', '.join(tables)}")

    @property
    def in_transaction(self) -> bool:
        return self.driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    @property
    def broken(self) -> bool:
        return self.driver.closed or self.driver.broken

    def close(self) -> None:
        """Close the connection; the server undoes what was not committed."""
        self.driver.close()


def _use_psycopg_marks(statement: str) -> str:
    """Return a statement with its parameters marked as psycopg has them: `%s`."""
    return statement.replace("%", "%%").replace("?", "%s")


def connect(url: str) -> PostgresConnection:
    """Connect to the server.

    Raises psycopg.OperationalError if it does not answer, ConfigError if it is too old.
    """
    driver = _TimedConnection.connect(url, autocommit=True, **_default_settings(url))
    if driver.info.server_version < MINIMUM_VERSION:
        driver.close()
        version = driver.info.server_version // 10_000
        raise make_unusable_error(
            url, f"is PostgreSQL {version}; at least 13 is needed", "upgrade the server"
        )
    driver.adapters.register_dumper(str, _TextDumper)
    driver.adapters.register_dumper(bool, _BoolDumper)
    driver.adapters.register_loader("numeric", _NumericLoader)
    return PostgresConnection(driver)


def _default_settings(url: str) -> dict[str, Any]:
    """Return the settings of a connection that the URL does not set itself."""
    url_parts = psycopg.conninfo.conninfo_to_dict(url)
    options = f"{_OPTIONS} {url_parts.get('options', '')}".strip()
    return {key: value for key, value in _SETTINGS.items() if key not in url_parts} | {
        "options": options
    }


def place_of(url: str) -> str:
    """Return the URL as messages show it: without user and password."""
    url_parts = psycopg.conninfo.conninfo_to_dict(url)
    host, name = str(url_parts.get("host", "")), url_parts.get("dbname", "")
    if host.startswith("/"):
        return f"postgresql:///{name}?host={host}"
    port = f":{url_parts['port']}" if "port" in url_parts else ""
    return f"postgresql://{host}{port}/{name}"


# Classes and codes of SQLSTATE that only a person can remedy: failed authorization, no such
# database or schema, a missing right.
_REFUSALS = ("28", "3D", "3F", "42501")
# Of a connection that was not made, libpq reports no SQLSTATE, only the words of the server. These
# are those of PostgreSQL 13 to 18 for the same; in another language than English they are taken for
# a server that is away.
_REFUSAL_WORDS = re.compile(
    r"authentication failed|pg_hba\.conf|no password supplied"
    r'|(?:role|database|schema) "[^"]*" does not exist|permission denied|is not permitted to log in'
    r"|is not currently accepting connections|certificate|SSL was required|does not support "
    r"SSL|invalid .* value|"
    r"invalid port number"
)


def explain_refusal(error: BaseException) -> str | None:
    """Return what a person has to mend before the server lets us in; None if it is away, or asking
    again may help.
    """
    if not isinstance(error, psycopg.Error):
        return None
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if error.sqlstate is not None:
        return f"does not let us in: {lines[0]}" if error.sqlstate.startswith(_REFUSALS) else None
    for line in lines:
        if _REFUSAL_WORDS.search(line):
            return f"does not let us in: {line}"
    return None


def make_unusable_error(url: str, problem: str, hint: str) -> ConfigError:
    """Return the error that says what is wrong with the database."""
    return ConfigError(
        Fault(file=place_of(url), key="[store] url", found="", problem=problem, hint=hint)
    )
