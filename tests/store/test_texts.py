"""Equal prompt sections are stored once, and runs read as before."""

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
from daemon.store.retention import RetentionLimits
from daemon.store.texts import (
    CHANGING_SECTIONS,
    MAX_TEXTS,
    MIN_TEXT,
    BodyReader,
    decode_references,
    delete_texts,
    encode,
    find_unused_texts,
    references,
    store_body,
)
from daemon.testing import FakeClock
from tests.properties import scaled_settings
from tests.store.conftest import START, Ledger, prompt, step

DAY = timedelta(days=1)


async def execute_run(ledger: Ledger, *steps: Step, routine: str = "daily") -> Run:
    run = await ledger.start_run(routine)
    await ledger.journal.runs.append(run, *steps)
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED))
    return run


async def body_of(ledger: Ledger, run: Run) -> Json:
    steps = await ledger.journal.runs.get_steps(run.id)
    return steps[0].body


async def query(ledger: Ledger, query: str, *values: Any) -> list[Any]:
    return await ledger.db.read(lambda connection: list(connection.execute(query, values)))


async def texts(ledger: Ledger) -> int:
    ((count,),) = await query(ledger, "SELECT count(*) FROM text")
    return int(count)


# --- what is kept


async def test_equal_prompt_sections_of_runs_are_stored_once(ledger: Ledger) -> None:
    first = await execute_run(ledger, first_prompt := prompt("a" * 32))
    assert await texts(ledger) == 3, "what is safe, the guide, the schemas"
    second = await execute_run(ledger, second_prompt := prompt("c" * 32), step())
    assert await texts(ledger) == 3
    assert [await body_of(ledger, first), await body_of(ledger, second)] == [
        first_prompt.body,
        second_prompt.body,
    ]
    bodies = [
        body
        for (body,) in await query(
            ledger, "SELECT body FROM step WHERE kind = 'prompt' ORDER BY run_id"
        )
    ]
    assert references(bodies[0]) == references(bodies[1])
    whole = len(rows.encode(second_prompt.body))
    assert len(bodies[1]) < whole / 3


async def test_routines_share_equal_prompt_sections(ledger: Ledger) -> None:
    await execute_run(ledger, prompt())
    await execute_run(ledger, prompt(identity="You are somebody else. " * 100), routine="other")
    assert await texts(ledger) == 4, "what differs is another text, and the others are there once"


async def test_adjacent_short_sections_are_stored_as_one_text(ledger: Ledger) -> None:
    short = prompt(
        safety="Be careful. " * 30,
        identity="You are agentd. " * 50,
        **{"own sections": ""},
        functions=[],
    )
    run = await execute_run(ledger, short)
    assert await texts(ledger) == 1
    assert await body_of(ledger, run) == short.body


async def test_sections_new_in_each_run_stay_in_their_step(ledger: Ledger) -> None:
    assert {name for name, _ in SECTIONS} >= CHANGING_SECTIONS
    words = {name: f"Only now, of {name}: 4711. " * 100 for name in CHANGING_SECTIONS}
    run = await execute_run(ledger, prompt_step := prompt(**words))
    assert await body_of(ledger, run) == prompt_step.body
    columns = await ledger.db.read(
        lambda connection: [
            BodyReader(connection)._text(digest)
            for (digest,) in connection.execute("SELECT digest FROM text")
        ]
    )
    assert len(columns) == 3
    assert b"4711" not in b"".join(columns)


async def test_a_short_prompt_is_stored_whole(ledger: Ledger) -> None:
    short = Step(
        kind=StepKind.PROMPT,
        iteration=0,
        body={"system": "Hello", "sections": {"a": 5}, "functions": []},
    )
    run = await execute_run(ledger, short)
    assert await query(ledger, "SELECT body FROM step") == [(rows.encode(short.body),)]
    assert (await body_of(ledger, run), await texts(ledger)) == (short.body, 0)


async def test_prompt_steps_of_older_versions_are_read(ledger: Ledger) -> None:
    run = await execute_run(ledger, prompt_step := prompt())
    old = rows.encode(prompt_step.body)
    await ledger.db.write(lambda connection: connection.execute("UPDATE step SET body = ?", (old,)))
    assert await body_of(ledger, run) == prompt_step.body


