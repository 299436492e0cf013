"""The messages that a chat has taken from the daemon: reports, questions, answers.

A person's reply to one of them finds its run by this, and a delivery that was interrupted finds the
parts that have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from daemon.store.connection import Connection, Row
from daemon.store.database import Repository

DRAFT = 0
"""The `part` of an answer that is still being written: its delivery takes its place."""
REMARK = -1
"""The `part` of a word about a run that is none of its deliveries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatMessage:
    """A message of the daemon in a conversation of a chat."""

    chat: str
    """The name of the table `[chat.NAME]`."""
    conversation: str
    message: str
    """The ids that the chat's service gave them."""
    run: str | None = None
    """The run that it is about; None for a notice without one."""
    delivery: int | None = None
    """The delivery that it is a part of."""
    part: int = 0
    """Which part of the delivery, from 0; of a message without one DRAFT or REMARK."""


class ChatMessageRepository(Repository):
    """Messages that chats have taken.

    Table: chat_message.
    """

    async def record(self, message: ChatMessage) -> None:
        """Write a message; one that is there already gets the new delivery and part.

        A run or a delivery that was deleted meanwhile is left out.
        """
        values = (
            message.chat,
            message.conversation,
            message.message,
            message.run,
            message.delivery,
            message.part,
            self._now(),
        )

        def work(connection: Connection) -> None:
            connection.execute(_RECORD, values)

        # durable: what has arrived must not be sent again after a power loss
        await self._db.write(work, durable=True)

    async def find(self, chat: str, conversation: str, message: str) -> ChatMessage | None:
        """Return a message by its ids; None if the daemon knows none like it."""
        messages = await self._find(_BY_ID, (chat, conversation, message))
        return messages[0] if messages else None

    async def find_of_delivery(self, chat: str, delivery: int) -> list[ChatMessage]:
        """Return the parts of a delivery that have arrived, in order."""
        return await self._find(_BY_DELIVERY, (delivery, chat))

    async def find_draft(self, chat: str, run: str) -> ChatMessage | None:
        """Return the message in which the answer of a run is being written, if there is one."""
        messages = await self.find_of_run(chat, run)
        return next(
            (item for item in messages if item.delivery is None and item.part == DRAFT), None
        )

    async def find_of_run(self, chat: str, run: str) -> list[ChatMessage]:
        """Return the messages about a run, in the order in which they were sent."""
        return await self._find(_BY_RUN, (run, chat))

    async def _find(self, query: str, values: Row) -> list[ChatMessage]:
        def work(connection: Connection) -> list[ChatMessage]:
            return [
                ChatMessage(
                    chat=chat,
                    conversation=conversation,
                    message=message,
                    run=run,
                    delivery=delivery,
                    part=part,
                )
                for chat, conversation, message, run, delivery, part in connection.execute(
                    query, values
                )
            ]

        return await self._db.read(work)


_RECORD = (
    "INSERT INTO chat_message (chat, conversation, message, run_id, delivery_id, part, at)"
    " SELECT ?, ?, ?, (SELECT id FROM run WHERE id = ?), (SELECT id FROM outbox WHERE id = ?), ?, ?"
    " WHERE true ON CONFLICT (chat, conversation, message)"
    " DO UPDATE SET delivery_id = excluded.delivery_id, part = excluded.part"
)
_SELECT = "SELECT chat, conversation, message, run_id, delivery_id, part FROM chat_message"
_BY_ID = f"{_SELECT} WHERE chat = ? AND conversation = ? AND message = ?"
_BY_DELIVERY = f"{_SELECT} WHERE delivery_id = ? AND chat = ? ORDER BY part"
_BY_RUN = f"{_SELECT} WHERE run_id = ? AND chat = ? ORDER BY at, message"
