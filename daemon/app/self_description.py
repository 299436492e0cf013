"""What agents can find out about the daemon that runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.models import Json

if TYPE_CHECKING:
    from daemon.app.installation import Installation
    from daemon.definitions.config.config import Config
    from daemon.runs.settings import LiveSettings
    from daemon.scheduler.engine import RoutineEngine
    from daemon.store.database import Database
    from daemon.tools.registry import FunctionRegistry


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfDescription:
    """Describe the daemon and what its routines may do, for the tool `self_info`."""

    installation: Installation
    settings: LiveSettings
    engine: RoutineEngine
    registry: FunctionRegistry

    def describe_daemon(self) -> Json:
        """Return version, model, routines with their next start, workspace, tools and time zone.

        What `self_info` answers taints nobody, so it leaves out routines that tainted runs made:
        strangers may have chosen their names.
        """
        return {
            "version": __version__,
            "provider": self.settings.config.provider,
            "routines": {
                name: [start.isoformat() for start in self.engine.next_slots(name, 1)]
                for name, routine in self.engine.routines.items()
                if not (routine.origin and routine.origin.tainted)
            },
            "workspace": str(self.installation.workspace),
            "tools": self.registry.names(),
            "timezone": self.settings.zone.key,
        }

    def describe_routine(self, name: str) -> Json:
        """Return what a routine may do, and its limits; empty if there is none of that name."""
        routine = self.engine.routines.get(name.rpartition("/")[2])
        if routine is None:
            return {}
        spec, settings = routine.run, self.settings
        tools = self.registry.names(spec.tools)
        return {
            "when": self.engine.describe_schedule(routine),
            "tools": tools,
            "policy": settings.policy.summary(name, tools, language=settings.config.agent.language),
            "max_iterations": spec.max_iterations,
            "max_tool_calls": spec.max_tool_calls,
            "timeout": str(spec.timeout),
        }


def memory_seeds(
    installation: Installation, config: Config, database: Database, registry: FunctionRegistry
) -> dict[str, str]:
    """Return the items that memory begins with: where an agent's home is, by key."""
    return {
        "agentd:database": (
            f"The journal and memory are in {database.place}; tools cannot reach it."
        ),
        "agentd:logs": (
            f"The log is {installation.log_file}, one JSON object per line; `agentctl logs` shows "
            "it."
        ),
        "agentd:config": (
            f"The config is {config.file}, routines are in {config.routines_path}, the policy is "
            f"{config.policy_path}. People edit them; the daemon reads them again by itself."
        ),
        "agentd:tools": (
            f"Tools that exist here: {', '.join(registry.names())}. The policy judges each call."
        ),
    }
