"""Read and parse the JSON body of a request."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from daemon.api.problems import InvalidRequest
from daemon.system.http_body import NumberTooLarge, read_float

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_BODY_BYTES = 1_000_000  # a request of agentctl has a few dozen


async def read_body(request: Request) -> bytes:
    """Return the bytes of a request's body. Raises InvalidRequest if there are more than
    MAX_BODY_BYTES, or if the connection ends before the last one.
    """
    from starlette.requests import ClientDisconnect

    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise InvalidRequest(
                    f"the body is over {MAX_BODY_BYTES} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                )
    except ClientDisconnect:
        # Nobody reads this answer, but any other exception would be logged as a mistake of agentd.
        raise InvalidRequest("the connection ended before the body was complete") from None
    return body


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON body; an empty body counts as an empty object.

    Raises InvalidRequest for what is no JSON, and for NaN, infinities and numbers beyond a float:
    they could not be written as JSON again.
    """
    if not body.strip():
        return {}
    try:
        # decoded here: `json` takes other encodings, and half of a surrogate pair
        text = body.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant, parse_float=read_float)
    except NumberTooLarge as error:
        raise InvalidRequest(f"the body is not JSON that can be read: {error}") from None
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


def refuse_lone_surrogates(raw: bytes, value: Any) -> None:
    """Raise InvalidRequest if a text in the value of a JSON body has half of a surrogate pair.

    No UTF-8 can hold it (RFC 8259, section 8.2): it comes by an escape such as `\\ud83d` alone.
    """
    if b"\\ud" not in raw.lower():
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the body is not JSON that can be read: a text in it has half of a surrogate pair, "
            f"\\u{ord(error.object[error.start]):04x}"
        ) from None


def _refuse_constant(name: str) -> None:
    raise InvalidRequest(f"the body is not JSON: {name} is no number there")
