"""The connection that runs the journal's statements, and the parts that statements share.

Each statement is written once, in what SQLite 3.35 and PostgreSQL 13 have in common. A parameter is
marked `?`; the PostgreSQL connection hands it on as `%s`, and nothing else of a statement is
changed. `tests/store/test_statements.py` prepares every statement on both databases. Where the
databases truly differ, the connection has a method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from sqlalchemy import Engine

Row: TypeAlias = tuple[Any, ...]

# A part of an id that is shorter is too likely to name another thing than the one meant.
SHORTEST_PART = 4
AFTER_EVERY_ID = "\N{DELETE}"  # ids are letters and digits

# The condition for an id of which only the beginning or the end is given; see `id_part_values`.
ID_PART = "((id >= ? AND id < ?) OR substr(id, length(id) - ? + 1) = ?)"


class Cursor(Protocol):
    """The rows that a statement returned, as tuples."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement wrote."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""

    def fetchall(self) -> list[Any]:
        """Return the rows that were not fetched yet."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection to one of the two databases; to be used in one thread at a time."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine over this connection, for the queries of people.

        The first use imports SQLAlchemy. A session of the engine begins a transaction of its own:
        none may be open.
        """

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Cursor:
        """Run a statement with its values."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any:
        """Run a statement once for each row."""

    def lease_clock(self, own: int) -> int:
        """Return the moment by which leases are measured, in microseconds since 1970.

        Processes that share a database go by the clock of its server, at the moment the transaction
        began to write; SQLite has one process, which goes by its `own` clock.
        """

    def size(self) -> int:
        """Return how many bytes the database takes on the disk."""

    def used(self) -> int:
        """Return how many of these bytes hold rows: what retention compares with its bound."""

    def shrink(self, least: int) -> int:
        """Give unused room back to the system, if it is at least `least` bytes and a quarter of the
        file.

        Returns how many bytes were given back. Writes the whole file anew, outside of a
        transaction. PostgreSQL does so by itself (autovacuum): 0.
        """

    def optimize(self) -> None:
        """Renew what the planner knows about the tables, and cut a write-ahead log that has grown.

        PostgreSQL does so by itself (autovacuum).
        """

    def rewrite(self, tables: Sequence[str]) -> None:
        """Write the file, or these tables of a server, anew without traces of deleted rows.

        Outside of a transaction. A server's own log and its backups are not reached.
        """

    def close(self) -> None:
        """Close the connection; what was not committed is undone."""


def placeholders(values: Collection[object]) -> str:
    """Return the marks of a list of values for `IN (…)`; `NULL`, in which nothing is, for none."""
    return ", ".join("?" * len(values)) or "NULL"


def id_part_values(part: str) -> tuple[str, str, int, str]:
    """Return the values of ID_PART for a part of an id in capitals, of at least SHORTEST_PART
    characters.
    """
    return part, part + AFTER_EVERY_ID, len(part), part
