"""The classes of the memory's tables read what the memory wrote."""

from __future__ import annotations

from sqlalchemy import create_engine
from sqlmodel import Session, select

from daemon.store import memory_tables as tables
from tests.memory.conftest import Library, in_a_file


@in_a_file
async def test_models_read_the_rows_of_the_memory(library: Library) -> None:
    await library.memory.store("colour", "green", run="r1", tainted=True)
    await library.run("r1", ("person", "which colour?"), ("agent", "green"))

    engine = create_engine(f"sqlite:///{library.db.path}")
    with Session(engine) as session:
        item = session.exec(select(tables.ItemRow)).one()
        assert (item.key, item.text, item.tainted, item.created) == (
            "colour",
            "green",
            True,
            library.clock.now(),
        )
        rows = session.exec(select(tables.SegmentRow)).all()
        assert [(row.who, row.asks) for row in rows] == [("person", True), ("agent", False)]
    engine.dispose()
