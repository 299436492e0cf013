"""A run's conversation, read from its steps; the events and the summary made of them.

Theory of operation: the journal's steps are the only truth. A live run and a run resumed after kill
-9 both hold a Transcript, grown step by step with `add`; whatever is asked of it (the messages for
the model, the calls still without a result, the counters that limits look at) follows from the
steps alone. Nothing is taken back or shortened: several vendors verify that a conversation only
grows, and all of them cache by its prefix. Only one that has outgrown its model is compacted: it
goes on from a summary that is a step like any other.

Steps of iteration 0 are the gather and the checks of the report: the calls and results of the
gather are facts of the goal message, and none of them is a message of its own.

What strangers may have written stands between marks that only this run knows (`mark_untrusted`);
they are frozen with the prompt, so a resumed run sends the same bytes. The journal keeps the text
without them, and says that it is tainted.

The id of a call in the journal (`call_id`) is its place, `3.0` being the first call of iteration 3.
The id that its model gave it (`FunctionCall.id`) will not do: some servers give the same one to
several calls of a run, or leave it out.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon.models import (
    Fact,
    FunctionCall,
    Image,
    Json,
    LLMMessage,
    LLMResponse,
    Step,
    StepKind,
    Taint,
    ToolResult,
    Usage,
    max_taint,
)
from daemon.providers.facts import unwrap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.models import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingCall:
    """A call without a result."""

    call_id: str
    call: FunctionCall
    started: bool
    """Whether the journal has a step of its start: then the call may have taken effect."""
    repeatable: bool
    """Whether running the call twice does no harm, as the journal has it."""


class Transcript:
    """The conversation of one run; grows by `add` only."""

    def __init__(self, steps: Iterable[Step] = (), taint: Taint = Taint.NONE) -> None:
        """Take the steps so far; `taint` is what the run had before its first."""
        self.taint = taint
        """The worst taint of what has been read so far."""
        self.messages: list[LLMMessage] = []
        self.functions: list[Json] | None = None
        self.frozen_prompt: Json | None = None
        """The body of the `prompt` step: what was rendered once and stays as it is."""
        self.iterations = 0
        self.usage = Usage()
        self.calls: dict[str, Json] = {}
        """The calls by `call_id`, in order, each with `name`, `arguments`, `id`, `verdict` and `ok`
        (None without a result).
        """
        self.provider: str | None = None
        """The provider of the last failover, if any."""
        self.last_answer: LLMResponse | None = None
        self.nudges = 0
        """How often the model was asked again since its turn held neither text nor a call."""
        self.repairs = 0
        """How often the model was told what is wrong with its report (`[check] repair`)."""
        self.item_requests = 0
        """How often the model was told that it reported no items (`[dedupe]`)."""
        self.notes: list[str] = []
        """What a person who looks at the run should know of the answers."""
        self.subagent_tokens = 0
        """Tokens that sub-agents have used."""
        self.received_messages: set[int] = set()
        """Numbers in the journal of the messages that people sent while the run was under way."""
        self.compactions = 0
        """How often the conversation was compacted because it had outgrown the model."""
        self.first_answers: dict[str, ToolResult] = {}
        """What came of each address that the run reads at most once."""
        self.gather_results: dict[str, Json] = {}
        """Results of the gather, and of the checks of the report, by `call_id`."""
        self._pending: dict[str, PendingCall] = {}
        self._results: dict[str, LLMMessage] = {}
        self._turn_call_ids: list[str] = []
        """The ids of the calls of the last answer, in order."""
        for step in steps:
            self.add(step)

    def add(self, step: Step) -> None:
        """Take in one more step."""
        if step.kind is not StepKind.CALL and (taint := step.body.get("taint")):
            self.taint = max_taint(self.taint, Taint(taint))
        match step.kind:
            case StepKind.PROMPT:
                self.frozen_prompt = step.body
                self.functions = step.body.get("functions") or None
                # first, also where a program has given the agent a history
                self.messages.insert(0, LLMMessage(role="system", content=step.body["system"]))
                if skill_choice := step.body.get("route"):
                    self.usage += Usage(**skill_choice["tokens"])
                self.messages += [
                    LLMMessage(**earlier_message)
                    for earlier_message in step.body.get("history", ())
                ]
            case StepKind.MESSAGE:
                facts = facts_from(step.body)
                if step.body.get("source") == "afresh":
                    self.compactions += 1
                    facts = tuple(fact for message in self.messages for fact in message.facts)
                    del self.messages[1:]
                images = tuple(image_from(image) for image in step.body.get("images", ()))
                self.messages.append(
                    LLMMessage(role="user", content=step.body["text"], images=images, facts=facts)
                )
                self.notes += step.body.get("notes", ())
                self.nudges += step.body.get("source") == "nudge"
                self.repairs += step.body.get("source") == "check"
                self.item_requests += step.body.get("source") == "dedupe"
                if number := step.body.get("told"):
                    self.received_messages.add(number)
            case StepKind.FAILOVER:
                self.provider = step.body["to"]
            case StepKind.LLM:
                self._add_answer(step)
            case StepKind.CALL:
                self._add_call(step)
            case StepKind.RESULT:
                self._add_result(step)

    def _add_answer(self, step: Step) -> None:
        self.last_answer = answer = response_from(step.body)
        self.iterations = step.iteration
        self.usage += answer.usage
        if answer.note and answer.note not in self.notes:
            self.notes.append(answer.note)
        self.messages.append(answer.as_message())
        self._pending = {}
        for index, call in enumerate(answer.function_calls):
            call_id = f"{step.iteration}.{index}"
            self._pending[call_id] = PendingCall(
                call_id=call_id, call=call, started=False, repeatable=False
            )
        self._turn_call_ids = list(self._pending)
        self._results = {}

    def _add_call(self, step: Step) -> None:
        if step.iteration == 0:
            return
        pending_call = self._pending[str(step.call_id)]
        call_id, call = pending_call.call_id, pending_call.call
        repeatable = bool(step.body.get("repeatable"))
        self._pending[call_id] = PendingCall(
            call_id=call_id, call=call, started=True, repeatable=repeatable
        )
        verdict = step.body.get("verdict")
        self.calls[call_id] = {
            "name": call.name,
            "arguments": call.arguments,
            "id": call.id,
            "verdict": verdict,
            "ok": None,
        }

    def _add_result(self, step: Step) -> None:
        if step.iteration == 0:
            self.gather_results[str(step.call_id)] = step.body
            if usage := step.body.get("usage"):  # of the judge of a check
                self.usage += Usage(**usage)
            return
        self.subagent_tokens += step.body.get("spent", 0)
        pending_call = self._pending.pop(str(step.call_id))
        text = step.body["text"]
        if (
            step.body.get("taint")
            and self.frozen_prompt
            and (boundary := self.frozen_prompt.get("boundary"))
        ):
            text = mark_untrusted(text, boundary)
        self._results[pending_call.call_id] = LLMMessage(
            role="tool",
            content=text,
            name=pending_call.call.name,
            tool_call_id=pending_call.call.id,
            ok=step.body["ok"],
        )
        self.calls[pending_call.call_id]["ok"] = step.body["ok"]
        if address := (self.calls[pending_call.call_id]["verdict"] or {}).get("once"):
            taint = Taint(step.body.get("taint", Taint.NONE))
            result = ToolResult(ok=step.body["ok"], text=step.body["text"], taint=taint)
            self.first_answers.setdefault(address, result)
        # results stand in call order, whichever came first; they become messages when the turn is
        # complete
        if not self._pending:
            self.messages.extend(self._results[call_id] for call_id in self._turn_call_ids)

    @property
    def pending_calls(self) -> list[PendingCall]:
        """The calls of the last turn without a result, in order."""
        return list(self._pending.values())

    @property
    def denials(self) -> int:
        """How many calls were denied, by the policy or by a person."""
        return sum(
            (call.get("verdict") or {}).get("effect") == "deny" for call in self.calls.values()
        )

    @property
    def last_text(self) -> str:
        """The newest text of the model, empty if it has said nothing."""
        return next(
            (
                message.content
                for message in reversed(self.messages)
                if message.role == "assistant" and message.content.strip()
            ),
            "",
        )


def image_body(image: Image) -> Json:
    """Return an image as a step keeps it: a resumed run shows the same image, whatever
    became of the file.
    """
    return {"media_type": image.media_type, "data": base64.b64encode(image.data).decode()}


def image_from(body: Json) -> Image:
    """Return the image that a step keeps."""
    return Image(media_type=body["media_type"], data=base64.b64decode(body["data"]))


def fact_body(fact: Fact) -> Json:
    """Return a fact as the step of the message keeps it: without its value, which the step of the
    result has.
    """
    return {
        "name": fact.name,
        "tool": fact.tool,
        "ok": fact.ok,
        "text": fact.text,
        "changes": list(fact.changes),
    }


def facts_from(body: Json) -> tuple[Fact, ...]:
    """Return the facts of a `message` step."""
    if "facts" in body:
        return tuple(Fact(**{**fact, "changes": tuple(fact["changes"])}) for fact in body["facts"])
    # journals and frozen runs of older versions hold the facts of a goal in its text only
    return tuple(unwrap(str(body["text"]))) if body.get("source") == "goal" else ()


def mark_untrusted(text: str, boundary: str) -> str:
    """Return text of strangers between marks that it can neither know nor close."""
    return f"<data {boundary}>\n{text.replace(boundary, '…')}\n</data {boundary}>"


def llm_step(response: LLMResponse, iteration: int, seconds: float) -> Step:
    """Return the step that records a model's answer."""
    body: Json = {
        "content": response.content,
        "calls": [_call_body(call) for call in response.function_calls],
        "finish": response.finish_reason,
        "usage": _usage_body(response.usage),
        "model": response.model,
        "seconds": round(seconds, 3),
    }
    if response.reasoning:
        body["reasoning"] = response.reasoning
    if response.provider_extras:
        body["extras"] = response.provider_extras
    if response.request_id:
        body["request_id"] = response.request_id
    if response.note:
        body["note"] = response.note
    return Step(kind=StepKind.LLM, iteration=iteration, body=body)


