"""Load a folder of routine files, and compare it with the routines in force."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from daemon.definitions.calendar_file import Calendar, CalendarError, read_calendar
from daemon.definitions.file_versions import version_of_status
from daemon.definitions.reading import (
    Conflict,
    CrossFieldCheck,
    FileUnreadable,
    parse,
    parse_toml,
    read_text,
    with_lines_of_file,
)
from daemon.definitions.routines.chains import find_broken_chains, find_cycles
from daemon.definitions.routines.checks import AGENT_CHECKS, PEOPLE_CHECKS, ROUTINE_CHECKS
from daemon.definitions.routines.routine import Routine, RoutineDefinition
from daemon.definitions.words import display
from daemon.errors import ConfigError, Fault, Refused

# What the runs of people's questions and of sub-agents have in the place of a routine.
PSEUDO_ROUTINES = ("ask", "subagent")
RESERVED = (*PSEUDO_ROUTINES, "last")  # `agentctl inspect last` is the newest run of all
# The folder, in the state folder, with the routines that agents made.
AGENT_FOLDER = "routines.d"


def load_routine(
    path: Path, *, checks: Sequence[CrossFieldCheck[RoutineDefinition]] = ()
) -> Routine:
    """Return the routine of a file. Raises ConfigError with all its faults, also by further
    `checks`; FileUnreadable, which is one, if the file cannot be read.
    """
    try:
        text = read_text(path)
        return routine_of(parse_toml(text, path), path, checks=checks, text=text)
    except ConfigError as error:
        faults = name_faults(path.name.removesuffix(".toml"), path)
        raise type(error)(*dict.fromkeys([*faults, *error.faults])) from None


def routine_of(
    data: Mapping[str, object],
    path: Path,
    *,
    checks: Sequence[CrossFieldCheck[RoutineDefinition]] = (),
    text: str = "",
) -> Routine:
    """Return the routine of a file at `path` with this data, which need not exist. Raises
    ConfigError with all its faults, with their lines in `text`, the TOML of the data.
    """
    name = path.name.removesuffix(".toml")
    faults = list(name_faults(name, path))
    try:
        definition = parse(
            dict(data), RoutineDefinition, file=path, checks=(*ROUTINE_CHECKS, *checks), text=text
        )
    except ConfigError as error:
        raise ConfigError(*faults, *error.faults) from None
    if faults:
        raise ConfigError(*faults)
    return Routine.model_validate(vars(definition) | {"name": name, "path": path})


def name_faults(name: str, path: Path) -> Iterator[Fault]:
    """Yield a fault if a routine may not have this name."""
    if name in RESERVED:
        yield Fault(
            file=display(path),
            key="",
            found="",
            problem=f'the name "{name}" is taken by agentd',
            hint="rename it",
        )
    elif not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        hint = f"rename it to {better}.toml" if better else "rename it"
        problem = "a routine's name is made of a-z, 0-9 and -"
        yield Fault(file=display(path), key="", found=display(name), problem=problem, hint=hint)


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The routines of a folder, and those that cannot be used, each by name."""

    routines: dict[str, Routine] = field(default_factory=dict)
    faults: dict[str, ConfigError] = field(default_factory=dict)
    """The error with all faults of each routine that cannot be used."""


# Seconds. A file may be written again within one tick of the file system's clock, by as many bytes:
# one that changed this short before it was read is read again.
_CLOCK_TICK = 2.0


class _LoadedFile(NamedTuple):
    """What a routine file held when it had this version."""

    version: tuple[int, ...]
    result: Routine | ConfigError
    has_references: bool
    """Whether the routine names others or calendars, so that a load has to look whether these are
    there. Noted here, as to ask ten thousand routines takes 0.03 s.
    """


