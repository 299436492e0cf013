"""What one run needs of the daemon: models, tools, a prompt for its agent, memory, notices.

`run.py` tells the life of a run. The RunContext that it is given is built by `RunContexts` when a
process takes the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

import structlog

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.agent.conversations.conversations import ASK
from daemon.agent.conversations.sessions import EarlierConversation
from daemon.agent.loop import LoopLimits
from daemon.agent.prompt import Persona, PromptContext
from daemon.agent.tool_calls import DenyApprovals, ToolCallRunner
from daemon.definitions.routines.routine import Routine
from daemon.definitions.skills import SkillCatalog
from daemon.delivery.incidents.model_outages import ModelOutages
from daemon.errors import DaemonError, OverBudget, ProviderError
from daemon.injection.inspector import InjectionInspector
from daemon.memory import archive
from daemon.memory.memory import RecallContext
from daemon.memory.segments import Segment
from daemon.memory.summary import ANSWER_TOKENS, TIMEOUT, add_summary, build_prompt, find_summary
from daemon.models import (
    ApprovalRequest,
    Json,
    LLMResponse,
    ProgramTime,
    Reply,
    Run,
    Status,
    Step,
    StepKind,
    Taint,
    ToolContext,
    Usage,
    Verdict,
    WaitingNotice,
    max_taint,
    new_id,
)
from daemon.policy.policy import Policy
from daemon.policy.restrictions import NAMED_ONLY_TOOLS
from daemon.providers import LLMProvider
from daemon.providers.budget import RunBudget
from daemon.providers.metered import MeteredProvider
from daemon.runs.approvals.approver import RunApprover
from daemon.runs.approvals.notice import waiting_notice
from daemon.runs.events import EventBus, end_of, waiting_of
from daemon.runs.images import AttachedImages, load_images
from daemon.runs.protocols import StepLog
from daemon.runs.recorder import StepRecorder
from daemon.runs.rehearsal.dry_run import REHEARSAL, DryRunToolExecutor, RehearsalApprover
from daemon.runs.services import RunServices
from daemon.runs.settings import Settings
from daemon.store.journal import Journal
from daemon.store.run_rows import newest
from daemon.store.runs import RunRepository
from daemon.tokens import estimate
from daemon.tools.builtin import shell
from daemon.tools.builtin.command_lines import PROGRAMS
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.executor import ToolExecutor
from daemon.tools.mcp.servers import Servers
from daemon.tools.registry import FunctionRegistry
from daemon.tools.reported_items import REPORT_ITEMS

# Nothing tells us when somebody has made room on a full disk.
FULL_DISK_RETRY_SECONDS = 30.0
MAX_PARSED_DEFINITIONS = 256  # kept in memory: those of the routines that run often
log = structlog.get_logger()


class Preview(NamedTuple):
    """What the model of a run would be told."""

    sections: Mapping[str, str]
    functions: Sequence[Json]
    provider: str
    model: str


class _RunEvents:
    """Publishes what happens while a run is under way, to those who follow it."""

    def __init__(self, run: Run, events: EventBus, model_outages: ModelOutages) -> None:
        self._run, self._events, self._model_outages = run, events, model_outages

    @property
    def wants_deltas(self) -> bool:
        return self._events.watched(self._run.id)

    def emit(self, event: Json) -> None:
        if event["type"] == "failed_over":
            self._model_outages.record_failure(event["from"], event["reason"])
        self._events.publish(self._run.id, {"routine": self._run.routine, **event})


class PolicyInForce:
    """Judge each call of a run by the policy that is in force at that moment."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    @property
    def detector(self) -> str:
        return self._context.policy_in_force().detector

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict:
        policy = self._context.policy_in_force()
        return policy.judge(tool, arguments, routine=routine, tainted=tainted)

    def is_read_only(self, tool: str, arguments: Json) -> bool:
        return self._context.policy_in_force().is_read_only(tool, arguments)

    def shows_injected_result(self, tool: str, arguments: Json, *, routine: str) -> bool:
        policy = self._context.policy_in_force()
        return policy.shows_injected_result(tool, arguments, routine=routine)


