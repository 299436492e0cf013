"""The delay of a run by the key `spread` of its routine."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from daemon.definitions.schedule import ZERO, spread_offset
from daemon.system.clock import machine_id

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.models import Run


def spread_delay(run: Run, routine: Routine) -> timedelta:
    """Return by how much `spread` puts off the start of a run: so long after its slot it is not
    late. Only runs of the clock are put off.

    It is that of this machine: in a cluster, another one may have started the run.
    """
    if run.event is not None:
        return ZERO
    return spread_offset(routine.name, routine.spread, machine_id())
