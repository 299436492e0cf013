"""The agent: a provider, functions, memory and a policy behind `process_message`.

It can be used alone, as a library: only the provider is needed, and steps are then kept in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog

from daemon.agent.loop import LoopLimits, converse
from daemon.agent.prompt import Persona, PromptContext, join, render
from daemon.agent.tool_calls import (
    AllowAll,
    Approver,
    CallRecorder,
    DenyApprovals,
    NoInspection,
    PolicyEngine,
    ResultInspector,
    ToolCallRunner,
    cleaned,
)
from daemon.agent.transcript import PendingCall, Transcript, fact_body, image_body, llm_step
from daemon.errors import ContextOverflow, OverBudget, Overloaded, ProviderError, Retryable
from daemon.models import (
    Chunk,
    Fact,
    Image,
    Json,
    LLMMessage,
    LLMResponse,
    Reply,
    Status,
    Step,
    StepKind,
    Taint,
    ToolContext,
    worse,
)

if TYPE_CHECKING:
    from daemon.memory.memory import Memory
    from daemon.providers import LLMProvider
    from daemon.tools.executor import ToolExecutor
    from daemon.tools.registry import FunctionRegistry

T = TypeVar("T")
log = structlog.get_logger()
RESTARTS = 2  # times that a conversation may outgrow the model before the run fails
NEVER = 10 * 365 * 86400.0  # seconds; a deadline for callers that have none


class IncomingMessage(Protocol):
    """What somebody said to a run under way."""

    @property
    def id(self) -> int: ...
    @property
    def text(self) -> str: ...


class MessageSource(Protocol):
    """Where messages to runs under way lie."""

    def take(self, run: str, heard: set[int]) -> Sequence[IncomingMessage]:
        """Take out what a run has not heard."""


class SkillChooser(Protocol):
    """Skills to choose from."""

    def catalogue(self) -> Sequence[tuple[str, str]]: ...
    def guides(self, names: Sequence[str]) -> str: ...


class _NoMessages:
    """For an agent to which nobody speaks but its caller."""

    def take(self, run: str, heard: set[int]) -> Sequence[IncomingMessage]:
        return ()


class _StepsInMemory:
    """Steps kept in memory, for an agent without a journal."""

    is_exclusive = True

    def __init__(self) -> None:
        self.steps: list[Step] = []

    async def append(self, *steps: Step, durable: bool = False) -> None:
        self.steps.extend(steps)

    def write_lazily(self, *steps: Step) -> None:
        self.steps.extend(steps)


class Agent:
    """Answer messages by asking a model and running the functions it calls for.

    `journal` keeps the steps; `steps` are those of an earlier attempt, which the next
    `process_message` goes on from. `approver` is where calls lie that a person has to allow,
    `inspector` looks at what calls bring, `taint` is what the conversation holds of strangers
    before it begins, `said` what people and the agent have said before. From `inbox` come messages
    while it is under way; while it is `watched`, answers are emitted piece by piece. `deadline` is
    in the event loop's time. `fallback` are providers to try, in order, when one fails for good.
    `prompt` is the body of a `prompt` step to begin with instead of rendering one, `executor` who
    runs the calls.
    """

    def __init__(
        self,
        provider: LLMProvider,
        tools: FunctionRegistry | None = None,
        memory: Memory | None = None,
        policy: PolicyEngine | None = None,
        journal: CallRecorder | None = None,
        *,
        context: PromptContext | None = None,
        system_prompt: str = "",
        tool_context: ToolContext | None = None,
        offered: Sequence[str] | None = None,
        required_tools: Sequence[str] = (),
        limits: LoopLimits | None = None,
        fallback: Sequence[LLMProvider] = (),
        steps: Iterable[Step] = (),
        deadline: float | None = None,
        emit: Callable[[Json], None] = lambda _event: None,
        redact: Callable[[str], str] = str,
        approver: Approver | None = None,
        inspector: ResultInspector | None = None,
        stamp: Callable[[], Json] = dict,
        taint: Taint = Taint.NONE,
        said: Sequence[LLMMessage] = (),
        inbox: MessageSource | None = None,
        watched: Callable[[], bool] = lambda: False,
        skills: SkillChooser | None = None,
        prompt: Json | None = None,
        executor: ToolExecutor | None = None,
    ) -> None:
        from daemon.tools.executor import ToolExecutor
        from daemon.tools.registry import FunctionRegistry

        self.registry = tools if tools is not None else FunctionRegistry()
        self.memory, self.policy, self.journal = (
            memory,
            policy or AllowAll(),
            journal or _StepsInMemory(),
        )
        self.context = context or _context_of_a_library_user()
        self.limits, self.required_tools, self.deadline = (
            limits or LoopLimits(),
            required_tools,
            deadline,
        )
        self.emit, self.redact = emit, redact
        self.approver, self.inspector, self.stamp = (
            approver or DenyApprovals(),
            inspector or NoInspection(),
            stamp,
        )
        self.transcript = Transcript(steps, taint)
        self.inbox, self.watched, self._said = inbox or _NoMessages(), watched, said
        self._skills = skills
        self.start = 0
        self._system_prompt = system_prompt
        self._offered = offered
        self._resumed = self.transcript.frozen is not None
        self._chain = [provider, *fallback]
        self._noted: list[Step] = []
        self._binding = False
        """Among what was noted is more than results of calls that may be made again: it is safe
        before a question.
        """
        self._executor = executor or ToolExecutor(self.registry)
        self._prompt = prompt
        self._tool_context = tool_context or ToolContext(
            run="",
            routine=self.context.routine,
            workspace=self.context.workspace,
            language=self.language,
        )

    # --- what a program that uses the agent calls ---

    async def process_message(
        self,
        text: str,
        *,
        about: str | None = None,
        facts: Sequence[Fact] = (),
        taint: Taint = Taint.NONE,
        media: Sequence[Image | str | Path] = (),
        notes: Sequence[str] = (),
    ) -> Reply:
        """Answer the message; an agent made from earlier steps goes on with the message it was in
        instead.

        `about` is what to look for in memory, by default the message; `facts` are those that its
        text holds, for the provider `offline`; `taint` is what of strangers it holds; `media` are
        pictures to show with it, `notes` what whoever reads of the run should know. Raises
        ValueError for a file that is no picture, ProviderError when no provider of the chain gave
        an answer, ApprovalRequired when a person has to answer.
        """
        if self._resumed:
            self._resumed = False
        else:
            self.start = self.transcript.iterations
            images = [
                each if isinstance(each, Image) else await asyncio.to_thread(_picture, each)
                for each in media
            ]
            await self._open(text, about or text, facts, taint, images, notes)
        if question := (self.transcript.frozen or {}).get("route", {}).get("question"):
            return self._unclear(question)
        return await converse(self)

    def _unclear(self, question: str) -> Reply:
        """Put the question to whoever is there; in a routine nobody is."""
        self.flush()
        if self.context.routine:
            return Reply(
                content=question, status=Status.FAILED, detail=f"the task is not clear: {question}"
            )
        return Reply(content=question, usage=self.transcript.usage)

    async def process_message_stream(
        self,
        text: str,
        events: Callable[[Json], None],
        *,
        about: str | None = None,
        media: Sequence[Image | str | Path] = (),
    ) -> Reply:
        """Answer like `process_message`, handing over what happens: thinking, deltas, calls and
        their results.
        """
        before = self.emit, self.watched
        self.emit, self.watched = events, lambda: True
        try:
            return await self.process_message(text, about=about, media=media)
        finally:
            self.emit, self.watched = before

    async def parse_message(self, sender: str, timestamp: datetime, content: str) -> list[Json]:
        """Return the records that a message holds, as JSON objects; the conversation is untouched.

        ValueError.
        """
        stamp = f"{timestamp:%Y-%m-%d %H:%M %Z}".strip()
        return await self.extract(f"[{sender}, {stamp}]\n{content}", list[Json])

    async def extract(self, text: str, schema: type[T]) -> T:
        """Return what a text says in the form of a schema, any type that pydantic knows; the
        conversation is untouched.

        An answer that does not fit is put to the model once more with its faults. Raises ValueError
        for a second one.
        """
        from daemon.agent.extraction import extract

        return await extract(self._ask_aside, text, schema, self.language)

    def preview(self) -> tuple[dict[str, str], list[Json]]:
        """Return the sections of the prompt and the functions that a message would begin with;
        nothing is asked.
        """
        functions = self._schemas()
        context = replace(
            self.context, tools=[each["name"] for each in functions], boundary="0" * 32
        )
        return render(context), list(functions)

    @property
    def history(self) -> list[LLMMessage]:
        """The conversation so far, the system prompt first."""
        return list(self.transcript.messages)

    def set_history(self, messages: Sequence[LLMMessage]) -> None:
        """Take another conversation as the one so far; its first message may be a system prompt."""
        self.transcript = Transcript()
        self.transcript.messages.extend(messages)
        if messages and messages[0].role == "system":
            self.transcript.frozen = {"system": messages[0].content, "functions": self._schemas()}
            self.transcript.functions = self._schemas() or None

    def clear_history(self) -> None:
        """Forget the conversation but keep the system prompt."""
        self.set_history(
            [message for message in self.transcript.messages[:1] if message.role == "system"]
        )

    def set_routine_name(self, name: str) -> None:
        """Say for which routine the agent works; adds the rules of unattended runs to the
        prompt.
        """
        self.context = replace(self.context, routine=name)
        self._tool_context = replace(self._tool_context, routine=name)

    def inject_skill_context(self, text: str) -> None:
        """Put a skill's guide into the prompt."""
        self.context = replace(self.context, skill=text)

    def inject_identity_context(self, text: str) -> None:
        """Put the owner's own words on who the agent is into the prompt."""
        self.context = replace(self.context, identity=text)

    def register_function(
        self, name: str, description: str, func: Callable[..., Any], parameters: Json | None = None
    ) -> None:
        """Let the model call one more function."""
        self.registry.register(name, description, func, parameters)

    # --- what the loop calls ---

    @property
    def begun(self) -> bool:
        """It goes on with the message of an earlier attempt."""
        return self._resumed

    @property
    def language(self) -> str:
        return self.context.persona.language

    @property
    def silent_token(self) -> str:
        return self.context.silent_token

    @property
    def provider(self) -> LLMProvider:
        """The provider that is asked now: the first of the chain, or the one a failover led to."""
        name = self.transcript.provider
        if name is None:
            return self._chain[0]
        return next((provider for provider in self._chain if provider.name == name), self._chain[0])

    @property
    def offered(self) -> list[str]:
        """The names of the functions a model may call here."""
        frozen = self.transcript.frozen
        if frozen is not None:
            return [function["name"] for function in frozen.get("functions") or ()]
        return [function["name"] for function in self._schemas()]

    def _schemas(self) -> list[Json]:
        return self.registry.list_functions(
            self._offered
        )  # not a copy: providers translate each list once

    async def _open(
        self,
        text: str,
        about: str,
        facts: Sequence[Fact],
        taint: Taint,
        images: Sequence[Image] = (),
        notes: Sequence[str] = (),
    ) -> None:
        """Render the prompt, once per conversation, and take in the message."""
        if self.transcript.frozen is None and self._prompt is not None:
            self._note(Step(kind=StepKind.PROMPT, iteration=0, body=self._prompt))
        if self.transcript.frozen is None:
            recalled, said = self.context.recalled, self.context.taint
            if recalled is None and self.memory:
                found = await self.memory.briefing(about, exclude_run=self._tool_context.run)
                recalled, said = found.recalled, Taint.TAINTED if found.tainted else said
            functions, boundary = self._schemas(), token_hex(16)
            context = replace(
                self.context,
                recalled=recalled,
                tools=[function["name"] for function in functions],
                boundary=boundary,
                taint=worse(said, self.transcript.taint),
            )
            chosen = await self._route(about) if self._skills and not self._system_prompt else None
            if chosen and chosen.get("skills") and self._skills:
                parts = (context.skill, self._skills.guides(chosen["skills"]))
                context = replace(context, skill="\n\n".join(filter(None, parts)))
            sections = {"system": self._system_prompt} if self._system_prompt else render(context)
            body: Json = {
                "system": join(sections),
                "sections": {name: len(part) for name, part in sections.items()},
            }
            if chosen:
                body["route"] = chosen
            if self._said:
                body["history"] = [
                    {"role": each.role, "content": each.content} for each in self._said
                ]
            body |= {
                "functions": functions,
                "provider": self.provider.name,
                "model": self.provider.model_name,
            }
            said = worse(said, self.transcript.taint)
            body |= {"boundary": boundary, "language": self.language} | (
                {"taint": said.value} if said else {}
            )
            self._note(Step(kind=StepKind.PROMPT, iteration=0, body=body))
        iteration = self.transcript.iterations
        message: Json = {
            "text": text,
            "source": "goal",
            "facts": [fact_body(fact) for fact in facts],
        }
        if taint:
            message["taint"] = taint.value
        if images:
            message["images"] = [image_body(each) for each in images]
        if notes:
            message["notes"] = list(notes)
        self._note(Step(kind=StepKind.MESSAGE, iteration=iteration, body=message))

    async def _route(self, text: str) -> Json | None:
        """Find out which skills a message needs; None where there are none to choose from."""
        from daemon.agent.skill_choice import ANSWER, as_json, route

        catalogue = self._skills.catalogue() if self._skills else []
        if not catalogue or self.provider.kind == "offline":
            return None

        async def ask(messages: Sequence[LLMMessage]) -> LLMResponse:
            return self._clean(await self.provider.chat(messages, max_tokens=ANSWER))

        identity = render(replace(self.context, tools=(), recalled="", sections={}, routine=""))
        short = "\n\n".join(identity[name] for name in ("identity", "safety") if name in identity)
        return as_json(*await route(ask, text, self._said, catalogue, short, self.language))

    async def ask(self) -> None:
        """Ask the model, or the next one of the chain that answers."""
        if self.journal.is_exclusive and not self._binding:
            # what is lost with it can be done again, and the reply is written behind it
            self.flush()
        else:
            await self._commit(durable=False)
        loop, iteration = asyncio.get_running_loop(), self.transcript.iterations + 1
        begin = loop.time()
        while True:
            self.emit({"type": "thinking", "provider": self.provider.name, "iteration": iteration})
            try:
                response = await self._ask(self.provider, begin)
                if response.finish_reason == "length":
                    response = await self._longer(response, begin)
                break
            except ContextOverflow:
                if self.transcript.restarts >= RESTARTS:
                    raise
                self.begin_afresh()
                return
            except ProviderError as error:
                following = self._chain.index(self.provider) + 1
                if following >= len(self._chain):
                    raise
                body = {
                    "from": self.provider.name,
                    "to": self._chain[following].name,
                    "reason": self.redact(str(error)),
                }
                log.warning("run.failed_over", **body)
                self.emit({"type": "failed_over", **body})
                self._note(Step(kind=StepKind.FAILOVER, iteration=iteration, body=body))
                await self._commit(durable=False)
        response = self._clean(response if self.provider.sees else self._blind(response))
        self._note(llm_step(response, iteration, loop.time() - begin))

    def _blind(self, response: LLMResponse) -> LLMResponse:
        """Return the answer of a model that sees no pictures, with a note if there were any."""
        unseen = sum(len(message.images) for message in self.transcript.messages)
        if not unseen:
            return response
        note = f"{self.provider.model_name} sees no pictures: it was shown none of {unseen}"
        return replace(response, note="; ".join(filter(None, (response.note, note))))

    def _clean(self, response: LLMResponse) -> LLMResponse:
        """Return the answer without secrets: what a model says is kept, shown and handed to
        tools.
        """
        said = "\n".join(
            [
                response.content,
                response.reasoning,
                *(str(call.arguments) for call in response.function_calls),
            ]
        )
        if self.redact(said) == said:
            return response
        from daemon.providers.extras import cleaned as cleaned_extras

        calls = tuple(
            replace(call, arguments=cleaned(call.arguments, self.redact))
            for call in response.function_calls
        )
        return replace(
            response,
            content=self.redact(response.content),
            reasoning=self.redact(response.reasoning),
            function_calls=calls,
            provider_extras=cleaned_extras(response.provider_extras, self.redact)
            if response.provider_extras
            else None,
        )

    async def _longer(self, cut: LLMResponse, begin: float) -> LLMResponse:
        """Return the answer with more room to it, asked for once; or the one that was cut, if it
        cannot have any.
        """
        most = self.provider.longer(self.limits.max_tokens)
        if most is None:
            return cut
        log.info("agent.asked_for_more", provider=self.provider.name, max_tokens=most)
        self.emit(
            {
                "type": "thinking",
                "provider": self.provider.name,
                "iteration": self.transcript.iterations + 1,
            }
        )
        try:
            longer = await self._ask(self.provider, begin, max_tokens=most)
        except (ProviderError, OverBudget):
            return cut  # it does not go so far, or may not
        note = f"an answer was cut off by its limit, and asked for again with {most} tokens"
        return replace(
            longer,
            usage=cut.usage + longer.usage,
            note="; ".join(filter(None, (longer.note, note))),
        )

    async def _ask(
        self, provider: LLMProvider, begin: float, max_tokens: int | None = None
    ) -> LLMResponse:
        from daemon.providers.retry import ask

        loop, limits = asyncio.get_running_loop(), self.limits
        deadline = self.deadline if self.deadline is not None else loop.time() + NEVER
        following = self._chain[self._chain.index(provider) + 1 :][:1]
        # `offline` must not hide a vendor's short fault: it steps in only after the vendor has
        # failed for a while
        real = bool(following) and following[0].kind != "offline"
        patience = begin + limits.offline_after if following and not real else 0.0
        at_once = (Overloaded,) if real and limits.on_rate_limit == "fallback" else ()
        while True:
            try:
                return await ask(
                    provider,
                    self.transcript.messages,
                    self.transcript.functions if provider.supports_function_calling() else None,
                    deadline=deadline,
                    attempts=limits.attempts,
                    backoff=limits.backoff,
                    but_not=at_once,
                    temperature=limits.temperature,
                    max_tokens=max_tokens or limits.max_tokens,
                    routine=self.context.routine or None,
                    on_chunk=self._tell if self.watched() else None,
                )
            except Retryable as error:
                wait = (
                    error.retry_after
                    if error.retry_after is not None
                    else limits.backoff * 2**limits.attempts
                )
                if loop.time() + wait >= min(patience, deadline):
                    raise
                await asyncio.sleep(wait)

    async def act(self, pending: Sequence[PendingCall], allowance: int) -> None:
        """Run the calls that have no result yet."""
        call_runner = ToolCallRunner(
            registry=self.registry,
            executor=self._executor,
            policy=self.policy,
            context=self._tool_context,
            offered=self.offered,
            redact=self.redact,
            approver=self.approver,
            inspector=self.inspector,
            stamp=self.stamp,
            tool_retries=self.limits.tool_retries,
            tool_retry_delay=self.limits.tool_retry_delay,
        )
        once = await call_runner.act(
            pending,
            self.transcript.iterations,
            self._note,
            self._commit,
            allowance=allowance,
            taint=lambda: self.transcript.taint,
            denials=self.transcript.denials,
        )
        self._binding |= once

    def _tell(self, chunk: Chunk) -> None:
        """Hand on a piece of an answer; what looks like a secret only when it is whole cannot be
        seen here yet.
        """
        if chunk.delta:
            self.emit({"type": "delta", "text": self.redact(chunk.delta)})

    async def _ask_aside(self, messages: Sequence[LLMMessage]) -> str:
        """Ask the model something that is no part of the conversation."""
        deadline = (
            asyncio.get_running_loop().time() + NEVER if self.deadline is None else self.deadline
        )
        from daemon.providers.retry import ask

        answer = await ask(
            self.provider, messages, deadline=deadline, attempts=self.limits.attempts
        )
        return self._clean(answer).content

    def listen(self) -> bool:
        """Take in what people have said meanwhile; tell whether they have said anything."""
        messages = self.inbox.take(self._tool_context.run, self.transcript.heard)
        for message in messages:
            body: Json = {"text": message.text, "source": "told", "told": message.id}
            self._note(Step(kind=StepKind.MESSAGE, iteration=self.transcript.iterations, body=body))
        return bool(messages)

    def begin_afresh(self) -> None:
        """Go on from a summary, as the conversation has outgrown the model."""
        from daemon.agent.compaction import digest

        text = digest(self.transcript, self.language)
        log.warning("agent.began_afresh", iteration=self.transcript.iterations)
        body: Json = {"text": text, "source": "afresh"}
        self._note(Step(kind=StepKind.MESSAGE, iteration=self.transcript.iterations, body=body))

    def nudge(self, text: str) -> None:
        """Remind a model that said nothing."""
        self._note(
            Step(
                kind=StepKind.MESSAGE,
                iteration=self.transcript.iterations,
                body={"text": text, "source": "nudge"},
            )
        )

    def flush(self) -> None:
        """Hand the last steps to the journal without waiting: whatever is written next stands
        behind them.
        """
        if self._noted:
            steps, self._noted = self._noted, []
            self.journal.write_lazily(
                *steps
            )  # a fault of this write shows itself again in those behind it

    def _note(self, step: Step) -> None:
        self.transcript.add(step)
        self._noted.append(step)
        if step.kind is not StepKind.RESULT:
            self._binding = True

    async def _commit(self, durable: bool) -> None:
        if self._noted:
            steps, self._noted = self._noted, []
            await self.journal.append(*steps, durable=durable)
            self._binding = False


def _picture(file: str | Path) -> Image:
    from daemon.providers.wire.images import image_of

    return image_of(Path(file).read_bytes())


def _context_of_a_library_user() -> PromptContext:
    now = datetime.now().astimezone()
    return PromptContext(persona=Persona(), workspace=Path.cwd(), now=now, zone=now.tzinfo or UTC)
