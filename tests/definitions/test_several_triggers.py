"""`[[trigger]]`: a routine file with several triggers, and what is made of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from daemon.definitions.key_lines import KeyLines
from daemon.definitions.routines.chains import find_broken_chains
from daemon.definitions.routines.folder import (
    FileCache,
    FolderContents,
    calendar_checks,
    diff,
    load_folder,
    load_routine,
)
from daemon.definitions.routines.routine import Routine
from daemon.errors import ConfigError
from daemon.scheduler.routine_times import schedule_of
from tests.definitions import without_place

RUN = '[run]\nprompt = "x"\n'
SINGLE = '[trigger]\ncron = "0 8 * * *"\n'
SEVERAL = """\
[[trigger]]
cron = "30 8 * * 1-5"
timezone = "Europe/Berlin"

[[trigger]]
webhook = true

[[trigger]]
watch = ["inbox/*.csv"]
settle = "5s"
"""


def load(folder: Path, text: str, name: str = "report") -> Routine:
    path = folder / f"{name}.toml"
    path.write_text(text + RUN)
    return load_routine(path)


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(folder, text)
    return [without_place(fault) for fault in error.value.faults]


def test_each_trigger_has_its_own_keys(tmp_path: Path) -> None:
    routine = load(tmp_path, SEVERAL)
    cron, webhook, watch = routine.triggers
    assert (cron.cron, cron.timezone) == ("30 8 * * 1-5", "Europe/Berlin")
    assert webhook.webhook and watch.watch == ("inbox/*.csv",)
    assert routine.webhook is webhook
    assert routine.timezone == "Europe/Berlin"
    assert routine.is_automatic


def test_a_list_of_one_trigger_is_the_same_routine_as_a_table(tmp_path: Path) -> None:
    table, array = (
        load(tmp_path, SINGLE),
        load(tmp_path, SINGLE.replace("[trigger]", "[[trigger]]")),
    )
    assert array == table
    assert (array.schedule_key, array.dump()) == (table.schedule_key, table.dump())
    assert isinstance(json.loads(array.dump())["trigger"], dict)


def test_the_schedule_keys_of_earlier_versions_hold() -> None:
    """A new one would begin a new baseline at the upgrade, and slots of the night would be lost."""
    by_hand = Routine.model_validate({"name": "x", "run": {"prompt": "x"}})
    daily = Routine.model_validate(
        {"name": "x", "run": {"prompt": "x"}, "trigger": {"cron": "0 9 * * *", "spread": "5m"}}
    )
    assert (by_hand.schedule_key, daily.schedule_key) == ("77c9e74b12dc49b2", "1e58b8bd340bb620")


def test_a_run_keeps_all_triggers_and_reads_them_back(tmp_path: Path) -> None:
    routine = load(tmp_path, SEVERAL)
    copy = Routine.restore(routine.dump())
    assert copy.triggers == routine.triggers
    assert copy.schedule_key == routine.schedule_key
    triggers = json.loads(routine.dump())["trigger"]
    assert [table["webhook"] for table in triggers] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            SINGLE.replace("[trigger]", "[[trigger]]") + '[[trigger]]\ncron = "x 8 * * *"\n',
            ["trigger[1].cron: minute 'x': "],
        ),
        (SEVERAL + "[[trigger]]\nchron = 1\n", ["trigger[3].chron: unknown key"]),
        (
            SEVERAL + '[[trigger]]\nevery = "1h"\nat = 2026-12-24T18:00:00Z\n',
            [
                "trigger[3]: every and at exclude one another; give each a [[trigger]] of its own",
            ],
        ),
        (
            SEVERAL + '[[trigger]]\ntimezone = "UTC"\n',
            ["trigger[3]: nothing here starts the routine; add cron"],
        ),
        (SEVERAL + "[[trigger]]\n", ["trigger[3]: nothing here starts the routine; add cron"]),
        (
            SEVERAL + "[[trigger]]\nwebhook = true\n",
            ["trigger[3].webhook: trigger[1] has it already: a routine has one webhook"],
        ),
        (
            SEVERAL + '[[trigger]]\nevery = "1h"\nspread = "5m"\n',
            ["trigger[3].spread: differs from trigger[0], but runs start in the order of their"],
        ),
        (
            SEVERAL + '[[trigger]]\nevery = "1h"\nmachines = ["box"]\n',
            ["trigger[3].machines: differs from trigger[0], but says where the whole routine runs"],
        ),
        (
            SEVERAL + '[[trigger]]\nwebhook = true\nsettle = "5s"\n',
            ["trigger[3].webhook: trigger[1] has it", "trigger[3].settle: belongs to watch"],
        ),
        ("[[trigger]]\nevery = 5\n", ["trigger[0].every: expected a duration in quotes"]),
        ("trigger = []\n", ["trigger: must not be empty"]),
        ("trigger = 'daily'\n", ["trigger: expected a table of keys and values"]),
        ("[[trigger]]\non_start = true\n" * 21, ["trigger: takes at most 20 of them"]),
        (
            SEVERAL + '[gate]\nmoments = 2\n[[deliver]]\nto = "log"\n[[trigger]]\nevery = "1h"\n',
            ["gate.moments: are drawn from the active hours of a day, and these differ"],
        ),
    ],
)
def test_a_fault_names_the_trigger(tmp_path: Path, text: str, lines: list[str]) -> None:
    fault_lines = faults(tmp_path, text)
    assert len(fault_lines) == len(lines), fault_lines
    for line, start in zip(fault_lines, lines, strict=True):
        assert line.startswith(start)


def test_a_fault_in_one_trigger_hides_none_in_another_key(tmp_path: Path) -> None:
    fault_lines = faults(tmp_path, SEVERAL + "[[trigger]]\nevery = 5\n[gate]\nidle = 3\n")
    assert [line.partition(":")[0] for line in fault_lines] == ["trigger[3].every", "gate.idle"]


def test_an_editor_finds_the_line_of_a_trigger() -> None:
    lines = KeyLines(SEVERAL)
    assert lines.line_of("trigger[1].webhook") == 6
    assert lines.line_of("trigger[2].settle") == 10


def test_chains_go_through_any_trigger(tmp_path: Path) -> None:
    first = load(tmp_path, SEVERAL + '[[trigger]]\nafter = ["second"]\n', "first")
    second = load(tmp_path, '[trigger]\nafter = ["first"]\n', "second")
    third = load(
        tmp_path, '[[trigger]]\nafter = ["first"]\n[[trigger]]\nafter = ["frist"]\n', "third"
    )
    errors = find_broken_chains({"first": first, "second": second, "third": third})
    assert [fault.key for fault in errors["first"].faults] == ["trigger[3].after"]
    assert "first → second → first" in errors["first"].faults[0].problem
    assert [fault.key for fault in errors["second"].faults] == ["trigger.after"]
    assert [fault.key for fault in errors["third"].faults] == ["trigger[1].after[0]"]


# --- days to skip

CALENDAR = """\
BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Christmas
DTSTART;VALUE=DATE:20261225
RRULE:FREQ=YEARLY
END:VEVENT
END:VCALENDAR
"""
SKIPPING = '[trigger]\ncron = "0 8 * * *"\nskip = ["2026-12-24/2027-01-06", "holidays.ics"]\n'


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ('["christmas"]', "trigger.skip[0]: is no date, no range of dates and no calendar"),
        ('["2026-12-32"]', "trigger.skip[0]: has a day that does not exist"),
        ('["2026-12-24/2026-12-23"]', "trigger.skip[0]: ends before it begins"),
        ('["2026-12-24", "../x.ics"]', "trigger.skip[1]: leaves the workspace"),
        ('["/x.ics"]', "trigger.skip[0]: leaves the workspace"),
        ("[]", "trigger.skip: must not be empty"),
        ('"2026-12-24"', "trigger.skip: expected a list"),
        (
            "[2026-12-24]",
            'trigger.skip[0]: expected text in quotes (found 2026-12-24); write "2026-12-24"',
        ),
    ],
)
def test_a_day_to_skip_that_is_none_is_a_fault(tmp_path: Path, value: str, line: str) -> None:
    (fault_line,) = faults(tmp_path, f'[trigger]\ncron = "0 8 * * *"\nskip = {value}\n')
    assert fault_line.startswith(line)


def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return a folder with a routine, and a workspace with its calendar."""
    routines, workspace = tmp_path / "routines", tmp_path / "workspace"
    routines.mkdir()
    workspace.mkdir()
    (routines / "report.toml").write_text(SKIPPING + RUN)
    (workspace / "holidays.ics").write_text(CALENDAR)
    return routines, workspace


