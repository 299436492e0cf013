"""Faults of files that cannot be read at all, or are not TOML."""

from __future__ import annotations

import re
from pathlib import Path

from daemon.definitions.words import display, may_be_secret, shorten
from daemon.errors import Fault


def file_fault(path: Path, problem: str, hint: str = "") -> Fault:
    """Return a fault of a whole file."""
    return Fault(file=display(path), key="", found="", problem=problem, hint=hint)


def unreadable_file_fault(path: Path, error: OSError) -> Fault:
    """Return the fault of a file that could not be opened or read."""
    match error:
        case FileNotFoundError():
            return file_fault(path, "no such file", "`agentd init` writes the shipped ones")
        case IsADirectoryError():
            return file_fault(path, "is a folder, not a file", "name the TOML file inside it")
        case PermissionError():
            return file_fault(
                path, "may not be read by this user", f"chown or chmod it; as is: {error.strerror}"
            )
        case _:
            return file_fault(path, f"cannot be read: {error.strerror or error}")


# A part of tomllib's message, and the hint for the person who made that mistake.
_SYNTAX_HINTS = (
    ("Cannot overwrite a value", "this key stands in the table twice; keep one"),
    (
        "Cannot declare",
        "put its keys together (lists of tables take [[…]])",
    ),
    ("Cannot mutate immutable", "this table was closed by {…} above; write all its keys there"),
    ("Cannot redefine", "this name is already a value above"),
    ("Invalid value", 'text needs quotes: key = "text"; true, false and numbers go without'),
    ("Expected '=' after a key", "a line is key = value, [table] or a # comment"),
    ("Invalid initial character for a key part", "a line is key = value, [table] or a # comment"),
    ("Unescaped '\\' in a string", "double the backslash, or use single quotes: 'C:\\path'"),
    ("Illegal character '\\n'", 'close the quotes in this line, or use """ for several lines'),
    ("Unterminated string", 'the closing quotes are missing (""" needs """)'),
    ('Expected \'"""\'', 'the closing """ is missing'),
    (
        "Expected newline or end of document",
        "one key = value a line; text with spaces or dots needs quotes",
    ),
    ("Unclosed array", "a ] or a comma between the items is missing"),
    (
        "Unclosed inline table",
        "a } or a comma is missing; an inline table ends in the line it began in",
    ),
    ("Expected ']'", "a table's name stands in [ ] on a line of its own"),
)
_TABLE_TWICE = re.compile(r"Cannot declare (\(.*\)) twice")
_AT_LINE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def syntax_fault(path: Path, text: str, message: str) -> Fault:
    """Return the fault that a message of tomllib is about, with its line; secrets are left out."""
    position = _AT_LINE.search(message)
    # as tomllib counts lines: the characters besides it that end one for Python may stand in texts
    lines = text.removesuffix("\n").split("\n")
    number = int(position[1]) if position and position[1] else len(lines)
    # tomllib names the place behind the escape. Of a backslash at the end of a line, the usual one
    # of a path in Windows, that is the beginning of the next line.
    if "Unescaped '\\'" in message and position and position[2] == "1":
        number -= 1
    line = written_line = lines[min(number, len(lines)) - 1].strip()
    name, equals, value = line.partition("=")
    if equals and may_be_secret(value, name.strip()):
        line = f"{name.strip()} = …"
    problem = _AT_LINE.sub("", message).strip()
    hint = next((hint for part, hint in _SYNTAX_HINTS if part in message), "")
    if _TABLE_TWICE.match(problem):
        header = written_line.partition("#")[0].strip()
        first_number = next(
            line_number
            for line_number, text in enumerate(lines, 1)
            if text.strip().startswith(header)
        )
        place = f", first in line {first_number}" if first_number < number else ""
        shown_header = header if line == written_line else line
        problem = f"the table {shown_header} stands in the file twice{place}"
    elif "Cannot overwrite a value" in problem and line.startswith("["):
        problem = "a key of this name stands above, and a key with a value is no table"
        key, dot, name = line.strip("[] ").partition(".")
        hint = f"write [providers.{name}]" if dot and key == "provider" else ""
    return Fault(
        file=display(path),
        key="",
        found=shorten(line),
        problem=f"is not TOML: {problem}",
        hint=hint,
        line=number,
    )
