"""`agentctl next`, `why`, `slots`, `pause` and `resume`: what starts when, and why it did not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Any
from zoneinfo import ZoneInfo

from daemon.cli.call import DONE, NEW_ROUTINE_COMMAND, USAGE, Call, quote
from daemon.cli.render import (
    YELLOW,
    format_instant,
    format_relative_time,
    humanize,
    local_now,
    parse_instant,
    short_id,
)
from daemon.cli.routines import is_over
from daemon.durations import duration_in_words, parse_duration

DEFAULT_START_COUNT = 10
DEFAULT_CALENDAR_DAYS = 30
# More lines than anybody reads, and more events than a calendar takes well.
MAX_START_COUNT = 5000
MAX_LIMIT = 100_000  # of -n: the daemon finds some ten thousand starts in a second
PAGE_SIZE = 1000  # items; the API refuses more


def list_next_starts(call: Call) -> int:
    """List what starts next, or write it as a calendar."""
    days, limit = call.days, call.limit
    if call.ics and days is None and limit is None:
        days = DEFAULT_CALENDAR_DAYS
    if limit is None:
        limit = DEFAULT_START_COUNT if days is None else MAX_START_COUNT
    if not 1 <= limit <= MAX_LIMIT:
        call.err.write_line(
            f"agentctl: -n: expected a number from 1 to {MAX_LIMIT} (found {limit})"
        )
        return USAGE
    path = "/v1/next"
    if call.routine is not None:
        path = f"/v1/routines/{quote(call.routine)}/next"
    path += f"?count={min(limit, PAGE_SIZE)}"
    if days is not None:
        path += f"&days={days}"
    starts, is_truncated = _request_starts(call, path, limit)
    if call.ics:
        _write_calendar(call, starts)
        if is_truncated and call.limit is None:
            _warn_truncated(call, len(starts))
        return DONE
    if call.json:
        return call.print_json({"items": starts, "next": None})
    if not starts:
        if call.routine:
            routine = call.client.request("GET", f"/v1/routines/{quote(call.routine)}")
            within = "" if days is None else f" within {days} days"
            text = (
                f"{call.routine} starts at no known time{within}: agentctl why {call.routine} says "
                "what it waits for."
            )
            if is_over(routine):
                words = call.out.sanitize(routine["words"])
                text = f"{call.routine} never starts again by itself: it runs {words}."
            call.out.write_line(text)
        elif days is None:
            call.out.write_line(
                f"Nothing is scheduled: {NEW_ROUTINE_COMMAND} writes a routine with a schedule."
            )
        else:
            call.out.write_line(f"Nothing is scheduled within {days} days.")
        return DONE
    now = local_now()
    rows = []
    for start in starts:
        at = parse_instant(start["at"])
        year = "" if at.year == now.year else " %Y"
        local_time = at.strftime(f"%a %d %b{year} %H:%M %Z")
        rows.append((local_time, format_relative_time(at, now), start["routine"]))
    call.out.write_table(["AT", "", "ROUTINE"], rows, signs=False)
    if is_truncated and days is not None:
        _warn_truncated(call, len(starts))
    return DONE


def _request_starts(call: Call, path: str, limit: int) -> tuple[list[Any], bool]:
    """Return at most `limit` starts of the list at `path`, and whether there are more."""
    page = call.client.request("GET", path)
    starts = list(page["items"])
    while page["next"] is not None and len(starts) < limit:
        page = call.client.request("GET", f"{path}&cursor={quote(page['next'])}")
        starts += page["items"]
    return starts[:limit], page["next"] is not None or len(starts) > limit


def _warn_truncated(call: Call, count: int) -> None:
    text = f"these are the first {count}; name a routine, fewer days, or how many (-n)"
    call.err.write_line(call.err.paint(text, YELLOW))


def _write_calendar(call: Call, starts: list[Any]) -> None:
    from daemon import __version__
    from daemon.cli.icalendar import format_calendar

    text = format_calendar(
        [(start["routine"], parse_instant(start["at"])) for start in starts],
        descriptions={
            routine["name"]: (routine["description"], routine["words"])
            for routine in call.request_items("/v1/routines?limit=200")
        },
        now=local_now(),
        host=os.uname().nodename,
        version=__version__,
    )
    call.out.stream.write(text)


def explain_slot(call: Call) -> int:
    """Explain in one sentence what became of a slot, and by which rule."""
    path = f"/v1/routines/{quote(call.routine)}/why"
    if call.at is not None:
        at = _parse_time(call, "--at", call.at)
        if at is None:
            return USAGE
        path += f"?at={quote(at)}"
    answer = call.request("GET", path)
    if answer is not None:
        call.out.write_prose(call.out.sanitize(answer["sentence"]), indent="")
    return DONE


def list_slots(call: Call) -> int:
    """List what became of each scheduled moment."""
    routine_filter = f"&routine={quote(call.routine)}" if call.routine is not None else ""
    # a person finds the other runs in `agentctl runs`; programs get what they always got
    kinds = "" if call.json else "&scheduled=true"
    answer = call.request("GET", f"/v1/slots?limit={call.limit}{kinds}{routine_filter}")
    if answer is None:
        return DONE
    if not answer["items"]:
        call.out.write_line("No slot has come yet.")
        return DONE
    now = local_now()
    rows = []
    for slot in answer["items"]:
        time = format_instant(slot["last"], now)
        if slot["count"] > 1:
            time = f"{format_instant(slot['first'], now)} to {time}"
        rows.append((time, slot["routine"], _describe_slot(slot)))
    call.out.write_table(["SLOT", "ROUTINE", "OUTCOME"], rows, signs=False)
    call.write_hint_for_more(answer, "GET /v1/slots has them all")
    return DONE


def _describe_slot(slot: Mapping[str, Any]) -> str:
    """Return the outcome of a slot, or of several in a row with the same outcome."""
    text = humanize(slot["outcome"])
    if slot["count"] > 1:
        text = f"{slot['count']} {text}"
    if slot["reason"]:
        text += f": {humanize(slot['reason'])}"
    if slot["rule"]:
        text += f" ({slot['rule']})"
    if slot["lateness"] >= 1 and slot["outcome"] == "ran":
        text += f" on time, within {duration_in_words(slot['lateness'])}"
    elif slot["lateness"] >= 1:
        text += f", {duration_in_words(slot['lateness'])} late"
    if slot["run"]:
        text += f", run {short_id(slot['run'])}"
    return text


def pause(call: Call) -> int:
    """Let no slot of a routine or of any start, for ever or until a time."""
    if bool(call.routine) == bool(call.all):
        call.err.write_line("agentctl pause: name one routine, or say --all")
        return USAGE
    body: dict[str, Any] | None = None  # without an end: until the routine is resumed
    end: datetime | None = None
    if call.until is not None:
        until = _parse_time(call, "--until", call.until, future=True)
        if until is None:
            return USAGE
        # A pause of so many hours lasts as long whatever the clock does, one until a date ends on
        # that date.
        duration = parse_duration(call.until)
        body = {"until": until} if duration is None else {"seconds": ceil(duration.total_seconds())}
        end = parse_instant(until)
    if call.all:
        return _pause_all(call, body, end)
    routine = call.request("POST", f"/v1/routines/{quote(call.routine)}/pause", body)
    if routine is not None:
        ends = f"`agentctl resume {routine['name']}`"
        if routine["paused_until"]:
            end = parse_instant(routine["paused_until"])
            end_text = format_instant(routine["paused_until"])
            zone = _zone_of_config(call)
            end_of_config = end.astimezone(zone)
            if end.utcoffset() != end_of_config.utcoffset():
                end_text += f", which is {end_of_config:%a %d %b %H:%M %Z} in {zone}"
            ends = f"{end_text}, or {ends}"
        call.out.write_line(f"{routine['name']} is paused until {ends}; by hand it still runs")
    return DONE


def _pause_all(call: Call, body: dict[str, Any] | None, end: datetime | None) -> int:
    """Pause each routine that is not paused until `end` yet; None: until it is resumed."""

    def is_paused(routine: Mapping[str, Any]) -> bool:
        if routine["state"] != "paused":
            return False
        paused_until = routine["paused_until"]
        return paused_until is None or (end is not None and parse_instant(paused_until) >= end)

    names = [
        routine["name"]
        for routine in call.request_items("/v1/routines?limit=200")
        if routine["state"] != "invalid" and not is_paused(routine)
    ]
    until = "until "
    for name in names:
        routine = call.client.request("POST", f"/v1/routines/{quote(name)}/pause", body)
        if routine["paused_until"]:
            until = f"until {format_instant(routine['paused_until'])}, or "
    if call.json:
        return call.print_json({"paused": names})
    if names:
        verb = "is" if len(names) == 1 else "are"
        text = f"{', '.join(names)} {verb} paused {until}`agentctl resume --all`"
        call.out.write_line(f"{text}; by hand they still run")
    else:
        call.out.write_line("nothing is left to pause")
    return DONE


def resume(call: Call) -> int:
    """Let a paused routine go on, or all of them."""
    if bool(call.routine) == bool(call.all):
        call.err.write_line("agentctl resume: name one routine, or say --all")
        return USAGE
    if call.all:
        answer = call.request("POST", "/v1/resume")
        if answer is not None:
            names = ", ".join(answer["resumed"])
            call.out.write_line(f"{names} go on" if names else "nothing was paused")
        return DONE
    routine = call.request("POST", f"/v1/routines/{quote(call.routine)}/resume")
    if routine is not None:
        next_start = format_instant(routine["next"], never="by hand only")
        call.out.write_line(f"{routine['name']} goes on; next: {next_start}")
    return DONE


def _parse_time(call: Call, option: str, text: str, *, future: bool = False) -> str | None:
    """Return a time of the command line as the API takes it; None after an error message.

    A time without a zone is one of the daemon's zone, in which its answers are, wherever the person
    sits.
    """
    from daemon.cli.times import parse_time

    now = datetime.now(_zone_of_config(call))
    try:
        time: datetime = parse_time(text, now, future=future)
    except (ValueError, OverflowError) as error:
        call.err.write_line(f"agentctl: {option}: {error}")
        return None
    if future and time <= now:
        call.err.write_line(f"agentctl: {option}: {text!r} has passed already")
        return None
    return time.isoformat()


def _zone_of_config(call: Call) -> ZoneInfo:
    """Return the time zone of the daemon's config."""
    return ZoneInfo(call.client.request("GET", "/v1/status?counts=false")["zone"])
