"""The intervals that tests set in the environment of a daemon."""

import asyncio

import pytest

from daemon.errors import ConfigError
from daemon.system.intervals import read_interval, until_next_multiple
from daemon.system.watch import seconds_between_wakes


def test_an_interval_is_read_from_the_environment():
    assert read_interval({"X": "0.1"}, "X") == 0.1
    assert read_interval({"X": ""}, "X") is read_interval({}, "X") is None
    assert seconds_between_wakes({}) == 1.0


async def test_tasks_with_intervals_that_divide_each_other_look_at_the_same_moments():
    clock = asyncio.get_running_loop().time
    half_minute, minute = (clock() + until_next_multiple(seconds) for seconds in (30, 60))
    assert half_minute / 30 == pytest.approx(round(half_minute / 30))
    assert minute in (pytest.approx(half_minute), pytest.approx(half_minute + 30))
    assert until_next_multiple(0) == 0


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e9"])
def test_an_interval_that_is_none_is_refused_with_its_variable(text):
    with pytest.raises(ConfigError) as error:
        seconds_between_wakes({"AGENTD_WATCH_SECONDS": text})
    assert str(error.value) == (
        "the environment: AGENTD_WATCH_SECONDS: expected seconds, from 0.05 to 3600 "
        f"(found {text}); leave it out: it is for tests"
    )
