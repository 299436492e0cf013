"""Erase texts for good: from memory, the journal, the index and the database file.

Theory of operation. A text stands in more places than a person expects: in the item, in the run
that stored the item, in the prompts of later runs that recalled it. So `Eraser.plan` deletes
nothing and returns the items and runs to delete, and the quotes of them in other runs.
`Eraser.erase` does exactly what the plan has shown, or refuses if the plan would be another one by
now. An erased run leaves a row and a digest (journal_rows.py); quotes are overwritten in place. At
last the index is merged into one tree and the database file is rewritten: otherwise free pages and
the log of SQLite would keep the deleted texts.

Delivered reports, backups and logs are outside of the database; the plan names them as unreachable.
"""

# ruff: noqa: S608  only names, marks and constants are put into statements; values are bound
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
from daemon.memory.erasure import journal_rows, memory_rows
from daemon.memory.memory import Memory
from daemon.memory.recall import HIT_CHARACTERS, NEIGHBOUR_CHARACTERS, quote_line, shorten
from daemon.memory.rows import StoredItem
from daemon.models import StepKind
from daemon.store.connection import Connection, placeholders
from daemon.store.run_rows import find_run

log = structlog.get_logger()

# Characters. A shorter text stands in other places by chance ("yes", "4711"): it is erased in its
# item only.
MIN_QUOTE = 8
# Characters. Shorter lines and sentences of a text are not searched for.
MIN_PART = 24
_MAX_PART = 200
# Characters of the last report in a prompt, as in agent/prompt.py: an agent without a memory does
# not import this package. A test holds both equal.
REPORT_CHARACTERS = 2_000
# Runs whose steps are read in one transaction.
_RUNS_AT_ONCE = 50
# With more texts than these, quotes are not searched for: it would take minutes.
MAX_QUOTES = 4_000
_MARK = "[forgotten]"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureRequest:
    """The conditions of an erasure: what fits all of them is erased."""

    key: str | None = None
    query: str | None = None
    """Words that a text must hold, all of them."""
    run: str | None = None
    routine: str | None = None
    before: datetime | None = None

    @property
    def includes_runs(self) -> bool:
        """Whether runs may be erased: not by a key, which only an item has."""
        return self.key is None

    @property
    def has_run_condition(self) -> bool:
        """Whether it says whose runs are meant: then only items that these stored are erased."""
        return self.run is not None or self.routine is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasurePlan:
    """What an erasure would delete and overwrite."""

    items: tuple[StoredItem, ...]
    runs: tuple[str, ...]
    """Runs in the journal, in memory, or in both."""
    routines: Mapping[str, str]
    """Names of routines, by run."""
    quotes: Mapping[str, int] = field(default_factory=dict)
    """Numbers of quotes of the erased texts in other ended runs, by run."""
    active: tuple[str, ...] = ()
    """Runs that fit the request but have not ended, so they are not erased."""
    unreachable: tuple[str, ...] = ()
    """Notes for a person on what the erasure does not reach."""

    @property
    def token(self) -> str:
        """A digest of the plan: with it a person confirms exactly this plan."""
        content = [
            [(item.id, item.updated) for item in self.items],
            self.runs,
            sorted(self.quotes.items()),
        ]
        return blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    @property
    def is_empty(self) -> bool:
        return not (self.items or self.runs)


class RunTexts(NamedTuple):
    """The texts of the erased runs, by the way in which other runs may quote them."""

    texts: Sequence[str] = ()
    """Searched for by their lines and sentences of at least MIN_PART characters."""
    lines: Sequence[str] = ()
    """Searched for as they are: short or cut texts in the form that prompts have them."""
    messages: Sequence[str] = ()
    """Searched for as the whole content of a message, as the prompt of a later turn holds the
    turns of a conversation.
    """


