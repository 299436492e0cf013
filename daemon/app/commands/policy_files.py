"""What all verbs on the policy look at, and how they say what they found."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.routines.routine import Routine
    from daemon.models import Json
    from daemon.policy.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyFiles:
    """What the verbs of `agentd policy` read, and how they write."""

    config: Config
    state: Path
    as_json: bool

    def policy(self, file: Path | None = None) -> Policy:
        """Load a policy as the daemon would: `file`, or that of the config."""
        from daemon.policy.policy import Policy

        private = (self.config.file, self.state / "agentd.db", self.state / "logs")
        workspace = self.config.workspace_path(self.state)
        return Policy.load(file or self.config.policy_path, workspace=workspace, private=private)

    def routines(self) -> list[Routine]:
        from daemon.definitions.routines.folder import load_folder
        from daemon.errors import ConfigError

        try:
            return list(load_folder(self.config.routines_path).routines.values())
        except ConfigError:
            return []  # `validate` says what is wrong with them

    def write(self, value: Json, text: str) -> None:
        """Print `value` as JSON, or `text` for people."""
        sys.stdout.write(
            (json.dumps(value, ensure_ascii=False) if self.as_json else text.rstrip()) + "\n"
        )
