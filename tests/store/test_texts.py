"""What prompts have in common is kept once, and nobody who reads a run can tell."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.agent.prompt import SECTIONS
from daemon.errors import DaemonError, Fenced
from daemon.memory.erasure import journal_rows
from daemon.models import Json, Run, Status, Step, StepKind
from daemon.store import rows
from daemon.store.connection import open_writer
from daemon.store.database import MIGRATIONS
from daemon.store.maintenance import JournalMaintenance
from daemon.store.retention import Keep
from daemon.store.texts import (
    LEAST,
    MOST,
    NEW_EACH_TIME,
    BodyReader,
    column_of,
    decode_references,
    drop,
    encode,
    references,
    unused,
)
from daemon.testing import FakeClock
from tests.properties import scaled_settings
from tests.store.conftest import START, Ledger, prompt, step

DAY = timedelta(days=1)


async def lived(ledger: Ledger, *steps: Step, routine: str = "daily") -> Run:
    run = await ledger.running(routine)
    await ledger.journal.runs.append(run, *steps)
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED))
    return run


async def body_of(ledger: Ledger, run: Run) -> Json:
    found = await ledger.journal.runs.get_steps(run.id)
    return found[0].body


async def asked(ledger: Ledger, query: str, *values: Any) -> list[Any]:
    return await ledger.db.read(lambda connection: list(connection.execute(query, values)))


async def texts(ledger: Ledger) -> int:
    ((count,),) = await asked(ledger, "SELECT count(*) FROM text")
    return int(count)


# --- what is kept


async def test_what_runs_are_told_alike_is_kept_once_and_comes_back_to_each(ledger: Ledger) -> None:
    first = await lived(ledger, one := prompt("a" * 32))
    assert await texts(ledger) == 3, "what is safe, the guide, the schemas"
    second = await lived(ledger, other := prompt("c" * 32), step())
    assert await texts(ledger) == 3
    assert [await body_of(ledger, first), await body_of(ledger, second)] == [one.body, other.body]
    bodies = [
        body
        for (body,) in await asked(
            ledger, "SELECT body FROM step WHERE kind = 'prompt' ORDER BY run_id"
        )
    ]
    assert references(bodies[0]) == references(bodies[1])
    whole = len(rows.encode(other.body))
    assert len(bodies[1]) < whole / 3


async def test_routines_share_the_sections_that_they_have_in_common(ledger: Ledger) -> None:
    await lived(ledger, prompt())
    await lived(ledger, prompt(identity="You are somebody else. " * 100), routine="other")
    assert await texts(ledger) == 4, "what differs is another text, and the others are there once"


async def test_short_sections_that_stand_side_by_side_are_one_text(ledger: Ledger) -> None:
    short = prompt(
        safety="Be careful. " * 30,
        identity="You are agentd. " * 50,
        **{"own sections": ""},
        functions=[],
    )
    run = await lived(ledger, short)
    assert await texts(ledger) == 1
    assert await body_of(ledger, run) == short.body


async def test_what_is_new_each_time_stays_in_its_run(ledger: Ledger) -> None:
    assert {name for name, _ in SECTIONS} >= NEW_EACH_TIME
    words = {name: f"Only now, of {name}: 4711. " * 100 for name in NEW_EACH_TIME}
    run = await lived(ledger, given := prompt(**words))
    assert await body_of(ledger, run) == given.body
    kept = await ledger.db.read(
        lambda connection: [
            BodyReader(connection)._text(each)
            for (each,) in connection.execute("SELECT digest FROM text")
        ]
    )
    assert len(kept) == 3
    assert b"4711" not in b"".join(kept)


async def test_a_short_prompt_is_written_as_it_is(ledger: Ledger) -> None:
    short = Step(
        kind=StepKind.PROMPT,
        iteration=0,
        body={"system": "Hello", "sections": {"a": 5}, "functions": []},
    )
    run = await lived(ledger, short)
    assert await asked(ledger, "SELECT body FROM step") == [(rows.encode(short.body),)]
    assert (await body_of(ledger, run), await texts(ledger)) == (short.body, 0)


async def test_steps_that_were_written_before_there_were_texts_are_read(ledger: Ledger) -> None:
    run = await lived(ledger, given := prompt())
    old = rows.encode(given.body)
    await ledger.db.write(lambda connection: connection.execute("UPDATE step SET body = ?", (old,)))
    assert await body_of(ledger, run) == given.body


async def test_whoever_looks_at_the_table_finds_the_digests() -> None:
    with closing(journal()) as connection:
        column = column_of(connection, encode(prompt()), START, 0)
    found = decode_references(column)
    assert found["texts"] == [digest.hex() for digest in references(column)]
    assert found["functions"] == 2
    assert found["language"] == "en"


# --- any body


def journal() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript((MIGRATIONS / "021_texts.sql").read_text())
    return connection


@pytest.fixture(scope="module")
def shelf() -> Iterator[sqlite3.Connection]:
    with closing(journal()) as connection:
        yield connection


LETTERS = st.text(st.sampled_from('ab\0\ud83d中\n "b'), max_size=6)
LONG = st.builds(lambda text, times: text * times, LETTERS, st.sampled_from([1, 40, 400, 2000]))
NAMES = st.sampled_from(sorted({name for name, _ in SECTIONS} | {"system", "new"}))
ODD = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | LETTERS
    | st.lists(st.integers(-1, 9) | LETTERS, max_size=3)
)
BOUNDARIES = st.sampled_from(["", "ab", "\0", "b", "\ud83d"]) | ODD


@st.composite
def prompts(draw: st.DrawFn) -> Json:
    """Return bodies as agents write them, and such as they never would."""
    sections = draw(st.dictionaries(NAMES, LONG, max_size=6))
    sizes: Any = {
        name: len(text) + draw(st.sampled_from([0, 0, 0, 1, -1])) for name, text in sections.items()
    }
    body: dict[str, Any] = {
        "system": draw(st.just("\n\n".join(sections.values())) | ODD | LONG),
        "sections": draw(st.just(sizes) | ODD | st.dictionaries(NAMES, ODD, max_size=3)),
        "functions": draw(st.lists(st.dictionaries(NAMES, LONG, max_size=2), max_size=3) | ODD),
        "boundary": draw(BOUNDARIES),
        "texts": draw(ODD),
    }
    return {key: body[key] for key in draw(st.permutations(list(body)))[draw(st.integers(0, 1)) :]}


@scaled_settings(400)
@given(body=prompts())
def test_any_body_comes_back_as_it_was_handed_in(shelf: sqlite3.Connection, body: Json) -> None:
    encoded = encode(Step(kind=StepKind.PROMPT, iteration=0, body=body))
    found = BodyReader(shelf)(column_of(shelf, encoded, START, 0))
    assert found == json.loads(rows.encode(body))
    assert list(found) == list(body)


def test_a_prompt_of_very_many_sections_shares_as_many_as_it_may() -> None:
    given = prompt(**{f"section {number}": f"{number} " * LEAST for number in range(2 * MOST)})
    with closing(journal()) as connection:
        column = column_of(connection, encode(given), START, 0)
        assert len(references(column)) == MOST
        assert BodyReader(connection)(column) == given.body


# --- what may happen to texts


async def test_a_text_is_there_whatever_became_of_who_wrote_it_first(ledger: Ledger) -> None:
    stale = await ledger.running()
    await ledger.journal.runs.suspend(stale)
    ledger.journal.runs._taken[stale.id] = (stale.fence, 0)  # as somebody who has not heard of it
    run = await ledger.running("other")
    refused, written = (
        ledger.journal.runs.append(stale, prompt()),
        ledger.journal.runs.append(run, given := prompt("c" * 32)),
    )
    with pytest.raises(Fenced):
        await refused
    await written
    assert await body_of(ledger, run) == given.body


async def test_a_text_that_another_process_let_go_of_is_written_again(ledger: Ledger) -> None:
    await lived(ledger, prompt())
    await ledger.db.write(lambda connection: connection.execute("DELETE FROM text"))
    run = await lived(ledger, given := prompt("c" * 32))
    assert await body_of(ledger, run) == given.body


@pytest.mark.parametrize(
    ("harm", "said"),
    [("DELETE FROM text", "is missing"), ("UPDATE text SET body = digest", "is harmed")],
)
async def test_a_prompt_without_one_of_its_texts_says_which_step_is_harmed(
    ledger: Ledger, clock: FakeClock, harm: str, said: str
) -> None:
    run = await lived(ledger, step(), given := prompt())
    await ledger.db.write(lambda connection: connection.execute(harm))
    with pytest.raises(DaemonError, match=rf"step 1 \(prompt\) of the run is harmed .* {said}"):
        await ledger.journal.runs.get_steps(run.id)
    clock.move_to(clock.now() + DAY)
    await lived(ledger, prompt("c" * 32))
    assert (await ledger.journal.runs.get_steps(run.id))[1].body == given.body, (
        "with the first run of a day it is made good"
    )


@pytest.mark.parametrize(
    "column",
    [b"t", b"t\x01", b"t\x01" + b"d" * 16, b"t\x00{}", b't\x00{"system":[5],"functions":5}'],
)
async def test_a_harmed_prompt_is_named(ledger: Ledger, column: bytes) -> None:
    run = await lived(ledger, prompt())
    await ledger.db.write(
        lambda connection: connection.execute("UPDATE step SET body = ?", (column,))
    )
    with pytest.raises(DaemonError, match=r"step 0 \(prompt\) of the run is harmed"):
        await ledger.journal.runs.get_steps(run.id)
    assert not await ledger.journal.runs.has_intact_steps(run.id)


# --- letting go


def upkeep(ledger: Ledger, clock: FakeClock, tmp_path: Path, **keep: Any) -> JournalMaintenance:
    return JournalMaintenance(
        ledger.db,
        ledger.journal,
        clock=clock.now,
        keep=lambda: Keep(**keep),
        workspace=tmp_path,
        idle=lambda: False,
    )


async def test_texts_go_with_the_last_run_that_was_told_them(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    old = prompt(**{"own sections": "It was so once. " * 100})
    for _ in range(12):
        await lived(ledger, old)
    clock.move_to(clock.now() + 50 * DAY)
    for _ in range(9):
        await lived(ledger, prompt())
    assert await texts(ledger) == 4
    clock.move_to(clock.now() + 50 * DAY)
    await upkeep(ledger, clock, tmp_path, steps=90 * DAY).let_go()
    assert await texts(ledger) == 4, "one of the last ten was told it still"
    runs = await ledger.journal.runs.find(limit=100)
    assert [len(await ledger.journal.runs.get_steps(run.id)) for run in runs] == [1] * 10 + [0] * 11
    assert await body_of(ledger, runs[9]) == old.body
    await lived(ledger, prompt())
    await upkeep(ledger, clock, tmp_path, steps=90 * DAY).let_go()
    assert await texts(ledger) == 3
    for run in (await ledger.journal.runs.find(limit=100))[:10]:
        assert (await body_of(ledger, run))["sections"] == prompt().body["sections"]


async def test_a_text_that_a_run_under_way_was_told_stays(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    run = await ledger.running("waits")
    await ledger.journal.runs.append(
        run, given := prompt(**{"own sections": "It was so once. " * 100})
    )
    for _ in range(12):
        clock.move_to(clock.now() + 100 * DAY)
        await lived(ledger, prompt())
    await upkeep(ledger, clock, tmp_path, max_bytes=1).let_go()
    await upkeep(ledger, clock, tmp_path, runs=DAY).let_go()
    assert await body_of(ledger, run) == given.body


async def test_nothing_goes_of_a_history_that_is_kept_for_ever(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    await lived(ledger, prompt())
    await ledger.db.write(lambda connection: connection.execute("DELETE FROM step"))
    clock.move_to(clock.now() + 1000 * DAY)
    await upkeep(ledger, clock, tmp_path, reports=DAY).let_go()
    assert await texts(ledger) == 3


async def test_a_text_is_let_go_of_only_if_nobody_used_it_meanwhile(
    ledger: Ledger, clock: FakeClock
) -> None:
    await lived(ledger, prompt())
    await ledger.db.write(lambda connection: connection.execute("DELETE FROM step"))
    clock.move_to(clock.now() + 2 * DAY)
    gone = await ledger.db.read(lambda connection: unused(connection, clock.now()))
    assert len(gone) == 3
    run = await lived(ledger, given := prompt())
    await ledger.db.write(lambda connection: drop(connection, gone, clock.now()))
    assert await body_of(ledger, run) == given.body


async def test_a_run_that_began_late_counts_from_the_day_it_was_made_or_told(
    ledger: Ledger, clock: FakeClock
) -> None:
    run = await ledger.running()
    clock.move_to(clock.now() - 3 * DAY)  # the clock was put back
    await ledger.journal.runs.append(run, prompt())
    days = {used for (used,) in await asked(ledger, "SELECT used FROM text")}
    assert days == {(run.created - datetime(1970, 1, 1, tzinfo=UTC)).days}


# --- forgetting


async def test_a_forgotten_run_takes_the_texts_along_that_only_it_was_told(
    ledger: Ledger, clock: FakeClock
) -> None:
    run = await lived(
        ledger, prompt(**{"own sections": "The lock opens with 4711. " * 100}), routine="other"
    )
    await lived(ledger, prompt())
    before = await ledger.db.read(
        lambda connection: list(journal_rows.read_texts(connection, [run.id]))
    )
    assert any(b"The lock opens with 4711" in text.body for text in before)
    await ledger.db.write(
        lambda connection: journal_rows.redact_run(connection, run.id, clock.now())
    )
    await ledger.db.write(journal_rows.free_texts)
    assert await texts(ledger) == 3
    after = await ledger.db.read(
        lambda connection: list(journal_rows.read_texts(connection, [run.id]))
    )
    assert not any(b"4711" in text.body for text in after)


async def test_words_that_go_from_one_prompt_stay_in_another(ledger: Ledger) -> None:
    first, second = await lived(ledger, prompt()), await lived(ledger, given := prompt("c" * 32))

    def forget(connection: sqlite3.Connection) -> None:
        for text in list(journal_rows.read_texts(connection, [first.id])):
            journal_rows.rewrite(
                connection, text, lambda body: body.replace(b"the wood is dry", b"[forgotten]")
            )
        journal_rows.free_texts(connection)

    await ledger.db.write(forget)
    system = prompt().body["system"]
    assert (await body_of(ledger, first))["system"] == system.replace(
        "the wood is dry", "[forgotten]"
    )
    assert await body_of(ledger, second) == given.body


async def test_the_tables_of_before_get_texts_and_lose_nothing(tmp_path: Path) -> None:
    early = tmp_path / "early"
    early.mkdir()
    for file in MIGRATIONS.glob("*.sql"):
        if file.name < "021":
            (early / file.name).write_text(file.read_text())
    path = tmp_path / "agentd.db"
    open_writer(path, early).close()
    with closing(open_writer(path, MIGRATIONS)) as connection:
        assert connection.execute("SELECT count(*) FROM text").fetchone() == (0,)
