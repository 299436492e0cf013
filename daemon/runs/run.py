"""The life of a run, from its lease to its end.

Whatever dies, the run's row and steps say where: a run that is taken up again comes through `live`
like a new one and finds in its steps what is already done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import structlog
from structlog.contextvars import bound_contextvars

from daemon.agent.tool_calls import Parked
from daemon.agent.transcript import Transcript
from daemon.definitions.routines.routine import Gate
from daemon.delivery.channels.base import deliveries_for
from daemon.errors import DaemonError, Fenced, Retryable, StoreFull
from daemon.models import (
    ApprovalRequest,
    FunctionCall,
    Reply,
    Run,
    Status,
    Step,
    Taint,
    ToolResult,
    Usage,
    WaitingNotice,
    worse,
)
from daemon.runs.events import Events, end_of, of_step, waiting_of
from daemon.runs.gather import (
    EVENTS,
    closed_by,
    closed_by_command,
    for_each_file,
    gather,
    told_by,
    values_of,
    with_facts,
)
from daemon.runs.images import Pictures
from daemon.runs.rehearsal.dry_run import REHEARSAL
from daemon.runs.retry import put_off
from daemon.store.seen_items import Sightings
from daemon.tools.builtin.subagent import SUBAGENT
from daemon.tools.reported_items import judged, reported

if TYPE_CHECKING:
    from daemon.agent.agent import Agent
    from daemon.agent.tool_calls import ToolCallRunner
    from daemon.definitions.routines.routine import Gather, Routine
    from daemon.models import Fact
    from daemon.store.journal import Journal

log = structlog.get_logger()


_Kept: TypeAlias = asyncio.Future[list[Step]]


class StepRecorder:
    """Where the steps of one run go, in order; watchers hear of a step once it is safe."""

    def __init__(self, journal: Journal, run: Run, events: Events, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        """Those of earlier attempts and of this one."""
        self.fruitful = False
        """This attempt has got further than the one before."""
        self._journal, self._run, self._events = journal, run, events
        self._begin = asyncio.get_running_loop().time()
        self._riding: _Kept | None = None

    @property
    def alone(self) -> bool:
        """Nobody else can live the run: the lock on the state folder is ours."""
        return not self._journal.shared

    @property
    def active(self) -> float:
        """Seconds the run has lived, earlier attempts included."""
        return self._run.active + asyncio.get_running_loop().time() - self._begin

    def append(self, *steps: Step, durable: bool = False) -> Awaitable[list[Step]]:
        kept = self._submit(steps, durable=durable)
        return kept if kept is self._riding else self._told(kept)

    def ride(self, *steps: Step) -> None:
        kept = self._submit(steps, lazily=True)
        if (
            kept is not self._riding
        ):  # else those before it are on their way still, and it goes with them
            self._riding = kept
            kept.add_done_callback(self._tell)

    def _submit(
        self, steps: Sequence[Step], *, durable: bool = False, lazily: bool = False
    ) -> _Kept:
        self.steps += steps
        self.fruitful = True
        return self._journal.append(
            self._run, *steps, durable=durable, lazily=lazily, active=self.active
        )

    async def _told(self, kept: _Kept) -> list[Step]:
        """Wait for steps and tell of them: whoever awaits them needs no turn of the loop besides
        his own.
        """
        try:
            return await kept
        finally:
            self._tell(kept)

    def _tell(self, kept: _Kept) -> None:
        if not kept.done() or kept.cancelled():
            return
        if fault := kept.exception():
            if isinstance(fault, StoreFull):  # said here, as nobody may wait for this step
                log.error("step.refused", run=self._run.id, detail=str(fault))
            return
        if not self._events.followed:
            return
        for step in kept.result():
            if event := of_step(self._run, step):
                self._events.publish(self._run.id, event)


class StepLog(Protocol):
    """Where the steps of one run go, and what it has done so far."""

    @property
    def steps(self) -> list[Step]: ...
    @property
    def alone(self) -> bool: ...
    def append(self, *steps: Step, durable: bool = False) -> Awaitable[object]: ...
    def ride(self, *steps: Step) -> None: ...


class History(Protocol):
    """What is known of this run and of those before it."""

    async def get(self, run_id_or_prefix: str) -> Run: ...
    async def input_of(self, run_id: str) -> Any: ...
    async def last(
        self, routine: str, *, statuses: Collection[Status], before: str | None = None
    ) -> Run | None: ...
    async def steps(self, run_id: str) -> list[Step]: ...


class Around(Protocol):
    """What a run finds around itself while it thinks: a live one, and one that is played again from
    its record.
    """

    @property
    def journal(self) -> History: ...
    def hands_for(self, run: Run, routine: Routine) -> ToolCallRunner: ...
    def hands_for_gate(self, run: Run, routine: Routine) -> ToolCallRunner:
        """Hands whose `shell` tells the exit code."""

    async def agent_for(
        self, run: Run, routine: Routine, record: StepLog, deadline: float
    ) -> Agent: ...
    async def pictures(self, routine: Routine, run: Run, given: Any) -> Pictures:
        """Return what the model of a run is to see; `given` is what the event brought along that
        started it.
        """


class Host(Around, Protocol):
    """What a live run finds around itself."""

    @property
    def journal(self) -> Journal: ...
    @property
    def events(self) -> Events: ...
    @property
    def owner(self) -> str:
        """Who holds the leases."""

    @property
    def zone(self) -> str:
        """The zone in which reports are dated whose routine names none."""

    @property
    def room_every(self) -> float:
        """Seconds between looks at a full disk."""

    def now(self) -> datetime: ...
    def redact(self, text: str) -> str: ...
    def wake_outbox(self) -> None: ...
    def ping(self, target: str, run: Run) -> None:
        """Tell a dead man's switch that a run starts; nobody waits for that."""

    def wake_approvals(self) -> None:
        """A question was put to a person: it expires some day."""

    def waiting_notice(
        self, run: Run, routine: Routine, petitions: Sequence[ApprovalRequest], until: datetime
    ) -> WaitingNotice:
        """Word what people are told when the run starts to wait for them."""

    async def sandbox(self) -> str:
        """Return how well programs are confined: what `Run.sandbox` says."""

    async def routine_of(self, run: Run) -> Routine:
        """Return the routine as the run began it; DaemonError if this version cannot read it."""

    async def end_children(self, run: Run) -> None: ...
    async def archive(
        self, run: Run, routine: Routine, reply: Reply, steps: Sequence[Step]
    ) -> Usage: ...