def _call_body(call: FunctionCall) -> Json:
    # by hand: dataclasses.asdict copies deeply and costs ten times as much, on every step of every
    # run
    return _without_empty(
        {"name": call.name, "arguments": call.arguments, "id": call.id, "invalid": call.invalid}
    )


def _usage_body(usage: Usage) -> Json:
    return {
        "input": usage.input,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }


def response_from(body: Json) -> LLMResponse:
    """Return the answer that an `llm` step recorded."""
    return LLMResponse(
        content=body["content"],
        function_calls=tuple(
            FunctionCall(
                name=call["name"],
                arguments=call.get("arguments", {}),
                id=call.get("id"),
                invalid=call.get("invalid"),
            )
            for call in body["calls"]
        ),
        finish_reason=body["finish"],
        usage=Usage(**body["usage"]),
        reasoning=body.get("reasoning", ""),
        provider_extras=body.get("extras"),
        model=body.get("model", ""),
        request_id=body.get("request_id"),
        note=body.get("note", ""),
    )


def call_step(
    call_id: str,
    call: FunctionCall,
    iteration: int,
    verdict: Verdict | None,
    *,
    repeatable: bool,
    taint: Taint = Taint.NONE,
    audit_fields: Json | None = None,
) -> Step:
    """Return the step that is written before a call starts.

    `taint` is the run's; `audit_fields` (policy in force, sandbox) are added to the body.
    """
    body: Json = {
        "tool": call.name,
        "arguments": call.arguments,
        "repeatable": repeatable,
        **(audit_fields or {}),
    }
    if taint:
        body["taint"] = taint.value
    if call.invalid:
        body["invalid"] = call.invalid
    if verdict is not None:
        body["verdict"] = _without_empty(
            {
                "effect": verdict.effect.value,
                "rule": verdict.rule,
                "reason": verdict.reason,
                "allowed": verdict.alternative,
                "once": verdict.once,
            }
        )
    return Step(kind=StepKind.CALL, iteration=iteration, call_id=call_id, body=body)


