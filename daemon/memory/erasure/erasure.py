"""Forget for good: first shown, then gone from memory, the journal, the index and the file.

Theory of operation. What a person wants forgotten stands in more places than they think: the item,
the run that stored it, the prompts of later runs that recalled it. So `look` finds, and nothing is
deleted: items, whole runs, and quotes of either in other runs. `forget` does exactly what was
shown, or refuses because it would do something else by now. Runs that go leave a row and a digest
(journal_rows.py); quotes are overwritten where they stand. At last the index is merged into one
tree and the file written anew: SQLite's free pages and log keep what was deleted otherwise.

What has left the database is out of reach, and said: delivered reports, backups, logs.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import structlog

from daemon.errors import DaemonError, NotFound, Refused
from daemon.memory.context import BESIDE_CHARACTERS, HIT_CHARACTERS, cut, said_by
from daemon.memory.erasure import journal_rows, memory_rows
from daemon.memory.memory import Memory
from daemon.memory.rows import IndexedItem
from daemon.models import StepKind
from daemon.store.run_rows import find_run

log = structlog.get_logger()

# Shorter texts stand in other places by chance ("yes", "4711"): they are forgotten with their item
# only.
SHORTEST_QUOTE = 8
# Of a text with several lines or sentences, those are looked for that are at least this long.
SHORTEST_PART = 24
_PART = 200
# As much of the last report is in a prompt (agent/prompt.py, which is not there yet when a daemon
# starts).
REPORT_CHARACTERS = 2_000
_RUNS_AT_ONCE = 50
# More texts than these are not looked for in every run there is: it would take minutes.
MOST_QUOTES = 4_000
_MARK = "[forgotten]"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureRequest:
    """What is to be forgotten: all that fits every one of these."""

    key: str | None = None
    query: str | None = None
    """Whatever holds all its words."""
    run: str | None = None
    routine: str | None = None
    before: datetime | None = None

    @property
    def runs_too(self) -> bool:
        return self.key is None


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasurePlan:
    """What a wish comes to."""

    items: tuple[IndexedItem, ...]
    runs: tuple[str, ...]
    """Of the journal, of memory, or of both."""
    routines: Mapping[str, str]
    """By run."""
    quotes: Mapping[str, int] = field(default_factory=dict)
    """In how many places other runs that have ended quote what goes, by run."""
    alive: tuple[str, ...] = ()
    """Runs that would go, had they ended."""
    reach: tuple[str, ...] = ()
    """What cannot be reached from here."""

    @property
    def token(self) -> str:
        """Name exactly this: who confirms it confirms nothing else."""
        said = [
            [(item.id, item.updated) for item in self.items],
            self.runs,
            sorted(self.quotes.items()),
        ]
        return blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()

    @property
    def nothing(self) -> bool:
        return not (self.items or self.runs)


class RunTexts(NamedTuple):
    """What runs said that go."""

    texts: Sequence[str] = ()
    """Looked for whole, and by their lines and sentences where these are long."""
    lines: Sequence[str] = ()
    """Looked for as they stand here: how prompts show what is short, or cut."""
    messages: Sequence[str] = ()
    """Looked for where they are all of a message, as turns of a conversation are in the prompts of
    later ones.
    """


class Forgetting:
    """Finds what a wish comes to, and does it."""

    def __init__(
        self,
        memory: Memory,
        *,
        clock: Callable[[], datetime],
        out_of_reach: Sequence[str] = (),
        when_forgotten: Callable[[], None] = lambda: None,
    ) -> None:
        """`when_forgotten` is for whoever has read what may be gone."""
        self._memory, self._shelf, self._clock = memory, memory.memory_store, clock
        self._when_forgotten = when_forgotten
        self._out_of_reach = tuple(out_of_reach)

    async def look(self, request: ErasureRequest) -> ErasurePlan:
        """Find what would go; NotFound for a run that does not exist, Refused for a wish without a
        limit.
        """
        if request == ErasureRequest():
            raise Refused(
                "say what to forget: a key, a query, a run, a routine or a time before which"
            )
        if request.run is not None:
            request = replace(
                request, run=await self._shelf.read(partial(_whole_id, part=request.run))
            )
        found = await self._runs(request) if request.runs_too else {}
        runs = tuple(run for run, ended in found.items() if ended)
        items = await self._shelf.read(
            partial(
                memory_rows.items,
                key=request.key,
                query=request.query,
                before=request.before,
                runs=runs if request.run or request.routine else None,
                lines_of=runs,
            )
        )
        plan = ErasurePlan(
            items=tuple(items),
            runs=runs,
            routines=await self._shelf.read(partial(_routines, runs=runs)),
        )
        quotes = await self._quotes(plan)
        told = await self._quotes(plan, journal_rows.under_way)
        alive = tuple(run for run, ended in found.items() if not ended)
        waiting = [f"run {run} is under way: cancel it first" for run in alive]
        waiting += [
            f"what run {run} was told of it, which is under way: let it end, or cancel it, first"
            for run in told
        ]
        gone = await self._shelf.read(partial(_delivered, runs=runs))
        return replace(
            plan,
            quotes={run: len(places) for run, places in quotes.items()},
            alive=alive,
            reach=(*waiting, *gone, *await self._unsought(plan), *self._out_of_reach),
        )

    async def _unsought(self, plan: ErasurePlan) -> list[str]:
        """Say which quotes are not looked for."""
        said = []
        if len(_forms(plan, await self._said(plan))) > MOST_QUOTES:
            said.append(
                "quotes of it in other runs: it is too much to look for; forget these by --query"
            )
        if short := [item.key for item in plan.items if len(item.text) < SHORTEST_QUOTE]:
            said.append(
                f"quotes of {', '.join(short)} in other runs: the text is too short to look for"
            )
        return said

    async def forget(self, request: ErasureRequest, token: str) -> ErasurePlan:
        """Do it, if it is still what was shown; Refused otherwise."""
        plan = await self.look(request)
        if plan.token != token:
            raise Refused("what would go has changed since it was shown; look at it again")
        if plan.nothing:
            return plan
        self._when_forgotten()  # nobody is told of it while it goes
        try:
            await self._rewrite(plan)
        finally:
            self._when_forgotten()
        await self._wipe()
        log.info(
            "memory.forgotten", items=len(plan.items), runs=len(plan.runs), quoting=len(plan.quotes)
        )
        self._memory.ring()
        return plan

    async def _rewrite(self, plan: ErasurePlan) -> None:
        now, write = self._clock(), self._shelf.write
        quotes = await self._quotes(plan)
        change = _changer(_forms(plan, await self._said(plan)) if quotes else {})
        for run, places in quotes.items():
            await write(partial(_overwrite, run=run, places=places, change=change))
        await self._overwrite_in_memory(plan)
        for run in plan.runs:
            await write(partial(_bury, run=run, now=now))
        await write(partial(memory_rows.drop_items, items=plan.items, now=now), durable=True)
        await write(journal_rows.free_definitions)
        await write(journal_rows.free_texts)

    async def _wipe(self) -> None:
        """Leave no trace in the file; the deletion stands already, whatever becomes of this."""
        from daemon.memory import index

        first = True
        while not await self._shelf.write(partial(index.merge_some, first=first)):
            first = False
        try:
            await self._shelf.apart(journal_rows.wipe)
        except (DaemonError, sqlite3.Error) as error:
            msg = (
                "it is deleted, but the file could not be written anew and may still hold traces "
                f"of it: {error}"
            )
            raise DaemonError(msg) from error

    async def _overwrite_in_memory(self, plan: ErasurePlan) -> None:
        """Overwrite quotes of the items that go in archived runs and in other items."""
        needles = _needles(plan)
        keys, ids = {item.key for item in plan.items}, {item.id for item in plan.items}
        below: int | None = None
        while needles:
            runs, below = await self._shelf.read(
                partial(memory_rows.runs_quoting, needles=needles, below=below)
            )
            for run in runs:
                await self._shelf.write(
                    partial(memory_rows.overwrite_run, run=run, needles=needles, mark=_MARK)
                )
            if below is None:
                break
        for item in await self._shelf.read(partial(memory_rows.items_quoting, needles=needles)):
            if item.id not in ids and item.key not in keys:
                await self._shelf.write(
                    partial(memory_rows.overwrite_item, key=item.key, needles=needles, mark=_MARK)
                )

    # --- finding

    async def _runs(self, request: ErasureRequest) -> dict[str, bool]:
        """Return the runs that fit, and whether each has ended."""
        limits: dict[str, Any] = {
            "run": request.run,
            "routine": request.routine,
            "before": request.before,
        }
        found = await self._shelf.read(partial(journal_rows.runs_where, **limits))
        archived = await self._shelf.read(partial(memory_rows.runs, **limits))
        for run in archived:
            found.setdefault(run, True)
        if request.query is None:
            return found
        speaking = set(
            await self._shelf.read(partial(memory_rows.runs_that_say, query=request.query))
        )
        says = memory_rows.holds_all_words(request.query)
        for some in _chunks([run for run in found if run not in speaking]):
            texts = await self._shelf.read(partial(_written_by, runs=some))
            speaking.update(
                text.run for text in texts if says(text.body.decode("utf-8", "replace"))
            )
        return {run: ended for run, ended in found.items() if run in speaking}

    async def _said(self, plan: ErasurePlan) -> RunTexts:
        """Return what the runs that go said, as later prompts may quote it."""
        if not plan.runs:
            return RunTexts()
        return await self._shelf.read(partial(_said_by, runs=plan.runs))

    async def _quotes(
        self,
        plan: ErasurePlan,
        candidates_since: Callable[[sqlite3.Connection, int], list[str]] = journal_rows.ended_since,
    ) -> dict[str, list[tuple[int, str]]]:
        """Return where other runs quote what goes: seq and kind of their steps, by run."""
        everywhere = _forms(plan)
        recalled = _forms(plan, await self._said(plan))
        if not recalled or len(recalled) > MOST_QUOTES:
            return {}
        since = await self._shelf.read(partial(_first_said, plan=plan))
        going = set(plan.runs)
        candidates = await self._shelf.read(lambda connection: candidates_since(connection, since))
        found: dict[str, list[tuple[int, str]]] = {}
        for some in _chunks([run for run in candidates if run not in going]):
            texts = await self._shelf.read(partial(_written_by, runs=some))
            for text in texts:
                needles = recalled if _quotes_by_nature(text) else everywhere
                if any(needle in text.body for needle in needles):
                    found.setdefault(text.run, []).append((text.seq, text.kind))
        return found


def _quotes_by_nature(text: journal_rows.StepText) -> bool:
    """Tell whether a step holds what earlier runs said: its prompt, and what memory answered."""
    return text.kind == StepKind.PROMPT or (
        text.kind == StepKind.RESULT and b'"tool":"memory_' in text.body
    )


def _needles(plan: ErasurePlan, said: RunTexts = RunTexts()) -> list[str]:  # noqa: B008  it holds nothing
    """Return the texts to look for, the longest first: whole ones, and their lines and
    sentences.
    """
    wholes = [item.text for item in plan.items if len(item.text) >= SHORTEST_QUOTE]
    texts = (*wholes, *said.texts)
    parts = [
        part
        for text in texts
        for part in memory_rows.parts(text, _PART)
        if len(part) >= SHORTEST_PART
    ]
    lines = [line for line in said.lines if len(line) >= SHORTEST_QUOTE]
    return sorted({*wholes, *parts, *lines}, key=lambda needle: (-len(needle), needle))


def _forms(plan: ErasurePlan, said: RunTexts = RunTexts()) -> dict[bytes, bytes]:  # noqa: B008  it holds nothing
    """Return the texts as they stand in a row, in JSON, and in JSON within JSON, each with what is
    put in its place.
    """
    found: dict[bytes, bytes] = {}
    for needle in _needles(plan, said):
        plain = json.dumps(needle, ensure_ascii=False)[1:-1]
        for form in (
            needle,
            plain,
            json.dumps(needle)[1:-1],
            json.dumps(plain, ensure_ascii=False)[1:-1],
        ):
            found[form.encode("utf-8", "replace")] = _MARK.encode()
    for message in said.messages:
        for form in (json.dumps(message, ensure_ascii=False), json.dumps(message)):
            found[f'"content":{form}'.encode("utf-8", "replace")] = f'"content":"{_MARK}"'.encode()
    return found


def _changer(forms: Mapping[bytes, bytes]) -> Callable[[bytes], bytes]:
    longest_first = sorted(forms.items(), key=lambda pair: -len(pair[0]))

    def change(body: bytes) -> bytes:
        for form, mark in longest_first:
            body = body.replace(form, mark)
        return body

    return change


def _chunks(runs: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(runs), _RUNS_AT_ONCE):
        yield runs[first : first + _RUNS_AT_ONCE]


# --- functions of a connection


def _whole_id(connection: sqlite3.Connection, part: str) -> str:
    try:
        return find_run(connection, part).id
    except NotFound:
        if memory_rows.runs(connection, run=part, routine=None, before=None):
            return part
        raise


def _routines(connection: sqlite3.Connection, runs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for table, column in (("memory_run", "run_id"), ("run", "id")):
        for some in _chunks(runs):
            marks = ", ".join("?" * len(some))
            found |= dict(
                connection.execute(
                    f"SELECT {column}, routine FROM {table} WHERE {column} IN ({marks})",  # noqa: S608
                    some,  # noqa: RUF100, S608
                )
            )
    return found


def _delivered(connection: sqlite3.Connection, runs: Sequence[str]) -> list[str]:
    gone = [each for some in _chunks(runs) for each in journal_rows.delivered(connection, some)]
    return [
        f"the report of run {run}, delivered to {target}: {receipt}".rstrip(": ")
        for run, target, receipt in gone
    ]


_SEGMENTS = "FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run WHERE"


def _written_by(connection: sqlite3.Connection, runs: Sequence[str]) -> list[journal_rows.StepText]:
    return list(journal_rows.written(connection, runs))


def _said_by(connection: sqlite3.Connection, runs: Sequence[str]) -> RunTexts:
    """Return what runs were asked and said; what is short only if no other run said it as well."""
    texts, lines, messages = list[str](), list[str](), list[str]()
    for some in _chunks(runs):
        marks = ", ".join("?" * len(some))
        for goal, report in connection.execute(
            f"SELECT goal, report FROM run WHERE id IN ({marks})",  # noqa: S608
            some,  # noqa: RUF100, S608
        ):
            messages += [text for text in (goal, report) if text and len(text) >= SHORTEST_PART]
            if report:
                texts += {report, shown := report[:REPORT_CHARACTERS]}
                lines += [shown] if "\n" in shown else []
        segments = f"SELECT s.who, s.text {_SEGMENTS} r.run_id IN ({marks})"
        for who, text in connection.execute(segments, some):
            texts.append(text)
            if len(text) > BESIDE_CHARACTERS or "\n" in text:
                lines += {
                    said_by(who, cut(text, limit)) for limit in (BESIDE_CHARACTERS, HIT_CHARACTERS)
                }
    for who, text in _short(connection, set(runs)):
        if who:
            lines.append(said_by(who, text))
        else:
            messages.append(text)
            lines += [
                f":\n{text}",
                f">\n{text}\n",
            ]  # the last report stands behind a colon, or between marks
    return RunTexts(texts, lines, messages)


def _short(connection: sqlite3.Connection, runs: Collection[str]) -> list[tuple[str, str]]:
    """Return what is short and only these runs said, each with who it was; goals and reports with
    nobody.
    """
    ours, others = set[tuple[str, str]](), set[tuple[str, str]]()
    for query in (
        f"SELECT r.run_id, s.who, s.text {_SEGMENTS} length(s.text) < ?",
        "SELECT id, '', goal FROM run WHERE length(goal) < ?",
        "SELECT id, '', report FROM run WHERE length(report) < ?",
    ):
        for run, who, text in connection.execute(query, (SHORTEST_PART,)):
            (ours if run in runs else others).add((who, text))
    return sorted((who, text) for who, text in ours - others if text)


def _first_said(connection: sqlite3.Connection, plan: ErasurePlan) -> int:
    """Return when the oldest of what goes came into being: no run that ended before can quote
    it.
    """
    begins = [item.created for item in plan.items]
    for some in _chunks(plan.runs):
        marks = ", ".join("?" * len(some))
        (oldest,) = connection.execute(
            f"SELECT min(created) FROM run WHERE id IN ({marks})",  # noqa: S608
            some,  # noqa: RUF100, S608
        ).fetchone()
        begins += [oldest] if oldest is not None else [0]
    return min(begins, default=0)


def _overwrite(
    connection: sqlite3.Connection,
    run: str,
    places: Sequence[tuple[int, str]],
    change: Callable[[bytes], bytes],
) -> None:
    wanted = {seq for seq, _ in places}
    for text in list(journal_rows.written(connection, [run])):
        if text.seq in wanted:
            journal_rows.rewrite(connection, text, change)


def _bury(connection: sqlite3.Connection, run: str, now: datetime) -> None:
    """Forget a run, in memory and in the journal."""
    digest = None
    if journal_rows.runs_where(connection, run=run, routine=None, before=None):
        digest = journal_rows.bury(connection, run, now)
    memory_rows.drop_run(connection, run, digest, now)
