"""The keys of a routine file, its cross-field checks, and the effect of edits."""

from __future__ import annotations

import json
import os
import resource
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import BUILT_IN_TARGETS
from daemon.definitions.file_versions import version_of
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.routines.checks import reference_checks
from daemon.definitions.routines.folder import (
    FileCache,
    FolderContents,
    compare_with_old,
    diff,
    load_folder,
    load_routine,
    write_new,
)
from daemon.definitions.routines.routine import Deliver, Routine, RoutineDefinition, Trigger
from daemon.definitions.schedule import Schedule
from daemon.delivery.targets import KINDS as TARGETS
from daemon.errors import ConfigError, Fault, Refused
from daemon.models import Status
from tests.definitions import without_place
from tests.properties import scaled_settings

MORNING = """
[trigger]
cron = "30 8 * * 1-5"
timezone = "Europe/Berlin"
[run]
prompt = "Write the morning report."
"""
EVERYTHING = """
description = "All of it"
enabled = false
first_run = true

[trigger]
cron = "30 8 * * 1-5"
on_start = true
timezone = "Europe/Berlin"
catch_up = "6h"
spread = "5m"
active_hours = "22:00-06:00"
active_days = "mon-fri"

[run]
mode = "agent"
prompt = "Look after this machine."
provider = "claude"
model = "some-model"
fallback = ["local", "offline"]
memory = "recall+store"
timeout = "1h30m"
overlap = "queue_one"
silent_token = "NOTHING"
tools = ["shell", "time__*"]
required_tools = ["shell"]
max_iterations = 5
max_tool_calls = 7
temperature = 0.5
max_tokens = 1000

[run.retry]
attempts = 2
backoff = "10s"
max = "1m"

[run.budget]
tokens = 50_000

[run.sections]
Zebra = "comes first"
Audience = "One busy person."

[[gather]]
name = "host"
tool = "sysinfo"
args = { parts = ["load"], since = 2026-01-01T00:00:00Z, depth = 1.5 }
required = false

[gate]
changed = ["host.disks"]
idle = "4h"
max_per_day = 2

[[deliver]]
to = "file"
path = "reports/{routine}/{slot:%Y-%m-%d}-{run}.md"

[[deliver]]
to = "log"
on = ["failed"]
"""


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Write a routine file and load it."""

    def load(text: str, name: str = "morning", checks: Any = ()) -> Routine:
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return load_routine(path, checks=checks)

    return load


def lines_of(load: Any, text: str, name: str = "morning") -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(text, name)
    return [without_place(fault) for fault in error.value.faults]


# --- one file


def test_a_routine_is_named_by_its_file(load: Any, tmp_path: Path) -> None:
    routine = load(MORNING)
    assert routine.name == "morning"
    assert routine.path == tmp_path / "morning.toml"
    assert routine.trigger.timezone == "Europe/Berlin"
    assert routine.run.max_iterations == 10
    assert routine.enabled
    assert not routine.first_run


def test_every_key_of_a_routine_is_read(load: Any) -> None:
    routine = load(EVERYTHING)
    assert routine.trigger.catch_up == timedelta(hours=6)
    assert routine.run.timeout == timedelta(minutes=90)
    assert routine.run.fallback == ("local", "offline")
    assert list(routine.run.sections) == ["Zebra", "Audience"]
    assert routine.gather[0].args == {
        "parts": ["load"],
        "since": "2026-01-01T00:00:00+00:00",
        "depth": 1.5,
    }
    assert routine.deliver[1].on == ("failed",)
    assert routine.gate.idle == timedelta(hours=4)


def test_a_run_gets_back_exactly_the_definition_it_started_with(load: Any) -> None:
    routine = load(EVERYTHING)
    copy = Routine.restore(routine.dump())
    assert copy == routine.model_copy(update={"path": None})
    assert list(copy.run.sections) == ["Zebra", "Audience"]
    assert copy.dump() == routine.dump()
    assert copy.schedule_key == routine.schedule_key


def test_stored_definition_names_every_default_and_no_folder_of_the_machine(
    load: Any, tmp_path: Path
) -> None:
    text = load(MORNING).dump()
    assert str(tmp_path) not in text
    assert json.loads(text)["run"]["max_tool_calls"] == 40


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ('prompt = "Write', 'prompt = "Do write', False),
        ("\n[run]", "# a comment\n\n[run]", False),
        ("30 8 * * 1-5", "31 8 * * 1-5", True),
        ("Europe/Berlin", "Europe/Paris", True),
        ("\n[trigger]", "\nenabled = false\n[trigger]", True),
        ("\n[trigger]", '\ndescription = "x"\n[trigger]', False),
        ("[run]", 'catch_up = "none"\n[run]', True),
    ],
)
def test_only_an_edit_of_trigger_zone_or_enabling_changes_the_schedule_key(
    load: Any, before: str, after: str, moves: bool
) -> None:
    old, new = load(MORNING), load(MORNING.replace(before, after))
    assert (old.schedule_key != new.schedule_key) is moves


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "run.prompt: is missing, and nothing is gathered; say what to do"),
        (
            '[trigger]\ncron = "0 8 * * *"\nevery = "1h"\n[run]\nprompt = "x"',
            "trigger: cron and every exclude one another; give each a [[trigger]] of its own",
        ),
        (
            '[trigger]\ntimezone = "Europe/Berlin"\n[run]\nprompt = "x"',
            (
                "trigger: nothing here starts the routine; "
                "add cron, every, at, watch, webhook, after, pace or on_start; without [trigger] "
                "it runs by hand only"
            ),
        ),
        (
            '[trigger]\ncron = "61 8 * * *"\n[run]\nprompt = "x"',
            (
                "trigger.cron: minute '61': 61 is not within 0-59 (found \"61 8 * * *\"); "
                "a minute is 0-59; *, a-b, */n and lists with commas"
            ),
        ),
        (
            '[trigger]\nevery = "0s"\n[run]\nprompt = "x"',
            'trigger.every: must be at least "1s" (found "0s")',
        ),
        (
            '[trigger]\non_start = true\ntimezone = "Berlin"\n[run]\nprompt = "x"',
            'trigger.timezone: unknown time zone (found "Berlin"); did you mean "Europe/Berlin"?',
        ),
        (
            '[trigger]\non_start = true\ntimezone = "Europe/Berln"\n[run]\nprompt = "x"',
            (
                'trigger.timezone: unknown time zone (found "Europe/Berln"); did you mean '
                '"Europe/Berlin"?'
            ),
        ),
        (
            '[trigger]\non_start = true\ntimezone = "../etc/passwd"\n[run]\nprompt = "x"',
            (
                'trigger.timezone: unknown time zone (found "../etc/passwd"); zones look like '
                '"Europe/Berlin"'
            ),
        ),
        (
            '[trigger]\non_start = true\nactive_hours = "8-22"\n[run]\nprompt = "x"',
            (
                'trigger.active_hours: expected hours like "08:00-22:00" (found "8-22"); over '
                'midnight: "22:00-06:00"'
            ),
        ),
        (
            '[trigger]\non_start = true\nactive_hours = "08:00-24:30"\n[run]\nprompt = "x"',
            (
                'trigger.active_hours: expected hours like "08:00-22:00" (found "08:00-24:30"); '
                'over midnight: "22:00-06:00"'
            ),
        ),
        (
            '[trigger]\non_start = true\nactive_hours = "08:00-08:00"\n[run]\nprompt = "x"',
            (
                'trigger.active_hours: begins and ends at the same time (found "08:00-08:00"); '
                'the whole day is "00:00-24:00"'
            ),
        ),
        (
            "[trigger]\nat = 2026-12-01T09:00:00\n[run]\nprompt = 'x'",
            (
                "trigger.at: needs its offset from UTC, like 2026-12-01T09:00:00+01:00 (found "
                "2026-12-01T09:00:00)"
            ),
        ),
        (
            '[trigger]\non_start = true\ncatch_up = "onc"\n[run]\nprompt = "x"',
            'trigger.catch_up: expected "once", "none" or a duration such as "6h" (found "onc")',
        ),
        (
            '[trigger]\non_start = true\ncatch_up = true\n[run]\nprompt = "x"',
            (
                'trigger.catch_up: expected "once", "none" or a duration such as "6h" '
                '(found true); write "once"'
            ),
        ),
        (
            '[run]\nprompt = "x"\ntools = ["shell"]',
            (
                'run.tools: this mode asks the model once, without tools (found ["shell"]); '
                'set mode = "agent", or collect with [[gather]]'
            ),
        ),
        (
            '[run]\nprompt = "x"\nmode = "agent"\ntools = ["shell"]\nrequired_tools = ["shel"]',
            'run.required_tools: is not among tools (found "shel"); did you mean "shell"?',
        ),
        (
            '[run]\nprompt = "x"\nrequired_tools = ["shell"]',
            'run.required_tools: this mode offers no tools (found ["shell"]); set mode = "agent"',
        ),
        (
            '[run]\nmode = "agent"\n[[gather]]\nname = "a"\ntool = "b"',
            "run.prompt: is missing; an agent needs its task",
        ),
        (
            '[[gather]]\nname = "a"\ntool = "x"\n[[gather]]\nname = "a"\ntool = "y"',
            'gather[1].name: an earlier [[gather]] has this name (found "a")',
        ),
        (
            '[[gather]]\nname = "host"\ntool = "x"\n[gate]\nchanged = ["hots.disks"]',
            (
                'gate.changed[0]: no [[gather]] has this name (found "hots.disks"); did you mean '
                '"host"?'
            ),
        ),
        (
            '[run]\nprompt = "x"\n[gate]\nchanged = ["host"]',
            (
                'gate.changed[0]: no [[gather]] has this name (found "host"); add the [[gather]] it '  # noqa: E501
                "compares"
            ),
        ),
        (
            '[run]\nprompt = "x"\n[[deliver]]\nto = "log"\npath = "x.md"',
            'deliver[0].path: "log" takes no path (found "x.md")',
        ),
        (
            '[run]\nprompt = "x"\n[[deliver]]\nto = "file"',
            'deliver[0].path: is missing; like path = "reports/{routine}/{slot:%Y-%m-%d}.md"',
        ),
        (
            '[run]\nprompt = "x"\n[gate]\ncommand = [" ", "-s"]',
            (
                'gate.command[0]: names no program (found " "); like command = ["test", "-s", '
                '"inbox/todo"]'
            ),
        ),
        (
            '[run]\nprompt = "x"\n[gate]\nmoments = 2\n[[deliver]]\nto = "log"',
            (
                "gate.moments: are drawn from the slots of a schedule, and there is none;"
                ' add cron or every to [trigger], such as every = "30m"'
            ),
        ),
        (
            '[trigger]\nevery = "30m"\n[run]\nprompt = "x"\n[gate]\nmoments = 2',
            "gate.moments: count what was delivered, and nothing is; add a [[deliver]]",
        ),
        (
            '[trigger]\nwatch = ["inbox/*.csv"]\nwebhook = true\n[run]\nprompt = "x"',
            "trigger: watch and webhook exclude one another; give each a [[trigger]] of its own",
        ),
        (
            '[trigger]\nwatch = "inbox/*.csv"\n[run]\nprompt = "x"',
            (
                'trigger.watch: expected a list, like ["a", "b"] (found "inbox/*.csv"); write '
                '["inbox/*.csv"]'
            ),
        ),
        (
            '[trigger]\nwatch = ["a", "/etc/*"]\n[run]\nprompt = "x"',
            (
                'trigger.watch[1]: leaves the workspace (found "/etc/*"); '
                'files are watched beneath it: give a relative path, like "inbox/*"'
            ),
        ),
        (
            '[trigger]\nwatch = ["inbox/../../x"]\n[run]\nprompt = "x"',
            'trigger.watch[0]: leaves the workspace (found "inbox/../../x"); leave out the ..',
        ),
        (
            '[trigger]\nwatch = ["inbox/"]\n[run]\nprompt = "x"',
            (
                'trigger.watch[0]: names a folder (found "inbox/"); add what to look for in it, '
                'like "inbox/*"'
            ),
        ),
        (
            '[trigger]\nwatch = ["a"]\nsettle = "0s"\n[run]\nprompt = "x"',
            'trigger.settle: must be at least "0.1s" (found "0s")',
        ),
        (
            '[trigger]\nwebhook = true\nsettle = "2s"\n[run]\nprompt = "x"',
            'trigger.settle: belongs to watch, which is not there; like watch = ["inbox/*.csv"]',
        ),
        (
            '[trigger]\nevery = "1h"\non = "failed"\n[run]\nprompt = "x"',
            'trigger.on: belongs to after, which is not there; like after = ["backup"]',
        ),
        (
            '[trigger]\nwebhook = true\ncatch_up = "1h"\n[run]\nprompt = "x"',
            (
                "trigger.catch_up: is for cron, every and at: an event has no other moment; take it "  # noqa: E501
                "out"
            ),
        ),
        (
            (
                '[trigger]\nwatch = ["inbox/*"]\n[[gather]]\nname = "a"\ntool = "shell"\nargs = { '
                'command = "cat {path}" }'
            ),
            (
                'gather[0].args.command: {path} must stand alone (found "cat {path}"); '
                'write command = "{path}", with a tool that takes a path, such as file_read'
            ),
        ),
        (
            '[[gather]]\nname = "a"\ntool = "file_read"\nargs = { path = "{path}" }',
            (
                'gather[0].args.path: without watch no file lands (found "{path}"); '
                'add watch to [trigger], like watch = ["inbox/*.csv"]'
            ),
        ),
        (
            (
                "[trigger]\nwatch = "
                '["*/*.md"]\n[run]\nprompt="x"\n[[deliver]]\nto="file"\npath="reports/{routine}.md"'
            ),
            (
                "deliver[0].path: is watched: each report would start the next run (found "
                '"reports/{routine}.md"); '
                "write it to another folder"
            ),
        ),
        # keys of later issues are unknown keys until they work
        ('[run]\nprompt = "x"\nskill = ["a"]', None),
        ('[run]\nprompt = "x"\n[run.budget]\nusd_per_week = 0.2', None),
        ('name = "other"\n[run]\nprompt = "x"', None),
        ('path = "other"\n[run]\nprompt = "x"', None),
    ],
)
def test_routine_fault_is_reported_with_its_correction(
    load: Any, text: str, line: str | None
) -> None:
    lines = lines_of(load, text)
    assert len(lines) == 1
    assert lines[0] == line if line else ": unknown key (found " in lines[0]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a/{day}.md", "unknown field {day}"),
        ("a/{slot:yesterday}.md", "unknown field {slot:yesterday}"),
        ("a/{routine:%Y}.md", "unknown field {routine:%Y}"),
        ("a/{routine.md", "a { or } stands alone"),
        ("/etc/motd", "leaves the workspace"),
        ("~/x.md", "leaves the workspace"),
        ("a/../../x.md", "leaves the workspace"),
        ("reports/", "names a folder"),
    ],
)
def test_unwritable_path_is_a_fault_at_load(load: Any, path: str, problem: str) -> None:
    (line,) = lines_of(load, f'[run]\nprompt = "x"\n[[deliver]]\nto = "file"\npath = "{path}"')
    assert line.startswith(f"deliver[0].path: {problem}")


def test_all_faults_of_a_routine_are_reported_including_cross_field_checks(load: Any) -> None:
    keys = [
        line.partition(":")[0]
        for line in lines_of(
            load,
            'enbled = true\n[trigger]\ncron = "x"\nat = 2026-01-01T00:00:00Z\n[run]\ntools = '
            '["a"]\ntimeout = 5\n'
            '[[gather]]\nname = "a"\n[[gather]]\nname = "a"\ntool = "x"\n[[deliver]]\nto = '
            '"file"\non = ["never"]',
        )
    ]
    assert keys == [
        *("enbled", "trigger.cron", "run.tools", "run.timeout", "gather[0].tool"),
        *("gather[1].name", "deliver[0].path", "deliver[0].on[0]"),
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Morning Report", "rename it to morning-report.toml"),
        ("-x", "rename it to x.toml"),
        ("häuser", "rename it to h-user.toml"),
        ("日报", "rename it"),
        ("ask", 'the name "ask" is taken by agentd'),
        ("last", 'the name "last" is taken by agentd'),
    ],
)
def test_an_invalid_routine_name_is_refused_with_a_suggestion(
    load: Any, name: str, problem: str
) -> None:
    (line,) = lines_of(load, MORNING, name)
    assert problem in line


def test_a_routine_without_trigger_runs_by_hand_only(load: Any) -> None:
    assert load('[run]\nprompt = "x"').trigger == RoutineDefinition().trigger


def test_default_delivery_covers_every_end_but_cancel_and_every_question() -> None:
    ends = {str(status) for status in Status if status.has_ended}
    assert set(Deliver(to="log").on) == ends - {"skipped", "cancelled"} | {"waiting"}


def test_routines_may_name_exactly_the_delivery_channels() -> None:
    assert set(BUILT_IN_TARGETS) < set(TARGETS)
    assert Config().target_names == set(BUILT_IN_TARGETS)


@pytest.mark.parametrize("hours", ["08:00-22:00", "22:00-06:00", "00:00-24:00", "08:30-24:00"])
@pytest.mark.parametrize("days", [None, "mon-fri", "sat,sun", "0", "7"])
def test_every_accepted_trigger_has_a_computable_schedule(
    load: Any, hours: str, days: str | None
) -> None:
    more = f'active_hours = "{hours}"\n' + (f'active_days = "{days}"\n' if days else "")
    trigger = load(MORNING.replace("[run]", more + "[run]")).trigger
    schedule = Schedule.of(
        timezone=trigger.timezone,
        cron=trigger.cron,
        catch_up=trigger.catch_up,
        active_hours=trigger.active_hours,
        active_days=trigger.active_days,
    )
    assert schedule.next(datetime(2026, 1, 1, tzinfo=UTC)) is not None


# --- a folder


def test_invalid_file_leaves_other_routines_loaded(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(MORNING)
    (tmp_path / "bad.toml").write_text("enabled = maybe")
    (tmp_path / "worse.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "lost.toml").symlink_to("nowhere")
    (tmp_path / "linked.toml").symlink_to("good.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    contents = load_folder(tmp_path)
    assert sorted(contents.routines) == ["good", "linked"]
    assert sorted(contents.faults) == ["bad", "folder", "lost", "pipe", "worse"]
    assert all(len(error.faults) == 1 for error in contents.faults.values())


def test_editor_backup_files_are_no_routines(tmp_path: Path) -> None:
    for name in (".hidden.toml", "x.toml~", "x.toml.swp", "README.md", "4913"):
        (tmp_path / name).write_text("?")
    assert load_folder(tmp_path) == load_folder(tmp_path / "nowhere")


def test_fault_of_a_file_with_an_unprintable_name_is_reported(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\n.toml"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    ((name, error),) = load_folder(tmp_path).faults.items()
    assert name.isprintable()
    assert str(error).splitlines()[0].encode()


def test_a_routine_file_that_the_disk_refuses_can_be_written_later(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(Refused, match=r"daily\.toml cannot be written: File too large"):
            write_new(tmp_path / "daily.toml", MORNING)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    write_new(tmp_path / "daily.toml", MORNING)
    assert [file.name for file in tmp_path.iterdir()] == ["daily.toml"]


def test_a_file_in_place_of_the_routines_folder_is_one_fault(tmp_path: Path) -> None:
    (tmp_path / "routines").write_text("")
    with pytest.raises(ConfigError, match="the folder of routines cannot be read"):
        load_folder(tmp_path / "routines")


def test_routine_naming_unknown_things_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(EVERYTHING)
    (tmp_path / "b.toml").write_text(MORNING)
    contents = load_folder(
        tmp_path, checks=reference_checks({"claud", "offline"}, {"shel", "sysinfo"})
    )
    assert list(contents.routines) == ["b"]
    assert [without_place(fault) for fault in contents.faults["a"].faults] == [
        'run.provider: no such provider in config.toml (found "claude"); did you mean "claud"?',
        'run.fallback[0]: no such provider in config.toml (found "local"); known: claud, offline',
        'run.tools[0]: no such tool (found "shell"); did you mean "shel"?',
    ]


def test_unknown_delivery_target_is_a_fault(load: Any) -> None:
    text = '[run]\nprompt = "x"\n[[deliver]]\nto = "fle"\n[[deliver]]\nto = "pager"'
    load(text, checks=reference_checks({"offline"}, targets={"fle", "pager"}))
    with pytest.raises(ConfigError) as error:
        load(text, checks=reference_checks({"offline"}))
    assert [without_place(fault) for fault in error.value.faults] == [
        'deliver[0].to: no such target in config.toml (found "fle"); did you mean "file"?',
        'deliver[1].to: no such target in config.toml (found "pager"); known: desktop, file, log',
    ]


def test_unknown_tools_are_no_fault_before_tools_are_loaded(load: Any) -> None:
    load(EVERYTHING, checks=reference_checks({"claude", "local", "offline"}))


def test_misspelt_keys_and_unknown_names_are_reported_together(load: Any) -> None:
    text = """
