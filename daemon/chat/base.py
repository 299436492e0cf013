"""What the daemon needs of a chat's service. An adapter for each service implements `Chat`.

Ids are texts without slashes, as the service has them: of a conversation (a person's or a group's),
of a message in it, of a person.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from daemon.errors import DaemonError


class ChatFailed(DaemonError):
    """The service did not take a request.

    `retry` says whether the same request may succeed later, `after` in how many seconds at the
    earliest; None if the service did not say.
    """

    def __init__(self, message: str, *, retry: bool = True, after: float | None = None) -> None:
        self.retry, self.after = retry, after
        super().__init__(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """Who wrote or pressed something."""

    id: str
    name: str
    """As that person calls itself: nobody has checked it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """A button below a message."""

    label: str
    data: str
    """Comes back when it is pressed; at most MAX_BUTTON_BYTES in UTF-8."""


MAX_BUTTON_BYTES = 64
"""Of `Button.data`, in any chat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatEvent:
    """A message of a person, or a button that a person has pressed."""

    id: str
    """Unique in the chat: the same id again is the same event again."""
    position: str
    """What `receive` is given to get the events after this one."""
    person: Person
    conversation: str
    message: str
    """The message itself, or the one that has the button; empty if the service no longer tells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatFile:
    """A file that a person has sent along."""

    id: str
    name: str
    size: int
    """Bytes, as the service says; 0 if it does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivedMessage(ChatEvent):
    """A message of a person."""

    text: str
    """The person's own words."""
    quotation: str = ""
    """What the person has forwarded or quoted: words of others."""
    reply_to: str | None = None
    """The message that it answers, of the same conversation."""
    files: Sequence[ChatFile] = ()
    notes: Sequence[str] = ()
    """What of the message cannot be read, in sentences for that person."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ButtonPress(ChatEvent):
    """A button that a person has pressed."""

    data: str
    callback_id: str
    """The id by which the press is answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventBatch:
    """The events that one request for new ones returned."""

    events: Sequence[ChatEvent] = field(default=())
    """Oldest first."""
    position: str = ""
    """What the next `receive` is given. It may lie behind the last event of `events`, where the
    service had events of other kinds.
    """


class Chat(Protocol):
    """One account of a chat's service. Every method raises ChatFailed."""

    async def receive(self, position: str) -> EventBatch:
        """Wait for events after `position` (empty: from the oldest that the service has kept) and
        return them. After a while without events, return an empty batch.
        """

    def split(
        self, markdown: str, *, run: str = "", sanitize: Callable[[str], str] = str
    ) -> list[str]:
        """Split Markdown into parts that one message can hold each; at least one. Where they would
        be too many, the last one says how to read the whole report of the `run`. Each part goes
        through `sanitize`.
        """

    async def send(
        self,
        conversation: str,
        markdown: str,
        *,
        reply_to: str | None = None,
        buttons: Sequence[Sequence[Button]] = (),
    ) -> str:
        """Send a message with rows of buttons, and return its id."""

    async def edit(
        self,
        conversation: str,
        message: str,
        markdown: str,
        *,
        buttons: Sequence[Sequence[Button]] = (),
    ) -> None:
        """Replace a message. No error if the message has this text already."""

    async def show_typing(self, conversation: str) -> None:
        """Show for a few seconds that an answer is being written."""

    async def answer_press(self, press: ButtonPress, text: str) -> None:
        """Show the person who pressed a button what followed, in a sentence. No error for a press
        that is too old to be answered.
        """

    async def read_file(self, file: ChatFile) -> str:
        """Return the text of a file. Raises ChatFailed if it is too large, or is no text."""

    @property
    def shortest_edit_interval(self) -> float:
        """Seconds that must lie between two edits of a message."""

    async def close(self) -> None:
        """Close the connections."""
