"""Deliver to a chat: reports, answers and notices, and questions with their buttons.

The store has the id of each message that has arrived, so a delivery that was interrupted goes on
behind it, and a person's reply finds its run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from daemon.agent.conversations.conversations import ASK, origin_of
from daemon.chat.base import Button, ChatFailed
from daemon.delivery.markup import fence
from daemon.delivery.message import compose
from daemon.errors import DeliveryFailed, NotFound, RecipientRemoved
from daemon.models import Approval, ApprovalStatus, Delivery, Receipt, Status
from daemon.store.chat_messages import ChatMessage

if TYPE_CHECKING:
    from daemon.chat.base import Chat
    from daemon.chat.live_answers import LiveAnswers
    from daemon.definitions.config.tables import ChatConfig
    from daemon.store.journal import Journal

APPROVE, REJECT = "a", "r"
# Characters of the digest of a request in the data of a button: 128 bits.
_DIGEST_CHARACTERS = 32
# What is said of a question that is over.
_OUTCOMES = {
    ApprovalStatus.APPROVED: "approved",
    ApprovalStatus.USED: "approved",
    ApprovalStatus.REJECTED: "rejected",
    ApprovalStatus.EXPIRED: "not answered in time",
    ApprovalStatus.VOID: "no longer asked",
}


class ChatChannel:
    """A chat as a target of deliveries."""

    def __init__(
        self,
        name: str,
        chat: Chat,
        *,
        table: Callable[[], ChatConfig],
        journal: Journal,
        live_answers: LiveAnswers,
    ) -> None:
        """`table` returns `[chat.NAME]` as it is now: who is off its list gets nothing more."""
        self._name, self._chat, self._table = name, chat, table
        self._journal, self._live_answers = journal, live_answers
        self._unwritten_messages: dict[int, ChatMessage] = {}
        """The message of a delivery that arrived, and that the journal has not taken yet: it is not
        sent again while the disk is full or the database away.
        """

    async def send(self, delivery: Delivery) -> Receipt:
        """Send the messages of a delivery that have not arrived yet; the receipt has their ids."""
        conversation, reply_to = await self._place_of(delivery)
        if reply_to is not None and delivery.kind == "report":
            await self._live_answers.finish(delivery.run)
        parts, buttons = await self._parts_of(delivery)
        messages = self._journal.chat_messages
        for id_ in list(self._unwritten_messages):
            if id_ == delivery.id:
                await self._record(id_)
            elif not await self._journal.outbox.is_pending(id_):  # dropped, or gone with its run
                self._unwritten_messages.pop(id_, None)
        message_ids = {
            message.part: message.message
            for message in await messages.find_of_delivery(self._name, delivery.id)
            if message.conversation == conversation
        }
        draft = await self._draft_of(delivery, conversation) if 0 not in message_ids else None
        try:
            for number, part in enumerate(parts):
                if number in message_ids:
                    continue
                rows = buttons if number == len(parts) - 1 else ()
                message_ids[number] = await self._send(
                    conversation, part, rows, reply_to=reply_to, draft=draft if not number else None
                )
                self._unwritten_messages[delivery.id] = ChatMessage(
                    chat=self._name,
                    conversation=conversation,
                    message=message_ids[number],
                    run=delivery.run or None,
                    delivery=delivery.id,
                    part=number,
                )
                await self._record(delivery.id)
        except ChatFailed as error:
            raise DeliveryFailed(str(error), retry=error.retry, after=error.after) from None
        numbers = ", ".join(message_ids[number] for number in sorted(message_ids))
        return Receipt(detail=f"message {numbers}")

    async def _record(self, delivery: int) -> None:
        """Write the message of a delivery that has arrived. Raises StoreFull or DatabaseAway."""
        await self._journal.chat_messages.record(self._unwritten_messages[delivery])
        self._unwritten_messages.pop(delivery, None)

    async def refresh_questions(self, run: str) -> None:
        """Edit the messages that asked about calls of a run, so that they show each decision.
        Raises ChatFailed.
        """
        messages = await self._journal.chat_messages.find_of_run(self._name, run)
        for delivery in await self._journal.outbox.find_of_runs([run]):
            if delivery.kind != "question" or delivery.target != self._name:
                continue
            parts, buttons = await self._parts_of(delivery)
            for message in messages:
                if message.conversation not in self._table().allowed_ids:
                    continue
                if message.delivery == delivery.id and message.part == len(parts) - 1:
                    await self._chat.edit(
                        message.conversation, message.message, parts[-1], buttons=buttons
                    )

    async def _send(
        self,
        conversation: str,
        part: str,
        buttons: Sequence[Sequence[Button]],
        *,
        reply_to: str | None,
        draft: str | None,
    ) -> str:
        """Send a part, in place of the message `draft` where there is one; return its message."""
        if draft is not None:
            try:
                await self._chat.edit(conversation, draft, part, buttons=buttons)
            except ChatFailed as error:
                if error.retry:
                    raise
            else:
                return draft  # else somebody has deleted it
        return await self._chat.send(conversation, part, reply_to=reply_to, buttons=buttons)

    async def _place_of(self, delivery: Delivery) -> tuple[str, str | None]:
        """Return the conversation that gets a delivery, and the message that it answers; None if
        nobody started its run in this chat, or who did is not on the list any more. Raises
        RecipientRemoved for an answer to somebody who is not: it is for nobody else.
        """
        conversation = message = None
        if delivery.routine == ASK:
            origin = (await self._journal.runs.get_input(delivery.run) or {}).get("chat", {})
            if origin.get("name") == self._name:
                conversation, message = origin["conversation"], origin["message"]
        elif delivery.run:
            with suppress(NotFound):  # the run was forgotten
                run = await self._journal.runs.get(delivery.run)
                run_origin = origin_of(run)
                if run_origin and run_origin.chat == self._name:
                    conversation, message = run_origin.conversation, run_origin.message
        table = self._table()
        if conversation in table.allowed_ids:
            return conversation, message
        if conversation is not None and delivery.routine == ASK and delivery.kind == "report":
            raise RecipientRemoved(
                f"{conversation} is not on the list [chat.{self._name}] allow any more"
            )
        return table.report_conversation, None

    async def _draft_of(self, delivery: Delivery, conversation: str) -> str | None:
        """Return the message in which the answer was shown there while it was written."""
        if delivery.kind != "report" or not delivery.run:
            return None
        draft = await self._journal.chat_messages.find_draft(self._name, delivery.run)
        return draft.message if draft and draft.conversation == conversation else None

    async def _parts_of(self, delivery: Delivery) -> tuple[list[str], Sequence[Sequence[Button]]]:
        """Return the texts of the messages of a delivery, and the rows of buttons below the last
        one.
        """
        # in threads, as a report may be long: 200 kB take some seconds
        message = await asyncio.to_thread(compose, delivery)
        body = fence(message.body) if message.verbatim else message.body
        is_answer = delivery.routine == ASK and delivery.kind == "report"
        if is_answer and delivery.report.status is Status.SUCCEEDED:
            text = message.text
        else:
            about = f"*{message.about}*\n\n" if message.about else ""
            text = f"**{message.title}**\n\n{about}{body}"
        parts = await asyncio.to_thread(
            self._chat.split, text, run=delivery.run, sanitize=message.sanitize
        )
        if delivery.kind != "question":
            return parts, ()
        approvals = []
        for id_ in delivery.options.get("approvals", ()):
            try:
                approvals.append(await self._journal.approvals.get(str(id_)))
            except NotFound:  # its run was forgotten
                continue
        outcomes = [_describe_outcome(item) for item in approvals if item.status in _OUTCOMES]
        if outcomes:
            parts[-1] = self._add_outcomes(parts[-1], outcomes)
        numbered_approvals = [*enumerate(approvals, 1)]
        pending_approvals = [
            item for item in numbered_approvals if item[1].status is ApprovalStatus.PENDING
        ]
        has_several = len(numbered_approvals) > 1
        return parts, [
            _make_buttons(item, number if has_several else 0) for number, item in pending_approvals
        ]

    def _add_outcomes(self, part: str, outcomes: Sequence[str]) -> str:
        """Return the last part of a question with the decisions below it, or the decisions alone
        where both are too long for one message.
        """
        decisions = "\n\n".join(outcomes)
        text = f"{part}\n\n{decisions}"
        return text if len(self._chat.split(text)) == 1 else self._chat.split(decisions)[0]


def _make_buttons(approval: Approval, number: int) -> list[Button]:
    """Return the two buttons that approve or reject exactly this request. `number` stands in their
    labels where one message asks about several calls; 0 for a single one.
    """
    name = f" {number}: {approval.approval_request.tool}"[:40] if number else ""
    digest = approval.approval_request.digest[:_DIGEST_CHARACTERS]
    return [
        Button(label=f"Approve{name}", data=f"{APPROVE}:{approval.id}:{digest}"),
        Button(label=f"Reject{name}", data=f"{REJECT}:{approval.id}:{digest}"),
    ]


def parse_button(data: str) -> tuple[str, str, str] | None:
    """Return the answer (APPROVE or REJECT), the id of the approval and the beginning of the digest
    of its request; None if this is no button of ours.
    """
    match = re.fullmatch(
        rf"({APPROVE}|{REJECT}):([0-9A-Z]{{26}}):([0-9a-f]{{{_DIGEST_CHARACTERS}}})", data
    )
    return (match[1], match[2], match[3]) if match else None


def _describe_outcome(approval: Approval) -> str:
    """Return the decision about a call, in a line of Markdown."""
    person = re.sub(r"[^\w .,()'-]", "", approval.by)
    by = f" by {person}" if person else ""
    return f"**{_OUTCOMES[approval.status]}{by}**: `{approval.approval_request.tool}`"
