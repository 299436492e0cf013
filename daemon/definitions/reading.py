"""Read a TOML file into a model, or raise ConfigError with all its faults."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from daemon.definitions.key_lines import with_lines
from daemon.definitions.shape import covers, drop_broken_entries, format_key_path, keys_of
from daemon.definitions.syntax import file_fault, syntax_fault, unreadable_file_fault
from daemon.definitions.toml_text import MAX_BYTES, TomlOutOfBounds, parse_toml_text
from daemon.definitions.validation_errors import field_errors
from daemon.definitions.values import Table
from daemon.definitions.words import display, show_value
from daemon.errors import ConfigError, Fault
from daemon.models import Json

M = TypeVar("M", bound=Table)


class FileUnreadable(ConfigError):
    """A file could not be opened or read. That may pass without a change of the file, as where too
    many files are open.
    """


@dataclass(frozen=True, slots=True)
class Conflict:
    """A fault that a check found: a key, the problem, the value there and a hint."""

    key: str
    problem: str
    value: Any = None
    hint: str = ""


# No slots: typing notes the M of `CrossFieldCheck[M](…)` on the instance.
@dataclass(frozen=True)
class CrossFieldCheck(Generic[M]):
    """A check of several fields of a model.

    `reads` are the dotted keys (`*` is any name) that the check depends on: it is left out if one
    of them is broken, or probably meant by an unknown key.
    """

    reads: tuple[str, ...]
    find_conflicts: Callable[[M], Iterable[Conflict]]
    compares: str = ""
    """The list of tables, such as `rule`, that the check compares with one another. What a table
    with a broken key says is not known, so in its place the check sees one of placeholders, and
    what it finds there does not count.
    """


def load_toml(path: Path, model: type[M], checks: Sequence[CrossFieldCheck[M]] = ()) -> M:
    """Return the file as a `model`; raise ConfigError with all its faults."""
    text = read_text(path)
    return parse(parse_toml(text, path), model, file=path, checks=checks, text=text)


def read_toml(path: Path) -> Json:
    """Return the file's tables; raise ConfigError if it cannot be read or is not TOML."""
    return parse_toml(read_text(path), path)


def read_text(path: Path) -> str:
    """Return what stands in a file; raise FileUnreadable if it cannot be read, and ConfigError if
    it is too long or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(unreadable_file_fault(path, error)) from None
    except ValueError:  # open() takes no path with a NUL
        raise ConfigError(file_fault(path, "is no path of a file")) from None
    if len(content) > MAX_BYTES:
        problem = f"is longer than the {MAX_BYTES:,} bytes that are read of a file"
        raise ConfigError(file_fault(path, problem, "divide it, or name another file"))
    return decode(content, path)


def decode(content: bytes, path: Path) -> str:
    """Return the text of a file with this content; raise ConfigError if it is not UTF-8."""
    try:
        # Some editors begin a file with a byte order mark.
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 text (byte {error.object[error.start]:#04x} in line {line})"
        raise ConfigError(file_fault(path, problem, "save it with the encoding UTF-8")) from None


def parse_toml(text: str, path: Path) -> Json:
    """Return the tables of a file with this text; raise ConfigError if it is not TOML."""
    try:
        return parse_toml_text(text)
    except tomllib.TOMLDecodeError as error:
        fault = syntax_fault(path, text, str(error))
    except TomlOutOfBounds as error:
        fault = Fault(
            file=display(path),
            key=error.key,
            found="",
            problem=error.problem,
            hint=error.hint,
            line=error.line,
        )
    raise ConfigError(fault)


def with_lines_of_file(faults: Sequence[Fault], path: Path) -> tuple[Fault, ...]:
    """Return the faults of a file with the lines in which their keys stand now; without lines if
    the file can no longer be read.
    """
    try:
        return with_lines(faults, read_text(path))
    except ConfigError:
        return tuple(faults)


def parse(
    data: Json,
    model: type[M],
    *,
    file: str | Path,
    checks: Sequence[CrossFieldCheck[M]] = (),
    text: str = "",
) -> M:
    """Return parsed TOML as a `model`; raise ConfigError with all its faults.

    `text` is the TOML that was parsed, for the lines of the faults; without it they have none.
    """
    try:
        value = model.model_validate(data)
    except ValidationError as error:
        faults = list(_find_faults(error, data, model, display(file), checks))
        raise ConfigError(*with_lines(faults, text)) from None
    conflicts = [conflict for check in checks for conflict in check.find_conflicts(value)]
    if conflicts:
        faults = [as_fault(conflict, display(file)) for conflict in conflicts]
        raise ConfigError(*with_lines(faults, text))
    return value


def _find_faults(
    error: ValidationError,
    data: Json,
    model: type[M],
    file: str,
    checks: Sequence[CrossFieldCheck[M]],
    /,
) -> Iterator[Fault]:
    """Yield the faults that pydantic found in the data, then those that the checks of `checks` find
    in the part of the data that pydantic found no fault in.
    """
    findings = field_errors(error, data, model)
    for finding in findings:
        key = format_key_path(*finding.path)
        value = "" if finding.missing else show_value(finding.input, key)
        yield Fault(
            file=file,
            key=key,
            found=value,
            problem=" or ".join(finding.problems),
            hint=finding.hint,
        )
    broken_paths = {finding.path for finding in findings}
    try:
        sound_part = model.model_validate(drop_broken_entries(data, (), broken_paths, model))
    except ValidationError:
        return  # no sound part is left to check
    broken_paths |= {finding.meant_path for finding in findings if finding.meant_path}
    for check in checks:
        if any(
            covers(keys_of(path), read.split(".")) for read in check.reads for path in broken_paths
        ):
            continue
        conflicts = check.find_conflicts(sound_part)
        broken_tables = {
            path[:2] for path in broken_paths if check.compares and path[:1] == (check.compares,)
        }
        if broken_tables:
            placeholder_data = {**data, check.compares: list(data[check.compares])}
            for _, index in broken_tables:
                placeholder_data[check.compares][index] = {}
            placeholder_data = drop_broken_entries(placeholder_data, (), broken_paths, model)
            broken_keys = tuple(format_key_path(*path) for path in broken_tables)
            conflicts = [
                conflict
                for conflict in check.find_conflicts(model.model_validate(placeholder_data))
                if not conflict.key.startswith(broken_keys)
            ]
        yield from (as_fault(conflict, file) for conflict in conflicts)


def as_fault(conflict: Conflict, file: str) -> Fault:
    """Return a conflict as a fault of a file."""
    value = "" if conflict.value is None else show_value(conflict.value, conflict.key)
    return Fault(
        file=file, key=conflict.key, found=value, problem=conflict.problem, hint=conflict.hint
    )
