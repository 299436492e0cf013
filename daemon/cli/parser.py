"""The parser of command lines, of agentctl and agentd alike: its help ends with examples."""

from __future__ import annotations

import os
from argparse import ArgumentParser, HelpFormatter
from typing import Any


class Parser(ArgumentParser):
    """With the help below, for the verbs of verbs too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Help, **settings)

    def format_help(self) -> str:
        """Return the help, examples included; these are read only by somebody who asks."""
        from daemon.cli.examples import examples_of

        return super().format_help() + examples_of(self.prog)


class _Help(HelpFormatter):
    """Knows how wide the terminal is without `shutil`, whose import takes as long as all the
    parsing (5 ms).
    """

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=max(columns, 20) - 2)
