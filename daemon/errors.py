"""The ways things go wrong, named by what happens next.

DaemonError
├── ConfigError            a file of the user's is wrong: every fault at once; exit 78
├── StateBusy              another daemon holds the state folder; exit 75
│   └── SocketBusy         another daemon answers on the control socket
├── StateLost              the state folder was deleted or replaced under the daemon; exit 75
├── DatabaseAway           the database server does not answer, or not yet; exit 75
├── NotFound               nothing of that name or id
├── Refused                asked for something that the present state or policy does not allow
│   ├── RunUnderWay        a run of the routine is under way, and no second one starts beside it
│   ├── FileChanged        a file is not the one any more that a change was made to
│   ├── UnclearArgument    what stands on the command line is not understood
│   └── SwitchedOff        config.toml does not allow this at all
├── Fenced                 another process owns this run now: stop writing, at once
├── StoreFull              the disk is full: the write did not happen, nothing was started by it
│   └── StoreDamaged       the database file is damaged in some place; an index can be rebuilt
├── ToolFailed             a tool could not do it; the model reads why and what came out so far
├── OverBudget             a cap on money or tokens does not cover the next call
├── DeliveryFailed         a target did not take a report; the outbox tries again if that can help
│   ├── TargetAbsent       this machine has nothing that could take it: left out, and no fault
│   └── RecipientRemoved   a person took who was to get it off the list: left out, and no fault
└── ProviderError          a model gave no answer
    ├── Retryable          asking again may help, after `retry_after` seconds if given
    │   ├── Overloaded     the vendor is busy (429, 529)
    │   ├── TransportError no or a broken answer (connection, timeout, HTML, not JSON)
    │   │   └── NothingListens  no server is started at the vendor's address
    │   └── Unavailable    the vendor's own fault (5xx), or no room on this machine
    └── Fatal              asking the same again cannot help
        ├── BadKey         the key is missing, wrong or without rights
        ├── NoQuota        no balance, spend limit reached
        ├── BadRequest     the vendor refused the request's form
        ├── ContextOverflow the conversation is longer than the model takes
        ├── AnswerTooLarge the answer is larger than what is read of one
        └── ModelRefused   the model or its filter declined
"""

from __future__ import annotations

import errno
from dataclasses import dataclass


class DaemonError(Exception):
    """Something went wrong that a person can do something about."""


MAX_FAULT_LINES = 50
MAX_FAULT_TEXT = 2_000
"""Characters of each part of a fault: the longest hint that names known keys has some 800."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault in one place of a file."""

    file: str
    key: str
    """Dotted path inside the file, empty for the file as a whole."""
    found: str
    """What stood there, as the person wrote it (shortened), empty when nothing did."""
    problem: str
    hint: str = ""
    line: int | None = None
    """The line of the key, or of its table, counted from 1; None where it is not known."""

    def __post_init__(self) -> None:
        # Whatever stands in a file, people read this line, and it is logged and sent.
        for name in ("key", "found", "problem", "hint"):
            text = getattr(self, name)
            if len(text) > MAX_FAULT_TEXT:
                object.__setattr__(self, name, text[: MAX_FAULT_TEXT - 1] + "…")

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}" if self.line else self.file
        if self.key:
            location += f": {self.key}"
        found = f" (found {self.found})" if self.found else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{location}: {self.problem}{found}{hint}"


class ConfigError(DaemonError):
    """A definition file cannot be used; carries every fault found, not only the first.

    Its text has a line for each, and no more than `MAX_FAULT_LINES` lines.
    """

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        lines = [str(fault) for fault in faults[:MAX_FAULT_LINES]]
        if more := len(faults) - len(lines):
            lines.append(f"and {more} more faults")
        super().__init__("\n".join(lines))


class StateBusy(DaemonError):
    """Another daemon holds this state folder. `pid` is its process id, None if unknown."""

    def __init__(self, path: str, pid: int | None) -> None:
        self.path, self.pid = path, pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"the state folder {path} is in use by {holder}; stop it first, or choose another with "
            "--state"
        )


class StateLost(DaemonError):
    """The state folder was deleted or replaced while a daemon used it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the state folder {path} was deleted or replaced while agentd ran on it; agentd ends, "
            "as nothing that it does would be kept"
        )


class SocketBusy(StateBusy):
    """Another daemon answers on the control socket."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path, pid)
        holder = f"process {pid}" if pid else "another process"
        message = (
            f"{holder} answers on the control socket {path} already; stop it first, or name "
            "another path"
        )
        self.args = (message,)  # instead of the text about the state folder


