"""A stand-in for the programs of the system, and the hour at which they are asked."""

from datetime import UTC, datetime

from daemon.tools.builtin.sysinfo.programs import ProgramOutput

NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


class Program:
    """A program that says one thing, and remembers how it was called."""

    def __init__(self, text: str = "", *, code: int = 0, errors: str = "") -> None:
        self.output = ProgramOutput(code=code, text=text, errors=errors)
        self.calls: list[list[str]] = []

    async def __call__(self, argv, limit):
        self.calls.append(list(argv))
        return self.output
