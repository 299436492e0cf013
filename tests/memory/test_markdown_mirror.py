"""MEMORY.md: what memory says and what a person edited meet, and nothing gets lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import Refused
from daemon.memory.markdown_mirror import NAME, Mirror, parse, render
from daemon.memory.memory import Memory, MemoryItem
from daemon.store.database import Database
from daemon.store.journal import Journal
from daemon.testing import FakeClock
from tests.empty_database import copy_empty_database
from tests.memory.conftest import START
from tests.properties import scaled_settings


class Desk:
    """A memory, its mirror, and the hands of a person who edits it."""

    def __init__(self, db: Database, workspace: Path) -> None:
        self.clock, self.db = FakeClock(START), db
        self.memory = Memory(db, clock=self.clock.now)
        journal = Journal(db, clock=self.clock.now)
        self.mirror = Mirror(
            self.memory, workspace, journal.facts, clock=self.clock.now, debounce=0.0
        )
        self.file = workspace / NAME

    @property
    def text(self) -> str:
        return self.file.read_text("utf-8")

    async def edit(self, old: str, new: str) -> None:
        """Edit the file as a person does, and let the mirror see it."""
        assert old in self.text
        self.file.write_text(self.text.replace(old, new), "utf-8")
        await self.mirror.sync()

    async def kept(self) -> dict[str, tuple[str, str]]:
        return {item.key: (item.content, item.category) for item in await self.memory.items()}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    database = await Database.open(copy_empty_database(tmp_path / "agentd.db"))
    made = Desk(database, tmp_path)
    await made.memory.open()
    await made.memory.store("user:editor", "Prefers helix")
    await made.memory.store("backup", "Every night at three.\n\nTo the box in the cellar.")
    await made.memory.store("note", "A note of the day", category="daily")
    await made.memory.store("agentd:logs", "The log is in /x")
    await made.mirror.sync()
    yield made
    await database.close()


async def test_core_and_pinned_items_are_shown_and_others_are_not(desk: Desk) -> None:
    assert (
        "## backup\n*core · 2026-03-02 08:00 UTC*\n\nEvery night at three.\n\nTo the box"
        in desk.text
    )
    assert "## user:editor" in desk.text
    assert "A note of the day" not in desk.text
    assert "agentd:logs" not in desk.text
    await desk.memory.pin("note")
    await desk.mirror.sync()
    assert "## note\n*daily · pinned · 2026-03-02 08:00 UTC*" in desk.text
    assert desk.file.stat().st_mode & 0o777 == 0o600


async def test_an_edit_is_kept_and_a_new_section_becomes_an_item(desk: Desk) -> None:
    await desk.edit("Prefers helix", "Prefers emacs, since Monday")
    assert (await desk.kept())["user:editor"] == ("Prefers emacs, since Monday", "core")
    await desk.edit("## backup", "## user:tea\n\nGreen, without sugar.\n\n## backup")
    assert (await desk.kept())["user:tea"] == ("Green, without sugar.", "core")
    assert "*core · 2026-03-02 08:00 UTC*\n\nGreen, without sugar." in desk.text
    found = await desk.memory.retrieve("what about sugar?", 1)
    assert found[0].key == "user:tea"


async def test_where_both_sides_changed_both_texts_stay(desk: Desk) -> None:
    await desk.memory.store("user:editor", "Prefers vim, says a run")
    await desk.edit("Prefers helix", "Prefers emacs, says the person")
    kept = await desk.kept()
    assert kept["user:editor"][0] == "Prefers emacs, says the person"
    assert kept["user:editor (before 2026-03-02 08:00:00)"][0] == "Prefers vim, says a run"
    assert "Prefers vim, says a run" in desk.text


async def test_a_change_by_a_run_reaches_the_file(desk: Desk) -> None:
    await desk.memory.store("user:editor", "Prefers vim, says a run")
    await desk.memory.forget("backup")
    await desk.mirror.sync()
    assert "Prefers vim" in desk.text
    assert "cellar" not in desk.text


async def test_a_section_taken_out_is_no_longer_shown_but_kept(desk: Desk) -> None:
    await desk.memory.pin("user:editor")
    await desk.mirror.sync()
    section = desk.text[desk.text.index("## user:editor") : desk.text.index("## backup")]
    await desk.edit(section, "")
    assert "helix" not in desk.text
    item = await desk.memory.item("user:editor")
    assert item is not None
    assert (item.content, item.category, item.pinned) == ("Prefers helix", "custom", False)


@pytest.mark.parametrize("left", ["", "# Memory\n", "half", "cut", "in a text", "without sections"])
async def test_truncated_mirror_file_deletes_no_item(desk: Desk, left: str) -> None:
    whole = desk.text
    torn = {
        "half": whole[: whole.index("## user:editor")],
        "in a text": whole[: whole.index("in the cellar")],
        "cut": whole[: len(whole) // 2],
        "without sections": whole[: whole.index("## ")] + whole[whole.index("<!-- the end") :],
    }
    desk.file.write_text(torn.get(left, left))
    await desk.mirror.sync()
    kept = await desk.kept()
    assert kept["user:editor"] == ("Prefers helix", "core")
    assert kept["backup"][1] == "core"
    assert "helix" in desk.text and "## backup" in desk.text
    assert all("cellar" in text for text in (kept["backup"][0], desk.text))


async def test_a_deleted_file_comes_back_and_an_emptied_section_too(desk: Desk) -> None:
    before = desk.text
    desk.file.unlink()
    await desk.mirror.sync()
    assert desk.text == before
    await desk.edit("Prefers helix", "")
    assert desk.text == before


async def test_what_cannot_be_kept_stays_in_the_file(desk: Desk) -> None:
    with pytest.raises(Refused, match="an item holds at most 16000 characters"):
        await desk.edit("Prefers helix", "x" * 20_000)
    assert "x" * 20_000 in desk.text
    await desk.mirror.attempt()  # logged, not raised
    desk.file.write_bytes(b"\xff\xfe no text")
    await desk.mirror.attempt()
    assert desk.file.read_bytes() == b"\xff\xfe no text"
    assert len(await desk.kept()) == 4


async def test_a_link_in_its_place_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("## planted\n\nobey\n")
    desk.file.unlink()
    desk.file.symlink_to(elsewhere)
    await desk.mirror.attempt()
    assert "planted" not in await desk.kept()
    assert elsewhere.read_text() == "## planted\n\nobey\n"


async def test_an_edit_of_an_untrusted_item_does_not_make_it_trusted(desk: Desk) -> None:
    await desk.memory.store("page", "Walruses fly", tainted=True)
    await desk.mirror.sync()
    assert "*core · untrusted · " in desk.text
    await desk.edit("Walruses fly", "Walruses fly south")
    item = await desk.memory.item("page")
    assert item is not None and item.tainted


async def test_mirror_notices_edits_and_runs_without_a_call(desk: Desk) -> None:
    changed = desk.memory.watch()
    running = asyncio.create_task(desk.mirror.run())
    await asyncio.sleep(0)
    desk.file.write_text(desk.text.replace("Prefers helix", "Prefers emacs"))
    changed.clear()
    while (await desk.kept())["user:editor"][0] != "Prefers emacs":
        await changed.wait()
        changed.clear()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Typist:
    """Facts of a journal, and a person who saves an edit while the mirror looks at the first of
    them.
    """

    def __init__(self, journal: Journal, file: Path, edited: str) -> None:
        self._journal, self._file, self._edited = journal, file, edited
        self.remember = journal.facts.remember

    async def recall(self, key: str) -> str | None:
        if self._edited:
            self._file.write_text(self._edited)
            self._edited = ""
        return await self._journal.facts.recall(key)


async def test_an_edit_saved_while_the_file_is_written_is_not_lost(
    tmp_path: Path, desk: Desk
) -> None:
    await desk.memory.store("backup", "Every night at four, says a run")
    journal = Journal(desk.db, clock=desk.clock.now)
    typist = Typist(journal, desk.file, desk.text.replace("Prefers helix", "Prefers emacs"))
    await Mirror(desk.memory, tmp_path, typist, clock=desk.clock.now).sync()
    assert (await desk.kept())["user:editor"] == ("Prefers emacs", "core")
    assert "Prefers emacs" in desk.text and "at four" in desk.text
    assert [path.name for path in tmp_path.iterdir() if NAME in path.name] == [NAME]


LETTERS = st.one_of(
    st.sampled_from("a#*\\ <!-\n\r\u2028é的"), st.characters(exclude_categories=["Cs"])
)
TEXTS = st.text(LETTERS, min_size=1, max_size=60).map(str.strip)
KEYS = st.text(st.sampled_from("ab:#* -é的"), min_size=1, max_size=8).map(str.strip).filter(bool)
NOTED = st.sampled_from(
    [
        "## a heading\ntext",
        "\\## x",
        "*core · pinned*\nfirst",
        "<!-- the end\nx",
        "\\\\## y",
        "*daily*",
    ]
)


@scaled_settings(100)
@given(st.dictionaries(KEYS, st.one_of(TEXTS, NOTED).filter(bool), max_size=5))
def test_mirror_file_round_trips_any_items(texts: dict[str, str]) -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    items = {
        key: MemoryItem(key, text, "core", None, False, START, now) for key, text in texts.items()
    }
    page = parse(render(items))
    assert page.is_complete
    assert page.sections == texts
