"""From a file to a value, or to every fault of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from daemon.definitions.shape import covers, dotted, keys_of, mended
from daemon.definitions.syntax import syntax_fault, unreadable, whole
from daemon.definitions.validation_errors import findings_of
from daemon.definitions.values import Table
from daemon.definitions.words import display, shown
from daemon.errors import ConfigError, Fault
from daemon.models import Json

M = TypeVar("M", bound=Table)


@dataclass(frozen=True, slots=True)
class Conflict:
    """What a rule found: a key, what stood there and what is wrong with it in the light of the
    other keys.
    """

    key: str
    problem: str
    found: Any = None
    hint: str = ""


@dataclass(frozen=True)  # no slots: typing notes the M of `Rule[M](…)` on the instance
class CrossFieldCheck(Generic[M]):
    """A check across fields; `reads` are the dotted keys (`*` is any) without which it cannot
    judge.
    """

    reads: tuple[str, ...]
    check: Callable[[M], Iterable[Conflict]]


def load_toml(path: Path, model: type[M], rules: Sequence[CrossFieldCheck[M]] = ()) -> M:
    """Return the file as a `model`; raise ConfigError with all its faults."""
    return parse(read_toml(path), model, file=path, rules=rules)


def read_toml(path: Path) -> Json:
    """Return the file's tables; raise ConfigError if it cannot be read or is not TOML."""
    try:
        text = (
            path.read_bytes().decode().removeprefix("\ufeff")
        )  # a byte order mark, as some editors write it
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 text (byte {error.object[error.start]:#04x} in line {line})"
        fault = whole(path, problem, "save it with the encoding UTF-8")
    except OSError as error:
        fault = unreadable(path, error)
    except tomllib.TOMLDecodeError as error:
        fault = syntax_fault(path, text, str(error))
    except RecursionError:
        fault = whole(path, "its lists or tables are nested too deeply", "flatten them")
    raise ConfigError(fault)


def parse(
    data: Json, model: type[M], *, file: str | Path, rules: Sequence[CrossFieldCheck[M]] = ()
) -> M:
    """Return parsed TOML as a `model`; raise ConfigError with all its faults."""
    try:
        value = model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(*_faults(error, data, model, display(file), rules)) from None
    conflicts = [conflict for rule in rules for conflict in rule.check(value)]
    if conflicts:
        raise ConfigError(*(as_fault(conflict, display(file)) for conflict in conflicts))
    return value


def _faults(
    error: ValidationError,
    data: Json,
    model: type[M],
    file: str,
    rules: Sequence[CrossFieldCheck[M]],
    /,
) -> Iterator[Fault]:
    """Yield every fault of data that did not validate, then those the rules still find in the
    rest.
    """
    findings = findings_of(error, data, model)
    for finding in findings:
        key = dotted(*finding.path)
        found = "" if finding.missing else shown(finding.input, key)
        yield Fault(
            file=file,
            key=key,
            found=found,
            problem=" or ".join(finding.problems),
            hint=finding.hint,
        )
    broken = {finding.path for finding in findings}
    try:
        rest = model.model_validate(mended(data, (), broken, model))
    except ValidationError:
        return  # nothing sound is left to judge by
    for rule in rules:
        if not any(
            covers(keys_of(path), read.split(".")) for read in rule.reads for path in broken
        ):
            yield from (as_fault(conflict, file) for conflict in rule.check(rest))


def as_fault(conflict: Conflict, file: str) -> Fault:
    """Return a conflict as the reader sees it."""
    found = "" if conflict.found is None else shown(conflict.found, conflict.key)
    return Fault(
        file=file, key=conflict.key, found=found, problem=conflict.problem, hint=conflict.hint
    )
