"""The port behind which every embedder stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from daemon.errors import DaemonError


class EmbedderFailed(DaemonError):
    """An embedder gave no answer, or a useless one."""


class Embedder(ABC):
    """Something that turns texts into vectors."""

    name: str = ""
    """Vectors of different names are never compared: name the model."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order; EmbedderFailed."""

    async def warm(self) -> None:  # noqa: B027 - nothing to load is a fine answer
        """Load now what the first call would have to load; EmbedderFailed."""

    async def close(self) -> None:  # noqa: B027 - so is nothing to let go of
        """Let go of connections."""
