"""Post reports as JSON to a URL, signed as Standard Webhooks asks
(https://www.standardwebhooks.com).

The id of a message is made from that of its delivery, so a receiver can drop a message that comes
twice. Only a status 2xx with a complete answer counts as a receipt. Redirects are not followed, as
the login page that they may lead to answers 200 as well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from daemon.delivery.channels.base import DeliveryProgress
from daemon.delivery.markup import split_up_to_max_parts
from daemon.delivery.message import Message, compose
from daemon.delivery.sanitize import neutralize, strip_controls
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Json, Receipt
from daemon.system.http_client import connection_settings, describe_connection_error

if TYPE_CHECKING:
    import httpx

# Statuses that the same bytes would get again, so that a retry cannot help.
_PERMANENT_STATUSES = frozenset([400, 405, 410, 411, 413, 414, 415, 422])
# What a title, and the reason of a failure, may take of a limit, as a divisor.
_SHARE_OF_LIMIT = 8
# Bytes of an answer that are read: all that matters is its status, and that it was not cut off.
_MAX_READ = 65_536


class WebhookChannel:
    """Posts reports. `secret` signs them; `limit` is the largest body in bytes."""

    def __init__(
        self, url: str, *, secret: str | None, timeout: float, limit: int | None = None
    ) -> None:
        self._url = url
        self._secret = secret
        self._timeout = timeout
        self._limit = limit
        self._progress = DeliveryProgress()

    async def send(self, delivery: Delivery) -> Receipt:
        """Post the report; the receipt is the status of the last answer."""
        import httpx

        # in a thread, as a report may be long: 200 kB take half a second
        messages = await asyncio.to_thread(_make_messages, delivery, self._limit)
        receipt = ""
        settings = await asyncio.to_thread(connection_settings, self._url)
        async with httpx.AsyncClient(**settings, timeout=self._timeout) as client:
            for number, (message_id, body) in self._progress.remaining(delivery, messages):
                receipt = await self._post(client, message_id, body)
                self._progress.mark_done(delivery, number)
        self._progress.clear(delivery)
        return Receipt(
            detail=f"{receipt}, in {len(messages)} parts" if len(messages) > 1 else receipt
        )

    async def _post(self, client: httpx.AsyncClient, message_id: str, body: bytes) -> str:
        import httpx

        try:
            async with asyncio.timeout(self._timeout):
                request = client.build_request(
                    "POST", self._url, content=body, headers=self._make_headers(message_id, body)
                )
                answer = await client.send(request, stream=True, follow_redirects=False)
                try:
                    text = await _read_answer(answer)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise DeliveryFailed(f"no whole answer within {self._timeout:g} s") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise DeliveryFailed(f"its url cannot be used: {error}", retry=False) from error
        except httpx.HTTPError as error:
            reason = describe_connection_error(error)
            raise DeliveryFailed(f"{type(error).__name__}: {reason}") from error
        if not 200 <= answer.status_code < 300:
            raise _make_failure(answer, text)
        return f"{answer.status_code} {answer.reason_phrase}".strip() + f" for {message_id}"

    def _make_headers(self, message_id: str, body: bytes) -> dict[str, str]:
        timestamp = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "agentd",
            # a compressed answer might unpack to gigabytes
            "accept-encoding": "identity",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(timestamp.timestamp())),
        }
        if self._secret:
            from standardwebhooks import Webhook

            headers["webhook-signature"] = Webhook(self._secret).sign(
                message_id, timestamp, body.decode()
            )
        return headers


def _make_messages(delivery: Delivery, limit: int | None) -> list[tuple[str, bytes]]:
    """Return (id, body) of each message to post: one, or as many as a `limit` in bytes takes."""
    message = compose(delivery)
    clean = neutralize if delivery.report.taint else strip_controls
    detail = delivery.options.get("detail") and clean(str(delivery.options["detail"]))
    # a new database counts its deliveries from 1 again, and a receiver drops an id that it knows
    created = int((delivery.created or delivery.report.slot).timestamp())
    message_id = f"{delivery.run or f'notice-{created}'}-{delivery.id}"
    body = _make_body(delivery, message, detail, message.body, 1, 1)
    if limit is None or len(body) <= limit:
        return [(message_id, body)]
    # else a long title or reason, which is in each part, would leave no room for the report
    longest = limit // _SHARE_OF_LIMIT
    message = replace(message, title=_shorten(message.title, longest, message.sanitize))
    detail = detail and _shorten(detail, longest, clean)
    parts = split_up_to_max_parts(
        message.body,
        limit,
        size=lambda text: len(_make_body(delivery, message, detail, text, 99, 99)),
        run=delivery.run,
        sanitize=message.sanitize,
    )
    return [
        (f"{message_id}-{number}", _make_body(delivery, message, detail, part, number, len(parts)))
        for number, part in enumerate(parts, 1)
    ]


def _make_body(
    delivery: Delivery, message: Message, detail: str | None, text: str, number: int, count: int
) -> bytes:
    """Return a part of a report as JSON; `detail` is the reason of a failure."""
    report, options = delivery.report, delivery.options
    data: Json = {
        "delivery": delivery.id,
        "run": delivery.run or None,
        "routine": delivery.routine or None,
        "slot": report.slot.astimezone(UTC).isoformat(),
        "status": report.status.value,
        "title": message.title,
        "about": message.about,
        "report": text,
        "part": number,
        "parts": count,
        **{key: options.get(key) for key in ("trigger", "started", "ended")},
        "detail": detail,
    }
    event = options.get("notice") or f"run.{report.status.value}"
    payload = {
        "type": event,
        "timestamp": (delivery.created or report.slot).astimezone(UTC).isoformat(),
        "data": data,
    }
    return json.dumps(payload, ensure_ascii=False).encode(errors="replace")


def _shorten(text: str, longest: int, sanitize: Callable[[str], str]) -> str:
    """Return a text of at most `longest` bytes in JSON, with an ellipsis where it was cut."""

    def size(part: str) -> int:
        return len(json.dumps(part, ensure_ascii=False).encode(errors="replace"))

    if size(text) <= longest:
        return text
    length = min(len(text), longest)
    while length > 0:
        shortened_text = f"{sanitize(text[:length])}…"
        excess = size(shortened_text) - longest
        if excess <= 0:
            return shortened_text
        # a character takes at most six bytes, as \u001f, so no more is cut off than has to be
        length -= max(1, excess // 6)
    return "…"


async def _read_answer(answer: httpx.Response) -> str:
    """Read an answer to its end, or up to _MAX_READ bytes; return its first words."""
    body = b""
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) >= _MAX_READ:
            break
    return " ".join(body.decode(errors="replace").split())[:200]


def _make_failure(answer: httpx.Response, text: str) -> DeliveryFailed:
    status = answer.status_code
    problem = f"{status} {answer.reason_phrase}".strip()
    if 300 <= status < 400:
        problem += " (redirects are not followed: name the address it leads to)"
    elif text and not text.startswith("<"):
        problem += f": {text}"
    return DeliveryFailed(
        f"it answered {problem}",
        retry=status not in _PERMANENT_STATUSES,
        after=_parse_retry_after(answer.headers),
        status=status,
    )


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the header Retry-After in seconds, given as such or as a date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(
        0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    )
