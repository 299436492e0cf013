"""Endpoints: handlers, and the pydantic models of what a request to them carries.

A handler is `async def show_run(api, *, id: str, limit: Limit = 50) -> View`. Its keyword arguments
are the fields of two models: those that stand in the path, and the others, which a GET takes from
its query and others from their JSON body.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from http import HTTPStatus
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, get_args, get_origin
from typing import get_type_hints as resolve_hints
from urllib.parse import unquote

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    create_model,
)

from daemon.api.bodies import parse_json, read_body
from daemon.api.problems import InvalidRequest

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails
    from starlette.requests import Request

RouteRow: TypeAlias = tuple[str, str, Callable[..., Any]]
"""Method, path and handler."""


@dataclass(frozen=True, slots=True)
class Header:
    """Marks the parameter of a handler that takes the text of a request's header, if it has one."""

    name: str


class Caller(str):
    """Who asks, as the kernel tells: `uid 1000`. A handler's parameter of this type gets it."""

    __slots__ = ()


def _read_whole_number(value: object) -> int:
    """Read a number, also from the text of a query. Unlike pydantic's own reading it takes neither
    `true` nor `5.0`, which would be rounded or converted silently.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("no whole number")  # noqa: TRY004  pydantic takes a ValueError
    return int(value)


WholeNumber = BeforeValidator(_read_whole_number)
"""The last annotation of each number, so that its bounds stand in the JSON Schema."""
MAX_NUMBER = 2**53 - 1  # that all programs read from JSON exactly (RFC 8259, section 6)
Number = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER), WholeNumber]
RowNumber = Annotated[int, Field(ge=0, le=MAX_NUMBER), WholeNumber]
Limit = Annotated[int, Field(ge=1, le=1000), WholeNumber]
Offset = Annotated[int, Field(ge=0, le=1_000_000_000), WholeNumber]
Flag = Annotated[bool, Strict()]
Seconds = Annotated[int, Field(ge=1, le=10_000_000_000), WholeNumber]


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One route, with the models of what its requests carry."""

    method: str
    path: str
    handler: Callable[..., Any]
    path_model: type[BaseModel]
    input_model: type[BaseModel]
    """The fields of the query, or of the body."""
    input_source: str
    """query or body"""
    answer: Any
    """The type of what the handler returns."""
    caller: str | None
    """The parameter of the handler that takes the Caller, if it has one."""
    headers: Mapping[str, str]
    """The parameters that take headers, with the names of these."""

    async def read_arguments(self, request: Request) -> dict[str, Any]:
        """Return the keyword arguments for the handler; InvalidRequest says what is wrong."""
        in_path = {name: unquote(value) for name, value in request.path_params.items()}
        values: Mapping[str, Any] = request.query_params
        if self.input_source == "body":
            values = await _read_object(request)
        arguments = {
            **_validate(self.path_model, in_path, "path"),
            **_validate(self.input_model, values, self.input_source),
        }
        if self.caller:
            peer = request.client.host if request.client else ""
            arguments[self.caller] = Caller(peer.replace(":", " "))
        for parameter, header in self.headers.items():
            arguments[parameter] = request.headers.get(header)
        return arguments


def make_endpoint(method: str, path: str, handler: Callable[..., Any]) -> Endpoint:
    """Return the endpoint of a row of the table, with the models of its handler's signature."""
    hints = resolve_hints(handler, include_extras=True)
    path_fields: dict[str, Any] = {}
    input_fields: dict[str, Any] = {}
    caller = None
    headers: dict[str, str] = {}
    for name, parameter in inspect.signature(handler).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        if hints[name] is Caller:
            caller = name
            continue
        if header := next(
            (mark for mark in get_args(hints[name]) if isinstance(mark, Header)), None
        ):
            headers[name] = header.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields = path_fields if f"{{{name}}}" in path else input_fields
        fields[name] = (_without_none(hints[name]), default)
    config = ConfigDict(extra="forbid")
    title = handler.__name__
    return Endpoint(
        method=method,
        path=path,
        handler=handler,
        path_model=create_model(f"{title}_path", __config__=config, **path_fields),
        input_model=create_model(title, __config__=config, **input_fields),
        input_source="query" if method == "GET" else "body",
        answer=hints["return"],
        caller=caller,
        headers=headers,
    )


def _without_none(hint: Any) -> Any:
    """Return the type of a value that is sent: null and nothing at all mean the default."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (option for option in get_args(hint) if option is not NoneType)
    return hint


def _validate(model: type[BaseModel], values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the fields of a model; InvalidRequest names the first text that cannot be stored, else
    the first unknown field, else the first value that does not fit.
    """
    for name, value in values.items():
        _refuse_unstorable_text(name, value)
    try:
        fields = model.model_validate(
            {name: value for name, value in values.items() if value is not None}
        )
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
        unknown_fields = [error for error in errors if error["type"] == "extra_forbidden"]
        detail = _describe_error(model, (unknown_fields or errors)[0], source)
        raise InvalidRequest(detail, HTTPStatus.UNPROCESSABLE_ENTITY) from None
    return dict(fields)


def _refuse_unstorable_text(name: str, value: object) -> None:
    """Raise InvalidRequest for a field that no database and no file can take, or its name."""
    for text in (name, value):
        if not isinstance(text, str):
            continue
        problem = None
        if "\0" in text:  # Postgres stores none, and no path has one
            problem = "a NUL character"
        elif not text.isascii() and (lone := re.search("[\ud800-\udfff]", text)):
            # JSON writes it as an escape, and UTF-8 has no form for it.
            problem = f"half of a surrogate pair, \\u{ord(lone[0]):04x}"
        if problem:
            label = name.encode("ascii", "backslashreplace").decode()[:80].replace("\0", "\\x00")
            raise InvalidRequest(
                f"'{label}': expected text in Unicode (found {problem})",
                HTTPStatus.UNPROCESSABLE_ENTITY,
            )


def _describe_error(model: type[BaseModel], error: ErrorDetails, source: str) -> str:
    """Word an error of pydantic as all errors of the API are: what was expected, what was found."""
    name, fields = str(error["loc"][0]), model.model_fields
    if error["type"] == "extra_forbidden":
        near = get_close_matches(name, fields, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields) or 'none'}"
        return f"unknown {source} field {name!r}; {hint}"
    if error["type"] == "missing":
        return f"{name!r} is missing"
    quoted_input = _quote(error["input"])
    return f"{name!r}: expected {_describe_expected(fields[name], error)} (found {quoted_input})"


def _quote(value: object) -> str:
    """Return the beginning of a value as JSON writes it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "a list or an object that is nested deeply"
    # Within a list or an object, any text may have half of a surrogate pair.
    return text[:80].encode("utf-8", "backslashreplace").decode()


def _describe_expected(field: FieldInfo, error: ErrorDetails) -> str:
    if error["type"] in ("greater_than_equal", "less_than_equal"):
        minimum = next(bound.ge for bound in field.metadata if isinstance(bound, Ge))
        maximum = next(bound.le for bound in field.metadata if isinstance(bound, Le))
        return f"a number from {minimum} to {maximum}"
    kind = field.annotation
    if kind is int:
        return "a whole number"
    if kind is bool:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, StrEnum) and isinstance(error["input"], str):
        return f"one of {', '.join(kind)}"
    return "text"


async def _read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object of a body; an empty body is an empty object."""
    value = parse_json(await read_body(request))
    if not isinstance(value, dict):
        raise InvalidRequest('the body is JSON but not an object; send {} or {"event": "…"}')
    return value
