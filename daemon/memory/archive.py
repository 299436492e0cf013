"""Turn the steps of a run into the segments and the line that memory archives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.memory.segments import Segment
from daemon.models import SegmentType, Step, StepKind

if TYPE_CHECKING:
    from daemon.models import Reply, Run

# Of a tool's output, its beginning and end: they say what it was, and the journal has the whole.
RESULT_CHARACTERS = 1_200

# Of the goal, and of the answer, in the line of a run.
LINE_CHARACTERS = 300

# One encoder for all calls: json.dumps with an option makes a new one per call.
_readable = json.JSONEncoder(ensure_ascii=False).encode


def segments(goal: str, steps: Iterable[Step], now: datetime) -> list[Segment]:
    """Return the segments of a run, in the order of its steps.

    Segments after a step with untrusted bytes are tainted: the bytes may have influenced them.
    `now` is the time of the goal, and of steps without one.
    """
    run_segments: list[Segment] = []
    positions: dict[int, int] = {}
    tainted = False

    def add(
        iteration: int, kind: SegmentType, text: str, speaker: str, at: datetime | None
    ) -> None:
        position = positions[iteration] = positions.get(iteration, -1) + 1
        run_segments.append(
            Segment(
                iteration=iteration,
                segment=position,
                type=kind,
                timestamp=at or now,
                text=text,
                who=speaker,
                tainted=tainted,
            )
        )

    add(0, SegmentType.USER_MESSAGE, goal, "goal", now)
    for step in steps:
        body, iteration, at = step.body, step.iteration, step.at
        tainted = tainted or bool(step.kind is not StepKind.CALL and body.get("taint"))
        match step.kind:
            case StepKind.MESSAGE if body.get("source") not in ("goal", "nudge"):
                add(iteration, SegmentType.USER_MESSAGE, body["text"], "person", at)
            case StepKind.LLM:
                if body.get("reasoning"):
                    add(iteration, SegmentType.REASONING, body["reasoning"], "agent", at)
                if body["content"].strip():
                    add(iteration, SegmentType.RESPONSE, body["content"], "agent", at)
                for call in body["calls"]:
                    text = f"{call['name']} {_readable(call.get('arguments', {}))}"
                    add(iteration, SegmentType.TOOL_CALL, text, "agent", at)
            case StepKind.RESULT:
                add(iteration, SegmentType.TOOL_RESULT, _ends_of(body["text"]), body["tool"], at)
    return run_segments


def _is_note(line: str) -> bool:
    return len(line) > 2 and line[0] == line[-1] == "*" and line[1] != "*"


def _ends_of(text: str) -> str:
    if len(text) <= RESULT_CHARACTERS:
        return text
    half = RESULT_CHARACTERS // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


def conversation_item(run: Run, reply: Reply, summary: str = "") -> str:
    """Return the line of a run: its routine, its slot in UTC, and a model's summary, else its goal
    and the first line of its answer.
    """
    if summary:
        return f"{run.routine}, {run.slot:%Y-%m-%d %H:%M} UTC: {summary}"
    goal, answer = _first_line(run.goal), _first_line(reply.content) or "nothing to report"
    return f"{run.routine}, {run.slot:%Y-%m-%d %H:%M} UTC: {goal} → {answer}"


def _first_line(text: str) -> str:
    """Return the first line of prose, cut to LINE_CHARACTERS; without prose the first heading,
    table row or note in italics, without either "".
    """
    fallback = ""
    for raw_line in text.splitlines():
        if not raw_line.strip("#*|- \t"):
            continue
        line = raw_line.strip()
        fallback = fallback or line
        if not (line.startswith(("#", "|", "```")) or _is_note(line)):
            break
    else:
        line = fallback
    line = line.strip("# ")
    return line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]}…"
