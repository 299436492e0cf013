"""The config as parts of the daemon read it: anew at each use, since a reload replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from daemon.definitions.config.config import Config


class LiveConfig(Protocol):
    """Give the config in force and its time zone. Keep neither: a reload replaces both."""

    @property
    def config(self) -> Config: ...
    @property
    def zone(self) -> ZoneInfo: ...