async def live(run_id: str, host: Host, *, takeover: bool = False) -> Run | None:
    """Live one run to its end, or to where it has to wait; None if it is not there to be taken.

    As its `takeover` we may have it whoever lives it: we have taken over the run that it works for.
    """
    begin = asyncio.get_running_loop().time()
    taking = _taking(run_id, host, takeover)
    try:
        while isinstance(run := await asyncio.shield(taking), StoreFull):
            log.error("run.not_begun", run=run_id, detail=str(run))
            await asyncio.sleep(host.room_every)
            taking = _taking(run_id, host, takeover)
        if run is None:
            return None
        with bound_contextvars(run=run.id, routine=run.routine, slot=run.slot.isoformat()):
            log.info("run.started", attempt=run.attempt, trigger=run.trigger)
            return await _guarded(run, host)
    except asyncio.CancelledError:
        # a person's cancel ends the run; the end of the process only suspends it
        if isinstance(taken := await taking, Run):
            with bound_contextvars(
                run=taken.id, routine=taken.routine, slot=taken.slot.isoformat()
            ):
                await asyncio.shield(_stopped(taken, host, begin))
        raise


def _taking(run_id: str, host: Host, takeover: bool) -> asyncio.Future[Run | StoreFull | None]:
    """Make a run ours, whatever becomes of who waits for that; the fault, if the disk does not take
    it.
    """
    if run := host.journal.begin(run_id, owner=host.owner):
        begun: asyncio.Future[Run | StoreFull | None] = asyncio.get_running_loop().create_future()
        begun.set_result(run)
        return begun

    async def take() -> Run | StoreFull | None:
        try:
            return await host.journal.take(run_id, owner=host.owner, takeover=takeover)
        except StoreFull as full:
            return full

    return asyncio.ensure_future(take())


