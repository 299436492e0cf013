"""The commands of a chat: `/status`, `/pause NAME`, `/resume`, `/run NAME` and others, as agentctl
has them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon.definitions.values import parse_duration
from daemon.errors import Refused
from daemon.models import ApprovalStatus
from daemon.scheduler.triggers import input_by_hand

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import ChatOrigin
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

HELP = """\
Write what you want to know or have done. Answer a report or an answer of mine to speak about it.

/new TEXT: begin the conversation anew
/status: what runs, waits and comes next
/run NAME [TEXT]: run a routine now
/pause NAME [2h]: let a routine not start, for so long or until it is resumed
/resume [NAME]: let it start again, or all that are paused
/help: this"""
_MAX_LINES = 15  # of one list in /status


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatCommand:
    """A command as a person wrote it."""

    name: str
    """In lower case, without the slash."""
    text: str
    """The rest of the message behind the name."""
    quotation: str
    """Words of others that the message forwards or quotes; empty for none."""
    origin: ChatOrigin


def parse_command(text: str) -> tuple[str, str] | None:
    """Return (name, rest of the text) of a command; None for a text that is no command.

    `/run@some_bot NAME` names the bot that is meant, as groups with several bots require.
    """
    match = re.fullmatch(r"/([A-Za-z_]{1,32})(?:@\w+)?(?:\s+(.*))?\s*", text, re.DOTALL)
    return (match[1].lower(), (match[2] or "").strip()) if match else None


class ChatCommands:
    """Execute the commands of allowed people."""

    def __init__(
        self,
        engine: RoutineEngine,
        journal: Journal,
        clock: Clock,
        *,
        redact: Callable[[str], str],
    ) -> None:
        self._engine, self._journal, self._clock = engine, journal, clock
        self._redact = redact
        self._handlers: Mapping[str, Callable[[ChatCommand], Awaitable[str]]] = {
            "start": self._help,
            "help": self._help,
            "status": self._status,
            "run": self._run,
            "pause": self._pause,
            "resume": self._resume,
        }

    async def execute(self, command: ChatCommand) -> str:
        """Do what a command says, and return the answer in Markdown. Raises NotFound, Refused."""
        handler = self._handlers.get(command.name)
        if handler is None:
            raise Refused(f"there is no command /{command.name}; /help lists those there are")
        return await handler(command)

    async def _help(self, command: ChatCommand) -> str:
        return HELP

    async def _run(self, command: ChatCommand) -> str:
        name, text = _split_name(command.text)
        if not name:
            raise Refused("which routine? /run NAME")
        words = self._redact("\n\n".join(filter(None, (text, command.quotation))))
        run_input = input_by_hand(words, is_tainted=bool(command.quotation)) if words else None
        run = await self._engine.run_now(name, event=command.origin.event, run_input=run_input)
        targets = [
            f"`{rule.to}`"
            for rule in self._engine.routines[name].deliver
            if rule.to != command.origin.chat
        ]
        where = f" and to {', '.join(targets)}" if targets else ""
        return f"Run `{run.id}` of `{name}` is {run.status.value}. Its report comes here{where}."

    async def _pause(self, command: ChatCommand) -> str:
        name, duration = _split_name(command.text)
        if not name:
            raise Refused("which routine? /pause NAME")
        length = None
        if duration:
            try:
                length = parse_duration(duration)
            except ValueError as error:
                raise Refused(f"for how long? {error}, like /pause {name} 2h") from None
            if not length:
                raise Refused(f"for how long? {duration} is no time, like /pause {name} 2h")
        await self._engine.pause(name, length=length)
        end = f" for {duration}" if length else f" until /resume {name}"
        return f"`{name}` is paused{end}."

    async def _resume(self, command: ChatCommand) -> str:
        if name := command.text.lower():
            await self._engine.resume(name)
            return f"`{name}` goes on."
        names = self._paused_names()
        for name in names:
            await self._engine.resume(name)
        if not names:
            return "Nothing is paused."
        return f"{', '.join(f'`{name}`' for name in names)} go on."

    async def _status(self, command: ChatCommand) -> str:
        active = await self._journal.runs.find_active()
        pending_approvals = await self._journal.approvals.find(status=ApprovalStatus.PENDING)
        incidents = await self._journal.incidents.find_open()
        lines = [f"{len(self._engine.routines)} routines."]
        lines += _list_paragraph(
            "Under way",
            [
                f"`{run.routine}`, {run.status.value}, since {run.created:%Y-%m-%d %H:%M} UTC"
                for run in active
            ],
        )
        lines += _list_paragraph(
            "Waiting for an answer",
            [f"`{item.approval_request.tool}` for {item.routine}" for item in pending_approvals],
        )
        lines += _list_paragraph("Incidents", [incident.subject for incident in incidents])
        lines += _list_paragraph("Paused", [f"`{name}`" for name in self._paused_names()])
        starts = [
            (start, name)
            for name in self._engine.routines
            for start in self._engine.next_slots(name, 1)
        ]
        if starts:
            start, name = min(starts)
            lines.append(f"Next: `{name}` at {start:%Y-%m-%d %H:%M %Z}.")
        if self._engine.faults:
            lines += _list_paragraph(
                "Cannot be used", [f"`{name}`" for name in self._engine.faults]
            )
        return "\n\n".join(lines)

    def _paused_names(self) -> list[str]:
        now = self._clock.now()
        return sorted(name for name, state in self._engine.states.items() if state.is_paused(now))


def _split_name(text: str) -> tuple[str, str]:
    """Return the name of a routine, and what stands behind it, also in the next line. No name has
    a capital letter, and keyboards of phones begin words with one.
    """
    name, *rest = text.split(maxsplit=1) or [""]
    return name.lower(), rest[0] if rest else ""


def _list_paragraph(title: str, items: list[str]) -> list[str]:
    """Return a paragraph with a list, the first items of a long one; nothing for an empty one."""
    if not items:
        return []
    lines = [f"- {item}" for item in items[:_MAX_LINES]]
    if len(items) > _MAX_LINES:
        lines.append(f"- and {len(items) - _MAX_LINES} more")
    return ["\n".join([f"{title}:", *lines])]
