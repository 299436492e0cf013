"""Make spans of runs, tool calls and model calls, from the steps in the journal.

Names and attributes are those of https://opentelemetry.io/docs/specs/semconv/gen-ai/ (schema 1.44;
a test compares them with the installed package). The conventions are still moving: they are strings
here, since importing their package costs more than a whole run. What they have no word for begins
with `agentd.`.

The ids are computed from that of the run, so no table is needed to find the trace of a run or the
run of a trace: the id of a trace is the 128 bits of the run's ULID. The span of a sub-agent's run
is a child of the call that began it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from daemon.models import (
    FunctionCall,
    Json,
    LLMMessage,
    LLMResponse,
    Run,
    Status,
    Step,
    StepKind,
    Usage,
)

SUBAGENT = "subagent"
_CROCKFORD = {char: value for value, char in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_ULID_LENGTH = 26  # characters of a ULID


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A span: one piece of work, when it began and ended, and its attributes."""

    name: str
    trace: int
    """The id of its trace: 128 bits."""
    id: int
    """64 bits."""
    parent: int | None
    """The id of the span above it; None for the first of a trace."""
    start: int
    """Nanoseconds since the epoch, as `end`."""
    end: int
    attributes: Json
    client: bool = False
    """Whether another process did the work: a span of kind CLIENT."""
    error: str | None = None
    """Why the work failed; empty if the reason is not to be exported; None if it did not fail."""


def trace_of(run: str) -> int:
    """Return the id of the trace that a run is in, unless it is a sub-agent's: the 128 bits of its
    ULID.
    """
    if len(run) == _ULID_LENGTH and all(char in _CROCKFORD for char in run):
        value = 0
        for char in run:
            value = value << 5 | _CROCKFORD[char]
        if 0 < value < 1 << 128:
            return value
    return int.from_bytes(blake2b(run.encode(), digest_size=16).digest())


def span_id(*parts: str) -> int:
    """Return the id of a span: a digest of its parts, such as run id and call id."""
    return int.from_bytes(blake2b("\n".join(parts).encode(), digest_size=8).digest()) or 1


def trace_and_parent(run: Run) -> tuple[int, int | None]:
    """Return the trace id of a run and the span id of its parent, which is the call that started a
    sub-agent; None without one.
    """
    if run.trigger == SUBAGENT and run.event and "/" in run.event:
        parent, call = run.event.split("/", 1)
        return trace_of(parent), span_id(parent, call)
    return trace_of(run.id), None


def spans_of_run(
    run: Run, steps: Sequence[Step], *, provider: str, with_content: bool
) -> Iterator[Span]:
    """Yield the spans of an ended run: one for each tool call, then its own.

    Model calls have their spans made when they end (providers/traced.py). `provider` is the name of
    the vendor in the conventions. Texts of messages, arguments and results are included with
    `with_content` only.
    """
    trace, parent = trace_and_parent(run)
    own_id = span_id(run.id)
    for call in _tool_calls(steps):
        yield _span_of_call(run, call, trace, own_id, with_content=with_content)
    usage, end = run.usage, run.ended or run.created
    attributes = common_attributes(run) | _without_empty(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": run.model,
            "agentd.trigger": run.trigger,
            "agentd.slot": run.slot.isoformat(),
            "agentd.status": run.status.value,
            "agentd.attempts": run.attempt,
            "agentd.iterations": run.iterations,
            "agentd.silent": run.silent,
            "agentd.taint": run.taint.value,
        }
    )
    attributes |= usage_attributes(usage)
    has_failed = run.status not in (Status.SUCCEEDED, Status.SKIPPED)
    error = None
    if has_failed:
        attributes["error.type"] = run.status.value
        error = (run.detail or "") if with_content else ""
    if with_content:
        attributes["gen_ai.input.messages"] = to_json([_make_text_message("user", run.goal)])
        attributes["gen_ai.output.messages"] = to_json(
            [_make_text_message("assistant", run.report or "")]
        )
    yield Span(
        name=f"invoke_agent {run.routine}",
        trace=trace,
        id=own_id,
        parent=parent,
        start=to_nanoseconds(run.started or run.created),
        end=to_nanoseconds(end),
        attributes=attributes,
        error=error,
    )


def common_attributes(run: Run) -> Json:
    """Return the attributes of every span of a run."""
    return {"gen_ai.agent.name": run.routine, "gen_ai.conversation.id": run.id}


@dataclass(frozen=True, kw_only=True, slots=True)
class _ToolCall:
    """One call of a tool, put together from its steps."""

    step: Step
    last_step: Step
    """The step again, or that of the last attempt of a call that was repeated after a crash."""
    result: Step | None
    id: str
    """The vendor's id of the call, else its place in the run."""
    description: str


