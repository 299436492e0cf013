"""A daemon or worker among others: what it does besides its own work because they share a
database.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from daemon import __version__
from daemon.definitions.routines.routine import Routine
from daemon.errors import DaemonError, NotFound
from daemon.models import Json, Run, Status
from daemon.runs.events import end_of, of_step, waiting_of
from daemon.scheduler.cluster.heartbeat import Heartbeat
from daemon.scheduler.cluster.listener import NotificationListener
from daemon.scheduler.cluster.queue import (
    ANYWHERE,
    healing,
    passed_on,
    passing,
    prepare,
    queue_of,
    queue_of_needs,
)
from daemon.scheduler.cluster.requirements import lacks
from daemon.store.leases import Worker

if TYPE_CHECKING:
    from daemon.agent.conversations.conversations import Conversations
    from daemon.providers.budget import BudgetLedger
    from daemon.runs.events import Events
    from daemon.scheduler.cluster.run_queue import ClusterRunQueue
    from daemon.store.database import Database
    from daemon.store.journal import Journal

log = structlog.get_logger()

_MICROSECOND = timedelta(microseconds=1)
_OVERDUE = timedelta(
    seconds=10
)  # a run that is queued for so long, and in no queue, was lost on its way


class ClusterServices(Protocol):
    """The parts of the app that the fleet needs."""

    database: Database
    journal: Journal
    events: Events
    executor: ClusterRunQueue
    budget_ledger: BudgetLedger
    talk: Conversations
    owner: str
    boot: datetime


class Cluster:
    """What this process tells the others, and hears of them."""

    def __init__(
        self,
        rooms: ClusterServices,
        url: str,
        *,
        kind: str,
        lives: bool,
        has: Callable[[], Json],
        lead: Callable[[], Sequence[tuple[str, Any]]] | None = None,
        when_moved: Callable[[Run], None] = lambda run: None,
        when_paused: Callable[[], None] = lambda: None,
        on_waits_moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`lives`: it lives runs itself; `has`: what runs may need that it has, as
        `requirements.having` tells it.

        `lead`: what it does while it leads; `when_moved`: told of runs of others.

        `when_paused` is told that somebody may have paused or resumed a routine, or allowed a call
        for good; `when_waits_moved`, that deliveries or questions end their wait at another time.
        """
        self._rooms, self._url, self._lives, self._when_moved = rooms, url, lives, when_moved
        self._when_paused, self._has, self._host = when_paused, has, os.uname().nodename
        me = Worker(
            id=rooms.owner,
            kind=kind,
            host=self._host,
            pid=os.getpid(),
            version=__version__,
            started=rooms.boot,
            seen=rooms.boot,
        )
        heal = healing(_OVERDUE // _MICROSECOND)
        self.heartbeat = Heartbeat(
            rooms.journal,
            rooms.executor,
            me,
            lives=lives,
            heal=heal,
            lead=lead,
            has=has,
            on_waits_moved=on_waits_moved,
        )
        self._ear = NotificationListener(url, self._heard, self._missed)
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._queues: dict[str, asyncio.Task[None]] = {}
        self._seeking: asyncio.Task[None] | None = None
        self._seek_again = False
        self._told: dict[str, int] = {}
        """The last step that was published, by run."""

    async def join(self) -> None:
        """Make the queue, and be seen."""
        await prepare(self._rooms.database)

    def work(self) -> Iterator[tuple[str, Any]]:
        """Yield what goes on beside everything else, by name."""
        yield "heart", self.heartbeat.run()
        yield "ear", self._ear.run()

    def take_runs(self, routines: Iterable[Routine], is_here: Callable[[Routine], bool]) -> None:
        """Take runs that may live on any machine, and from now on those of these routines that may
        live on this one.
        """
        if not self._lives:
            return
        queues = {
            ANYWHERE,
            *(queue_of(each.trigger.machines) for each in routines if is_here(each)),
        }
        self._serve(queues)
        self._seek()

    def _serve(self, queues: Iterable[str]) -> None:
        rooms = self._rooms
        for queue in sorted(set(queues) - self._queues.keys()):
            serving = rooms.executor.serve(rooms.journal, self._url, [queue], self._passed_on)
            self._queues[queue] = asyncio.create_task(serving, name=f"queue {queue}")

    async def stop_taking_runs(self) -> None:
        """Take nothing from the queues any more; what has been taken goes on."""
        self._lives = False
        tasks = [*self._queues.values(), *filter(None, [self._seeking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- runs that not everybody can live

    async def _passed_on(self, run: Run) -> bool:
        """Hand a run on that we cannot live, or whose definition we cannot read; tell whether we
        did.
        """
        if not (missing := self._lacks(await self._rooms.journal.definition(run.definition or ""))):
            return False
        queue = queue_of_needs(run)
        await self._rooms.database.write(passing(run, queue))
        log.info("run.passed_on", run=run.id, routine=run.routine, lacking=missing)
        if serving := self._queues.pop(queue, None):  # we had it once, and lost it with a reload
            serving.cancel()
        return True

    def _lacks(self, definition: str) -> list[str]:
        try:
            routine = Routine.restore(definition)
        except ValueError:  # of a newer version, which knows more
            return ["a version that can read its definition"]
        return lacks(routine, self._has(), self._host)

    def _seek(self) -> None:
        """Look for runs that others have passed on and that we can live."""
        self._seek_again = True
        if self._lives and (self._seeking is None or self._seeking.done()):
            self._seeking = asyncio.create_task(self._find(), name="runs passed on")

    async def _find(self) -> None:
        while self._seek_again:
            self._seek_again = False
            with suppress(
                DaemonError
            ):  # the connection that tells us comes back with the database, and we look again
                found = await self._rooms.database.read(passed_on)
                self._serve(queue for queue, definition in found if not self._lacks(definition))

    async def leave(self) -> None:
        """Say that we are gone; where nobody hears it, our silence will."""
        with suppress(DaemonError, TimeoutError):
            await self.heartbeat.leave()

    # --- what is heard

    def _missed(self) -> None:
        """Something may have been said while we did not listen."""
        self.heartbeat.ring()
        self._when_paused()
        self._rooms.budget_ledger.notify_waiters()
        self._seek()
        for run in self._rooms.events.followed_runs():
            self._look(run)

    def _heard(self, said: Json) -> None:
        if "routine" in said or "remembered" in said:
            self._when_paused()
            return
        if "paid" in said:
            self._rooms.budget_ledger.notify_waiters()
            return
        if "passed" in said:
            self._seek()
            return
        if (run := said.get("run")) is None:
            return  # a newer version says more than we know of
        mine = run in self._rooms.executor.running
        if said.get("cancel") and mine:
            self._rooms.executor.interrupt(run)
        if "told" in said:
            if mine:
                self._look(run)
        elif not mine and (
            said["status"] not in ("queued", "running") or self._rooms.events.watched(run)
        ):
            self._look(run)

    def _look(self, run: str) -> None:
        """Look at a run in the journal, and once more if it moves meanwhile."""
        if run in self._looking:
            self._again.add(run)
            return
        self._looking[run] = task = asyncio.create_task(self._tell(run), name=f"look at {run}")
        task.add_done_callback(lambda _: self._looked(run))

    def _looked(self, run: str) -> None:
        del self._looking[run]
        if run in self._again:
            self._again.discard(run)
            self._look(run)

    async def _tell(self, run_id: str) -> None:
        rooms = self._rooms
        if run_id in rooms.executor.running:
            rooms.talk.inbox.put(await rooms.journal.told(run_id))
            return
        try:
            run = await rooms.journal.get(run_id)
        except NotFound:
            return
        if rooms.events.watched(run_id):
            for step in await rooms.journal.steps(run_id):
                if step.seq > self._told.get(run_id, -1):
                    self._told[run_id] = step.seq
                    if event := of_step(run, step):
                        rooms.events.publish(run_id, event)
        if run.status.ended:
            self._told.pop(run_id, None)
            rooms.events.publish(run_id, end_of(run))
        elif run.status is Status.WAITING:
            rooms.events.publish(run_id, waiting_of(run))
        self._when_moved(run)
