"""The parts of the pages in docs/ that are read off the code: `python -m tests.docs` writes them, a
test compares them.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Sequence
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
    report_items,
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


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
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


def sections(
    model: type[BaseModel], path: str = "", form: str = "{key}"
) -> list[tuple[str, type[BaseModel]]]:
    """Return the heading and the model of each table that a file of this model may hold, itself
    first; its own heading is empty.
    """
    brackets = ("[[", "]]") if form.endswith("[]") else ("[", "]")
    rows = [(path and f"{brackets[0]}{path}{brackets[1]}", model)]
    for name, field in model.model_fields.items():
        if inner := inside(field.annotation):
            table_model, form = inner
            key = form.removesuffix("[]").format(key=field.alias or name)
            rows += sections(table_model, f"{path}.{key}" if path else key, form)
    return rows


def file_keys(model: type[BaseModel]) -> str:
    """Return a table of keys for each table that a file of this model may hold."""
    parts = []
    for heading, table_model in sections(model):
        meaning_by_key = meanings(table_model)
        rows = [
            (
                f"`{field.alias or name}`",
                default(field),
                f"{meaning_by_key.get(name, '')}{choices(field.annotation)}",
            )
            for name, field in table_model.model_fields.items()
            if not inside(field.annotation)
        ]
        about = table_model.__doc__ if heading else "Keys that stand above all tables."
        parts += [f"### {heading or 'Before the first table'}", " ".join((about or "").split())]
        if rows:
            parts.append(table(("key", "default", "meaning"), rows))
    return "\n\n".join(parts)


def config_keys() -> str:
    from daemon.definitions.config.config import Config

    return file_keys(Config)


def routine_keys() -> str:
    from daemon.definitions.routines.routine import RoutineDefinition

    return file_keys(RoutineDefinition)


def policy_keys() -> str:
    from daemon.policy import policy_file

    return file_keys(policy_file.PolicyFile)


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
    from daemon.cli.help import group_all_verbs
    from daemon.cli.verbs import VERBS

    parts = []
    for group, names in group_all_verbs().items():
        rows = [(f"`agentctl {name}`", VERBS[name].summary) for name in names]
        parts += [f"### {group}", table(("verb", "what it does"), rows)]
    return "\n\n".join(parts)


def exit_codes() -> str:
    from daemon.cli.call import EXIT_CODES

    return table(("code", "meaning"), [(str(code), about) for code, about in EXIT_CODES])


def register_tools() -> FunctionRegistry:
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
    report_items.register(registry, nothing, nothing)
    self_info.register(registry, dict)
    skill.register(registry, nothing)
    subagent.register(registry, nothing)
    routine.register(registry, nothing)
    config.register(registry, nothing)
    web_search.register(registry, "searxng", base_url="http://127.0.0.1", key=None)
    return registry


def tools() -> str:
    registry = register_tools()
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


# --- the API ---

# The headings of docs/api.md, each with what follows /v1/ in its routes.
API_GROUPS = {
    "Routines": ("routines", "resume", "recipes"),
    "Schedule": ("next", "slots", "days"),
    "Runs": ("runs",),
    "Conversations": ("ask",),
    "Events": ("events",),
    "Deliveries and incidents": ("deliveries", "incidents"),
    "Usage and forecast": ("usage", "forecast"),
    "Approvals, quarantine, audit": ("approvals", "remembered", "quarantine", "audit"),
    "Memory": ("memory",),
    "The daemon": ("status", "doctor", "reload", "mcp", "openapi.json"),
}


def api_routes() -> str:
    """Return each route of the OpenAPI document: what it does, takes and answers."""
    parts = []
    operations = [
        (path, method.upper(), operation)
        for path, by_method in openapi()["paths"].items()
        for method, operation in by_method.items()
    ]
    for title, words in API_GROUPS.items():
        parts.append(f"## {title}")
        for path, method, operation in operations:
            if path.split("/")[2] in words:
                parts += [f"### {method} {path}", operation["summary"], *inputs_of(operation)]
                parts.append(f"Answers with {answer_of(operation)}.")
    return "\n\n".join(parts)


@cache
def openapi() -> dict[str, Any]:
    from daemon.api.openapi import make_document
    from daemon.api.routes import ROUTES

    return make_document(ROUTES, "")


def inputs_of(operation: dict[str, Any]) -> list[str]:
    """Return a table of what a request carries besides its path, if it carries anything."""
    rows = [
        (
            f"`{parameter['name']}`",
            parameter["in"],
            type_of(parameter["schema"]),
            is_required(parameter["required"], parameter["schema"]),
        )
        for parameter in operation["parameters"]
        if parameter["in"] != "path"
    ]
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        rows += [
            (f"`{name}`", "body", type_of(field), is_required(name in schema["required"], field))
            for name, field in schema["properties"].items()
        ]
    return [table(("input", "in", "type", "default"), rows)] if rows else []


def is_required(required: bool, schema: dict[str, Any]) -> str:
    if required:
        return "**required**"
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else "none"


def answer_of(operation: dict[str, Any]) -> str:
    content = operation["responses"]["200"]["content"]
    if "text/event-stream" in content:
        return "a [stream of events](#streams)"
    return type_of(content["application/json"]["schema"])


def type_of(schema: dict[str, Any]) -> str:
    """Return a JSON Schema in words; a named one with a link to its table."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name.startswith("Page_"):
            item = name.removeprefix("Page_").removesuffix("_")
            return f"a [page](#lists) of [{item}](#{item.lower()})"
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(type_of(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {type_of(schema.get('items', {}))}"
        case "object":
            values = schema.get("additionalProperties")
            return f"object of {type_of(values)}" if isinstance(values, dict) else "object"
        case "integer" if "minimum" in schema:
            return f"integer from {schema['minimum']} to {schema['maximum']}"
        case None:
            return "any"
        case kind:
            return str(kind)


def api_answers() -> str:
    """Return a table of fields for each object that the API answers with."""
    parts = []
    for name, schema in sorted(openapi()["components"]["schemas"].items()):
        if name.startswith("Page_"):
            continue
        about = " ".join(schema.get("description", "").split())
        rows = [
            (f"`{field}`", type_of(field_schema), view_meanings().get((name, field), ""))
            for field, field_schema in schema["properties"].items()
        ]
        parts += [f"### {name}", *filter(None, [about])]
        parts.append(table(("field", "type", "meaning"), rows))
    return "\n\n".join(parts)


@cache
def view_meanings() -> dict[tuple[str, str], str]:
    """Return what stands under each field of the views of daemon/api, by class and field, also
    under those of its base.
    """
    meaning_by_field: dict[tuple[str, str], str] = {}
    bases: dict[str, list[str]] = {}
    for file in sorted((ROOT / "daemon" / "api").glob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            for field, below in zip(node.body, node.body[1:], strict=False):
                match field, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        meaning_by_field[node.name, name] = " ".join(text.split())
    for cls in bases:
        ancestors = list(bases[cls])
        for ancestor in ancestors:
            ancestors += bases.get(ancestor, [])
            for (owner, name), text in list(meaning_by_field.items()):
                if owner == ancestor:
                    meaning_by_field.setdefault((cls, name), text)
    return meaning_by_field


def api_errors() -> str:
    from daemon.api.problems import ANSWERS

    meaning_by_code = {
        "not_found": "There is nothing of that name or id.",
        "changed": "The file is not the one that `If-Match` names any more: read it again.",
        "switched_off": "The config does not allow it, such as `[ui] edit`.",
        "refused": "Not possible in the present state; `detail` says why.",
        "busy": "Another process does that just now.",
        "invalid": "A file or value has faults: `faults` lists them.",
        "disk_full": "The journal takes no writes; nothing was done.",
        "failed": "Something else went wrong; `detail` says what.",
    }
    rows = [
        (str(status.value), f"`{code}`", meaning_by_code[code]) for _, status, code in ANSWERS
    ] + [
        ("400", "`bad_request`", "The request cannot be used; also as 413, 422 and 428."),
        ("403", "`foreign`", "You are neither an operator nor a reader."),
        ("403", "`read_only`", "You are a reader (`[control] readers`): GET only."),
        ("403", "`browser`", "The request comes from a web page."),
        ("404", "`no_route`", "There is no such path."),
        ("405", "`method`", "The path does not take this method."),
        ("408", "`timeout`", "The request was not complete in time (head 10 s, body 30 s)."),
        ("500", "`internal`", "A mistake of agentd; its log has the traceback."),
        ("503", "`too_many_connections`", "Close some, or try again soon."),
    ]
    return table(("status", "code", "meaning"), sorted(rows))


PARTS = {
    "api routes": api_routes,
    "api answers": api_answers,
    "api errors": api_errors,
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
