"""What a request must carry, read off a route's own signature.

A route is `async def show(surface, *, name: str, limit: Limit = 50) -> View`. A parameter that
stands in the path comes from there; of the others, a GET takes them from its query and a POST from
its JSON body. What is not in the signature is an error that names the nearest thing that is.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from http import HTTPStatus
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import unquote

from daemon.api.problems import InvalidRequest

if TYPE_CHECKING:
    from starlette.requests import Request

LONGEST_BODY = 1_000_000  # bytes; a request of ours is a few dozen


@dataclass(frozen=True, slots=True)
class Between:
    """The bounds of a number."""

    least: int
    most: int


class Caller(str):
    """Who asks, as the kernel tells: `uid 1000`.

    A parameter of this type is filled in for the route.
    """

    __slots__ = ()


Limit = Annotated[int, Between(1, 1000)]
Count = Annotated[int, Between(1, 100)]
Offset = Annotated[int, Between(0, 1_000_000_000)]
Seconds = Annotated[int, Between(1, 10_000_000_000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One thing a request carries."""

    name: str
    place: str
    """path, query or body"""
    kind: type
    bounds: Between | None
    default: Any
    required: bool


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One row of the table, with what its signature says."""

    method: str
    path: str
    handler: Callable[..., Any]
    inputs: Mapping[str, Input]
    answer: Any
    caller: str | None = None
    """The parameter that takes who asks, if the handler wants to know."""

    async def read(self, request: Request) -> dict[str, Any]:
        """Return the handler's arguments; BadRequest says what is wrong with the request."""
        given: dict[str, Any] = {
            name: unquote(value) for name, value in request.path_params.items()
        }
        asked = await _body(request) if self.method == "POST" else dict(request.query_params)
        place = "body" if self.method == "POST" else "query"
        known = [each.name for each in self.inputs.values() if each.place == place]
        for name, value in asked.items():
            if name not in known:
                near = get_close_matches(name, known, 1)
                told = (
                    f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
                )
                raise InvalidRequest(
                    f"unknown {place} field {name!r}; {told}", HTTPStatus.UNPROCESSABLE_ENTITY
                )
            given[name] = value
        read: dict[str, Any] = {name: _value(each, given) for name, each in self.inputs.items()}
        if self.caller:
            read[self.caller] = Caller(
                request.client.host.replace(":", " ") if request.client else ""
            )
        return read


def endpoint(method: str, path: str, handler: Callable[..., Any]) -> Endpoint:
    """Return the row with the inputs that its handler's signature asks for."""
    hints = get_type_hints(handler, include_extras=True)
    inputs, caller = {}, None
    for name, parameter in inspect.signature(handler).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        if hints[name] is Caller:
            caller = name
            continue
        in_path = f"{{{name}}}" in path
        kind, bounds = _kind(hints[name])
        required = parameter.default is parameter.empty
        inputs[name] = Input(
            name=name,
            place="path" if in_path else "body" if method == "POST" else "query",
            kind=kind,
            bounds=bounds,
            default=None if required else parameter.default,
            required=required,
        )
    return Endpoint(
        method=method,
        path=path,
        handler=handler,
        inputs=inputs,
        answer=hints["return"],
        caller=caller,
    )


def _kind(hint: Any) -> tuple[type, Between | None]:
    """Take `int`, `Annotated[int, Between(…)]` or either of them `| None` apart."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is Annotated:
        kind, bounds = get_args(hint)
        return kind, bounds
    return hint, None


def _value(wanted: Input, given: Mapping[str, Any]) -> Any:
    if wanted.name not in given or given[wanted.name] is None:
        if wanted.required:
            raise InvalidRequest(f"{wanted.name!r} is missing", HTTPStatus.UNPROCESSABLE_ENTITY)
        return wanted.default
    value = given[wanted.name]
    if wanted.kind is int:
        value = _number(wanted, value)
    elif not isinstance(value, str):
        raise _unfit(wanted, "expected text", value)
    elif issubclass(wanted.kind, StrEnum):
        if value not in list(wanted.kind):
            raise _unfit(wanted, f"expected one of {', '.join(wanted.kind)}", value)
        value = wanted.kind(value)
    return value


def _number(wanted: Input, value: Any) -> int:
    if isinstance(value, bool | float):  # which `int` would round
        raise _unfit(wanted, "expected a whole number", value)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise _unfit(wanted, "expected a whole number", value) from None
    if wanted.bounds and not wanted.bounds.least <= number <= wanted.bounds.most:
        raise _unfit(
            wanted, f"expected a number from {wanted.bounds.least} to {wanted.bounds.most}", value
        )
    return number


def _unfit(wanted: Input, expected: str, value: Any) -> InvalidRequest:
    found = json.dumps(value, ensure_ascii=False)[:80]
    return InvalidRequest(
        f"{wanted.name!r}: {expected} (found {found})", HTTPStatus.UNPROCESSABLE_ENTITY
    )


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of the body; an empty body is an empty object."""
    body = as_json(await raw_body(request))
    if not isinstance(body, dict):
        raise InvalidRequest('the body is JSON but not an object; send {} or {"event": "…"}')
    return body


async def raw_body(request: Request) -> bytes:
    """Return the bytes of a request's body, if they are not too many."""
    from starlette.requests import ClientDisconnect

    raw = b""
    try:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > LONGEST_BODY:
                raise InvalidRequest(
                    f"the body is over {LONGEST_BODY} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                )
    except (
        ClientDisconnect
    ):  # nobody reads the answer, but it is no mistake of ours that would be logged
        raise InvalidRequest("the connection ended before the body was complete") from None
    return raw


def as_json(raw: bytes) -> Any:
    """Return what a body says; an empty one is an empty object."""
    if not raw.strip():
        return {}
    try:
        return json.loads(raw, parse_constant=_no_number, parse_float=_read_float)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidRequest(
            "the body is not JSON that can be read: it is nested too deeply"
        ) from None
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not JSON in UTF-8") from None
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise InvalidRequest(
            "the body is not JSON that can be read: a number in it has too many digits"
        ) from None


def _read_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidRequest(
            f"the body is not JSON that can be read: {text:.40} is larger than any number"
        )
    return number


def _no_number(name: str) -> None:
    raise InvalidRequest(f"the body is not JSON: {name} is no number there")
