"""The skills beside the config, read from disk when a run needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from daemon.definitions.skills import SkillCatalog
    from daemon.runs.settings import LiveSettings

log = structlog.get_logger()


class SkillFolder:
    """Read the skills, and log what is wrong with them once."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings
        self._logged_faults: set[str] = set()

    def load(self) -> SkillCatalog:
        """Return the skills as they are on disk now. Blocks."""
        from daemon.definitions.skills import load_skills

        catalog = load_skills(self._settings.config.folder / "skills")
        for fault in {str(fault) for fault in catalog.faults.values()} - self._logged_faults:
            log.warning("skill.invalid", fault=fault)
            self._logged_faults.add(fault)
        return catalog
