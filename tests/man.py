"""The manual pages in docs/man, made of the tables of verbs; `python -m tests.man` writes them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from daemon import __version__
from daemon.app.main import build_parser
from daemon.cli.call import EXIT_CODES
from daemon.cli.examples import EXAMPLES
from daemon.cli.help import group_all_verbs
from daemon.cli.verbs import VERBS, Verb

FOLDER = Path(__file__).parents[1] / "docs" / "man"


def escape(text: str) -> str:
    """Return text as roff shows it; no line of it is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def head(program: str, summary: str, synopsis: str) -> list[str]:
    return [
        '.\\" Written by `python -m tests.man`.',
        f'.TH {program.upper()} 1 "" "agentd {__version__}" "agentd"',
        ".SH NAME",
        escape(f"{program} - {summary}"),
        ".SH SYNOPSIS",
        f".B {program}",
        escape(synopsis),
    ]


def paragraph(term: str, text: str) -> list[str]:
    return [".TP", f".B {escape(term)}", escape(text)]


def usage_of(name: str, verb: Verb) -> str:
    """Return a verb with its arguments; options are listed below it."""
    words = [name]
    for names, settings in verb.options:
        if not names[0].startswith("-"):
            metavar = str(settings.get("metavar", names[0]))
            words.append(f"[{metavar}]" if "nargs" in settings else metavar)
    return " ".join(words)


def examples(keys: Iterable[str]) -> list[str]:
    lines = [".SH EXAMPLES"]
    for key in keys:
        for command, remark in EXAMPLES.get(key, ())[:1]:
            lines += paragraph(command, remark or key)
    return lines


def agentctl_page() -> str:
    """Return agentctl(1)."""
    lines = head(
        "agentctl", "look after agentd and its routines", "[--socket PATH] [--json] VERB ..."
    )
    lines += [".SH DESCRIPTION", "agentctl speaks to the agentd of this user."]
    for group, names in group_all_verbs().items():
        lines += [f".SH {group.upper()}"]
        for name in names:
            verb = VERBS[name]
            lines += paragraph(usage_of(name, verb), verb.summary)
            for flags, settings in verb.options:
                if flags[0].startswith("-"):
                    value = f" {settings['metavar']}" if "metavar" in settings else ""
                    lines += [".RS", *paragraph(", ".join(flags) + value, settings["help"]), ".RE"]
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES:
        lines += paragraph(str(code), meaning)
    lines += examples(f"agentctl {name}" for name in ("list", "run", "report", "why", "pause"))
    return "\n".join([*lines, ".SH SEE ALSO", ".BR agentd (1)", ""])


def agentd_page() -> str:
    """Return agentd(1)."""
    lines = head(
        "agentd", "run LLM agents on a schedule", "[--config FILE] [--state DIR] [VERB ...]"
    )
    lines += [".SH DESCRIPTION", "Without a verb: start the daemon.", ".SH OPTIONS"]
    verbs: list[tuple[str, str]] = []
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            verbs = [(name, parser.description or "") for name, parser in action.choices.items()]
        else:
            value = f" {action.metavar}" if action.metavar else ""
            lines += paragraph(", ".join(action.option_strings) + value, action.help or "")
    lines += [".SH VERBS"]
    for name, summary in verbs:
        lines += paragraph(name, summary)
    lines += examples(("agentd", "agentd once", "agentd init"))
    return "\n".join([*lines, ".SH SEE ALSO", ".BR agentctl (1)", ""])


def pages() -> dict[Path, str]:
    """Return each page by its file."""
    return {FOLDER / "agentctl.1": agentctl_page(), FOLDER / "agentd.1": agentd_page()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
