"""Parse a command line of agentctl or agentd as the program would, without running it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from daemon.app import main as agentd
from daemon.app.commands import logs
from daemon.app.commands.new_arguments import build_new_parser
from daemon.app.commands.policy_arguments import add_policy_verbs
from daemon.cli import memory
from daemon.cli.verbs import VERBS

# Verbs of agentctl whose arguments a parser of their own reads.
OWN_PARSERS = ("memory", "logs", "policy", "help")


def policy_parser() -> ArgumentParser:
    from daemon.cli.parser import Parser

    parser = Parser(prog="agentd policy")
    for verb_parser in add_policy_verbs(parser):
        agentd.add_location_options(verb_parser, of_verb=True)
    return parser


def parse_command_line(program: str, words: Sequence[str]) -> None:
    """Parse the words behind `agentctl` or `agentd`. Raises SystemExit if they are not valid."""
    verb, arguments = "", list(words)
    if words and not words[0].startswith("-"):
        verb, arguments = words[0], list(words[1:])
    if program == "agentctl" and verb not in OWN_PARSERS and not VERBS[verb].parses_itself:
        VERBS[verb].parse(verb, arguments)
    elif verb == "memory":
        memory._make_parser().parse_args(arguments)
    elif verb == "logs":
        logs._parser().parse_args(arguments)
    elif verb == "policy":
        policy_parser().parse_args(arguments)
    elif verb == "new":
        build_new_parser().parse_intermixed_args(arguments)
    elif verb == "help":
        assert not arguments or arguments[0] in VERBS or arguments == ["--all"]
    else:
        agentd.build_parser().parse_args(words)