[trigger]
cron = "61 * * * *"
[run]
promt = "x"
prompt = "x"
provider = "nope"
[[deliver]]
to = "pager"
pat = "x"
[[gather]]
name = "host"
tool = "sysinf"
"""
    with pytest.raises(ConfigError) as error:
        load(text, checks=reference_checks({"offline"}, {"sysinfo"}))
    assert [fault.key for fault in error.value.faults] == [
        *(
            "trigger.cron",
            "run.promt",
            "run.provider",
            "deliver[0].to",
            "deliver[0].pat",
            "gather[0].tool",
        ),
    ]


def test_folder_loads_in_a_thread_outside_the_event_loop(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"r{number}.toml").write_text(MORNING)
    thread_ids: list[int] = []
    threads = [
        threading.Thread(target=lambda: thread_ids.append(len(load_folder(tmp_path).routines)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert thread_ids == [50] * 4


# --- chains


def load_chain(folder: Path, **after: list[str]) -> Any:
    """Return a folder of routines that come after one another, loaded."""
    for name, before in after.items():
        trigger = f"[trigger]\nafter = {json.dumps(before)}\n" if before else ""
        (folder / f"{name}.toml").write_text(f'{trigger}[run]\nprompt = "x"\n')
    return load_folder(folder)


def test_routine_may_be_triggered_by_another_routine(tmp_path: Path) -> None:
    contents = load_chain(tmp_path, backup=[], sync=["backup"], report=["backup", "sync"])
    assert not contents.faults
    assert contents.routines["report"].trigger.after == ("backup", "sync")
    assert contents.routines["report"].trigger.on == "succeeded"


def test_cycle_of_after_triggers_is_refused_and_shown_for_each_member(tmp_path: Path) -> None:
    contents = load_chain(tmp_path, a=["c"], b=["a"], c=["b"], outside=["a"], self=["self"])
    assert sorted(contents.routines) == ["outside"]
    cycles = {
        name: str(error).partition("circle: ")[2].partition(";")[0]
        for name, error in contents.faults.items()
    }
    assert cycles == {
        "a": "a → b → c → a",
        "b": "b → c → a → b",
        "c": "c → a → b → c",
        "self": "self → self",
    }


def test_after_trigger_of_an_unknown_routine_suggests_the_nearest_name(tmp_path: Path) -> None:
    contents = load_chain(tmp_path, backup=[], report=["bakup"])
    assert 'no such routine (found "bakup"); did you mean "backup"?' in str(
        contents.faults["report"]
    )


def test_after_trigger_accepts_a_routine_whose_file_is_broken(tmp_path: Path) -> None:
    (tmp_path / "backup.toml").write_text("[run")
    contents = load_chain(tmp_path, report=["backup"])
    assert sorted(contents.routines) == ["report"]
    assert sorted(contents.faults) == ["backup"]


# --- a reload


def test_reload_lists_added_changed_removed_and_rescheduled_routines(load: Any) -> None:
    old = {
        "kept": load(MORNING, "kept"),
        "edited": load(MORNING, "edited"),
        "gone": load(MORNING, "gone"),
    }
    moved_routine = load(MORNING.replace("30 8", "31 8"), "moved")
    new = {
        "kept": load(MORNING + "# a comment\n", "kept"),
        "edited": load(MORNING.replace("Write", "Do write"), "edited"),
        "moved": moved_routine,
        "new": load(MORNING, "new"),
    }
    changes = diff({**old, "moved": load(MORNING, "moved")}, new)
    assert changes.added == ("new",)
    assert changes.changed == ("edited", "moved")
    assert changes.removed == ("gone",)
    assert changes.schedule_changed == ("moved",)
    assert changes


def test_reload_without_edits_reports_no_change(load: Any) -> None:
    assert not diff({"a": load(MORNING, "a")}, {"a": load(MORNING + "\n\n", "a")})


def test_unchanged_routine_keeps_its_object_after_reload(load):
    old = {
        "same": load(MORNING, "same"),
        "broken": load(MORNING, "broken"),
        "gone": load(MORNING, "gone"),
    }
    fault = ConfigError(Fault(file="broken.toml", key="", found="", problem="cannot be read"))
    contents = FolderContents(
        routines={"same": load(MORNING, "same"), "new": load(MORNING, "new")},
        faults={"broken": fault},
    )
    new, faults, changes = compare_with_old(old, contents)
    assert new["same"] is contents.routines["same"] is old["same"]
    assert new["broken"] is old["broken"]
    assert faults == {"broken": fault}
    assert (changes.added, changes.changed, changes.removed) == (("new",), (), ("gone",))


# --- whatever a file may hold

WORDS = st.sampled_from(
    ["host", "file", "log", "agent", "once", "5m", "0 8 * * *", "UTC", "08:00-09:00", "", "\x00"]
)
SCALARS = (
    WORDS | st.integers(-1, 5) | st.booleans() | st.floats() | st.datetimes() | st.text(max_size=4)
)
KEYS = st.sampled_from(
    [
        *(
            *RoutineDefinition.model_fields,
            *Trigger.model_fields,
            "mode",
            "tools",
            "prompt",
            "name",
            "tool",
            "to",
            "path",
        ),
        "changed",
    ]
)
DATA = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=5), max_leaves=15
)


@scaled_settings(100)
@given(st.dictionaries(KEYS, DATA, max_size=6))
def test_any_routine_file_loads_or_reports_faults(data: dict[str, Any]) -> None:
    import tempfile

    import tomli_w

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_text(tomli_w.dumps(data))
        contents = load_folder(Path(folder))
        for routine in contents.routines.values():
            assert Routine.restore(routine.dump()) == routine.model_copy(update={"path": None})
        for error in contents.faults.values():
            assert all(fault.problem for fault in error.faults)


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    for name in ("one", "two", "faulty"):
        text = "[run]\nprompt = 'p'\n" if name != "faulty" else "promt = 1\n"
        (tmp_path / f"{name}.toml").write_text(text)
    cache = FileCache(settled_after=-60)
    cache.begin("checks")
    first = load_folder(tmp_path, cache=cache)
    (tmp_path / "two.toml").write_text("[run]\nprompt = 'another'\n")
    cache.begin("checks")
    second = load_folder(tmp_path, cache=cache)
    assert second.routines["one"] is first.routines["one"]
    assert second.faults["faulty"] is first.faults["faulty"]
    assert second.routines["two"].run.prompt == "another"
    (tmp_path / "one.toml").unlink()
    cache.begin("checks")
    assert set(load_folder(tmp_path, cache=cache).routines) == {"two"}


def test_other_checks_read_all_files_again(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("[run]\nprompt = 'p'\n")
    cache = FileCache(settled_after=-60)
    cache.begin("checks")
    first = load_folder(tmp_path, cache=cache)

    def refuse(_: RoutineDefinition) -> list[Conflict]:
        return [Conflict("run.prompt", "is refused")]

    cache.begin("checks that refuse all")
    checks = [CrossFieldCheck((), refuse)]
    contents = load_folder(tmp_path, checks=checks, cache=cache)
    assert (list(contents.routines), list(contents.faults)) == ([], ["one"])
    cache.begin("checks")
    assert load_folder(tmp_path, cache=cache).routines == first.routines


def test_a_file_that_is_read_again_and_holds_the_same_is_the_routine_in_force(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text("[run]\nprompt = 'p'\n")
    cache = FileCache(settled_after=-60)
    cache.begin("checks")
    first = load_folder(tmp_path, cache=cache)
    (tmp_path / "two.toml").write_text("[run]\nprompt = 'another'\n")
    cache.begin("other checks", in_force=first.routines)
    second = load_folder(tmp_path, cache=cache)
    assert second.routines["one"] is first.routines["one"]
    assert second.routines["two"].run.prompt == "another"


def test_a_file_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text("[run]\nprompt = 'p'\n")
    cache = FileCache(settled_after=-60)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def let_no_file_be_opened(_: RoutineDefinition) -> list[Conflict]:
        free_descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(free_descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free_descriptor, limits[1]))
        return []

    cache.begin("checks")
    try:
        check = CrossFieldCheck((), let_no_file_be_opened)
        contents = load_folder(tmp_path, checks=[check], cache=cache)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "Too many open files" in str(contents.faults["two"])
    cache.begin("checks")
    assert set(load_folder(tmp_path, cache=cache).routines) == {"one", "two"}


def test_a_file_that_changed_just_now_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("[run]\nprompt = 'p'\n")
    cache = FileCache(settled_after=3600)
    cache.begin("checks")
    first = load_folder(tmp_path, cache=cache)
    cache.begin("checks")
    assert load_folder(tmp_path, cache=cache).routines["one"] is not first.routines["one"]


def test_a_file_whose_version_was_listed_is_not_looked_at_again(tmp_path: Path) -> None:
    file, new, gone = (tmp_path / f"{name}.toml" for name in ("one", "new", "gone"))
    for path in (file, gone):
        path.write_text("[run]\nprompt = 'p'\n")
    cache = FileCache(settled_after=-60)
    cache.begin("checks")
    first = load_folder(tmp_path, cache=cache)
    versions = {str(path): version_of(path) for path in (file, gone)}
    file.write_text("[run]\nprompt = 'another'\n")
    new.write_text("[run]\nprompt = 'new'\n")
    gone.unlink()
    cache.begin("checks", versions=versions)
    second = load_folder(tmp_path, cache=cache)
    assert second.routines["one"] is first.routines["one"], "read by the next load"
    assert set(second.routines) == {"one", "new"}
    cache.begin("checks", versions={str(file): version_of(file)})
    assert load_folder(tmp_path, cache=cache).routines["one"].run.prompt == "another"


def test_a_listed_file_that_is_a_pipe_by_now_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text("[run]\nprompt = 'p'\n")
    cache = FileCache(settled_after=-60)
    versions = {str(file): version_of(file)}
    file.unlink()
    os.mkfifo(file)
    cache.begin("checks", versions=versions)
    assert "not a regular file" in str(load_folder(tmp_path, cache=cache).faults["one"])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            (
                '[run]\nmode = "script"\n[[gather]]\nname = "x"\ntool = "sysinfo"\n'
                '[dedupe]\nkey = "titel"\n'
            ),
            "dedupe.key",
        ),
        ('[run]\nprompt = "x"\n[check.judge]\nrubric = 5\n', "check.judge.rubric"),
    ],
)
def test_a_broken_key_is_one_fault(text: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_routine(tmp_path / "a.toml")
    assert [fault.key for fault in error.value.faults] == [key]
