"""Two runs held against each other, step by step, in an order that does not depend on what was
quicker.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff

from daemon.models import Json, Step, StepKind
from daemon.runs.replay.outcome import End, ReplayDifference
from daemon.runs.replay.verdicts import asked_by

# What of a step does not count: how long it took, and what was written beside it, some of it in the
# text, too.
_BESIDE = frozenset({"seconds", "sandbox", "policy", "by_files", "facts", "offered"})
_ORDER = tuple(StepKind)
_LONGEST = 20_000  # characters of one diff: who needs more reads the run itself
Key = tuple[int, int, str, int]


def differences(recorded: Sequence[Step], played: Sequence[Step]) -> Iterator[ReplayDifference]:
    """Yield where two runs part, in the order of the recorded one."""
    then, now = dict(_keyed(recorded)), dict(_keyed(played))
    for key, step in then.items():
        other = now.get(key)
        if other is None:
            yield ReplayDifference(
                at=_place(step), seq=step.seq, what=f"the {_name(step)} is in the record only"
            )
        elif (found := _between(step, other)) is not None:
            yield ReplayDifference(at=_place(step), seq=step.seq, what=found[0], diff=found[1])
    for key, step in now.items():
        if key not in then:
            what = f"the {_name(step)} is not in the record"
            yield ReplayDifference(at=_place(step), seq=None, what=what, diff=_text(_shown(step)))


def _keyed(steps: Iterable[Step]) -> Iterator[tuple[Key, Step]]:
    seen: Counter[tuple[int, int, str]] = Counter()
    for step in steps:
        place = (step.iteration, _ORDER.index(step.kind), str(step.call_id or ""))
        yield (*place, seen[place]), step
        seen[place] += 1


def _between(then: Step, now: Step) -> tuple[str, str] | None:
    """Return what differs between two steps and the diff of it; None if nothing does."""
    before, after = _shown(then), _shown(now)
    if then.kind is StepKind.MESSAGE and then.body.get("source") == "goal":
        after["text"] = _with_marks_of(str(before.get("text", "")), str(after.get("text", "")))
    if then.kind is StepKind.CALL and asked_by(then.body):
        before.pop("taint", None), after.pop("taint", None)  # it was judged when the answer came
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not names:
        return None
    name = names[0]
    return f"the {_name(then)} differs: {', '.join(names)}", _diff(
        before.get(name), after.get(name)
    )


def _shown(step: Step) -> Json:
    return {name: value for name, value in step.body.items() if name not in _BESIDE}


def _with_marks_of(then: str, now: str) -> str:
    """Return a message with the marks of the other one: they are drawn anew for each run."""
    from daemon.providers.facts import find_boundary

    old, new = find_boundary(then), find_boundary(now)
    return now.replace(new, old) if old and new else now


def _name(step: Step) -> str:
    match step.kind:
        case StepKind.PROMPT:
            return "prompt"
        case StepKind.LLM:
            return "answer of the model"
        case StepKind.CALL:
            return "call or its verdict"
        case StepKind.RESULT:
            return "result"
        case StepKind.FAILOVER:
            return "failover"
    return {"goal": "prompt", "told": "word of a person"}.get(
        str(step.body.get("source")), "message"
    )


def _place(step: Step) -> str:
    where = f"iteration {step.iteration}" if step.iteration else "the beginning"
    if step.call_id is None:
        return where
    return f"{where}, {step.call_id} ({step.body.get('tool', '')})"


def _text(value: object) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    )


def _diff(then: object, now: object) -> str:
    return diff(_text("" if then is None else then), _text("" if now is None else now))


def diff(then: str, now: str) -> str:
    """Return two texts against each other, as `diff -u` does."""
    lines = unified_diff(
        then.splitlines(), now.splitlines(), "recorded", "replayed", lineterm="", n=2
    )
    text = "\n".join(lines)
    return (
        text
        if len(text) <= _LONGEST
        else f"{text[:_LONGEST]}\n[… {len(text) - _LONGEST} more characters …]"
    )


PARTS_OF_END = ("status", "detail", "report", "silent", "iterations", "usage")


def of_ends(then: End, now: End, parts: Sequence[str] = PARTS_OF_END) -> Iterator[ReplayDifference]:
    """Yield in what two ends differ."""
    for name in parts:
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            what = f"the {name} differs: {before} then, {after} now"
            if name in ("detail", "report"):
                yield ReplayDifference(
                    at="the end", seq=None, what=f"the {name} differs", diff=_diff(before, after)
                )
            else:
                yield ReplayDifference(at="the end", seq=None, what=what)


def calls_of(steps: Sequence[Step], would_ask: Iterable[str] = ()) -> list[str]:
    """Return each call in a line, with its verdict and its end."""
    ends = {str(step.call_id): step for step in steps if step.kind is StepKind.RESULT}
    asked = set(would_ask)
    lines = []
    for step in sorted((each for each in steps if each.kind is StepKind.CALL), key=_by_place):
        verdict, end = step.body.get("verdict") or {}, ends.get(str(step.call_id))
        said = "ask" if str(step.call_id) in asked else verdict.get("effect", "not judged")
        went = "no end" if end is None else "ok" if end.body["ok"] else "failed"
        arguments = json.dumps(step.body.get("arguments"), ensure_ascii=False, sort_keys=True)
        rule = f" by {verdict['rule']}" if verdict.get("rule") else ""
        lines.append(f"{step.call_id} {step.body['tool']} {arguments} → {said}{rule}, {went}")
    return lines


def _by_place(step: Step) -> tuple[int, int, str]:
    place = str(step.call_id).rpartition(".")[2]
    return (step.iteration, int(place) if place.isdigit() else 0, str(step.call_id))
