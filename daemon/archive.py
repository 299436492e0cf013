"""What of a run is worth remembering, and in which pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.memory import Segment
from daemon.models import SegmentType, Step, StepKind

if TYPE_CHECKING:
    from daemon.models import Reply, Run

RESULT_CHARACTERS = 1_200  # of a tool's output: its beginning and end say what it was; the whole is in the journal

LINE_CHARACTERS = 300  # of a goal or an answer, where one line stands for the whole


def segments(goal: str, steps: Iterable[Step], now: datetime) -> list[Segment]:
    """Return the run as anchored pieces, in the order they happened.

    What was said after strangers had been read is marked: they may have had a hand in it.
    """
    pieces = [(0, SegmentType.USER_MESSAGE, goal, "goal", now, False)]
    tainted = False

    def add(step: Step, kind: SegmentType, text: str, who: str) -> None:
        pieces.append((step.iteration, kind, text, who, step.at or now, tainted))

    for step in steps:
        body = step.body
        tainted = tainted or bool(step.kind is not StepKind.CALL and body.get("taint"))
        match step.kind:
            case StepKind.MESSAGE if body.get("source") not in ("goal", "nudge"):
                add(step, SegmentType.USER_MESSAGE, body["text"], "person")
            case StepKind.LLM:
                if body.get("reasoning"):
                    add(step, SegmentType.REASONING, body["reasoning"], "agent")
                if body["content"].strip():
                    add(step, SegmentType.RESPONSE, body["content"], "agent")
                for call in body["calls"]:
                    text = f"{call['name']} {json.dumps(call.get('arguments', {}), ensure_ascii=False)}"
                    add(step, SegmentType.TOOL_CALL, text, "agent")
            case StepKind.RESULT:
                add(step, SegmentType.TOOL_RESULT, _ends_of(body["text"]), body["tool"])
    counters: dict[int, int] = {}
    result = []
    for iteration, kind, text, who, at, after in pieces:
        place = counters[iteration] = counters.get(iteration, -1) + 1
        result.append(
            Segment(iteration=iteration, segment=place, type=kind, timestamp=at, text=text, who=who, tainted=after)
        )
    return result


def _is_note(line: str) -> bool:
    return len(line) > 2 and line[0] == line[-1] == "*" and line[1] != "*"


def _ends_of(text: str) -> str:
    if len(text) <= RESULT_CHARACTERS:
        return text
    half = RESULT_CHARACTERS // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


def conversation_item(run: Run, reply: Reply, summary: str = "") -> str:
    """Return the one line that is kept of a run: a model's summary, else its goal and what came out."""
    if summary:
        return f"{run.routine}, {run.slot:%Y-%m-%d %H:%M} UTC: {summary}"
    goal, answer = _first_line(run.goal), _first_line(reply.content) or "nothing to report"
    return f"{run.routine}, {run.slot:%Y-%m-%d %H:%M} UTC: {goal} → {answer}"


def _first_line(text: str) -> str:
    """Return the first line that says something: no heading, no note in italics, no ruled line, if there is another."""
    lines = [line.strip() for line in text.splitlines() if line.strip("#*|- \t")]
    telling = (each for each in lines if not each.startswith(("#", "|", "```")) and not _is_note(each))
    line = next(telling, lines[0] if lines else "").strip("# ")
    return line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]}…"
