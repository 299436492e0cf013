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
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        expectation = "expected a moment with its zone, like 2026-11-20T09:00:00Z"
        raise InvalidRequest(
            f"{key!r}: {expectation} (found {text[:80]!r})", HTTPStatus.UNPROCESSABLE_ENTITY
        )
    return moment.astimezone(UTC)
