"""Which rehearsal of a routine a person has approved, with a hash of the routine at that time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Routine
    from daemon.store.key_values import KeyValueRepository


def key_of(name: str) -> str:
    """Return the key in the journal for the approved rehearsal of a routine."""
    return f"rehearsed:{name}"


async def is_approved(key_values: KeyValueRepository, routine: Routine) -> bool:
    """Return whether a rehearsal of the routine, as it is now, was approved."""
    approval = await key_values.get(key_of(routine.name))
    return approval is not None and json.loads(approval)["key"] == routine.rehearsal_key
