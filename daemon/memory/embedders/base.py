"""The abstract class of all embedders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from daemon.errors import DaemonError


class EmbedderFailed(DaemonError):
    """An embedder failed, or returned something other than vectors."""

    def __init__(self, problem: str, *, status: int | None = None) -> None:
        """`status` is that of a server's answer; None if there was none of another status than
        200.
        """
        super().__init__(problem)
        self.status = status


class Embedder(ABC):
    """Turn texts into vectors."""

    name: str = ""
    """The name of the model; vectors of different names are never compared."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order; raises EmbedderFailed."""

    async def close(self) -> None:  # noqa: B027 - an embedder may have nothing to close
        """Close connections."""