async def _guarded(run: Run, host: Host) -> Run | None:
    """Live the run; whatever goes wrong around it ends or parks it, so that no row says `running`
    for nobody.
    """
    try:
        return await _lived(run, host)
    except Fenced:
        log.warning("run.fenced")  # somebody else lives it now; not a word more is written
        return None
    except StoreFull as error:
        log.error("run.stuck", detail=str(error))  # noqa: TRY400  # a full disk needs no traceback
        return await _when_there_is_room(run, host)


async def _lived(run: Run, host: Host) -> Run:
    """Live the run, and end it where its routine, or we, are at fault."""
    routine: Routine | None = None
    try:
        routine = await host.routine_of(run)
        if (
            routine.origin and routine.origin.tainted
        ):  # its maker had read strangers' words when it wrote the task
            run = replace(run, taint=worse(run.taint, Taint.TAINTED))
        if routine.ping and run.attempt == 1 and run.trigger != REHEARSAL:
            await host.journal.sure(run)
            host.ping(routine.ping, run)
        if run.cancel:
            return await _end(
                run, routine, Status.CANCELLED, host, detail="cancelled while nobody lived it"
            )
        if run.barren > routine.run.retry.attempts:
            detail = f"gave up: {run.barren - 1} attempts in a row died without a new step"
            return await _end(run, routine, Status.INTERRUPTED, host, detail=detail)
        return await _attempt(run, routine, host)
    except (Fenced, StoreFull):
        raise
    except DaemonError as error:
        return await _end(run, routine, Status.FAILED, host, detail=str(error))
    except Exception as error:
        log.exception("run.crashed")
        detail = f"a fault of agentd itself ({type(error).__name__}: {error}); its log has more"
        return await _end(run, routine, Status.FAILED, host, detail=detail)


async def _attempt(run: Run, routine: Routine, host: Host) -> Run:
    """Gate, gather, gate, ask, archive, end: each step of it is skipped where an earlier attempt
    has done it.
    """
    steps = await host.journal.steps(run.id)
    record = StepRecorder(host.journal, run, host.events, steps)
    limit = routine.run.timeout.total_seconds()
    deadline = asyncio.get_running_loop().time() + limit - run.active
    try:
        async with asyncio.timeout_at(deadline) as clock:
            answered = await answer(run, routine, host, record, deadline)
    except TimeoutError:
        if not clock.expired():
            raise
        detail = f"not done within {limit:g} s of active time"
        return await _end(run, routine, Status.TIMED_OUT, host, detail=detail)
    except Retryable as error:
        return await _put_off(run, routine, host, record, error)
    except Parked as asked:
        return await asyncio.shield(_parked(run, routine, host, record, asked))
    if isinstance(answered, str):
        return await _end(run, routine, Status.SKIPPED, host, detail=answered)
    reply, agent = answered
    run = replace(
        run,
        provider=agent.provider.name,
        model=agent.provider.model_name,
        taint=agent.transcript.taint,
    )
    spent = await host.archive(run, routine, reply, record.steps)
    if spent.total:
        reply = replace(reply, usage=reply.usage + spent)
    # shielded, as a cancel that comes this late must not part the end from those who wait for it
    found = None if run.trigger == REHEARSAL else _found(reply, routine, record.steps)
    return await asyncio.shield(
        _end(run, routine, reply.status, host, reply=reply, detail=reply.detail, found=found)
    )


async def answer(
    run: Run, routine: Routine, around: Around, record: StepLog, deadline: float
) -> tuple[Reply, Agent] | str:
    """Gate, gather, gate, ask; return the reply and who gave it, or why the gate stays closed.

    What the record holds already is not done again. Nothing of the run but its steps is written
    here.
    """
    steps = list(record.steps)
    gate = Gate() if run.trigger in UNGATED else routine.gate
    if gate.command:
        call_runner = around.hands_for_gate(run, routine)
        if reason := await closed_by_command(
            gate, call_runner=call_runner, steps=steps, record=record.append
        ):
            return reason
    before = await _values_before(run, routine, around)
    given = await _input_of(run, around)
    facts, wanted = [], for_each_file(routine.gather, run.trigger, given)
    if wanted:
        call_runner = around.hands_for(run, routine)
        facts = await gather(
            wanted, call_runner=call_runner, steps=steps, record=record.append, before=before
        )
    if reason := closed_by(gate, facts, before):
        return reason
    agent = await around.agent_for(run, routine, record, deadline)
    told, taint = ([], Taint.NONE) if agent.begun else await _told(run, routine, given, around)
    shown = (
        await around.pictures(routine, run, given)
        if routine.run.media and not agent.begun
        else Pictures()
    )
    all_facts = [*told, *shown.facts, *facts]
    reply = await agent.process_message(
        with_facts(run.goal, all_facts, agent.language),
        about=run.goal,
        facts=all_facts,
        taint=worse(taint, shown.taint),
        media=shown.images,
        notes=shown.notes,
    )
    return _novel(_judged(reply, wanted, facts), routine, record.steps), agent


