"""What a program may see and use, and the words for how well that is enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["require", "prefer", "off"]
"""What the policy wants: no program without a sandbox, as good a one as there is, none."""

Level: TypeAlias = Literal["bubblewrap", "landlock", "profiles", "off"]
"""What this machine can: a sandbox of its own for each program; forbidden files and calls; nothing
but the option profiles of the policy; or the policy wants none.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramLimits:
    """How much one program may use, each process by itself."""

    seconds: int = 120
    """Of CPU."""
    memory: int = 2 << 30
    """Bytes."""
    processes: int = 64
    file: int = 1 << 30
    """Bytes of one file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What one program may see and use; paths are absolute and followed."""

    workspace: str
    folder: str
    """Where it starts."""
    readable: tuple[str, ...] = ()
    """What it may read besides the workspace and the system's own programs."""
    writes: bool = False
    """It may change what lies in the workspace."""
    host: bool = False
    """It is there to look at the machine (ps, df, journalctl): its processes, mounts and services
    are not hidden.
    """
    limits: ProgramLimits = ProgramLimits()
