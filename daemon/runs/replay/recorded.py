"""What stands in for the world while a run is played again: a model, hands and an inbox that know
only the record.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

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
)
from daemon.providers import LLMProvider
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry

NEVER_MADE = (
    "[error] not run: this is a replay, and the recorded run never made this call; there is no "
    "result to give."
)


class RecordExhausted(Exception):
    """The record holds no more: a person, a limit of time or the vendor ended the run here."""


class Recording:
    """The steps of a recorded run, by what they answer."""

    def __init__(self, steps: Sequence[Step], run: Run, language: str) -> None:
        self.run, self.language = run, language
        self.calls = {str(step.call_id): step for step in steps if step.kind is StepKind.CALL}
        self.results = {str(step.call_id): step for step in steps if step.kind is StepKind.RESULT}
        self.order = {
            str(step.call_id): place
            for place, step in enumerate(steps)
            if step.kind is StepKind.CALL
        }
        self.done = {
            str(step.call_id): place
            for place, step in enumerate(steps)
            if step.kind is StepKind.RESULT
        }
        self.asks = list(_asks(steps))
        self.told = [
            step
            for step in steps
            if step.kind is StepKind.MESSAGE and step.body.get("source") == "told"
        ]
        self.goal = next(
            (
                step
                for step in steps
                if step.kind is StepKind.MESSAGE and step.body.get("source") == "goal"
            ),
            None,
        )
        self._by_request: dict[str, list[str]] = defaultdict(list)
        for key, step in self.calls.items():
            self._by_request[request_of(step.body["tool"], step.body.get("arguments"))].append(key)

    def keys_of(self, tool: str, arguments: Json) -> list[str]:
        """Return the places at which this very call was made."""
        return self._by_request.get(request_of(tool, arguments), [])

    def result_at(self, key: str) -> ToolResult | None:
        """Return what the call at this place brought; None if its end was not recorded."""
        step = self.results.get(key)
        if step is None:
            return None
        body = step.body
        value = body.get("value")
        if step.iteration and "spent" in body:
            value = {"tokens": body["spent"]}
        taint, would = Taint(body.get("taint", "")), str(body.get("would", ""))
        return ToolResult(ok=body["ok"], text=body["text"], value=value, taint=taint, would=would)

    def unknown_here(self) -> dict[str, list[str]]:
        """Return the tools that were refused as unknown, and which ones were offered instead.

        Journals and frozen runs of older versions say so in what the run was told only.
        """
        refused = {
            step.body["tool"]: list(step.body["offered"])
            for step in self.results.values()
            if "offered" in step.body
        }
        template = MESSAGES.get(self.language, MESSAGES["en"])["unknown_tool"]
        head, before = (
            template.partition("{tool!r}")[0],
            template.rpartition("{names}")[0].rpartition("}")[2],
        )
        told = {
            self.calls[key].body["tool"]: step.body["text"].rpartition(before)[2].split(", ")
            for key, step in self.results.items()
            if key in self.calls
            and "verdict" not in self.calls[key].body
            and not step.body["ok"]
            and "offered" not in step.body
            and step.body["text"].startswith(head)
        }
        return told | refused

    def capped_by(self) -> OverBudget | None:
        """Return the cap that ended the run, before a call was made; None if none did.

        No step says so: it is read from the words of the run's detail, in all versions.
        """
        if (rule := self._limit_in("cap_money")) is not None:
            return OverBudget("as recorded", rule=rule)
        if (most := self._limit_in("cap_tokens")) is not None and most.isdecimal():
            return OverBudget("as recorded", rule="[run.budget] tokens", tokens=int(most))
        return None

    def _limit_in(self, key: str) -> str | None:
        """Return the limit that the run says it reached, in the words of this message."""
        head, _, tail = (
            MESSAGES.get(self.language, MESSAGES["en"])[key].strip("[]").partition("{limit}")
        )
        detail = self.run.detail or ""
        if detail.startswith(head) and detail.endswith(tail):
            return detail[len(head) : len(detail) - len(tail)]
        return None


def request_of(tool: str, arguments: Any) -> str:
    """Return a call in one form."""
    return f"{tool} {json.dumps(arguments, sort_keys=True, ensure_ascii=False)}"


def _asks(steps: Sequence[Step]) -> list[Step]:
    """Return what asking the model came to, in order: answers, failovers, and conversations it had
    no room for.
    """
    found: list[Step] = []
    for step in steps:
        if step.kind in (StepKind.LLM, StepKind.FAILOVER):
            found.append(step)
        elif step.body.get("source") == "afresh" and not (
            found and found[-1].body.get("finish") == "context"
        ):
            found.append(
                step
            )  # else the model itself said that it was full, and nobody asked it again
    return found


class RecordedModel(LLMProvider):
    """Answer what was answered then; Ended when the record holds no more."""

    kind: ClassVar[str] = "tape"

    def __init__(self, name: str, model: str, recording: Recording, asks: list[Step]) -> None:
        self.name, self._model, self._recording = name, model, recording
        self._asks = asks
        """Shared by all models of the chain: one record, read once."""

    @property
    def model_name(self) -> str:
        return self._model

    def supports_function_calling(self) -> bool:
        return True

    @property
    def accepts_images(self) -> bool:
        return True  # what the model then said of that stands in its answers

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        if not self._asks:
            if (capped := self._recording.capped_by()) is not None:
                raise capped
            raise RecordExhausted
        step = self._asks.pop(0)
        if step.kind is StepKind.LLM:
            return response_from(step.body)
        if step.kind is StepKind.FAILOVER:
            raise Fatal(step.body["reason"])
        raise ContextOverflow("as recorded")


class RecordedToolExecutor(ToolExecutor):
    """Bring what was brought then; a call that was never made is refused."""

    def __init__(self, recording: Recording, registry: FunctionRegistry, *, loose: bool) -> None:
        super().__init__(registry)
        self._recording, self._loose = recording, loose
        self._given: dict[str, int] = defaultdict(int)
        self.never_made: list[tuple[str, FunctionCall]] = []
        """What was asked for and is not in the record, by place."""

    async def run(self, call: FunctionCall, context: ToolContext | None = None) -> ToolResult:
        key = context.call if context else ""
        made = self._recording.calls.get(key)
        same = made is not None and request_of(
            made.body["tool"], made.body.get("arguments")
        ) == request_of(call.name, call.arguments)
        if not same and (self._loose or made is None):
            # another model asks in another order: the same call brings what it brought, each time
            # in turn
            keys = self._recording.keys_of(call.name, call.arguments)
            request = request_of(call.name, call.arguments)
            key = keys[min(self._given[request], len(keys) - 1)] if keys else ""
            self._given[request] += 1
            same = bool(keys)
        found = self._recording.result_at(key) if same else None
        if found is None and same and not self._loose:
            raise RecordExhausted
        if found is None or (same and self._refused_then(key)):
            self.never_made.append((context.call if context else "", call))
            return ToolResult(ok=False, text=NEVER_MADE)
        return found

    def _refused_then(self, key: str) -> bool:
        """Tell whether the call was denied then: it has an answer, but never ran."""
        verdict = self._recording.calls[key].body.get("verdict") or {}
        return bool(verdict.get("effect") == "deny")


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """What a person told the run."""

    id: int
    text: str


class RecordedInbox:
    """Hand over what people said when they said it: after so many iterations."""

    def __init__(self, recording: Recording, iteration: Callable[[], int]) -> None:
        self._recording, self._iteration = recording, iteration

    def take(self, run: str, heard: set[int]) -> Sequence[RecordedMessage]:
        """Take out what the run has not heard and had been told by now."""
        return [
            RecordedMessage(step.body["told"], step.body["text"])
            for step in self._recording.told
            if step.iteration <= self._iteration() and step.body["told"] not in heard
        ]
