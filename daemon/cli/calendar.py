"""Starts to come as an iCalendar (RFC 5545), for a calendar to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

LONGEST = 75  # octets of a line (RFC 5545, 3.1); what is longer goes on behind a space


def feed(
    fires: Iterable[tuple[str, datetime]],
    *,
    about: Mapping[str, tuple[str, str]],
    now: datetime,
    host: str,
    version: str,
) -> str:
    """Return the calendar of these starts (routine and moment); `about` has each routine's
    description and words.

    A start has the same UID each time, so that a calendar that reads this again renews it.
    """
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:-//agentd//agentctl {escaped(version)}//EN",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        f"X-WR-CALNAME:agentd on {escaped(host)}",
    ]
    for routine, at in fires:
        lines += _event(routine, at, about.get(routine, ("", "")), now, host)
    lines.append("END:VCALENDAR")
    return "".join(f"{part}\r\n" for line in lines for part in folded(line))


def _event(
    routine: str, at: datetime, about: tuple[str, str], now: datetime, host: str
) -> list[str]:
    description = "\n".join(filter(None, about))
    return [
        "BEGIN:VEVENT",
        f"UID:{escaped(routine)}-{_stamp(at)}@{escaped(host)}.agentd",
        f"DTSTAMP:{_stamp(now)}",
        f"DTSTART:{_stamp(at)}",
        "DURATION:PT5M",
        f"SUMMARY:{escaped(routine)}",
        *([f"DESCRIPTION:{escaped(description)}"] if description else []),
        "TRANSP:TRANSPARENT",  # nobody is busy for it
        "END:VEVENT",
    ]


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def escaped(text: str) -> str:
    """Return a TEXT value (3.3.11); control characters, which it may not hold, are left out."""
    text = "\n".join(text.splitlines())
    for char in ("\\", ";", ","):
        text = text.replace(char, f"\\{char}")
    return "".join(
        char
        for char in text.replace("\n", "\\n")
        if char == "\t" or (char >= " " and char != "\x7f")
    )


def folded(line: str) -> Iterator[str]:
    """Yield a line in pieces of at most 75 octets; no character is torn."""
    piece, room = "", LONGEST
    for char in line:
        size = len(char.encode(errors="replace"))
        if size > room:
            yield piece
            piece, room = " ", LONGEST - 1
        piece += char
        room -= size
    yield piece
