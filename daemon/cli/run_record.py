"""What of a run's record belongs together: the parts of its prompt, and what each answer of a model
was paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def sections_of(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the sections of a frozen prompt, each with its text."""
    system, place = str(body.get("system", "")), 0
    for name, length in (body.get("sections") or {"system": len(system)}).items():
        yield name, system[place : place + length]
        place += length + 2  # sections stand a blank line apart


def paid(
    steps: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return which call each answer of a model came of, by the number of its step, and the calls
    that are no step.

    Those were not answered, or are of what a run does besides its loop: choosing skills, summing
    up, sub-agents.
    """
    found: dict[int, Mapping[str, Any]] = {}
    rest = list(calls)
    for step in steps:
        if step["kind"] != "llm":
            continue
        used = step["body"].get("usage") or {}
        for place, call in enumerate(rest):
            if call["outcome"] == "answered" and all(
                call["usage"].get(key, 0) == used[key] for key in used
            ):
                found[step["seq"]] = rest.pop(place)
                break
    return found, rest
