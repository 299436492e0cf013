"""What a routine's run would be told, section by section, before anything is asked: the route of
`preview`.
"""

from __future__ import annotations

import json

from typing_extensions import TypedDict

from daemon.api.context import ApiContext
from daemon.api.schedule import check_known
from daemon.errors import Refused
from daemon.tokens import estimate


class PartView(TypedDict):
    """One part of what is sent with the first question."""

    name: str
    tokens: int
    """About how many; the vendor's own count stands in the run."""
    text: str


class PreviewView(TypedDict):
    """What is sent with the first question of a run."""

    routine: str
    provider: str
    model: str
    sections: list[PartView]
    functions: list[PartView]
    task: PartView
    tokens: int


async def preview(api: ApiContext, *, name: str) -> PreviewView:
    """Show what a run of a routine would be told now; nothing is run, gathered or asked."""
    check_known(api, name)
    routine = api.engine.routines.get(name)
    if routine is None or api.preview is None:
        fault = api.engine.faults.get(name)
        raise Refused(f"{name} cannot be used: {fault.faults[0] if fault else 'nothing runs here'}")
    told = await api.preview(routine)
    sections = [_part(title, text) for title, text in told.sections.items()]
    functions = [
        _part(str(each["name"]), json.dumps(each, ensure_ascii=False)) for each in told.functions
    ]
    task = _part("task", routine.run.prompt)
    return PreviewView(
        routine=name,
        provider=told.provider,
        model=told.model,
        sections=sections,
        functions=functions,
        task=task,
        tokens=sum(part["tokens"] for part in (*sections, *functions, task)),
    )


def _part(name: str, text: str) -> PartView:
    return PartView(name=name, tokens=estimate(text), text=text)


ROUTES = (("GET", "/v1/routines/{name}/preview", preview),)
