"""The model, the tools and the messages of a replayed run: each gives what was recorded."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from daemon.agent.texts import MESSAGES
from daemon.agent.transcript import response_from
from daemon.errors import ContextOverflow, Fatal, OverBudget
from daemon.models import (
    FunctionCall,
    Json,
    LLMMessage,
    LLMResponse,
    Run,
    Step,
    StepKind,
    Taint,
    ToolContext,
    ToolResult,
    Usage,
)
from daemon.providers import LLMProvider
from daemon.runs.protocols import CheckOutcome
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Judge

NEVER_MADE = (
    "[error] not run: this is a replay, and the recorded run never made this call; there is no "
    "result to give."
)
NEVER_CHECKED = "this is a replay, and the recorded run never had a report checked here"


class RecordExhausted(Exception):
    """The record holds no more: a person, a limit of time or the vendor ended the run here."""


class Recording:
    """The steps of a recorded run, by what the replay looks for."""

    def __init__(self, steps: Sequence[Step], run: Run, language: str) -> None:
        self.run, self.language = run, language
        self.calls: dict[str, Step] = {}
        self.results: dict[str, Step] = {}
        self.call_positions: dict[str, int] = {}
        """Where among the steps each call stands, by its id."""
        self.incoming_messages: list[Step] = []
        """What people said to the run while it was under way."""
        self.goal: Step | None = None
        self.repairs: list[Step] = []
        """What the model was told of its reports that did not hold up (`[check]`)."""
        self.was_asked_for_items = False
        """Whether the model was told that it reported no items (`[dedupe]`)."""
        self.is_trial = any(step.body.get("mode") == "observe" for step in steps)
        """Whether the routine was observed, so that denied calls were no failure."""
        self.model_steps = _model_steps(steps)
        self._call_ids: dict[str, list[str]] = defaultdict(list)
        for position, step in enumerate(steps):
            call_id, source = str(step.call_id), step.body.get("source")
            if step.kind is StepKind.CALL:
                self.calls[call_id], self.call_positions[call_id] = step, position
                request = request_of(step.body["tool"], step.body.get("arguments"))
                self._call_ids[request].append(call_id)
            elif step.kind is StepKind.RESULT:
                self.results[call_id] = step
            elif step.kind is StepKind.MESSAGE and source == "told":
                self.incoming_messages.append(step)
            elif step.kind is StepKind.MESSAGE and source == "goal" and self.goal is None:
                self.goal = step
            elif step.kind is StepKind.MESSAGE and source == "check":
                self.repairs.append(step)
            elif step.kind is StepKind.MESSAGE and source == "dedupe":
                self.was_asked_for_items = True

    def call_ids_of(self, tool: str, arguments: Json) -> list[str]:
        """Return the ids of all calls with this tool and these arguments, in order."""
        return self._call_ids.get(request_of(tool, arguments), [])

    def result_of(self, call_id: str) -> ToolResult | None:
        """Return the result of a call; None if it was not recorded."""
        step = self.results.get(call_id)
        if step is None:
            return None
        body = step.body
        value = body.get("value")
        if step.iteration and "spent" in body:
            value = {"tokens": body["spent"]}
        return ToolResult(
            ok=body["ok"],
            text=body["text"],
            value=value,
            taint=Taint(body.get("taint", "")),
            dry_run_effect=str(body.get("would", "")),
            withheld=bool(body.get("withheld")),
        )

    def unknown_tools(self) -> set[str]:
        """Return the tools that were refused as unknown."""
        return {
            self.results[call_id].body["tool"]
            for call_id in self.results
            if self._offered_instead(call_id) is not None
        }

    def tools_of_gather(self) -> list[str] | None:
        """Return the tools that were offered instead of the unknown one of a gather step; None if
        all of these tools were known.
        """
        for call_id, result in self.results.items():
            if result.iteration == 0 and (names := self._offered_instead(call_id)) is not None:
                return names
        return None

    def _offered_instead(self, call_id: str) -> list[str] | None:
        """Return the tools that were offered instead of an unknown one; None for a known tool."""
        result = self.results[call_id].body
        if "offered" in result:
            return list(result["offered"])
        return self._offered_in_text(call_id) if call_id in self.calls else None

    def _offered_in_text(self, call_id: str) -> list[str] | None:
        """Return the tools that were offered instead of an unknown one, as journals and frozen runs
        of older versions have them: in the text of the result only. None for a known tool.
        """
        template = MESSAGES.get(self.language, MESSAGES["en"])["unknown_tool"]
        beginning = template.partition("{tool!r}")[0]
        before_names = template.rpartition("{names}")[0].rpartition("}")[2]
        result = self.results[call_id].body
        is_unknown_tool = not result["ok"] and result["text"].startswith(beginning)
        if "verdict" in self.calls[call_id].body or not is_unknown_tool:
            return None
        names: list[str] = result["text"].rpartition(before_names)[2].split(", ")
        return names

    def limit_in_detail(self) -> OverBudget | None:
        """Return the cap that ended a run of an older version before a model was asked; None if
        none did.

        Such a run has no `limit` step: only its detail names the cap.
        """
        rule = self._value_in_detail("cap_money")
        if rule is not None:
            return OverBudget("as recorded", rule=rule)
        tokens = self._value_in_detail("cap_tokens")
        if tokens is not None and tokens.isdecimal():
            return OverBudget("as recorded", rule="[run.budget] tokens", tokens=int(tokens))
        return None

    def _value_in_detail(self, key: str) -> str | None:
        """Return the limit that the run's detail names, if its detail is the message `key`."""
        message = MESSAGES.get(self.language, MESSAGES["en"])[key].strip("[]")
        beginning, _, ending = message.partition("{limit}")
        detail = self.run.detail or ""
        if detail.startswith(beginning) and detail.endswith(ending):
            return detail[len(beginning) : len(detail) - len(ending)]
        return None


