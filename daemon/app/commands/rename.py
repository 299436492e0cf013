"""`agentctl rename`: gives a routine another name, with its file, its history and its memory.

A file renamed by hand is a new routine without history. Files of others that have the old name are
left to people: without the new name in the policy the routine would lose its rights or limits, so
that comes first; routines that run after it are listed, to be changed afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from daemon.definitions.routines.folder import name_faults
from daemon.errors import Refused
from daemon.memory.memory import Memory
from daemon.policy.policy import Policy
from daemon.scheduler.engine import RoutineEngine


async def rename(
    engine: RoutineEngine, memory: Memory, policy: Policy, old: str, new: str
) -> list[str]:
    """Rename a routine; return the routines whose `after` or `context_from` still has the old name.

    Raises Refused or NotFound, and changes nothing.
    """
    routine = engine.routines.get(old)
    path = (routine and routine.path) or Path(f"{old}.toml")
    new_path = path.parent / f"{new}.toml"
    for fault in name_faults(new, new_path):
        raise Refused(str(fault))
    if new in engine.routines or new in engine.faults:
        raise Refused(f"there is a routine {new!r} already")
    if old in engine.faults:
        raise Refused(f"the file of {old} is faulty; mend it first: {engine.faults[old].faults[0]}")
    if old in policy.routines and new not in policy.routines:
        raise Refused(f"policy.toml has a [routine.{old}] and no [routine.{new}]; write that first")
    for rule in policy.rules:
        if rule.routines and rule.is_for(rule.tool, old) and not rule.is_for(rule.tool, new):
            raise Refused(
                f"in policy.toml {rule.label} names {old} and not {new}; add it there first"
            )
    children = sorted(
        name
        for name, routine in engine.routines.items()
        if routine.origin and routine.origin.routine == old
    )
    if children:
        raise Refused(
            f"runs of {old} made {', '.join(children)}; adopt or remove them first: "
            f"agentctl adopt {children[0]}"
        )
    await engine.rename(old, new, _make_move(path, new_path))
    old_key, new_key = (f"routine:{name}:approach" for name in (old, new))
    if item := await memory.item(old_key):
        await memory.store(
            new_key, item.content, category=item.category, run=item.run, tainted=item.tainted
        )
        await memory.delete_item(old_key)
    return sorted(
        name
        for name, routine in engine.routines.items()
        if old in (routine.run.context_from or ())
        or any(old in trigger.after for trigger in routine.triggers)
    )


def _make_move(path: Path, target: Path) -> Callable[[], None]:
    def move() -> None:
        try:
            os.link(path, target, follow_symlinks=False)  # unlike a rename it replaces nothing
            path.unlink()
        except OSError as error:
            raise Refused(
                f"{path} cannot be renamed to {target.name} by the daemon: {error.strerror}"
            ) from None

    return move
