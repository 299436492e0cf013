"""The tool `config`: settings of agentd that are no secret, read; a few of them written, where the
policy names them.

What is written lies in a file of the state folder, above the person's own, which is never changed.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import Field

from daemon.errors import ToolFailed
from daemon.models import Json
from daemon.tools.registry import FunctionRegistry


class SettableConfig(Protocol):
    """The settings that agents may read, and those that they may write."""

    def show(self, key: str) -> object: ...
    async def set(self, key: str, value: str | float | bool) -> Json: ...
    async def reset(self, key: str) -> Json: ...


def register(registry: FunctionRegistry, settings: SettableConfig) -> None:
    """Offer the settings."""

    async def config(
        action: Literal["show", "set", "reset"],
        key: Annotated[
            str, Field(description="Like agent.language; show: a table or nothing for all of them")
        ] = "",
        value: Annotated[
            str | bool | int | float | None, Field(description="set: what it is to be")
        ] = None,
    ) -> object:
        """Look at the settings of agentd, as far as they are no secret; set one of yours, or take
        that back with reset.

        A setting that you write stands above the person's own file, which stays as it is.
        """
        if action == "show":
            return settings.show(key)
        if not key or (action == "set" and value is None):
            raise ToolFailed(f"{action} needs a key" + (" and a value" if action == "set" else ""))
        if action == "reset" or value is None:
            return await settings.reset(key)
        return await settings.set(key, value)

    registry.register("config", None, config)