def request_of(tool: str, arguments: Any) -> str:
    """Return tool and arguments in one form, to compare calls by."""
    return f"{tool} {json.dumps(arguments, sort_keys=True, ensure_ascii=False)}"


def drop_superseded_limits(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without limits that did not end the run: it was resumed, and there was
    budget again.
    """
    last_step = steps[-1] if steps else None
    return [step for step in steps if step.kind is not StepKind.LIMIT or step is last_step]


def _model_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that say what came of asking the model, in order: answers, failovers, limits
    and conversations that were too long for it.
    """
    model_steps: list[Step] = []
    for step in steps:
        if step.kind in (StepKind.LLM, StepKind.FAILOVER, StepKind.LIMIT):
            model_steps.append(step)
        elif step.body.get("source") == "afresh":
            last_step = model_steps[-1] if model_steps else None
            # where the model itself stopped for want of room, it was not asked again
            if last_step is None or last_step.body.get("finish") != "context":
                model_steps.append(step)
    return model_steps


class RecordedModel(LLMProvider):
    """Answers as the model answered then; raises RecordExhausted when the record holds no more."""

    kind: ClassVar[str] = "recorded"

    def __init__(
        self, name: str, model: str, recording: Recording, model_steps: list[Step]
    ) -> None:
        self.name, self._model, self._recording = name, model, recording
        self._model_steps = model_steps
        """Shared by all models of the chain: each step is taken out once."""

    @property
    def model_name(self) -> str:
        return self._model

    def supports_function_calling(self) -> bool:
        return True

    @property
    def accepts_images(self) -> bool:
        return True  # what the model said of images is in its recorded answers

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        if not self._model_steps:
            raise self._recording.limit_in_detail() or RecordExhausted
        step = self._model_steps.pop(0)
        match step.kind:
            case StepKind.LLM:
                return response_from(step.body)
            case StepKind.FAILOVER:
                raise Fatal(step.body["reason"])
            case StepKind.LIMIT:
                raise OverBudget(
                    "as recorded", rule=step.body["rule"], tokens=step.body.get("tokens")
                )
        # The step of a compaction: the conversation was too long for the model.
        raise ContextOverflow("as recorded")


class RecordedToolExecutor(ToolExecutor):
    """Returns the recorded results; refuses a call that was never made."""

    def __init__(
        self, recording: Recording, registry: FunctionRegistry, *, any_order: bool
    ) -> None:
        """With `any_order` a call gets the result of the same call anywhere in the record: another
        model makes its calls in another order.
        """
        super().__init__(registry)
        self._recording, self._any_order = recording, any_order
        self._counts: dict[str, int] = defaultdict(int)
        """How often each call was made that stands elsewhere in the record."""
        self.never_made: list[tuple[str, FunctionCall]] = []
        """The calls that are not in the record, each with its id."""

    async def run(self, call: FunctionCall, context: ToolContext | None = None) -> ToolResult:
        call_id = context.call if context else ""
        request = request_of(call.name, call.arguments)
        recorded_call = self._recording.calls.get(call_id)
        is_recorded = recorded_call is not None and request == request_of(
            recorded_call.body["tool"], recorded_call.body.get("arguments")
        )
        if not is_recorded and (self._any_order or recorded_call is None):
            # the results of the same call are returned in turn, the last one for all that follow
            call_ids = self._recording.call_ids_of(call.name, call.arguments)
            count = self._counts[request]
            self._counts[request] += 1
            if call_ids:
                is_recorded, call_id = True, call_ids[min(count, len(call_ids) - 1)]
        result = self._recording.result_of(call_id) if is_recorded else None
        if result is None and is_recorded and not self._any_order:
            raise RecordExhausted
        if result is None or self._was_denied(call_id):
            self.never_made.append((context.call if context else "", call))
            return ToolResult(ok=False, text=NEVER_MADE)
        return result

    def _was_denied(self, call_id: str) -> bool:
        """Return whether the recorded call was denied: it has a result, but never ran."""
        verdict = self._recording.calls[call_id].body.get("verdict") or {}
        return bool(verdict.get("effect") == "deny")


class RecordedChecker:
    """Returns what the schema and the judge said of the report in the same round."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def check_schema(self, call_id: str, file: str, report: str) -> CheckOutcome:
        return self._outcome(call_id)

    async def ask_judge(
        self, call_id: str, judge: Judge, report: str, taint: Taint
    ) -> CheckOutcome:
        return self._outcome(call_id)

    def _outcome(self, call_id: str) -> CheckOutcome:
        step = self._recording.results.get(call_id)
        if step is None:
            if call_id in self._recording.calls:
                raise RecordExhausted
            return CheckOutcome(passed=None, text=NEVER_CHECKED)
        value, usage = step.body["value"], step.body.get("usage", {})
        return CheckOutcome(
            passed=value["pass"],
            text=step.body["text"],
            usage=Usage(**usage),
            model=value["model"],
        )


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message of a person to the run."""

    id: int
    text: str


class RecordedInbox:
    """Returns what people said to the run, each message after as many iterations as when it
    came.
    """

    def __init__(self, recording: Recording, iteration: Callable[[], int]) -> None:
        self._recording, self._iteration = recording, iteration

    def take(self, run: str, received_ids: set[int]) -> Sequence[RecordedMessage]:
        """Return the messages that had come by this iteration, without those in `received_ids`."""
        return [
            RecordedMessage(step.body["told"], step.body["text"])
            for step in self._recording.incoming_messages
            if step.iteration <= self._iteration() and step.body["told"] not in received_ids
        ]
