"""A stream that says it is a terminal, for tests of what is written there."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A terminal of 80 columns, as the size of a stream without a file is not known."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError
