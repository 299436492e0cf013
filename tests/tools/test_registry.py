"""Schemas of functions for models, and the function registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from daemon.models import Json, ToolContext
from daemon.tools.registry import FunctionRegistry

if TYPE_CHECKING:
    from decimal import Decimal


def schema(func: Callable[..., Any]) -> Json:
    """Return what a model reads of the function's parameters."""
    return FunctionRegistry().register("f", "", func).parameters


def properties(func: Callable[..., Any]) -> Json:
    parameters: Json = schema(func)["properties"]
    return parameters


MARKER = object()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Limits(BaseModel):
    """How much."""

    lines: int = 10
    note: str | None = Field(None, description="for the reader")


class Node(BaseModel):
    name: str
    children: list["Node"] = []


def test_plain_types_become_json_schema_types() -> None:
    def func(
        a: str, b: int, c: float, d: bool, e: list[str], f: dict[str, int], g: list, h: dict
    ) -> None: ...

    assert {name: field["type"] for name, field in properties(func).items()} == {
        "a": "string",
        "b": "integer",
        "c": "number",
        "d": "boolean",
        "e": "array",
        "f": "object",
        "g": "array",
        "h": "object",
    }
    assert schema(func)["required"] == list("abcdefgh")
    assert schema(func)["additionalProperties"] is False


def test_a_parameter_with_a_default_is_optional_and_shows_the_default() -> None:
    def func(
        a: int = 3, b: Literal["x", "y"] = "x", c: Path = Path("/tmp"), d: Colour = Colour.RED
    ) -> None: ...

    assert "required" not in schema(func)
    assert properties(func) == {
        "a": {"type": "integer", "default": 3},
        "b": {"enum": ["x", "y"], "type": "string", "default": "x"},
        "c": {"format": "path", "type": "string", "default": "/tmp"},
        "d": {"enum": ["red", "blue"], "type": "string", "default": "red"},
    }


def test_a_parameter_with_default_none_is_optional_without_null() -> None:
    def func(
        a: Optional[int] = None,  # noqa: UP045
        b: str | int | None = None,
        c: Optional[int] = Field(...),  # noqa: UP045
    ) -> None: ...

    assert properties(func) == {
        "a": {"type": "integer"},
        "b": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    }
    assert schema(func)["required"] == ["c"]


def test_a_default_that_is_no_json_is_not_shown() -> None:
    def func(a: Any = MARKER, b: Any = print) -> None: ...

    assert properties(func) == {"a": {}, "b": {}}


def test_nested_models_are_inlined_without_titles() -> None:
    def func(limits: Limits, more: list[Limits]) -> None: ...

    inner = {
        "description": "How much.",
        "properties": {
            "lines": {"default": 10, "type": "integer"},
            "note": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "default": None,
                "description": "for the reader",
            },
        },
        "type": "object",
    }
    assert properties(func) == {"limits": inner, "more": {"items": inner, "type": "array"}}
    assert "$defs" not in schema(func)


def test_a_recursive_model_keeps_its_reference() -> None:
    def func(tree: Node) -> None: ...

    assert properties(func)["tree"] == {"$ref": "#/$defs/Node"}
    assert schema(func)["$defs"]["Node"]["properties"]["children"]["items"] == {
        "$ref": "#/$defs/Node"
    }


def test_a_union_of_models_is_inlined() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]
        barks: bool

    def func(pet: Any) -> None: ...

    func.__annotations__["pet"] = Annotated[Cat | Dog, Field(discriminator="kind")]
    assert properties(func)["pet"] == {
        "oneOf": [
            {
                "properties": {"kind": {"const": "cat", "type": "string"}},
                "required": ["kind"],
                "type": "object",
            },
            {
                "properties": {
                    "kind": {"const": "dog", "type": "string"},
                    "barks": {"type": "boolean"},
                },
                "required": ["kind", "barks"],
                "type": "object",
            },
        ]
    }


def test_a_parameter_named_title_is_kept_in_the_schema() -> None:
    def func(title: str, description: str, json: str, copy: int, _private: int = 1) -> None: ...

    assert list(properties(func)) == ["title", "description", "json", "copy", "_private"]


def test_parameter_descriptions_come_from_the_type_or_else_the_docstring() -> None:
    def func(
        a: int,
        b: Annotated[int, Field(description="annotated", ge=1)],
        c: int = Field(2, description="field"),
    ) -> None:
        """Do.

        Args:
            a: from the docstring
            b: not this
            c: nor this
        """

    assert {name: field["description"] for name, field in properties(func).items()} == {
        "a": "from the docstring",
        "b": "annotated",
        "c": "field",
    }
    assert properties(func)["b"]["minimum"] == 1
    assert properties(func)["c"]["default"] == 2


def test_the_tool_context_is_not_in_the_schema() -> None:
    def func(path: str, context: ToolContext, *, again: ToolContext | None = None) -> None: ...

    assert list(properties(func)) == ["path"]


