"""The agent loop: ask the model, run its calls, until a reply or a limit.

`reply_if_over` says whether a conversation is over, and how; `converse` does whatever is still
missing. The first attempt of a run and one resumed after a crash both come through here, so nothing
may be kept outside the transcript.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from daemon.agent.texts import say
from daemon.errors import OverBudget
from daemon.models import Reply, Status, Usage
from daemon.tools.builtin.finish import FINISH
from daemon.tools.reported_items import REPORT_ITEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.agent.transcript import PendingCall, Transcript
    from daemon.models import Json, LLMResponse

# the usual estimate for Latin text; corrected by the vendor's own count from the second call on
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopLimits:
    """How far one message may go; a limit that is reached is never a success."""

    max_iterations: int = 10
    max_tool_calls: int = 40
    tokens: int | None = None
    """All tokens of the run, sent and received; looked at before each call."""
    temperature: float | None = None
    effort: str | None = None
    """The level of reasoning effort; None: the provider's default."""
    max_tokens: int | None = None
    """The most tokens of one answer; None: the provider's default."""
    tool_retries: int = 3
    """How often a read-only call is tried again after a fault that may pass by itself."""
    tool_retry_delay: float = 1.0
    """Seconds before a call is tried again."""
    attempts: int = 3
    """How often a model is asked for one answer, before the next provider is asked or the run is
    put off."""
    backoff: float = 1.0
    """Seconds before the second attempt of one call."""
    on_rate_limit: Literal["wait", "fallback"] = "wait"
    """Whether a vendor that is busy is asked again first, or the next of the chain at once."""
    offline_after: float = 300.0
    """Seconds a vendor must have failed before `offline` may answer in its place."""


class LoopAgent(Protocol):
    """What the loop needs of an agent."""

    @property
    def transcript(self) -> Transcript: ...
    @property
    def limits(self) -> LoopLimits: ...
    @property
    def language(self) -> str: ...
    @property
    def silent_token(self) -> str: ...
    @property
    def required_tools(self) -> Sequence[str]: ...
    @property
    def earlier_iterations(self) -> int:
        """The iterations that earlier messages of the same conversation took."""

    async def ask(self) -> None: ...
    async def run_calls(self, pending_calls: Sequence[PendingCall], allowance: int) -> None: ...
    def take_messages(self) -> bool: ...
    def compact(self) -> None: ...
    def nudge(self, text: str) -> None: ...
    def record_limit(self, error: OverBudget) -> None: ...
    def flush(self) -> None: ...


async def converse(agent: LoopAgent) -> Reply:
    """Go on with the conversation until it is over; return the reply."""
    while True:
        transcript = agent.transcript
        if pending_calls := transcript.pending_calls:
            # a call that was started in an earlier attempt is among the transcript's calls already
            not_started = sum(not call.started for call in pending_calls)
            earlier_calls = len(transcript.calls) - (len(pending_calls) - not_started)
            await agent.run_calls(pending_calls, agent.limits.max_tool_calls - earlier_calls)
        elif _has_room(agent) and agent.take_messages():
            continue  # even after a final answer, a person who has just written is answered
        elif _has_outgrown_model(transcript):
            agent.compact()
        elif reply := reply_if_over(agent):
            agent.flush()
            return reply
        elif _is_empty_answer(transcript):
            agent.nudge(say("nudge", agent.language))
        else:
            try:
                await agent.ask()
            except OverBudget as error:
                agent.record_limit(error)
                agent.flush()
                if error.tokens is not None:
                    return _limit_reply(agent, "cap_tokens", error.tokens)
                return _limit_reply(agent, "cap_money", error.rule)


def reply_if_over(agent: LoopAgent) -> Reply | None:
    """Return the reply if the conversation is over, else None."""
    transcript, limits = agent.transcript, agent.limits
    answer, iterations = transcript.last_answer, transcript.iterations - agent.earlier_iterations
    if iterations == 0 or answer is None:
        return (
            _limit_reply(agent, "cap_tokens", limits.tokens)
            if _exceeds_budget(transcript, limits.tokens)
            else None
        )
    if finish_call := _finish_call(transcript):
        return _reply_to_finish(agent, finish_call)
    if transcript.messages[-1].role == "assistant":
        return _reply_to_answer(agent, answer)
    if len(transcript.calls) > limits.max_tool_calls:
        return _limit_reply(agent, "cap_tool_calls", limits.max_tool_calls)
    if iterations >= limits.max_iterations:
        return _limit_reply(agent, "cap_iterations", limits.max_iterations)
    if _exceeds_budget(transcript, limits.tokens):
        return _limit_reply(agent, "cap_tokens", limits.tokens)
    return None


def _has_room(agent: LoopAgent) -> bool:
    """Return whether the limits leave room for another answer; without it a message would make a
    failure of a final answer. A daemon begins a new run for a message that is left.

    Caps on money are not looked at, which depend on the price of the whole request: only the call
    itself shows that one is used up. The run then fails, with the final answer in its report.
    """
    transcript, limits = agent.transcript, agent.limits
    return (
        transcript.iterations - agent.earlier_iterations < limits.max_iterations
        and len(transcript.calls) <= limits.max_tool_calls
        and not _exceeds_budget(transcript, limits.tokens)
    )


