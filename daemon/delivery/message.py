"""A report in the words its reader sees: what it is, for when it was due and when it came, and its
text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from daemon.delivery.sanitize import neutral, printable
from daemon.models import Delivery, Json, Status, Taint

# Less is the ordinary time from a slot to its run; a reader need not hear of it.
_LATE = timedelta(minutes=2)
# How a run comes that was not scheduled; everything else has a slot that it can be late for.
_UNSCHEDULED = {
    "manual": "started by hand",
    "agent": "started by another run",
    "once": "started by hand",
    "first_run": "first run",
    "on_start": "at start",
}

_ENDS = {
    Status.FAILED: "failed",
    Status.TIMED_OUT: "timed out",
    Status.CANCELLED: "was cancelled",
    Status.INTERRUPTED: "was interrupted",
    Status.SKIPPED: "was skipped",
}


_WARNING = (
    "Something this run has read looked like an attempt to give it orders; take what is said above "
    "with care."
    " `agentctl quarantine` and `agentctl logs --level warning` tell more."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A report as its reader gets it."""

    title: str
    about: str
    """One line on the run: its id, when it was due, when it came."""
    body: str

    @property
    def markdown(self) -> str:
        about = f"*{self.about}*\n\n" if self.about else ""
        return f"# {self.title}\n\n{about}{self.body}\n"


def compose(delivery: Delivery) -> Message:
    """Word a delivery: the report of a success as it is, of anything else what happened and what
    there was to show.
    """
    report, options = delivery.report, delivery.options
    if options.get("notice"):
        return _notice(report.scheduled_zone, options)
    when = report.slot.astimezone(ZoneInfo(report.scheduled_zone))
    day = f"{when:%Y-%m-%d %H:%M %Z}"
    about = [f"Run `{report.run}`", *_timing(when, options)]
    clean = neutral if report.taint else printable
    text, detail = clean(report.text).strip(), clean(str(options.get("detail") or ""))
    heading, body = _own_heading(text)
    if report.status is Status.SUCCEEDED:
        title = heading or f"{report.routine}, {day}"
    else:
        title = f"{report.routine} {_ENDS.get(report.status, report.status.value)}, {day}"
        body = _bad_news(report.run, detail, text)
        body += _as_incident(options, when)
    if report.taint is Taint.HIGH:
        body = f"{body}\n\n{_WARNING}".strip()
    return Message(title=title, about=", ".join(about), body=body or "(The report is empty.)")


def _notice(zone: str, options: Json) -> Message:
    """Word what is no run's report: that something works again, that a target takes nothing, the
    digest.
    """
    text = str(options["text"])
    if since := options.get("since"):
        text = text.replace(
            "{since}",
            f"{datetime.fromisoformat(since).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M %Z}",
        )
    if options.get("cleaned"):  # part by part, by whoever worded it
        return Message(title=printable(str(options["title"])), about="", body=printable(text))
    # it may quote why a run failed, which may be a stranger's words
    return Message(title=neutral(str(options["title"])), about="", body=neutral(text))


def _as_incident(options: Json, when: datetime) -> str:
    """Say that this is not the first time, and how not to hear of it again."""
    if not (number := options.get("incident")):
        return ""
    times, since = (
        int(options["times"]),
        datetime.fromisoformat(options["since"]).astimezone(when.tzinfo),
    )
    told = f"This is incident {number}" + (
        f", {times} times since {since:%Y-%m-%d %H:%M %Z}" if times > 1 else ""
    )
    instead = (
        f" You read it here because {options['instead_of']} takes nothing."
        if options.get("instead_of")
        else ""
    )
    return (
        f"\n\n{told}. Until it works again you are only reminded; `agentctl ack {number}` stops "
        f"that too.{instead}"
    )


def _timing(slot: datetime, options: Json) -> list[str]:
    started, ended = (
        datetime.fromisoformat(options[key]).astimezone(slot.tzinfo) if options.get(key) else slot
        for key in ("started", "ended")
    )
    unscheduled = _UNSCHEDULED.get(options.get("trigger", ""))
    said = [f"{unscheduled or 'scheduled for'} {slot:%Y-%m-%d %H:%M %Z}"]
    if started - slot >= _LATE:
        said.append(f"begun {_near(started, slot)}")
        if not unscheduled:
            said.append(f"{_span(started - slot)} late")
    if ended - started >= timedelta(minutes=1):
        said.append(f"done {_near(ended, slot)}")
    return said


def _near(moment: datetime, slot: datetime) -> str:
    """Return the time, with its day only where that is another one."""
    return f"{moment:%H:%M}" if moment.date() == slot.date() else f"{moment:%Y-%m-%d %H:%M}"


def _span(duration: timedelta) -> str:
    minutes = int(duration.total_seconds()) // 60
    days, hours = minutes // 1440, minutes // 60
    if days >= 2:
        return f"{days} days"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def _own_heading(text: str) -> tuple[str, str]:
    """Part a text that brings its own title into the title and the rest."""
    found = re.match(r"# +(?P<title>\S.*?)[ #]*\n+(?P<rest>.*)", f"{text}\n", re.DOTALL)
    return (found["title"], found["rest"].strip()) if found else ("", text)


def _bad_news(run: str, detail: str, text: str) -> str:
    """Say what happened, what there is nevertheless, and where more can be seen."""
    parts = [detail or "No reason was recorded."]
    if text and text != detail:
        parts.append(f"What it had to say by then:\n\n{text}")
    parts.append(f"`agentctl inspect {run}` shows every step.")
    return "\n\n".join(parts)