def result_step(
    call_id: str,
    call: FunctionCall,
    iteration: int,
    result: ToolResult,
    seconds: float,
    sandbox: str = "",
    usage: Usage | None = None,
) -> Step:
    """Return the step that records how a call ended, in which sandbox, and what a model has used
    for it.
    """
    body: Json = {
        "tool": call.name,
        "ok": result.ok,
        "text": result.text,
        "seconds": round(seconds, 3),
    }
    if result.taint:
        body["taint"] = result.taint.value
    if call.name == "subagent" and isinstance(result.value, dict):
        body["spent"] = result.value["tokens"]
    if result.dry_run_effect:
        body["would"] = result.dry_run_effect
    if result.withheld:
        body["withheld"] = True
    if sandbox:
        body["sandbox"] = sandbox
    if usage and usage.total:
        body["usage"] = _usage_body(usage)
    if iteration == 0 and result.value is not None:
        body["value"] = result.value  # gates and the next report compare it
    return Step(kind=StepKind.RESULT, iteration=iteration, call_id=call_id, body=body)


def _without_empty(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value not in (None, "")}


def call_event(step: Step) -> Json | None:
    """Return the event that a `call` or `result` step stands for; None for any other step.

    `tool_started` has `tool` and `args`; `tool_finished` has `tool`, `ok`, `preview` and `seconds`,
    and `withheld` where the injection check kept the answer from the model.
    Both have the `call` (its `call_id`) and the `iteration`.
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
                **({"withheld": True} if body.get("withheld") else {}),
                **call,
            }
    return None


def preview(ok: bool, text: str) -> str:
    """Return the first line of a result, or the first three of an error."""
    return "\n".join(text.strip().splitlines()[: 1 if ok else 3])


# Bounds of the summary from which a compacted conversation goes on.
MAX_GOAL_CHARACTERS = 12_000  # characters of the goal, facts included
MAX_LATER_CHARACTERS = 8_000  # characters of all that followed
# Characters of one message: the newest gets the maximum, each older one half as many, and none less
# than the minimum.
MIN_MESSAGE_CHARACTERS, MAX_MESSAGE_CHARACTERS = 200, 2_000

_SUMMARY_TEXTS = {
    "en": {
        "head": (
            "[The conversation had become too long. It begins afresh here; this is what is known "
            "of it.]"
        ),
        "task": "The task:",
        "done": "What was done so far, oldest first; do not do it again:",
        "go": "Go on from here and finish the task.",
        "cut": " […]",
    },
    "zh": {
        "head": "[对话对模型来说已过长,现从此处重新开始;以下是已知内容。]",
        "task": "任务:",
        "done": "到目前为止已完成的事情,从旧到新;不要重复:",
        "go": "请从这里继续并完成任务。",
        "cut": " […]",
    },
}


def summarise(transcript: Transcript, language: str) -> str:
    """Return the message from which a compacted conversation goes on.

    Made without asking a model. The goal stands as it was given. Of what followed, the model's own
    words and the beginnings of results are kept, the newest in most detail: whoever goes on needs
    to know what has been done and what came of it.
    """
    texts = _SUMMARY_TEXTS.get(language, _SUMMARY_TEXTS["en"])
    messages = [message for message in transcript.messages if message.role != "system"]
    goal, later_messages = messages[0].content if messages else "", messages[1:]
    lines: list[str] = []
    remaining = MAX_LATER_CHARACTERS
    for index, message in enumerate(reversed(later_messages)):
        limit = max(MIN_MESSAGE_CHARACTERS, MAX_MESSAGE_CHARACTERS // 2**index)
        line = _summary_line(message, limit, texts["cut"])
        if not line:
            continue
        remaining -= len(line)
        if remaining < 0:
            break
        lines.append(line)
    parts = [texts["head"], texts["task"], _shorten(goal, MAX_GOAL_CHARACTERS, texts["cut"])]
    if lines:
        parts += [texts["done"], "\n".join(reversed(lines))]
    return "\n\n".join([*parts, texts["go"]])


def _summary_line(message: LLMMessage, limit: int, mark: str) -> str:
    calls = ", ".join(
        f"{call.name}({_shorten(str(call.arguments), MIN_MESSAGE_CHARACTERS, mark)})"
        for call in message.tool_calls
    )
    text = _shorten(" ".join(message.content.split()), limit, mark)
    if message.role == "tool":
        return f"- {message.name}{'' if message.ok else ' (failed)'}: {text}"
    return f"- {message.role}: {' '.join(filter(None, (text, calls)))}" if text or calls else ""


# What `mark_untrusted` and `providers/facts.py::wrap` put around words of strangers.
_MARK = re.compile(
    r"<(?P<end>/?)(?P<kind>data|fact) "
    r'(?:name="[^"]*" tool="[^"]*" ok="[^"]*" boundary=")?(?P<boundary>[0-9a-f]+)"?>'
)


def _shorten(text: str, limit: int, mark: str) -> str:
    """Return a text cut to `limit` characters; the marks around words of strangers that lost their
    end are closed, so that what follows is not taken for theirs, nor theirs for ours.
    """
    if len(text) <= limit:
        return text
    text = text[:limit] + mark
    open_marks: dict[tuple[str, str], None] = {}
    for match in _MARK.finditer(text):
        if match["end"]:
            open_marks.pop((match["kind"], match["boundary"]), None)
        else:
            open_marks[match["kind"], match["boundary"]] = None
    ends = [f"</{kind} {boundary}>" for kind, boundary in reversed(open_marks)]
    return " ".join([text, *ends])
