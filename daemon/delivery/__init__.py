"""Reports on their way to their targets: which ends are told where, in what words, and until when it is tried.

`outbox.py` sends; a channel per file (`file.py`, `log.py`) knows how one kind of target is reached; `letter.py` words
a report for its reader. Not here: the outbox rows, which the journal commits together with the end of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from daemon.delivery.base import Channel, deliveries_for
from daemon.delivery.file import FileChannel
from daemon.delivery.log import LogChannel
from daemon.delivery.outbox import Outbox

__all__ = ["CHANNELS", "Channel", "Outbox", "deliveries_for"]

CHANNELS: Mapping[str, Callable[[Path], Channel]] = {
    "file": FileChannel,
    "log": lambda workspace: LogChannel(),
}
"""What `to` may name; each is built on the workspace."""
