"""Coming starts as an iCalendar (RFC 5545), which calendar programs can subscribe to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

MAX_LINE_OCTETS = 75  # RFC 5545, 3.1; a longer line goes on behind a space


def format_calendar(
    starts: Iterable[tuple[str, datetime]],
    *,
    descriptions: Mapping[str, tuple[str, str]],
    now: datetime,
    host: str,
    version: str,
) -> str:
    """Return the calendar of these starts, each a routine's name and a time.

    `descriptions` has each routine's description and schedule in words. A start has the same UID
    each time, so that a calendar program that reads the file again updates its events.
    """
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:-//agentd//agentctl {escape(version)}//EN",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        f"X-WR-CALNAME:agentd on {escape(host)}",
    ]
    for routine, at in starts:
        begin = _format_utc(at)
        lines += [
            "BEGIN:VEVENT",
            f"UID:{escape(routine)}-{begin}@{escape(host)}.agentd",
            f"DTSTAMP:{_format_utc(now)}",
            f"DTSTART:{begin}",
            "DURATION:PT5M",
            f"SUMMARY:{escape(routine)}",
        ]
        description = "\n".join(text for text in descriptions.get(routine, ()) if text)
        if description:
            lines.append(f"DESCRIPTION:{escape(description)}")
        lines += ["TRANSP:TRANSPARENT", "END:VEVENT"]  # transparent: nobody is busy for it
    lines.append("END:VCALENDAR")
    return "".join(f"{part}\r\n" for line in lines for part in fold(line))


def _format_utc(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def escape(text: str) -> str:
    """Return text as a TEXT value (RFC 5545, 3.3.11), without the control characters it forbids."""
    text = "\n".join(text.splitlines())
    for char in ("\\", ";", ","):
        text = text.replace(char, f"\\{char}")
    text = text.replace("\n", "\\n")
    return "".join(char for char in text if char == "\t" or (char >= " " and char != "\x7f"))


def fold(line: str) -> Iterator[str]:
    """Yield a line in parts of at most 75 octets; no character is split."""
    part, available = "", MAX_LINE_OCTETS
    for char in line:
        octets = len(char.encode(errors="replace"))
        if octets > available:
            yield part
            part, available = " ", MAX_LINE_OCTETS - 1
        part += char
        available -= octets
    yield part
