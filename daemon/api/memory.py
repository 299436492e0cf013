"""Memory: search, show, pin, forget, export and import."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from daemon.api.binding import Limit, Offset, RouteRow, WholeNumber
from daemon.api.context import ApiContext
from daemon.api.problems import InvalidRequest
from daemon.api.schemas import Page, iso
from daemon.definitions.values import parse_duration
from daemon.errors import NotFound
from daemon.memory import index, transfer
from daemon.memory.erasure.erasure import ErasurePlan, ErasureRequest
from daemon.memory.rows import anchor_of
from daemon.models import Anchor, Json, MemoryChunk
from daemon.store.rows import from_microseconds

if TYPE_CHECKING:
    from daemon.memory.memory import MemoryItem

Window = Annotated[int, Field(ge=0, le=20), WholeNumber]
Line = Annotated[int, Field(ge=1, le=1_000_000_000), WholeNumber]


class AnchorView(TypedDict):
    """The exact place of a remembered text."""

    run: str
    """The id of the run; empty for an item that a person stored."""
    iteration: int
    """The iteration of the run in which it was said."""
    segment: int
    """Which of the texts of the iteration it is; of a memory item, its number."""
    type: str
    """user_message, reasoning, tool_call, tool_result, response, summary or knowledge"""
    at: str
    """When it was said or stored."""


class TextView(TypedDict):
    """A remembered text."""

    text: str
    """The text itself."""
    key: str | None
    """The key of a memory item; null for a segment of a run."""
    who: str
    """`person`, `agent` or the name of a tool."""
    routine: str
    """The routine whose run it comes from; empty if it comes from none."""
    tainted: bool
    """Whether strangers' words may stand in it."""
    anchor: AnchorView
    """Its place, from which the context around it can be read."""


class HitView(TextView):
    """A text that was found."""

    relevance: float
    """How well it fits: 1.0 is the best hit of this question; not comparable between questions."""
    why: dict[str, float]
    """What each reason added to its score."""
    before: list[TextView]
    """The texts before it in its run, the nearest last."""
    after: list[TextView]
    """The texts behind it in its run, the nearest first."""


class ItemView(TypedDict):
    """A text kept under a key."""

    key: str
    """The key that it is stored under."""
    text: str
    """The text itself."""
    category: str
    """The category that it was stored with."""
    run: str | None
    """The id of the run that stored it; null if a person did."""
    tainted: bool
    """Whether strangers' words may stand in it."""
    pinned: bool
    """Whether retention leaves it alone."""
    created: str
    """When it was stored first."""
    updated: str
    """When it was changed last."""


class RunName(TypedDict):
    """A run that is to be forgotten."""

    id: str
    """The id of the run."""
    routine: str
    """Its routine."""


class ErasureView(TypedDict):
    """What would be forgotten, or was."""

    done: bool
    """False for a plan that waits for its `confirm`, true once it was carried out."""
    confirm: str
    """Send it back to have exactly this forgotten."""
    items: list[ItemView]
    """The memory items that would be forgotten, or were."""
    runs: list[RunName]
    """The runs that would be forgotten, or were."""
    quotes: dict[str, int]
    """In how many places other runs quote it, by run."""
    out_of_reach: list[str]
    """What the erasure does not reach, such as reports that were sent, in words."""


class ExportView(TypedDict):
    """A part of an export: lines of JSON."""

    lines: list[dict[str, Any]]
    """The lines of this part, in the order in which an import takes them."""
    next: str | None
    """The `cursor` of the following part; null on the last one."""


class ImportView(TypedDict):
    """What came of an import."""

    items: int
    """How many memory items the file has."""
    runs: int
    """How many archived runs the file has."""
    known: int
    """How many lines changed nothing, as they were here already or had changed here since."""


class MemoryActionView(TypedDict):
    """What was done, in a word."""

    detail: str
    """One sentence for a person."""


