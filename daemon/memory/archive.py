"""Turn the steps of a run into the segments and the run line that memory archives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.memory.segments import GOAL_SPEAKER, Segment, shorten_middle
from daemon.models import SegmentType, Step, StepKind

if TYPE_CHECKING:
    from daemon.models import Reply, Run

# Of a tool's output, its beginning and end: they say what it was, and the journal has the whole.
RESULT_CHARACTERS = 1_200

# Of the goal, and of the answer, in a run line.
LINE_CHARACTERS = 300

# One encoder for all calls: json.dumps with an option makes a new one per call.
_encode_json = json.JSONEncoder(ensure_ascii=False).encode


def make_segments(goal: str, steps: Iterable[Step], now: datetime) -> list[Segment]:
    """Return the segments of a run, in the order of its steps.

    Segments after a step with untrusted bytes are tainted: the bytes may have influenced them.
    `now` is taken for the time of the goal, and of steps that have none.
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
                speaker=speaker,
                tainted=tainted,
            )
        )

    add(0, SegmentType.USER_MESSAGE, goal, GOAL_SPEAKER, now)
    for step in steps:
        body, iteration, at = step.body, step.iteration, step.at
        tainted = tainted or bool(step.kind is not StepKind.CALL and body.get("taint"))
        match step.kind:
            case StepKind.MESSAGE if body.get("source") not in ("goal", "nudge", "check", "dedupe"):
                add(iteration, SegmentType.USER_MESSAGE, body["text"], "person", at)
            case StepKind.LLM:
                if body.get("reasoning"):
                    add(iteration, SegmentType.REASONING, body["reasoning"], "agent", at)
                if body["content"].strip():
                    add(iteration, SegmentType.RESPONSE, body["content"], "agent", at)
                for call in body["calls"]:
                    text = f"{call['name']} {_encode_json(call.get('arguments', {}))}"
                    add(iteration, SegmentType.TOOL_CALL, text, "agent", at)
            case StepKind.RESULT:
                text = shorten_middle(body["text"], RESULT_CHARACTERS)
                add(iteration, SegmentType.TOOL_RESULT, text, body["tool"], at)
    return run_segments


def make_run_line(run: Run, reply: Reply, summary: str = "") -> str:
    """Return a run in one line: its routine, its slot in UTC, and a model's summary, else its goal
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
    first_line = ""
    for line in map(str.strip, text.splitlines()):
        if not line.strip("#*|- \t"):
            continue
        is_note = len(line) > 2 and line[0] == line[-1] == "*" and line[1] != "*"
        is_prose = not (line.startswith(("#", "|", "```")) or is_note)
        if is_prose:
            first_line = line
            break
        first_line = first_line or line
    first_line = first_line.strip("# ")
    if len(first_line) <= LINE_CHARACTERS:
        return first_line
    return f"{first_line[:LINE_CHARACTERS]}…"
