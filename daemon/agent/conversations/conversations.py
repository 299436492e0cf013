"""`ask` and `tell`: a message becomes a new run, or part of one that is under way."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from daemon.agent.conversations.inbox import Inbox
from daemon.agent.conversations.routing import belongs_to
from daemon.agent.conversations.sessions import EarlierConversation, Sessions
from daemon.definitions.config.live import LiveConfig
from daemon.definitions.routines.routine import Budget, Routine, RunSpec
from daemon.errors import Refused
from daemon.models import Json, LLMMessage, Run
from daemon.store.journal import Claim

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.memory.memory import Memory
    from daemon.providers import LLMProvider
    from daemon.providers.pool import Providers
    from daemon.store.journal import Journal
    from daemon.system.clock import Clock

log = structlog.get_logger()

ASK = "ask"
"""The routine that answers people; no file may have its name."""
SESSION = "default"
LONGEST = 200_000  # characters of one message
EXCERPT = 6_000  # characters of a run's report that a later one is shown


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutedMessage:
    """What became of a message."""

    run: Run
    new: bool
    """Whether the run was begun for it."""


def routine_of(config: Config) -> Routine:
    """Return what answers people, as the config wants it."""
    ask = config.ask
    spec = RunSpec(
        mode="agent",
        provider=ask.provider,
        model=ask.model,
        fallback=ask.fallback,
        tools=ask.tools,
        skills="auto" if ask.skills else (),
        memory="recall+store",
        timeout=ask.timeout,
        max_iterations=ask.max_iterations,
        budget=Budget(tokens=ask.tokens, usd=ask.usd),
    )
    return Routine(name=ASK, description="answers people", run=spec)


class ConversationSettings(LiveConfig, Protocol):
    """The config and the models that it names, as they are in force."""

    @property
    def providers(self) -> Providers: ...


class Conversations:
    """Take messages of people."""

    def __init__(
        self,
        journal: Journal,
        memory: Memory,
        *,
        settings: ConversationSettings,
        submit: Callable[[Run], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._journal, self._memory, self._settings = journal, memory, settings
        self._submit, self._clock = submit, clock
        self.inbox = Inbox()

    @property
    def _language(self) -> str:
        return self._settings.config.agent.language

    @property
    def _provider(self) -> LLMProvider:
        """Return the model that answers people, as the config names it now."""
        return self._settings.providers.chain(routine_of(self._settings.config))[0]

    async def open(self) -> None:
        """Lay ready what runs were told before the daemon stopped."""
        self.inbox.put(await self._journal.runs.find_messages())

    async def ask(
        self, text: str, *, event: str, session: str | None = None, fresh: bool = False
    ) -> RoutedMessage:
        """Put a message to the agent: to the run it belongs to, else to a new one that knows the
        conversation.

        `fresh` begins the conversation anew and asks nobody whether the message belongs to a run
        under way.
        """
        text, session = _checked(text), _checked_name(session or SESSION)
        event = f"{session}/{event}"
        if earlier := await self._journal.slots.get_run_of_event(ASK, event):
            return RoutedMessage(run=earlier, new=True)
        if self._settings.config.ask.auto_route and not fresh:
            active = [
                run for run in await self._journal.runs.find_active() if run.trigger != "subagent"
            ]
            if active and (run := await belongs_to(text, active, self._provider, self._language)):
                told = await self._journal.runs.send_message(run.id, text, event=event)
                if told is not None:
                    self.inbox.put([told])
                    return RoutedMessage(run=run, new=False)
        if fresh:
            newest = await self._journal.runs.find_turns(ASK, session, before=_AFTER_ALL, limit=1)
            await self._sessions().begin_anew(session, newest[0].id if newest else "")
        return RoutedMessage(run=await self._begin(text, event, {"session": session}), new=True)

    async def tell(self, run: Run, text: str, *, event: str) -> RoutedMessage:
        """Tell a run something: at its next iteration, or in a new run that knows of it if it has
        ended.
        """
        text = _checked(text)
        message = await self._journal.runs.send_message(run.id, text, event=event)
        if message is not None:
            self.inbox.put([message])
            return RoutedMessage(run=run, new=False)
        return RoutedMessage(run=await self._follow_up(run, text, event), new=True)

    def owes_nothing(self, run: Run) -> bool:
        """Return whether a run was told nothing that it has not heard."""
        return not self.inbox.holds(run.id)

    async def ended(self, run: Run) -> None:
        """Give what a run was told too late to a run of its own: it was acknowledged, so it is
        answered.
        """
        late = self.inbox.take(run.id)
        if not late:
            return
        received = {step.body.get("told") for step in await self._journal.runs.get_steps(run.id)}
        for message in late:
            if message.id not in received:
                await self._follow_up(run, message.text, f"told {message.id}")

    async def history(self, run: Run) -> EarlierConversation:
        """Return what was said before, for the first prompt of a run that answers a person."""
        given: Json = await self._journal.runs.get_input(run.id) or {}
        if about := given.get("about"):
            before = await self._journal.runs.get(about)
            return EarlierConversation(_excerpt(before, self._language), bool(before.taint))
        return await self._sessions().history(given.get("session", SESSION), run, self._provider)

    def _sessions(self) -> Sessions:
        return Sessions(self._journal, self._memory, routine=ASK, language=self._language)

    async def _follow_up(self, run: Run, text: str, event: str) -> Run:
        log.info("message.began_a_run", about=run.id)
        return await self._begin(text, f"{run.id}/{event}", {"about": run.id})

    async def _begin(self, text: str, event: str, run_input: Json) -> Run:
        routine = routine_of(self._settings.config)
        claim = Claim(
            routine=ASK,
            definition=routine.dump(),
            trigger=ASK,
            slot=self._clock.now(),
            goal=text,
            event=event,
            input=run_input,
        )
        (run,) = await self._journal.slots.open([claim])
        run = run or await self._journal.slots.get_run_of_event(ASK, event)
        if run is None:
            raise Refused("the run of this message has just been forgotten; ask again")
        await self._submit(run)
        return run


_AFTER_ALL = "~"  # behind every id of a run


def _excerpt(run: Run, language: str) -> list[LLMMessage]:
    """Return a run as a turn of a conversation."""
    report = run.report or run.detail or "-"
    if len(report) > EXCERPT:
        report = f"{report[:EXCERPT]}\n[…]"
    zh = language == "zh"
    goal = (
        f"[{'任务' if zh else 'The task of the routine'} {run.routine}, {run.slot:%Y-%m-%d %H:%M} "
        f"UTC]\n{run.goal}"
    )
    return [LLMMessage(role="user", content=goal), LLMMessage(role="assistant", content=report)]


def _checked(text: str) -> str:
    if not text.strip():
        raise Refused("there is nothing in this message")
    if len(text) > LONGEST:
        raise Refused(
            (  # noqa: UP034
                f"the message has {len(text)} characters; at most {LONGEST} are taken. Put it into "
                "a file instead"
            )
        )
    return text


def _checked_name(session: str) -> str:
    """Return a session's name as events can begin with it."""
    if (
        session.isascii()
        and session.replace("-", "").replace("_", "").replace(".", "").isalnum()
        and len(session) < 65
    ):
        return session
    digest = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
    return f"s-{digest}"