async def _when_there_is_room(run: Run, host: Host) -> Run | None:
    """Hold the run where its journal ends until the disk takes writes again, then let it go on from
    there.
    """
    while True:
        await asyncio.sleep(host.room_every)
        try:
            return await host.journal.suspend(run, detail="the disk was full")
        except Fenced:
            return None
        except StoreFull:
            continue


PATIENCE = timedelta(
    hours=24
)  # of a question: who has not answered by then has seen the report of the next day
# A person who starts a run, and the first one ever, do not wait for something to change.
UNGATED = frozenset({"manual", "first_run", "once", REHEARSAL})


def _judged(reply: Reply, wanted: Sequence[Gather], facts: Sequence[Fact]) -> Reply:
    """Return the reply as a failure if a gather step that the routine needs was denied or
    failed.
    """
    needed = {each.name for each in wanted if each.required}
    broken = [fact.name for fact in facts if not fact.ok and fact.name in needed]
    if not broken or reply.status is not Status.SUCCEEDED:
        return reply
    return replace(
        reply, status=Status.FAILED, silent=False, detail=f"could not gather: {', '.join(broken)}"
    )


def _novel(reply: Reply, routine: Routine, steps: Sequence[Step]) -> Reply:
    """Return the reply with nothing in it that an earlier run has reported, where the routine wants
    that.
    """
    return judged(reply, reported(steps, routine.dedupe.key)) if routine.dedupe else reply


def _found(reply: Reply, routine: Routine, steps: Sequence[Step]) -> Sightings | None:
    """Return what is to be known as reported once the run has ended well."""
    if routine.dedupe is None or reply.status is not Status.SUCCEEDED:
        return None
    haul = reported(steps, routine.dedupe.key)
    return Sightings(items=haul.sightings, keep=routine.dedupe.keep) if haul else None


async def _input_of(run: Run, host: Around) -> Any:
    """Return what the event that started the run brought along; None without one."""
    return await host.journal.input_of(run.id) if run.trigger in EVENTS else None


async def _told(run: Run, routine: Routine, given: Any, host: Around) -> tuple[list[Fact], Taint]:
    """Return what the event that started the run said, looked at like what a tool brings, and whose
    words those are.
    """
    facts, taint = [], run.taint
    for fact in told_by(run.trigger, given):
        call = FunctionCall(name=run.trigger, arguments={})
        seen = await host.hands_for(run, routine).inspector.look(
            "event", call, ToolResult(ok=True, text=fact.text)
        )
        if run.trigger == "after":  # another run of ours: its words are as good as what it had read
            seen = replace(seen, taint=(await host.journal.get(given["run"])).taint)
        facts.append(replace(fact, text=seen.text))
        taint = worse(taint, seen.taint)
    return facts, taint


async def _values_before(run: Run, routine: Routine, host: Around) -> dict[str, Any]:
    """Return what the last good run gathered; gates and the report's "what changed" compare with
    it.
    """
    if not routine.gather:
        return {}
    last = await host.journal.last(run.about, statuses={Status.SUCCEEDED}, before=run.id)
    return values_of(await host.journal.steps(last.id)) if last else {}


