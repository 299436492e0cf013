"""Compose the message that a report's reader gets: title, one line about the run, and text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict, cast
from zoneinfo import ZoneInfo

from daemon.delivery.markup import fence, first_sentence, is_generic_heading
from daemon.delivery.sanitize import neutralize, strip_controls
from daemon.durations import duration_in_words
from daemon.models import Delivery, Status, Taint

# A shorter time between a slot and the start of its run is normal and not mentioned.
_SHORTEST_DELAY = timedelta(minutes=2)
# Triggers other than a schedule: such a run cannot be late for its slot.
_UNSCHEDULED = {
    "manual": "started by hand",
    "agent": "started by another run",
    "once": "started by hand",
    "first_run": "first run",
    "on_start": "at start",
    "watch": "started by new files",
    "webhook": "started by a webhook",
    "after": "started after another routine",
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


# The answer of the tool `report_items`, alone on its line: some models repeat it.
_ITEM_COUNTS = re.compile(
    r'^[ \t]*\{"items": ?\d+, ?"new": ?\d+, ?"seen": ?\d+, ?"new_at": ?\[[\d, ]*\]\}[ \t]*$\n?',
    re.MULTILINE,
)

_EMPTY = "(The report is empty.)"


class MessageOptions(TypedDict, total=False):
    """The keys of `Delivery.options` from which a message is composed. Times are in ISO format."""

    trigger: str
    """What started the run."""
    started: str
    ended: str
    delay: float
    """By how many seconds `spread` put off the start of the run: so long it is not late."""
    detail: str
    """Why the run did not succeed."""
    notice: str
    """The kind of a message that is no run's report; then `title` and `text` are the message."""
    title: str
    text: str
    cleaned: bool
    """The author of a notice has neutralized what it quotes."""
    tainted: bool
    """It quotes strangers: where it is cut, each part is neutralized again."""
    incident: int
    """The number of the incident that a failed run belongs to."""
    times: int
    """How often the incident has happened."""
    since: str
    """When the incident began; a notice has it in place of `{since}`."""
    verbatim: bool
    """The report is the output of programs, to be shown as it is, and no Markdown."""
    instead_of: str
    """The target for which this target stands in, as it takes nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A report or notice as its reader gets it; texts are Markdown."""

    title: str
    about: str
    """One line on the run: its id, its slot, when it started late, when it ended. Empty for a
    notice.
    """
    body: str
    text: str = ""
    """The body as it was written, with the heading that became the title."""
    subject: str = ""
    """What the message is about: the routine, how its run ended if it did not succeed; the title of
    a notice.
    """
    headline: str = ""
    """What a run has to say, in a line: the heading that became the title; of a failure its reason,
    or when it was due. Empty for a notice, and for a report without such a heading or with a
    generic one.
    """
    date: str = ""
    """When the run was due; empty for a notice."""
    verbatim: bool = False
    """Body and text are the output of programs and no Markdown."""
    sanitize: Callable[[str], str] = strip_controls
    """What its texts went through. A part of the message goes through it again: half of a word that
    was cut can be the address or the command that the whole word was not.
    """

    @property
    def markdown(self) -> str:
        about = f"*{self.about}*\n\n" if self.about else ""
        return f"# {self.title}\n\n{about}{self.body}\n"


