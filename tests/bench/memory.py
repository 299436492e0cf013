"""The shipped memory as a candidate for an evaluation of retrieval on conversations.

`add` one text after the other, `flush`, then `search`; every session becomes one archived run, as
the daemon does it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from daemon.memory.memory import Memory
from daemon.memory.segments import Segment
from daemon.models import SegmentType
from daemon.store.database import Database

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATES = (
    re.compile(r"(?P<year>\d{4})[-/年](?P<month>\d{1,2})[-/月](?P<day>\d{1,2})"),
    re.compile(r"(?P<day>\d{1,2})[./](?P<month>\d{1,2})[./](?P<year>\d{4})"),
    re.compile(r"(?P<day>\d{1,2})(?:st|nd|rd|th)? (?P<name>[A-Za-z]{3})[a-z]*,? (?P<year>\d{4})"),
    re.compile(r"(?P<name>[A-Za-z]{3})[a-z]* (?P<day>\d{1,2})(?:st|nd|rd|th)?,? (?P<year>\d{4})"),
)
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::\d{2})?\s*(am|pm)?", re.IGNORECASE)
_UNDATED = datetime(2000, 1, 1, tzinfo=UTC)


class _Text(NamedTuple):
    id: str
    text: str
    at: datetime
    speaker: str


class Candidate:
    """A memory in a folder of its own, to be used without an event loop."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="agentd-bench-memory-"))
        self._runner = asyncio.Runner()
        self._db = self._runner.run(Database.open(self._folder / "agentd.db"))
        self._memory = Memory(self._db, clock=lambda: datetime.now(UTC))
        self._runner.run(self._memory.open())
        self._pending_texts: dict[str, list[_Text]] = {}
        self._ids: dict[tuple[str, int], str] = {}

    def add(
        self,
        text: str,
        id: str,  # noqa: A002  the evaluation's word
        timestamp: str = "",
        speaker: str = "",
        session: str = "",
        caption: str = "",
        **_: object,
    ) -> None:
        """Take one text; its session is archived by `flush`."""
        content = f"{text} [{caption}]" if caption else text
        self._pending_texts.setdefault(session, []).append(
            _Text(id, content, moment(timestamp), speaker)
        )

    def flush(self) -> None:
        """Archive what was added since the last time."""
        self._runner.run(self._archive())

    async def _archive(self) -> None:
        texts_by_session, self._pending_texts = self._pending_texts, {}
        for session, texts in texts_by_session.items():
            for index, text in enumerate(texts):
                self._ids[session, index] = text.id
            segments = [
                Segment(
                    iteration=index,
                    segment=0,
                    type=SegmentType.RESPONSE
                    if text.speaker == "assistant"
                    else SegmentType.USER_MESSAGE,
                    timestamp=text.at + timedelta(seconds=index),
                    text=text.text,
                    speaker=text.speaker,
                )
                for index, text in enumerate(texts)
            ]
            archival = self._memory.archive(
                run=session,
                routine="",
                goal="",
                status="succeeded",
                segments=segments,
                started=texts[0].at,
                ended=texts[-1].at,
            )
        await archival if texts_by_session else None

    def search(self, query: str, limit: int) -> list[str]:
        """Return the ids of what fits best; a long text that was kept in parts counts once."""
        if self._pending_texts:
            self.flush()
        chunks = self._runner.run(self._memory.retrieve(query, limit))
        return list(
            dict.fromkeys(
                self._ids[chunk.anchor.run_id, chunk.anchor.iteration] for chunk in chunks
            )
        )

    def stats(self) -> dict[str, float]:
        """Return what it takes on disk."""
        size = sum(file.stat().st_size for file in self._folder.iterdir())
        return {"disk_mb": round(size / 1e6, 1)}

    def close(self) -> None:
        """Leave nothing behind."""
        self._runner.run(self._db.close())
        self._runner.close()
        shutil.rmtree(self._folder)


def moment(text: str) -> datetime:
    """Read a moment as people write it; one that cannot be read becomes a fixed day."""
    for pattern in _DATES:
        if match := pattern.search(text):
            parts = match.groupdict()
            month = (
                int(parts["month"])
                if "month" in parts
                else 1 + _MONTHS.index(parts["name"].lower())
            )
            day = datetime(int(parts["year"]), month, int(parts["day"]), tzinfo=UTC)
            return day + _time(text[: match.start()] + text[match.end() :])
    return _UNDATED


def _time(text: str) -> timedelta:
    match = _TIME.search(text)
    if not match:
        return timedelta()
    hour, minute, half = int(match[1]), int(match[2]), (match[3] or "").lower()
    return timedelta(hours=hour % 12 + 12 * (half == "pm") if half else hour, minutes=minute)
