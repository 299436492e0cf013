"""What a program may see and use, and the levels of how well that is enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["require", "prefer", "off"]
"""`sandbox` of the policy: require (no program without a sandbox), prefer (the best there is),
off.
"""

Level: TypeAlias = Literal["bubblewrap", "landlock", "profiles", "off"]
"""How programs are confined: by bubblewrap (namespaces), by Landlock and seccomp (forbidden files
and system calls), not at all but for the policy's option profiles, or off by the policy.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramLimits:
    """How much one program may use, each process by itself."""

    seconds: int = 120
    """Seconds of processor time."""
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
    """The working directory."""
    readable: tuple[str, ...] = ()
    """What the program may read besides the workspace and the system's own programs."""
    writes: bool = False
    """Whether the program may change what lies in the workspace."""
    protected: tuple[str, ...] = ()
    """What lies in the workspace and may not be changed even so, none a link: repositories of git,
    which may hold commands (repositories.py).
    """
    host: bool = False
    """Whether the program looks at the machine (ps, df, journalctl), whose processes, mounts and
    services are not hidden then.
    """
    limits: ProgramLimits = ProgramLimits()
