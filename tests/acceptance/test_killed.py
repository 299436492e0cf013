"""kill -9 of a real process at each write of the slot ledger: each slot is accounted for exactly
once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


async def test_the_ledger_is_complete_after_kill_9_at_any_write(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.acceptance.crash_process", str(tmp_path)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    whole_life, *deaths = [json.loads(line) for line in out.splitlines()]
    expected = whole_life["ledger"]
    assert expected["daily"] == ["01 09:00-03 09:00 x3 missed", "04 09:00-04 09:00 x1 caught_up"]
    assert expected["never"] == ["01 09:00-04 09:00 x4 missed"]
    assert expected["starting"] == ["01 08:00-01 08:00 x1 ran", "04 13:00-04 13:00 x1 skipped"]
    assert expected["pulse"][-1] == "04 13:00-04 13:00 x1 ran"
    assert [row.split()[-1] for row in expected["paused"]] == ["skipped", "missed", "ran"]
    assert len(deaths) == 2 * whole_life["ended"] > 0
    for death in deaths:
        assert death["ended"] == -signal.SIGKILL, death
        assert death["ledger"] == expected, f"killed {death['where']} write {death['number']}"
