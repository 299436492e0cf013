"""Ask a person at a terminal; each question has a flag of the command that answers it."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Sequence

from daemon.errors import DaemonError


class MissingAnswerError(DaemonError):
    """An answer is missing, and nobody can be asked; the text names the flag that gives it."""


class Interrupted(DaemonError):
    """The person ended the questions, by Ctrl-C or by the end of the input."""


class EndOfInput(Interrupted):
    """The input has ended: by Ctrl-D, or the terminal is gone."""


class Questions:
    """Ask at the terminal. With `--yes` nobody is asked and defaults are taken; where there is no
    terminal, or no default, MissingAnswerError is raised.

    All methods that ask raise Interrupted if the person ends the questions.
    """

    def __init__(self, *, assume_yes: bool) -> None:
        self.assume_yes = assume_yes
        self.is_interactive = not assume_yes and sys.stdin.isatty() and sys.stdout.isatty()

    def ask(self, question: str, *, flag: str, default: str = "", example: str = "") -> str:
        """Return a line that the person types, or `default` if the line is empty; never empty.

        Where nobody can be asked, returns the default if `--yes` was given. Raises
        MissingAnswerError, with the `example` of a value of `flag`, if there is no default or no
        `--yes`.
        """
        if not self.is_interactive:
            if self.assume_yes and default:
                return default
            hint = f"; such as {flag} {example}" if example else ""
            raise MissingAnswerError(f"{flag} is missing, and there is no terminal to ask at{hint}")
        while True:
            answer = read_line(f"{question} ") or default
            if answer:
                return answer
            say("An answer is needed; Ctrl-C ends this.")

    def ask_secret(self, question: str, *, flag: str, optional: bool = False) -> str:
        """Return a line that the person types, which the terminal does not show; empty only if it
        is `optional`. Raises MissingAnswerError where nobody can be asked.
        """
        if not self.is_interactive:
            raise MissingAnswerError(f"{flag} is missing, and there is no terminal to ask at")
        while True:
            answer = read_line(f"{question} ", is_hidden=True)
            if answer or optional:
                return answer or ""
            say("An answer is needed; Ctrl-C ends this.")

    def confirm(self, question: str) -> bool:
        """Return whether the person agrees; False where nobody can be asked."""
        if not self.is_interactive:
            return False
        return (read_line(f"{question} [y/N] ") or "").lower() in ("y", "yes")

    def choose(
        self,
        question: str,
        choices: Sequence[tuple[str, str]],
        *,
        flag: str,
        default: str = "",
        others: Callable[[str], str] | None = None,
    ) -> str:
        """Return the name of one of `choices`, (name, description) each: the person types its name
        or number, or Enter for `default`, which is the first if it is empty.

        `others` says what is wrong with another answer; one with which nothing is wrong is
        returned.
        """
        if self.is_interactive:
            width = max(len(name) for name, _ in choices)
            for number, (name, description) in enumerate(choices, 1):
                say(f"  {number:>2}  {name:<{width}}  {description}".rstrip())
        names = [name for name, _ in choices]
        while True:
            answer = self.ask(question, flag=flag, default=default or names[0])
            if answer.isdecimal() and 0 < int(answer) <= len(names):
                return names[int(answer) - 1]
            if answer in names:
                return answer
            problem = f"A number from 1 to {len(names)}, please, or one of the names."
            if others is not None and not (problem := others(answer)):
                return answer
            say(problem)


def read_line(prompt: str, *, is_hidden: bool = False, timeout: float | None = None) -> str | None:
    """Return a line that the person types, without the spaces around it; None if none is typed
    within `timeout` seconds.

    Raises EndOfInput, or Interrupted at Ctrl-C.

    `input` and `getpass` are not used: a Ctrl-C that arrives while they write the prompt has no
    effect until the next key.
    """
    fd = sys.stdin.fileno()
    settings = termios.tcgetattr(fd)
    wakeup_reader, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    old_wakeup_fd = signal.set_wakeup_fd(wakeup_writer)
    try:
        if is_hidden:
            local_flags = settings[3] & ~termios.ECHO
            termios.tcsetattr(fd, termios.TCSADRAIN, [*settings[:3], local_flags, *settings[4:]])
        sys.stdout.write(prompt)
        sys.stdout.flush()
        ready, _, _ = select.select([fd, wakeup_reader], [], [], timeout)
        if not ready:
            return None
        line = os.read(fd, 4096)
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        signal.set_wakeup_fd(old_wakeup_fd)
        os.close(wakeup_reader)
        os.close(wakeup_writer)
        if is_hidden:
            termios.tcsetattr(fd, termios.TCSADRAIN, settings)
            say("")
    if not line:
        raise EndOfInput
    return line.decode("utf-8", "replace").strip()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