class IndexCheckView(TypedDict):
    """Whether the index is as it should be."""

    ok: bool
    """Whether there is no fault."""
    faults: list[str]
    """What is wrong, in words, before it was made anew."""


async def search_memory(
    api: ApiContext, *, query: str, also: str | None = None, limit: Limit = 10, window: Window = 0
) -> Page[HitView]:
    """Search what earlier runs kept and said, best first; with `window`, that many texts before and
    after each; `why` has the parts of its score.
    """
    memory = api.memory
    queries = [query, *filter(None, (also or "").split("\n"))]
    hits = []
    for hit in await memory.search(queries, limit):
        anchor = anchor_of(hit.text)
        around = await memory.expand(anchor, window) if window else None
        reasons = {reason: round(part, 4) for reason, part in hit.reasons.items() if part}
        text = hit.text
        view = _view_of_text(
            text.text, text.key, text.speaker, text.source, bool(text.tainted), anchor
        )
        hits.append(
            HitView(
                **view,
                relevance=round(hit.relevance, 4),
                why=reasons,
                before=[_view_of_chunk(chunk) for chunk in around.before] if around else [],
                after=[_view_of_chunk(chunk) for chunk in around.after] if around else [],
            )
        )
    return Page(items=hits, next=None)


async def list_items(
    api: ApiContext, *, category: str | None = None, limit: Limit = 100, cursor: Offset = 0
) -> Page[ItemView]:
    """List the memory items, changed last first."""
    items = await api.memory.items(category, cursor + limit + 1)
    next_cursor = str(cursor + limit) if len(items) > cursor + limit else None
    return Page(
        items=[_view_of_item(item) for item in items[cursor : cursor + limit]], next=next_cursor
    )


async def show_memory_stats(api: ApiContext) -> Json:
    """Return how much is remembered, and how far the index is."""
    return await api.memory.stats()


async def pin_item(api: ApiContext, *, key: str) -> MemoryActionView:
    """Pin a memory item: retention leaves it alone."""
    await api.memory.pin(key)
    return MemoryActionView(detail=f"{key} is pinned")


async def unpin_item(api: ApiContext, *, key: str) -> MemoryActionView:
    """Unpin a memory item: retention may delete it."""
    await api.memory.pin(key, False)
    return MemoryActionView(detail=f"{key} is not pinned any more")


async def reindex_memory(api: ApiContext) -> MemoryActionView:
    """Rebuild the index in the background; nothing but the index is changed."""
    memory = api.memory
    await memory.memory_store.renew()
    stats = await memory.stats()
    if stats["index"]["whole"]:
        return MemoryActionView(detail="the index was made anew")
    return MemoryActionView(
        detail="the index is being made anew; `agentctl memory stats` tells how far it is"
    )


async def check_memory(api: ApiContext) -> IndexCheckView:
    """Check the whole index against what it was made of; a damaged one is made anew."""
    store = api.memory.memory_store
    faults = await store.examine() or await store.write(index.find_faults)
    return IndexCheckView(ok=not faults, faults=faults)


async def export_memory(api: ApiContext, *, cursor: str | None = None) -> ExportView:
    """Return a part of all that is remembered, as lines of JSON."""
    try:
        part = await api.memory.memory_store.read(
            lambda connection: transfer.export(connection, cursor)
        )
    except ValueError:
        raise InvalidRequest(f"'cursor': {cursor!r} is none of ours") from None
    return ExportView(lines=part.lines, next=part.next_cursor)


async def import_memory(api: ApiContext, *, lines: str, first: Line = 1) -> ImportView:
    """Import lines of an export, all of them or none; what was changed later here stays."""
    memory, rows = api.memory, transfer.parse_lines(lines.split("\n"), first)
    result = await memory.memory_store.write(
        lambda connection: transfer.import_rows(connection, rows)
    )
    memory.notify_watchers()
    return ImportView(items=result.items, runs=result.runs, known=result.unchanged)


