"""`report_items`: the agent says what it found, and is told what of that is new.

Of routines with `[dedupe]` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext, digest_of
from daemon.tools.registry import FunctionRegistry
from daemon.tools.reported_items import REPORT_ITEMS, key_of, reported

if TYPE_CHECKING:
    from daemon.store.runs import RunRepository
    from daemon.store.seen_items import SeenItemRepository

MOST = 500  # items of one call: more is a list that nobody has looked through


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
    """Register the tool; which items are new is read from the journal."""

    async def report_items(
        context: ToolContext, items: Annotated[list[ReportItem], Field(max_length=MOST)]
    ) -> Json:
        """Report what you found; this is the only way into the report, which is made of the new
        items alone.

        Report everything that fits the task, new or not: what was reported by earlier runs is
        dropped by code, and you are told how many were new. Nothing that you write besides is
        delivered. If you found nothing, call it with an empty list. Then end the run.

        Args:
            items: What you found, each on its own.
        """
        by = context.dedupe
        if not by:
            raise ToolFailed("this routine has no [dedupe] in its file: write a report instead")
        keys = [key_of(dict(item), by) for item in items]
        if nameless := [str(place + 1) for place, key in enumerate(keys) if not key]:
            one = len(nameless) == 1
            raise ToolFailed(
                f"item{'' if one else 's'} {', '.join(nameless)} {'has' if one else 'have'} no "
                f"{by}, by which items are"
                " told apart here. Nothing was reported: send all of them again, each with its "
                f"{by}."
            )
        before = reported(await runs.get_steps(context.run), by, before=context.call)
        known = {each.digest for each in before.sightings} if before else set()
        digests = [digest_of(key) for key in keys]
        known |= await seen_items.find_known(context.routine.rpartition("/")[2], digests)
        new_at = []
        for place, digest in enumerate(digests):
            if digest not in known:
                known.add(digest)
                new_at.append(place)
        return {
            "items": len(items),
            "new": len(new_at),
            "seen": len(items) - len(new_at),
            "new_at": new_at,
        }

    registry.register(REPORT_ITEMS, None, report_items, read_only=True)
