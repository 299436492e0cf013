"""Read the user's TOML files strictly, and answer kindly: every fault of a file at once, each with its way out.

Theory of operation: pydantic judges shape and types in one pass and names everything that is wrong. What no single
field can know (one trigger only, a gate that names a gather) stands in a table of `Rule`s, each with the keys it
reads. When the first pass finds faults, the broken entries are taken out, the rest is validated once more, and the
rules that read none of the broken entries still have their say; so one call tells everything, and nothing twice.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationError,
)

from daemon.errors import ConfigError, Fault
from daemon.models import Json

M = TypeVar("M", bound="Table")
T = TypeVar("T")

Items: TypeAlias = Annotated[tuple[T, ...], Strict(strict=False)]
"""A TOML list, kept as a tuple: strict pydantic would take no list for it."""


class Table(BaseModel):
    """One table of a file: nothing unknown, nothing converted behind the writer's back, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Wrong(ValueError):
    """A value is of the right type and still wrong; raised by validators."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        self.hint = hint
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Conflict:
    """What a rule found: a key, what stood there and what is wrong with it in the light of the other keys."""

    key: str
    problem: str
    found: Any = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Rule(Generic[M]):
    """A check across fields; `reads` are the dotted keys (`*` is any) without which it cannot judge."""

    reads: tuple[str, ...]
    check: Callable[[M], Iterable[Conflict]]


def load_toml(path: Path, model: type[M], rules: Sequence[Rule[M]] = ()) -> M:
    """Return the file as a `model`; raise ConfigError with all its faults."""
    return parse(read_toml(path), model, file=display(path), rules=rules)


def read_toml(path: Path) -> Json:
    """Return the file's tables; raise ConfigError if it cannot be read or is not TOML."""
    try:
        text = path.read_bytes().decode("utf-8-sig")  # some editors put a byte order mark first; it means nothing
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 text (byte {error.object[error.start]:#04x} in line {line})"
        fault = _whole(path, problem, "save it with the encoding UTF-8")
    except OSError as error:
        fault = _unreadable(path, error)
    except tomllib.TOMLDecodeError as error:
        fault = _syntax_fault(path, text, str(error))
    except RecursionError:
        fault = _whole(path, "its lists or tables are nested too deeply", "flatten them")
    raise ConfigError(fault)


def parse(data: Json, model: type[M], *, file: str, rules: Sequence[Rule[M]] = ()) -> M:
    """Return parsed TOML as a `model`; raise ConfigError with all its faults."""
    try:
        value = model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(*_faults(error, data, model, file, rules)) from None
    faults = [as_fault(conflict, file) for rule in rules for conflict in rule.check(value)]
    if faults:
        raise ConfigError(*faults)
    return value


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant, or an empty string."""
    known = list(known)
    low = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), low, n=1, cutoff=0.6)
    return low[close[0]] if close else ""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return a hint that leads from an unknown word to the known ones."""
    if close := nearest(word, known):
        return f'did you mean "{close}"?'
    return "known: " + ", ".join(sorted(known)) if known else ""


# --- files that cannot be read --------------------------------------------------------------------


def _whole(path: Path, problem: str, hint: str = "") -> Fault:
    return Fault(file=display(path), key="", found="", problem=problem, hint=hint)


def _unreadable(path: Path, error: OSError) -> Fault:
    match error:
        case FileNotFoundError():
            return _whole(path, "no such file", "`agentd init` writes the shipped ones")
        case IsADirectoryError():
            return _whole(path, "is a folder, not a file", "name the TOML file inside it")
        case PermissionError():
            return _whole(path, "may not be read by this user", f"chown or chmod it; as is: {error.strerror}")
        case _:
            return _whole(path, f"cannot be read: {error.strerror or error}")


# tomllib's message (a part of it), and what helps the person who made that slip
_SYNTAX_HINTS = (
    ("Cannot overwrite a value", "this key stands in the table twice; keep one"),
    ("Cannot declare", "this table stands in the file twice; put its keys together (lists of tables take [[…]])"),
    ("Cannot mutate immutable", "this table was closed by {…} above; write all its keys there"),
    ("Cannot redefine", "this name is already a value above"),
    ("Invalid value", 'text needs quotes: key = "text"; true, false and numbers go without'),
    ("Expected '=' after a key", "a line is key = value, [table] or a # comment"),
    ("Invalid initial character for a key part", "a line is key = value, [table] or a # comment"),
    ("Unescaped '\\' in a string", "double the backslash, or use single quotes: 'C:\\path'"),
    ("Illegal character '\\n'", 'close the quotes in this line, or use """ for several lines'),
    ("Unterminated string", 'the closing quotes are missing (""" needs """)'),
    ('Expected \'"""\'', 'the closing """ is missing'),
    ("Expected newline or end of document", "one key = value a line; text with spaces or dots needs quotes"),
    ("Unclosed array", "a ] or a comma between the items is missing"),
    ("Unclosed inline table", "a } or a comma is missing; an inline table ends in the line it began in"),
    ("Expected ']'", "a table's name stands in [ ] on a line of its own"),
)
_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def _syntax_fault(path: Path, text: str, message: str) -> Fault:
    place = _AT_LINE.search(message)
    lines = text.splitlines() or [""]
    number = int(place[1]) if place and place[1] else len(lines)
    if "Illegal character '\\n'" in message and number > 1 and not lines[min(number, len(lines)) - 1].strip():
        number -= 1
    line = lines[min(number, len(lines)) - 1].strip()
    name, equals, _ = line.partition("=")
    if equals and _SECRET.search(name.strip()):
        line = f"{name.strip()} = …"
    return Fault(
        file=display(path),
        key=f"line {number}",
        found=_shorten(line),
        problem="is not TOML: " + _AT_LINE.sub("", message).strip(),
        hint=next((hint for part, hint in _SYNTAX_HINTS if part in message), ""),
    )


# --- values of the wrong shape --------------------------------------------------------------------

Loc: TypeAlias = tuple[int | str, ...]

_TEXT = "expected text in quotes"
_NUMBER = "expected a number, like 10"
_TABLE = "expected a table of keys and values"
_LIST = 'expected a list, like ["a", "b"]'
# pydantic's error type, and what to say instead; braces are filled from its context
_KIND = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "string_type": _TEXT,
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "does not have the expected form {pattern}",
    "bool_type": "expected true or false, without quotes",
    "int_type": "expected a whole number, like 10",
    "int_from_float": "expected a whole number, like 10",
    "float_type": _NUMBER,
    "finite_number": "expected a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "expected {expected}",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "too_short": "needs at least {min_length}",
    "too_long": "takes at most {max_length}",
    "datetime_type": "expected a date with time, like 2026-12-01T09:00:00+01:00, without quotes",
    "timezone_aware": "needs its offset from UTC, like 2026-12-01T09:00:00+01:00",
    "date_type": "expected a date, like 2026-12-01, without quotes",
    "time_type": "expected a time, like 09:00:00, without quotes",
    "union_tag_invalid": "expected {expected_tags}",
    "union_tag_not_found": "needs the key {discriminator}",
}
# "wrong type" of one branch of a union says nothing where another branch found a fault deeper inside
_SHALLOW = {
    *("string_type", "bool_type", "int_type", "float_type", "list_type", "tuple_type", "dict_type", "model_type"),
    *("literal_error", "datetime_type"),
}
_SECRET = re.compile(r"(?:key|secret|passw(?:or)?d|token)(?:_file|_env)?[\"']?$", re.IGNORECASE)


@dataclass(slots=True)
class _Finding:
    """What pydantic found at one place; several problems there are branches of a union."""

    path: Loc
    input: Any
    problems: list[str] = field(default_factory=list)
    hint: str = ""
    shallow: bool = True
    missing: bool = False


def _faults(
    error: ValidationError, data: Json, model: type[M], file: str, rules: Sequence[Rule[M]], /
) -> Iterator[Fault]:
    """Yield every fault of data that did not validate, then those the rules still find in the rest."""
    findings = _findings(error, data, model)
    for finding in findings:
        key = _dotted(finding.path)
        found = "" if finding.missing else shown(finding.input, key)
        yield Fault(file=file, key=key, found=found, problem=" or ".join(finding.problems), hint=finding.hint)
    broken = {finding.path for finding in findings}
    try:
        rest = model.model_validate(_mended(data, (), broken, model))
    except ValidationError:
        return  # nothing sound is left to judge by
    for rule in rules:
        if not any(_covers(_keys(path), read.split(".")) for read in rule.reads for path in broken):
            yield from (as_fault(conflict, file) for conflict in rule.check(rest))


def as_fault(conflict: Conflict, file: str) -> Fault:
    """Return a conflict as the reader sees it."""
    found = "" if conflict.found is None else shown(conflict.found, conflict.key)
    return Fault(file=file, key=conflict.key, found=found, problem=conflict.problem, hint=conflict.hint)


def _findings(error: ValidationError, data: Json, model: type[Table]) -> list[_Finding]:
    findings: dict[Loc, _Finding] = {}
    for item in error.errors(include_url=False):
        kind, context = item["type"], item.get("ctx", {})
        path = _path(item["loc"], data, item["input"], missing=kind == "missing")
        finding = findings.setdefault(path, _Finding(path, item["input"], missing=kind == "missing"))
        cause = context.get("error")
        problem = str(cause) if cause else _KIND.get(kind, "").format_map(_Context(context)) or _own_words(item["msg"])
        if finding.problems and problem.startswith("expected "):
            problem = problem.removeprefix("expected ")
        if problem not in finding.problems:
            finding.problems.append(problem)
        finding.shallow = finding.shallow and kind in _SHALLOW
        finding.hint = finding.hint or getattr(cause, "hint", "") or _hint(kind, path, item["input"], context, model)
    deeper = {path[:end] for path in findings for end in range(len(path))}
    return [found for path, found in findings.items() if not (found.shallow and path in deeper)]


class _Context(dict[str, Any]):
    """Whatever pydantic gives with an error, so that a sentence never fails for want of a word."""

    def __missing__(self, key: str) -> str:
        return "…"


def _own_words(message: str) -> str:
    message = message.removeprefix("Input ").removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _hint(kind: str, path: Loc, value: Any, context: Mapping[str, Any], model: type[Table]) -> str:
    match kind:
        case "extra_forbidden":
            return _hint_for_unknown(path, model)
        case "literal_error" | "union_tag_invalid":
            choices = re.findall(r"'([^']*)'", context.get("expected") or context.get("expected_tags") or "")
            close = nearest(str(context.get("tag", value)), choices)
            return f'did you mean "{close}"?' if close else ""
        case "int_type" | "float_type" if isinstance(value, str):
            return "leave out the quotes" if re.fullmatch(r"[\d._+-]+", value) else ""
        case "string_type" if isinstance(value, int | float):
            return f'write "{value}"' if not isinstance(value, bool) else ""
        case "tuple_type" | "list_type" if isinstance(value, str):
            return f"write [{json.dumps(value, ensure_ascii=False)}]" if not _SECRET.search(str(path[-1])) else ""
        case "tuple_type" | "list_type" if isinstance(value, dict) and path:
            return f"write [[{_dotted(path)}]] with two brackets"
    return ""


def _hint_for_unknown(path: Loc, model: type[Table]) -> str:
    """Lead from an unknown key to the one that was meant, here or in another table of the file."""
    name = str(path[-1])
    here = {key for table in _tables_at(model, path[:-1]) for key in table.model_fields}
    if close := nearest(name, here):
        return f'did you mean "{close}"?'
    homes = sorted(home for home, keys in _all_tables(model) if name in keys)
    if homes:
        return f"it belongs in {' or '.join(homes)}"
    return "known here: " + ", ".join(sorted(here)) if here else ""


# --- walking data and models ----------------------------------------------------------------------


def _path(loc: Loc, data: Any, value: Any, *, missing: bool) -> Loc:
    """Return the place in the data that an error speaks of; pydantic mixes the names of union branches into it."""
    names: Loc = loc[:-1] if missing else loc

    def walk(node: Any, at: int) -> Loc | None:
        if at == len(names):
            return () if node is value else None
        part = names[at]
        inside = part in node if isinstance(node, dict) else isinstance(node, list) and _index(part, node)
        if inside and (rest := walk(node[part], at + 1)) is not None:
            return (part, *rest)
        return walk(node, at + 1)

    path = walk(data, 0)
    if path is None:  # a key of a dict, or a value made by a validator
        path = names
    return (*path, loc[-1]) if missing else path


def _index(part: int | str, node: list[Any]) -> bool:
    return isinstance(part, int) and part < len(node)


def _dotted(path: Loc) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[\w-]+", part) else json.dumps(part))
    return text


def _mended(node: Any, path: Loc, broken: Collection[Loc], model: type[Table]) -> Any:
    """Return a copy of the data in which nothing is broken: the entry is left out or, where it must be, stands in.

    No rule that reads a broken key sees the copy, so a stand-in deceives nobody.
    """
    if isinstance(node, list):
        return [_mended(item, (*path, index), broken, model) for index, item in enumerate(node)]
    if not isinstance(node, dict):
        return node
    copy = {}
    for key, value in node.items():
        here = (*path, key)
        items = [(*here, index) for index in range(len(value))] if isinstance(value, list) else []
        if here not in broken and not any(item in broken for item in items):
            copy[key] = _mended(value, here, broken, model)
    for table in _tables_at(model, path):
        for key, known in table.model_fields.items():
            if key not in copy and known.is_required():
                copy[key] = _stand_in(known.annotation)
    return copy


def _stand_in(annotation: Any) -> Any:
    plain = next(_plain(annotation))
    return get_args(plain)[0] if get_origin(plain) is Literal else "x"


def _keys(path: Loc) -> tuple[str, ...]:
    return tuple(part for part in path if isinstance(part, str))


def _covers(broken: Sequence[str], read: Sequence[str]) -> bool:
    """Tell whether what is broken is the entry that is read, or holds it."""
    return len(broken) <= len(read) and all(b in (a, "*") for a, b in zip(broken, read, strict=False))


def _plain(annotation: Any) -> Iterator[Any]:
    """Yield the members of an annotation without Annotated and Union around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _plain(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _plain(member)
    else:
        yield annotation


def _tables_at(model: type[BaseModel], path: Loc) -> list[type[BaseModel]]:
    """Return the models that may stand at this place of the data."""
    here: list[Any] = [model]
    for part in path:
        here = [inner for one in here for inner in _inside(one, part)]
    return [one for one in here if _is_table(one)]


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _inside(annotation: Any, part: int | str) -> Iterator[Any]:
    args = get_args(annotation)
    if _is_table(annotation):
        known = annotation.model_fields.get(part)
        yield from _plain(known.annotation) if known else ()
    elif isinstance(part, int) and args:
        yield from _plain(args[0])
    elif len(args) == 2:  # dict[str, X]
        yield from _plain(args[1])


def _all_tables(model: type[BaseModel], name: str = "") -> Iterator[tuple[str, Collection[str]]]:
    """Yield every table of a file as the reader writes its head, with its keys."""
    yield (f"[{name}]" if name else "the top of the file"), model.model_fields
    for key, known in model.model_fields.items():
        for annotation in _plain(known.annotation):
            inner = [one for one in (annotation, *map(_first, get_args(annotation))) if _is_table(one)]
            for table in inner:
                dotted = f"{name}.{key}".lstrip(".")
                if annotation is table:
                    yield from _all_tables(table, dotted)
                elif get_origin(annotation) is dict:
                    yield from _all_tables(table, f"{dotted}.NAME")
                else:
                    yield f"[[{dotted}]]", table.model_fields


def _first(annotation: Any) -> Any:
    return next(_plain(annotation))


# --- showing what was found -----------------------------------------------------------------------


def shown(value: Any, key: str = "") -> str:
    """Return a value as its writer would recognise it, shortened; what may be a secret is not shown."""
    if _SECRET.search(key) and isinstance(value, str) and value:
        return "a text that is not shown here"
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _shorten(json.dumps(value, ensure_ascii=False))
        case dict():
            return "a table" if value else "an empty table"
        case list() | tuple():
            simple = all(isinstance(item, str | int | float) for item in value)
            return _shorten(json.dumps(value, ensure_ascii=False)) if simple else f"a list of {len(value)}"
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return f'"{format_duration(value)}"'
        case _:
            return _shorten(str(value))


def _shorten(text: str, width: int = 60) -> str:
    text = display(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def display(text: str | Path) -> str:
    """Return a text from outside so that it can be printed: file names may hold anything."""
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


# --- durations ------------------------------------------------------------------------------------

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_LONGEST = timedelta(days=366 * 10)


def parse_duration(value: Any) -> timedelta:
    """Return "90s", "10m", "2h", "1d" or "1h30m" as a time span."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise Wrong('expected a duration in quotes, like "10m"', hint=f'write "{value}s" for {value} seconds')
    if not isinstance(value, str):
        raise Wrong('expected a duration in quotes, like "10m"')
    match = _DURATION.fullmatch(value.replace(" ", ""))
    if not match or not any(match.groups()):
        raise Wrong('expected a duration, like "90s", "10m", "2h", "1d" or "1h30m"')
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    if total > _LONGEST.total_seconds():
        raise Wrong("is longer than ten years")
    return timedelta(seconds=total)


def format_duration(value: timedelta) -> str:
    """Return a time span as one would write it in a file."""
    rest = value.total_seconds()
    text = ""
    for unit, size in _UNITS.items():
        count = rest // size if unit != "s" else rest
        if count:
            text += f"{count:g}{unit}" if unit == "s" else f"{int(count)}{unit}"
        rest -= count * size
    return text or "0s"


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
"""A time span, written "90s", "10m", "2h", "1d" or "1h30m" and serialised back to that."""

SomeDuration: TypeAlias = Annotated[Duration, Field(gt=timedelta(0))]
"""A duration that is more than nothing."""


# --- tables that go on as JSON ---------------------------------------------------------------------


def _as_json(value: Any) -> Any:
    """Return a TOML value as JSON knows it: dates become text, as the reader of JSON gets them anyway."""
    match value:
        case dict():
            return {key: _as_json(item) for key, item in value.items()}
        case list():
            return [_as_json(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            raise Wrong("nan and inf cannot be passed on")
        case _:
            return value


JsonTable: TypeAlias = Annotated[Json, BeforeValidator(_as_json)]
"""A table whose keys are not ours to know."""
