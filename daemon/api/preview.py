"""Previews: what the model of a routine's run would be told now, section by section."""

from __future__ import annotations

import json

from typing_extensions import TypedDict

from daemon.api.binding import RouteRow
from daemon.api.context import ApiContext
from daemon.api.routine_states import check_exists
from daemon.errors import Refused
from daemon.token_estimate import estimate_tokens


class PartView(TypedDict):
    """One part of what is sent with the first question."""

    name: str
    """The title of a section, the name of a function, or `task`."""
    tokens: int
    """About how many; the vendor's own count stands in the run."""
    text: str
    """What is sent, as it stands."""


class LeftOutView(TypedDict):
    """What the prompt does not show of earlier runs, since strangers may have written it."""

    memories: int
    """How many texts of memory are left out."""
    previous_report: bool
    """Whether the last report of the routine is left out."""
    reports: list[str]
    """The routines of `context_from` whose last report is left out."""
    tools: list[str]
    """The tools that a run which has read such words uses only after a person was asked."""


class PreviewView(TypedDict):
    """What is sent with the first question of a run."""

    routine: str
    """The name of the routine."""
    provider: str
    """The provider that would be asked first."""
    model: str
    """The model that would be asked first."""
    sections: list[PartView]
    """The sections of the system prompt, in order."""
    functions: list[PartView]
    """The tools that are offered, each as JSON."""
    task: PartView
    """The prompt of the routine."""
    tokens: int
    """The sum of all parts."""
    left_out: LeftOutView | None
    """null where nothing is left out."""


async def preview(api: ApiContext, *, name: str) -> PreviewView:
    """Return what the prompt of a run of a routine is now; nothing is run, gathered or asked."""
    await api.administration.take_up_changes()
    await check_exists(api, name)
    routine = api.engine.routines.get(name)
    if routine is None:
        raise Refused(api.engine.describe_faults(name))
    if not routine.run.asks_model:
        raise Refused(
            f"{name} asks no model, it is a script; agentctl rehearse {name} shows what it would do"
        )
    prompt_preview = await api.runs.preview(routine)
    sections = [_view_of_part(title, text) for title, text in prompt_preview.sections.items()]
    functions = [
        _view_of_part(str(function["name"]), json.dumps(function, ensure_ascii=False))
        for function in prompt_preview.functions
    ]
    task = _view_of_part("task", routine.run.prompt)
    return PreviewView(
        routine=name,
        provider=prompt_preview.provider,
        model=prompt_preview.model,
        sections=sections,
        functions=functions,
        task=task,
        tokens=sum(part["tokens"] for part in (*sections, *functions, task)),
        left_out=LeftOutView(
            memories=left_out.memories,
            previous_report=left_out.previous_report,
            reports=list(left_out.reports),
            tools=list(left_out.tools),
        )
        if (left_out := prompt_preview.left_out)
        else None,
    )


def _view_of_part(name: str, text: str) -> PartView:
    return PartView(name=name, tokens=estimate_tokens(text), text=text)


ROUTES: tuple[RouteRow, ...] = (("GET", "/v1/routines/{name}/preview", preview),)
