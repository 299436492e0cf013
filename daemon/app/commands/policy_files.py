"""The files that all verbs of `agentd policy` read and write, and their output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.definitions.words import display
from daemon.errors import Refused
from daemon.system.replace_file import replace_file

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.routines.folder import FolderContents
    from daemon.definitions.routines.routine import Routine
    from daemon.models import Json
    from daemon.policy.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyFiles:
    """The config, policy and routines that the verbs of `agentd policy` work on."""

    config: Config
    state: Path
    socket: Path
    as_json: bool

    def load(self, file: Path | None = None) -> Policy:
        """Load a policy as the daemon would: that in `file`, by default that of the config. Raises
        ConfigError.
        """
        from daemon.app.policy import load_policy, with_folders_in_use
        from daemon.tools import user_tools

        policy = load_policy(
            self.config,
            state=self.state,
            socket=self.socket,
            own_tools=user_tools.load(self.config).names(),
            file=file,
        )
        return with_folders_in_use(policy, self.config, self.load_routines(), state=self.state)

    def make_reader(self) -> Callable[[str], Policy]:
        """Return a function that reads the text of a policy with all checks of `policy check`, and
        raises ConfigError with the faults.
        """
        from daemon.app.policy import with_folders_in_use
        from daemon.policy.policy import Policy
        from daemon.tools import user_tools

        workspace = self.config.workspace_path(self.state)
        tools, routines = user_tools.load(self.config).names(), self.load_routines()
        name = display(self.config.policy_path)

        def read(text: str) -> Policy:
            # some editors begin a file with a byte order mark, which TOML does not know
            plain_text = text.removeprefix("\ufeff")
            policy = Policy.read(plain_text, workspace=workspace, tools=tools, name=name)
            policy = replace(policy, text=text)
            return with_folders_in_use(policy, self.config, routines, state=self.state)

        return read

    def is_made_by_agent(self, routine: str) -> bool:
        """Return whether an agent made a routine, which then has the rights of its maker."""
        from daemon.definitions.routines.folder import AGENT_FOLDER

        own_file = self.config.routines_path / f"{routine}.toml"
        agent_file = self.state / AGENT_FOLDER / f"{routine}.toml"
        return agent_file.is_file() and not own_file.exists()

    def write_policy(self, old_text: str, new_text: str) -> None:
        """Replace the text of the policy that the config names. Raises Refused if the file no
        longer has `old_text`, belongs to another user, or cannot be written.
        """
        file = self.config.policy_path.resolve()  # a link stays one
        try:
            status = file.stat()
            if status.st_uid != os.geteuid():
                raise Refused(
                    f"{display(file)} belongs to another user (uid {status.st_uid}); do it as that "
                    "user"
                )
            if file.read_bytes().decode() != old_text:
                raise Refused(f"{display(file)} was changed meanwhile; look at it again")
            replace_file(file, new_text.encode(), mode=status.st_mode & 0o777)
        except OSError as error:
            raise Refused(f"{display(file)} cannot be written: {error.strerror}") from None

    def load_routines(self) -> list[Routine]:
        """Return the routines that have no fault, with those that agents made."""
        return list(self._load_folder().routines.values())

    def find_routine_names(self) -> set[str]:
        """Return the names of all routines, also of those that have a fault."""
        contents = self._load_folder()
        return {*contents.routines, *contents.faults}

    def find_tool_names(self) -> set[str]:
        """Return the names of all tools but those of MCP servers, which are known once these
        answer.
        """
        from daemon.policy.policy_file import TOOLS
        from daemon.tools import user_tools

        return {*TOOLS, *user_tools.load(self.config).names()}

    def _load_folder(self) -> FolderContents:
        from daemon.definitions.routines.folder import AGENT_FOLDER, FolderContents, load_folder
        from daemon.errors import ConfigError

        try:
            return load_folder(self.config.routines_path, agent_folder=self.state / AGENT_FOLDER)
        except ConfigError:
            return FolderContents()  # `validate` says what is wrong with them

    def print_result(self, value: Json, text: str) -> None:
        """Print `value` as JSON, or `text` for people."""
        sys.stdout.write(
            (json.dumps(value, ensure_ascii=False) if self.as_json else text.rstrip()) + "\n"
        )
