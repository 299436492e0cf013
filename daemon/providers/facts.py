"""Format gathered facts: as Markdown for a person, and as labelled blocks of a prompt, which can be
parsed again.

A block has a random boundary, new for every run, so that text inside a fact can neither close its
block nor open another one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from daemon.models import Fact

_BLOCK = re.compile(
    r'^<fact name="(?P<name>[^"]*)" tool="(?P<tool>[^"]*)" ok="(?P<ok>yes|no)" '
    r'boundary="(?P<boundary>[0-9a-f]+)">\n'
    r"(?P<text>.*?)\n(?:<changed>\n(?P<changes>.*?)\n</changed>\n)?"
    r"</fact (?P=boundary)>$",
    re.MULTILINE | re.DOTALL,
)


def new_boundary() -> str:
    """Return 128 random bits as hex."""
    return secrets.token_hex(16)


def wrap(facts: Iterable[Fact], boundary: str) -> str:
    """Return the facts as labelled blocks for a prompt."""
    return "\n\n".join(_block(fact, boundary) for fact in facts)


def _block(fact: Fact, boundary: str) -> str:
    # A line of the text that looks like our own tags would confuse `unwrap`, and perhaps a model.
    text = re.sub(r"^(</?(?:fact|changed)\b)", r" \1", fact.text.strip("\n"), flags=re.MULTILINE)
    ok = "yes" if fact.ok else "no"
    lines = [
        (
            f'<fact name="{_label(fact.name)}" tool="{_label(fact.tool)}" ok="{ok}" '
            f'boundary="{boundary}">'
        ),
        text,
    ]
    if fact.changes:
        lines += [
            "<changed>",
            *(f"- {' '.join(change.split())}" for change in fact.changes),
            "</changed>",
        ]
    return "\n".join([*lines, f"</fact {boundary}>"])


def _label(text: str) -> str:
    return re.sub(r'["<>\n\r]', "_", text)


def find_boundary(prompt: str) -> str | None:
    """Return the boundary of the facts in a prompt; None if it has no facts."""
    match = _BLOCK.search(prompt)
    return match["boundary"] if match else None


def unwrap(prompt: str) -> list[Fact]:
    """Return the facts that `wrap` put into a prompt, without their values: for journals of older
    versions, which have the prompt only.
    """
    return [
        Fact(
            name=match["name"],
            tool=match["tool"],
            ok=match["ok"] == "yes",
            text=match["text"],
            changes=tuple(
                line.removeprefix("- ") for line in (match["changes"] or "").splitlines()
            ),
        )
        for match in _BLOCK.finditer(prompt)
    ]


def lay_out(value: Any, *, depth: int = 3) -> str:
    """Return a JSON value as Markdown for a person.

    `depth` is the level of the first heading. A dict becomes bullets and headings, a list of dicts
    a table, a string stays as it is.
    """
    if isinstance(value, dict):
        return _lay_out_dict(value, depth) or "nothing"
    if isinstance(value, list | tuple):
        return _lay_out_list(value)
    return _inline_text(value)


def _lay_out_dict(value: dict[str, Any], depth: int) -> str:
    blocks: list[str] = []
    bullets: list[str] = []
    for key, item in value.items():
        if not blocks and not _is_nested(item):
            bullets.append(f"- **{humanize_key(key)}**: {_inline_text(item)}")
        else:  # below a heading, a bullet would look like a part of that section
            blocks.append(
                f"{'#' * min(depth, 6)} {humanize_key(key)}\n\n{lay_out(item, depth=depth + 1)}"
            )
    return "\n\n".join(["\n".join(bullets), *blocks] if bullets else blocks)


def _is_nested(item: Any) -> bool:
    if isinstance(item, list | tuple):
        return bool(item)
    return isinstance(item, dict) or (isinstance(item, str) and "\n" in item)


def _lay_out_list(items: Sequence[Any]) -> str:
    if not items:
        return "none"
    if all(isinstance(item, dict) and item for item in items):
        columns = list(dict.fromkeys(key for item in items for key in item))
        titles = " | ".join(_format_cell(humanize_key(column)) for column in columns)
        head = f"| {titles} |\n|{' --- |' * len(columns)}"
        rows = []
        for item in items:
            cells = [_format_cell(item.get(column, "")) for column in columns]
            rows.append(f"| {' | '.join(cells)} |")
        return "\n".join([head, *rows])
    texts = [_inline_text(item) for item in items]
    # `git log` parts its lines by empty ones
    return "\n".join(f"- {text}" for text in texts if text.strip()) or "none"


def _format_cell(item: Any) -> str:
    """Return a value in one line, without what would end the cell of a table."""
    return " ".join(_inline_text(item).split()).replace("|", "\\|")


def _inline_text(item: Any) -> str:
    if item is None:
        return "unknown"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, list | tuple):
        return ", ".join(_inline_text(element) for element in item) or "none"
    if isinstance(item, dict):
        return (
            ", ".join(
                f"{humanize_key(key)}: {_inline_text(element)}" for key, element in item.items()
            )
            or "none"
        )
    return str(item)


def humanize_key(key: str) -> str:
    """Return `boot_time` as `Boot time`; a key that is not a plain lower-case word (a path, a name)
    stays as it is.
    """
    words = str(key).replace("_", " ")
    return words[:1].upper() + words[1:] if re.fullmatch(r"[a-z][a-z0-9 ]*", words) else str(key)