async def test_a_prompt_row_names_its_texts_by_digest() -> None:
    with closing(journal()) as connection:
        column = store_body(connection, encode(prompt()), START, 0)
    references_of_row = decode_references(column)
    assert references_of_row["texts"] == [digest.hex() for digest in references(column)]
    assert references_of_row["functions"] == 2
    assert references_of_row["language"] == "en"


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
def test_any_prompt_body_round_trips(shelf: sqlite3.Connection, body: Json) -> None:
    encoded_step = encode(Step(kind=StepKind.PROMPT, iteration=0, body=body))
    decoded_body = BodyReader(shelf)(store_body(shelf, encoded_step, START, 0))
    assert decoded_body == json.loads(rows.encode(body))
    assert list(decoded_body) == list(body)


def test_a_prompt_of_many_sections_shares_up_to_the_maximum() -> None:
    prompt_step = prompt(
        **{f"section {number}": f"{number} " * MIN_TEXT for number in range(2 * MAX_TEXTS)}
    )
    with closing(journal()) as connection:
        column = store_body(connection, encode(prompt_step), START, 0)
        assert len(references(column)) == MAX_TEXTS
        assert BodyReader(connection)(column) == prompt_step.body


# --- what may happen to texts


async def test_a_shared_text_exists_even_if_its_first_write_was_fenced(ledger: Ledger) -> None:
    stale = await ledger.start_run()
    await ledger.journal.runs.suspend(stale)
    ledger.journal.runs._claims[stale.id] = (stale.fence, 0)  # as somebody who has not heard of it
    run = await ledger.start_run("other")
    refused_write, good_write = (
        ledger.journal.runs.append(stale, prompt()),
        ledger.journal.runs.append(run, prompt_step := prompt("c" * 32)),
    )
    with pytest.raises(Fenced):
        await refused_write
    await good_write
    assert await body_of(ledger, run) == prompt_step.body


async def test_a_text_removed_by_another_process_is_written_again(ledger: Ledger) -> None:
    await execute_run(ledger, prompt())
    await ledger.db.write(lambda connection: connection.execute("DELETE FROM text"))
    run = await execute_run(ledger, prompt_step := prompt("c" * 32))
    assert await body_of(ledger, run) == prompt_step.body


@pytest.mark.parametrize(
    ("harm", "expected_text"),
    [("DELETE FROM text", "is missing"), ("UPDATE text SET body = digest", "is damaged")],
)
async def test_a_prompt_with_a_missing_text_names_its_step(
    ledger: Ledger, clock: FakeClock, harm: str, expected_text: str
) -> None:
    run = await execute_run(ledger, step(), prompt_step := prompt())
    await ledger.db.write(lambda connection: connection.execute(harm))
    with pytest.raises(
        DaemonError, match=rf"step 1 \(prompt\) of the run is damaged .* {expected_text}"
    ):
        await ledger.journal.runs.get_steps(run.id)
    clock.move_to(clock.now() + DAY)
    await execute_run(ledger, prompt("c" * 32))
    assert (await ledger.journal.runs.get_steps(run.id))[1].body == prompt_step.body, (
        "with the first run of a day it is made good"
    )


@pytest.mark.parametrize(
    "column",
    [b"t", b"t\x01", b"t\x01" + b"d" * 16, b"t\x00{}", b't\x00{"system":[5],"functions":5}'],
)
async def test_a_damaged_prompt_names_its_step(ledger: Ledger, column: bytes) -> None:
    run = await execute_run(ledger, prompt())
    await ledger.db.write(
        lambda connection: connection.execute("UPDATE step SET body = ?", (column,))
    )
    with pytest.raises(DaemonError, match=r"step 0 \(prompt\) of the run is damaged"):
        await ledger.journal.runs.get_steps(run.id)
    assert not await ledger.journal.runs.has_intact_steps(run.id)


# --- letting go


def upkeep(ledger: Ledger, clock: FakeClock, tmp_path: Path, **keep: Any) -> JournalMaintenance:
    return JournalMaintenance(
        ledger.db,
        ledger.journal,
        clock=clock.now,
        limits=lambda: RetentionLimits(**keep),
        workspace=tmp_path,
        is_idle=lambda: False,
    )


