"""Tools of the user's own: functions of files beside config.toml, and of installed packages that
config.toml names.

They run inside the daemon with all its rights, so nobody else may be able to write their files, as
with the config. The policy says which of them an agent may call, as for any tool.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from daemon.definitions.words import did_you_mean, display
from daemon.errors import ConfigError, Fault
from daemon.policy.policy import refuse_if_shared
from daemon.tools.discovery import auto_discover_and_register
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

    from daemon.definitions.config.config import Config

ENTRY_POINT_GROUP = "agentd.tools"

ToolVersions: TypeAlias = tuple[object, dict[str, tuple[int, ...] | None]]
"""The table `[tools]`; and, for each file that it names, inode, size and time of change in
nanoseconds, or None for a missing file.
"""


def load(config: Config, *, sources: dict[str, str] | None = None) -> FunctionRegistry:
    """Return the tools of the files and packages of `[tools]`. Raises ConfigError with a fault for
    each one that cannot be used.

    The file or package of each tool is put into `sources`, by the tool's name.
    """
    registry, faults = FunctionRegistry(), list[Fault]()

    def add_sources(source: str) -> None:
        if sources is not None:
            sources.update({name: source for name in registry.names() if name not in sources})

    folder = config.folder / "tools"
    for index, name in enumerate(config.tools.files):
        key = f"tools.files[{index}]"
        try:
            _register(registry, _import_file(folder / Path(name).expanduser()))
            add_sources(name)
        except ConfigError as error:
            faults += error.faults
        except Exception as error:  # noqa: BLE001  whatever a file of the user's raises while it is imported
            faults.append(_make_fault(config, key, name, error))
    for name in config.tools.machines:
        names = (*config.tools.files, *config.tools.packages)
        if name not in names:
            problem, hint = "is neither among files nor among packages", did_you_mean(name, names)
            fault = Fault(
                file=display(config.file),
                key="tools.machines",
                found=name,
                problem=problem,
                hint=hint,
            )
            faults += config.with_lines([fault])
    entry_points = (
        {entry_point.name: entry_point for entry_point in _find_entry_points()}
        if config.tools.packages
        else {}
    )
    for index, name in enumerate(config.tools.packages):
        key = f"tools.packages[{index}]"
        if name not in entry_points:
            problem = f"no installed package has the entry point {ENTRY_POINT_GROUP}:{name}"
            fault = Fault(
                file=display(config.file),
                key=key,
                found=name,
                problem=problem,
                hint=did_you_mean(name, entry_points),
            )
            faults += config.with_lines([fault])
            continue
        try:
            _register(registry, entry_points[name].load())
            add_sources(name)
        except Exception as error:  # noqa: BLE001  whatever a package of the user's raises
            faults.append(_make_fault(config, key, name, error))
    if faults:
        raise ConfigError(*faults)
    return registry


def read_versions(config: Config) -> ToolVersions:
    """Return what changes when `[tools]` or one of the files that it names changes."""
    files: dict[str, tuple[int, ...] | None] = {}
    for name in config.tools.files:
        try:
            status = (config.folder / "tools" / Path(name).expanduser()).stat()
        except OSError:  # `load` says what is wrong with it
            files[name] = None
        else:
            files[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return config.tools, files


def find_changed_files(old_versions: ToolVersions, new_versions: ToolVersions) -> list[str]:
    """Return what differs between two results of `read_versions`: the files, or else the table."""
    (_, old_files), (_, new_files) = old_versions, new_versions
    names = [
        name for name in new_files if name not in old_files or new_files[name] != old_files[name]
    ]
    return [f"tools/{name}" for name in names] or ["[tools]"]


def _find_entry_points() -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _register(registry: FunctionRegistry, tool_source: Any) -> None:
    if not auto_discover_and_register(registry, [tool_source]):
        raise ValueError("holds no public function that could be a tool")


def _import_file(path: Path) -> ModuleType:
    """Import a file, under a name that shadows nothing."""
    path.stat()
    refuse_if_shared(path)
    from importlib.util import module_from_spec, spec_from_file_location

    name = f"agentd_tools_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("is not a Python file")
    module = module_from_spec(spec)
    # As in the recipe https://docs.python.org/3/library/importlib.html#importing-a-source-file-directly:
    # dataclasses and pydantic look the module of a class up there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _make_fault(config: Config, key: str, found: str, error: Exception) -> Fault:
    problem = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        problem = f"there is no such file in {config.folder / 'tools'}"
    elif not isinstance(error, ValueError):
        problem = f"{type(error).__name__}: {problem}"
    fault = Fault(
        file=display(config.file),
        key=key,
        found=found,
        problem=f"cannot be used as a tool: {problem}",
    )
    return config.with_lines([fault])[0]
