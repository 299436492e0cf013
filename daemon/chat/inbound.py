"""Handle what allowed people send in a chat: questions, replies to reports, commands, and presses
of the buttons that approve or reject a call.

Each event is handled once: the position up to which the chat was read is in the store, and is
written in the same transaction as the run that a message begins. Of other people's events only the
sender is looked at.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from daemon.agent.conversations.conversations import ASK, ChatOrigin
from daemon.chat.base import ButtonPress, ChatEvent, ChatFailed, ReceivedMessage
from daemon.chat.channel import APPROVE, parse_button
from daemon.chat.commands import ChatCommand, ChatCommands, parse_command
from daemon.errors import DaemonError, DatabaseAway, NotFound, Refused, StoreFull
from daemon.models import Run
from daemon.store.chat_messages import REMARK, ChatMessage

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.chat.base import Chat
    from daemon.chat.channel import ChatChannel
    from daemon.chat.live_answers import LiveAnswers
    from daemon.runs.approvals.approvals import Approvals
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

# Seconds before a service that took no request is asked again: the first time, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 2.0, 60.0
# Seconds before it is asked again after a refusal that will not go away by itself.
_WAIT_AFTER_REFUSAL = 600.0
# Ids of handled events that are kept: a service repeats at most the events of its last answer.
_MAX_HANDLED_IDS = 200
# Senders that are not on the list, of which the log has a line each.
_MAX_STRANGERS = 100
# The question of a person who forwards a text without a word of their own, by language.
_FORWARDED_PROMPTS = {
    "en": "I have forwarded what stands below. Tell me what it says and whether I have to do "
    "something.",
    "zh": "以下内容是我转发的。请告诉我它说了什么,以及我是否需要做什么。",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class InboundServices:
    """The parts of the daemon that people reach by a chat."""

    settings: LiveSettings
    journal: Journal
    conversations: Conversations
    approvals: Approvals
    engine: RoutineEngine
    clock: Clock
    redact: Callable[[str], str]


class ChatInbound:
    """Reads one chat, as long as `run` runs; in a cluster only the leader does."""

    def __init__(
        self,
        name: str,
        chat: Chat,
        *,
        channel: ChatChannel,
        live_answers: LiveAnswers,
        services: InboundServices,
    ) -> None:
        self.name = name
        self._chat, self._channel, self._live_answers = chat, channel, live_answers
        self._services = services
        self._commands = ChatCommands(
            services.engine, services.journal, services.clock, redact=services.redact
        )
        self._position = ""
        self._handled_ids: deque[str] = deque(maxlen=_MAX_HANDLED_IDS)
        """The ids of the last events that were handled, oldest first."""
        self._strangers: set[tuple[str, str]] = set()
        """(person, conversation) of senders that are not on the list and that the log has named."""

    @property
    def _position_key(self) -> str:
        return f"chat:{self.name}"

    async def run(self) -> None:
        """Read and handle events until cancelled."""
        await self.load()
        wait, last_problem = _FIRST_WAIT, ""
        while True:
            try:
                await self.receive_once()
            except (ChatFailed, StoreFull, DatabaseAway) as error:
                if isinstance(error, ChatFailed) and not error.retry:
                    wait = _WAIT_AFTER_REFUSAL
                elif isinstance(error, ChatFailed) and error.after is not None:
                    wait = max(wait, error.after)
                if str(error) != last_problem:  # a line for each problem, not for each attempt
                    log.warning("chat.unreachable", chat=self.name, detail=str(error), again=wait)
                last_problem = str(error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
            else:
                if last_problem:
                    log.info("chat.reachable", chat=self.name)
                wait, last_problem = _FIRST_WAIT, ""

    async def receive_once(self) -> None:
        """Wait for events and handle them.

        Raises ChatFailed if the service does not answer. Raises StoreFull or DatabaseAway if an
        event could not be handled: the next call receives it again.
        """
        batch = await self._chat.receive(self._position)
        for event in batch.events:
            if event.id in self._handled_ids:
                self._position = event.position
                continue
            await self._handle(event)
        if batch.position != self._position:  # events of other kinds came after those of the batch
            self._position = batch.position
            await self._services.journal.key_values.put(self._position_key, self._dump_state())

    async def load(self) -> None:
        """Read from the store up to where the chat was handled."""
        text = await self._services.journal.key_values.get(self._position_key)
        if text:
            state = json.loads(text)
            self._position = str(state["position"])
            self._handled_ids.extend(map(str, state["handled"]))

    def _dump_state(self) -> str:
        return json.dumps({"position": self._position, "handled": list(self._handled_ids)})

    async def _handle(self, event: ChatEvent) -> None:
        """Handle an event, and write to the store that it was handled."""
        old_position, old_handled_ids = self._position, list(self._handled_ids)
        self._position = event.position
        self._handled_ids.append(event.id)
        key_values = {self._position_key: self._dump_state()}
        try:
            if not self._is_allowed(event):
                self._log_stranger(event)
            elif isinstance(event, ButtonPress):
                await self._handle_press(event)
            elif isinstance(event, ReceivedMessage):
                await self._handle_message(event, key_values)
            await self._services.journal.key_values.put(
                self._position_key, key_values[self._position_key]
            )
        except (StoreFull, DatabaseAway):
            self._position = old_position
            self._handled_ids = deque(old_handled_ids, maxlen=_MAX_HANDLED_IDS)
            raise

    def _is_allowed(self, event: ChatEvent) -> bool:
        """Tell whether the list `allow` has the person, and the group if it was sent in one. The id
        of a conversation with one person is that person's.
        """
        table = self._services.settings.config.chat.get(self.name)
        return table is not None and {event.person.id, event.conversation} <= table.allowed_ids

    def _log_stranger(self, event: ChatEvent) -> None:
        stranger = (event.person.id, event.conversation)
        if stranger not in self._strangers and len(self._strangers) < _MAX_STRANGERS:
            self._strangers.add(stranger)
            log.info(
                "chat.ignored",
                chat=self.name,
                person=event.person.id,
                conversation=event.conversation,
                why=f"not on the list [chat.{self.name}] allow",
            )

    async def _handle_message(self, message: ReceivedMessage, key_values: dict[str, str]) -> None:
        """Handle a message of an allowed person. An error is sent as the answer, except those after
        which the message comes again.
        """
        try:
            answer, run = await self._answer(message, key_values)
        except (StoreFull, DatabaseAway, ChatFailed):
            raise
        except DaemonError as error:
            answer, run = str(error), None
        except Exception as error:
            log.exception("chat.crashed", chat=self.name, message=message.message)
            answer, run = f"That went wrong here: {type(error).__name__}; the log has more.", None
        if answer:
            await self._reply(message, answer, run)

    async def _answer(
        self, message: ReceivedMessage, key_values: dict[str, str]
    ) -> tuple[str, Run | None]:
        """Do what a message says. Return the text to reply at once (empty if the agent answers
        later), and the run that the text is about.
        """
        origin = ChatOrigin(
            chat=self.name, conversation=message.conversation, message=message.message
        )
        quotation, notes = await self._read_files(message)
        text = message.text
        is_new_session = False
        if command := parse_command(text):
            name, text = command
            if name != "new":
                command_request = ChatCommand(
                    name=name, text=text, quotation=quotation, origin=origin
                )
                log.info("chat.command", chat=self.name, person=message.person.id, command=name)
                return await self._commands.execute(command_request), None
            is_new_session = True
        if not text.strip():
            if not quotation:
                return "\n".join(notes) or "Say something behind /new.", None
            text = _FORWARDED_PROMPTS[self._services.settings.config.agent.language]
        if notes:
            await self._reply(message, "\n".join(notes), None)
        return await self._ask(
            message, origin, text, quotation, key_values, is_new_session=is_new_session
        )

    async def _ask(
        self,
        message: ReceivedMessage,
        origin: ChatOrigin,
        text: str,
        quotation: str,
        key_values: dict[str, str],
        *,
        is_new_session: bool,
    ) -> tuple[str, Run | None]:
        """Put a message to the agent, whose answer is a delivery of its run. Returns what `_answer`
        returns.
        """
        conversations = self._services.conversations
        session, about_run = f"chat-{self.name}-{message.conversation}", None
        earlier_run = None if is_new_session else await self._find_run_replied_to(message)
        if earlier_run is not None:
            # words of others would taint the run under way, so they begin a new one
            if (
                not quotation
                and not earlier_run.status.has_ended
                and await conversations.tell_active(
                    earlier_run, text, event=origin.event, key_values=key_values
                )
            ):
                return _confirm_message(earlier_run), earlier_run
            session, about_run = await self._choose_session(session, earlier_run)
        routed_message = await conversations.ask(
            text,
            event=origin.event,
            session=session,
            is_new_session=is_new_session,
            about_run=about_run,
            quotation=quotation,
            origin=origin,
            key_values=key_values,
        )
        if not routed_message.has_new_run:
            return _confirm_message(routed_message.run), routed_message.run
        self._live_answers.follow(routed_message.run.id, origin)
        return "", None

    async def _find_run_replied_to(self, message: ReceivedMessage) -> Run | None:
        """Return the run whose report or answer a message replies to; None if it replies to nothing
        or to another message.
        """
        if message.reply_to is None:
            return None
        journal = self._services.journal
        chat_message = await journal.chat_messages.find(
            self.name, message.conversation, message.reply_to
        )
        if chat_message is None or chat_message.run is None:
            return None
        try:
            return await journal.runs.get(chat_message.run)
        except NotFound:
            return None

    async def _choose_session(self, session: str, run: Run) -> tuple[str, str | None]:
        """Return the session that a reply to a message of `run` belongs to, and the id of the run
        with whose report that session begins (None if it begins with none).

        `session` is the one of the whole conversation.
        """
        if run.routine != ASK:
            return f"{session}-{run.id}", run.id
        run_input = await self._services.journal.runs.get_input(run.id) or {}
        # a run that answers a message which reached another run too late has no session yet
        own_session = f"{session}-{run_input['about']}" if "about" in run_input else session
        return run_input.get("session", own_session), run_input.get("about")

    async def _read_files(self, message: ReceivedMessage) -> tuple[str, list[str]]:
        """Return what a message quotes together with the texts of its files, and for the person a
        sentence on each thing that cannot be read.
        """
        quotes, notes = [message.quotation] if message.quotation else [], list(message.notes)
        for file in message.files:
            try:
                quotes.append(f"[{file.name}]\n{await self._chat.read_file(file)}")
            except ChatFailed as error:
                notes.append(f"The file {file.name} is not read: {error}.")
        return "\n\n".join(quotes), notes

    async def _handle_press(self, press: ButtonPress) -> None:
        """Approve or reject the call of a button; the message then shows the decision."""
        approvals = self._services.approvals
        approver = f"{press.person.name} ({self.name} {press.person.id})"
        button = parse_button(press.data)
        run = None
        if button is None:
            outcome = "This is no button of mine."
        else:
            answer, id_, digest = button
            try:
                approval = await self._services.journal.approvals.get(id_)
                run = approval.run
                if not approval.approval_request.digest.startswith(digest):
                    raise Refused("this is not what was asked; look at it again")
                if answer == APPROVE:
                    await approvals.approve(id_, by=approver)
                    outcome = "Approved."
                else:
                    await approvals.reject(id_, by=approver)
                    outcome = "Rejected."
            except (Refused, NotFound) as error:
                outcome = str(error)
        try:
            await self._chat.answer_press(press, outcome)
            if run is not None:
                await self._channel.refresh_questions(run)
        except ChatFailed as error:  # the decision holds, whether the chat shows it or not
            log.warning("chat.answer_not_shown", chat=self.name, detail=str(error))
        if run is not None:
            await self._follow_again(run)

    async def _follow_again(self, run: str) -> None:
        """Go on showing the answer of a run that has waited for the decision about a call."""
        run_input = await self._services.journal.runs.get_input(run)
        origin = run_input.get("chat") if isinstance(run_input, dict) else None
        if isinstance(origin, dict) and origin.get("name") == self.name:
            self._live_answers.follow(
                run,
                ChatOrigin(
                    chat=self.name,
                    conversation=origin["conversation"],
                    message=origin["message"],
                ),
            )

    async def _reply(self, message: ReceivedMessage, text: str, run: Run | None) -> None:
        """Reply to a message at once with a text about `run`. A reply that does not arrive is only
        logged: the message was handled, and must not be handled twice.
        """
        try:
            for part in self._chat.split(text):
                id_ = await self._chat.send(message.conversation, part, reply_to=message.message)
                if run is not None:
                    await self._services.journal.chat_messages.record(
                        ChatMessage(
                            chat=self.name,
                            conversation=message.conversation,
                            message=id_,
                            run=run.id,
                            part=REMARK,
                        )
                    )
        except ChatFailed as error:
            log.warning("chat.answer_lost", chat=self.name, detail=str(error))


def _confirm_message(run: Run) -> str:
    return f"I have told `{run.routine}` (run `{run.id}`), which is under way."
