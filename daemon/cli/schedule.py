"""What is to come, and why something came or did not: the verbs `next`, `why` and `pause`."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from daemon.cli.call import DONE, NEW, USAGE, Call, quote
from daemon.cli.render import YELLOW, now, relative, when
from daemon.cli.render import moment as at

FEW = 10
DAYS_OF_A_FEED = 30
# More lines than anybody reads, and more events than a calendar is glad of.
MOST = 5000
A_PAGE = 1000  # no answer of the API is longer


def next_starts(call: Call) -> int:
    """Show what runs next, or give it to a calendar."""
    routine = f"routines/{quote(call.routine)}/" if call.routine else ""
    days = DAYS_OF_A_FEED if call.ics and call.days is None and call.limit is None else call.days
    most = call.limit if call.limit is not None else FEW if days is None else MOST
    if most < 1:
        call.err.say(f"agentctl: -n: at least 1 (found {most})")
        return USAGE
    within = "" if days is None else f"&days={days}"
    items, more = _starts(call, f"/v1/{routine}next?count={min(most, A_PAGE)}{within}", most)
    if call.ics:
        return _feed(call, items, more=more)
    if call.json:
        return call.say_json({"items": items, "next": None})
    if not items:
        call.out.say(
            f"Nothing is scheduled: {NEW} writes a routine with a schedule."
            if days is None
            else f"Nothing is scheduled within {days} days."
        )
        return DONE
    today = now()
    rows = [
        (_dated(at(each["at"]), today), relative(at(each["at"]), today), each["routine"])
        for each in items
    ]
    call.out.table(["AT", "", "ROUTINE"], rows, signs=False)
    _say_more(call, len(items), more=more and days is not None)
    return DONE


def _dated(moment: datetime, today: datetime) -> str:
    """Return the local moment, with the year where it is not this one."""
    return moment.strftime(
        "%a %d %b %H:%M %Z" if moment.year == today.year else "%a %d %b %Y %H:%M %Z"
    )


def _starts(call: Call, target: str, most: int) -> tuple[list[Any], bool]:
    """Return at most so many items of a list, and whether there are more."""
    answer = call.client.ask("GET", target)
    items = list(answer["items"])
    while answer["next"] is not None and len(items) < most:
        answer = call.client.ask("GET", f"{target}&cursor={quote(answer['next'])}")
        items += answer["items"]
    return items[:most], answer["next"] is not None or len(items) > most


def _say_more(call: Call, shown: int, *, more: bool) -> None:
    if more:
        told = f"these are the first {shown}; name a routine, fewer days, or how many (-n)"
        call.err.say(call.err.paint(told, YELLOW))


def _feed(call: Call, items: list[Any], *, more: bool) -> int:
    from daemon import __version__
    from daemon.cli.calendar import feed

    about = {
        each["name"]: (each["description"], each["words"])
        for each in call.items("/v1/routines?limit=200")
    }
    fires = [(each["routine"], at(each["at"])) for each in items]
    text = feed(fires, about=about, now=now(), host=os.uname().nodename, version=__version__)
    call.out.stream.write(text)
    _say_more(call, len(items), more=more and call.limit is None)
    return DONE


def why(call: Call) -> int:
    """Say in one sentence what became of a slot, and by which rule."""
    target = f"/v1/routines/{quote(call.routine)}/why"
    if call.at:
        moment = _read(call, "--at", call.at)
        if moment is None:
            return USAGE
        target += f"?at={quote(moment)}"
    told = call.ask("GET", target)
    if told is not None:
        call.out.say(call.out.safe(told["sentence"]))
    return DONE


def pause(call: Call) -> int:
    """Let no slot of a routine start."""
    body = None
    if call.until:
        from daemon.cli.times import length

        moment = _read(call, "--until", call.until, ahead=True)
        if moment is None:
            return USAGE
        lasts = length(call.until)
        # a pause of so many hours lasts as long whatever the clock does, one until a date ends on
        # that date
        body = {"until": moment} if lasts is None else {"seconds": int(lasts.total_seconds())}
    told = call.ask("POST", f"/v1/routines/{quote(call.routine)}/pause", body)
    if told is not None:
        until = f"until {when(told['paused_until'])}, or " if told["paused_until"] else "until "
        call.out.say(
            (  # noqa: UP034
                f"{told['name']} is paused {until}`agentctl resume {told['name']}`; by hand it "
                "still runs"
            )
        )
    return DONE


def _read(call: Call, option: str, text: str, *, ahead: bool = False) -> str | None:
    """Return a moment as the API takes it; None if it is none, which has been said."""
    from daemon.cli.times import moment

    today = now()
    try:
        found = moment(text, today, ahead=ahead)
        if ahead and found <= today:
            raise ValueError(f"{text!r} has passed already")  # told like what cannot be read
    except (ValueError, OverflowError) as error:
        call.err.say(f"agentctl: {option}: {error}")
        return None
    return found.isoformat()
