"""A folder of routine files: load it, and say how it differs from what it was."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from daemon.definitions.reading import CrossFieldCheck, parse, read_toml
from daemon.definitions.routines.chains import circles, tangled
from daemon.definitions.routines.routine import Routine, RoutineDefinition
from daemon.definitions.routines.rules import OF_AGENTS, OF_PEOPLE, RULES
from daemon.definitions.words import display
from daemon.errors import ConfigError, Fault, Refused

RESERVED = ("ask", "subagent")
# The folder of the state in which the routines lie that agents made.
MADE = "routines.d"


def load_routine(
    path: Path, *, rules: Sequence[CrossFieldCheck[RoutineDefinition]] = ()
) -> Routine:
    """Return the routine of one file; ConfigError with all its faults, those by more `rules` among
    them.
    """
    try:
        return routine_of(read_toml(path), path, rules=rules)
    except ConfigError as error:
        faults = name_faults(path.name.removesuffix(".toml"), path)
        raise ConfigError(*dict.fromkeys([*faults, *error.faults])) from None


def routine_of(
    data: Mapping[str, object],
    path: Path,
    *,
    rules: Sequence[CrossFieldCheck[RoutineDefinition]] = (),
) -> Routine:
    """Return the routine that a file there would hold; ConfigError with all its faults."""
    name = path.name.removesuffix(".toml")
    faults = list(name_faults(name, path))
    try:
        definition = parse(dict(data), RoutineDefinition, file=path, rules=(*RULES, *rules))
    except ConfigError as error:
        raise ConfigError(*faults, *error.faults) from None
    if faults:
        raise ConfigError(*faults)
    return Routine.model_validate(vars(definition) | {"name": name, "path": path})


def name_faults(name: str, path: Path) -> Iterator[Fault]:
    """Yield why no routine may have this name."""
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
class Loaded:
    """What a folder of routines held: those that live, and why the others do not."""

    routines: dict[str, Routine] = field(default_factory=dict)
    faults: dict[str, ConfigError] = field(default_factory=dict)


def load_folder(
    folder: Path,
    *,
    made: Path | None = None,
    rules: Sequence[CrossFieldCheck[RoutineDefinition]] = (),
) -> Loaded:
    """Return every routine of a folder, by more `rules` too; one bad file harms no other.

    In `made` lie those that agents made. Where one of them has the name of a person's, the person's
    counts, and the other's fault stands under `routines.d/NAME`.
    """
    loaded = _read(folder, (*OF_PEOPLE, *rules))
    if made is not None:
        theirs = _read(made, (*OF_AGENTS, *rules))
        taken = loaded.routines.keys() | loaded.faults.keys()
        for name in taken & theirs.routines.keys():
            file, problem = display(made / f"{name}.toml"), "a routine of yours has this name"
            theirs.faults[name] = ConfigError(
                Fault(file=file, key="", found="", problem=problem, hint="remove it")
            )
            del theirs.routines[name]
        loaded.routines.update(theirs.routines)
        loaded.faults.update(
            {
                f"{MADE}/{key}" if key in taken else key: fault
                for key, fault in theirs.faults.items()
            }
        )
    for name, fault in tangled(loaded.routines, unread=loaded.faults).items():
        del loaded.routines[name]
        loaded.faults[name] = fault
    return loaded


def _read(folder: Path, rules: Sequence[CrossFieldCheck[RoutineDefinition]]) -> Loaded:
    """Return the routines of one folder, each by itself."""
    loaded = Loaded()
    for entry in _entries(folder):
        name = display(entry.name).removesuffix(".toml")
        path = folder / entry.name
        try:
            if not entry.is_file():  # opening a pipe would wait for its writer forever
                raise ConfigError(
                    Fault(file=display(path), key="", found="", problem="is not a regular file")
                )
            routine = load_routine(path, rules=rules)
        except ConfigError as error:
            loaded.faults[name] = error
        else:
            loaded.routines[name] = routine
    return loaded


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
    """Write a routine file, whole or not at all; Refused if there is one already."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(hidden, path)  # unlike a rename it replaces nothing
        except FileExistsError:
            told = (
                f"{display(path)} is there already, and nothing is overwritten; choose another name"
            )
            raise Refused(told) from None
        finally:
            hidden.unlink()
    except OSError as error:
        raise Refused(f"{display(path)} cannot be written: {error.strerror}") from None


def is_routine_file(name: str) -> bool:
    """Tell whether a file of this name counts: editors leave others in the folder."""
    return name.endswith(".toml") and not name.startswith(".")


@dataclass(frozen=True, slots=True)
class Changes:
    """What a reload brings, by name."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    schedule_changed: tuple[str, ...] = ()
    """Those of `changed` that get a new baseline."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def diff(old: Mapping[str, Routine], new: Mapping[str, Routine]) -> Changes:
    """Return how `new` differs from `old`; nothing is done about it."""
    changed = tuple(name for name in new if name in old and new[name] != old[name])
    return Changes(
        added=tuple(name for name in new if name not in old),
        changed=changed,
        removed=tuple(name for name in old if name not in new),
        schedule_changed=tuple(
            name for name in changed if new[name].schedule_key != old[name].schedule_key
        ),
    )


def compared(
    old: Mapping[str, Routine], loaded: Loaded
) -> tuple[dict[str, Routine], dict[str, ConfigError], Changes]:
    """Return the routines to go over to, what is wrong with files, and how that differs from `old`.

    What says the same as before stays what it was, and what was read of it is let go of, here and
    not on the loop.
    """
    new, faults = effective(old, loaded)
    changes = diff(old, new)
    for name in new.keys() - {*changes.added, *changes.changed}:
        new[name] = old[name]
        if name in loaded.routines:
            loaded.routines[name] = old[name]
    return new, faults, changes


def effective(
    old: Mapping[str, Routine], loaded: Loaded
) -> tuple[dict[str, Routine], dict[str, ConfigError]]:
    """Return the routines to go over to, and what is wrong with files: a faulty one keeps what it
    said before.

    What was kept may close a circle with what is new; then the new ones are faulty.
    """
    new = {**loaded.routines, **{name: old[name] for name in loaded.faults if name in old}}
    faults = dict(loaded.faults)
    while found := {
        name: fault for name, fault in circles(new).items() if new[name] != old.get(name)
    }:
        faults |= found
        for name in found:
            del new[name]
        new |= {name: old[name] for name in found if name in old}
    return new, faults