async def _end(
    run: Run,
    routine: Routine | None,
    status: Status,
    host: Host,
    *,
    reply: Reply | None = None,
    detail: str | None = None,
    found: Sightings | None = None,
) -> Run:
    """End the run: its row and its deliveries are one commit.

    Without a readable routine nobody is told but the row.
    """
    spent = reply.usage if reply else Usage()
    if reply is None:
        try:
            transcript = Transcript(await host.journal.steps(run.id), run.taint)
            spent, run = transcript.usage, replace(run, taint=transcript.taint)
        except StoreFull:
            raise
        except (DaemonError, AttributeError, LookupError, TypeError, ValueError):
            # harmed steps: it ends all the same, and nobody can say any more what it has read
            run = replace(run, taint=worse(run.taint, Taint.TAINTED))
    run = run.to(
        status,
        ended=host.now(),
        detail=host.redact(detail) if detail else None,
        report=host.redact(reply.content) if reply else None,
        silent=bool(reply and reply.silent),
        usage=spent,
        iterations=reply.iterations if reply else run.iterations,
        sandbox=await host.sandbox(),
    )
    if routine and SUBAGENT in routine.run.tools:
        await host.end_children(run)
    zone = (routine and routine.trigger.timezone) or host.zone
    sent = routine is not None and run.trigger != REHEARSAL
    told = deliveries_for(run, routine.deliver, ping=routine.ping) if routine and sent else ()
    run = await host.journal.end(run, told, zone=zone, found=found if sent else None)
    host.events.publish(run.id, end_of(run))
    host.wake_outbox()
    log.info(
        "run.finished",
        status=run.status.value,
        detail=run.detail,
        tokens=run.usage.total,
        silent=run.silent,
    )
    return run


async def give_up(run: Run, routine: Routine, host: Host) -> None:
    """End a run that broke off so long ago that its slot would not be started any more."""
    taken = await host.journal.take(run.id, owner=host.owner)
    if taken is not None:
        detail = "the daemon was down for so long that its slot would not be started any more"
        await _end(taken, routine, Status.INTERRUPTED, host, detail=detail)


async def _put_off(
    run: Run, routine: Routine, host: Host, record: StepRecorder, error: Retryable
) -> Run:
    """Try again later from the same step, if the routine has attempts left."""
    retry, fruitless = routine.run.retry, 0 if record.fruitful else run.barren
    if fruitless + 1 >= retry.attempts:
        return await _end(run, routine, Status.FAILED, host, detail=str(error))
    lot = f"{run.id} {run.attempt}"
    when = host.now() + put_off(
        fruitless + 1, retry.backoff, retry.max, by=lot, at_least=error.retry_after
    )
    log.warning("run.put_off", until=when.isoformat(), detail=host.redact(str(error)))
    run = replace(run, active=record.active)
    return await host.journal.suspend(run, not_before=when, detail=host.redact(str(error)))


async def _parked(
    run: Run, routine: Routine, host: Host, record: StepRecorder, asked: Parked
) -> Run:
    """Leave the run to wait for a person, who is told so: its time stands still, and nothing of it
    stays in memory.
    """
    run = replace(run, active=record.active, taint=Transcript(record.steps, run.taint).taint)
    tools = ", ".join(dict.fromkeys(approval_request.tool for approval_request in asked.petitions))
    detail = f"waits for a person to allow {tools}: agentctl approvals"
    notice = host.waiting_notice(run, routine, asked.petitions, host.now() + PATIENCE)
    parked = await host.journal.park(
        run, asked.petitions, patience=PATIENCE, detail=detail, notice=notice
    )
    host.wake_outbox()
    if parked.status is Status.WAITING:
        host.events.publish(run.id, waiting_of(parked))
        host.wake_approvals()
        log.info("run.waiting", tools=tools)
    return parked


async def _stopped(run: Run, host: Host, begin: float) -> None:
    """Write down that a run was stopped in the middle, unless it has just ended."""
    now = await host.journal.get(run.id)
    if now.status.ended:
        return
    run = replace(run, active=run.active + asyncio.get_running_loop().time() - begin)
    # a stale owner has nothing to say, and what a full disk cannot take is found as left over at
    # the next start
    with suppress(Fenced, StoreFull):
        if now.cancel:
            routine = await host.routine_of(run)
            await _end(run, routine, Status.CANCELLED, host)
        else:
            await host.journal.suspend(run)
            log.info("run.suspended")
