"""The short form of `python -m tests.chaos`, beside the other soaks: no promise is broken.

`fleet` has a soak of its own (tests/acceptance/cluster/test_chaos.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.parts import PARTS
from tests.chaos.storm import table


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", [part for part in PARTS if part != "fleet"])
async def test_no_promise_is_broken_whatever_is_done_to_a_daemon(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    part: str,
) -> None:
    seconds = request.config.getoption("--soak-seconds") / 10
    breaches = await PARTS[part](tmp_path / part, seconds)
    with capsys.disabled():
        print("\n" + table([(part, seconds, breaches)]))
    assert not breaches.is_broken, breaches.examples
