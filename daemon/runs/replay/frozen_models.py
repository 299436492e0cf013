"""What the JSON files of a frozen run must hold, so that it can be replayed.

Sums that fit prove nothing: whoever changes a file can write its sum anew. So each field that a
replay reads is checked here; fields that it does not read may hold anything.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
    model_validator,
)

from daemon.agent.conversations.conversations import ASK
from daemon.definitions.shape import format_key_path
from daemon.definitions.toml_text import FIRST_YEAR, LAST_YEAR, MAX_INTEGER
from daemon.definitions.validation_errors import field_errors
from daemon.definitions.values import InvalidValue
from daemon.definitions.words import show_value
from daemon.errors import Fault
from daemon.models import Effect, Json, Status, StepKind, Taint
from daemon.runs.gather import HAND_TRIGGERS

HINT = "freeze the run again: agentctl freeze RUN DIR"


def _text(value: object) -> str:
    # pydantic refuses half a surrogate pair, which names of files may hold
    if not isinstance(value, str):
        raise InvalidValue("expected text")
    return value


def _table(value: object) -> Json:
    if not isinstance(value, dict):
        raise InvalidValue("expected an object")
    return value


def _moment(value: object) -> datetime:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            if moment.tzinfo and FIRST_YEAR < moment.year < LAST_YEAR:
                return moment
    raise InvalidValue("expected a time with its offset, like 2026-12-01T09:00:00+00:00")


def _path(value: object) -> str:
    if isinstance(value, str) and value.startswith("/") and "\0" not in value:
        try:
            os.fsencode(value)
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise InvalidValue("expected a path that begins with /")


def _base64(value: object) -> str:
    if isinstance(value, str):
        try:
            base64.b64decode(value)
        except (binascii.Error, ValueError):
            pass
        else:
            return value
    raise InvalidValue("expected base64")


Text: TypeAlias = Annotated[str, PlainValidator(_text)]
Table: TypeAlias = Annotated[Json, PlainValidator(_table)]
Moment: TypeAlias = Annotated[datetime, PlainValidator(_moment)]
AbsolutePath: TypeAlias = Annotated[str, PlainValidator(_path)]
Base64: TypeAlias = Annotated[str, PlainValidator(_base64)]
Number: TypeAlias = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Texts: TypeAlias = Annotated[list[Text], Field(fail_fast=True)]
TaintName: TypeAlias = Annotated[Taint, Strict(False)]
ToolName: TypeAlias = Annotated[str, Field(pattern=r"\A[A-Za-z0-9_-]{1,64}\z")]


class Model(BaseModel):
    """The base of these models: types are exact, and what is not named is not looked at."""

    model_config = ConfigDict(strict=True, defer_build=True)


class ExactModel(BaseModel):
    """The base of models whose fields all become arguments of a class: no other may stand there."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


# --- case.json


class UsageModel(ExactModel):
    input: Number = 0
    cache_read: Number = 0
    cache_write: Number = 0
    output: Number = 0
    reasoning: Number = 0


class RunModel(Model):
    id: Text
    routine: Text
    definition: Text
    trigger: Text
    slot: Moment
    event: Text | None = None
    status: Annotated[Status, Strict(False)]
    attempt: Number = 0
    barren: Number = 0
    created: Moment
    started: Moment | None = None
    ended: Moment | None = None
    not_before: Moment | None = None
    active: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    cancel: bool = False
    goal: Text = ""
    silent: bool = False
    detail: Text | None = None
    provider: Text = ""
    model: Text = ""
    usage: UsageModel
    iterations: Number = 0
    taint: TaintName
    sandbox: Text = ""


class CaseModel(Model):
    format: Annotated[int, Field(ge=1, le=MAX_INTEGER)]
    agentd: Text
    run: RunModel
    workspace: AbsolutePath
    language: Text
    policies: Annotated[dict[str, Text], Field(max_length=100)]
    """The file of each policy, by the hash of the policy."""
    missing: Texts
    files: Texts


class CaseHeadModel(Model):
    """What case.json says in every format."""

    format: Annotated[int, Field(ge=1, le=MAX_INTEGER)]
    agentd: Text


# --- steps.json, by the kind of a step


class StepModel(Model):
    kind: Annotated[StepKind, Strict(False)]
    seq: Annotated[int, Field(ge=-1, le=MAX_INTEGER)]
    iteration: Number
    call_id: Text | None = None
    at: Moment | None


class FunctionModel(Model):
    name: ToolName
    description: Text = ""
    parameters: Table = Field(default_factory=dict)


class EarlierMessageModel(ExactModel):
    role: Literal["user", "assistant"]
    content: Text


class RouteModel(Model):
    tokens: UsageModel
    question: Text | None = None


class PromptModel(Model):
    provider: Text
    model: Text = ""
    functions: Annotated[list[FunctionModel], Field(fail_fast=True)] | None = None
    boundary: Text | None = None
    route: RouteModel | None = None
    history: Annotated[list[EarlierMessageModel], Field(fail_fast=True)] = []
    taint: TaintName = Taint.NONE


class PromptStep(StepModel):
    body: PromptModel


class CallModel(Model):
    name: Text
    arguments: Table = Field(default_factory=dict)
    id: Text | None = None
    invalid: Text | None = None


