"""The templates, which escape whatever they print, and their filters for times and numbers.

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
from daemon.cli.render import (
    format_duration,
    format_local_time,
    format_relative_time,
    humanize,
    local_now,
    parse_instant,
    sanitize,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """Return the environment of the templates; a name that is not defined raises an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_sanitize_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "json": partial(json.dumps, ensure_ascii=False),
        "local_time": local_time,
        "relative_time": relative_time,
        "duration": format_duration,
        "number": format_number,
        "dollars": format_dollars,
        "kind": run_kind,
        "humanize": humanize,
        "clock": clock_time,
        "quote": lambda text: quote(str(text)),
        "zip": zip,
        "short_id": lambda run_id: str(run_id)[-8:],
    }
    return templates


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    defaults = {"menu": (), "current_path": "", "title": "agentd"}
    return environment().get_template(template).render({**defaults, **context})


def _sanitize_value(value: object) -> object:
    """Return a value that a template prints without control characters and what turns text."""
    return sanitize(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def run_kind(run: Mapping[str, Any]) -> str:
    """Return the status of a run, or `silent` if it succeeded with nothing to report."""
    return "silent" if run["silent"] and run["status"] == "succeeded" else str(run["status"])


def local_time(iso: str | None) -> str:
    return format_local_time(parse_instant(iso), local_now()) if iso else ""


def relative_time(iso: str | None) -> str:
    return format_relative_time(parse_instant(iso), local_now()) if iso else ""


def clock_time(at: datetime) -> str:
    return f"{at:%H:%M}"


def format_number(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"


def format_dollars(amount: float | None) -> str:
    """Return an amount with two or four decimal places; empty if it is unknown."""
    if amount is None:
        return ""
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    return f"${f'{amount:.4f}'.removesuffix('00')}"