class FileCache:
    """What routine files held when they were read, for files that have not changed since.

    One loader at a time may use it.
    """

    def __init__(self, *, settled_after: float = _CLOCK_TICK) -> None:
        """`settled_after` is the age in seconds from which on a change is not one of this tick."""
        self._settled_after = settled_after
        self._checks_key: object = None
        self._is_stale = True
        """Whether the checks have changed since the last load, so that all files are read."""
        self._last: dict[str, _LoadedFile] = {}
        """The files of the last load, by path."""
        self._current: dict[str, _LoadedFile] = {}
        """Those of the load under way."""
        self._in_force: Mapping[str, Routine] = {}
        self._versions: Mapping[str, tuple[int, ...]] = {}

    def begin(
        self,
        checks_key: object,
        *,
        in_force: Mapping[str, Routine] | None = None,
        versions: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Begin a load with the checks of this key; with those of another one all files are read.

        `in_force` are the routines that the loaded ones will be compared with, by name. `versions`
        are those of files that were looked at a moment ago, by path: if they are those of the last
        load, the files are not looked at again, which takes 0.05 s for ten thousand. A file that
        has changed in that moment is read at the next load.
        """
        self._last, self._current, self._in_force = self._current, {}, in_force or {}
        self._versions = versions or {}
        self._is_stale, self._checks_key = checks_key != self._checks_key, checks_key

    def get_listed(self, path: str) -> _LoadedFile | None:
        """Return what a file held whose version is among those of a moment ago; None if it has to
        be looked at.
        """
        version = self._versions.get(path)
        return None if version is None else self.get(path, version)

    def get(self, path: str, version: tuple[int, ...]) -> _LoadedFile | None:
        """Return what a file held; None if it has to be read."""
        file = self._last.get(path)
        if self._is_stale or file is None or file.version != version:
            return None
        self._current[path] = file
        return file

    def put(
        self, path: str, version: tuple[int, ...], result: Routine | ConfigError
    ) -> _LoadedFile:
        """Remember and return what a file held that had this version before it was read.

        If an equal routine is in force, that object is returned: to compare ten thousand equal
        routines by their fields takes 0.1 s at each later load.
        """
        if isinstance(result, Routine):
            in_force = self._in_force.get(result.name)
            if in_force is not None and in_force == result:
                result = in_force
        file = _LoadedFile(version, result, _has_references(result))
        is_settled = version[-1] < (time.time() - self._settled_after) * 1e9
        # what kept a file from being read may be gone by the next load
        was_read = not isinstance(result, FileUnreadable)
        if is_settled and was_read and not _depends_on_other_files(result):
            self._current[path] = file
        return file


def _has_references(result: Routine | ConfigError) -> bool:
    """Tell whether a routine names other routines or calendars."""
    if isinstance(result, ConfigError):
        return False
    return bool(result.run.context_from) or any(
        trigger.after or trigger.skipped_calendars for trigger in result.triggers
    )


def _depends_on_other_files(result: Routine | ConfigError) -> bool:
    """Tell whether what a routine file holds was checked against a file that it names."""
    if isinstance(result, ConfigError):
        return any(fault.key == "check.schema" or ".skip" in fault.key for fault in result.faults)
    has_calendars = any(trigger.skipped_calendars for trigger in result.triggers)
    return has_calendars or (result.check is not None and result.check.schema_file is not None)


def load_folder(
    folder: Path,
    *,
    agent_folder: Path | None = None,
    checks: Sequence[CrossFieldCheck[RoutineDefinition]] = (),
    cache: FileCache | None = None,
    workspace: Path | None = None,
) -> FolderContents:
    """Return the routines of a folder, checked by `checks` as well, and the faults of each file.

    With a `workspace` they have the calendars that they skip: without, they skip only dates. Files
    that `cache` knows are not read again. `agent_folder` has the routines that agents made.
    If one of them has the name of a person's routine, it gets a fault under the name
    `routines.d/NAME`.
    """
    contents, referrers = _read(folder, (*PEOPLE_CHECKS, *checks), cache)
    if agent_folder is not None:
        agent_routines, agent_referrers = _read(agent_folder, (*AGENT_CHECKS, *checks), cache)
        referrers += agent_referrers
        names = contents.routines.keys() | contents.faults.keys()
        for name in names & agent_routines.routines.keys():
            agent_routines.faults[name] = ConfigError(
                Fault(
                    file=display(agent_folder / f"{name}.toml"),
                    key="",
                    found="",
                    problem="a routine of yours has this name",
                    hint="remove it",
                )
            )
            del agent_routines.routines[name]
        contents.routines.update(agent_routines.routines)
        contents.faults.update(
            {
                f"{AGENT_FOLDER}/{key}" if key in names else key: error
                for key, error in agent_routines.faults.items()
            }
        )
    if workspace is not None:
        _read_calendars(contents, referrers, workspace)
    chain_faults = find_broken_chains(
        contents.routines, unreadable=contents.faults, among=referrers
    )
    for name, error in chain_faults.items():
        contents.faults[name] = _with_lines(error, contents.routines.pop(name))
    return contents


def _with_lines(error: ConfigError, routine: Routine) -> ConfigError:
    """Return the error of a routine with the lines of its file in the faults."""
    return ConfigError(*with_lines_of_file(error.faults, routine.path)) if routine.path else error


def _read_calendars(contents: FolderContents, names: Iterable[str], workspace: Path) -> None:
    """Give these routines the calendars that they name, each file being read once."""
    calendars: dict[str, Calendar] = {}
    for name in names:
        if (routine := contents.routines.get(name)) is None:  # one of an agent that has a fault
            continue
        keyed_paths = [
            (f"{key}.skip", path)
            for key, trigger in routine.keyed_triggers
            for path in trigger.skipped_calendars
        ]
        if not keyed_paths:
            continue
        for key, path in keyed_paths:
            try:
                if path not in calendars:
                    calendars[path] = read_calendar(workspace, path)
            except CalendarError as error:
                file = display(routine.path or f"{name}.toml")
                fault = Fault(file=file, key=key, found=path, problem=str(error))
                contents.faults[name] = _with_lines(ConfigError(fault), routine)
                del contents.routines[name]
                break
        else:
            paths = dict.fromkeys(path for _, path in keyed_paths)
            update = {"calendars": tuple(calendars[path] for path in paths)}
            contents.routines[name] = routine.model_copy(update=update)


def calendar_checks(workspace: Path) -> tuple[CrossFieldCheck[RoutineDefinition], ...]:
    """Return the check that the calendars that a routine skips can be read. Many routines may name
    one calendar: the check reads each once, as long as it is used.
    """
    problems: dict[str, str] = {}

    def check(routine: RoutineDefinition) -> Iterator[Conflict]:
        for key, trigger in routine.keyed_triggers:
            for index, path in enumerate(trigger.skip or ()):
                if path not in trigger.skipped_calendars:
                    continue
                if path not in problems:
                    problems[path] = ""
                    try:
                        read_calendar(workspace, path)
                    except CalendarError as error:
                        problems[path] = str(error)
                if problem := problems[path]:
                    hint = f"it is looked for in {workspace}; once it is mended: agentctl reload"
                    yield Conflict(f"{key}.skip[{index}]", problem, path, hint)

    return (CrossFieldCheck(("trigger.skip",), check),)


def _read(
    folder: Path,
    checks: Sequence[CrossFieldCheck[RoutineDefinition]],
    cache: FileCache | None = None,
) -> tuple[FolderContents, list[str]]:
    """Return the routines of one folder, and the names of those that name others or calendars."""
    contents, referrers = FolderContents(), []
    for entry in _entries(folder):
        _, result, has_references = _load_cached(entry, checks, cache)
        if isinstance(result, ConfigError):
            contents.faults[display(entry.name).removesuffix(".toml")] = result
        else:
            contents.routines[result.name] = result
            if has_references:
                referrers.append(result.name)
    return contents, referrers


def _load_cached(
    entry: os.DirEntry[str],
    checks: Sequence[CrossFieldCheck[RoutineDefinition]],
    cache: FileCache | None,
) -> _LoadedFile:
    """Return what a file holds, from the cache if the file has not changed."""
    if cache and (file := cache.get_listed(entry.path)):
        return file
    try:
        if not entry.is_file():  # opening a pipe would wait for its writer forever
            problem = "is not a regular file"
            fault = Fault(file=display(Path(entry.path)), key="", found="", problem=problem)
            return _LoadedFile((), ConfigError(fault), has_references=False)
        version = version_of_status(entry.stat())
    except OSError:  # gone meanwhile: reading it says so
        version = ()
    if cache and version:
        return cache.get(entry.path, version) or cache.put(
            entry.path, version, _load_or_faults(entry, checks)
        )
    result = _load_or_faults(entry, checks)
    return _LoadedFile(version, result, _has_references(result))


def _load_or_faults(
    entry: os.DirEntry[str], checks: Sequence[CrossFieldCheck[RoutineDefinition]]
) -> Routine | ConfigError:
    try:
        return load_routine(Path(entry.path), checks=checks)
    except ConfigError as error:
        return error


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry for entry in entries if is_routine_file(entry.name)),
                key=lambda entry: entry.name,
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        problem = f"the folder of routines cannot be read: {error.strerror}"
        raise ConfigError(Fault(file=display(folder), key="", found="", problem=problem)) from None


def write_new(path: Path, text: str) -> None:
    """Write a routine file atomically. Raises Refused if the file exists or cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)  # unlike a rename it replaces nothing
        except FileExistsError:
            problem = (
                f"{display(path)} is there already, and nothing is overwritten; choose another name"
            )
            raise Refused(problem) from None
        finally:
            temporary.unlink()
    except OSError as error:
        raise Refused(f"{display(path)} cannot be written: {error.strerror}") from None


