"""The key `pace`: what it may be, and whom it does not change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from daemon.definitions.routines.folder import load_folder, load_routine
from daemon.errors import ConfigError

AGENT = '\n[run]\nmode = "agent"\nprompt = "Look."\n'


def load(tmp_path: Any, text: str) -> Any:
    (tmp_path / "watch.toml").write_text(text)
    return load_routine(tmp_path / "watch.toml")


def test_a_pace_is_the_shortest_and_the_longest_wait(tmp_path: Any) -> None:
    routine = load(tmp_path, f'[trigger]\npace = "5m .. 6h"{AGENT}')
    assert routine.pace == (timedelta(minutes=5), timedelta(hours=6))
    assert routine.is_automatic
    assert routine.event_words == ("5 minutes to 6 hours after each run, as the run says",)
    hourly = load(tmp_path, f'[trigger]\npace = "1h..1d"{AGENT}')
    assert hourly.event_words == ("1 hour to 1 day after each run, as the run says",)


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ('[trigger]\npace = "5m"', "trigger.pace", 'expected two durations, like "5m..6h"'),
        ('[trigger]\npace = "6h..5m"', "trigger.pace", "shorter than the shortest"),
        ('[trigger]\npace = "0s..5m"', "trigger.pace", "less than a second"),
        ('[trigger]\npace = "5m..soon"', "trigger.pace", "expected a duration"),
        ("[trigger]\npace = 5", "trigger.pace", "expected text"),
        ('[trigger]\npace = "5m..6h"\nevery = "1h"', "trigger", "every and pace exclude"),
        ('[trigger]\npace = "5m..6h"\nspread = "1m"', "trigger.spread", "is for cron"),
        (
            '[[trigger]]\npace = "5m..6h"\n[[trigger]]\npace = "1m..6h"',
            "trigger[1].pace",
            "trigger[0] has one already",
        ),
    ],
)
def test_a_pace_that_means_nothing_is_refused(
    tmp_path: Any, text: str, key: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text + AGENT)
    (fault,) = error.value.faults
    assert fault.key == key
    assert problem in fault.problem


@pytest.mark.parametrize("mode", ["script", "collect-then-summarise"])
def test_a_run_without_tools_has_no_pace(tmp_path: Any, mode: str) -> None:
    gather = '[[gather]]\nname = "a"\ntool = "sysinfo"\n'
    prompt = "" if mode == "script" else 'prompt = "a"\n'
    with pytest.raises(ConfigError) as error:
        load(tmp_path, f'[trigger]\npace = "5m..6h"\n[run]\nmode = "{mode}"\n{prompt}{gather}')
    (fault,) = error.value.faults
    assert fault.key == "trigger.pace"
    assert "this mode offers no tools" in fault.problem


def test_the_key_of_other_schedules_stays_as_it_was(tmp_path: Any) -> None:
    """A new one would begin their baselines anew with an update of agentd."""
    routine = load(tmp_path, f'[trigger]\ncron = "0 9 * * *"{AGENT}')
    assert "pace" not in routine.dump()
    assert routine.schedule_key == "e57c10758080f99f"


def test_an_agent_may_give_a_pace(tmp_path: Any) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "watch.toml").write_text(
        f'[trigger]\npace = "1h..6h"{AGENT}[origin]\nroutine = "a"\nrun = "b"\n'
    )
    contents = load_folder(tmp_path, agent_folder=tmp_path / "made")
    assert contents.faults == {}
    assert contents.routines["watch"].pace