def compose(delivery: Delivery) -> Message:
    """Return the message of a delivery.

    A successful run's report is taken as it is. For any other run the message says what happened
    and quotes what the run had reported by then.
    """
    report, options = delivery.report, cast("MessageOptions", delivery.options)
    if options.get("notice"):
        return _compose_notice(report.scheduled_zone, options)
    slot = report.slot.astimezone(ZoneInfo(report.scheduled_zone))
    day = f"{slot:%Y-%m-%d %H:%M %Z}"
    about = [f"Run `{report.run}`", *_timing_phrases(slot, options)]
    sanitize = neutralize if report.taint else strip_controls
    text, detail = sanitize(report.text).strip(), sanitize(str(options.get("detail") or ""))
    heading, body = _split_heading(text)
    verbatim = bool(options.get("verbatim"))
    if verbatim:
        # the columns of a table begin with spaces
        heading, body = "", sanitize(report.text).rstrip().lstrip("\n")
        text = body
        if text and (report.status is not Status.SUCCEEDED or report.taint is Taint.HIGH):
            text, verbatim = fence(text), False  # quoted in a message of our own words
            body = text
    if report.status is Status.SUCCEEDED:
        subject = report.routine
        headline = "" if is_generic_heading(heading, report.routine) else heading
        title = heading or f"{report.routine}, {day}"
    else:
        subject = f"{report.routine} {_ENDINGS.get(report.status, report.status.value)}"
        headline = first_sentence(" ".join(detail.partition("\n")[0].split())) or day
        title = f"{subject}, {day}"
        body = _failure_text(report.run, detail, text)
        body += _incident_text(options, slot)
        text = body
    if report.taint is Taint.HIGH:
        body = f"{body}\n\n{_WARNING}".strip()
        text = f"{text}\n\n{_WARNING}".strip()
    return Message(
        title=title,
        about=", ".join(about),
        body=body or heading or _EMPTY,
        text=text or _EMPTY,
        subject=subject,
        headline=headline,
        date=day,
        verbatim=verbatim,
        sanitize=sanitize,
    )


def _compose_notice(zone: str, options: MessageOptions) -> Message:
    """Compose a message that is no run's report: an incident's alert or recovery, or the digest."""
    text = str(options["text"])
    if start := options.get("since"):
        text = text.replace(
            "{since}",
            f"{datetime.fromisoformat(start).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M %Z}",
        )
    # Its author has neutralized what it quotes, or else it may quote the error of a run, which may
    # contain text of a stranger.
    sanitize = strip_controls if options.get("cleaned") else neutralize
    title, text = sanitize(str(options["title"])), sanitize(text)
    if options.get("tainted"):
        sanitize = neutralize
    return Message(title=title, about="", body=text, text=text, subject=title, sanitize=sanitize)


def _incident_text(options: MessageOptions, slot: datetime) -> str:
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


def _timing_phrases(slot: datetime, options: MessageOptions) -> list[str]:
    """Return phrases on when a run was due, and where that differs, when it began and ended."""
    started, ended = options.get("started"), options.get("ended")
    start = datetime.fromisoformat(started).astimezone(slot.tzinfo) if started else slot
    end = datetime.fromisoformat(ended).astimezone(slot.tzinfo) if ended else slot
    trigger_words = _UNSCHEDULED.get(options.get("trigger", ""))
    phrases = [f"{trigger_words or 'scheduled for'} {slot:%Y-%m-%d %H:%M %Z}"]
    if start - slot >= _SHORTEST_DELAY:
        phrases.append(f"begun {_time_of_day(start, slot)}")
        lateness = start - slot - timedelta(seconds=options.get("delay", 0.0))
        if not trigger_words and lateness >= _SHORTEST_DELAY:
            phrases.append(f"{duration_in_words(lateness.total_seconds())} late")
    if end - start >= timedelta(minutes=1):
        phrases.append(f"done {_time_of_day(end, slot)}")
    return phrases


def _time_of_day(moment: datetime, slot: datetime) -> str:
    """Return the time, with its date if that is not the date of the slot."""
    return f"{moment:%H:%M}" if moment.date() == slot.date() else f"{moment:%Y-%m-%d %H:%M}"


def _split_heading(text: str) -> tuple[str, str]:
    """Return (heading, remaining text) of a text that begins with a level 1 heading, else ("",
    text).
    """
    match = re.match(r"# +(?P<title>\S.*?)[ #]*\n+(?P<body>.*)", f"{text}\n", re.DOTALL)
    return (match["title"], match["body"].strip()) if match else ("", text)


def _failure_text(run: str, detail: str, text: str) -> str:
    """Return the reason of a failure, what the run had reported, and the command that
    shows more.
    """
    paragraphs = [detail or "No reason was recorded."]
    text = _ITEM_COUNTS.sub("", text).strip()
    if text and text != detail:
        paragraphs.append(f"What it had to say by then:\n\n{text}")
    paragraphs.append(f"`agentctl inspect {run}` shows every step.")
    return "\n\n".join(paragraphs)
