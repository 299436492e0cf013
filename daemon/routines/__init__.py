"""Routines: what to do, when, and where the report goes; one TOML file each.

In this room: routines as values, the rules they keep, and the difference between two folders of them. Not in this room:
when the next one is due (schedule.py), what became of one (store/), and any change to a file: they are the user's.
"""

from daemon.routines.chains import circles, tangled
from daemon.routines.folder import (
    MADE,
    Changes,
    Loaded,
    compared,
    diff,
    is_routine_file,
    load_folder,
    load_routine,
    name_faults,
    routine_of,
    write_new,
)
from daemon.routines.routine import Budget, Definition, Deliver, Gate, Gather, Origin, Retry, Routine, RunSpec, Trigger
from daemon.routines.rules import KINDS, OF_AGENTS, PATH, against

__all__ = [
    "KINDS",
    "MADE",
    "OF_AGENTS",
    "PATH",
    "Budget",
    "Changes",
    "Definition",
    "Deliver",
    "Gate",
    "Gather",
    "Loaded",
    "Origin",
    "Retry",
    "Routine",
    "RunSpec",
    "Trigger",
    "against",
    "circles",
    "compared",
    "diff",
    "is_routine_file",
    "load_folder",
    "load_routine",
    "name_faults",
    "routine_of",
    "tangled",
    "write_new",
]
