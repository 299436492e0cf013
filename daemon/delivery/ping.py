"""To a dead man's switch, in the form of healthchecks.io: an address that is told of starts,
successes and failures.

It notices what nobody can report: that the machine is off. https://healthchecks.io/docs/http_api/
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

from daemon.delivery.message import compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt
from daemon.system.http_client import connection_settings

_PATIENCE = 10.0  # seconds for an answer
_MOST_SAID = 10_000  # characters: more is not kept there
# Bytes of an answer: its status says all, its end that it came whole; more than these are not
# waited for.
_MOST_READ = 65_536
# A success of an hour ago would hide the failure that came after it.
_STALE = timedelta(minutes=10)


class PingChannel:
    """Tells an address how a run ended."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    async def send(self, delivery: Delivery) -> Receipt:
        """Tell it; the receipt is the status of the answer."""
        if delivery.created and datetime.now(UTC) - delivery.created > _STALE and delivery.attempts:
            raise DeliveryFailed("too late to say so: the next run will", retry=False)
        how = str(
            delivery.options.get("ping")
            or ("success" if delivery.report.status == "succeeded" else "fail")
        )
        letter = compose(delivery)
        return await self.tell(how, delivery.run, f"{letter.title}\n\n{letter.body}")

    async def tell(self, how: str, run: str, text: str = "") -> Receipt:
        """Tell of a start, a success or a failure of a run."""
        import httpx

        url = self._url if how == "success" else f"{self._url}/{how}"
        body = text[:_MOST_SAID].encode(errors="replace")
        settings = await asyncio.to_thread(connection_settings, self._url)
        try:
            async with (
                asyncio.timeout(_PATIENCE),
                httpx.AsyncClient(**settings, timeout=_PATIENCE) as client,
            ):
                # the same id at start and end: the time between them is shown there
                params = {"rid": str(uuid5(NAMESPACE_URL, run))}
                async with client.stream("POST", url, params=params, content=body) as answer:
                    received = 0
                    async for piece in answer.aiter_raw():
                        received += len(piece)
                        if received >= _MOST_READ:
                            break
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {_PATIENCE:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DeliveryFailed(f"{type(error).__name__}: {error}") from error
        if not 200 <= answer.status_code < 300:
            raise DeliveryFailed(
                f"it answered {answer.status_code}", retry=answer.status_code >= 500
            )
        return Receipt(detail=f"{answer.status_code} for {how}")
