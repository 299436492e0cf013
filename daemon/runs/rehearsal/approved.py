"""Which rehearsal of a routine a person has approved: kept with what the routine did then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.store.facts import FactRepository


def key_of(name: str) -> str:
    """Return where it is kept which rehearsal of a routine was approved."""
    return f"rehearsed:{name}"


async def approved(facts: FactRepository, routine: Routine) -> bool:
    """Tell whether a rehearsal of the routine, as it stands, was approved."""
    kept = await facts.recall(key_of(routine.name))
    return kept is not None and json.loads(kept)["key"] == routine.rehearsal_key