def _reply_to_answer(agent: LoopAgent, answer: LLMResponse) -> Reply | None:
    """Return the reply for an answer that asks for no call; None if the conversation goes on."""
    match answer.finish_reason:
        case "refusal" | "content_filter":
            detail = "the model, or its vendor's filter, declined to answer"
            return _reply(agent, answer.content, Status.FAILED, detail=detail)
        case "length":
            note = say("cap_length", agent.language)
            detail = "; ".join([note.strip("[]"), *agent.transcript.notes])
            return _reply(
                agent, f"{answer.content}\n\n{note}".strip(), Status.FAILED, detail=detail
            )
        case "context":
            return _reply(
                agent,
                answer.content,
                Status.FAILED,
                detail="the conversation outgrew the model's context",
            )
        case "pause":
            return None  # the vendor wants the same conversation again to go on
    text = answer.content.strip()
    if text or _has_reported(agent.transcript):
        silent = bool(agent.silent_token) and text == agent.silent_token
        return _reply(agent, "" if silent else text, Status.SUCCEEDED, silent=silent)
    if agent.transcript.nudges:
        return _reply(
            agent, "", Status.FAILED, detail="the model answered twice with neither text nor a call"
        )
    return None


def _has_outgrown_model(transcript: Transcript) -> bool:
    """Return whether the model stopped for want of room and was not given a shorter conversation
    yet.
    """
    answer = transcript.last_answer
    return (
        answer is not None
        and answer.finish_reason == "context"
        and transcript.messages[-1].role == "assistant"
        and transcript.compactions == 0
    )


def _is_empty_answer(transcript: Transcript) -> bool:
    answer = transcript.last_answer
    return (
        answer is not None
        and transcript.messages[-1].role == "assistant"
        and answer.finish_reason != "pause"
        and not answer.content.strip()
    )


def _finish_call(transcript: Transcript) -> Json | None:
    answer = transcript.last_answer
    if answer is None or transcript.messages[-1].role != "tool":
        return None
    keys = (f"{transcript.iterations}.{index}" for index in range(len(answer.function_calls)))
    calls = [transcript.calls[key] for key in keys if key in transcript.calls]
    return next((call for call in calls if call["name"] == FINISH and call["ok"]), None)


def _reply_to_finish(agent: LoopAgent, call: Json) -> Reply:
    """Return the reply for a call of `finish`, by which the model ended the conversation."""
    arguments = call["arguments"]
    reason = str(arguments.get("reason") or "")
    text = str(arguments.get("report") or "").strip() or agent.transcript.last_text.strip()
    if arguments.get("status") == "failed":
        return _reply(
            agent,
            text or reason,
            Status.FAILED,
            detail=reason or "the agent declared failure without a reason",
        )
    if arguments.get("notify") is False:
        return _reply(agent, "", Status.SUCCEEDED, silent=True, detail=reason or None)
    if not (text or reason or _has_reported(agent.transcript)):
        return _reply(agent, "", Status.FAILED, detail="the agent finished without a report")
    return _reply(agent, text or reason, Status.SUCCEEDED)


def _has_reported(transcript: Transcript) -> bool:
    """Return whether items were reported: the report is made of them, without further text."""
    return any(call["name"] == REPORT_ITEMS and call["ok"] for call in transcript.calls.values())


def _limit_reply(agent: LoopAgent, key: str, limit: int | str | None) -> Reply:
    note = say(key, agent.language, limit=limit)
    content = f"{agent.transcript.last_text.strip()}\n\n{note}".strip()
    return _reply(agent, content, Status.FAILED, detail=note.strip("[]"))


def _reply(
    agent: LoopAgent,
    content: str,
    status: Status,
    *,
    silent: bool = False,
    detail: str | None = None,
) -> Reply:
    calls = tuple(agent.transcript.calls.values())
    if status is Status.SUCCEEDED:
        # a tool that the routine cannot do without: its last call decides, so that a repaired
        # mistake is forgiven
        outcomes = {call["name"]: call["ok"] for call in calls}
        uncalled_tools = [name for name in agent.required_tools if name not in outcomes]
        failed_tools = [name for name in agent.required_tools if outcomes.get(name) is False]
        if uncalled_tools or failed_tools:
            status, silent = Status.FAILED, False
        if uncalled_tools:
            detail = f"a required tool was not called: {', '.join(uncalled_tools)}"
        elif failed_tools:
            detail = f"a required tool was denied or failed: {', '.join(failed_tools)}"
    return Reply(
        content=content,
        function_calls=calls,
        iterations=agent.transcript.iterations - agent.earlier_iterations,
        usage=agent.transcript.usage,
        status=status,
        silent=silent,
        detail=detail or "; ".join(agent.transcript.notes) or None,
    )


def _exceeds_budget(transcript: Transcript, budget: int | None) -> bool:
    """Return whether one more call would pass the budget.

    The next call sends at least what the last one sent and received.
    """
    if budget is None:
        return False
    last_usage = transcript.last_answer.usage if transcript.last_answer else Usage()
    next_call = last_usage.input + last_usage.output
    if not next_call:
        next_call = (
            sum(len(message.content) for message in transcript.messages) // CHARACTERS_PER_TOKEN
        )
    return transcript.usage.total + transcript.subagent_tokens + next_call > budget
