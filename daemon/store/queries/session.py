"""Run a query of a person in a SQLModel session, over the connection of a reader."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import StatementError
from sqlalchemy.pool import StaticPool
from sqlmodel import Session

from daemon.store.statements import Connection

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
def open_session(connection: Connection) -> Iterator[Session]:
    """Open a session over `connection`, in one snapshot from its first select to its end.

    An error of the driver is raised as itself, as it would be without SQLAlchemy.
    """
    try:
        with Session(connection.engine) as session:
            yield session
    except StatementError as error:
        if error.orig is None:
            raise
        raise error.orig from None


def run_query(connection: Connection, query: Callable[[Session], T]) -> T:
    """Run `query` in a session of its own."""
    try:
        with open_session(connection) as session:
            return query(session)
    except BaseException as error:
        # the frames hold cursors, and these the snapshot: later reads would see it
        traceback.clear_frames(error.__traceback__)
        raise
