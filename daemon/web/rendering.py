"""The templates, which escape whatever they print, and their filters for times and numbers.

Texts of a run are not trusted: none ever becomes an image or a script, and no character of one
reverses or hides the text around it. Only reports have links, unless their runs have read what
strangers wrote.
"""

from __future__ import annotations

import json
import pwd
import re
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from daemon.cli.call import quote
from daemon.cli.inspect import event_in_words
from daemon.cli.render import (
    format_local_time,
    format_relative_time,
    humanize,
    local_now,
    parse_instant,
    sanitize,
)
from daemon.durations import duration_in_words
from daemon.web.attention import Attention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

MAX_LINE_LENGTH = 120  # of the arguments of a call
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
        "local_day": local_day,
        "relative_time": relative_time,
        "duration": duration_in_words,
        "number": format_number,
        "dollars": format_dollars,
        "kind": run_kind,
        "humanize": humanize,
        "report_html": report_html,
        "sentence": sentence_html,
        "with_code": text_with_code,
        "one_line_arguments": one_line_arguments,
        "clock": clock_time,
        "quote": lambda text: quote(str(text)),
        "zip": zip,
        "without_place": text_without_place,
        "event_in_words": event_in_words,
        "user_name": user_name,
        "short_id": lambda run_id: str(run_id)[-8:],
    }
    return templates


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    defaults = {
        "menu": (),
        "current_path": "",
        "title": "agentd",
        "attention": Attention(),
        "rendered_at": local_now(),
    }
    return environment().get_template(template).render({**defaults, **context})


def _sanitize_value(value: object) -> object:
    """Return a value that a template is about to print: a text without control characters and
    without marks that reverse the direction of text; anything else unchanged.
    """
    return sanitize(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def report_html(report: str, taint: str, *, top_level: int) -> Markup:
    """Return the Markdown of a report as HTML with headings from `top_level` on.

    No address of a tainted report works, as in a mail.
    """
    from daemon.delivery.markup import render_section
    from daemon.delivery.sanitize import neutralize, strip_controls

    markdown = neutralize(report) if taint else strip_controls(report)
    # sanitized again: an entity such as &#x202e; is a character only in the rendered text
    return Markup(sanitize(render_section(markdown, top_level)))  # noqa: S704  # raw HTML is text


def sentence_html(text: str) -> Markup:
    """Return a text of ours as a sentence in HTML, as `text_with_code` does, with a capital. Not
    for a text that may begin with a name.
    """
    if re.match(r"[a-z]+[ ,]", text):  # no file such as config.toml
        text = text[0].upper() + text[1:]
    return text_with_code(text)


def text_with_code(text: str) -> Markup:
    """Return a text of ours in HTML, with code in place of what stands between backticks."""
    parts = sanitize(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without a second one is text
        parts[-2:] = ["`".join(parts[-2:])]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def text_without_place(fault: Mapping[str, Any]) -> str:
    """Return a fault in words without its file and line."""
    place = f"{fault['file']}:{fault['line']}" if fault["line"] else fault["file"]
    text: str = fault["text"]
    return text.removeprefix(f"{place}: ")


def one_line_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call on one line: a single text as it is (`df -h`), several as
    `name=JSON …`; empty if they do not fit.
    """
    values = list(arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        line = values[0]
    else:
        line = " ".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()
        )
    return line if len(line) <= MAX_LINE_LENGTH and "\n" not in line else ""


def run_kind(run: Mapping[str, Any]) -> str:
    """Return the status of a run, or `silent` if it succeeded with nothing to report."""
    return "silent" if run["silent"] and run["status"] == "succeeded" else str(run["status"])


def local_time(iso: str | None) -> str:
    return format_local_time(parse_instant(iso), local_now()) if iso else ""


def local_day(iso: str) -> str:
    """Return the date of an instant in the zone of this process, which a page keeps current."""
    return parse_instant(iso).date().isoformat()


def relative_time(iso: str | None) -> str:
    return format_relative_time(parse_instant(iso), local_now()) if iso else ""


def clock_time(at: datetime) -> str:
    return f"{at:%H:%M}"


def user_name(user: str) -> str:
    """Return who answered, `uid 1000`, by the name that this machine knows for it, if it does."""
    match = re.fullmatch(r"uid (\d{1,9})", user)
    try:
        return pwd.getpwuid(int(match[1])).pw_name if match else user
    except KeyError:
        return user


def format_number(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"


def format_dollars(amount: float | None) -> str:
    """Return an amount with two or four decimal places; empty if it is unknown."""
    if amount is None:
        return ""
    if amount >= 1 or not amount:
        return f"${amount:,.2f}"
    digits = f"{amount:.4f}".removesuffix("00")
    return f"${digits}"
