"""What a daemon or worker does because it shares a database with others: it renews its leases,
takes runs from the queues, and follows what the other processes do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from daemon import __version__
from daemon.definitions.routines.routine import Routine
from daemon.errors import DaemonError, NotFound
from daemon.models import Json, Run, Status
from daemon.runs.events import end_of, event_of_step, retry_of, waiting_of
from daemon.scheduler.cluster.heartbeat import Heartbeat, HeartbeatHost
from daemon.scheduler.cluster.listener import NotificationListener
from daemon.scheduler.cluster.queue import (
    ANYWHERE,
    prepare_database,
    queue_of,
    queue_of_definition,
    read_queues_with_runs,
    repair_queue,
    requeue,
)
from daemon.scheduler.cluster.requirements import missing_requirements
from daemon.store.rows import MICROSECOND
from daemon.store.workers import Worker
from daemon.system.tasks import cancel_and_wait

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.providers.budget import BudgetLedger
    from daemon.runs.events import EventBus
    from daemon.scheduler.cluster.run_queue import ClusterRunQueue
    from daemon.store.database import Database
    from daemon.store.journal import Journal

log = structlog.get_logger()

# A run that was queued so long ago and has no job in the queue was lost on its way.
_OVERDUE = timedelta(seconds=10)
_RETRY_SECONDS = 1.0  # between a search or a service of a queue that failed and the next one


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterServices:
    """The parts of the application that the cluster needs."""

    database: Database
    journal: Journal
    events: EventBus
    queue: ClusterRunQueue
    budget_ledger: BudgetLedger
    conversations: Conversations
    owner: str
    """The id under which this process holds leases."""
    start: datetime
    """When this process started."""


class ClusterHost(HeartbeatHost, Protocol):
    """The application of this process, as its cluster sees it."""

    def handle_run_change(self, run: Run) -> None:
        """React to a changed status of a run of another process."""

    def handle_pause_change(self) -> None:
        """React to a routine that may have been paused or resumed, or a call approved for good."""


class Cluster:
    """This process as a member of the cluster."""

    def __init__(
        self,
        services: ClusterServices,
        host: ClusterHost,
        url: str,
        *,
        kind: str,
        executes_runs: bool,
        may_lead: bool,
    ) -> None:
        """Make a member; `url` is the address of the PostgreSQL database.

        `kind`: daemon or worker. `executes_runs`: whether it takes runs itself.
        """
        self._services, self._host, self._url = services, host, url
        self._executes_runs = executes_runs
        self._machine = os.uname().nodename
        worker = Worker(
            id=services.owner,
            kind=kind,
            host=self._machine,
            pid=os.getpid(),
            version=__version__,
            started=services.start,
            seen=services.start,
        )
        self.heartbeat = Heartbeat(
            services.journal,
            services.queue,
            worker,
            host,
            executes_runs=executes_runs,
            repair=repair_queue(_OVERDUE // MICROSECOND),
            may_lead=may_lead,
        )
        self._listener = NotificationListener(url, self._handle_notification, self._catch_up)
        self._check_tasks: dict[str, asyncio.Task[None]] = {}
        """By run id."""
        self._check_again: set[str] = set()
        """Runs that have changed while they were checked."""
        self._queue_tasks: dict[str, asyncio.Task[None]] = {}
        """By queue."""
        self._search_task: asyncio.Task[None] | None = None
        self._search_again = False
        self._published_steps: dict[str, int] = {}
        """The number of the last step that was published, by run."""

    async def prepare(self) -> None:
        """Create the queue in the database, if it is missing."""
        await prepare_database(self._services.database)

    def background_tasks(self) -> Iterator[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """Yield the names and functions of the tasks that run for as long as the process does."""
        yield "heartbeat", self.heartbeat.run
        yield "notification listener", self._listener.run

    def take_runs(self, routines: Iterable[Routine], is_here: Callable[[Routine], bool]) -> None:
        """Take runs that any machine may execute, and those of the given routines that are for this
        host. May be repeated with other routines.
        """
        if not self._executes_runs:
            return
        queues = {
            ANYWHERE,
            *(queue_of(routine.machines) for routine in routines if is_here(routine)),
        }
        self._serve_queues(queues)
        self._search_queues()

    def _serve_queues(self, queues: Iterable[str]) -> None:
        """Take runs from these queues, too, each in a task of its own."""
        run_queue, journal = self._services.queue, self._services.journal
        for queue in sorted(set(queues) - self._queue_tasks.keys()):
            serving = run_queue.serve(journal, self._url, [queue], self._requeue_if_unable)
            task = asyncio.create_task(serving, name=f"queue {queue}")
            self._queue_tasks[queue] = task
            task.add_done_callback(partial(self._serve_again, queue))

    def _serve_again(self, queue: str, task: asyncio.Task[None]) -> None:
        """Serve a queue anew whose task has ended and was not cancelled: no run would come from it
        any more.
        """
        is_wanted = self._executes_runs and self._queue_tasks.get(queue) is task
        if is_wanted and not (task.cancelled() and task.cancelling()):
            problem = "cancelled" if task.cancelled() else repr(task.exception())
            log.error("cluster.queue_ended", queue=queue, problem=problem)
            del self._queue_tasks[queue]
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._serve_queues, [queue])

    async def stop_taking_runs(self) -> None:
        """Take no more runs from the queues; runs under way go on."""
        self._executes_runs = False
        await cancel_and_wait([*self._queue_tasks.values(), *filter(None, [self._search_task])])

    # --- runs that not every process can execute

    async def _requeue_if_unable(self, run: Run) -> bool:
        """Put a run into the queue of its definition if this process cannot execute it; return
        whether it did.
        """
        definition = await self._services.journal.runs.get_definition(run.definition or "")
        missing_names = self._missing_requirements(definition)
        if not missing_names:
            return False
        queue = queue_of_definition(run)
        await self._services.database.write(requeue(run, queue))
        log.info("run.passed_on", run=run.id, routine=run.routine, lacking=missing_names)
        # A queue that this process has served until a reload took away what its runs need.
        if queue_task := self._queue_tasks.pop(queue, None):
            queue_task.cancel()
        return True

    def _missing_requirements(self, definition: str) -> list[str]:
        """Return what this process lacks for the routine that `definition` is the JSON text of."""
        try:
            routine = Routine.restore(definition)
        except ValueError:  # a newer version wrote it
            return ["a version that can read its definition"]
        return missing_requirements(routine, self._host.capabilities(), self._machine)

    def _search_queues(self) -> None:
        """Search, in a task, for queues whose runs others could not execute and this one can."""
        self._search_again = True
        if self._executes_runs and (self._search_task is None or self._search_task.done()):
            self._search_task = asyncio.create_task(
                self._serve_queues_found(), name="search for queues"
            )

    async def _serve_queues_found(self) -> None:
        while self._search_again:
            self._search_again = False
            try:
                queues = await self._services.database.read(read_queues_with_runs)
                self._serve_queues(
                    queue
                    for queue, definition in queues
                    if not self._missing_requirements(definition)
                )
            except DaemonError:
                pass  # the database does not answer: once the listener has connected, it searches
            except (
                Exception
            ):  # a background task: runs that only this process can execute would wait
                log.exception("cluster.search_failed")
                self._search_again = True
                await asyncio.sleep(_RETRY_SECONDS)

    async def leave(self) -> None:
        """Take this process off the list of workers; if that fails, its lease runs out."""
        with suppress(DaemonError, TimeoutError):
            await self.heartbeat.leave()

    # --- what other processes do

    def _catch_up(self) -> None:
        """Check everything that may have changed while notifications were not received."""
        self.heartbeat.beat_now()
        self._host.handle_pause_change()
        self._services.budget_ledger.notify_waiters()
        self._search_queues()
        # those of this process may have been sent messages
        for run_id in self._services.events.followed_runs() | self._services.queue.executed_runs:
            self._check_run(run_id)

    def _handle_notification(self, notification: Json) -> None:
        """React to what queue.sql and queue.requeue send."""
        if "routine" in notification or "remembered" in notification:
            self._host.handle_pause_change()
            return
        if "paid" in notification:
            self._services.budget_ledger.notify_waiters()
            return
        if "passed" in notification:
            self._search_queues()
            return
        run_id = notification.get("run")
        if run_id is None:
            return  # a newer version sends what this one does not know
        is_executed_here = run_id in self._services.queue.executed_runs
        if notification.get("cancel") and is_executed_here:
            self._services.queue.interrupt(run_id)
        if "told" in notification:
            if is_executed_here:
                self._check_run(run_id)
            return
        if is_executed_here:
            return
        is_over_or_parked = notification["status"] not in ("queued", "running")
        if is_over_or_parked or self._services.events.is_followed(run_id):
            self._check_run(run_id)

    def _check_run(self, run_id: str) -> None:
        """Read a run from the journal, in a task, and once more if it changes meanwhile."""
        if run_id in self._check_tasks:
            self._check_again.add(run_id)
            return
        task = asyncio.create_task(self._publish_changes(run_id), name=f"check of {run_id}")
        self._check_tasks[run_id] = task
        task.add_done_callback(lambda _: self._end_check(run_id))

    def _end_check(self, run_id: str) -> None:
        del self._check_tasks[run_id]
        if run_id in self._check_again:
            self._check_again.discard(run_id)
            self._check_run(run_id)

    async def _publish_changes(self, run_id: str) -> None:
        """Give messages to a run of this process, or publish what a run of another one did."""
        services = self._services
        if run_id in services.queue.executed_runs:
            services.conversations.inbox.put(await services.journal.runs.find_messages(run_id))
            return
        try:
            run = await services.journal.runs.get(run_id)
        except NotFound:
            return
        if services.events.is_followed(run_id):
            for step in await services.journal.runs.get_steps(run_id):
                if step.seq > self._published_steps.get(run_id, -1):
                    self._published_steps[run_id] = step.seq
                    if event := event_of_step(run, step):
                        services.events.publish(run_id, event)
        if run.status.has_ended:
            self._published_steps.pop(run_id, None)
            services.events.publish(run_id, end_of(run))
        elif run.status is Status.WAITING:
            services.events.publish(run_id, waiting_of(run))
        elif event := retry_of(run):
            services.events.publish(run_id, event)
        self._host.handle_run_change(run)
