"""A routine gets another name together with its history and memory."""

from __future__ import annotations

import sqlite3

import pytest

from daemon.errors import Refused
from daemon.store.database import MIGRATIONS
from daemon.store.routines import KEPT_TABLES, RENAMED_TABLES
from tests.acceptance.story import Home
from tests.engine_harness import EngineHarness, at, folder_contents, routine

HOURLY = '[trigger]\nevery = "1h"\n[run]\nprompt = "Say hello."\n'


def test_rename_covers_every_table_with_a_routine_name() -> None:
    connection = sqlite3.connect(":memory:")
    for file in sorted(MIGRATIONS.glob("*.sql")):
        connection.executescript(file.read_text())
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    naming = {
        table
        for table in tables
        if any(row[1] == "routine" for row in connection.execute(f"PRAGMA table_info({table})"))
    }
    connection.close()
    assert naming == {*RENAMED_TABLES, *KEPT_TABLES}


async def test_a_renamed_routine_keeps_its_history_and_loses_no_slot(
    harness: EngineHarness, tmp_path
) -> None:
    every = {"every": "1h", "timezone": "UTC"}
    await harness.boot(routine("old", every))
    for hour in ("09", "10"):
        await harness.reach(f"01 {hour}:00")
        await harness.finish(*await harness.journal.runs.find_active())
    harness.time.move_to(at("01 11:00"))  # due, and nobody has rung yet
    with pytest.raises(Refused, match="a run of old is queued"):
        await harness.engine.rename("old", "new", lambda: None)
    assert harness.starts[-1] == "old 01 11:00", "what was due was started first"
    await harness.finish(*await harness.journal.runs.find_active())
    await harness.engine.rename("old", "new", lambda: None)
    assert "old" not in harness.engine.routines
    await harness.engine.reload(folder_contents(routine("new", every)))
    await harness.reach("01 12:00")
    assert harness.starts[-1] == "new 01 12:00"
    rows = await harness.rows("new")
    assert [row for row in rows if "01 1" in row] == [
        "01 10:00 ran",
        "01 11:00 ran",
        "01 12:00 ran",
    ]
    assert await harness.rows("old") == []


async def test_a_failed_rename_of_the_file_changes_nothing(
    harness: EngineHarness,
) -> None:
    await harness.boot(routine("old", {"every": "1h", "timezone": "UTC"}))
    await harness.reach("01 09:00")
    await harness.finish(*await harness.journal.runs.find_active())

    def move() -> None:
        raise Refused("no")

    with pytest.raises(Refused, match="no"):
        await harness.engine.rename("old", "new", move)
    assert await harness.rows("new") == []
    await harness.reach("01 10:00")
    assert harness.starts[-1] == "old 01 10:00"


async def test_rename_moves_file_history_and_memory(home: Home) -> None:
    home.routine("hello", HOURLY)
    home.routine("chain", '[trigger]\nafter = ["hello"]\n[run]\nprompt = "x"\n')
    await home.start()
    assert (await home.agentctl("run", "hello")).code == 0
    await home.agentctl("pause", "hello")
    result = await home.agentctl("rename", "hello", "greeting")
    assert result.code == 0, result.err
    assert result.out.startswith("hello is greeting now")
    assert 'chain still says after = ["hello"]' in result.err
    assert not (home.folder / "routines/hello.toml").exists()
    items = {item["name"]: item for item in (await home.agentctl("list", "--json")).json["items"]}
    assert set(items) == {"greeting", "chain"}
    assert (items["greeting"]["state"], items["greeting"]["last"]["status"]) == (
        "paused",
        "succeeded",
    )
    assert "no such routine" in items["chain"]["faults"][0]["text"]
    home.routine("other", HOURLY)
    await home.wait_for_log("definitions.reloaded", added=["other"])
    for words, code, says in (
        (("nosuch", "x"), 4, "no routine 'nosuch'"),
        (("other", "greeting"), 5, "there is a routine 'greeting' already"),
        (("other", "hello"), 0, "other is hello now"),
        (("greeting", "Good Day"), 5, "a routine's name is made of a-z, 0-9 and -"),
    ):
        result = await home.agentctl("rename", *words)
        assert (result.code, says in result.out + result.err) == (code, True), result.err


async def test_rename_requires_the_policy_to_use_the_new_name_first(home: Home) -> None:
    home.routine("hello", HOURLY)
    home.write("policy.toml", 'version = 1\n[routine.hello]\nautonomy = "readonly"\n')
    await home.start()
    result = await home.agentctl("rename", "hello", "greeting")
    assert result.code == 5
    assert (
        "policy.toml has a [routine.hello] and no [routine.greeting]; write that first"
        in result.err
    )
    assert (home.folder / "routines/hello.toml").exists()
