"""The command line of `agentd policy`; what the verbs do is imported when one is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

# Each verb, the function of policy.py that does it, and what it is about.
_VERBS = (
    (
        "check",
        "check",
        "is it sound: every fault, every example proved, and what is worth a second look",
    ),
    (
        "explain",
        "explain_call",
        "what it says of one call, by which rule, and which other rules cover it",
    ),
    ("test", "test", "judge every call of a JSONL file and compare with what it expects"),
    ("backtest", "backtest", "which recorded calls another policy would allow or deny"),
    (
        "suggest",
        "suggest_for_routine",
        "the narrowest section a routine's calls would fit into, or rules for those it was denied",
    ),
)


def add_policy_verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Add what can be done with a policy to the command line; yield the parser of each verb."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, function, help_text in _VERBS:
        verb = verbs.add_parser(
            name, help=help_text, description=help_text[0].upper() + help_text[1:] + "."
        )
        verb.set_defaults(on_policy=_import_and_call(function))
        verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
        _add_arguments(name, verb)
        yield verb


def _import_and_call(function: str) -> object:
    """Return what imports policy.py and calls its function of this name."""

    def call(files: object, options: argparse.Namespace) -> int:
        from daemon.app.commands import policy

        return int(getattr(policy, function)(files, options))

    return call


def _name(text: str) -> str:
    """Return a name, or raise ArgumentTypeError if it is empty, as that of an unset variable is."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a name (found {text!r})")
    return text


def _add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "check":
        parser.add_argument("file", nargs="?", type=Path, help="default: the policy of the config")
    elif name == "explain":
        parser.add_argument("--routine", metavar="R", type=_name, help="as in this routine")
        parser.add_argument("--tool", type=_name, help="default: shell")
        parser.add_argument(
            "--tainted",
            action="store_true",
            help="as in a run that has read what strangers may have written",
        )
        parser.add_argument(
            "words", nargs="+", metavar="WORD", help="after --: a command; else a path, URL or JSON"
        )
    elif name == "test":
        example = '{"tool": "shell", "command": "df -h", "expect": "allow"}'
        parser.add_argument("file", type=Path, metavar="FILE.jsonl", help=f"lines like {example}")
    elif name == "backtest":
        parser.add_argument("file", type=Path, metavar="NEW.toml")
        parser.add_argument("--routine", metavar="R", type=_name, help="calls of this routine only")
    elif name == "suggest":
        parser.add_argument("routine", type=_name)
        parser.add_argument(
            "--with-tainted",
            action="store_true",
            help="observe mode: also for calls of runs that had read what strangers wrote",
        )
        parser.add_argument(
            "--confirm",
            metavar="DIGEST",
            default="",
            help="observe mode: write the rules into policy.toml, exactly as they were shown",
        )
    if name in ("explain", "test"):
        parser.add_argument("--policy", type=Path, metavar="FILE", help="by this file")
    if name in ("backtest", "suggest"):
        parser.add_argument(
            "--since",
            metavar="TIME",
            default="30d",
            help="like 30d, 12h or 2026-11-20; default 30d",
        )
