"""The agent: a provider, tools, memory and a policy behind `process_message`.

It can be used alone, as a library: `Agent(provider)` is enough, and steps are then kept in memory.
The daemon gives it an AgentOptions and AgentServices besides; see `runs/context.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import structlog

from daemon.agent.loop import LoopLimits, converse
from daemon.agent.prompt import LeftOutContext, Persona, PromptContext, join, render
from daemon.agent.tool_calls import (
    AllowAll,
    Approver,
    ConfirmingApprover,
    DenyApprovals,
    NoInspection,
    PolicyEngine,
    ResultInspector,
    StepWriter,
    ToolCallRunner,
)
from daemon.agent.transcript import (
    PendingCall,
    Transcript,
    call_event,
    fact_body,
    image_body,
    llm_step,
    summarise,
)
from daemon.errors import ContextOverflow, OverBudget, Overloaded, ProviderError, Retryable
from daemon.models import (
    Chunk,
    Fact,
    FunctionCall,
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
    ToolResult,
    Verdict,
    max_taint,
)
from daemon.telemetry.redaction import redact_json

if TYPE_CHECKING:
    from daemon.memory.memory import Memory
    from daemon.providers import LLMProvider
    from daemon.tools.executor import ToolExecutor
    from daemon.tools.registry import FunctionRegistry

T = TypeVar("T")
log = structlog.get_logger()
MAX_COMPACTIONS = 2  # times that a conversation may outgrow the model before the run fails
NO_DEADLINE_SECONDS = 10 * 365 * 86400.0  # for callers that set none


class IncomingMessage(Protocol):
    """A message of a person to a run under way."""

    @property
    def id(self) -> int: ...
    @property
    def text(self) -> str: ...


class MessageSource(Protocol):
    """Where messages to runs under way wait."""

    def take(self, run: str, received_ids: set[int]) -> Sequence[IncomingMessage]:
        """Take out the messages to `run`; return them in order, without those in `received_ids`."""


class SkillChooser(Protocol):
    """The skills that an agent chooses from."""

    def list_skills(self) -> Sequence[tuple[str, str]]: ...
    def guides(self, names: Sequence[str]) -> str: ...


class EventSink(Protocol):
    """Who is told what happens in a run while it happens."""

    @property
    def wants_deltas(self) -> bool:
        """Whether somebody follows the run, so that answers are worth streaming."""

    def emit(self, event: Json) -> None: ...


class _NoMessages:
    """For an agent that nobody but its caller speaks to."""

    def take(self, run: str, received_ids: set[int]) -> Sequence[IncomingMessage]:
        return ()


class _NoEvents:
    """For an agent that nobody follows."""

    wants_deltas = False

    def emit(self, event: Json) -> None:
        """Drop the event."""


@dataclass(frozen=True)
class _EventCallback:
    """Hands events to a function, deltas included."""

    emit: Callable[[Json], None]
    wants_deltas: bool = True


class _StepsInMemory:
    """The steps of an agent without a journal."""

    is_exclusive = True

    def __init__(self) -> None:
        self.steps: list[Step] = []

    async def append(self, *steps: Step, durable: bool = False) -> None:
        self.steps.extend(steps)

    def write_lazily(self, *steps: Step) -> None:
        self.steps.extend(steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentOptions:
    """How an agent works: what it is told, what it may use and how far it may go."""

    prompt_context: PromptContext | None = None
    """What the system prompt is rendered from; by default one for a program."""
    frozen_prompt: Json | None = None
    """The body of a `prompt` step to begin with; nothing is rendered then."""
    offered_tools: Sequence[str] | None = None
    """Names of the tools that the model is offered; None for all that are registered."""
    required_tools: Sequence[str] = ()
    """Tools whose last call must have succeeded, else the reply is a failure."""
    limits: LoopLimits = field(default_factory=LoopLimits)
    deadline: float | None = None
    """In the event loop's time; None for none."""
    earlier_messages: Sequence[LLMMessage] = ()
    """What people and the agent said before; becomes part of the frozen prompt."""
    taint: Taint = Taint.NONE
    """The taint of the conversation before its first message."""
    tool_context: ToolContext | None = None
    """What tools are told of the run; by default one for a program."""
    keeps_safe_reads: bool = True
    """Whether a tainted run may still read the addresses of rules with `safe`."""