async def forget_memory(
    api: ApiContext,
    *,
    key: str | None = None,
    query: str | None = None,
    run: str | None = None,
    routine: str | None = None,
    before: str | None = None,
    confirm: str | None = None,
) -> ErasureView:
    """Return what would be forgotten; with its `confirm`, forget exactly that: from memory,
    journal, index and file.
    """
    conditions = {"key": key, "query": query, "run": run, "routine": routine, "before": before}
    for name, value in conditions.items():
        # left out of the request it would have more forgotten than was meant
        if value is not None and not value.strip():
            raise InvalidRequest(
                f"{name!r}: expected text (found {value[:80]!r})",
                HTTPStatus.UNPROCESSABLE_ENTITY,
            )
    end = _parse_end(before, api) if before is not None else None
    request = ErasureRequest(key=key, query=query, run=run, routine=routine, before=end)
    if confirm is not None:
        plan = await api.erasure.erase(request, confirm)
    else:
        plan = await api.erasure.plan(request)
    if plan.is_empty and not plan.active:
        raise NotFound("nothing of that is remembered")
    return _view_of_plan(plan, done=confirm is not None)


def _parse_end(text: str, api: ApiContext) -> datetime:
    """Return the moment that `before` names: `90d` ago, or a day or time in the daemon's zone."""
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        try:
            ago: timedelta = parse_duration(text)
        except ValueError:
            raise InvalidRequest(
                f"'before': expected 2026-01-31, or 90d for that long ago (found {text!r})"
            ) from None
        return api.clock.now() - ago
    return end if end.tzinfo else end.replace(tzinfo=api.settings.zone)


def _view_of_text(
    text: str, key: str | None, speaker: str, routine: str, tainted: bool, anchor: Anchor
) -> TextView:
    anchor_view = AnchorView(
        run=anchor.run_id,
        iteration=anchor.iteration,
        segment=anchor.segment,
        type=anchor.type.value,
        at=iso(anchor.timestamp),
    )
    return TextView(
        text=text, key=key, who=speaker, routine=routine, tainted=tainted, anchor=anchor_view
    )


def _view_of_chunk(chunk: MemoryChunk) -> TextView:
    return _view_of_text(
        chunk.content, chunk.key, chunk.speaker, chunk.source, chunk.tainted, chunk.anchor
    )


def _view_of_item(item: MemoryItem) -> ItemView:
    return ItemView(
        key=item.key,
        text=item.content,
        category=item.category,
        run=item.run,
        tainted=item.tainted,
        pinned=item.pinned,
        created=iso(item.created),
        updated=iso(item.updated),
    )


def _view_of_plan(plan: ErasurePlan, *, done: bool) -> ErasureView:
    items = [
        ItemView(
            key=item.key,
            text=item.text,
            category=item.category,
            run=item.run_id,
            tainted=bool(item.tainted),
            pinned=bool(item.pinned),
            created=iso(from_microseconds(item.created)),
            updated=iso(from_microseconds(item.updated)),
        )
        for item in plan.items
    ]
    return ErasureView(
        done=done,
        confirm=plan.token,
        items=items,
        runs=[RunName(id=run, routine=plan.routines.get(run, "")) for run in plan.runs],
        quotes=dict(plan.quotes),
        out_of_reach=list(plan.unreachable),
    )


ROUTES: tuple[RouteRow, ...] = (
    ("GET", "/v1/memory/search", search_memory),
    ("GET", "/v1/memory/items", list_items),
    ("GET", "/v1/memory/stats", show_memory_stats),
    ("GET", "/v1/memory/check", check_memory),
    ("GET", "/v1/memory/export", export_memory),
    ("POST", "/v1/memory/import", import_memory),
    ("POST", "/v1/memory/forget", forget_memory),
    ("POST", "/v1/memory/pin", pin_item),
    ("POST", "/v1/memory/unpin", unpin_item),
    ("POST", "/v1/memory/reindex", reindex_memory),
)
