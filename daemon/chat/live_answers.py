"""Show an answer in its chat while the model writes it, in a message that is edited again and
again, as often as the service allows.

Links in this message are made to not work, since strangers may have had a hand in the text; in the
final answer they work if the run is not tainted. The message is a preview and may get lost, as when
the daemon stops. The final answer is a delivery of the run, and replaces the preview (channel.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from daemon.chat.base import ChatFailed
from daemon.delivery.sanitize import neutralize
from daemon.errors import DaemonError
from daemon.store.chat_messages import DRAFT, ChatMessage

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import ChatOrigin
    from daemon.chat.base import Chat
    from daemon.definitions.config.tables import ChatConfig
    from daemon.runs.events import EventBus, EventSubscription
    from daemon.store.journal import Journal

log = structlog.get_logger()

# Seconds after which "is typing" is shown again: services show it for about so long.
_TYPING_SECONDS = 5.0


class LiveAnswers:
    """The previews of all answers that are being written in one chat."""

    def __init__(
        self,
        chat: Chat,
        journal: Journal,
        events: EventBus,
        *,
        table: Callable[[], ChatConfig],
        redact: Callable[[str], str],
    ) -> None:
        """`table` returns `[chat.NAME]` as it is now; `redact` removes secrets from a text."""
        self._chat, self._journal, self._events, self._redact = chat, journal, events, redact
        self._table = table
        self._answers: dict[str, tuple[_LiveAnswer, asyncio.Task[None]]] = {}
        """By run id."""

    def follow(self, run: str, origin: ChatOrigin) -> None:
        """Show the answer of a run from now on, until it ends or waits for a person."""
        if run in self._answers:
            return
        events = self._events.follow(run)
        answer = _LiveAnswer(
            self._chat, self._journal, events, run, origin, self._table, self._redact
        )
        task = asyncio.create_task(answer.run(), name=f"live answer of {run}")
        self._answers[run] = answer, task
        task.add_done_callback(lambda _: self._answers.pop(run, None))

    async def finish(self, run: str) -> None:
        """Stop showing the answer of a run, and wait until its last edit has ended."""
        if run in self._answers:
            answer, task = self._answers[run]
            answer.stop()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Stop showing all answers at once."""
        tasks = [task for _, task in self._answers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class _LiveAnswer:
    """One answer that is being written."""

    def __init__(
        self,
        chat: Chat,
        journal: Journal,
        events: EventSubscription,
        run: str,
        origin: ChatOrigin,
        table: Callable[[], ChatConfig],
        redact: Callable[[str], str],
    ) -> None:
        self._chat, self._journal, self._events = chat, journal, events
        self._run, self._origin, self._table, self._redact = run, origin, table, redact
        self._message: str | None = None
        """The id of the message that shows the answer, once it was sent."""
        self._is_over = False

    def stop(self) -> None:
        self._is_over = True
        self._events.close()

    async def run(self) -> None:
        """Show what the model writes until the run ends, the run waits for a person, or `stop` is
        called.
        """
        try:
            await self._show()
        except DaemonError as error:  # the store is full: the whole answer comes later
            log.info("chat.answer_not_shown", chat=self._origin.chat, detail=str(error))

    async def _show(self) -> None:
        loop = asyncio.get_running_loop()
        draft = await self._journal.chat_messages.find_draft(self._origin.chat, self._run)
        self._message = draft.message if draft else None
        text, edit_at, typing_at = "", 0.0, 0.0
        async for event in self._events:
            if self._is_over or event["type"] in ("run_ended", "run_waiting"):
                break
            if self._origin.conversation not in self._table().allowed_ids:
                break
            match event["type"]:
                case "delta":
                    text += event["text"]
                case "message":
                    text = event["text"]
                case "thinking" if "text" not in event:  # the model begins a new answer
                    text = ""
            if text.strip() and loop.time() >= edit_at:
                delay = await self._write(text)
                edit_at = loop.time() + delay
            elif not text and loop.time() >= typing_at:
                typing_at = loop.time() + _TYPING_SECONDS
                with suppress(ChatFailed):
                    await self._chat.show_typing(self._origin.conversation)
        self._events.close()

    async def _write(self, text: str) -> float:
        """Show the answer so far; return how many seconds to wait before the next edit."""
        interval = self._chat.shortest_edit_interval
        # Without the last word: `redact` does not know the first half of a secret.
        whole_words = text[: len(text.rstrip()) - len(text.split()[-1])]
        if not whole_words.strip():
            return 0.0
        harmless_text = neutralize(self._redact(whole_words)).strip()
        first_part = self._chat.split(harmless_text, sanitize=neutralize)[0]
        conversation = self._origin.conversation
        try:
            if self._message is not None:
                await self._chat.edit(conversation, self._message, f"{first_part} …")
                return interval
            message = await self._chat.send(
                conversation, f"{first_part} …", reply_to=self._origin.message
            )
        except ChatFailed as error:
            log.info("chat.answer_not_shown", chat=self._origin.chat, detail=str(error))
            return max(interval, error.after or 0.0)
        self._message = message
        await self._journal.chat_messages.record(
            ChatMessage(
                chat=self._origin.chat,
                conversation=conversation,
                message=message,
                run=self._run,
                part=DRAFT,
            )
        )
        return interval
