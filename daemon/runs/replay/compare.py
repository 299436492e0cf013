"""Compare a recorded run with its replay, step by step, in an order that does not depend on which
call was quicker.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff

from daemon.models import Json, Step, StepKind
from daemon.runs.replay.outcome import ReplayDifference, RunEnd
from daemon.runs.replay.verdicts import rule_that_asked

# Fields of a step that are not compared: how long it took, under which policy and in which sandbox,
# and what its text says as well.
_IGNORED_FIELDS = frozenset(
    {"seconds", "sandbox", "policy", "by_files", "facts", "boundary", "offered"}
)
_KIND_ORDER = tuple(StepKind)
_MAX_DIFF_CHARACTERS = 20_000  # a person who needs more reads the run itself

END_FIELDS = ("status", "detail", "report", "silent", "iterations", "usage")


def compare_steps(recorded: Sequence[Step], replayed: Sequence[Step]) -> Iterator[ReplayDifference]:
    """Yield in which steps two runs differ, in the order of the recorded one."""
    recorded_by_key, replayed_by_key = _by_key(recorded), _by_key(replayed)
    for key, step in recorded_by_key.items():
        replayed_step = replayed_by_key.get(key)
        if replayed_step is None:
            what = f"the {_kind_in_words(step)} is in the record only"
            yield ReplayDifference(at=_place_in_words(step), seq=step.seq, what=what)
        elif difference := _compare(step, replayed_step):
            yield difference
    for key, step in replayed_by_key.items():
        if key not in recorded_by_key:
            what = f"the {_kind_in_words(step)} is not in the record"
            text = _as_text(_compared_fields(step))
            yield ReplayDifference(at=_place_in_words(step), seq=None, what=what, diff=text)


def _by_key(steps: Iterable[Step]) -> dict[tuple[int, int, str, int], Step]:
    """Return steps by iteration, kind, call id and number among those that have all three alike."""
    counts: Counter[tuple[int, int, str]] = Counter()
    steps_by_key = {}
    for step in steps:
        key = (step.iteration, _KIND_ORDER.index(step.kind), str(step.call_id or ""))
        steps_by_key[(*key, counts[key])] = step
        counts[key] += 1
    return steps_by_key


def _compare(recorded: Step, replayed: Step) -> ReplayDifference | None:
    """Return in what two steps differ, with a diff of the first field; None if in nothing."""
    before, after = _compared_fields(recorded), _compared_fields(replayed)
    if recorded.kind is StepKind.MESSAGE and recorded.body.get("source") == "goal":
        # each run draws a boundary of its own for the facts in its goal
        old, new = _boundary(recorded), _boundary(replayed)
        if old and new:
            after["text"] = str(after.get("text", "")).replace(new, old)
    if recorded.kind is StepKind.CALL and rule_that_asked(recorded.body):
        # a call that a person approved was judged when the answer came
        before.pop("taint", None)
        after.pop("taint", None)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not names:
        return None
    return ReplayDifference(
        at=_place_in_words(recorded),
        seq=recorded.seq,
        what=f"the {_kind_in_words(recorded)} differs: {', '.join(names)}",
        diff=_diff_values(before.get(names[0]), after.get(names[0])),
    )


def _compared_fields(step: Step) -> Json:
    return {name: value for name, value in step.body.items() if name not in _IGNORED_FIELDS}


def _boundary(step: Step) -> str | None:
    """Return the boundary of the facts in a goal; None if it has no facts."""
    if "boundary" in step.body:
        return str(step.body["boundary"])
    # journals and frozen runs of older versions have it in the text only
    from daemon.providers.facts import find_boundary

    return find_boundary(str(step.body.get("text", "")))


def _kind_in_words(step: Step) -> str:
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
        case StepKind.LIMIT:
            return "limit"
    sources = {"goal": "prompt", "told": "word of a person"}
    return sources.get(str(step.body.get("source")), "message")


def _place_in_words(step: Step) -> str:
    iteration = f"iteration {step.iteration}" if step.iteration else "the beginning"
    if step.call_id is None:
        return iteration
    return f"{iteration}, {step.call_id} ({step.body.get('tool', '')})"


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)


def _diff_values(recorded: object, replayed: object) -> str:
    return diff(
        _as_text("" if recorded is None else recorded),
        _as_text("" if replayed is None else replayed),
    )


def diff(recorded: str, replayed: str) -> str:
    """Return how two texts differ, as `diff -u` does; a long diff is cut."""
    lines = unified_diff(
        recorded.splitlines(), replayed.splitlines(), "recorded", "replayed", lineterm="", n=2
    )
    text = "\n".join(lines)
    excess = len(text) - _MAX_DIFF_CHARACTERS
    if excess > 0:
        text = f"{text[:_MAX_DIFF_CHARACTERS]}\n[… {excess} more characters …]"
    return text


def compare_ends(
    recorded: RunEnd, replayed: RunEnd, names: Sequence[str] = END_FIELDS
) -> Iterator[ReplayDifference]:
    """Yield in which of the named fields two ends differ."""
    for name in names:
        before, after = getattr(recorded, name), getattr(replayed, name)
        if before == after:
            continue
        if name in ("detail", "report"):
            what, text = f"the {name} differs", _diff_values(before, after)
        else:
            what, text = f"the {name} differs: {before} then, {after} now", ""
        yield ReplayDifference(at="the end", seq=None, what=what, diff=text)


def describe_calls(steps: Sequence[Step], would_ask: Iterable[str] = ()) -> list[str]:
    """Return a line for each call, with its verdict and how it ended.

    `would_ask` are the ids of calls that a person would be asked about.
    """
    results = {str(step.call_id): step for step in steps if step.kind is StepKind.RESULT}
    asking_ids = set(would_ask)
    calls = [step for step in steps if step.kind is StepKind.CALL]
    lines = []
    for call in sorted(calls, key=_call_order):
        call_id = str(call.call_id)
        verdict, result = call.body.get("verdict") or {}, results.get(call_id)
        effect = "ask" if call_id in asking_ids else verdict.get("effect", "not judged")
        ending = "no end"
        if result is not None:
            ending = "ok" if result.body["ok"] else "failed"
        arguments = json.dumps(call.body.get("arguments"), ensure_ascii=False, sort_keys=True)
        rule = f" by {verdict['rule']}" if verdict.get("rule") else ""
        lines.append(f"{call_id} {call.body['tool']} {arguments} → {effect}{rule}, {ending}")
    return lines


def _call_order(call: Step) -> tuple[int, int, str]:
    """Return what calls are sorted by: iteration, number within it, id."""
    number = str(call.call_id).rpartition(".")[2]
    return (call.iteration, int(number) if number.isdigit() else 0, str(call.call_id))
