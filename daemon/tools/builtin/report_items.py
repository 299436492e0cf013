"""`report_items`: the agent says what it found, and is told what of that is new.

Only routines with `[dedupe]` are offered it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext, digest_of
from daemon.tools.registry import FunctionRegistry
from daemon.tools.reported_items import REPORT_ITEMS, collect_items, item_key

if TYPE_CHECKING:
    from daemon.store.runs import RunRepository
    from daemon.store.seen_items import SeenItemRepository

MAX_ITEMS = 500  # of one call: a longer list is one that nobody has looked through


class ReportItem(TypedDict):
    """One thing that was found."""

    title: Annotated[str, Field(description="What it is, in a line", min_length=1)]
    url: NotRequired[
        Annotated[str, Field(description="Its own address, not that of the list it stands in")]
    ]
    id: NotRequired[
        Annotated[str, Field(description="What its source calls it, always in the same words")]
    ]
    text: NotRequired[Annotated[str, Field(description="A sentence or two on why it matters")]]
    date: NotRequired[Annotated[str, Field(description="When it is from, like 2026-11-20")]]


def register(
    registry: FunctionRegistry, runs: RunRepository, seen_items: SeenItemRepository
) -> None:
    """Register the tool."""

    async def report_items(
        context: ToolContext, items: Annotated[list[ReportItem], Field(max_length=MAX_ITEMS)]
    ) -> Json:
        """Report what you found; this is the only way into the report, which is made of the new
        items alone.

        Report everything that fits the task, new or not: what was reported by earlier runs is
        dropped by code, and you are told how many were new. Nothing that you write besides is
        delivered. If you found nothing, call it with an empty list. Then end the run.

        Args:
            items: What you found, each on its own.
        """
        key_field = context.dedupe
        if not key_field:
            raise ToolFailed("this routine has no [dedupe] in its file: write a report instead")
        keys = [item_key(dict(item), key_field) for item in items]
        items_without_key = [str(number) for number, key in enumerate(keys, 1) if not key]
        if items_without_key:
            verb = "item {} has" if len(items_without_key) == 1 else "items {} have"
            raise ToolFailed(
                f"{verb.format(', '.join(items_without_key))} no {key_field}, by which items are "
                "told apart here. Nothing was reported: send all of them again, each with its "
                f"{key_field}."
            )
        earlier_steps = await runs.get_steps(context.run)
        earlier_items = collect_items(earlier_steps, key_field, before=context.call)
        reported_digests = (
            {item.digest for item in earlier_items.sightings} if earlier_items else set()
        )
        digests = [digest_of(key) for key in keys]
        reported_digests |= await seen_items.find_known(context.routine.rpartition("/")[2], digests)
        new_indexes = []
        for index, digest in enumerate(digests):
            if digest not in reported_digests:
                reported_digests.add(digest)
                new_indexes.append(index)
        return {
            "items": len(items),
            "new": len(new_indexes),
            "seen": len(items) - len(new_indexes),
            "new_at": new_indexes,
        }

    registry.register(REPORT_ITEMS, None, report_items, read_only=True)