class AnswerModel(Model):
    content: Text
    calls: Annotated[list[CallModel], Field(fail_fast=True)]
    finish: Text
    usage: UsageModel
    reasoning: Text = ""
    model: Text = ""
    request_id: Text | None = None
    note: Text = ""
    taint: TaintName = Taint.NONE


class AnswerStep(StepModel):
    body: AnswerModel


class VerdictModel(Model):
    effect: Annotated[Effect, Strict(False)]
    rule: Text = ""
    reason: Text = ""
    allowed: Text = ""
    once: Text = ""


class CallStartModel(Model):
    tool: Text
    arguments: Table | None = None
    verdict: VerdictModel | None = None
    policy: Text | None = None
    approval: Text | None = None
    asked: Text | None = None
    taint: TaintName = Taint.NONE


class CallStep(StepModel):
    call_id: Text
    body: CallStartModel


class ResultModel(Model):
    tool: Text
    ok: bool
    text: Text
    taint: TaintName = Taint.NONE
    spent: Number = 0
    would: Text = ""
    usage: UsageModel = Field(default_factory=UsageModel)
    offered: Texts | None = None
    value: Any = None


class ProgramValue(Model):
    """What a program of a gate or a check came to."""

    exit_code: Annotated[int, Field(ge=-255, le=255)]
    output: Text


class CheckValue(Model):
    """What the schema or the judge said of a report."""

    passed: bool | None = Field(alias="pass")
    model: Text


class ResultStep(StepModel):
    call_id: Text
    body: ResultModel

    @model_validator(mode="after")
    def _check_value(self) -> ResultStep:
        model: type[Model] | None = None
        if self.call_id.startswith(("check.schema.", "check.judge.")):
            model = CheckValue
        elif self.body.ok and self.call_id.startswith(("gate.command", "check.command.")):
            model = ProgramValue
        if model and (fault := find_fault(model, self.body.value)):
            raise ValueError(f"{fault.problem} at body.value.{fault.key}".removesuffix("."))
        return self


class FactModel(ExactModel):
    name: Text
    tool: Text
    ok: bool
    text: Text
    changes: Texts


class ImageModel(Model):
    media_type: Text
    data: Base64


class MessageModel(Model):
    text: Text
    source: Text = ""
    facts: Annotated[list[FactModel], Field(fail_fast=True)] = []
    boundary: Text = ""
    images: Annotated[list[ImageModel], Field(fail_fast=True)] = []
    notes: Texts = []
    taint: TaintName = Taint.NONE
    message_number: Number | None = Field(default=None, alias="told")
    """Of the message of a person."""

    @model_validator(mode="after")
    def _check_number(self) -> MessageModel:
        if self.source == "told" and self.message_number is None:
            raise ValueError("has no number (told) of the message of a person")
        return self


class MessageStep(StepModel):
    body: MessageModel


class FailoverModel(Model):
    to: Text
    reason: Text


class FailoverStep(StepModel):
    body: FailoverModel


class LimitModel(Model):
    rule: Text
    tokens: Number | None = None


class LimitStep(StepModel):
    body: LimitModel


STEP_MODELS: dict[StepKind, type[StepModel]] = {
    StepKind.PROMPT: PromptStep,
    StepKind.LLM: AnswerStep,
    StepKind.CALL: CallStep,
    StepKind.RESULT: ResultStep,
    StepKind.MESSAGE: MessageStep,
    StepKind.FAILOVER: FailoverStep,
    StepKind.LIMIT: LimitStep,
}


# --- input.json, by the trigger of the run


class WatchInput(Model):
    paths: Texts


class HandInput(Model):
    text: Text
    tainted: bool


class AskInput(Model):
    quoted: Text | None = None


class AfterInput(Model):
    run: Text


INPUT_MODELS: dict[str, type[Model]] = {
    "watch": WatchInput,
    **dict.fromkeys(HAND_TRIGGERS, HandInput),
    ASK: AskInput,
    "after": AfterInput,
}


def find_fault(model: type[BaseModel], value: Any, *, file: str = "", at: str = "") -> Fault | None:
    """Return the first thing in a value that does not fit the model, `at` being the place of the
    value in its file; None if all fits.
    """
    if not isinstance(value, dict):
        return Fault(
            file=file, key=at, found=show_value(value), problem="expected an object", hint=HINT
        )
    try:
        model.model_validate(value)
    except ValidationError as error:
        first_error = field_errors(error, value, model)[0]
        key = format_key_path(*first_error.path)
        return Fault(
            file=file,
            key=f"{at}.{key}" if at and key else at or key,
            found="" if first_error.missing else show_value(first_error.input, key),
            problem=" or ".join(first_error.problems),
            hint=HINT,
        )
    return None


def find_step_faults(steps: Any, *, file: str) -> Iterator[Fault]:
    """Yield what in a list of steps does not fit, the first fault of each step."""
    if not isinstance(steps, list):
        yield Fault(
            file=file,
            key="",
            found=show_value(steps),
            problem="expected a list of steps",
            hint=HINT,
        )
        return
    for number, step in enumerate(steps):
        place = f"[{number}]"
        fault = find_fault(StepModel, step, file=file, at=place)
        fault = fault or find_fault(STEP_MODELS[StepKind(step["kind"])], step, file=file, at=place)
        if fault:
            yield fault
