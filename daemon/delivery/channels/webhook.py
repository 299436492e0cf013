"""To an address of one's own, as JSON, signed by Standard Webhooks
(https://www.standardwebhooks.com).

The id of a message is that of its delivery: a receiver that sees it again has it already. Only 2xx
is a receipt, and only an answer that came whole: redirects are not followed, since a login page
answers 200 as well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from daemon.delivery.channels.base import DeliveryProgress
from daemon.delivery.markup import some_parts
from daemon.delivery.message import Message, compose
from daemon.delivery.sanitize import neutral, printable
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Json, Receipt
from daemon.system.http_client import connection_settings

if TYPE_CHECKING:
    import httpx

# The receiver will say the same of the same bytes.
_HOPELESS = frozenset([400, 405, 410, 411, 413, 414, 415, 422])
# More of an answer is not read: we want its status, and that it came to its end.
_MOST_READ = 65_536


class WebhookChannel:
    """Posts reports; `secret` signs them, `limit` is how many bytes a message may have."""

    def __init__(
        self, url: str, *, secret: str | None, timeout: float, limit: int | None = None
    ) -> None:
        self._url, self._secret, self._timeout, self._limit = url, secret, timeout, limit
        self._progress = DeliveryProgress()

    async def send(self, delivery: Delivery) -> Receipt:
        """Post the report; the receipt is the status of the answer."""
        import httpx

        messages, receipt = _messages(delivery, self._limit), ""
        settings = await asyncio.to_thread(connection_settings, self._url)
        async with httpx.AsyncClient(**settings, timeout=self._timeout) as client:
            for message, body in self._progress.left(delivery, messages):
                receipt = await self._post(client, message, body)
        return Receipt(
            detail=f"{receipt}, in {len(messages)} parts" if len(messages) > 1 else receipt
        )

    async def _post(self, client: httpx.AsyncClient, message: str, body: bytes) -> str:
        import httpx

        try:
            async with asyncio.timeout(self._timeout):
                request = client.build_request(
                    "POST", self._url, content=body, headers=self._headers(message, body)
                )
                answer = await client.send(request, stream=True, follow_redirects=False)
                try:
                    said = await _said(answer)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise DeliveryFailed(f"no whole answer within {self._timeout:g} s") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise DeliveryFailed(f"its url cannot be used: {error}", retry=False) from error
        except httpx.HTTPError as error:
            raise DeliveryFailed(
                f"{type(error).__name__}: {error or 'the connection broke'}"
            ) from error
        if not 200 <= answer.status_code < 300:
            raise _refusal(answer, said)
        return f"{answer.status_code} {answer.reason_phrase}".strip() + f" for {message}"

    def _headers(self, message: str, body: bytes) -> dict[str, str]:
        now = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "agentd",
            # an answer that unpacks to gigabytes is none of our business
            "accept-encoding": "identity",
            "webhook-id": message,
            "webhook-timestamp": str(int(now.timestamp())),
        }
        if self._secret:
            from standardwebhooks import Webhook

            headers["webhook-signature"] = Webhook(self._secret).sign(message, now, body.decode())
        return headers


def _messages(delivery: Delivery, limit: int | None) -> list[tuple[str, bytes]]:
    """Return (id, body) of what is to be posted: one message, or with a `limit` in bytes as many as
    it takes.
    """
    letter, name = compose(delivery), f"{delivery.run or 'notice'}-{delivery.id}"
    whole = _body(delivery, letter, letter.body, 1, 1)
    if limit is None or len(whole) <= limit:
        return [(name, whole)]
    pieces = some_parts(
        letter.body,
        limit,
        size=lambda text: len(_body(delivery, letter, text, 99, 99)),
        run=delivery.run,
    )
    return [
        (f"{name}-{number}", _body(delivery, letter, piece, number, len(pieces)))
        for number, piece in enumerate(pieces, 1)
    ]


def _body(delivery: Delivery, letter: Message, text: str, part: int, parts: int) -> bytes:
    report, options = delivery.report, delivery.options
    data: Json = {
        "delivery": delivery.id,
        "run": delivery.run or None,
        "routine": delivery.routine or None,
        "slot": report.slot.astimezone(UTC).isoformat(),
        "status": report.status.value,
        "title": letter.title,
        "about": letter.about,
        "report": text,
        "part": part,
        "parts": parts,
        **{key: options.get(key) for key in ("trigger", "started", "ended")},
        "detail": options.get("detail")
        and (neutral if report.taint else printable)(str(options["detail"])),
    }
    kind = options.get("notice") or f"run.{report.status.value}"
    sent = {
        "type": kind,
        "timestamp": (delivery.created or report.slot).astimezone(UTC).isoformat(),
        "data": data,
    }
    return json.dumps(sent, ensure_ascii=False).encode(errors="replace")


async def _said(answer: httpx.Response) -> str:
    """Read the answer to its end, or as much of it as matters."""
    read = b""
    async for some in answer.aiter_raw():
        read += some
        if len(read) >= _MOST_READ:
            break
    return " ".join(read.decode(errors="replace").split())[:200]


def _refusal(answer: httpx.Response, said: str) -> DeliveryFailed:
    status = answer.status_code
    what = f"{status} {answer.reason_phrase}".strip()
    if 300 <= status < 400:
        what += " (redirects are not followed: name the address it leads to)"
    elif said and not said.startswith("<"):
        what += f": {said}"
    return DeliveryFailed(
        f"it answered {what}", retry=status not in _HOPELESS, after=_retry_after(answer.headers)
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the receiver wants to be left alone."""
    told = headers.get("retry-after", "").strip()
    if told.isdecimal():
        return float(told)
    try:
        moment = parsedate_to_datetime(told)
    except ValueError:
        return None
    return max(
        0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    )
