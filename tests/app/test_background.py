"""Background tasks of a daemon, each by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from daemon.app.background import watch_state
from daemon.app.main import EXIT_CODES
from daemon.errors import StateLost


@pytest.mark.parametrize("name", ["agentd.lock", "agentd.db"])
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_state_folder_that_was_deleted_or_replaced_ends_the_daemon(
    tmp_path: Path, name: str, is_replaced: bool
) -> None:
    for file in ("agentd.lock", "agentd.db"):
        (tmp_path / file).write_text("ours")
    watch = asyncio.create_task(watch_state(tmp_path, check_every=0.001))
    await asyncio.sleep(0)  # the task notes the files
    (tmp_path / name).rename(tmp_path / "elsewhere")  # so that its inode is not given to another
    if is_replaced:
        (tmp_path / name).write_text("theirs")
    with pytest.raises(StateLost, match="was deleted or replaced while agentd ran on it"):
        await watch


def test_agentd_ends_with_75_where_its_state_was_lost() -> None:
    assert dict(EXIT_CODES)[StateLost] == 75
