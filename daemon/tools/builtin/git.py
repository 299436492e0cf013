"""The tool `git`: looks at repositories in the workspace and in `[paths] read`, without obeying
them (repository.py).

Not here: which sub-commands and options only look (policy/git.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.policy.policy import LivePolicy, Policy
from daemon.sandbox.current import SandboxSource, no_sandbox
from daemon.tools.builtin.command_lines import (
    MAX_PROGRAM_SECONDS,
    ZoneSource,
    no_zone,
    report_result,
    run_call,
)
from daemon.tools.registry import FunctionRegistry

ALL_REPOSITORIES = "*"
# Levels of folders below one in `[paths] read`: ~/src/project and ~/src/group/project.
_MAX_DEPTH = 2
_MAX_REPOSITORIES = 50  # of one call
_MAX_LINES = 100  # of the output for each repository
_MAX_FOLDERS = 2000  # that are searched for repositories, beneath each root


def register(
    registry: FunctionRegistry,
    settings: LivePolicy,
    *,
    sandbox: SandboxSource = no_sandbox,
    find_zone: ZoneSource = no_zone,
) -> None:
    """Offer the tool. `find_zone` returns the time zone that git shows times in."""

    async def git(command: str, repository: str = ".", *, context: ToolContext) -> str | Json:
        """Look at a git repository: log, status, diff, show, blame, shortlog, branch, tag, ls-files
        and their like. Nothing is changed and nothing is fetched.

        Args:
            command: Without the word git, for example: log --since=yesterday --oneline
            repository: Its folder; "*" for every repository that may be read, what is found then
                comes by repository.
        """
        policy, zone = settings.policy, find_zone()
        if repository != ALL_REPOSITORIES:
            call = {"command": command, "repository": repository}
            result = await run_call(
                "git", call, policy=policy, context=context, sandbox=sandbox, zone=zone
            )
            return report_result(result, verbatim=context.verbatim)
        folders = list(find_repositories(policy))
        if not folders:
            return (
                "no repository is in the workspace or in the folders that [paths] read of "
                "policy.toml names"
            )
        results: Json = {}
        for folder in folders[:_MAX_REPOSITORIES]:
            call = {"command": command, "repository": folder}
            try:
                text = report_result(
                    await run_call(
                        "git", call, policy=policy, context=context, sandbox=sandbox, zone=zone
                    )
                )
            except ToolFailed as fault:
                results[folder] = f"not known: {fault}"
                continue
            lines = [] if text == "(no output)" else text.splitlines()
            note = (
                [f"… and {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
            )
            results[folder] = [*lines[:_MAX_LINES], *note]
        return results

    registry.register("git", None, git, read_only=True, timeout=MAX_PROGRAM_SECONDS)


def find_repositories(policy: Policy) -> Iterator[str]:
    """Yield the repositories in the workspace and in `[paths] read`, as a call would name them."""
    reach = policy.reach
    paths = {
        os.path.realpath(path): None
        for root in (reach.workspace, *reach.readable)
        for path in _find_beneath(root)
    }
    for path in paths:
        yield "." if path == reach.workspace else path.removeprefix(f"{reach.workspace}/")


def _find_beneath(root: str) -> Iterator[str]:
    """Yield the folders that hold a .git, from `root` down; repositories inside others are not
    searched for.
    """
    folders = [(root, 0)]
    for count, (folder, depth) in enumerate(folders):
        if count >= _MAX_FOLDERS:
            return
        folder_names = _list_folders(folder)
        if ".git" in folder_names:
            yield folder
        elif depth < _MAX_DEPTH:
            folders += [
                (f"{folder.rstrip('/')}/{name}", depth + 1)
                for name in folder_names
                if name[0] != "."
            ]


def _list_folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # a file, or closed to us
        return []