def _tool_calls(steps: Sequence[Step]) -> Iterator[_ToolCall]:
    """Yield the tool calls of a run, in order; one that was repeated after a crash is one call."""
    results = {step.call_id: step for step in steps if step.kind is StepKind.RESULT}
    last_steps = {step.call_id: step for step in steps if step.kind is StepKind.CALL}
    vendor_ids, descriptions, call_ids = {}, {}, set()
    for step in steps:
        match step.kind:
            case StepKind.PROMPT:
                descriptions = {
                    function["name"]: function.get("description", "")
                    for function in step.body.get("functions") or ()
                }
            case StepKind.LLM:
                for index, call in enumerate(step.body["calls"]):
                    vendor_ids[f"{step.iteration}.{index}"] = call.get("id")
            case StepKind.CALL if step.call_id not in call_ids:
                call_ids.add(step.call_id)
                key = str(step.call_id)
                yield _ToolCall(
                    step=step,
                    last_step=last_steps[step.call_id],
                    result=results.get(step.call_id),
                    id=vendor_ids.get(key) or key,
                    description=descriptions.get(step.body["tool"], ""),
                )


def _span_of_call(
    run: Run, call: _ToolCall, trace: int, parent: int, *, with_content: bool
) -> Span:
    body, result = call.step.body, call.result.body if call.result else {}
    tool = body["tool"]
    verdict = body.get("verdict") or {}
    run_start = run.started or run.created
    start = to_nanoseconds(call.step.at or run_start)
    last_start = to_nanoseconds(call.last_step.at or run_start)
    attributes = common_attributes(run) | _without_empty(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.description": call.description,
            "agentd.iteration": call.step.iteration,
            "agentd.policy.effect": verdict.get("effect"),
            "agentd.policy.rule": verdict.get("rule"),
            "agentd.sandbox": result.get("sandbox"),
        }
    )
    error = None
    if not result.get("ok"):
        if verdict.get("effect") == "deny":
            attributes["error.type"] = "denied"
        else:
            attributes["error.type"] = "tool_error" if result else "interrupted"
        error = str(result.get("text", "")) if with_content else ""
    if with_content:
        attributes["gen_ai.tool.call.arguments"] = to_json(body.get("arguments", {}))
        attributes["gen_ai.tool.call.result"] = str(result.get("text", ""))
    return Span(
        name=f"execute_tool {tool}",
        trace=trace,
        id=span_id(run.id, str(call.step.call_id)),
        parent=parent,
        start=start,
        # of the last attempt; not before the start, if the clock was set back in between
        end=max(start, last_start) + int(result.get("seconds", 0.0) * 1e9),
        attributes=attributes,
        error=error,
    )


def request_attributes(messages: Sequence[LLMMessage], functions: Sequence[Json] | None) -> Json:
    """Return the attributes with the messages and tools that a model was sent."""
    system = [
        {"type": "text", "content": message.content}
        for message in messages
        if message.role == "system"
    ]
    attributes: Json = {
        "gen_ai.input.messages": to_json(
            [_convert_message(message) for message in messages if message.role != "system"]
        )
    }
    if system:
        attributes["gen_ai.system_instructions"] = to_json(system)
    if functions:
        attributes["gen_ai.tool.definitions"] = to_json(
            [{"type": "function", **function} for function in functions]
        )
    return attributes


def response_attributes(response: LLMResponse, *, with_content: bool) -> Json:
    """Return the attributes of a model's response; its text with `with_content` only."""
    attributes = _without_empty(
        {
            "gen_ai.response.model": response.model,
            "gen_ai.response.id": response.request_id,
            "gen_ai.response.finish_reasons": [response.finish_reason],
        }
    )
    if with_content:
        output = _convert_message(response.as_message(), response.reasoning) | {
            "finish_reason": response.finish_reason
        }
        attributes["gen_ai.output.messages"] = to_json([output])
    return attributes | usage_attributes(response.usage)


def usage_attributes(usage: Usage) -> Json:
    """Return token counts by the names of the conventions; cache and reasoning only if not zero."""
    optional_counts = {
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    counts = {"gen_ai.usage.input_tokens": usage.input, "gen_ai.usage.output_tokens": usage.output}
    return counts | {key: value for key, value in optional_counts.items() if value}


def _convert_message(message: LLMMessage, reasoning: str = "") -> Json:
    """Return a message in the parts of the conventions (gen-ai-input-messages.json)."""
    if message.role == "tool":
        response = {
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "response": message.content,
        }
        return {"role": "tool", "parts": [response]}
    parts: list[Json] = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    parts += [
        {"type": "blob", "modality": "image", "mime_type": image.media_type}
        for image in message.images
    ]
    if message.content:
        parts.append({"type": "text", "content": message.content})
    parts += [_tool_call_part(call) for call in message.tool_calls]
    return {"role": message.role, "parts": parts}


def _tool_call_part(call: FunctionCall) -> Json:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _make_text_message(role: str, text: str) -> Json:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _without_empty(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value not in (None, "")}


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def to_nanoseconds(moment: datetime) -> int:
    """Return a moment as OpenTelemetry counts, exactly: a float has no room for nanoseconds."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
