"""Read a docstring as a model should: what the function does, and what each argument means.

Google and Sphinx are read here: docstring_parser loses what stands behind the arguments, knows no
`Keyword Args`, and gives up all arguments where one has no colon. It reads NumPy.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import NamedTuple

_ARGUMENTS_HEADING = re.compile(
    r"^(Args|Arguments|Parameters|Params|Keyword Args|Other Parameters):\s*$"
)
# Headings of the Google style that end the description and say nothing about arguments.
_OTHER_HEADING = re.compile(
    r"^(Returns?|Yields?|Raises|Examples?|Notes?|See "
    r"Also|Warnings?|Attributes|Todo|References):\s*$"
)
_ARGUMENT_LINE = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX_PARAM = re.compile(
    r"^:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_NUMPY_HEADING = re.compile(r"^(Other )?Parameters\n-{3,}$", re.MULTILINE)
_SPHINX_FIELD = re.compile(r"^:\w+[^:]*:")


class Doc(NamedTuple):
    """The parts of a docstring that a model reads."""

    description: str
    arguments: dict[str, str]


def parse(docstring: str | None) -> Doc:
    """Parse a docstring of the Google, Sphinx or NumPy style; any other text is all description."""
    text = cleandoc(docstring or "")
    if _NUMPY_HEADING.search(text):
        return _parse_numpy(text)
    lines = text.splitlines()
    description: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, indent, current = "description", 0, ""
    for line in lines:
        if _ARGUMENTS_HEADING.match(line):
            section, indent, current = "arguments", 0, ""
        elif _OTHER_HEADING.match(line):
            section = "elsewhere"
        elif match := _SPHINX_PARAM.match(line):
            section, current = "sphinx", match[1]
            arguments[current] = [match[2]]
        elif _SPHINX_FIELD.match(line):
            section = "elsewhere"
        elif section == "description":
            description.append(line)
        elif section == "arguments" and line and not line[0].isspace():
            # An unindented line ends the section: prose again, unless the heading only looked like
            # one.
            section = "description"
            description.append(line)
        elif (
            section == "arguments"
            and (match := _ARGUMENT_LINE.match(line))
            and (not indent or len(match[1]) <= indent)
        ):
            indent, current = len(match[1]), match[2]
            arguments[current] = [match[3]]
        elif section in ("arguments", "sphinx") and current:
            arguments[current].append(line.strip())
    return Doc(
        _unwrap_paragraphs(description),
        {name: " ".join(filter(None, text)) for name, text in arguments.items()},
    )


def _parse_numpy(text: str) -> Doc:
    from docstring_parser import numpydoc

    docstring = numpydoc.parse(text)
    arguments = {
        name.strip(" *"): param for param in docstring.params for name in param.arg_name.split(",")
    }
    return Doc(
        _unwrap_paragraphs((docstring.description or "").splitlines()),
        {name: " ".join((param.description or "").split()) for name, param in arguments.items()},
    )


def _unwrap_paragraphs(lines: list[str]) -> str:
    """Undo the wrapping of a source file inside each paragraph; lists and code keep their lines."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return "\n\n".join(
        text if re.search(r"^(\s+\S|[-*] )", text, re.MULTILINE) else " ".join(text.split())
        for text in paragraphs
    )
