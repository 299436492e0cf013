"""What a text means, as numbers: one port, and a file per way to get them. None is needed; without one words decide.

Not here: when texts are embedded and what for (memory/meaning.py), how vectors are kept (memory/vectors.py).
"""

from __future__ import annotations

from daemon.memory.embedders.base import Embedder, EmbedderFailed

__all__ = ["Embedder", "EmbedderFailed"]
