"""The parser of command lines, of agentctl and agentd alike: its help ends with examples."""

from __future__ import annotations

import os
from argparse import ArgumentParser, HelpFormatter
from typing import Any


class Parser(ArgumentParser):
    """An argparse parser whose help, and that of its subcommands, ends with examples."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, **settings)

    def format_help(self) -> str:
        """Return the help with examples, which are imported only here."""
        from daemon.cli.examples import examples_of

        return super().format_help() + examples_of(self.prog)


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
