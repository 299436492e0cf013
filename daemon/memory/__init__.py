"""What earlier runs left behind, found again: items by key, runs in pieces with anchors, one index over both.

Not here: what of a run is worth keeping (archive.py), and the tools by which a model uses it (tools/memory.py).
"""

from daemon.memory.memory import Item, Memory
from daemon.memory.pieces import Segment

__all__ = ["Item", "Memory", "Segment"]
