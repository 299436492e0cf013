"""Change the text of policy.toml, and leave all that a person wrote there as it stands.

The new text is read again before it is returned: it must say what the old one says but for the
change. Where it does not, because the file is written in a way that is not foreseen here, Refused
names the lines that a person has to write.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import tomli_w

from daemon.errors import Refused

_MAX_LINE = 100  # characters; a longer list has a line for each item
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*\[")
_TRIAL_KEY = re.compile(r"\s*(mode|observe_until)\s*=")


def add_rules(text: str, tables: Sequence[dict[str, Any]], comments: Sequence[str] = ()) -> str:
    """Return the text with these rules behind all others, each below its comment."""
    if not tables:
        return text
    addition = format_rules(tables, comments)
    expected_data = _read(text)
    expected_data["rule"] = [*expected_data.get("rule", []), *tables]
    return _check_edit(f"{_with_end_of_line(text)}\n{addition}", expected_data, addition)


def format_rules(tables: Sequence[dict[str, Any]], comments: Sequence[str] = ()) -> str:
    """Return rules as TOML, each below its comment."""
    blocks = []
    for index, table in enumerate(tables):
        comment = comments[index] if index < len(comments) else ""
        lines = [f"# {line}" for line in comment.splitlines()]
        lines += ["[[rule]]", *(f"{key} = {_format(key, value)}" for key, value in table.items())]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def set_trial(text: str, routine: str, until: datetime) -> str:
    """Return the text with `mode = "observe"` in the section of a routine, until a moment."""
    expected_data = _read(text)
    section = expected_data.setdefault("routine", {}).setdefault(routine, {})
    is_new = not section
    section |= {"mode": "observe", "observe_until": until}
    lines = ['mode = "observe"\n', f"observe_until = {until.isoformat().replace('+00:00', 'Z')}\n"]
    header = f"[routine.{_format_key(routine)}]\n"
    file_lines = text.splitlines(keepends=True)
    start = _find_header(file_lines, routine)
    if start is None:
        if not is_new:
            raise _refusal("".join([header, *lines]))
        new = f"{_with_end_of_line(text)}\n{header}{''.join(lines)}"
    else:
        head = [*file_lines[:start], _with_end_of_line(file_lines[start])]
        section_lines = _without_trial_keys(_section(file_lines, start))
        following_lines = file_lines[start + 1 + len(_section(file_lines, start)) :]
        new = "".join([*head, *lines, *section_lines, *following_lines])
    return _check_edit(new, expected_data, "".join([header, *lines]))


def remove_trial(text: str, routine: str) -> str:
    """Return the text without the trial of a routine, and without its section if that was all."""
    expected_data = _read(text)
    section = expected_data.get("routine", {}).get(routine, {})
    if "mode" not in section and "observe_until" not in section:
        return text
    for key in ("mode", "observe_until"):
        section.pop(key, None)
    file_lines = text.splitlines(keepends=True)
    start = _find_header(file_lines, routine)
    lines = f"[routine.{_format_key(routine)}] without mode and observe_until"
    if start is None:
        raise _refusal(lines)
    section_lines = _section(file_lines, start)
    following_lines = file_lines[start + 1 + len(section_lines) :]
    remaining = _without_trial_keys(section_lines)
    head = file_lines[: start + 1]
    if not section and not "".join(remaining).strip():
        del expected_data["routine"][routine]
        if not expected_data["routine"]:
            del expected_data["routine"]
        head, remaining = file_lines[:start], []
        if head and not head[-1].strip() and not following_lines:
            head = head[:-1]
    return _check_edit("".join([*head, *remaining, *following_lines]), expected_data, lines)


def _read(text: str) -> dict[str, Any]:
    return copy.deepcopy(tomllib.loads(text.removeprefix("\ufeff")))


def _check_edit(new_text: str, expected_data: dict[str, Any], change: str) -> str:
    """Return the new text if it means `expected_data`. Raises Refused, with the `change` to make by
    hand, if it does not.
    """
    try:
        is_expected = _read(new_text) == expected_data
    except tomllib.TOMLDecodeError:
        is_expected = False
    if not is_expected:
        raise _refusal(change)
    return new_text


def _refusal(lines: str) -> Refused:
    return Refused(
        "policy.toml is written in a way that only a person can change; nothing was written. It "
        f"should say:\n{lines}"
    )


def _with_end_of_line(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _find_header(lines: Sequence[str], routine: str) -> int | None:
    """Return the index of the line `[routine.NAME]`; None if there is none."""
    names = {routine, f'"{routine}"', f"'{routine}'"}
    pattern = re.compile(r"\s*\[\s*routine\s*\.\s*([^\]\s]+)\s*\]\s*(#.*)?\s*")
    for index, line in enumerate(lines):
        if (match := pattern.fullmatch(line)) and match[1] in names:
            return index
    return None


def _section(lines: Sequence[str], start: int) -> list[str]:
    """Return the lines below a header, up to the next one."""
    end = next(
        (index for index in range(start + 1, len(lines)) if _HEADER.match(lines[index])),
        len(lines),
    )
    return list(lines[start + 1 : end])


def _without_trial_keys(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not _TRIAL_KEY.match(line)]


def _format_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _format_value(name)


def _format(key: str, value: Any) -> str:
    text = _format_value(value)
    if isinstance(value, list) and len(key) + len(text) + 3 > _MAX_LINE:
        items = "".join(f"    {_format_value(item)},\n" for item in value)
        return f"[\n{items}]"
    return text


def _format_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    text = tomli_w.dumps({"x": value}, multiline_strings=False).removeprefix("x = ").rstrip("\n")
    # what a terminal would not show, or would show elsewhere, is shown as the escape of TOML
    return "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in text)
