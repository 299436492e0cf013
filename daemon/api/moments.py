"""Moments in requests."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime
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


def parse_schedule_moment(key: str, text: str) -> datetime:
    """Return a moment as `parse_moment` does, from which the slots before and after it are found.
    Raises InvalidRequest also in the first and the last year that Python has: it knows no moment
    beyond them, and a zone may lie a day further.
    """
    moment = parse_moment(key, text)
    if MINYEAR < moment.year < MAXYEAR:
        return moment
    raise InvalidRequest(
        f"{key!r}: expected a year from {MINYEAR + 1} to {MAXYEAR - 1} (found {text[:80]!r})",
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
