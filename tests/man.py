"""The manual pages in docs/man, made of the tables of verbs; `python -m tests.man` writes them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from daemon import __version__
from daemon.app.commands import logs
from daemon.app.commands.new_arguments import build_new_parser
from daemon.app.main import build_parser
from daemon.cli import memory
from daemon.cli.call import EXIT_CODES
from daemon.cli.examples import EXAMPLES
from daemon.cli.help import group_all_verbs
from daemon.cli.verbs import VERBS, Verb
from tests.command_parsers import policy_parser

# Options of many verbs, which the pages say once.
OPTIONS_OF_ALL = {"--help", "--json", "--config", "--state", "--socket"}
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


def indent(lines: Iterable[str]) -> list[str]:
    return [".RS", *lines, ".RE"]


def describe_parser(name: str, parser: argparse.ArgumentParser, summary: str) -> list[str]:
    """Return the paragraph of a verb and, within it, those of its options or verbs of its own."""
    words, inner = [name], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words.append(action.metavar or "VERB")
            for subname, subparser in action.choices.items():
                inner += describe_parser(subname, subparser, subparser.description or "")
        elif OPTIONS_OF_ALL.intersection(action.option_strings):
            continue
        else:
            value = "" if action.nargs == 0 else action.metavar or action.dest.upper()
            if action.choices and not action.metavar:
                value = "|".join(map(str, action.choices))
            if action.option_strings:
                text = parser._get_formatter()._expand_help(action) if action.help else ""
                inner += paragraph(f"{', '.join(action.option_strings)} {value}".strip(), text)
            else:
                words.append(f"[{value}]" if action.nargs in ("?", "*") else str(value))
    return [*paragraph(" ".join(words), summary), *(indent(inner) if inner else ())]


def parser_of(verb: str) -> argparse.ArgumentParser | None:
    """Return the parser of a verb of agentctl that parses its own arguments; None for `help`."""
    own_parsers = {
        "logs": logs._parser,
        "memory": memory._make_parser,
        "new": build_new_parser,
        "policy": policy_parser,
    }
    if verb in own_parsers:
        return own_parsers[verb]()
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices.get(verb)
    return None


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
    lines += [
        ".SH DESCRIPTION",
        "agentctl speaks to the agentd of this user.",
        escape(
            "`agentctl help VERB` shows a verb with examples. --json prints the answer as it is. "
            "What works without a daemon takes --config FILE and --state DIR, as agentd does."
        ),
    ]
    for group, names in group_all_verbs().items():
        lines += [f".SH {group.upper()}"]
        for name in names:
            verb = VERBS[name]
            parser = parser_of(name) if verb.parses_itself else None
            if parser:
                lines += describe_parser(name, parser, verb.summary)
                continue
            lines += paragraph(usage_of(name, verb), verb.summary)
            for flags, settings in verb.options:
                if flags[0].startswith("-"):
                    value = f" {settings['metavar']}" if "metavar" in settings else ""
                    lines += indent(paragraph(", ".join(flags) + value, settings["help"]))
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
    verbs: list[tuple[str, argparse.ArgumentParser]] = []
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            verbs = list(action.choices.items())
        else:
            value = f" {action.metavar}" if action.metavar else ""
            lines += paragraph(", ".join(action.option_strings) + value, action.help or "")
    lines += [".SH VERBS"]
    for name, parser in verbs:
        if name in VERBS:  # agentctl(1) has its options
            lines += paragraph(name, parser.description or "")
        else:
            lines += describe_parser(name, parser, parser.description or "")
    lines += examples(("agentd", "agentd once", "agentd init"))
    return "\n".join([*lines, ".SH SEE ALSO", ".BR agentctl (1)", ""])


def pages() -> dict[Path, str]:
    """Return each page by its file."""
    return {FOLDER / "agentctl.1": agentctl_page(), FOLDER / "agentd.1": agentd_page()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
