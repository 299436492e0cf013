"""What the steps of a tool call tell those who follow a run: `tool_started` and `tool_finished`."""

from __future__ import annotations

from daemon.models import Json, Step, StepKind


def call_event(step: Step) -> Json | None:
    """Return the event that a `call` or `result` step stands for; None for any other step.

    `tool_started` has `tool` and `args`; `tool_finished` has `tool`, `ok`, `preview` and `seconds`.
    Both have the `call` (its key in the journal) and the `iteration`.
    """
    body, call = step.body, {"call": step.call_id, "iteration": step.iteration}
    match step.kind:
        case StepKind.CALL:
            arguments = body.get("arguments", {})
            return {"type": "tool_started", "tool": body["tool"], "args": arguments, **call}
        case StepKind.RESULT:
            return {
                "type": "tool_finished",
                "tool": body["tool"],
                "ok": body["ok"],
                "preview": preview(body["ok"], body["text"]),
                "seconds": body.get("seconds"),
                **call,
            }
    return None


def preview(ok: bool, text: str) -> str:
    """Return the first line of a result, or the first three of an error."""
    return "\n".join(text.strip().splitlines()[: 1 if ok else 3])
