"""The tool `skill`: read a skill's guide, or a file that belongs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daemon.definitions.skills import SkillCatalog
from daemon.tools.registry import FunctionRegistry


def register(registry: FunctionRegistry, load_catalog: Callable[[], SkillCatalog]) -> None:
    """Register the tool. `load_catalog` reads the skills from the disk, anew for each call."""

    async def skill(name: str, file: str = "") -> str:
        """Read how something is done here: the guide of a skill, or one of the files it names.

        Args:
            name: A skill of the catalogue.
            file: A file of that skill, as its guide names it; empty for the guide itself.
        """
        catalog = await asyncio.to_thread(load_catalog)
        return catalog.read_guide(name, file)

    registry.register("skill", None, skill, read_only=True)
