"""Numbers of a machine as a person says them."""

from __future__ import annotations

from datetime import datetime

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def format_size(count: float, *, digits: int = 3) -> str:
    """Return `252 GB` for 251 998 240 768 bytes: powers of a thousand, as disks are sold."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    rounded = float(f"{count:.{digits}g}")
    decimals = 0 if not unit else max(0, digits - len(str(int(rounded))))
    return f"{rounded:.{decimals}f} {_UNITS[unit]}"


def format_share(part: float, whole: float) -> str:
    """Return `71 %`; rounded up as df does it, so that full never reads as 99 %."""
    return f"{-(-100 * part // whole):.0f} %" if whole else "0 %"


def format_moment(at: datetime) -> str:
    """Return `2026-11-20 08:12 CET`."""
    return f"{at:%Y-%m-%d %H:%M %Z}".rstrip()


def shorten(text: str, limit: int) -> str:
    """Return one line of at most `limit` characters, without what a terminal would obey."""
    line = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(line.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
