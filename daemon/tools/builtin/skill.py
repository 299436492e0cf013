"""The tool `skill`: read a skill's guide, or a file that belongs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daemon.definitions.skills import SkillCatalog
from daemon.tools.registry import FunctionRegistry


def register(registry: FunctionRegistry, catalog: Callable[[], SkillCatalog]) -> None:
    """Offer the tool; `catalog` reads the skills there are now."""

    async def skill(name: str, file: str = "") -> str:
        """Read how something is done here: the guide of a skill, or one of the files it names.

        Args:
            name: A skill of the catalogue.
            file: A file of that skill, as its guide names it; empty for the guide itself.
        """
        skills = await asyncio.to_thread(catalog)
        return skills.read(name, file)

    registry.register("skill", None, skill, read_only=True)
