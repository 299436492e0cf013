"""What one run needs of the daemon: models, tools, a prompt for its agent, memory, notices.

`run.py` tells the life of a run. The RunContext that it is given is built by `RunContexts` when a
process takes the run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

import structlog

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.agent.conversations.conversations import ASK, origin_of
from daemon.agent.conversations.sessions import EarlierConversation
from daemon.agent.loop import LoopLimits
from daemon.agent.prompt import LeftOutContext, OtherReport, Persona, PromptContext
from daemon.agent.tool_calls import DenyApprovals, NoInspection, ToolCallRunner
from daemon.agent.transcript import Transcript
from daemon.definitions.config.tables import KINDS_BY_KEY
from daemon.definitions.reading import read_text
from daemon.definitions.routines.routine import Judge, Routine
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
from daemon.policy.policy import LivePolicy
from daemon.policy.policy_file import NAMED_ONLY_TOOLS
from daemon.providers import LLMProvider
from daemon.providers.budget import RunBudget
from daemon.providers.metered import MeteredProvider
from daemon.runs.approvals.approver import RunApprover
from daemon.runs.approvals.expected import sources_of_strangers_words
from daemon.runs.approvals.notice import make_waiting_notice
from daemon.runs.checker import LiveChecker
from daemon.runs.events import EventBus, end_of, waiting_of
from daemon.runs.gather import HAND_TRIGGERS
from daemon.runs.images import AttachedImages, load_images
from daemon.runs.leased_provider import LeasedProvider
from daemon.runs.protocols import StepLog
from daemon.runs.recorder import StepRecorder
from daemon.runs.rehearsal.dry_run import REHEARSAL, DryRunToolExecutor, RehearsalApprover
from daemon.runs.services import RunServices
from daemon.runs.spread import spread_delay
from daemon.store.run_rows import select_last
from daemon.store.runs import RunRepository
from daemon.token_estimate import estimate_tokens
from daemon.tools.builtin import finish, shell
from daemon.tools.builtin.command_lines import PROGRAMS
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from daemon.tools.reported_items import REPORT_ITEMS

# Nothing tells us when somebody has made room on a full disk.
FULL_DISK_RETRY_SECONDS = 30.0
MAX_PARSED_DEFINITIONS = 256  # kept in memory: those of the routines that run often
_ABOUT_DAEMON = re.compile(r"(?<![a-z])agent(?:d|ctl)(?![a-z])", re.IGNORECASE)
log = structlog.get_logger()


class Preview(NamedTuple):
    """What the model of a run would be told."""

    sections: Mapping[str, str]
    functions: Sequence[Json]
    provider: str
    model: str
    left_out: LeftOutContext


class _RunEvents:
    """Publishes what happens while a run is under way, to those who follow it."""

    def __init__(
        self, run: Run, step_log: StepLog, events: EventBus, model_outages: ModelOutages
    ) -> None:
        self._run, self._step_log = run, step_log
        self._events, self._model_outages = events, model_outages

    @property
    def wants_deltas(self) -> bool:
        return self._events.is_followed(self._run.id)

    def emit(self, event: Json) -> None:
        if event["type"] == "failed_over":
            self._model_outages.record_failure(event["from"], event["reason"])
        self._step_log.publish_live(event)


class PolicyInForce:
    """Judge each call by the policy that is in force at that moment: a reload changes it for runs
    under way, too.
    """

    def __init__(self, settings: LivePolicy) -> None:
        self._settings = settings

    @property
    def detector(self) -> str:
        return self._settings.policy.detector

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict:
        return self._settings.policy.judge(tool, arguments, routine=routine, tainted=tainted)

    def is_read_only(self, tool: str, arguments: Json) -> bool:
        return self._settings.policy.is_read_only(tool, arguments)

    def shows_injected_result(self, tool: str, arguments: Json, *, routine: str) -> bool:
        return self._settings.policy.shows_injected_result(tool, arguments, routine=routine)

    def prints_only_numbers(self, tool: str, arguments: Json, output: str) -> bool:
        return self._settings.policy.prints_only_numbers(tool, arguments, output)


class RunContexts:
    """What the runs of this process share; `take` returns the context of one of them."""

    def __init__(self, services: RunServices) -> None:
        self.services = services
        self.policy = PolicyInForce(services.settings)
        self.executor = ToolExecutor(services.registry)
        self.dry_run_executor = DryRunToolExecutor(services.registry, services.settings)
        self.budgets = WeakValueDictionary[str, RunBudget]()
        """By run: a sub-agent spends from the budget of its parent."""
        self.pings: set[asyncio.Task[None]] = set()
        """The pings that are under way."""
        self.backoff = LoopLimits().backoff
        """Seconds before a model is asked a second time; tests set less."""
        self.full_disk_retry = FULL_DISK_RETRY_SECONDS
        """Seconds before a write that a full disk refused is tried again."""
        self._routines: dict[str, Routine] = {}
        """By the hash of their definition."""

    def take(self) -> RunContext:
        """Return the context of a run that is taken now."""
        return RunContext(self)

    async def routine_of(self, run: Run) -> Routine:
        """Return the routine as `run` began it, with its MCP servers connected.

        Raises DaemonError if another version of agentd wrote what this one cannot read.
        """
        routine = self._routines.get(run.definition)
        if routine is None:
            definition = await self.services.journal.runs.get_definition(run.definition)
            try:
                routine = Routine.restore(definition)
            except ValueError as error:
                problem = str(error).splitlines()[0]
                raise DaemonError(
                    f"the definition this run began with cannot be read by this version: {problem}"
                ) from None
            if len(self._routines) >= MAX_PARSED_DEFINITIONS:
                self._routines.clear()
            self._routines[run.definition] = routine
        await self.services.mcp_servers.register_tools(_tools_of(routine))
        return routine


class RunContext:
    """What one run is given when a process takes it; see `run.py` for how it is used.

    The settings stay as they were when the run was taken, also when the config is read again while
    the run is under way. Only the policy and, in `make_waiting_notice`, the targets are read anew
    at each use.
    """

    def __init__(self, contexts: RunContexts) -> None:
        services = contexts.services
        self.services, self._shared = services, contexts
        self.settings = services.settings.current
        self.journal, self.events = services.journal, services.events
        self.owner = services.owner
        """Who holds the lease of the run."""
        self.zone = self.settings.zone.key
        """The name of the time zone of the config."""
        self.pings = contexts.pings
        self.full_disk_retry = contexts.full_disk_retry

    @property
    def runs(self) -> RunRepository:
        return self.journal.runs

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

    def make_waiting_notice(
        self, run: Run, routine: Routine, requests: Sequence[ApprovalRequest], deadline: datetime
    ) -> WaitingNotice:
        """Word what people are told when the run starts to wait for them.

        It goes to the routine's own targets whose `on` holds `waiting`, to those of
        `[incidents] to`, and to the chat in which a person started the run. A file is left out, as
        it would stand where the report belongs, and so is a dead man's switch, which no person
        reads.
        """
        config = self.services.settings.config  # people may have changed it since
        names = [
            *(rule.to for rule in routine.deliver if "waiting" in rule.on),
            *config.incidents.to,
            *([origin.chat] if (origin := origin_of(run)) else ()),
        ]
        unsuitable_kinds = (*KINDS_BY_KEY["path"], "ping")
        targets = [name for name in names if config.kind_of_target(name) not in unsuitable_kinds]
        zone = ZoneInfo(routine.timezone or self.zone)
        return make_waiting_notice(
            run, requests, targets, deadline=deadline.astimezone(zone), redact=self.redact
        )

    async def routine_of(self, run: Run) -> Routine:
        """Return the routine as the run began it; see `RunContexts.routine_of`."""
        return await self._shared.routine_of(run)

    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs gather steps: every tool there is, as far as the policy allows it."""
        return ToolCallRunner(
            registry=self.services.registry,
            executor=self._executor_for(run),
            policy=self._shared.policy,
            context=self._tool_context(run, routine),
            offered_tools=self.services.registry.names(),
            redact=self.redact,
            approver=self._approver(run, routine),
            inspector=self._inspector(run, withholds=routine.run.asks_model),
            audit_fields=partial(self._audit_fields, routine),
        )

    @property
    def asks_for_items(self) -> bool:
        """Whether a model that reported no items is told so: every live one is."""
        return True

    @property
    def judges_denials(self) -> bool:
        """Whether a run has failed of which all calls were denied: every live one has."""
        return True

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the command of a gate: the shell, whose result is the exit code."""
        registry = FunctionRegistry()
        shell.register_for_gates(
            registry,
            self.services.settings,
            sandbox=self.services.sandbox_detection.sandbox,
            zone=self.zone,
        )
        return replace(
            self.call_runner_for(run, routine),
            registry=registry,
            executor=ToolExecutor(registry),
            offered_tools=registry.names(),
            inspector=NoInspection(),
        )

    async def agent_for(
        self, run: Run, routine: Routine, step_log: StepLog, deadline: float
    ) -> Agent:
        """Return the agent of this run; one that was begun goes on from its steps."""
        spec, services = routine.run, self.services
        provider, *fallback = self._meter_providers(run, routine)
        offered_tools = self._offered_tools(run, routine)
        # facts that were gathered before are steps, too
        is_new = not any(step.kind is StepKind.PROMPT for step in step_log.steps)
        catalog: SkillCatalog | None = None
        if spec.mode == "agent" and (spec.skills or run.trigger == ASK):
            catalog = await asyncio.to_thread(services.load_skills)
            if catalog.skills and "skill" not in offered_tools:
                offered_tools = [*offered_tools, "skill"]
        earlier_conversation = (
            await self.services.conversations.load_earlier_conversation(run, provider)
            if run.trigger == ASK and is_new
            else EarlierConversation()
        )
        # a server's descriptions of its tools are strangers' words, too
        reads_strangers_words = (
            earlier_conversation.tainted or services.mcp_servers.untrusted_tools(offered_tools)
        )
        taint = max_taint(
            await self._initial_taint(run), Taint.TAINTED if reads_strangers_words else Taint.NONE
        )
        # the file or webhook that started the run stands in the message, which is read after the
        # prompt: it taints the run whatever the prompt holds
        is_tainted = is_new and (
            run.trigger in ("watch", "webhook") or bool(Transcript(step_log.steps, taint).taint)
        )
        prompt_context = await self._prompt_context(
            run, routine, offered_tools, is_new=is_new, is_tainted=is_tainted
        )
        if catalog is not None and catalog.skills:
            # of all skills that are always there the model reads the guides, of the others those
            # that the routine names; "auto" leaves the choice to the model
            named_skills = [] if isinstance(spec.skills, str) else list(spec.skills)
            always_read = [name for name, skill in catalog.skills.items() if skill.always]
            prompt_context = replace(
                prompt_context,
                skills=catalog.list_skills(named_skills or None),
                skill_text=catalog.guides([*always_read, *named_skills]),
            )
        max_tool_calls = min(
            spec.max_tool_calls,
            self.services.settings.policy.limits_for(routine.policy_name).tool_calls,
        )
        registry, executor = self._tools_for(run, routine)
        return Agent(
            provider,
            registry,
            options=AgentOptions(
                prompt_context=prompt_context,
                offered_tools=offered_tools,
                required_tools=spec.required_tools,
                limits=LoopLimits(
                    max_iterations=spec.max_iterations,
                    max_tool_calls=max_tool_calls,
                    tokens=spec.budget.tokens,
                    temperature=spec.temperature,
                    effort=spec.effort,
                    max_tokens=spec.max_tokens,
                    tool_retries=spec.tool_retries,
                    tool_retry_delay=spec.tool_retry_delay.total_seconds(),
                    on_rate_limit=spec.on_rate_limit,
                    backoff=self._shared.backoff,
                ),
                deadline=deadline,
                earlier_messages=earlier_conversation.messages,
                taint=taint,
                tool_context=self._tool_context(run, routine, step_log.steps),
                keeps_safe_reads=run.trigger != SUBAGENT,
            ),
            services=AgentServices(
                fallback=fallback,
                memory=services.memory if spec.memory != "none" else None,
                policy=self._shared.policy,
                step_writer=step_log,
                executor=executor,
                approver=self._approver(run, routine),
                inspector=self._inspector(run),
                messages=services.conversations.inbox,
                skills=catalog if spec.skills == "auto" else None,
                events=_RunEvents(run, step_log, self.events, services.model_outages),
                redact=self.redact,
                audit_fields=partial(self._audit_fields, routine),
            ),
            steps=step_log.steps,
        )

    def _offered_tools(self, run: Run, routine: Routine) -> list[str]:
        """Return the names of the tools that the model of a run is offered."""
        if routine.run.mode != "agent":
            return []
        policy, registry = self.services.settings.policy, self.services.registry
        own_tools: list[str] = []  # by which each run ends and reports, whatever `tools` names
        if run.trigger != ASK:
            own_tools = ["finish", REPORT_ITEMS] if routine.dedupe else ["finish"]
        names = registry.names([*routine.run.tools, *own_tools])
        return [
            name
            for name in names
            if (name != REPORT_ITEMS or name in own_tools)
            and (name not in NAMED_ONLY_TOOLS or policy.has_rule_naming(name, routine.policy_name))
        ]

    def _tools_for(self, run: Run, routine: Routine) -> tuple[FunctionRegistry, ToolExecutor]:
        """Return the tools of the model of a run, and what runs its calls.

        They are those of the daemon. Where the routine has a pace, `finish` also takes when the
        next run is to start.
        """
        if routine.pace is None or run.trigger in (ASK, SUBAGENT):
            return self.services.registry, self._executor_for(run)
        registry = FunctionRegistry(known_good=True)
        plain_registry = FunctionRegistry(known_good=True)
        finish.register(plain_registry)
        paced_registry = FunctionRegistry(known_good=True)
        finish.register_paced(paced_registry, routine.pace)
        registry.adopt(self.services.registry)
        registry.replace(plain_registry, paced_registry)
        if run.trigger == REHEARSAL:
            return registry, DryRunToolExecutor(registry, self.services.settings)
        return registry, ToolExecutor(registry)

    def _executor_for(self, run: Run) -> ToolExecutor:
        """Return what runs the calls of a run; in a rehearsal only those that change nothing."""
        return self._shared.dry_run_executor if run.trigger == REHEARSAL else self._shared.executor

    async def images_for(
        self, run: Run, routine: Routine, event_input: Json | None
    ) -> AttachedImages:
        """Return the images that the routine's model is shown, as far as the policy allows it."""
        new_files = event_input["paths"] if run.trigger == "watch" and event_input else ()
        return await asyncio.to_thread(
            load_images,
            routine.run.media,
            new_files,
            policy=self.services.settings.policy,
            routine=routine.policy_name,
        )

    async def _initial_taint(self, run: Run) -> Taint:
        """Return the taint of a run before its first step: a sub-agent has its parent's, and one
        that a person started with an input, or with words of others, that of the input.
        """
        if run.trigger not in (SUBAGENT, ASK, *HAND_TRIGGERS):
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
            taint=_expected_taint(routine),
        )
        await self.services.mcp_servers.register_tools(_tools_of(routine))
        recorder = StepRecorder(self.journal.runs, run, self.events)
        agent = await self.agent_for(run, routine, recorder, asyncio.get_running_loop().time())
        return Preview(
            *agent.preview(), agent.provider.name, agent.provider.model_name, agent.left_out
        )

    def checker_for(self, run: Run, routine: Routine, deadline: float) -> LiveChecker:
        """Return what compares reports with a schema and has them judged."""

        def find_provider(judge: Judge) -> LLMProvider:
            name, model = judge.provider_of(routine.run, self.settings.config.provider)
            provider = self.settings.providers.get(name, model)
            return self._meter(provider, run, self._budget_of(run, routine))

        return LiveChecker(
            workspace=self.services.workspace,
            language=self.settings.config.agent.language,
            find_provider=find_provider,
            routine=run.routine,
            deadline=deadline,
            backoff=self._shared.backoff,
            redact=self.redact,
        )

    def _meter_providers(self, run: Run, routine: Routine) -> list[LLMProvider]:
        """Return the models that a run may ask, in order, each with the budget of the run."""
        budget = self._budget_of(run, routine)
        chain = self.settings.providers.chain(routine)
        return [self._meter(provider, run, budget) for provider in chain]

    def _budget_of(self, run: Run, routine: Routine) -> RunBudget:
        """Return the budget of a run, the same for all its models."""
        budget = self._shared.budgets.get(run.id)
        if budget is None:
            parent: RunBudget | None = None
            payer = run.routine
            if run.trigger == SUBAGENT:  # what a sub-agent spends, its parent and its routine spend
                parent = self._shared.budgets.get((run.event or "").partition("/")[0])
                payer = parent.routine if parent else routine.name
            budget = RunBudget(run=run.id, routine=payer, budget=routine.run.budget, parent=parent)
            self._shared.budgets[run.id] = budget
        return budget

    def _meter(self, provider: LLMProvider, run: Run, budget: RunBudget) -> LLMProvider:
        """Return a model whose calls are paid from the budget of a run."""
        if provider.kind == "offline":
            return provider
        if self.journal.runs.shared:
            confirm_lease = partial(self.journal.runs.confirm_lease, run)
            provider = LeasedProvider(provider, confirm_lease=confirm_lease)
        metered_provider: LLMProvider = MeteredProvider(
            provider, budget_ledger=self.services.budget_ledger, run_budget=budget
        )
        if (tracer := self.services.settings.tracer) is not None:
            from daemon.providers.traced import TracedProvider

            metered_provider = TracedProvider(metered_provider, tracer=tracer, run=run)
        return metered_provider

    def _approver(
        self, run: Run, routine: Routine
    ) -> RunApprover | DenyApprovals | RehearsalApprover:
        """Return what decides about the calls of a run for which a person has to be asked."""
        if run.trigger == SUBAGENT:
            return DenyApprovals()  # its parent cannot wait with it
        if run.trigger == REHEARSAL:
            return RehearsalApprover()
        return RunApprover(
            run,
            self.journal,
            self.services.settings,
            self.services.approvals.describer,
            self.services.approvals.remembered_calls,
            policy_name=routine.policy_name,
            clock=self.services.clock,
            language=self.settings.config.agent.language,
        )

    def _inspector(self, run: Run, *, withholds: bool = True) -> InjectionInspector:
        return InjectionInspector(
            run,
            self.journal,
            self._shared.policy,
            language=self.settings.config.agent.language,
            withholds=withholds,
        )

    def _audit_fields(self, routine: Routine) -> Json:
        """Return what is written beside each call: the policy in force, the sandbox, and whether
        the routine is observed.
        """
        policy = self.services.settings.policy
        fields: Json = {"policy": policy.hash}
        if policy.is_observed(routine.policy_name, self.services.clock.now()):
            fields["mode"] = "observe"
        if sandbox := self.services.sandbox_detection.current:
            fields["sandbox"] = sandbox.level
        return fields

    def _tool_context(self, run: Run, routine: Routine, steps: Sequence[Step] = ()) -> ToolContext:
        """Return what tools are told of a run; `steps` tell how long its programs have run."""
        results = [step.body for step in steps if step.kind is StepKind.RESULT]
        return ToolContext(
            run=run.id,
            # the routine's own name: a sub-agent has no more rights than whom it works for
            routine=routine.policy_name,
            workspace=self.services.workspace,
            language=self.settings.config.agent.language,
            dedupe=routine.dedupe.key if routine.dedupe else "",
            verbatim=not routine.run.asks_model,
            programs=ProgramTime(
                sum(body["seconds"] for body in results if body["tool"] in PROGRAMS)
            ),
        )

    async def _prompt_context(
        self,
        run: Run,
        routine: Routine,
        offered_tools: Sequence[str],
        *,
        is_new: bool,
        is_tainted: bool,
    ) -> PromptContext:
        """Return what the prompt is rendered from.

        What strangers may have written in memory and in the previous report is left out where a
        run that is not tainted yet (`is_tainted`) would lose the free use of a tool by it.

        The prompt of a resumed run is in its journal already, so memory is not read for it.
        """
        settings, services = self.settings, self.services
        agent_config = settings.config.agent
        context = PromptContext(
            persona=Persona(
                name=agent_config.name,
                user_name=agent_config.user_name,
                persona=agent_config.persona,
                language=agent_config.language,
            ),
            workspace=services.workspace,
            now=self.now(),
            zone=ZoneInfo(routine.timezone) if routine.timezone else settings.zone,
            routine="" if run.trigger == ASK else routine.name,
            silent_token=routine.run.silent_token or "",
            sections=routine.run.sections,
        )
        if not is_new:
            return context
        # Words of strangers are put into a prompt only where they take nothing from the run.
        held_tools = () if is_tainted else self._held_tools(run, routine, offered_tools)
        recall_context, previous_run = await self._recall(
            run, routine, untainted_only=bool(held_tools)
        )
        left_out = LeftOutContext(
            memories=recall_context.left_out_texts,
            tools=held_tools,
            is_denied=run.trigger == SUBAGENT  # of which nobody is asked
            or services.settings.policy.is_observed(routine.policy_name, services.clock.now())
            or services.settings.policy.denies_once_tainted(routine.policy_name, held_tools),
        )
        previous_report = (previous_run.report or "") if previous_run else ""
        report_taint = previous_run.taint if previous_run and previous_report else Taint.NONE
        if held_tools and report_taint:
            left_out = replace(left_out, previous_report=True)
            previous_report, report_taint = "", Taint.NONE
        other_reports: list[OtherReport] = []
        other_routines = () if run.trigger in (ASK, SUBAGENT) else routine.run.context_from
        for name in other_routines or ():
            last_run = await self.journal.runs.get_last(
                name, statuses={Status.SUCCEEDED}, before=run.id
            )
            text = (last_run.report or "") if last_run else ""
            if last_run and text and last_run.taint and held_tools:
                left_out = replace(left_out, reports=(*left_out.reports, name))
                text = ""
            if last_run and text:
                report_taint = max_taint(report_taint, last_run.taint)
            at = (last_run.ended or last_run.created) if last_run else None
            other_reports.append(OtherReport(routine=name, text=text, at=at))
        policy = ""
        if offered_tools:
            policy = services.settings.policy.summary(
                routine.policy_name, offered_tools, language=agent_config.language
            )
        # the owner's own words on who the agent is, as the files say them now
        identity_paths = [path for path in settings.config.identity_paths if path.is_file()]
        is_scheduled = run.event is None
        due_at = run.slot + spread_delay(run, routine)
        return replace(
            context,
            slot=run.slot if is_scheduled else None,
            lateness=(context.now - due_at).total_seconds() if is_scheduled else 0.0,
            was_down=due_at < services.start,
            policy=policy,
            identity="\n\n".join(read_text(path).strip() for path in identity_paths),
            previous_report=previous_report,
            previous_at=previous_run.ended if previous_run else None,
            other_reports=other_reports,
            memory_text=recall_context.excerpt_text,
            approach=recall_context.item_text,
            taint=max_taint(Taint.TAINTED if recall_context.tainted else Taint.NONE, report_taint),
            left_out=left_out,
        )

    def _held_tools(
        self, run: Run, routine: Routine, offered_tools: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the tools that the run may use unasked as long as it is not tainted.

        These are the tools held by taint, and those with a call that a person allowed for good,
        which holds for untainted runs only.
        """
        policy, name = self.services.settings.policy, routine.policy_name
        held_tools = policy.tools_held_by_taint(
            name, offered_tools, keeps_safe_reads=run.trigger != SUBAGENT
        )
        if not (asked_tools := policy.tools_to_approve(name, offered_tools)):
            return held_tools
        entries = self.services.approvals.remembered_calls.load_entries()
        remembered_tools = {entry.tool for entry in entries if entry.routine == name}
        return (
            *held_tools,
            *(tool for tool in asked_tools if tool in remembered_tools and tool not in held_tools),
        )

    async def _recall(
        self, run: Run, routine: Routine, *, untainted_only: bool
    ) -> tuple[RecallContext, Run | None]:
        """Return what memory has on a run's goal, and the last run of its routine that succeeded.

        `untainted_only` holds for what memory has; the caller decides about the run.
        Runs that answer a person and sub-agents have no earlier run. One that ended in this process
        is at hand; else it is read in the transaction in which memory is read.
        """
        runs, previous_run = self.journal.runs, None
        is_previous_unread = False
        if run.trigger not in (ASK, SUBAGENT):
            previous_run = runs.get_cached_success(run.base_routine, before=run.id)
            is_previous_unread = previous_run is None
        if routine.run.memory == "none":
            if is_previous_unread:
                previous_run = await runs.get_last(
                    run.base_routine, statuses={Status.SUCCEEDED}, before=run.id
                )
            return RecallContext("", "", tainted=False), previous_run
        read_previous = None
        if is_previous_unread:
            read_previous = select_last(run.base_routine, {Status.SUCCEEDED}, run.id)
        recall_context = await self.services.memory.recall(
            run.goal,
            f"routine:{routine.name}:approach",
            exclude_run=run.id,
            untainted_only=untainted_only,
            # it names tools and files of which a routine may use but a few
            without_seeds=run.trigger != ASK and not _ABOUT_DAEMON.search(run.goal),
            read_extra=read_previous,
        )
        return recall_context, recall_context.extra if is_previous_unread else previous_run

    async def archive(
        self, run: Run, routine: Routine, reply: Reply, steps: Sequence[Step]
    ) -> Usage:
        """Archive the run in memory, if its routine says so; return what a summary by a model used.

        What is archived is committed with the end of the run, which is written next, or before it.
        """
        if routine.run.memory != "recall+store" or run.trigger == REHEARSAL:
            return Usage()
        now, memory = self.now(), self.services.memory
        segments = archive.make_segments(run.goal, steps, now)
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
            run_line=self.redact(archive.make_run_line(run, reply, find_summary(segments))),
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
        providers = self._meter_providers(run, routine)
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
        if (
            budget
            and reply.usage.total + estimate_tokens(messages[0].content) + ANSWER_TOKENS > budget
        ):
            return None
        try:
            async with asyncio.timeout(TIMEOUT):
                return await provider.chat(messages, max_tokens=ANSWER_TOKENS, routine=run.routine)
        except (ProviderError, OverBudget, TimeoutError) as error:
            log.warning(
                "memory.not_summarised", error=self.redact(str(error)) or "no answer in time"
            )
            return None


def _expected_taint(routine: Routine) -> Taint:
    """Return the taint that a run of the routine will have before its agent begins, as far as its
    definition says.
    """
    # these bring words of strangers only at times, which the definition does not tell
    uncertain = {"after", "memory_expand", "memory_recall", "subagent", "sysinfo"}
    sources = set(sources_of_strangers_words(routine, ())) - uncertain
    is_made_by_tainted_run = routine.origin is not None and routine.origin.tainted
    return Taint.TAINTED if sources or is_made_by_tainted_run else Taint.NONE


def _log_if_lost(write: asyncio.Future[bool]) -> None:
    """Log why a run was not archived; its end is not changed by that."""
    if not write.cancelled() and (error := write.exception()):
        log.error("memory.not_archived", exc_info=error)


def _tools_of(routine: Routine) -> list[str]:
    """Return the names and patterns of the tools that a routine names."""
    return [*routine.run.tools, *(step.tool for step in routine.gather)]
