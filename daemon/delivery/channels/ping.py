"""Ping a dead man's switch (healthchecks.io and compatible) on starts, successes and failures.

Such a service alerts people when pings stay away, so it also notices that the machine is off.
https://healthchecks.io/docs/http_api/
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

from daemon.delivery.message import compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt
from daemon.system.http_client import connection_settings, describe_connection_error

_TIMEOUT = 10.0  # seconds for an answer
_MAX_TEXT = 10_000  # characters: the service keeps no more
# Bytes of an answer that are read: all that matters is its status, and that it was not cut off.
_MAX_READ = 65_536
# An older ping is not retried: a late success would hide a failure that came after it. Nor is one
# after which a later one of its routine was sent.
_MAX_AGE = timedelta(minutes=10)


class PingChannel:
    """Pings a URL at the start and end of runs."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._latest_ends: dict[str, datetime] = {}
        """By routine, when the latest run ended whose end was sent."""

    async def send(self, delivery: Delivery) -> Receipt:
        """Send the ping of a run's end; the receipt is the status of the answer."""
        if (
            delivery.created
            and datetime.now(UTC) - delivery.created > _MAX_AGE
            and delivery.attempts
        ):
            raise DeliveryFailed("too late to say so: the next run will", retry=False)
        created = delivery.created
        latest_end = self._latest_ends.get(delivery.routine)
        if created and delivery.attempts and latest_end and created < latest_end:
            # for the same reason
            return Receipt(detail="not sent, as a later one was sent meanwhile")
        event = str(
            delivery.options.get("ping")
            or ("success" if delivery.report.status == "succeeded" else "fail")
        )
        message = compose(delivery)
        receipt = await self.ping(event, delivery.run, f"{message.title}\n\n{message.body}")
        latest_end = self._latest_ends.get(delivery.routine)
        if created and (latest_end is None or created > latest_end):
            self._latest_ends[delivery.routine] = created
        return receipt

    async def ping(self, event: str, run: str, text: str = "") -> Receipt:
        """Send one ping; `event` is "start", "success" or "fail". Raises DeliveryFailed."""
        import httpx

        url = self._url if event == "success" else f"{self._url}/{event}"
        body = text[:_MAX_TEXT].encode(errors="replace")
        settings = await asyncio.to_thread(connection_settings, self._url)
        try:
            async with (
                asyncio.timeout(_TIMEOUT),
                httpx.AsyncClient(**settings, timeout=_TIMEOUT) as client,
            ):
                # The same id at start and end, from which the service computes the duration.
                params = {"rid": str(uuid5(NAMESPACE_URL, run))}
                async with client.stream("POST", url, params=params, content=body) as answer:
                    size = 0
                    async for chunk in answer.aiter_raw():
                        size += len(chunk)
                        if size >= _MAX_READ:
                            break
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {_TIMEOUT:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = describe_connection_error(error)
            raise DeliveryFailed(f"{type(error).__name__}: {reason}") from error
        if not 200 <= answer.status_code < 300:
            status = answer.status_code
            raise DeliveryFailed(f"it answered {status}", retry=status >= 500, status=status)
        return Receipt(detail=f"{answer.status_code} for {event}")