def test_variadic_arguments_are_in_the_schema() -> None:
    def func(first: str, *numbers: int, **names: float) -> None: ...

    assert schema(func) == {
        "type": "object",
        "properties": {
            "first": {"type": "string"},
            "numbers": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["first"],
        "additionalProperties": {"type": "number"},
    }


def test_a_function_without_parameters_has_an_empty_object_schema() -> None:
    assert schema(lambda: None) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_methods_partials_decorated_functions_and_callable_objects_have_schemas() -> None:
    class Tool:
        def method(self, a: int) -> None:
            """Of a method."""

        @staticmethod
        def static(a: int) -> None: ...

        def __call__(self, a: int) -> None:
            """Of an object."""

    def with_two(b: str, a: int) -> None:
        """Of a partial."""

    @wraps(with_two)
    def decoy(*args: Any, **kwargs: Any) -> None: ...

    registry = FunctionRegistry()
    expected = {"a": {"type": "integer"}}
    for name, func in {
        "m": Tool().method,
        "s": Tool.static,
        "o": Tool(),
        "p": partial(with_two, "x"),
    }.items():
        assert registry.register(name, None, func).parameters["properties"] == expected
    assert list(properties(decoy)) == ["b", "a"]
    descriptions = {
        function["name"]: function["description"] for function in registry.list_functions()
    }
    assert descriptions == {
        "m": "Of a method.",
        "s": "",
        "o": "Of an object.",
        "p": "Of a partial.",
    }


def test_the_return_type_of_a_function_is_ignored() -> None:
    def func(a: int) -> Decimal: ...

    assert list(properties(func)) == ["a"]


def test_an_unresolvable_type_is_an_error_at_registration() -> None:
    def func(a: Decimal) -> None: ...

    with pytest.raises(
        TypeError,
        match="tool f: the type 'Decimal' cannot be resolved; import it outside TYPE_CHECKING",
    ):
        schema(func)


@pytest.mark.parametrize("hint", [Callable[[], int], type("Session", (), {})])
def test_a_parameter_type_without_json_is_an_error_at_registration(hint: Any) -> None:
    def func(a: Any) -> None: ...

    func.__annotations__["a"] = hint
    with pytest.raises(TypeError, match="tool f has a parameter that cannot come from JSON"):
        schema(func)


def test_an_explicit_parameter_schema_is_used_unchanged() -> None:
    parameters = {"type": "object", "properties": {"q": {"type": "string", "title": "Q"}}}
    definition = FunctionRegistry().register(
        "f", "finds", lambda **arguments: arguments, parameters
    )
    assert definition.parameters == parameters


def test_dataclass_parameters_have_an_object_schema() -> None:
    @dataclass
    class Point:
        x: int
        y: int = 0

    def func(at: Any) -> None: ...

    func.__annotations__["at"] = Point
    assert properties(func)["at"]["properties"] == {
        "x": {"type": "integer"},
        "y": {"default": 0, "type": "integer"},
    }


@pytest.fixture
def registry() -> FunctionRegistry:
    registry = FunctionRegistry()
    for name in ("time__now", "time__zone", "file_read"):
        registry.register(name, f"about {name}", lambda: None)
    return registry


def test_functions_are_listed_by_name_and_glob_in_registration_order(
    registry: FunctionRegistry,
) -> None:
    def names(patterns: list[str] | None = None) -> list[str]:
        return [function["name"] for function in registry.list_functions(patterns)]

    assert names() == ["time__now", "time__zone", "file_read"]
    assert names(["file_read", "time__*"]) == ["time__now", "time__zone", "file_read"]
    assert names(["time__zone", "nothing"]) == ["time__zone"]
    assert names([]) == []


def test_a_function_list_is_cached_until_the_next_registration(
    registry: FunctionRegistry,
) -> None:
    first = registry.list_functions(["time__*"])
    assert registry.list_functions(["time__zone", "time__now"]) is first
    registry.register("time__set", "", lambda: None)
    assert [function["name"] for function in registry.list_functions(["time__*"])] == [
        "time__now",
        "time__zone",
        "time__set",
    ]


def test_a_function_name_can_be_registered_once(registry: FunctionRegistry) -> None:
    with pytest.raises(ValueError, match="there is already a tool called file_read"):
        registry.register("file_read", "", lambda: None)


@pytest.mark.parametrize("name", ["", "two words", "a.b", "名字", "x" * 65])
def test_an_invalid_function_name_is_refused(registry: FunctionRegistry, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a tool"):
        registry.register(name, "", lambda: None)


def test_read_only_function_is_repeatable(registry: FunctionRegistry) -> None:
    assert registry.register("a", "", lambda: None, read_only=True).idempotent
    assert not registry.register("b", "", lambda: None).idempotent
    definition = registry.get_function("b")
    assert definition is not None
    assert (definition.read_only, definition.timeout, definition.changes) == (False, None, None)
    assert registry.get_function("c") is None
    assert registry.has_function("a")
    assert not registry.has_function("c")


def test_a_registry_takes_over_all_functions_of_another_or_none(
    registry: FunctionRegistry,
) -> None:
    other_registry, names = FunctionRegistry(), registry.names()
    for name in ("new", "file_read"):
        other_registry.register(name, "", lambda: None)
    with pytest.raises(ValueError, match="already a tool called file_read"):
        registry.adopt(other_registry)
    assert registry.names() == names


def test_nearest_function_name_is_suggested(registry: FunctionRegistry) -> None:
    assert registry.nearest("file_raed") == "file_read"
    assert registry.nearest("zzz") is None
