"""How a page is written: templates that escape whatever they print, and the words for times,
numbers and sums.

Everything that comes from a run is hostile until proved otherwise: no text of a run ever becomes a
link, an image or a script, and no character of it turns or hides the text around it.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from daemon.cli.call import quote
from daemon.cli.render import format_duration, format_local_time, format_relative_time, sanitize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """Return the templates, which escape whatever they print and stumble over a name that is not
    there.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "json": partial(json.dumps, ensure_ascii=False),
        "when": when,
        "ago": ago,
        "span": format_duration,
        "number": number,
        "dollars": dollars,
        "kind": kind_of,
        "words": words,
        "clock": clock,
        "seg": lambda text: quote(str(text)),
        "zip": zip,
        "short": lambda run: str(run)[-8:],
    }
    return made


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    return (
        environment()
        .get_template(template)
        .render({"views": (), "here": "", "title": "agentd", **context})
    )


def _shown(value: object) -> object:
    """Return what a template prints as a browser may show it: no control characters, nothing that
    turns text.
    """
    return sanitize(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def kind_of(found: Mapping[str, Any]) -> str:
    """Return a run's status, told apart where it ended well with nothing to say."""
    return "silent" if found["silent"] and found["status"] == "succeeded" else str(found["status"])


def words(text: str) -> str:
    return text.replace("_", " ")


def when(iso: str | None) -> str:
    return (
        format_local_time(datetime.fromisoformat(iso).astimezone(), datetime.now().astimezone())
        if iso
        else ""
    )


def ago(iso: str | None) -> str:
    return (
        format_relative_time(datetime.fromisoformat(iso).astimezone(), datetime.now().astimezone())
        if iso
        else ""
    )


def clock(at: datetime) -> str:
    return f"{at:%H:%M}"


def number(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"


def dollars(amount: float | None) -> str:
    """Return an amount with as many places as it needs to be more than nothing; empty where nobody
    knows it.
    """
    if amount is None:
        return ""
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    cents = f"{amount:.4f}"
    return f"${cents.removesuffix('00')}"
