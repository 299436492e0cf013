"""Compose the message that a report's reader gets: title, one line about the run, and text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from daemon.delivery.sanitize import neutralize, strip_controls
from daemon.models import Delivery, Json, Status, Taint

# A shorter time between a slot and the start of its run is normal and not mentioned.
_SHORTEST_DELAY = timedelta(minutes=2)
# Triggers other than a schedule: such a run cannot be late for its slot.
_UNSCHEDULED = {
    "manual": "started by hand",
    "agent": "started by another run",
    "once": "started by hand",
    "first_run": "first run",
    "on_start": "at start",
}

# What the title says of a run that did not succeed.
_ENDINGS = {
    Status.FAILED: "failed",
    Status.TIMED_OUT: "timed out",
    Status.CANCELLED: "was cancelled",
    Status.INTERRUPTED: "was interrupted",
    Status.SKIPPED: "was skipped",
}


# Ends the report of a run of which a tool result looked like an injection.
_WARNING = (
    "Something this run has read looked like an attempt to give it orders; take what is said above "
    "with care."
    " `agentctl quarantine` and `agentctl logs --level warning` tell more."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A report or notice as its reader gets it; texts are Markdown."""

    title: str
    about: str
    """One line on the run: its id, its slot, when it started late, when it ended. Empty for a
    notice.
    """
    body: str

    @property
    def markdown(self) -> str:
        about = f"*{self.about}*\n\n" if self.about else ""
        return f"# {self.title}\n\n{about}{self.body}\n"


def compose(delivery: Delivery) -> Message:
    """Return the message of a delivery.

    A successful run's report is taken as it is. For any other run the message says what happened
    and quotes what the run had reported by then.
    """
    report, options = delivery.report, delivery.options
    if options.get("notice"):
        return _compose_notice(report.scheduled_zone, options)
    slot = report.slot.astimezone(ZoneInfo(report.scheduled_zone))
    day = f"{slot:%Y-%m-%d %H:%M %Z}"
    about = [f"Run `{report.run}`", *_timing_phrases(slot, options)]
    sanitize = neutralize if report.taint else strip_controls
    text, detail = sanitize(report.text).strip(), sanitize(str(options.get("detail") or ""))
    heading, body = _split_heading(text)
    if report.status is Status.SUCCEEDED:
        title = heading or f"{report.routine}, {day}"
    else:
        title = f"{report.routine} {_ENDINGS.get(report.status, report.status.value)}, {day}"
        body = _failure_text(report.run, detail, text)
        body += _incident_text(options, slot)
    if report.taint is Taint.HIGH:
        body = f"{body}\n\n{_WARNING}".strip()
    return Message(title=title, about=", ".join(about), body=body or "(The report is empty.)")


def _compose_notice(zone: str, options: Json) -> Message:
    """Compose a message that is no run's report: an incident's alert or recovery, or the digest."""
    text = str(options["text"])
    if start := options.get("since"):
        text = text.replace(
            "{since}",
            f"{datetime.fromisoformat(start).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M %Z}",
        )
    if options.get("cleaned"):  # its author has neutralized what it quotes
        return Message(
            title=strip_controls(str(options["title"])), about="", body=strip_controls(text)
        )
    # It may quote the error of a run, which may contain text of a stranger.
    return Message(title=neutralize(str(options["title"])), about="", body=neutralize(text))


def _incident_text(options: Json, slot: datetime) -> str:
    """Return the paragraph that names the incident of a failure; empty if there is none."""
    number = options.get("incident")
    if not number:
        return ""
    count = int(options["times"])
    start = datetime.fromisoformat(options["since"]).astimezone(slot.tzinfo)
    text = f"This is incident {number}"
    if count > 1:
        text += f", {count} times since {start:%Y-%m-%d %H:%M %Z}"
    text += f". Until it works again you are only reminded; `agentctl ack {number}` stops that too."
    if options.get("instead_of"):
        text += f" You read it here because {options['instead_of']} takes nothing."
    return f"\n\n{text}"


def _timing_phrases(slot: datetime, options: Json) -> list[str]:
    start, end = (
        datetime.fromisoformat(options[key]).astimezone(slot.tzinfo) if options.get(key) else slot
        for key in ("started", "ended")
    )
    unscheduled = _UNSCHEDULED.get(options.get("trigger", ""))
    phrases = [f"{unscheduled or 'scheduled for'} {slot:%Y-%m-%d %H:%M %Z}"]
    if start - slot >= _SHORTEST_DELAY:
        phrases.append(f"begun {_time_of_day(start, slot)}")
        if not unscheduled:
            phrases.append(f"{_span(start - slot)} late")
    if end - start >= timedelta(minutes=1):
        phrases.append(f"done {_time_of_day(end, slot)}")
    return phrases


def _time_of_day(moment: datetime, slot: datetime) -> str:
    """Return the time, with its date if that is not the date of the slot."""
    return f"{moment:%H:%M}" if moment.date() == slot.date() else f"{moment:%Y-%m-%d %H:%M}"


def _span(duration: timedelta) -> str:
    minutes = int(duration.total_seconds()) // 60
    days, hours = minutes // 1440, minutes // 60
    if days >= 2:
        return f"{days} days"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


def _split_heading(text: str) -> tuple[str, str]:
    """Return (heading, remaining text) of a text that begins with a level 1 heading, else ("",
    text).
    """
    match = re.match(r"# +(?P<title>\S.*?)[ #]*\n+(?P<rest>.*)", f"{text}\n", re.DOTALL)
    return (match["title"], match["rest"].strip()) if match else ("", text)


def _failure_text(run: str, detail: str, text: str) -> str:
    """Return the reason of a failure, what the run had reported, and the command that
    shows more.
    """
    paragraphs = [detail or "No reason was recorded."]
    if text and text != detail:
        paragraphs.append(f"What it had to say by then:\n\n{text}")
    paragraphs.append(f"`agentctl inspect {run}` shows every step.")
    return "\n\n".join(paragraphs)
