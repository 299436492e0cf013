"""Read a docstring as a model should: what the function does, and what each argument means.

Google and Sphinx are read here: docstring_parser loses what stands behind the arguments, knows no
`Keyword Args`, and gives up all arguments where one has no colon. It reads NumPy.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import NamedTuple

_ARGUMENTS = re.compile(r"^(Args|Arguments|Parameters|Params|Keyword Args|Other Parameters):\s*$")
# Headings of the Google style that end the description and say nothing about arguments.
_OTHER = re.compile(
    r"^(Returns?|Yields?|Raises|Examples?|Notes?|See "
    r"Also|Warnings?|Attributes|Todo|References):\s*$"
)
_ARGUMENT = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX_PARAM = re.compile(
    r"^:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*?\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_NUMPY = re.compile(r"^(Other )?Parameters\n-{3,}$", re.MULTILINE)
_SPHINX_ANY = re.compile(r"^:\w+[^:]*:")


class Doc(NamedTuple):
    """A docstring taken apart."""

    description: str
    arguments: dict[str, str]


def parse(docstring: str | None) -> Doc:
    """Take a docstring of the Google, Sphinx or NumPy style apart; any other text is all
    description.
    """
    text = cleandoc(docstring or "")
    if _NUMPY.search(text):
        return _parse_numpy(text)
    lines = text.splitlines()
    description: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, indent, current = "description", 0, ""
    for line in lines:
        if _ARGUMENTS.match(line):
            section, indent, current = "arguments", 0, ""
        elif _OTHER.match(line):
            section = "elsewhere"
        elif match := _SPHINX_PARAM.match(line):
            section, current = "sphinx", match[1]
            arguments[current] = [match[2]]
        elif _SPHINX_ANY.match(line):
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
            and (match := _ARGUMENT.match(line))
            and (not indent or len(match[1]) <= indent)
        ):
            indent, current = len(match[1]), match[2]
            arguments[current] = [match[3]]
        elif section in ("arguments", "sphinx") and current:
            arguments[current].append(line.strip())
    return Doc(
        _paragraphs(description),
        {name: " ".join(filter(None, text)) for name, text in arguments.items()},
    )


def _parse_numpy(text: str) -> Doc:
    from docstring_parser import numpydoc

    docstring = numpydoc.parse(text)
    arguments = {
        name.strip(" *"): param for param in docstring.params for name in param.arg_name.split(",")
    }
    return Doc(
        _paragraphs((docstring.description or "").splitlines()),
        {name: " ".join((param.description or "").split()) for name, param in arguments.items()},
    )


def _paragraphs(lines: list[str]) -> str:
    """Undo the wrapping of a source file inside each paragraph; lists and code keep their lines."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return "\n\n".join(
        text if re.search(r"^(\s+\S|[-*] )", text, re.MULTILINE) else " ".join(text.split())
        for text in paragraphs
    )
