"""Reports of routines as models write them: the same facts each time, never quite the same words.

A routine reports on a handful of subjects. For each report a seeded generator chooses which of
them to mention, in which order and in which of several wordings, while their numbers drift as those
of a machine do. The wordings are ours, as no model is at hand; a real one varies more.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple


class OddReport(NamedTuple):
    """A sentence that one report alone has, and a question that it answers."""

    sentence: str
    question: str
    routine: int = 0
    """The routine that reports it."""
    at: float = 0.5
    """When, as a share of the whole time."""


class Report(NamedTuple):
    """One run: what the routine was asked for, what its tool brought and what it answered."""

    routine: str
    goal: str
    at: datetime
    result: str
    text: str
    odd: OddReport | None


# What stands in one report only, and a person asks about later.
ODD_REPORTS = (
    OddReport("The disk of the mail spool is full; nothing was accepted for an hour.",
              "when was the disk full", 0, 0.13),
    OddReport("certbot could not renew the certificate of shop.example.org: the challenge failed.",
              "which certificate could certbot not renew", 3, 0.31),
    OddReport("/data stands at 100 % since a dump was left behind.",
              "was /data ever at 100 %", 1, 0.47),
    OddReport("The load climbed to 37.5 while the photographs were indexed.",
              "when did the load reach 37.5", 0, 0.58),
    OddReport("No backup arrived from the host birch last night.",
              "which host sent no backup", 2, 0.72),
    OddReport("Somebody tried 412 passwords for the user postgres from one address.",
              "who tried passwords for postgres", 0, 0.86),
)  # fmt: skip

# What a routine looks at: its numbers as (name, begin, step, least, greatest), and ways to say it.
_SUBJECTS: dict[str, tuple[tuple[tuple[str, float, float, float, float], ...], tuple[str, ...]]] = {
    "disk": ((("root", 41, 0.6, 20, 88), ("home", 63, 0.4, 30, 91)), (
        "Root is {root:.0f} % full and home {home:.0f} %.",
        "The file systems: / at {root:.0f} %, /home at {home:.0f} %.",
        "Disk usage stands at {root:.0f} % on the root volume; /home uses {home:.0f} %.",
        "There is room left on both disks ({root:.0f} % and {home:.0f} % used).",
        "/home has grown to {home:.0f} %, the root file system is at {root:.0f} %.",
    )),
    "load": ((("load", 0.6, 0.2, 0.05, 4.8),), (
        "The load average was {load:.2f} over five minutes.",
        "Load is moderate at {load:.2f}.",
        "The machine was not busy: a load of {load:.2f}.",
        "With a load of {load:.2f} the processors had little to do.",
    )),
    "memory": ((("free", 5.1, 0.3, 1.1, 9.7),), (
        "{free:.1f} GiB of memory are free.",
        "Free memory: {free:.1f} GiB, no swapping.",
        "Memory is fine, {free:.1f} GiB remain available.",
        "Nothing presses on memory ({free:.1f} GiB available).",
    )),
    "backup": ((("size", 118, 1.5, 90, 260), ("minutes", 22, 2, 9, 58)), (
        "The backup finished after {minutes:.0f} minutes and holds {size:.0f} GB.",
        "Last night's backup: {size:.0f} GB in {minutes:.0f} minutes, verified.",
        "Backups ran through, {size:.0f} GB this time.",
        "It took {minutes:.0f} minutes to write the backup of {size:.0f} GB.",
    )),
    "certificate": ((("days", 61, 1, 8, 89),), (
        "The next certificate expires in {days:.0f} days.",
        "Certificates are valid for at least {days:.0f} more days.",
        "No certificate runs out within {days:.0f} days.",
        "All certificates look good; the earliest ends in {days:.0f} days.",
    )),
    "update": ((("count", 4, 2, 0, 37),), (
        "{count:.0f} packages can be updated, none of them urgent.",
        "There are {count:.0f} pending updates.",
        "apt lists {count:.0f} upgradable packages.",
        "Pending updates: {count:.0f}, no security fixes among them.",
    )),
    "mail": ((("unread", 12, 4, 0, 80), ("old", 3, 1, 0, 19)), (
        "{unread:.0f} mails are unread, {old:.0f} of them older than a day.",
        "The inbox holds {unread:.0f} unread messages; {old:.0f} have waited since yesterday.",
        "You have {unread:.0f} new mails.",
        "Of {unread:.0f} unread mails {old:.0f} need an answer soon.",
    )),
    "service": ((("restarts", 1, 1, 0, 9),), (
        "All services run; {restarts:.0f} were restarted.",
        "systemd knows of no failed unit and counted {restarts:.0f} restarts.",
        "No unit failed, and there were {restarts:.0f} restarts since the last check.",
        "Services are healthy ({restarts:.0f} restarts).",
    )),
    "login": ((("failed", 140, 30, 20, 400),), (
        "ssh refused {failed:.0f} logins, as on any day.",
        "{failed:.0f} failed logins were counted, all from known scanners.",
        "There were {failed:.0f} rejected ssh attempts and no unknown success.",
        "The log shows {failed:.0f} failed logins, nothing out of the ordinary.",
    )),
    "web": ((("requests", 5200, 400, 900, 14000), ("errors", 6, 3, 0, 60)), (
        "The web server answered {requests:.0f} requests with {errors:.0f} errors.",
        "{requests:.0f} requests came in; {errors:.0f} of them failed.",
        "Traffic was normal at {requests:.0f} requests ({errors:.0f} errors).",
        "nginx served {requests:.0f} requests, {errors:.0f} ended in a 5xx.",
    )),
}  # fmt: skip
_OPENINGS = (
    "All is well.", "Nothing unusual today.", "Here is the summary.", "A quiet period overall.",
    "Everything looks normal.", "No action is needed.", "", "",
)  # fmt: skip
_ENDINGS = (
    "No further action is required.", "I will look again next time.", "That is all.",
    "Nothing needs your attention.", "", "", "",
)  # fmt: skip
_GOAL = (
    "Write a short report on this machine for its administrator: {subjects}. Compare with what was"
    " reported before, name anything that is new, odd or getting worse, and say plainly when"
    " nothing needs attention. Do not repeat figures that have not changed, keep it below ten"
    " sentences and leave out greetings."
)
# Runs a day of twenty routines: one each quarter of an hour, seven each hour, twelve each day.
_EVERY = (timedelta(minutes=15), *[timedelta(hours=1)] * 7, *[timedelta(days=1)] * 12)
RUNS_PER_DAY = sum(timedelta(days=1) / every for every in _EVERY)


def goal_of(routine: int) -> str:
    """Return what this routine is asked for, some 60 words."""
    return _GOAL.format(subjects=", ".join(_subjects_of(routine)))


def name_of(routine: int) -> str:
    return f"routine-{routine}"


def reports(runs: int, *, end: datetime, seed: int = 7, wordy: bool = True) -> Iterator[Report]:
    """Yield so many reports of twenty routines, the oldest first, the last of them before `end`.

    With `wordy` each report has words and an order of its own; else the numbers alone differ.
    """
    chance = random.Random(seed)
    values = [
        {
            name: first
            for subject in _subjects_of(number)
            for name, first, *_ in _SUBJECTS[subject][0]
        }
        for number in range(len(_EVERY))
    ]
    begin = end - timedelta(days=runs / RUNS_PER_DAY)
    # by routine: its slots are offset, so that not all of them fall into one minute
    slots = [begin + every * (number + 1) / 21 for number, every in enumerate(_EVERY)]
    waiting = {odd: begin + (end - begin) * odd.at for odd in ODD_REPORTS}
    for _ in range(runs):
        number = min(range(len(slots)), key=slots.__getitem__)
        at, slots[number] = slots[number], slots[number] + _EVERY[number]
        odd = next((o for o, due in waiting.items() if o.routine == number and due <= at), None)
        waiting.pop(odd, None)
        yield _report(chance, number, at, values[number], odd, wordy)


def _report(
    chance: random.Random,
    number: int,
    at: datetime,
    values: dict[str, float],
    odd: OddReport | None,
    wordy: bool,
) -> Report:
    subjects = _subjects_of(number)
    for subject in subjects:
        for name, _, step, least, greatest in _SUBJECTS[subject][0]:
            values[name] = min(greatest, max(least, values[name] + chance.gauss(0, step)))
    result = "\n".join(f"{name}={value:.2f}" for name, value in values.items())
    if wordy:
        subjects = [subject for subject in subjects if chance.random() > 0.15] or subjects
        chance.shuffle(subjects)
    sentences = [
        (chance.choice(_SUBJECTS[subject][1]) if wordy else _SUBJECTS[subject][1][0]).format_map(
            values
        )
        for subject in subjects
    ]
    if odd:
        sentences.insert(chance.randrange(len(sentences) + 1), odd.sentence)
    if wordy:
        sentences = [chance.choice(_OPENINGS), *sentences, chance.choice(_ENDINGS)]
    text = " ".join(filter(None, sentences))
    return Report(name_of(number), goal_of(number), at, result, text, odd)


def _subjects_of(routine: int) -> list[str]:
    names = list(_SUBJECTS)
    return [names[(routine * 3 + step) % len(names)] for step in range(4 + routine % 3)]
