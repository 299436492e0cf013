"""The parts of the pages in docs/ that are read off the code: `python -m tests.docs` writes them, a
test compares them.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from datetime import timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from daemon.tools.builtin import (
    config,
    files,
    finish,
    git,
    http_request,
    memory,
    routine,
    script,
    self_info,
    shell,
    skill,
    subagent,
    sysinfo,
    web_search,
)
from daemon.tools.registry import FunctionRegistry

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
MARK = re.compile(r"(<!-- begin: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_generated_parts(text: str) -> str:
    """Return a page with its generated parts as the code has them now."""
    return MARK.sub(lambda match: f"{match[1]}{PARTS[match[2]]().strip()}\n{match[3]}", text)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


# --- keys of files ---


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what stands under each field of a model and its bases."""
    meaning_by_key: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not (isinstance(cls, type) and issubclass(cls, BaseModel)) or cls is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                assert isinstance(field.target, ast.Name) and isinstance(below.value, ast.Constant)
                meaning_by_key[field.target.id] = " ".join(str(below.value.value).split())
    return meaning_by_key


def keys(
    model: type[BaseModel], prefix: str = "", skip: tuple[str, ...] = ()
) -> list[tuple[str, str, str]]:
    """Return (key, default, meaning) of every key that a file of this model may hold."""
    rows: list[tuple[str, str, str]] = []
    meaning_by_key = meanings(model)
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        key, inner = f"{prefix}{field.alias or name}", inside(field.annotation)
        if inner:
            table_model, form = inner
            rows += keys(table_model, form.format(key=key) + ".")
        else:
            rows.append(
                (
                    f"`{key}`",
                    default(field),
                    f"{meaning_by_key.get(name, '')}{choices(field.annotation)}",
                )
            )
    return rows


def inside(annotation: Any) -> tuple[type[BaseModel], str] | None:
    """Return the table a field holds, and how its key is written: plain, [[list]] or
    [name.NAME].
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, "{key}"
    tables = [table for part in get_args(annotation) if (table := inside(part))]
    if not tables:
        return None
    origin = get_origin(annotation)
    form = "{key}.NAME" if origin is dict else "{key}[]" if origin in (tuple, list) else "{key}"
    return tables[0][0], form


def choices(annotation: Any) -> str:
    """Return the values that may stand there, if they are few and named."""
    if get_origin(annotation) is Literal:
        return f" One of {', '.join(f'`{value}`' for value in get_args(annotation))}."
    options = [choices(part) for part in get_args(annotation)]
    return next((text for text in options if text), "")


def default(field: Any) -> str:
    if field.default_factory is not None:
        return "none"
    return "**required**" if field.default is PydanticUndefined else format_value(field.default)


def format_value(value: Any) -> str:
    from daemon.definitions.values import format_duration

    match value:
        case None | () | "":
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case timedelta():
            return f'`"{format_duration(value)}"`' if value else '`"0s"`'
        case Enum():
            return f'`"{value.value}"`'
        case str():
            return f'`"{value}"`'
        case tuple() | frozenset() | list():
            return f"`[{', '.join(repr(item) for item in value)}]`".replace("'", '"')
    return f"`{value}`"


def config_keys() -> str:
    from daemon.definitions.config.config import Config

    return table(("key", "default", "meaning"), keys(Config))


def routine_keys() -> str:
    from daemon.definitions.routines.routine import RoutineDefinition

    return table(("key", "default", "meaning"), keys(RoutineDefinition))


def policy_keys() -> str:
    from daemon.policy import policy_file

    return table(("key", "default", "meaning"), keys(policy_file.PolicyFile))


# --- words ---


def moves() -> str:
    from daemon.models import MOVES

    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued"]
    for status, following in MOVES.items():
        lines += [f"    {status} --> {after}" for after in sorted(following)]
    statuses = {status for following in MOVES.values() for status in following}
    ends = sorted(status for status in statuses if status.has_ended)
    return "\n".join([*lines, *(f"    {end} --> [*]" for end in ends), "```"])


def verbs() -> str:
    from daemon.cli.verbs import VERBS

    return table(
        ("verb", "what it does"),
        [(f"`agentctl {name}`", verb.summary) for name, verb in VERBS.items()],
    )


def exit_codes() -> str:
    from daemon.cli.call import EXIT_CODES

    return table(("code", "meaning"), [(str(code), about) for code, about in EXIT_CODES])


def registered() -> FunctionRegistry:
    """Return a registry of every tool that ships; nothing of it is ever called."""
    registry = FunctionRegistry()
    nothing: Any = None
    finish.register(registry)
    sysinfo.register(registry)
    files.register(registry, nothing)
    shell.register(registry, nothing)
    git.register(registry, nothing)
    script.register(registry, nothing)
    http_request.register(registry, nothing)
    memory.register(registry, nothing)
    self_info.register(registry, dict)
    skill.register(registry, nothing)
    subagent.register(registry, nothing)
    routine.register(registry, nothing)
    config.register(registry, nothing)
    web_search.register(registry, "searxng", base_url="http://127.0.0.1", key=None)
    return registry


def tools() -> str:
    registry = registered()
    rows = []
    for name in sorted(registry.names()):
        definition = registry.get_function(name)
        assert definition
        nature = (
            "only looks"
            if definition.read_only
            else "repeatable"
            if definition.idempotent
            else "changes things"
        )
        rows.append((f"`{name}`", nature, definition.description.split("\n")[0]))
    return table(("tool", "nature", "what it does"), rows)


PARTS = {
    "config keys": config_keys,
    "routine keys": routine_keys,
    "policy keys": policy_keys,
    "moves": moves,
    "verbs": verbs,
    "exit codes": exit_codes,
    "tools": tools,
}

if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text("utf-8")
        if (new := with_generated_parts(text)) != text:
            page.write_text(new, "utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)} rewritten\n")