async def test_texts_are_removed_with_their_last_run(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    old = prompt(**{"own sections": "It was so once. " * 100})
    for _ in range(12):
        await execute_run(ledger, old)
    clock.move_to(clock.now() + 50 * DAY)
    for _ in range(9):
        await execute_run(ledger, prompt())
    assert await texts(ledger) == 4
    clock.move_to(clock.now() + 50 * DAY)
    await upkeep(ledger, clock, tmp_path, steps=90 * DAY).apply_retention()
    assert await texts(ledger) == 4, "one of the last ten was told it still"
    runs = await ledger.journal.runs.find(limit=100)
    assert [len(await ledger.journal.runs.get_steps(run.id)) for run in runs] == [1] * 10 + [0] * 11
    assert await body_of(ledger, runs[9]) == old.body
    await execute_run(ledger, prompt())
    await upkeep(ledger, clock, tmp_path, steps=90 * DAY).apply_retention()
    assert await texts(ledger) == 3
    for run in (await ledger.journal.runs.find(limit=100))[:10]:
        assert (await body_of(ledger, run))["sections"] == prompt().body["sections"]


async def test_texts_of_an_active_run_are_kept(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    run = await ledger.start_run("waits")
    await ledger.journal.runs.append(
        run, prompt_step := prompt(**{"own sections": "It was so once. " * 100})
    )
    for _ in range(12):
        clock.move_to(clock.now() + 100 * DAY)
        await execute_run(ledger, prompt())
    await upkeep(ledger, clock, tmp_path, max_bytes=1).apply_retention()
    await upkeep(ledger, clock, tmp_path, runs=DAY).apply_retention()
    assert await body_of(ledger, run) == prompt_step.body


async def test_texts_are_kept_without_retention_limits(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    await execute_run(ledger, prompt())
    await ledger.db.write(lambda connection: connection.execute("DELETE FROM step"))
    clock.move_to(clock.now() + 1000 * DAY)
    await upkeep(ledger, clock, tmp_path, reports=DAY).apply_retention()
    assert await texts(ledger) == 3


async def test_a_text_used_again_is_not_removed(ledger: Ledger, clock: FakeClock) -> None:
    await execute_run(ledger, prompt())
    await ledger.db.write(lambda connection: connection.execute("DELETE FROM step"))
    clock.move_to(clock.now() + 2 * DAY)
    unused_texts = await ledger.db.read(
        lambda connection: find_unused_texts(connection, clock.now())
    )
    assert len(unused_texts) == 3
    run = await execute_run(ledger, prompt_step := prompt())
    await ledger.db.write(lambda connection: delete_texts(connection, unused_texts, clock.now()))
    assert await body_of(ledger, run) == prompt_step.body


async def test_a_text_counts_as_used_on_the_creation_day_of_its_run_at_least(
    ledger: Ledger, clock: FakeClock
) -> None:
    run = await ledger.start_run()
    clock.move_to(clock.now() - 3 * DAY)  # the clock was put back
    await ledger.journal.runs.append(run, prompt())
    days = {used for (used,) in await query(ledger, "SELECT used FROM text")}
    assert days == {(run.created - datetime(1970, 1, 1, tzinfo=UTC)).days}


# --- forgetting


async def test_erasure_of_a_run_removes_texts_that_only_the_run_used(
    ledger: Ledger, clock: FakeClock
) -> None:
    run = await execute_run(
        ledger, prompt(**{"own sections": "The lock opens with 4711. " * 100}), routine="other"
    )
    await execute_run(ledger, prompt())
    before = await ledger.db.read(
        lambda connection: list(journal_rows.read_texts(connection, [run.id]))
    )
    assert any(b"The lock opens with 4711" in text.body for text in before)
    await ledger.db.write(
        lambda connection: journal_rows.erase_run(connection, run.id, clock.now())
    )
    await ledger.db.write(journal_rows.delete_unused_texts)
    assert await texts(ledger) == 3
    after = await ledger.db.read(
        lambda connection: list(journal_rows.read_texts(connection, [run.id]))
    )
    assert not any(b"4711" in text.body for text in after)


async def test_rewriting_a_text_of_one_prompt_keeps_other_prompts(ledger: Ledger) -> None:
    first, second = (
        await execute_run(ledger, prompt()),
        await execute_run(ledger, prompt_step := prompt("c" * 32)),
    )

    def forget(connection: sqlite3.Connection) -> None:
        for text in list(journal_rows.read_texts(connection, [first.id])):
            journal_rows.rewrite(
                connection, text, lambda body: body.replace(b"the wood is dry", b"[forgotten]")
            )
        journal_rows.delete_unused_texts(connection)

    await ledger.db.write(forget)
    system = prompt().body["system"]
    assert (await body_of(ledger, first))["system"] == system.replace(
        "the wood is dry", "[forgotten]"
    )
    assert await body_of(ledger, second) == prompt_step.body


async def test_the_migration_to_shared_texts_loses_nothing(tmp_path: Path) -> None:
    early = tmp_path / "early"
    early.mkdir()
    for file in MIGRATIONS.glob("*.sql"):
        if file.name < "021":
            (early / file.name).write_text(file.read_text())
    path = tmp_path / "agentd.db"
    open_writer(path, early).close()
    with closing(open_writer(path, MIGRATIONS)) as connection:
        assert connection.execute("SELECT count(*) FROM text").fetchone() == (0,)
