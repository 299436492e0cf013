"""The schedule of a routine: cron, every and at of all its triggers as one value with `next` and
`prev`.

A slot is an instant, in UTC, at which the routine is due. Everything here is a function of a
schedule and a moment; there is no clock and no state. All datetimes are aware.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from math import lcm
from typing import TYPE_CHECKING, Literal, Self, TypeAlias
from zoneinfo import ZoneInfo

from daemon.definitions import cron as crontab
from daemon.definitions.values import format_duration
from daemon.plurals import pluralize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from daemon.definitions.cron import Crontab
    from daemon.definitions.skipped_days import SkippedTime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZERO = timedelta(0)
# How many times the active hours may begin before a search for a slot within them gives up: more
# than a year of days.
MOST_OPENINGS = 400
# Of the key `skip` in words, so many entries are named.
MOST_SKIPS_IN_WORDS = 3
# How the rule begins by which a slot falls on a day to skip; else it is one of active hours.
SKIP_RULE = "skip = "
SATURDAY_TO_SUNDAY = frozenset({6, 0})
MONDAY_TO_FRIDAY = frozenset(range(1, 6))
EVERY_DAY_OF_MONTH = frozenset(range(1, 32))
WEEKDAY_WORDS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTH_WORDS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
NTH_WORDS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", crontab.LAST: "last"}

CatchUp: TypeAlias = Literal["once", "none"] | timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleEntry:
    """What one `[[trigger]]` of a routine says of the clock: when its slots are, and when it may
    start at all. One that only an event starts has no slots.
    """

    zone: ZoneInfo
    cron: Crontab | None = None
    every: timedelta | None = None
    """Counted from the Unix epoch, so that a restart does not move the slots."""
    at: datetime | None = None
    on_start: bool = False
    catch_up: CatchUp = "once"
    active_hours: tuple[int, int] | None = None
    """From one minute of the day until before another one, over midnight if that is not later."""
    active_days: frozenset[int] | None = None
    """Sunday is 0. A night counts as the day on which it began."""
    opening: Crontab | None = None
    """When the active hours begin; None: no active hours and days are set."""
    skip: tuple[SkippedTime, ...] = ()
    """Days on which nothing starts, whatever the active hours say."""
    rule: str = ""
    """The key with its value that makes the slots, as it is written in the file."""
    hours_rule: str = ""
    """The same of the active hours and days."""

    @property
    def kind(self) -> str:
        """The key that makes the slots; empty for an entry without slots."""
        if self.cron:
            return "cron"
        if self.every:
            return "every"
        return "at" if self.at else ""

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot strictly after `after`; None if there is none."""
        if self.cron:
            return self.cron.next(after, self.zone)
        if self.every:
            return EPOCH + ((after - EPOCH) // self.every + 1) * self.every
        return self.at if self.at and self.at > after else None

    def prev(self, at: datetime) -> datetime | None:
        """Return the last slot not later than `at`; None if there is none."""
        if self.cron:
            return self.cron.prev(at, self.zone)
        if self.every:
            return EPOCH + (at - EPOCH) // self.every * self.every
        return self.at if self.at and self.at <= at else None

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many slots lie in (after, until]; they are not listed, so many cost little."""
        if until <= after:
            return 0
        if self.cron:
            return self.cron.count(after, until, self.zone)
        if self.every:
            return (until - EPOCH) // self.every - (after - EPOCH) // self.every
        return int(self.at is not None and after < self.at <= until)

    def has(self, slot: datetime) -> bool:
        """Tell whether a moment is a slot of this entry."""
        return self.prev(slot) == slot

    def next_active(self, after: datetime) -> datetime | None:
        """Return the first slot after `after` that is not skipped by hours or days.

        None if the schedule ends, or none of the next 400 active times has a slot.
        """
        for _ in range(MOST_OPENINGS):
            slot = self.next(after)
            if slot is None or self.is_active(slot):
                return slot
            opening = self.next_opening(slot)
            if opening is None:
                return None
            after = opening - timedelta(microseconds=1)
        return None

    def is_active(self, moment: datetime) -> bool:
        """Tell whether a moment lies within the active hours and days, and on no day to skip.

        Hours over midnight belong to the day on which they begin; days to skip are those of the
        calendar.
        """
        if self.skip and self.find_skip(moment):
            return False
        if self.opening is None:
            return True
        local = moment.astimezone(self.zone)
        day = local.isoweekday() % 7
        if self.active_hours:
            start, end = self.active_hours
            minute = 60 * local.hour + local.minute
            if start < end:
                if not start <= minute < end:
                    return False
            elif minute < end:
                day = (day - 1) % 7
            elif minute < start:
                return False
        return self.active_days is None or day in self.active_days

    def find_skip(self, moment: datetime) -> tuple[str, datetime] | None:
        """Return for what a moment is skipped, and when that ends; None if `skip` does not."""
        return next(filter(None, (skip.find(moment, self.zone) for skip in self.skip)), None)

    def quiet_rule(self, moment: datetime) -> str:
        """Return the keys with their values by which the entry is not active at a moment."""
        skip = self.find_skip(moment)
        return f'{SKIP_RULE}"{skip[0]}"' if skip else self.hours_rule

    def next_opening(self, after: datetime) -> datetime | None:
        """Return when an entry that is not active at `after` may be so again, though it need not;
        None: never.
        """
        if skip := self.find_skip(after):
            return skip[1]
        return self.opening.next(after, self.zone) if self.opening else None

    def window(self, moment: datetime) -> tuple[datetime, datetime]:
        """Return beginning and end of the active hours that began last before a moment; of the
        whole day if no active hours are set.
        """
        start, end = self.active_hours or (0, 24 * 60)
        day = moment.astimezone(self.zone).date()
        if self._at(day, start) > moment:
            day -= timedelta(days=1)
        return self._at(day, start), self._at(day, end if start < end else end + 24 * 60)

    def _at(self, day: date, minute: int) -> datetime:
        """Return a minute of a day in the zone, in UTC; from 1440 on it is of a later day."""
        midnight = datetime.combine(day + timedelta(days=minute // 1440), time(), self.zone)
        return (midnight + timedelta(minutes=minute % 1440)).astimezone(UTC)

    def words(self, event: str) -> tuple[str, str]:
        """Return what starts the routine, `at 08:30 on weekdays`, and what limits that, such as
        hours and the zone; both in English, and both may be empty.
        """
        parts = [
            event,
            _cron_words(self.cron) if self.cron else "",
            f"every {_every_words(self.every)}" if self.every else "",
            f"once at {self.at.astimezone(self.zone):%Y-%m-%d %H:%M}" if self.at else "",
            "when the daemon starts" if self.on_start else "",
        ]
        limits = ""
        if self.active_hours:
            limits += " within {}-{}".format(*map(_time_words, self.active_hours))
        if self.active_days:
            limits += f" {_weekdays_words(self.active_days)}"
        if self.cron or self.at or self.active_hours or self.active_days or self.skip:
            limits += f", {self.zone.key}"
        if self.skip:
            names = [skip.words for skip in self.skip[:MOST_SKIPS_IN_WORDS]]
            if len(self.skip) > len(names):
                names.append(f"{len(self.skip) - len(names)} more")
            limits += f", but not on {_join_by_and(names)}"
        return " and ".join(part for part in parts if part), limits


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """When a routine is due, and what to do about a slot that comes late.

    It is due whenever one of its entries is. Two entries that fall on one instant have one slot,
    and where an entry is asked for that a slot belongs to, the most permissive of them counts.
    """

    entries: tuple[ScheduleEntry, ...]
    """One for each `[[trigger]]` of the routine, in this order, at least one."""
    delay: timedelta = ZERO
    """By how much a run starts after its slot: the routine's own part of `spread`. It is the same
    for all entries, so that runs start in the order of their slots.
    """
    zone: ZoneInfo
    """Days of the routine are days of this zone, and its times are shown in it."""

    @classmethod
    @lru_cache(maxsize=1024)  # thousands of routines share a few schedules, and their caches
    def of(
        cls,
        *,
        timezone: str,
        cron: str | None = None,
        every: timedelta | None = None,
        at: datetime | None = None,
        on_start: bool = False,
        catch_up: CatchUp = "once",
        delay: timedelta = ZERO,
        active_hours: str | None = None,
        active_days: str | None = None,
    ) -> Self:
        """Make a schedule of the keys of one `[trigger]`. Raises ValueError for invalid ones."""
        hours = _parse_hours(active_hours) if active_hours else None
        hour, minute = divmod(hours[0], 60) if hours else (0, 0)
        rules = (
            f'cron = "{cron}"' if cron else "",
            f'every = "{format_duration(every)}"' if every else "",
            f"at = {at.isoformat()}" if at else "",
        )
        hours_rules = (
            f'active_hours = "{active_hours}"' if active_hours else "",
            f'active_days = "{active_days}"' if active_days else "",
        )
        entry = ScheduleEntry(
            zone=ZoneInfo(timezone),
            cron=crontab.parse(cron) if cron else None,
            every=every,
            at=at.astimezone(UTC) if at else None,
            on_start=on_start,
            catch_up=catch_up,
            active_hours=hours,
            active_days=crontab.weekdays(active_days) if active_days else None,
            opening=crontab.parse(f"{minute} {hour} * * {active_days or '*'}")
            if hours or active_days
            else None,
            rule="".join(rules),
            hours_rule=" and ".join(filter(None, hours_rules)),
        )
        return cls(entries=(entry,), delay=delay, zone=entry.zone)

    def skipping(self, *times: SkippedTime) -> Self:
        """Return this schedule with times in which nothing starts."""
        # not kept for other routines like those of `of`: the calendars would stay in memory
        return replace(self, entries=tuple(replace(entry, skip=times) for entry in self.entries))

    @classmethod
    def union(cls, schedules: tuple[Self, ...], *, zone: str) -> Self:
        """Make one schedule of those of several `[[trigger]]`; `zone` is that of the routine."""
        return cls(
            entries=tuple(entry for schedule in schedules for entry in schedule.entries),
            delay=max(schedule.delay for schedule in schedules),
            zone=ZoneInfo(zone),
        )

    @property
    def clock_entries(self) -> tuple[ScheduleEntry, ...]:
        """The entries that have slots."""
        return tuple(entry for entry in self.entries if entry.kind)

    @property
    def on_start_entries(self) -> tuple[ScheduleEntry, ...]:
        """The entries by which the routine starts with the daemon."""
        return tuple(entry for entry in self.entries if entry.on_start)

    def entries_of(self, slot: datetime) -> tuple[ScheduleEntry, ...]:
        """Return the entries that have a slot; all of them if none does, as after a change."""
        if len(self.entries) == 1:
            return self.entries
        return tuple(entry for entry in self.entries if entry.has(slot)) or self.entries

    # --- slots

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot strictly after `after`; None if there is none."""
        slots = (entry.next(after) for entry in self.entries)
        return min((slot for slot in slots if slot), default=None)

    def prev(self, at: datetime) -> datetime | None:
        """Return the last slot not later than `at`; None if there is none."""
        slots = (entry.prev(at) for entry in self.entries)
        return max((slot for slot in slots if slot), default=None)

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many slots lie in (after, until]; an instant of two entries is one slot.

        Slots of several crontab lines are listed, at most one a minute for each of them; all
        others are not, so many cost little.
        """
        if len(self.entries) == 1:
            return self.entries[0].count(after, until)
        if until <= after:
            return 0
        intervals = {entry.every for entry in self.entries if entry.every}
        total = _count_multiples(intervals, after, until)
        counted_entries = [entry for entry in self.entries if entry.every]
        for entry in self.entries:
            if entry.kind in ("cron", "at"):
                if counted_entries:
                    slot = entry.next(after)
                    while slot and slot <= until:
                        total += not any(
                            earlier_entry.has(slot) for earlier_entry in counted_entries
                        )
                        slot = entry.next(slot)
                else:
                    total += entry.count(after, until)
                counted_entries.append(entry)
        return total

    def period(self, slot: datetime) -> timedelta | None:
        """Return the time from a slot to the next one; None if it is the last."""
        next_slot = self.next(slot)
        return next_slot - slot if next_slot else None

    def next_active(self, after: datetime) -> datetime | None:
        """Return the first slot after `after` at which an entry that has it is active.

        None if the schedule ends, or none of the next 400 active times of an entry has a slot.
        """
        slots = (entry.next_active(after) for entry in self.entries)
        return min((slot for slot in slots if slot), default=None)

    def kind(self, slot: datetime) -> str:
        """Return the key that makes a slot: cron, every or at."""
        return next((entry.kind for entry in self.entries_of(slot) if entry.kind), "at")

    def rule(self, slot: datetime) -> str:
        """Return the keys with their values that make a slot; empty if none does."""
        return " and ".join(dict.fromkeys(entry.rule for entry in self.entries if entry.has(slot)))

    # --- starts

    def next_start(self, after: datetime) -> datetime | None:
        """Return when the next run is to start, strictly after `after`."""
        slot = self.next(after - self.delay)
        return slot + self.delay if slot else None

    def due(self, now: datetime) -> datetime | None:
        """Return the latest slot whose start has come."""
        return self.prev(now - self.delay)

    def lateness(self, slot: datetime, now: datetime) -> timedelta:
        """Return how late a run of the slot would start at `now`."""
        return max(ZERO, now - slot - self.delay)

    def may_catch_up(self, slot: datetime, now: datetime) -> bool:
        """Tell whether a slot that was missed may still start, by `catch_up`.

        By default up to half of its period: later than that the next slot is nearer, and a morning
        report is stale. A slot without a next one may always start.
        """
        late = self.lateness(slot, now)
        rule = self.catch_up(slot)
        if isinstance(rule, timedelta):
            return late <= rule
        if rule == "none":
            return False
        period = self.period(slot)
        return period is None or 2 * late <= period

    def catch_up(self, slot: datetime) -> CatchUp:
        """Return the most permissive `catch_up` of the entries that have a slot."""
        entries = self.entries_of(slot)
        rules = {entry.catch_up for entry in entries if entry.kind or len(entries) == 1}
        if len(rules) == 1:
            return rules.pop()
        longest = max((rule for rule in rules if isinstance(rule, timedelta)), default=ZERO)
        if "once" in rules:
            period = self.period(slot)
            return "once" if period is None or period >= 2 * longest else longest
        return longest

    def is_active(self, moment: datetime, *, slot: datetime | None = None) -> bool:
        """Tell whether a moment lies within the active hours and days of an entry: of one that has
        the slot `slot`, by default of any.
        """
        entries = self.entries if slot is None else self.entries_of(slot)
        return any(entry.is_active(moment) for entry in entries)

    def quiet_rule(self, moment: datetime, *, slot: datetime) -> str:
        """Return the keys with their values by which no entry that has a slot is active."""
        return describe_quiet(self.entries_of(slot), moment)

    def window(self, moment: datetime) -> tuple[datetime, datetime]:
        """Return beginning and end of the active hours that began last before a moment; of the
        whole day if no active hours are set. They are those of the first entry that has slots.
        """
        return (self.clock_entries or self.entries)[0].window(moment)

    def next_window(self, end: datetime) -> datetime | None:
        """Return when the first active hours begin that do not begin before `end`, the end of a
        window; None if none do.
        """
        entries = self.clock_entries or self.entries
        if any(entry.opening is None for entry in entries):
            return end
        last = end - timedelta(microseconds=1)
        openings = (entry.opening.next(last, entry.zone) for entry in entries if entry.opening)
        return min((opening for opening in openings if opening), default=None)

    # --- words

    def words(self, *events: str) -> str:
        """Return the schedule in English: `at 08:30 on weekdays, Europe/Berlin`.

        `events` describe the event that starts the routine, too, one for each entry; empty where
        there is none.
        """
        groups: list[tuple[list[str], str]] = []
        for index, entry in enumerate(self.entries):
            event = events[index] if index < len(events) else ""
            start, limits = entry.words(event)
            if not start:
                continue
            if entry.kind and self.delay:
                delay = timedelta(seconds=round(self.delay.total_seconds()))
                limits += f", started {interval_in_words(delay)} later"
            # two crontab lines of one zone read as one sentence
            if groups and groups[-1][1] == limits and entry.kind and self.entries[index - 1].kind:
                groups[-1][0].append(start)
            else:
                groups.append(([start], limits))
        texts = (" and ".join(starts) + limits for starts, limits in groups)
        return "; or ".join(texts) or "by hand only"


def describe_quiet(entries: Iterable[ScheduleEntry], moment: datetime) -> str:
    """Return the keys with their values by which these entries are not active at a moment."""
    return " and ".join(dict.fromkeys(entry.quiet_rule(moment) for entry in entries))


def _count_multiples(intervals: Collection[timedelta], after: datetime, until: datetime) -> int:
    """Return how many instants in (after, until] are a multiple of one of these intervals since
    the Unix epoch, by inclusion and exclusion.
    """
    unit = timedelta(microseconds=1)
    first, last = (after - EPOCH) // unit, (until - EPOCH) // unit
    sizes = sorted(interval // unit for interval in intervals)
    # the multiples of a multiple are counted with it
    sizes = [
        size
        for index, size in enumerate(sizes)
        if all(size % smaller_size for smaller_size in sizes[:index])
    ]

    def count(common: int, start: int) -> int:
        """Return how many multiples of `common` are one of a size from index `start` on as well."""
        total = 0
        for index in range(start, len(sizes)):
            multiple = lcm(common, sizes[index])
            number = last // multiple - first // multiple
            if number:  # a common multiple of more intervals has no more instants than this one
                total += number - count(multiple, index + 1)
        return total

    return count(1, 0)


def spread_offset(name: str, window: timedelta, machine: str) -> timedelta:
    """Return the part of the window `spread` by which a routine starts later on one machine.

    It depends on the names only. A random delay would spread as well, but then the next start could
    not be shown.
    """
    steps = window // timedelta(milliseconds=1)
    if steps < 1:
        return ZERO
    digest = hashlib.blake2s(f"{machine}\0{name}".encode()).digest()
    return timedelta(milliseconds=int.from_bytes(digest, "big") % steps)


def _parse_hours(text: str) -> tuple[int, int]:
    """Return beginning and end of `HH:MM-HH:MM` in minutes of the day."""
    start, end = (
        60 * int(hour) + int(minute)
        for hour, minute in (part.split(":") for part in text.split("-"))
    )
    return start, end


# --- crontab in words


def _cron_words(cron: Crontab) -> str:
    """Return a crontab line in English, or the line itself where English would be harder to
    read.
    """
    times = _times_words(cron.hours, cron.minutes)
    days = _days_words(cron)
    if not times or days is None:
        return f"by the crontab {cron.expr}"
    return f"{times} {days}".rstrip()


# The functions below return None where English would be harder to read than the crontab line.


def _times_words(hours: tuple[int, ...], minutes: tuple[int, ...]) -> str | None:
    if len(hours) * len(minutes) <= 4:
        times = [_time_words(60 * hour + minute) for hour in hours for minute in minutes]
        return f"at {_join_by_and(times)}"
    minute_step, hour_step = _even_step(minutes, 60), _even_step(hours, 24)
    if len(minutes) == 1 and hour_step:
        every = "every hour" if hour_step == 1 else f"every {hour_step} hours"
        if hours[0]:  # the odd hours, say
            return f"{every} from {_time_words(60 * hours[0] + minutes[0])}"
        return every if minutes == (0,) else f"{every} at minute {minutes[0]}"
    if not minute_step or minutes[0]:
        return None
    every = "every minute" if minute_step == 1 else f"every {minute_step} minutes"
    if len(hours) == 24:
        return every
    if hours == tuple(range(hours[0], hours[-1] + 1)):
        first, last = 60 * hours[0], 60 * hours[-1] + minutes[-1]
        return f"{every} from {_time_words(first)} to {_time_words(last)}"
    return None


def _even_step(numbers: tuple[int, ...], size: int) -> int | None:
    """Return the step of evenly spaced numbers within `size`; None if they are not evenly
    spaced.
    """
    step = size // len(numbers)
    return (
        step
        if step * len(numbers) == size and numbers == tuple(range(numbers[0], size, step))
        else None
    )


def _days_words(cron: Crontab) -> str | None:
    every_date, every_weekday = (
        cron.days >= EVERY_DAY_OF_MONTH,
        {(day, crontab.EVERY) for day in range(7)} <= cron.weekdays,
    )
    months = (
        ""
        if len(cron.months) == 12
        else _join_by_and(MONTH_WORDS[month - 1] for month in sorted(cron.months))
    )
    dates = f"{_dates_words(cron.days)} of {months or 'the month'}"
    weekdays = _cron_weekdays_words(cron.weekdays)
    if all(nth == crontab.EVERY for _, nth in cron.weekdays):
        weekdays += f" in {months}" if months else ""
    else:
        weekdays += f" of {months or 'the month'}"
    if every_date and every_weekday:
        return f"in {months}" if months else ""
    if every_date or every_weekday:
        return weekdays if every_date else dates
    # Both are restricted and one starts with a star, so both must match: too rare for English
    # words.
    return None if cron.needs_both else f"{dates} or {weekdays}"


def _dates_words(days: frozenset[int]) -> str:
    last = {crontab.LAST_DAY: "last day", crontab.LAST_WORKDAY: "last workday"}
    names = [_ordinal(day) for day in sorted(days) if day > 0]
    names += [last[day] for day in days if day < 0]
    return f"on the {_join_by_and(names)}"


def _cron_weekdays_words(weekdays: frozenset[tuple[int, int]]) -> str:
    if all(nth == crontab.EVERY for _, nth in weekdays):
        return _weekdays_words(frozenset(day for day, _ in weekdays))
    words = ((NTH_WORDS.get(nth, "every"), WEEKDAY_WORDS[day]) for day, nth in sorted(weekdays))
    return f"on the {_join_by_and(f'{nth} {day}' for nth, day in words)}"


def _weekdays_words(days: frozenset[int]) -> str:
    if days == MONDAY_TO_FRIDAY:
        return "on weekdays"
    if days == SATURDAY_TO_SUNDAY:
        return "on weekends"
    return (
        f"on {_join_by_and(WEEKDAY_WORDS[day % 7] for day in sorted((day or 7) for day in days))}"
    )


def _join_by_and(items: Iterable[str]) -> str:
    *first_items, last = items
    return f"{', '.join(first_items)} and {last}" if first_items else last


def _ordinal(number: int) -> str:
    suffix = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _every_words(interval: timedelta) -> str:
    """Return an interval for use after `every`; "day" would be every day at midnight."""
    return "24 hours" if interval == timedelta(days=1) else interval_in_words(interval)


def _time_words(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def interval_in_words(duration: timedelta) -> str:
    """Return a duration in words, for use after `every`: `30 minutes`, `hour`, `1 hour 30
    minutes`.
    """
    remainder, words = duration, []
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        count, remainder = divmod(remainder, timedelta(seconds=size))
        if count:
            words.append(pluralize(count, unit))
    if remainder:
        words.append(
            f"{remainder.total_seconds():g} second{'s' * (remainder.total_seconds() != 1)}"
        )
    return words[0].removeprefix("1 ") if len(words) == 1 else " ".join(words)