class Eraser:
    """Plan erasures and carry them out."""

    def __init__(
        self,
        memory: Memory,
        *,
        clock: Callable[[], datetime],
        out_of_reach: Sequence[str] = (),
        on_erasure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_erasure` is called before and after a deletion, to drop cached texts."""
        self._memory, self._store, self._clock = memory, memory.memory_store, clock
        self._on_erasure = on_erasure
        self._out_of_reach = tuple(out_of_reach)

    async def plan(self, request: ErasureRequest) -> ErasurePlan:
        """Return what a request would erase, without a change.

        Raises NotFound for a run that does not exist, Refused for a request without a condition.
        """
        if request == ErasureRequest():
            raise Refused(
                "say what to forget: a key, a query, a run, a routine or a time before which"
            )
        if request.run is not None:
            request = replace(
                request, run=await self._store.read(partial(_complete_id, prefix=request.run))
            )
        is_ended_by_run = await self._runs(request) if request.includes_runs else {}
        runs = tuple(run for run, is_ended in is_ended_by_run.items() if is_ended)
        items = await self._store.read(
            partial(
                memory_rows.items,
                key=request.key,
                query=request.query,
                before=request.before,
                runs=runs if request.has_run_condition else None,
                archived_runs=runs,
            )
        )
        erasure_plan = ErasurePlan(
            items=tuple(items),
            runs=runs,
            routines=await self._store.read(partial(_routines, runs=runs)),
        )
        quotes = await self._quotes(erasure_plan)
        informed_runs = await self._quotes(erasure_plan, journal_rows.active_runs)
        active = tuple(run for run, is_ended in is_ended_by_run.items() if not is_ended)
        notes = [f"run {run} is under way: cancel it first" for run in active]
        notes += [
            f"what run {run} was told of it, which is under way: let it end, or cancel it, first"
            for run in informed_runs
        ]
        if request.run is not None or request.routine is not None:
            notes += await self._sub_agent_notes(runs)
        delivery_notes = await self._store.read(partial(_delivery_notes, runs=runs))
        return replace(
            erasure_plan,
            quotes={run: len(rows) for run, rows in quotes.items()},
            active=active,
            unreachable=(
                *notes,
                *delivery_notes,
                *await self._unsearched_notes(erasure_plan),
                *self._out_of_reach,
            ),
        )

    async def _sub_agent_notes(self, runs: Sequence[str]) -> list[str]:
        """Return a note on the sub-agents of these runs of which nothing tells any more which texts
        in memory are theirs.
        """
        count = await self._store.read(partial(journal_rows.count_deleted_sub_agents, runs=runs))
        if not count:
            return []
        deleted = "their runs are deleted, and memory may have it still"
        return [f"what {count} of its sub-agents found: {deleted}; forget that by --query"]

    async def _unsearched_notes(self, plan: ErasurePlan) -> list[str]:
        """Return notes on the quotes that are not searched for."""
        notes = []
        if len(_encoded_forms(plan, await self._texts_of_runs(plan))) > MAX_QUOTES:
            notes.append(
                "quotes of it in other runs: it is too much to look for; forget these by --query"
            )
        if short_keys := [item.key for item in plan.items if len(item.text) < MIN_QUOTE]:
            notes.append(
                f"quotes of {', '.join(short_keys)} in other runs: "
                "the text is too short to look for"
            )
        return notes

    async def erase(self, request: ErasureRequest, token: str) -> ErasurePlan:
        """Erase what a request asks for; raises Refused if its plan no longer has this token."""
        plan = await self.plan(request)
        if plan.token != token:
            raise Refused("what would go has changed since it was shown; look at it again")
        if plan.is_empty:
            return plan
        self._on_erasure()  # no cache may serve the texts during the deletion
        try:
            await self._delete(plan)
        finally:
            self._on_erasure()
        await self._rewrite_file()
        log.info(
            "memory.forgotten", items=len(plan.items), runs=len(plan.runs), quoting=len(plan.quotes)
        )
        self._memory.notify_watchers()
        return plan

    async def _delete(self, plan: ErasurePlan) -> None:
        now, write = self._clock(), self._store.write
        quotes = await self._quotes(plan)
        change = _make_replacer(
            _encoded_forms(plan, await self._texts_of_runs(plan)) if quotes else {}
        )
        for run, rows in quotes.items():
            await write(partial(_overwrite, run=run, rows=rows, change=change))
        await self._overwrite_in_memory(plan)
        for run in plan.runs:
            await write(partial(_erase_run, run=run, now=now))
        await write(partial(memory_rows.drop_items, items=plan.items, now=now), durable=True)
        await write(journal_rows.delete_unused_definitions)
        await write(journal_rows.delete_unused_texts)

    async def _rewrite_file(self) -> None:
        """Remove the traces of deleted texts from the database file.

        The deletion is committed before; raises DaemonError if the file cannot be rewritten.
        """
        from daemon.memory import index

        is_first = True
        while not await self._store.write(partial(index.merge_some, is_first=is_first)):
            is_first = False
        try:
            await self._store.run_outside_transaction(journal_rows.rewrite_tables)
        except (DaemonError, sqlite3.Error) as error:
            msg = (
                "it is deleted, but the file could not be written anew and may still hold traces "
                f"of it: {error}"
            )
            raise DaemonError(msg) from error

    async def _overwrite_in_memory(self, plan: ErasurePlan) -> None:
        """Overwrite quotes of the erased items in archived runs and in other items, and quotes of
        the erased runs in what the tools of memory returned to other runs.
        """
        item_texts = _forms_in_memory(_search_texts(plan))
        run_texts = await self._texts_of_runs(plan)
        if len(_encoded_forms(plan, run_texts)) > MAX_QUOTES:
            run_texts = RunTexts()
        searched_texts = memory_rows.SearchedTexts(
            item_texts, _forms_in_memory(_search_texts(plan, run_texts))
        )
        keys, ids = {item.key for item in plan.items}, {item.id for item in plan.items}
        below: int | None = None
        while any(searched_texts):
            runs, below = await self._store.read(
                partial(memory_rows.find_runs_quoting, searched_texts=searched_texts, below=below)
            )
            for run in runs:
                await self._store.write(
                    partial(
                        memory_rows.overwrite_run,
                        run=run,
                        searched_texts=searched_texts,
                        mark=_MARK,
                    )
                )
            if below is None:
                break
        for item in await self._store.read(
            partial(memory_rows.find_items_quoting, searched_texts=item_texts)
        ):
            if item.id not in ids and item.key not in keys:
                await self._store.write(
                    partial(
                        memory_rows.overwrite_item,
                        key=item.key,
                        searched_texts=item_texts,
                        mark=_MARK,
                    )
                )

    # --- searching

    async def _runs(self, request: ErasureRequest) -> dict[str, bool]:
        """Return the runs that fit a request, and whether each has ended."""
        limits: dict[str, Any] = {
            "run": request.run,
            "routine": request.routine,
            "before": request.before,
        }
        is_ended_by_run = await self._store.read(partial(journal_rows.runs_where, **limits))
        archived_runs = await self._store.read(partial(memory_rows.runs, **limits))
        for run in archived_runs:
            is_ended_by_run.setdefault(run, True)
        if request.has_run_condition:
            # What they were told and found is a part of the run. A run under way is not erased, so
            # its sub-agents stay as well.
            ended_runs = [run for run, is_ended in is_ended_by_run.items() if is_ended]
            is_ended_by_run |= await self._store.read(
                partial(journal_rows.sub_agents_of, runs=ended_runs)
            )
        if request.query is None:
            return is_ended_by_run
        matching_runs = set(
            await self._store.read(partial(memory_rows.find_runs_with_words, query=request.query))
        )
        has_all_words = memory_rows.words_matcher(request.query)
        for batch in _chunks([run for run in is_ended_by_run if run not in matching_runs]):
            texts = await self._store.read(partial(_step_texts, runs=batch))
            matching_runs.update(
                text.run for text in texts if not text.is_copy and has_all_words(text.words)
            )
        return {run: is_ended for run, is_ended in is_ended_by_run.items() if run in matching_runs}

    async def _texts_of_runs(self, plan: ErasurePlan) -> RunTexts:
        """Return the texts of the erased runs, in the forms in which later prompts quote them."""
        if not plan.runs:
            return RunTexts()
        return await self._store.read(partial(_run_texts, runs=plan.runs))

    async def _quotes(
        self,
        plan: ErasurePlan,
        candidates_since: Callable[[Connection, int], list[str]] = journal_rows.ended_since,
    ) -> dict[str, list[tuple[str, str | int]]]:
        """Return the table and id of each row of other runs that quotes an erased text, by run.

        Empty if there are more than MAX_QUOTES texts to search for.
        """
        item_forms = _encoded_forms(plan)
        all_forms = _encoded_forms(plan, await self._texts_of_runs(plan))
        if not all_forms or len(all_forms) > MAX_QUOTES:
            return {}
        earliest = await self._store.read(partial(_earliest_moment, plan=plan))
        erased_runs = set(plan.runs)
        candidates = await self._store.read(
            lambda connection: candidates_since(connection, earliest)
        )
        quotes: dict[str, list[tuple[str, str | int]]] = {}
        for batch in _chunks([run for run in candidates if run not in erased_runs]):
            texts = await self._store.read(partial(_step_texts, runs=batch))
            for text in texts:
                forms = all_forms if _quotes_memory(text) else item_forms
                if any(searched_text in text.body for searched_text in forms):
                    quotes.setdefault(text.run, []).append((text.table, text.id))
        return quotes


def _quotes_memory(text: journal_rows.RunText) -> bool:
    """Tell whether a step may quote earlier runs: a prompt, or the result of a memory tool."""
    return text.kind == StepKind.PROMPT or (
        text.kind == StepKind.RESULT and b'"tool":"memory_' in text.body
    )


def _search_texts(plan: ErasurePlan, run_texts: RunTexts = RunTexts()) -> list[str]:  # noqa: B008  it holds nothing
    """Return the texts to search for, the longest first: items, lines and sentences."""
    whole_texts = [item.text for item in plan.items if len(item.text) >= MIN_QUOTE]
    texts = (*whole_texts, *run_texts.texts)
    text_parts = [
        text_part
        for text in texts
        for text_part in memory_rows.split_into_quotable(text, _MAX_PART)
        if len(text_part) >= MIN_PART
    ]
    lines = [line for line in run_texts.lines if len(line) >= MIN_QUOTE]
    return sorted(
        {*whole_texts, *text_parts, *lines},
        key=lambda searched_text: (-len(searched_text), searched_text),
    )


def _forms_in_memory(searched_texts: Sequence[str]) -> list[str]:
    """Return texts as they may stand in memory, the longest first: as they are, and as a tool that
    returns JSON writes them.
    """
    forms = {
        form
        for text in searched_texts
        for form in (text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1])
    }
    return sorted(forms, key=lambda form: (-len(form), form))


def _encoded_forms(plan: ErasurePlan, run_texts: RunTexts = RunTexts()) -> dict[bytes, bytes]:  # noqa: B008  it holds nothing
    """Return the replacements by the bytes to search for: each text as it stands in a column, in
    JSON, and in JSON within JSON.
    """
    marks_by_form: dict[bytes, bytes] = {}
    for searched_text in _search_texts(plan, run_texts):
        json_text = json.dumps(searched_text, ensure_ascii=False)[1:-1]
        for form in (
            searched_text,
            json_text,
            json.dumps(searched_text)[1:-1],
            json.dumps(json_text, ensure_ascii=False)[1:-1],
        ):
            marks_by_form[form.encode("utf-8", "replace")] = _MARK.encode()
    for message in run_texts.messages:
        for form in (json.dumps(message, ensure_ascii=False), json.dumps(message)):
            marks_by_form[f'"content":{form}'.encode("utf-8", "replace")] = (
                f'"content":"{_MARK}"'.encode()
            )
    return marks_by_form


def _make_replacer(forms: Mapping[bytes, bytes]) -> Callable[[bytes], bytes]:
    longest_first = sorted(forms.items(), key=lambda pair: -len(pair[0]))

    def replace_all(body: bytes) -> bytes:
        for form, mark in longest_first:
            body = body.replace(form, mark)
        return body

    return replace_all


def _chunks(runs: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(runs), _RUNS_AT_ONCE):
        yield runs[start : start + _RUNS_AT_ONCE]


# --- functions of a connection


def _complete_id(connection: Connection, prefix: str) -> str:
    try:
        return find_run(connection, prefix).id
    except NotFound:
        if memory_rows.runs(connection, run=prefix, routine=None, before=None):
            return prefix
        raise


def _routines(connection: Connection, runs: Sequence[str]) -> dict[str, str]:
    routines: dict[str, str] = {}
    for table, column in (("memory_run", "run_id"), ("run", "id")):
        for batch in _chunks(runs):
            marks = placeholders(batch)
            routines |= dict(
                connection.execute(
                    f"SELECT {column}, routine FROM {table} WHERE {column} IN ({marks})",
                    batch,
                )
            )
    return routines


def _delivery_notes(connection: Connection, runs: Sequence[str]) -> list[str]:
    deliveries = [
        delivery
        for batch in _chunks(runs)
        for delivery in journal_rows.deliveries_of(connection, batch)
    ]
    return [
        f"the report of run {run}, delivered to {target}: {receipt}".rstrip(": ")
        for run, target, receipt in deliveries
    ]


_SEGMENTS = "FROM memory_segment s JOIN memory_run r ON r.id = s.memory_run WHERE"


def _step_texts(connection: Connection, runs: Sequence[str]) -> list[journal_rows.RunText]:
    return list(journal_rows.read_texts(connection, runs))


def _run_texts(connection: Connection, runs: Sequence[str]) -> RunTexts:
    """Return the goals, reports and segments of runs; short ones only if no other run has them."""
    texts, lines, messages = list[str](), list[str](), list[str]()
    for batch in _chunks(runs):
        marks = placeholders(batch)
        for goal, report in connection.execute(
            f"SELECT goal, report FROM run WHERE id IN ({marks})",
            batch,
        ):
            messages += [text for text in (goal, report) if text and len(text) >= MIN_PART]
            if report:
                texts += {report, report_start := report[:REPORT_CHARACTERS]}
                lines += [report_start] if "\n" in report_start else []
        segments = f"SELECT s.who, s.text {_SEGMENTS} r.run_id IN ({marks})"
        for speaker, text in connection.execute(segments, batch):
            texts.append(text)
            if len(text) > NEIGHBOUR_CHARACTERS or "\n" in text:
                lines += {
                    quote_line(speaker, shorten(text, limit))
                    for limit in (NEIGHBOUR_CHARACTERS, HIT_CHARACTERS)
                }
    for speaker, text in _unique_short_texts(connection, set(runs)):
        if speaker:
            lines.append(quote_line(speaker, text))
        else:
            messages.append(text)
            # a prompt has the last report behind a colon, or between tags
            lines += [f":\n{text}", f">\n{text}\n"]
    return RunTexts(texts, lines, messages)


def _unique_short_texts(connection: Connection, runs: Collection[str]) -> list[tuple[str, str]]:
    """Return the short texts that only these runs have, as pairs of speaker and text; the speaker
    of a goal or report is "".
    """
    own_texts, other_texts = set[tuple[str, str]](), set[tuple[str, str]]()
    for query in (
        f"SELECT r.run_id, s.who, s.text {_SEGMENTS} length(s.text) < ?",
        "SELECT id, '', goal FROM run WHERE length(goal) < ?",
        "SELECT id, '', report FROM run WHERE length(report) < ?",
    ):
        for run, speaker, text in connection.execute(query, (MIN_PART,)):
            (own_texts if run in runs else other_texts).add((speaker, text))
    return sorted((speaker, text) for speaker, text in own_texts - other_texts if text)


def _earliest_moment(connection: Connection, plan: ErasurePlan) -> int:
    """Return when the oldest erased text was created, in microseconds: no run that ended before
    can quote it. 0 if unknown.
    """
    moments = [item.created for item in plan.items]
    for batch in _chunks(plan.runs):
        marks = placeholders(batch)
        (oldest,) = connection.execute(
            f"SELECT min(created) FROM run WHERE id IN ({marks})",
            batch,
        ).fetchone()
        # no run of the batch is in the journal: its texts may be of any age
        moments += [oldest] if oldest is not None else [0]
    return min(moments, default=0)


def _overwrite(
    connection: Connection,
    run: str,
    rows: Sequence[tuple[str, str | int]],
    change: Callable[[bytes], bytes],
) -> None:
    """Change the texts of these rows, given by table and id."""
    for text in list(journal_rows.read_texts(connection, [run])):
        if (text.table, text.id) in rows:
            journal_rows.rewrite(connection, text, change)


def _erase_run(connection: Connection, run: str, now: datetime) -> None:
    """Erase a run in the journal and in memory."""
    digest = None
    if journal_rows.runs_where(connection, run=run, routine=None, before=None):
        digest = journal_rows.erase_run(connection, run, now)
    memory_rows.drop_run(connection, run, digest, now)
