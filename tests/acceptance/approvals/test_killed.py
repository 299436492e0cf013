"""kill -9 while a run waits for an approval and at each write until its end: the approved call
starts at most once.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


async def test_approved_call_starts_at_most_once_after_kill_9_at_any_write(
    tmp_path: Path,
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.acceptance.approvals.crash_process", str(tmp_path)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    whole, *deaths = [json.loads(line) for line in out.splitlines()]
    assert (whole["effects"], whole["status"]) == (1, "succeeded")
    assert len(deaths) >= 10
    for death in deaths:
        assert death["status"] == "succeeded", death
        unknown = "outcome unknown" in death["told"]
        assert death["effects"] == 1 or (death["effects"] == 0 and unknown), death
    assert any("outcome unknown" in death["told"] for death in deaths), (
        "one died between start and result"
    )