def is_routine_file(name: str) -> bool:
    """Tell whether a file of this name is a routine: editors leave other files in the folder."""
    return name.endswith(".toml") and not name.startswith(".")


@dataclass(frozen=True, slots=True)
class RoutineChanges:
    """How the routines change by a reload, by name."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    schedule_changed: tuple[str, ...] = ()
    """Those of `changed` that get a new baseline."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def diff(old: Mapping[str, Routine], new: Mapping[str, Routine]) -> RoutineChanges:
    """Return how `new` differs from `old`."""
    changed_names = tuple(
        name
        for name, routine in new.items()
        # most are the same object: to compare ten thousand by their fields takes 0.1 s
        if name in old and routine is not old[name] and routine != old[name]
    )
    return RoutineChanges(
        added=tuple(name for name in new if name not in old),
        changed=changed_names,
        removed=tuple(name for name in old if name not in new),
        schedule_changed=tuple(
            name for name in changed_names if new[name].schedule_key != old[name].schedule_key
        ),
    )


def compare_with_old(
    old: Mapping[str, Routine], contents: FolderContents
) -> tuple[dict[str, Routine], dict[str, ConfigError], RoutineChanges]:
    """Return the routines to use from now on, the faults of files, and the difference to `old`.

    Unchanged routines stay the same objects. The new copies are released here, as callers run this
    in a thread: to release ten thousand of them would hold up the event loop.
    """
    new, faults = merge_with_old(old, contents)
    changes = diff(old, new)
    for name in new.keys() - {*changes.added, *changes.changed}:
        new[name] = old[name]
        if name in contents.routines:
            contents.routines[name] = old[name]
    return new, faults, changes


def merge_with_old(
    old: Mapping[str, Routine], contents: FolderContents
) -> tuple[dict[str, Routine], dict[str, ConfigError]]:
    """Return the routines to use from now on, and the faults: a faulty file keeps its old routine.

    Such an old routine may close a cycle (`after`) with new ones: then the new ones get a fault.
    """
    kept_routines = {name: old[name] for name in contents.faults if name in old}
    new, faults = contents.routines | kept_routines, dict(contents.faults)
    if not kept_routines:  # those of one folder were checked together
        return new, faults
    while cycle_errors := {
        name: error for name, error in find_cycles(new).items() if new[name] != old.get(name)
    }:
        for name, error in cycle_errors.items():
            faults[name] = _with_lines(error, new.pop(name))
        new |= {name: old[name] for name in cycle_errors if name in old}
    return new, faults
