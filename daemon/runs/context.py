"""What runs need of the daemon: models, tools, a prompt for their agent, memory, notices.

`run.py` tells the life of a run; the RunContext that it is given is made here, from the parts of
the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

import structlog

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.agent.conversations.conversations import ASK, Conversations
from daemon.agent.conversations.sessions import Past
from daemon.agent.loop import LoopLimits
from daemon.agent.prompt import Persona, PromptContext
from daemon.agent.tool_calls import DenyApprovals, ToolCallRunner
from daemon.definitions.config.config import Config
from daemon.definitions.routines.routine import Routine
from daemon.definitions.skills import SkillCatalog
from daemon.delivery.incidents.model_outages import Outages
from daemon.delivery.outbox import Outbox
from daemon.delivery.targets import Targets
from daemon.errors import DaemonError, OverBudget, ProviderError
from daemon.injection.inspector import InjectionInspector
from daemon.memory import archive
from daemon.memory.memory import Briefing, Memory
from daemon.memory.segments import Segment
from daemon.memory.summary import ANSWER_TOKENS, PATIENCE, question, summary_of, with_summary
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
    new_id,
    worse,
)
from daemon.policy.policy import Policy
from daemon.policy.restrictions import BY_NAME
from daemon.providers import LLMProvider
from daemon.providers.budget import BudgetLedger, RunBudget
from daemon.providers.metered import MeteredProvider
from daemon.providers.pool import Providers
from daemon.runs.approvals.approvals import Approvals
from daemon.runs.approvals.approver import RunApprover
from daemon.runs.approvals.notice import waiting_notice
from daemon.runs.events import Events, end_of, waiting_of
from daemon.runs.images import Pictures, look_at
from daemon.runs.recorder import StepLog, StepRecorder
from daemon.runs.rehearsal.dry_run import REHEARSAL, DryRunToolExecutor, NobodyNeeded
from daemon.sandbox.current import SandboxDetection
from daemon.store.journal import Journal
from daemon.store.runs import newest
from daemon.system.clock import Clock
from daemon.telemetry.redaction import Secrets
from daemon.tokens import estimate
from daemon.tools.builtin import shell
from daemon.tools.builtin.command_lines import PROGRAMS
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.executor import ToolExecutor
from daemon.tools.mcp.servers import Servers
from daemon.tools.registry import FunctionRegistry
from daemon.tools.reported_items import REPORT_ITEMS

if TYPE_CHECKING:
    from daemon.runs.tracing import Traces

# Nothing tells us when somebody has made room on a full disk.
FULL_DISK_RETRY_SECONDS = 30.0
BEGUN = 256  # definitions kept parsed: those of the routines that run often
log = structlog.get_logger()


class RunServices(Protocol):
    """The parts of the app that runs use; config, policy and providers may be others after a
    reload.
    """

    @property
    def config(self) -> Config: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def sandbox_detection(self) -> SandboxDetection: ...
    @property
    def outages(self) -> Outages: ...

    journal: Journal
    memory: Memory
    events: Events
    clock: Clock
    zone: ZoneInfo
    boot: datetime
    owner: str
    policy: Policy
    providers: Providers
    budget_ledger: BudgetLedger
    registry: FunctionRegistry
    targets: Targets
    outbox: Outbox
    approvals: Approvals
    talk: Conversations
    servers: Servers
    traces: Traces | None

    def catalog(self) -> SkillCatalog:
        """Read the skills there are now."""


class Preview(NamedTuple):
    """What a run would be told."""

    sections: Mapping[str, str]
    functions: Sequence[Json]
    provider: str
    model: str


class _PolicyInForce:
    """The policy as it is at each call, not as it was when the run began."""

    def __init__(self, rooms: RunServices) -> None:
        self._rooms = rooms

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict:
        return self._rooms.policy.judge(tool, arguments, routine=routine, tainted=tainted)

    def is_read_only(self, tool: str, arguments: Json) -> bool:
        return self._rooms.policy.is_read_only(tool, arguments)


class _RunEvents:
    """Publishes what happens while a run is under way, to those who follow it."""

    def __init__(self, run: Run, events: Events, outages: Outages) -> None:
        self._run, self._events, self._outages = run, events, outages

    @property
    def wants_deltas(self) -> bool:
        return self._events.watched(self._run.id)

    def emit(self, event: Json) -> None:
        if event["type"] == "failed_over":
            self._outages.failed(event["from"], event["reason"])
        self._events.publish(self._run.id, {"routine": self._run.routine, **event})


class RunContext:
    """What the runs of this process share; see `run.py` for how it is used."""

    def __init__(self, rooms: RunServices, workspace: Path) -> None:
        self._rooms, self._workspace = rooms, workspace
        self._pings: set[asyncio.Task[None]] = set()
        self._executor = ToolExecutor(rooms.registry)
        self._dry_run_executor = DryRunToolExecutor(rooms.registry, lambda: rooms.policy)
        self._policy = _PolicyInForce(rooms)
        self._begun: dict[str, Routine] = {}
        self._accounts = WeakValueDictionary[str, RunBudget]()
        """Of the runs under way."""
        self.backoff = LoopLimits().backoff
        """Seconds before a model is asked a second time; tests have less patience."""
        self.full_disk_retry = FULL_DISK_RETRY_SECONDS
        self.journal, self.events, self.owner = rooms.journal, rooms.events, rooms.owner

    @cached_property
    def _gate(self) -> ToolExecutor:
        """What runs the commands of gates; made for the first one, as few routines have any."""
        rooms, registry = self._rooms, FunctionRegistry()
        shell.register_for_gates(
            registry,
            lambda: rooms.policy,
            sandbox=rooms.sandbox_detection.sandbox,
            zone=rooms.zone.key,
        )
        return ToolExecutor(registry)

    @property
    def zone(self) -> str:
        return self._rooms.zone.key

    def now(self) -> datetime:
        return self._rooms.clock.now()

    def redact(self, text: str) -> str:
        return self._rooms.secrets.redact(text)

    async def cancel_subagents(self, run: Run, routine: Routine) -> None:
        """Cancel what is left of a run's sub-agents."""
        if SUBAGENT not in routine.run.tools:
            return
        for child in await self.journal.children(SUBAGENT, run.id):
            await self.journal.request_cancel(child.id)

    def announce_end(self, run: Run) -> None:
        """Tell followers, the outbox and the log that a run has ended. Call it after the commit."""
        self.events.publish(run.id, end_of(run))
        self._rooms.outbox.wake()
        log.info(
            "run.finished",
            status=run.status.value,
            detail=run.detail,
            tokens=run.usage.total,
            silent=run.silent,
        )

    def announce_wait(self, run: Run, tools: str) -> None:
        """Tell followers, the outbox and the log that a run waits for a person to allow `tools`."""
        self._rooms.outbox.wake()
        if run.status is Status.WAITING:  # else the person has answered meanwhile
            self.events.publish(run.id, waiting_of(run))
            self._rooms.approvals.wake()  # the question expires some day
            log.info("run.waiting", tools=tools)

    async def ping_started(self, run: Run, routine: Routine) -> None:
        """Tell the routine's dead man's switch that its run starts, once the claim is durable.

        Only the first attempt of a run that is no rehearsal is told. Nobody waits for the ping; one
        that fails is logged. Raises Fenced and StoreFull if the claim was not written.
        """
        target = routine.ping
        if target is None or run.attempt != 1 or run.trigger == REHEARSAL:
            return
        await self.journal.sure(run)
        task = asyncio.create_task(
            self._rooms.targets.started(target, run), name=f"ping of {target}"
        )
        self._pings.add(task)
        task.add_done_callback(self._pings.discard)

    async def sandbox_level(self) -> str:
        """Return how well programs are confined, as `Run.sandbox` says it."""
        return (await self._rooms.sandbox_detection.sandbox()).level

    def waiting_notice(
        self, run: Run, routine: Routine, requests: Sequence[ApprovalRequest], until: datetime
    ) -> WaitingNotice:
        """Word what people are told when the run starts to wait for them.

        It goes to the routine's own targets whose `on` holds `waiting`, and to those of
        `[incidents] to`. A file is left out, as it would stand where the report belongs, and so is
        a dead man's switch, which no person reads.
        """
        config = self._rooms.config
        kinds = {name: target.kind for name, target in config.targets.items()}
        names = [
            *(place.to for place in routine.deliver if "waiting" in place.on),
            *config.incidents.to,
        ]
        targets = [name for name in names if kinds.get(name, name) not in ("file", "ping")]
        zone = ZoneInfo(routine.trigger.timezone or self.zone)
        return waiting_notice(
            run, requests, targets, until=until.astimezone(zone), redact=self.redact
        )

    async def routine_of(self, run: Run) -> Routine:
        """Return the routine as the run began it; DaemonError if another version wrote what this
        one cannot read.
        """
        if known := self._begun.get(
            run.definition
        ):  # the name of a definition is the hash of its text
            await self._rooms.servers.ready(_tools_of(known))
            return known
        try:
            routine = Routine.restore(await self.journal.definition(run.definition))
        except ValueError as error:
            problem = str(error).splitlines()[0]
            raise DaemonError(
                f"the definition this run began with cannot be read by this version: {problem}"
            ) from None
        if len(self._begun) >= BEGUN:
            self._begun.clear()
        self._begun[run.definition] = routine
        await self._rooms.servers.ready(_tools_of(routine))
        return routine

    def call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs gather steps: every tool there is, as far as the policy allows it."""
        return ToolCallRunner(
            registry=self._rooms.registry,
            executor=self._executor_for(run),
            policy=self._policy,
            context=self._tool_context(run, routine),
            offered=self._rooms.registry.names(),
            redact=self.redact,
            approver=self._approver(run),
            inspector=self._inspector(run),
            audit_fields=self._audit_fields,
        )

    def gate_call_runner_for(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Return what runs the command of a gate: the shell, whose result is the exit code."""
        return ToolCallRunner(
            registry=self._gate.registry,
            executor=self._gate,
            policy=self._policy,
            context=self._tool_context(run, routine),
            offered=self._gate.registry.names(),
            redact=self.redact,
            approver=self._approver(run),
            audit_fields=self._audit_fields,
        )

    async def agent_for(
        self, run: Run, routine: Routine, recorder: StepLog, deadline: float
    ) -> Agent:
        """Return the agent of this run; one that was begun goes on from its steps."""
        spec, rooms = routine.run, self._rooms
        provider, *fallback = self._metered(run, routine)
        offered = self._offered_tools(run, routine)
        # facts that were gathered before are steps, too
        is_new = not any(step.kind is StepKind.PROMPT for step in recorder.steps)
        catalog: SkillCatalog | None = None
        if spec.mode == "agent" and (spec.skills or run.trigger == ASK):
            catalog = await asyncio.to_thread(rooms.catalog)
            if catalog.skills and "skill" not in offered:
                offered = [*offered, "skill"]
        past = await rooms.talk.history(run) if run.trigger == ASK and is_new else Past()
        prompt_context = await self._prompt(run, routine, offered, fresh=is_new)
        max_tool_calls = min(spec.max_tool_calls, rooms.policy.limits_for(routine.under).tool_calls)
        return Agent(
            provider,
            rooms.registry,
            options=AgentOptions(
                prompt_context=with_skills(prompt_context, catalog, spec.skills),
                offered_tools=offered,
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
                earlier_messages=past.said,
                taint=worse(await self._taint(run), Taint.TAINTED if past.tainted else Taint.NONE),
                tool_context=self._tool_context(run, routine, recorder.steps),
            ),
            services=AgentServices(
                fallback=fallback,
                memory=rooms.memory if spec.memory != "none" else None,
                policy=self._policy,
                step_writer=recorder,
                executor=self._executor_for(run),
                approver=self._approver(run),
                inspector=self._inspector(run),
                messages=rooms.talk.inbox,
                skills=catalog if spec.skills == "auto" else None,
                events=_RunEvents(run, self.events, rooms.outages),
                redact=self.redact,
                audit_fields=self._audit_fields,
            ),
            steps=recorder.steps,
        )

    def _offered_tools(self, run: Run, routine: Routine) -> list[str]:
        """Return the names of the tools that the model of a run is offered."""
        if routine.run.mode != "agent":
            return []
        policy, registry = self._rooms.policy, self._rooms.registry
        always: list[str] = []  # tools by which a routine ends and reports, asked for or not
        if run.trigger != ASK:
            always = ["finish", REPORT_ITEMS] if routine.dedupe else ["finish"]
        names = registry.names([*routine.run.tools, *always])
        return [
            name
            for name in names
            if (name != REPORT_ITEMS or name in always)
            and (name not in BY_NAME or policy.names(name, routine.under))
        ]

    def _executor_for(self, run: Run) -> ToolExecutor:
        return self._dry_run_executor if run.trigger == REHEARSAL else self._executor

    async def pictures_for(self, run: Run, routine: Routine, event_input: Json | None) -> Pictures:
        """Return the pictures that the routine's model is to see, as far as the policy allows."""
        landed = event_input["paths"] if run.trigger == "watch" and event_input else ()
        return await asyncio.to_thread(
            look_at, routine.run.media, landed, policy=self._rooms.policy, routine=routine.under
        )

    async def _taint(self, run: Run) -> Taint:
        """Return what of strangers a run has in it before its first step: a sub-agent has what its
        parent had.
        """
        if run.trigger != SUBAGENT:
            return run.taint
        given: Json = await self.journal.input_of(run.id) or {}
        return worse(run.taint, Taint.TAINTED if given.get("tainted") else Taint.NONE)

    async def preview(self, routine: Routine) -> Preview:
        """Return what a run of the routine would be told now, without running it."""
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
        await self._rooms.servers.ready(_tools_of(routine))
        recorder = StepRecorder(self.journal, run, self.events)
        agent = await self.agent_for(run, routine, recorder, asyncio.get_running_loop().time())
        return Preview(*agent.preview(), agent.provider.name, agent.provider.model_name)

    def _metered(self, run: Run, routine: Routine) -> list[LLMProvider]:
        """Return the models that a run may ask, each behind the meter of this run."""
        rooms = self._rooms
        account = self._accounts.get(run.id)
        if account is None:
            # what a sub-agent spends, its parent spends
            parent = (
                self._accounts.get((run.event or "").partition("/")[0])
                if run.trigger == SUBAGENT
                else None
            )
            account = RunBudget(
                run=run.id, routine=run.routine, budget=routine.run.budget, parent=parent
            )
            self._accounts[run.id] = account
        chain: list[LLMProvider] = [
            provider
            if provider.kind == "offline"
            else MeteredProvider(provider, budget_ledger=rooms.budget_ledger, account=account)
            for provider in rooms.providers.chain(routine)
        ]
        if rooms.traces is None:
            return chain
        from daemon.providers.traced import Traced

        return [
            each if each.kind == "offline" else Traced(each, traces=rooms.traces, run=run)
            for each in chain
        ]

    def trace(self, run: str) -> None:
        """Tell OpenTelemetry of a run that has ended, where somebody wants that."""
        if self._rooms.traces:
            self._rooms.traces.look(run)

    def _approver(self, run: Run) -> RunApprover | DenyApprovals | NobodyNeeded:
        if run.trigger == SUBAGENT:
            return DenyApprovals()  # whoever it works for cannot wait with it
        if run.trigger == REHEARSAL:
            return NobodyNeeded()
        return RunApprover(
            run,
            self.journal,
            lambda: self._rooms.policy,
            self._rooms.approvals.calls,
            self._rooms.approvals.remembered,
            now=self.now,
            language=self._rooms.config.agent.language,
        )

    def _inspector(self, run: Run) -> InjectionInspector:
        return InjectionInspector(
            run,
            self.journal,
            lambda: self._rooms.policy,
            language=self._rooms.config.agent.language,
        )

    def _audit_fields(self) -> Json:
        known = self._rooms.sandbox_detection.known
        return {"policy": self._rooms.policy.hash, **({"sandbox": known.level} if known else {})}

    def _tool_context(self, run: Run, routine: Routine, steps: Sequence[Step] = ()) -> ToolContext:
        results = [step.body for step in steps if step.kind is StepKind.RESULT]
        return ToolContext(
            run=run.id,
            # the routine's own name: a sub-agent has no more rights than whom it works for
            routine=routine.under,
            workspace=self._workspace,
            language=self._rooms.config.agent.language,
            dedupe=routine.dedupe.key if routine.dedupe else "",
            programs=ProgramTime(
                sum(body["seconds"] for body in results if body["tool"] in PROGRAMS)
            ),
        )

    async def _prompt(
        self, run: Run, routine: Routine, offered: Sequence[str], *, fresh: bool
    ) -> PromptContext:
        """Return what the prompt is made of; the prompt of a resumed run is in its journal and
        costs nothing here.
        """
        rooms, who = self._rooms, self._rooms.config.agent
        context = PromptContext(
            persona=Persona(
                name=who.name, user_name=who.user_name, persona=who.persona, language=who.language
            ),
            workspace=self._workspace,
            now=self.now(),
            zone=ZoneInfo(routine.trigger.timezone) if routine.trigger.timezone else rooms.zone,
            routine="" if run.trigger == ASK else routine.name,
            silent_token=routine.run.silent_token or "",
            sections=routine.run.sections,
        )
        if not fresh:
            return context
        alone = run.trigger in (ASK, SUBAGENT)  # the runs before it have nothing to do with it
        told, last = (
            Briefing("", "", tainted=False),
            None if alone else self.journal.latest(run.about, before=run.id),
        )
        unknown = not (alone or last)
        if routine.run.memory != "none":
            key, look = (
                f"routine:{routine.name}:approach",
                newest(run.about, {Status.SUCCEEDED}, run.id),
            )
            told = await rooms.memory.briefing(
                run.goal, key, exclude_run=run.id, beside=look if unknown else None
            )
            last = told.beside if unknown else last
        elif unknown:
            last = await self.journal.last(run.about, statuses={Status.SUCCEEDED}, before=run.id)
        scheduled = run.event is None
        return replace(
            context,
            slot=run.slot if scheduled else None,
            lateness=(context.now - run.slot).total_seconds() if scheduled else 0.0,
            was_down=run.slot < rooms.boot,
            policy=rooms.policy.summary(routine.under, offered, language=who.language)
            if offered
            else "",
            identity=self._identity(),
            previous_report=(last.report or "") if last else "",
            previous_at=last.ended if last else None,
            recalled=told.recalled,
            approach=told.kept,
            taint=worse(
                Taint.TAINTED if told.tainted else Taint.NONE, last.taint if last else Taint.NONE
            ),
        )

    def _identity(self) -> str:
        """Return the owner's own words on who the agent is; small files, read anew as they may be
        edited any time.
        """
        found = self._rooms.config.identity_paths
        return "\n\n".join(path.read_text("utf-8").strip() for path in found if path.is_file())

    async def archive(
        self, run: Run, routine: Routine, reply: Reply, steps: Sequence[Step]
    ) -> Usage:
        """Remember the run, if its routine wants that; return what a model's summary of it cost.

        What is kept is committed with the end of the run, which is written next, or before it.
        """
        if routine.run.memory != "recall+store" or run.trigger == REHEARSAL:
            return Usage()
        now, memory = self.now(), self._rooms.memory
        pieces = archive.segments(run.goal, steps, now)
        everything = "\n".join([piece.text for piece in pieces])
        if self.redact(everything) != everything:  # seldom: steps are kept without secrets
            pieces = [replace(piece, text=self.redact(piece.text)) for piece in pieces]
        told = (
            await self._summary(run, routine, reply, pieces)
            if self._rooms.config.memory.summarise
            else None
        )
        if told:
            pieces = with_summary(pieces, self.redact(told.content))
        kept = memory.archive(
            run=run.id,
            routine=run.routine,
            goal=run.goal,
            status=reply.status.value,
            segments=pieces,
            started=run.started or now,
            ended=now,
            line=self.redact(archive.conversation_item(run, reply, summary_of(pieces))),
            tainted=bool(run.taint),
        )
        kept.add_done_callback(_tell_if_lost)
        return told.usage if told else Usage()

    async def _summary(
        self, run: Run, routine: Routine, reply: Reply, pieces: Sequence[Segment]
    ) -> LLMResponse | None:
        """Ask the model that answered for a summary, where there is one, something to sum up and
        budget left.
        """
        chain = self._metered(run, routine)
        provider = next((each for each in chain if each.name == run.provider), chain[0])
        if (
            provider.kind == "offline"
            or reply.silent
            or reply.status is not Status.SUCCEEDED
            or len(pieces) < 2
        ):
            return None
        messages = question(run.routine, pieces, self._rooms.config.agent.language)
        budget = routine.run.budget.tokens
        if budget and reply.usage.total + estimate(messages[0].content) + ANSWER_TOKENS > budget:
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                return await provider.chat(messages, max_tokens=ANSWER_TOKENS, routine=run.routine)
        except (ProviderError, OverBudget, TimeoutError) as error:
            log.warning(
                "memory.not_summarised", error=self.redact(str(error)) or "no answer in time"
            )
            return None


def _tell_if_lost(kept: asyncio.Future[bool]) -> None:
    """Log why a run was not archived: it has ended as it did all the same."""
    if not kept.cancelled() and (error := kept.exception()):
        log.error("memory.not_archived", exc_info=error)


def with_skills(
    context: PromptContext, catalog: SkillCatalog | None, wanted: str | Sequence[str]
) -> PromptContext:
    """Return what a prompt is made of with the skills it is to know: those that are always there,
    and those named.
    """
    if catalog is None or not catalog.skills:
        return context
    named = [] if isinstance(wanted, str) else list(wanted)
    always = [name for name, skill in catalog.skills.items() if skill.always]
    catalogue = catalog.catalogue(None if wanted == "auto" or not named else named)
    return replace(context, skills=catalogue, skill=catalog.guides([*always, *named]))


def _tools_of(routine: Routine) -> list[str]:
    """Return the names and patterns of tools that a routine speaks of."""
    return [*routine.run.tools, *(each.tool for each in routine.gather)]
