"""Run a query of a person in a SQLModel session, over the connection of a reader."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Engine, create_engine, event, type_coerce
from sqlalchemy.exc import StatementError
from sqlalchemy.pool import StaticPool
from sqlalchemy.types import NullType
from sqlmodel import Session, SQLModel

T = TypeVar("T")


def engine_over(driver: Any, url: str, *, begin: str, **options: Any) -> Engine:
    """Return an engine that uses one connection of a driver, in the thread of that connection.

    `begin` is the statement that begins a transaction: sqlite3 begins none before a SELECT, and the
    connections of psycopg are in autocommit mode. The session rolls the transaction back.
    """
    engine = create_engine(url, creator=lambda: driver, poolclass=StaticPool, **options)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


@contextmanager
def open_session(engine: Engine) -> Iterator[Session]:
    """Open a session of a connection's engine, in one snapshot from its first select to its end.

    An error of the driver is raised as itself, as it would be without SQLAlchemy.
    """
    try:
        with Session(engine) as session:
            yield session
    except StatementError as error:
        if error.orig is None:
            raise
        raise error.orig from None


def run_query(engine: Engine, query: Callable[[Session], T]) -> T:
    """Run `query` in a session of its own; `engine` is that of a connection."""
    try:
        with open_session(engine) as session:
            return query(session)
    except BaseException as error:
        # the frames hold cursors, and these the snapshot: later reads would see it
        traceback.clear_frames(error.__traceback__)
        raise


def raw_columns(table: type[SQLModel], names: Iterable[str]) -> list[Any]:
    """Return columns for a select whose values are left as the driver returns them.

    The functions of the repositories that make values of rows, such as `run_of`, convert them.
    """
    # Labelled, as two tables of one select may have a column of the same name.
    return [
        type_coerce(getattr(table, name), NullType()).label(f"{table.__tablename__}_{name}")
        for name in names
    ]