def test_a_routine_is_given_the_calendars_that_it_names(tmp_path: Path) -> None:
    routines, workspace = folders(tmp_path)
    routine = load_folder(routines, workspace=workspace).routines["report"]
    schedule = schedule_of(routine, zone="UTC")
    slot = datetime(2027, 12, 25, 8, tzinfo=UTC)
    assert not schedule.is_active(slot, slot=slot)
    assert schedule.quiet_rule(slot, slot=slot) == 'skip = "holidays.ics: Christmas"'
    assert "holidays" in routine.dump() and "Christmas" not in routine.dump()
    assert schedule.words() == (
        "at 08:00, UTC, but not on 2026-12-24 to 2027-01-06 and the days of holidays.ics"
    )


def test_a_changed_calendar_changes_the_routine_but_begins_no_new_baseline(tmp_path: Path) -> None:
    routines, workspace = folders(tmp_path)
    cache, checks = FileCache(settled_after=0), calendar_checks(workspace)

    def read() -> FolderContents:
        cache.begin("the same checks")
        return load_folder(routines, checks=checks, workspace=workspace, cache=cache)

    old = read().routines
    assert not diff(old, read().routines)
    (workspace / "holidays.ics").write_text(CALENDAR.replace("20261225", "20261224"))
    changes = diff(old, read().routines)
    assert (changes.changed, changes.schedule_changed) == (("report",), ())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read in the workspace: No such file or directory"),
        (CALENDAR.replace("YEARLY", "SECONDLY"), "line 5: RRULE: FREQ is one of"),
    ],
)
def test_a_calendar_that_cannot_be_read_is_a_fault_of_the_routine(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    routines, workspace = folders(tmp_path)
    (workspace / "holidays.ics").unlink()
    if content:
        (workspace / "holidays.ics").write_text(content)
    contents = load_folder(routines, checks=calendar_checks(workspace), workspace=workspace)
    (fault,) = contents.faults["report"].faults
    assert (fault.key, fault.found) == ("trigger.skip[1]", '"holidays.ics"')
    assert fault.problem.startswith(problem) and str(workspace) in fault.hint