class DatabaseAway(DaemonError):
    """The database server does not answer, or accepts no connection yet: it may later."""


class NotFound(DaemonError):
    """Nothing of that name or id exists."""


class Refused(DaemonError):
    """The present state or the policy does not allow this."""


class RunUnderWay(Refused):
    """A run of the routine is under way, and no second one starts beside it."""

    def __init__(self, routine: str, run: str, status: str) -> None:
        self.run = run
        wait = "answer it: agentctl approvals" if status == "waiting" else "wait for it"
        super().__init__(
            f"{routine} is {status} already (run {run}); {wait}, or stop it: agentctl cancel {run}"
        )


class FileChanged(Refused):
    """A file is not the one any more that a change was made to."""


class UnclearArgument(Refused):
    """What a person wrote on the command line is not understood."""


class SwitchedOff(Refused):
    """The config does not allow this at all."""


class Fenced(DaemonError):
    """Another process owns this run now."""


class StoreFull(DaemonError):
    """The disk is full: the write did not happen, and nothing was started by it."""


class StoreDamaged(StoreFull):
    """The database file is damaged in some place: what would be written there is refused."""


class ToolFailed(DaemonError):
    """A tool could not do what was asked.

    `partial` is what it had put out until then; `transient` says that trying again soon may help.
    """

    def __init__(self, message: str, *, partial: str = "", transient: bool = False) -> None:
        self.partial, self.transient = partial, transient
        super().__init__(message)


class DeliveryFailed(DaemonError):
    """A target did not take a report; `retry` says whether trying again can help, `after` in how
    many seconds, `status` with which HTTP status the target answered, if it did.
    """

    def __init__(
        self,
        message: str,
        *,
        retry: bool = True,
        after: float | None = None,
        status: int | None = None,
    ) -> None:
        self.retry, self.after, self.status = retry, after, status
        super().__init__(message)


class TargetAbsent(DeliveryFailed):
    """This machine has nothing that could take a report to this target, as a server without a
    desktop; that is no fault.
    """


class RecipientRemoved(DeliveryFailed):
    """Who was to get an answer is not on the list of the chat any more; that is no fault of the
    target.
    """


class OverBudget(DaemonError):
    """A cap does not cover the next call of a model.

    `rule` is the key in config.toml or the routine that sets the cap, with what is left of it;
    `tokens` is the limit where the cap is the run's own limit of tokens.
    """

    def __init__(self, message: str, *, rule: str, tokens: int | None = None) -> None:
        self.rule, self.tokens = rule, tokens
        super().__init__(f"{message}: {rule}")


class ProviderError(DaemonError):
    """A model gave no answer.

    `request_id` is the vendor's id of the request, if it named one. `unsure` is set to True where
    the request was sent but its outcome is unknown: the vendor may charge for it.
    """

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        self.request_id = request_id
        self.unsure = False
        super().__init__(message)


class Retryable(ProviderError):
    """Asking again may help; `retry_after` in seconds if the vendor named it."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, request_id: str | None = None
    ) -> None:
        self.retry_after = retry_after
        super().__init__(message, request_id=request_id)


class Overloaded(Retryable):
    """The vendor is busy."""


class TransportError(Retryable):
    """No answer came, or a broken one."""


class NothingListens(TransportError):
    """The machine of the vendor's address refused the connection: no server is started there."""


class Unavailable(Retryable):
    """The vendor has a fault of its own, or this machine has no room (see `is_shortage`)."""


def is_shortage(error: BaseException | None) -> bool:
    """Return whether the machine had no thread, process, descriptor or memory left for something
    of the operating system: later it may have.
    """
    if isinstance(error, OSError):
        return error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    # Python has no class of its own for a thread that cannot be started
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


class Fatal(ProviderError):
    """Asking the same again cannot help."""


class BadKey(Fatal):
    """The key is missing, wrong or lacks rights."""


class NoQuota(Fatal):
    """The account has no balance left, or its spend limit is reached."""


class BadRequest(Fatal):
    """The vendor refused the form of the request."""


class ContextOverflow(Fatal):
    """The conversation is longer than the model takes."""


class AnswerTooLarge(Fatal):
    """The vendor's answer is larger than `max_answer_mb`; asking again would cost the same
    again.
    """


class ModelRefused(Fatal):
    """The model, or its vendor's filter, declined to answer."""
