"""What the page is told of the stream of events that it follows."""

from __future__ import annotations

from pathlib import Path

from daemon.web.app import DaemonClients, event_frames
from tests.api.harness import open_harness


async def read_frames(socket: Path, path: str) -> list[str]:
    """Return the events as the browser gets them, until the stream ends."""
    daemon = DaemonClients(str(socket), is_trusted=False)
    return [frame.decode() async for frame in event_frames(daemon, path)]


async def test_a_stream_that_the_daemon_refuses_is_told_from_a_daemon_that_is_gone(
    tmp_path: Path,
) -> None:
    async with open_harness(tmp_path) as harness:
        refused = await read_frames(harness.path, "/v1/runs/01ZZZZZZZZ/events")
    detail = "there is no run '01ZZZZZZZZ'; `agentctl runs` shows what there is"
    assert refused == [f'event: refused\ndata: {{"detail": "{detail}"}}\n\n']
    gone = await read_frames(tmp_path / "nobody.sock", "/v1/events")
    assert gone == ["event: gone\ndata: {}\n\n"]
