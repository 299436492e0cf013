"""The parser of command lines, of agentctl and agentd alike: its help ends with examples."""

from __future__ import annotations

import os
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, HelpFormatter
from typing import Any


class Parser(ArgumentParser):
    """An argparse parser whose help, and that of its subcommands, ends with examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **settings)
        # argparse names the function that reads a value: "invalid int value: 'x'".
        self.register("type", int, whole_number)
        self.register("type", "duration", seconds_of_duration)

    def _get_value(self, action: Action, arg_string: str) -> Any:
        """Return the value of an argument. An option or a file that is empty, as of `--run "$RUN"`
        without that variable, is refused: it would count as left out, or as the current folder.
        """
        value = super()._get_value(action, arg_string)  # its type may say what is expected
        if not arg_string and (action.option_strings or _is_file(action)):
            raise ArgumentError(action, "must not be empty")
        return value

    def add_subparsers(self, **settings: Any) -> Any:
        """Return what adds subcommands; each reports what it does not know with its own usage."""
        return super().add_subparsers(**{"parser_class": _SubcommandParser, **settings})

    def format_help(self) -> str:
        """Return the help with examples, which are imported only here."""
        from daemon.cli.examples import examples_of

        return super().format_help() + examples_of(self.prog)


class _SubcommandParser(Parser):
    """The parser of a subcommand, whose usage says what may stand there.

    argparse leaves what it does not know to the parser above it.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown


def _is_file(action: Action) -> bool:
    """Tell whether an argument is a path, without an import of pathlib."""
    return isinstance(action.type, type) and issubclass(action.type, os.PathLike)


def text_that_is_given(text: str) -> str:
    """Return the text of an argument, or raise ArgumentTypeError if it is empty."""
    if not text:
        raise ArgumentTypeError("must not be empty")
    return text


def whole_number(text: str) -> int:
    """Return the number of an argument, or raise ArgumentTypeError."""
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a whole number (found {text[:80]!r})") from None


def positive_number(text: str) -> int:
    """Return a whole number from 1 on, or raise ArgumentTypeError."""
    value = whole_number(text)
    if value < 1:
        raise ArgumentTypeError(f"must be at least 1 (found {text[:80]!r})")
    return value


def seconds_of_duration(text: str) -> float:
    """Return the seconds of a duration such as `30s` or `2 minutes`, or of a number without a unit,
    or raise ArgumentTypeError.
    """
    from daemon.durations import LONGEST, parse_duration

    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if duration is not None:
        return duration.total_seconds()
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value > LONGEST.total_seconds():
        raise ArgumentTypeError(f"{text[:80]!r} is longer than ten years")
    if not value >= 0:  # nor is it a number at all
        raise ArgumentTypeError(f"expected a duration, like 30s or 2m (found {text[:80]!r})")
    return value


class _HelpFormatter(HelpFormatter):
    """A formatter that finds the width of the terminal without `shutil`, whose import takes 5 ms.

    That is as long as all the parsing.
    """

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=max(columns, 20) - 2)