@dataclass(frozen=True, kw_only=True)
class AgentServices:
    """What an agent uses; each default serves a program that uses the agent as a library."""

    fallback: Sequence[LLMProvider] = ()
    """Providers to ask, in order, when the one before fails for good."""
    memory: Memory | None = None
    policy: PolicyEngine | None = None
    """Decides which calls may run. None allows every registered tool, and says so in the log."""
    step_writer: StepWriter = field(default_factory=_StepsInMemory)
    executor: ToolExecutor | None = None
    """What runs the calls; by default an executor of the agent's own registry."""
    approver: Approver = field(default_factory=DenyApprovals)
    inspector: ResultInspector = field(default_factory=NoInspection)
    messages: MessageSource = field(default_factory=_NoMessages)
    skills: SkillChooser | None = None
    """The skills to choose from for each conversation; None where nothing is to be chosen."""
    events: EventSink = field(default_factory=_NoEvents)
    redact: Callable[[str], str] = str
    audit_fields: Callable[[], Json] = dict
    """What is written beside each call: the policy in force, the sandbox."""


class Agent:
    """Answer messages by asking a model and running the tools that it calls.

    `memory`, `policy` and `limits` stand beside `options` and `services` for programs that need no
    more than these. Without a policy every registered tool may run, and a warning is logged.
    `confirm` is asked about each call for which the policy wants a person: a program with a user
    returns whether the user allows it. `function_registry` is another name of `tools`. `steps` are
    those of an earlier attempt: the next `process_message` goes on from there.
    """

    def __init__(
        self,
        provider: LLMProvider,
        tools: FunctionRegistry | None = None,
        system_prompt: str = "",
        *,
        memory: Memory | None = None,
        policy: PolicyEngine | None = None,
        limits: LoopLimits | None = None,
        confirm: Callable[[FunctionCall, Verdict], bool | Awaitable[bool]] | None = None,
        function_registry: FunctionRegistry | None = None,
        options: AgentOptions | None = None,
        services: AgentServices | None = None,
        steps: Iterable[Step] = (),
    ) -> None:
        from daemon.tools.executor import ToolExecutor
        from daemon.tools.registry import FunctionRegistry

        options, services = options or AgentOptions(), services or AgentServices()
        if tools is not None and function_registry is not None:
            raise TypeError("tools and function_registry are the same argument: give one of them")
        registry = tools if tools is not None else function_registry
        self.registry = FunctionRegistry() if registry is None else registry
        self.memory = memory or services.memory
        self.policy: PolicyEngine = policy or services.policy or AllowAll()
        if policy is None and services.policy is None:
            log.warning(
                "agent.no_policy",
                detail="every registered tool may run; give a policy, or AllowAll() to mean that",
            )
        self.limits = limits or options.limits
        self.required_tools = options.required_tools
        self.transcript = Transcript(steps, options.taint)
        self.earlier_iterations = 0
        """The iterations that earlier messages of the conversation took."""
        self._options, self._services = options, services
        self._context = options.prompt_context or _prompt_context_for_a_program()
        self._approver = (
            ConfirmingApprover(confirm, language=self.language) if confirm else services.approver
        )
        self._tool_context = options.tool_context or ToolContext(
            run="",
            routine=self._context.routine,
            workspace=self._context.workspace,
            language=self.language,
        )
        self._system_prompt = system_prompt
        self._providers = [provider, *services.fallback]
        self._executor = services.executor or ToolExecutor(self.registry)
        self._events: EventSink = services.events
        self._is_streaming = False
        """Whether a program follows, so that calls and thoughts are emitted here. In a daemon the
        recorder publishes calls once they are committed.
        """
        self._redact = services.redact
        self._is_resumed = self.transcript.frozen_prompt is not None
        self._unwritten: list[Step] = []
        """Steps that were not handed to the step writer yet."""
        self._must_commit = False
        """Whether one of the unwritten steps has to be committed before a model is asked: each but
        the result of a call that may be run again.
        """

    # --- what a program that uses the agent calls ---

    async def process_message(
        self,
        text: str,
        *,
        about: str | None = None,
        facts: Sequence[Fact] = (),
        facts_boundary: str = "",
        taint: Taint = Taint.NONE,
        media: Sequence[Image | str | Path] = (),
        notes: Sequence[str] = (),
    ) -> Reply:
        """Answer the message; an agent made from earlier steps goes on with its message instead.

        `about` is what to look for in memory, by default the message. `facts` are those that the
        text holds, for the provider `offline`, and `facts_boundary` is what stands around each of
        them. `taint` says whether strangers' words stand in the text. `media` are images to show
        with it, `notes` what a reader of the run should know.

        Raises ValueError for a file that is no image, ProviderError when no provider gave an
        answer, ApprovalRequired when a person has to answer.
        """
        may_ask_back = self._is_resumed or self.transcript.frozen_prompt is None
        if self._is_resumed:
            self._is_resumed = False
        else:
            self.earlier_iterations = self.transcript.iterations
            images = [
                item if isinstance(item, Image) else await asyncio.to_thread(_read_image, item)
                for item in media
            ]
            if self.transcript.frozen_prompt is None:
                await self._add_prompt(about or text)
            self._add_message(text, facts, facts_boundary, taint, images, notes)
        question = (self.transcript.frozen_prompt or {}).get("route", {}).get("question")
        if not (may_ask_back and question):
            return await converse(self)
        self.flush()
        if self._context.routine:  # nobody is there who could answer
            detail = f"the task is not clear: {question}"
            return Reply(content=question, status=Status.FAILED, detail=detail)
        return Reply(content=question, usage=self.transcript.usage)

    async def repair(
        self,
        text: str,
        *,
        facts: Sequence[Fact] = (),
        facts_boundary: str = "",
        taint: Taint = Taint.NONE,
        source: Literal["check", "dedupe"] = "check",
    ) -> Reply:
        """Tell the model what is wrong with its reply, and return the next one.

        It counts towards the same limits. `facts` and `taint` are as for `process_message`;
        `source` is the table of the routine by which the reply is wrong.
        """
        self._add_message(text, facts, facts_boundary, taint, (), (), source=source)
        return await converse(self)

    async def chat(self, text: str, max_iterations: int | None = None) -> Json:
        """Answer the message like `process_message`, as a dict.

        Its keys are `content`, `function_calls` and `iterations`. `max_iterations` goes before
        `limits` for this message.
        """
        limits = self.limits
        if max_iterations is not None:
            self.limits = replace(limits, max_iterations=max_iterations)
        try:
            reply = await self.process_message(text)
        finally:
            self.limits = limits
        return {
            "content": reply.content,
            "function_calls": list(reply.function_calls),
            "iterations": reply.iterations,
        }

    async def process_message_stream(
        self,
        text: str,
        events: Callable[[Json], None],
        *,
        about: str | None = None,
        media: Sequence[Image | str | Path] = (),
    ) -> Reply:
        """Answer like `process_message`, and call `events` with what happens while it happens.

        Each event has a `type`: `thinking` when a provider is asked, and with `text` for each piece
        of what it thinks; `delta` with each piece of its `text`; `tool_started` with `tool` and
        `args`; `tool_finished` with `tool`, `ok` and `preview`; `failed_over` with `from`, `to` and
        `reason`.
        """
        outer_events = self._events, self._is_streaming
        self._events, self._is_streaming = _EventCallback(events), True
        try:
            return await self.process_message(text, about=about, media=media)
        finally:
            self._events, self._is_streaming = outer_events

    async def parse_message(
        self, sender: str, timestamp: datetime | str, content: str
    ) -> list[Json]:
        """Return the records that a message holds, as JSON objects; the conversation is untouched.

        The model reads a `timestamp` that is text as it is. Raises ValueError if its second answer
        is no list of objects either.
        """
        moment = timestamp
        if isinstance(timestamp, datetime):
            moment = f"{timestamp:%Y-%m-%d %H:%M %Z}".strip()
        return await self.extract(f"[{sender}, {moment}]\n{content}", list[Json])

    async def extract(self, text: str, schema: type[T]) -> T:
        """Return what a text says as an instance of `schema`, any type that pydantic knows.

        The conversation is untouched. A model whose answer does not fit is asked once more, with
        the faults. Raises ValueError if the second answer does not fit either.
        """
        from daemon.agent.extraction import extract

        return await extract(self._ask_separately, text, schema, self.language)

    def preview(self) -> tuple[dict[str, str], list[Json]]:
        """Return the prompt's sections and the functions that a message would begin with.

        No model is asked.
        """
        functions = self._function_schemas()
        names = [function["name"] for function in functions]
        context = replace(self._context, tools=names, boundary="0" * 32)
        return render(context), list(functions)

    @property
    def left_out(self) -> LeftOutContext:
        """What the prompt of the next conversation does not show of earlier runs."""
        return self._context.left_out

    @property
    def history(self) -> list[LLMMessage]:
        """The conversation so far, the system prompt first."""
        return list(self.transcript.messages)

    @property
    def conversation_history(self) -> list[LLMMessage]:
        """Another name of `history`."""
        return self.history

    @property
    def function_registry(self) -> FunctionRegistry:
        """Another name of `registry`."""
        return self.registry

    @property
    def tool_executor(self) -> ToolExecutor:
        """What runs the calls."""
        return self._executor

    @property
    def system_prompt(self) -> str:
        """The system prompt: the rendered one, or before the first message the one given."""
        prompt = self.transcript.frozen_prompt
        return self._system_prompt if prompt is None else str(prompt["system"])

    def set_history(self, messages: Sequence[LLMMessage]) -> None:
        """Replace the conversation so far; its first message may be a system prompt."""
        self.transcript = Transcript(taint=self._options.taint)
        self.transcript.messages.extend(messages)
        if messages and messages[0].role == "system":
            functions = self._function_schemas()
            self.transcript.frozen_prompt = {
                "system": messages[0].content,
                "functions": functions,
                "boundary": token_hex(16),
            }
            self.transcript.functions = functions or None

    def clear_history(self) -> None:
        """Forget the conversation but keep the system prompt."""
        prompt = self.transcript.frozen_prompt
        self.transcript = Transcript(taint=self._options.taint)
        if prompt is not None:  # what it says of marks, and its taint, still hold
            body = {key: value for key, value in prompt.items() if key not in ("route", "history")}
            self.transcript.add(Step(kind=StepKind.PROMPT, iteration=0, body=body))

    def set_routine_name(self, name: str) -> None:
        """Set the routine that the agent works for; adds the rules of unattended runs to the
        prompt.
        """
        self._context = replace(self._context, routine=name)
        self._tool_context = replace(self._tool_context, routine=name)

    def inject_skill_context(self, text: str) -> None:
        """Put a skill's guide into the prompt."""
        self._context = replace(self._context, skill_text=text)

    def inject_identity_context(self, text: str) -> None:
        """Put the owner's own words on who the agent is into the prompt."""
        self._context = replace(self._context, identity=text)

    def register_function(
        self, name: str, description: str, func: Callable[..., Any], parameters: Json | None = None
    ) -> None:
        """Let the model call one more function."""
        self.registry.register(name, description, func, parameters)

    # --- what the loop calls ---

    @property
    def is_resumed(self) -> bool:
        """Whether the agent goes on with the message of an earlier attempt."""
        return self._is_resumed

    @property
    def language(self) -> str:
        return self._context.persona.language

    @property
    def silent_token(self) -> str:
        return self._context.silent_token

    @property
    def provider(self) -> LLMProvider:
        """The provider that is asked now: the first one, or the one a failover led to."""
        name = self.transcript.provider
        if name is None:
            return self._providers[0]
        return next(
            (provider for provider in self._providers if provider.name == name), self._providers[0]
        )

    @property
    def offered_tools(self) -> list[str]:
        """The names of the functions that a model may call here."""
        prompt = self.transcript.frozen_prompt
        functions = self._function_schemas() if prompt is None else prompt.get("functions") or ()
        return [function["name"] for function in functions]

    def _function_schemas(self) -> list[Json]:
        # not a copy: providers translate each list once
        return self.registry.list_functions(self._options.offered_tools)

    async def _add_prompt(self, about: str) -> None:
        """Render the system prompt, once per conversation, and add it as a step."""
        if self._options.frozen_prompt is not None:
            prompt = Step(kind=StepKind.PROMPT, iteration=0, body=self._options.frozen_prompt)
            self.add_step(prompt)
            return
        memory_text, taint = self._context.memory_text, self._context.taint
        if memory_text is None and self.memory:
            recall_context = await self.memory.recall(about, exclude_run=self._tool_context.run)
            memory_text = recall_context.excerpt_text
            taint = Taint.TAINTED if recall_context.tainted else taint
        taint = max_taint(taint, self.transcript.taint)
        functions, boundary = self._function_schemas(), token_hex(16)
        context = replace(
            self._context,
            memory_text=memory_text,
            tools=[function["name"] for function in functions],
            boundary=boundary,
            taint=taint,
        )
        skills, choice = self._services.skills, None
        if skills and not self._system_prompt:
            choice = await self._choose_skills(about, skills)
            if choice and choice.get("skills"):
                guides = (context.skill_text, skills.guides(choice["skills"]))
                context = replace(context, skill_text="\n\n".join(filter(None, guides)))
        sections = {"system": self._system_prompt} if self._system_prompt else render(context)
        body: Json = {
            "system": join(sections),
            "sections": {name: len(part) for name, part in sections.items()},
        }
        if choice:
            body["route"] = choice
        if earlier_messages := self._options.earlier_messages:
            body["history"] = [
                {"role": message.role, "content": message.content} for message in earlier_messages
            ]
        body |= {
            "functions": functions,
            "provider": self.provider.name,
            "model": self.provider.model_name,
            "boundary": boundary,
            "language": self.language,
        }
        if taint:
            body["taint"] = taint.value
        if left_out := context.left_out:
            body["left_out"] = left_out.as_json()
        self.add_step(Step(kind=StepKind.PROMPT, iteration=0, body=body))

    async def _choose_skills(self, text: str, skills: SkillChooser) -> Json | None:
        """Ask the model which skills a message needs; None where there are none to choose from."""
        from daemon.agent.skill_choice import MAX_ANSWER_TOKENS, as_json, choose_skills

        catalogue = skills.list_skills()
        if not catalogue or self.provider.kind == "offline":
            return None

        async def ask(messages: Sequence[LLMMessage]) -> LLMResponse:
            return self._redact_response(
                await self.provider.chat(messages, max_tokens=MAX_ANSWER_TOKENS)
            )

        sections = render(replace(self._context, tools=(), memory_text="", sections={}, routine=""))
        identity = "\n\n".join(
            sections[name] for name in ("identity", "safety") if name in sections
        )
        choice, usage = await choose_skills(
            ask, text, self._options.earlier_messages, catalogue, identity, self.language
        )
        return as_json(choice, usage)

    def _add_message(
        self,
        text: str,
        facts: Sequence[Fact],
        facts_boundary: str,
        taint: Taint,
        images: Sequence[Image],
        notes: Sequence[str],
        *,
        source: Literal["goal", "check", "dedupe"] = "goal",
    ) -> None:
        body: Json = {
            "text": text,
            "source": source,
            "facts": [fact_body(fact) for fact in facts],
        }
        if facts:
            body["boundary"] = facts_boundary
        if taint:
            body["taint"] = taint.value
        if images:
            body["images"] = [image_body(image) for image in images]
        if notes:
            body["notes"] = list(notes)
        iteration = self.transcript.iterations
        self.add_step(Step(kind=StepKind.MESSAGE, iteration=iteration, body=body))

    async def ask(self) -> None:
        """Ask the model, or the next provider that answers, and add the answer as a step."""
        if self._services.step_writer.is_exclusive and not self._must_commit:
            # a crash loses results that can be had again, and the answer is written behind them
            self.flush()
        else:
            await self.commit()
        loop, iteration = asyncio.get_running_loop(), self.transcript.iterations + 1
        first_asked_at = loop.time()
        while True:
            provider = self.provider
            self._events.emit(
                {"type": "thinking", "provider": provider.name, "iteration": iteration}
            )
            try:
                response = await self._ask(provider, first_asked_at)
                if response.finish_reason == "length":
                    response = await self._ask_for_longer_answer(response, first_asked_at)
                break
            except ContextOverflow:
                if self.transcript.compactions >= MAX_COMPACTIONS:
                    raise
                self.compact()
                return
            except ProviderError as error:
                next_index = self._providers.index(provider) + 1
                if next_index >= len(self._providers):
                    raise
                body = {
                    "from": provider.name,
                    "to": self._providers[next_index].name,
                    "reason": self._redact(str(error)),
                }
                log.warning("run.failed_over", **body)
                self._events.emit({"type": "failed_over", **body})
                self.add_step(Step(kind=StepKind.FAILOVER, iteration=iteration, body=body))
                await self.commit()
        if not self.provider.accepts_images:
            images = sum(len(message.images) for message in self.transcript.messages)
            if images:
                model = self.provider.model_name
                note = f"{model} sees no pictures: it was shown none of {images}"
                response = _with_note(response, note)
        response = self._redact_response(response)
        if response.reasoning and not self._is_streaming:  # a stream has told it in pieces
            event = {"type": "thinking", "text": response.reasoning, "iteration": iteration}
            self._events.emit(event)
        self.add_step(llm_step(response, iteration, loop.time() - first_asked_at))

    def _redact_response(self, response: LLMResponse) -> LLMResponse:
        """Return the answer without secrets: it is kept, shown and handed to tools."""
        content, reasoning = self._redact(response.content), self._redact(response.reasoning)
        function_calls = tuple(
            replace(call, arguments=redact_json(call.arguments, self._redact))
            for call in response.function_calls
        )
        answered = (response.content, response.reasoning, response.function_calls)
        if (content, reasoning, function_calls) == answered:
            return response
        from daemon.providers.extras import redact_extras

        extras = response.provider_extras
        return replace(
            response,
            content=content,
            reasoning=reasoning,
            function_calls=function_calls,
            provider_extras=redact_extras(extras, self._redact) if extras else None,
        )

    async def _ask_for_longer_answer(
        self, response: LLMResponse, first_asked_at: float
    ) -> LLMResponse:
        """Ask once more, with more room, for an answer that its limit of tokens cut off.

        Returns the answer that was cut off if the provider cannot give it more room.
        """
        provider = self.provider
        max_tokens = provider.larger_max_tokens(self.limits.max_tokens)
        if max_tokens is None:
            return response
        log.info("agent.asked_for_more", provider=provider.name, max_tokens=max_tokens)
        iteration = self.transcript.iterations + 1
        self._events.emit({"type": "thinking", "provider": provider.name, "iteration": iteration})
        try:
            longer = await self._ask(provider, first_asked_at, max_tokens=max_tokens)
        except (ProviderError, OverBudget):
            return response
        note = f"an answer was cut off by its limit, and asked for again with {max_tokens} tokens"
        return _with_note(replace(longer, usage=response.usage + longer.usage), note)

    async def _ask(
        self, provider: LLMProvider, first_asked_at: float, max_tokens: int | None = None
    ) -> LLMResponse:
        """Ask one provider until it answers, or until the next one is to be asked.

        `first_asked_at` is when the first provider was asked, in the event loop's time.
        """
        from daemon.providers.retry import ask

        loop, limits = asyncio.get_running_loop(), self.limits
        deadline = self._deadline()
        next_providers = self._providers[self._providers.index(provider) + 1 :][:1]
        # `offline` must not hide a vendor's short fault: it is asked only after the vendor has
        # failed for a while
        next_is_vendor = bool(next_providers) and next_providers[0].kind != "offline"
        retry_until = (
            first_asked_at + limits.offline_after if next_providers and not next_is_vendor else 0.0
        )
        fails_over_at_once = next_is_vendor and limits.on_rate_limit == "fallback"
        while True:
            try:
                return await ask(
                    provider,
                    self.transcript.messages,
                    self.transcript.functions if provider.supports_function_calling() else None,
                    deadline=deadline,
                    attempts=limits.attempts,
                    backoff=limits.backoff,
                    not_retried=(Overloaded,) if fails_over_at_once else (),
                    temperature=limits.temperature,
                    max_tokens=max_tokens or limits.max_tokens,
                    effort=limits.effort,
                    routine=self._context.routine or None,
                    on_chunk=self._emit_delta if self._events.wants_deltas else None,
                )
            except Retryable as error:
                wait = error.retry_after
                if wait is None:
                    wait = limits.backoff * 2**limits.attempts
                if loop.time() + wait >= min(retry_until, deadline):
                    raise
                await asyncio.sleep(wait)

    def _deadline(self) -> float:
        if self._options.deadline is not None:
            return self._options.deadline
        return asyncio.get_running_loop().time() + NO_DEADLINE_SECONDS

    async def run_calls(self, pending_calls: Sequence[PendingCall], allowance: int) -> None:
        """Run the calls that have no result yet, at most `allowance` of them."""
        call_runner = ToolCallRunner(
            registry=self.registry,
            executor=self._executor,
            policy=self.policy,
            context=self._tool_context,
            offered_tools=self.offered_tools,
            redact=self._redact,
            approver=self._approver,
            inspector=self._services.inspector,
            audit_fields=self._services.audit_fields,
            tool_retries=self.limits.tool_retries,
            tool_retry_delay=self.limits.tool_retry_delay,
            keeps_safe_reads=self._options.keeps_safe_reads,
        )
        ran_unrepeatable = await call_runner.run(
            pending_calls,
            self.transcript.iterations,
            self,
            allowance=allowance,
            denials=self.transcript.denials,
        )
        self._must_commit |= ran_unrepeatable

    def _emit_delta(self, chunk: Chunk) -> None:
        # a secret that comes in two pieces cannot be seen yet: the whole answer is redacted again
        if chunk.thinking and self._is_streaming:
            self._events.emit({"type": "thinking", "text": self._redact(chunk.thinking)})
        if chunk.delta:
            self._events.emit({"type": "delta", "text": self._redact(chunk.delta)})

    async def _ask_separately(self, messages: Sequence[LLMMessage]) -> str:
        """Ask the model something that is no part of the conversation."""
        from daemon.providers.retry import ask

        response = await ask(
            self.provider, messages, deadline=self._deadline(), attempts=self.limits.attempts
        )
        return self._redact_response(response).content

    def take_messages(self) -> bool:
        """Add what people have said meanwhile as steps; return whether there was anything."""
        run, received_ids = self._tool_context.run, self.transcript.received_messages
        messages = self._services.messages.take(run, received_ids)
        for message in messages:
            body: Json = {"text": message.text, "source": "told", "told": message.id}
            self.add_step(
                Step(kind=StepKind.MESSAGE, iteration=self.transcript.iterations, body=body)
            )
        return bool(messages)

    def compact(self) -> None:
        """Go on from a summary, as the conversation has outgrown the model."""
        text, iteration = summarise(self.transcript, self.language), self.transcript.iterations
        log.warning("agent.compacted", iteration=iteration)
        body: Json = {"text": text, "source": "afresh"}
        self.add_step(Step(kind=StepKind.MESSAGE, iteration=iteration, body=body))

    def nudge(self, text: str) -> None:
        """Remind a model that answered with nothing."""
        body: Json = {"text": text, "source": "nudge"}
        iteration = self.transcript.iterations
        self.add_step(Step(kind=StepKind.MESSAGE, iteration=iteration, body=body))

    def record_limit(self, error: OverBudget) -> None:
        """Add the cap that keeps the model from being asked as a step: a replay ends by it, too."""
        body: Json = {"rule": error.rule}
        if error.tokens is not None:
            body["tokens"] = error.tokens
        iteration = self.transcript.iterations
        self.add_step(Step(kind=StepKind.LIMIT, iteration=iteration, body=body))

    def flush(self) -> None:
        """Hand the last steps to the step writer without waiting for the commit."""
        if self._unwritten:
            steps, self._unwritten = self._unwritten, []
            # a fault of this write is raised again by the next `append`
            self._services.step_writer.write_lazily(*steps)

    @property
    def taint(self) -> Taint:
        """The worst taint of all that the conversation has read."""
        return self.transcript.taint

    def first_answer(self, address: str) -> ToolResult | None:
        """Return what the run got from an address that it reads at most once."""
        return self.transcript.first_answers.get(address)

    def add_step(self, step: Step) -> None:
        """Add a step to the conversation; `flush` or `commit` passes it to the step writer."""
        self.transcript.add(step)
        self._unwritten.append(step)
        if self._is_streaming and (event := call_event(step)):
            self._events.emit(event)
        if step.kind is not StepKind.RESULT:
            self._must_commit = True

    async def commit(self, *, durable: bool = False) -> None:
        """Commit all added steps, with `durable` even against a loss of power."""
        if self._unwritten:
            steps, self._unwritten = self._unwritten, []
            await self._services.step_writer.append(*steps, durable=durable)
            self._must_commit = False


def _with_note(response: LLMResponse, note: str) -> LLMResponse:
    return replace(response, note="; ".join(filter(None, (response.note, note))))


def _read_image(file: str | Path) -> Image:
    from daemon.providers.wire.images import parse_image

    return parse_image(Path(file).read_bytes())


def _prompt_context_for_a_program() -> PromptContext:
    now = datetime.now().astimezone()
    return PromptContext(persona=Persona(), workspace=Path.cwd(), now=now, zone=now.tzinfo or UTC)
