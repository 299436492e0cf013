"""The intervals that tests set in the environment of a daemon."""

import pytest

from daemon.errors import ConfigError
from daemon.system.intervals import read_interval
from daemon.system.watch import seconds_between_wakes


def test_an_interval_is_read_from_the_environment():
    assert read_interval({"X": "0.1"}, "X") == 0.1
    assert read_interval({"X": ""}, "X") is read_interval({}, "X") is None
    assert seconds_between_wakes({}) == 1.0


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "1e9"])
def test_an_interval_that_is_none_is_refused_with_its_variable(text):
    with pytest.raises(ConfigError) as error:
        seconds_between_wakes({"AGENTD_WATCH_SECONDS": text})
    assert str(error.value) == (
        "the environment: AGENTD_WATCH_SECONDS: expected seconds, from 0.05 to 3600 "
        f"(found {text}); leave it out: it is for tests"
    )
