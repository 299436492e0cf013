"""One row of what `agentd doctor` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One row of the table."""

    name: str
    state: str
    """ok, warn or fail"""
    found: str
    fix: str = ""
