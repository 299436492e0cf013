"""Moments in requests."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus

from daemon.api.problems import InvalidRequest


def parse_moment(key: str, text: str) -> datetime:
    """Return the moment of an ISO 8601 text with a zone, in UTC. Raises InvalidRequest, which names
    `key`.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):  # none, or one before the year 1 or after 9999 in UTC
        pass
    expectation = "expected a moment with its zone, like 2026-11-20T09:00:00Z"
    raise InvalidRequest(
        f"{key!r}: {expectation} (found {text[:80]!r})", HTTPStatus.UNPROCESSABLE_ENTITY
    )