class StartedRoutines:
    """The routines of runs as they were when each run began, parsed once per definition."""

    def __init__(self, runs: RunRepository, mcp_servers: Servers) -> None:
        self._runs, self._mcp_servers = runs, mcp_servers
        self._parsed: dict[str, Routine] = {}
        """Routines by the hash of their definition."""

    async def load(self, run: Run) -> Routine:
        """Return the routine as `run` began it, with its MCP servers connected.

        Raises DaemonError if another version of agentd wrote what this one cannot read.
        """
        routine = self._parsed.get(run.definition)
        if routine is None:
            try:
                routine = Routine.restore(await self._runs.get_definition(run.definition))
            except ValueError as error:
                problem = str(error).splitlines()[0]
                raise DaemonError(
                    f"the definition this run began with cannot be read by this version: {problem}"
                ) from None
            if len(self._parsed) >= MAX_PARSED_DEFINITIONS:
                self._parsed.clear()
            self._parsed[run.definition] = routine
        await self._mcp_servers.ready(_tools_of(routine))
        return routine


class RunContexts:
    """Build the context of each run; hold what the runs of this process share."""

    def __init__(self, services: RunServices) -> None:
        self.services = services
        self.routines = StartedRoutines(services.journal.runs, services.mcp_servers)
        self.backoff = LoopLimits().backoff
        """Seconds before a model is asked a second time; tests set less."""
        self.full_disk_retry = FULL_DISK_RETRY_SECONDS
        self._executor = ToolExecutor(services.registry)
        self._dry_run_executor = DryRunToolExecutor(services.registry, services.settings)
        self._budgets = WeakValueDictionary[str, RunBudget]()
        self._pings: set[asyncio.Task[None]] = set()

    def take(self) -> RunContext:
        """Return the context of a run that is taken now."""
        services, settings = self.services, self.services.settings.current
        return RunContext(
            services=services,
            settings=settings,
            journal=services.journal,
            events=services.events,
            owner=services.owner,
            zone=settings.zone.key,
            routines=self.routines,
            executor=self._executor,
            dry_run_executor=self._dry_run_executor,
            budgets=self._budgets,
            pings=self._pings,
            backoff=self.backoff,
            full_disk_retry=self.full_disk_retry,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """What one run is given when a process takes it; see `run.py` for how it is used.

    Its fields stay as they were when the run was taken, also when the config is read again while
    the run is under way. What has to be current is read by `policy_in_force` and `waiting_notice`.
    """

    services: RunServices
    settings: Settings
    """The settings that were in force when the run was taken."""
    journal: Journal
    events: EventBus
    owner: str
    """Who holds the lease of the run."""
    zone: str
    """The name of the time zone of the config."""
    routines: StartedRoutines
    executor: ToolExecutor
    dry_run_executor: DryRunToolExecutor
    budgets: WeakValueDictionary[str, RunBudget]
    """The budgets of all runs of this process, by run: a sub-agent spends from its parent's."""
    pings: set[asyncio.Task[None]]
    """The pings of this process that are under way."""
    backoff: float
    """Seconds before a model is asked a second time."""
    full_disk_retry: float
    """Seconds before a write that a full disk refused is tried again."""

    @property
    def runs(self) -> RunRepository:
        return self.journal.runs

    def policy_in_force(self) -> Policy:
        """Return the policy as it is now: a reload changes it for runs under way, too."""
        return self.services.settings.policy

    def now(self) -> datetime:
        return self.services.clock.now()

    def redact(self, text: str) -> str:
        return self.services.secrets.redact(text)

    async def cancel_subagents(self, run: Run, routine: Routine) -> None:
        """Cancel what is left of a run's sub-agents."""
        if SUBAGENT not in routine.run.tools:
            return
        for child in await self.journal.runs.find_children(SUBAGENT, run.id):
            await self.journal.runs.request_cancel(child.id)

    def announce_end(self, run: Run) -> None:
        """Tell followers, the outbox and the log that a run has ended. Call it after the commit."""
        self.events.publish(run.id, end_of(run))
        self.services.outbox.wake()
        log.info(
            "run.finished",
            status=run.status.value,
            detail=run.detail,
            tokens=run.usage.total,
            silent=run.silent,
        )

    def announce_wait(self, run: Run, tools: str) -> None:
        """Tell followers, the outbox and the log that a run waits for a person to allow `tools`."""
        self.services.outbox.wake()
        if run.status is Status.WAITING:  # else the person has answered meanwhile
            self.events.publish(run.id, waiting_of(run))
            self.services.approvals.wake()  # the question expires some day
            log.info("run.waiting", tools=tools)

    async def ping_started(self, run: Run, routine: Routine) -> None:
        """Tell the routine's dead man's switch that its run starts, once the claim is durable.

        Only the first attempt of a run that is no rehearsal is told. Nobody waits for the ping; one
        that fails is logged. Raises Fenced and StoreFull if the claim was not written.
        """
        target = routine.ping
        if target is None or run.attempt != 1 or run.trigger == REHEARSAL:
            return
        await self.journal.runs.confirm_claim(run)
        task = asyncio.create_task(
            self.settings.targets.ping_started(target, run), name=f"ping of {target}"
        )
        self.pings.add(task)
        task.add_done_callback(self.pings.discard)

    async def sandbox_level(self) -> str:
        """Return how well programs are confined, as `Run.sandbox` says it."""
        return (await self.services.sandbox_detection.sandbox()).level

    def waiting_notice(
        self, run: Run, routine: Routine, requests: Sequence[ApprovalRequest], deadline: datetime
    ) -> WaitingNotice:
        """Word what people are told when the run starts to wait for them.

        It goes to the routine's own targets whose `on` holds `waiting`, and to those of
        `[incidents] to`. A file is left out, as it would stand where the report belongs, and so is
        a dead man's switch, which no person reads.
        """
        config = self.services.settings.config  # people may have changed it since
        kinds = {name: target.kind for name, target in config.targets.items()}
        names = [
            *(rule.to for rule in routine.deliver if "waiting" in rule.on),
            *config.incidents.to,
        ]
        targets = [name for name in names if kinds.get(name, name) not in ("file", "ping")]
        zone = ZoneInfo(routine.trigger.timezone or self.zone)
        return waiting_notice(
            run, requests, targets, deadline=deadline.astimezone(zone), redact=self.redact
        )

    async def routine_of(self, run: Run) -> Routine:
        """Return the routine as the run began it, with its MCP servers connected.

        Raises DaemonError if another version of agentd wrote what this one cannot read.
        """
        return await self.routines.load(run)

    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs gather steps: every tool there is, as far as the policy allows it."""
        return ToolCallRunner(
            registry=self.services.registry,
            executor=self._executor_for(run),
            policy=PolicyInForce(self),
            context=self._tool_context(run, routine),
            offered=self.services.registry.names(),
            redact=self.redact,
            approver=self._approver(run),
            inspector=self._inspector(run),
            audit_fields=self._audit_fields,
        )

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the command of a gate: the shell, whose result is the exit code."""
        registry = FunctionRegistry()
        shell.register_for_gates(
            registry,
            self.services.settings,
            sandbox=self.services.sandbox_detection.sandbox,
            zone=self.zone,
        )
        return ToolCallRunner(
            registry=registry,
            executor=ToolExecutor(registry),
            policy=PolicyInForce(self),
            context=self._tool_context(run, routine),
            offered=registry.names(),
            redact=self.redact,
            approver=self._approver(run),
            audit_fields=self._audit_fields,
        )

    async def agent_for(
        self, run: Run, routine: Routine, step_log: StepLog, deadline: float
    ) -> Agent:
        """Return the agent of this run; one that was begun goes on from its steps."""
        spec, services = routine.run, self.services
        provider, *fallback = self._metered(run, routine)
        offered_tools = self._offered_tools(run, routine)
        # facts that were gathered before are steps, too
        is_new = not any(step.kind is StepKind.PROMPT for step in step_log.steps)
        catalog: SkillCatalog | None = None
        if spec.mode == "agent" and (spec.skills or run.trigger == ASK):
            catalog = await asyncio.to_thread(services.load_skills)
            if catalog.skills and "skill" not in offered_tools:
                offered_tools = [*offered_tools, "skill"]
        earlier_conversation = (
            await self.services.conversations.history(run)
            if run.trigger == ASK and is_new
            else EarlierConversation()
        )
        prompt_context = await self._prompt_context(run, routine, offered_tools, is_new=is_new)
        max_tool_calls = min(
            spec.max_tool_calls, self.policy_in_force().limits_for(routine.under).tool_calls
        )
        return Agent(
            provider,
            services.registry,
            options=AgentOptions(
                prompt_context=with_skills(prompt_context, catalog, spec.skills),
                offered_tools=offered_tools,
                required_tools=spec.required_tools,
                limits=LoopLimits(
                    max_iterations=spec.max_iterations,
                    max_tool_calls=max_tool_calls,
                    tokens=spec.budget.tokens,
                    temperature=spec.temperature,
                    max_tokens=spec.max_tokens,
                    tool_retries=spec.tool_retries,
                    tool_retry_delay=spec.tool_retry_delay.total_seconds(),
                    on_rate_limit=spec.on_rate_limit,
                    backoff=self.backoff,
                ),
                deadline=deadline,
                earlier_messages=earlier_conversation.messages,
                taint=max_taint(
                    await self._initial_taint(run),
                    Taint.TAINTED if earlier_conversation.tainted else Taint.NONE,
                ),
                tool_context=self._tool_context(run, routine, step_log.steps),
            ),
            services=AgentServices(
                fallback=fallback,
                memory=services.memory if spec.memory != "none" else None,
                policy=PolicyInForce(self),
                step_writer=step_log,
                executor=self._executor_for(run),
                approver=self._approver(run),
                inspector=self._inspector(run),
                messages=services.conversations.inbox,
                skills=catalog if spec.skills == "auto" else None,
                events=_RunEvents(run, self.events, services.model_outages),
                redact=self.redact,
                audit_fields=self._audit_fields,
            ),
            steps=step_log.steps,
        )

    def _offered_tools(self, run: Run, routine: Routine) -> list[str]:
        """Return the names of the tools that the model of a run is offered."""
        if routine.run.mode != "agent":
            return []
        policy, registry = self.policy_in_force(), self.services.registry
        always: list[str] = []  # tools by which a routine ends and reports, asked for or not
        if run.trigger != ASK:
            always = ["finish", REPORT_ITEMS] if routine.dedupe else ["finish"]
        names = registry.names([*routine.run.tools, *always])
        return [
            name
            for name in names
            if (name != REPORT_ITEMS or name in always)
            and (name not in NAMED_ONLY_TOOLS or policy.names(name, routine.under))
        ]

    def _executor_for(self, run: Run) -> ToolExecutor:
        return self.dry_run_executor if run.trigger == REHEARSAL else self.executor

    async def images_for(
        self, run: Run, routine: Routine, event_input: Json | None
    ) -> AttachedImages:
        """Return the images that the routine's model is shown, as far as the policy allows it."""
        new_files = event_input["paths"] if run.trigger == "watch" and event_input else ()
        return await asyncio.to_thread(
            load_images,
            routine.run.media,
            new_files,
            policy=self.policy_in_force(),
            routine=routine.under,
        )

    async def _initial_taint(self, run: Run) -> Taint:
        """Return the taint of a run before its first step: a sub-agent has its parent's."""
        if run.trigger != SUBAGENT:
            return run.taint
        run_input: Json = await self.journal.runs.get_input(run.id) or {}
        return max_taint(run.taint, Taint.TAINTED if run_input.get("tainted") else Taint.NONE)

    async def preview(self, routine: Routine) -> Preview:
        """Return what the model of a run of the routine would be told now; no model is asked."""
        now = self.now()
        run = Run(
            id=new_id(),
            routine=routine.name,
            definition="",
            trigger="manual",
            slot=now,
            created=now,
            event="preview",
            goal=routine.run.prompt,
        )
        await self.services.mcp_servers.ready(_tools_of(routine))
        recorder = StepRecorder(self.journal.runs, run, self.events)
        agent = await self.agent_for(run, routine, recorder, asyncio.get_running_loop().time())
        return Preview(*agent.preview(), agent.provider.name, agent.provider.model_name)

    def _metered(self, run: Run, routine: Routine) -> list[LLMProvider]:
        """Return the models that a run may ask, in order, each with the budget of the run."""
        services, budget = self.services, self.budgets.get(run.id)
        if budget is None:
            parent: RunBudget | None = None
            if run.trigger == SUBAGENT:  # what a sub-agent spends, its parent spends
                parent = self.budgets.get((run.event or "").partition("/")[0])
            budget = RunBudget(
                run=run.id, routine=run.routine, budget=routine.run.budget, parent=parent
            )
            self.budgets[run.id] = budget
        tracer = services.settings.tracer
        providers: list[LLMProvider] = []
        for provider in self.settings.providers.chain(routine):
            if provider.kind == "offline":
                providers.append(provider)
                continue
            metered: LLMProvider = MeteredProvider(
                provider, budget_ledger=services.budget_ledger, account=budget
            )
            if tracer is not None:
                from daemon.providers.traced import TracedProvider

                metered = TracedProvider(metered, tracer=tracer, run=run)
            providers.append(metered)
        return providers

    def _approver(self, run: Run) -> RunApprover | DenyApprovals | RehearsalApprover:
        if run.trigger == SUBAGENT:
            return DenyApprovals()  # its parent cannot wait with it
        if run.trigger == REHEARSAL:
            return RehearsalApprover()
        return RunApprover(
            run,
            self.journal,
            self.services.settings,
            self.services.approvals.calls,
            self.services.approvals.remembered,
            clock=self.services.clock,
            language=self.settings.config.agent.language,
        )

    def _inspector(self, run: Run) -> InjectionInspector:
        return InjectionInspector(
            run,
            self.journal,
            PolicyInForce(self),
            language=self.settings.config.agent.language,
        )

    def _audit_fields(self) -> Json:
        """Return what is written beside each call: the policy in force, and the sandbox."""
        fields: Json = {"policy": self.policy_in_force().hash}
        if sandbox := self.services.sandbox_detection.current:
            fields["sandbox"] = sandbox.level
        return fields

    def _tool_context(self, run: Run, routine: Routine, steps: Sequence[Step] = ()) -> ToolContext:
        results = [step.body for step in steps if step.kind is StepKind.RESULT]
        return ToolContext(
            run=run.id,
            # the routine's own name: a sub-agent has no more rights than whom it works for
            routine=routine.under,
            workspace=self.services.workspace,
            language=self.settings.config.agent.language,
            dedupe=routine.dedupe.key if routine.dedupe else "",
            programs=ProgramTime(
                sum(body["seconds"] for body in results if body["tool"] in PROGRAMS)
            ),
        )

    async def _prompt_context(
        self, run: Run, routine: Routine, offered_tools: Sequence[str], *, is_new: bool
    ) -> PromptContext:
        """Return what the prompt is rendered from.

        The prompt of a resumed run is in its journal already, so memory is not read for it.
        """
        settings = self.settings
        agent = settings.config.agent
        context = PromptContext(
            persona=Persona(
                name=agent.name,
                user_name=agent.user_name,
                persona=agent.persona,
                language=agent.language,
            ),
            workspace=self.services.workspace,
            now=self.now(),
            zone=ZoneInfo(routine.trigger.timezone) if routine.trigger.timezone else settings.zone,
            routine="" if run.trigger == ASK else routine.name,
            silent_token=routine.run.silent_token or "",
            sections=routine.run.sections,
        )
        if not is_new:
            return context
        briefing, previous = RecallContext("", "", tainted=False), None
        has_previous = run.trigger not in (ASK, SUBAGENT)
        if has_previous:
            previous = self.journal.runs.get_cached_success(
                run.base_routine, before=run.id
            )  # where it ended in this process
        must_look = has_previous and previous is None
        if routine.run.memory != "none":
            latest_run = newest(run.base_routine, {Status.SUCCEEDED}, run.id)
            briefing = await self.services.memory.recall(
                run.goal,
                f"routine:{routine.name}:approach",
                exclude_run=run.id,
                read_extra=latest_run if must_look else None,
            )
            previous = briefing.extra if must_look else previous
        elif must_look:
            previous = await self.journal.runs.get_last(
                run.base_routine, statuses={Status.SUCCEEDED}, before=run.id
            )
        is_scheduled = run.event is None
        language = agent.language
        return replace(
            context,
            slot=run.slot if is_scheduled else None,
            lateness=(context.now - run.slot).total_seconds() if is_scheduled else 0.0,
            was_down=run.slot < self.services.start,
            policy=self.policy_in_force().summary(routine.under, offered_tools, language=language)
            if offered_tools
            else "",
            identity=self._identity(),
            previous_report=(previous.report or "") if previous else "",
            previous_at=previous.ended if previous else None,
            recalled=briefing.excerpt_text,
            approach=briefing.item_text,
            taint=max_taint(
                Taint.TAINTED if briefing.tainted else Taint.NONE,
                previous.taint if previous else Taint.NONE,
            ),
        )

    def _identity(self) -> str:
        """Return the owner's own words on who the agent is, as the files say them now."""
        paths = self.settings.config.identity_paths
        return "\n\n".join(path.read_text("utf-8").strip() for path in paths if path.is_file())

    async def archive(
        self, run: Run, routine: Routine, reply: Reply, steps: Sequence[Step]
    ) -> Usage:
        """Archive the run in memory, if its routine says so; return what a summary by a model used.

        What is archived is committed with the end of the run, which is written next, or before it.
        """
        if routine.run.memory != "recall+store" or run.trigger == REHEARSAL:
            return Usage()
        now, memory = self.now(), self.services.memory
        segments = archive.segments(run.goal, steps, now)
        text = "\n".join([segment.text for segment in segments])
        if self.redact(text) != text:  # seldom: steps are written without secrets
            segments = [replace(item, text=self.redact(item.text)) for item in segments]
        summary: LLMResponse | None = None
        if self.settings.config.memory.summarise:
            summary = await self._summarise(run, routine, reply, segments)
        if summary:
            segments = add_summary(segments, self.redact(summary.content))
        write = memory.archive(
            run=run.id,
            routine=run.routine,
            goal=run.goal,
            status=reply.status.value,
            segments=segments,
            started=run.started or now,
            ended=now,
            line=self.redact(archive.conversation_item(run, reply, find_summary(segments))),
            tainted=bool(run.taint),
        )
        write.add_done_callback(_log_if_lost)
        return summary.usage if summary else Usage()

    async def _summarise(
        self, run: Run, routine: Routine, reply: Reply, segments: Sequence[Segment]
    ) -> LLMResponse | None:
        """Ask the model that answered for a summary of the run.

        Returns None where there is nothing to sum up, no budget left or no answer in time.
        """
        providers = self._metered(run, routine)
        provider = next(
            (candidate for candidate in providers if candidate.name == run.provider), providers[0]
        )
        if (
            provider.kind == "offline"
            or reply.silent
            or reply.status is not Status.SUCCEEDED
            or len(segments) < 2
        ):
            return None
        messages = build_prompt(run.routine, segments, self.settings.config.agent.language)
        budget = routine.run.budget.tokens
        if budget and reply.usage.total + estimate(messages[0].content) + ANSWER_TOKENS > budget:
            return None
        try:
            async with asyncio.timeout(TIMEOUT):
                return await provider.chat(messages, max_tokens=ANSWER_TOKENS, routine=run.routine)
        except (ProviderError, OverBudget, TimeoutError) as error:
            log.warning(
                "memory.not_summarised", error=self.redact(str(error)) or "no answer in time"
            )
            return None


def _log_if_lost(write: asyncio.Future[bool]) -> None:
    """Log why a run was not archived; its end is not changed by that."""
    if not write.cancelled() and (error := write.exception()):
        log.error("memory.not_archived", exc_info=error)


def with_skills(
    context: PromptContext, catalog: SkillCatalog | None, selection: str | Sequence[str]
) -> PromptContext:
    """Return the context with the guides of the skills that are always there and of those named.

    `selection` is the routine's `skills`: names, or "auto" for those that the model chooses.
    """
    if catalog is None or not catalog.skills:
        return context
    selected = [] if isinstance(selection, str) else list(selection)
    always = [name for name, skill in catalog.skills.items() if skill.always]
    catalogue = catalog.catalogue(None if selection == "auto" or not selected else selected)
    return replace(context, skills=catalogue, skill=catalog.guides([*always, *selected]))


def _tools_of(routine: Routine) -> list[str]:
    """Return the names and patterns of the tools that a routine names."""
    return [*routine.run.tools, *(step.tool for step in routine.gather)]
