"""What a replay may change, and how it compares with the recorded run: step by step, in an order
that does not depend on which call was quicker.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import TYPE_CHECKING

from daemon.models import Json, Status, Step, StepKind, Usage
from daemon.runs.replay.recorded_policy import rule_that_asked

if TYPE_CHECKING:
    from daemon.policy.policy import Policy
    from daemon.providers import LLMProvider


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayChange:
    """The one thing that is changed for a replay; nothing by default."""

    models: Sequence[LLMProvider] = ()
    """Ask these, in order, instead of reading the answers from the record."""
    prompt: str | None = None
    """Another task."""
    policy: Policy | None = None
    """Judge all calls by this policy."""
    current_policy: Policy | None = None
    """Judges calls that the recorded run never made, where the policy of that time was not kept."""

    @property
    def kind(self) -> str:
        """What is changed: `policy`, `prompt` or `model`; empty if nothing is."""
        if self.policy is not None:
            return "policy"
        if self.prompt is not None:
            return "prompt"
        return "model" if self.models else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayDifference:
    """One place in which the replay differs from the recorded run."""

    at: str
    """The place, as a person finds it in `inspect`: `iteration 2, 2.0 (shell)`."""
    seq: int | None
    """The number of the recorded step; None for a step that is not in the record."""
    what: str
    """What differs, in a line."""
    diff: str = ""
    """How the two texts differ, as `diff -u` shows it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """How a run ended."""

    status: Status
    detail: str | None
    report: str
    silent: bool
    iterations: int
    usage: Usage
    calls: Sequence[str] = ()
    """A line for each call, with its verdict and how it ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayResult:
    """How a replay compares with the recorded run."""

    run: str
    routine: str
    change: str
    """What was changed: see `ReplayChange.kind`."""
    steps: int
    recorded: RunEnd
    replayed: RunEnd
    differences: Sequence[ReplayDifference] = ()
    never_made: Sequence[str] = ()
    """Calls that were refused, as the recorded run never made them."""
    would_ask: Sequence[str] = ()
    """Calls that a person would be asked about."""
    external_end: str = ""
    """What ended the recorded run from outside, in words: the replay ends there, too, and only the
    steps before are compared. Empty for a run that ended by itself.
    """
    missing_parts: Sequence[str] = ()
    """What was not kept of the run, in words."""
    usage: Usage = field(default_factory=Usage)
    """What models used that were really asked for the replay."""
    cost: float | None = 0.0
    """What they cost, in dollars; None where the price is not known."""

    @property
    def is_identical(self) -> bool:
        return not self.differences

    def as_json(self, redact: Callable[[str], str] = str) -> Json:
        """Return the result for the API and for `--json`."""
        differences = [
            {
                "at": difference.at,
                "seq": difference.seq,
                "what": redact(difference.what),
                "diff": redact(difference.diff),
            }
            for difference in self.differences
        ]
        return {
            "run": self.run,
            "routine": self.routine,
            "identical": self.is_identical,
            "changed": self.change,
            "steps": self.steps,
            "recorded": _end_as_json(self.recorded, redact),
            "played": _end_as_json(self.replayed, redact),
            "differences": differences,
            "never_made": [redact(call) for call in self.never_made],
            "would_ask": [redact(call) for call in self.would_ask],
            "outside": self.external_end,
            "missing": list(self.missing_parts),
            "asked": {"input": self.usage.input, "output": self.usage.output},
            "usd": self.cost,
        }


def _end_as_json(end: RunEnd, redact: Callable[[str], str]) -> Json:
    return {
        "status": end.status.value,
        "detail": redact(end.detail) if end.detail else None,
        "report": redact(end.report),
        "silent": end.silent,
        "iterations": end.iterations,
        "tokens": end.usage.total,
        "calls": [redact(call) for call in end.calls],
    }


# Fields of a step that are not compared: how long it took, under which policy, in which mode of it
# and in which sandbox, and what its text says as well.
_IGNORED_FIELDS = frozenset(
    {"seconds", "sandbox", "policy", "mode", "by_files", "facts", "boundary", "offered"}
)
_KIND_ORDER = tuple(StepKind)
_MAX_DIFF_CHARACTERS = 20_000  # a person who needs more reads the run itself

END_FIELDS = ("status", "detail", "report", "silent", "iterations", "usage")


def compare_steps(
    recorded_steps: Sequence[Step], replayed_steps: Sequence[Step]
) -> Iterator[ReplayDifference]:
    """Yield in which steps two runs differ, in the order of the recorded one."""
    recorded_by_key, replayed_by_key = _by_key(recorded_steps), _by_key(replayed_steps)
    for key, step in recorded_by_key.items():
        replayed_step = replayed_by_key.get(key)
        if replayed_step is None:
            difference_text = f"the {_kind_in_words(step)} is in the record only"
            yield ReplayDifference(at=_place_in_words(step), seq=step.seq, what=difference_text)
        elif difference := _compare(step, replayed_step):
            yield difference
    for key, step in replayed_by_key.items():
        if key not in recorded_by_key:
            difference_text = f"the {_kind_in_words(step)} is not in the record"
            text = _as_text(_compared_fields(step))
            yield ReplayDifference(
                at=_place_in_words(step), seq=None, what=difference_text, diff=text
            )


def _by_key(steps: Iterable[Step]) -> dict[tuple[int, int, str, int], Step]:
    """Return steps by iteration, kind, call id, and their number among the steps of which these
    three are the same.
    """
    counts: Counter[tuple[int, int, str]] = Counter()
    steps_by_key = {}
    for step in steps:
        key = (step.iteration, _KIND_ORDER.index(step.kind), str(step.call_id or ""))
        steps_by_key[(*key, counts[key])] = step
        counts[key] += 1
    return steps_by_key


def _compare(recorded_step: Step, replayed_step: Step) -> ReplayDifference | None:
    """Return in what two steps differ, with a diff of the first field; None if in nothing."""
    before, after = _compared_fields(recorded_step), _compared_fields(replayed_step)
    if recorded_step.kind is StepKind.MESSAGE and recorded_step.body.get("source") in (
        "goal",
        "check",
    ):
        # each run draws a boundary of its own for the facts in its goal or of a check
        recorded_boundary, boundary = _boundary(recorded_step), _boundary(replayed_step)
        if recorded_boundary and boundary:
            after["text"] = str(after.get("text", "")).replace(boundary, recorded_boundary)
    if recorded_step.kind is StepKind.CALL and rule_that_asked(recorded_step.body):
        # a call that a person approved was judged when the answer came
        before.pop("taint", None)
        after.pop("taint", None)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not names:
        return None
    return ReplayDifference(
        at=_place_in_words(recorded_step),
        seq=recorded_step.seq,
        what=f"the {_kind_in_words(recorded_step)} differs: {', '.join(names)}",
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


def _diff_values(recorded_value: object, replayed_value: object) -> str:
    return diff(
        _as_text("" if recorded_value is None else recorded_value),
        _as_text("" if replayed_value is None else replayed_value),
    )


def diff(recorded_text: str, replayed_text: str) -> str:
    """Return how two texts differ, as `diff -u` does; a long diff is cut."""
    lines = unified_diff(
        recorded_text.splitlines(),
        replayed_text.splitlines(),
        "recorded",
        "replayed",
        lineterm="",
        n=2,
    )
    text = "\n".join(lines)
    excess = len(text) - _MAX_DIFF_CHARACTERS
    if excess > 0:
        text = f"{text[:_MAX_DIFF_CHARACTERS]}\n[… {excess} more characters …]"
    return text


def compare_ends(
    recorded_end: RunEnd, replayed_end: RunEnd, names: Sequence[str] = END_FIELDS
) -> Iterator[ReplayDifference]:
    """Yield in which of the named fields two ends differ."""
    for name in names:
        before, after = getattr(recorded_end, name), getattr(replayed_end, name)
        if before == after:
            continue
        if name in ("detail", "report"):
            difference_text, text = f"the {name} differs", _diff_values(before, after)
        else:
            difference_text, text = f"the {name} differs: {before} then, {after} now", ""
        yield ReplayDifference(at="the end", seq=None, what=difference_text, diff=text)


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
