"""Strict mode: schemas are made strict where possible, without a difference for functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from daemon.models import Json
from daemon.providers.strict_schemas import make_strict, remove_filler_nulls
from daemon.tools.registry import FunctionRegistry
from tests.fakes.rules import check_function
from tests.fakes.vendor import FakeVendor
from tests.properties import scaled_settings
from tests.providers.calls import Opener, Talk


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0
    label: str | None = None
    inner: list[Point] = Field(default_factory=list)


@dataclass
class Size:
    width: Annotated[int, Field(ge=1, description="in pixels")]
    unit: Literal["px", "cm"] = "px"


class Options(TypedDict, total=False):
    deep: bool
    colour: Colour


def draw(
    where: Point,
    size: Size | None = None,
    options: Options | None = None,
    colour: Colour = Colour.RED,
    tags: list[str] | None = None,
    title: Annotated[str, Field(min_length=1, max_length=9)] = "x",
    at: Point | Size | int = 3,
) -> str:
    """Draw a point."""
    return ""


def schema_of(function: Any) -> Json:
    registry = FunctionRegistry()
    registry.register("draw", None, function)
    return registry.list_functions()[0]


def test_a_rich_signature_has_a_strict_schema() -> None:
    (strict,) = make_strict([schema_of(draw)])
    assert strict["strict"] is True
    check_function(strict, "tools[0].function", set())  # as the vendor checks it
    parameters = strict["parameters"]
    assert parameters["required"] == ["where", "size", "options", "colour", "tags", "title", "at"]
    assert parameters["additionalProperties"] is False
    assert 'Default: "x".' in parameters["properties"]["title"]["description"]
    assert parameters["properties"]["title"]["type"] == ["string", "null"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"any": {}}},
        {"type": "object", "properties": {"table": {"type": "object"}}},
        {
            "type": "object",
            "properties": {"table": {"type": "object", "additionalProperties": {"type": "string"}}},
        },
        {"type": "object", "additionalProperties": True},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}},
        {
            "type": "object",
            "properties": {"a": {"type": "array", "prefixItems": [{"type": "string"}]}},
        },
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"anyOf": [{"type": "object", "properties": {}}]},
        {"type": "object", "properties": {"a": {"not": {"type": "null"}}}},
        {  # as in draft 7
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/P"}},
            "definitions": {"P": {"type": "string"}},
        },
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/p.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/Q"}}, "$defs": {"P": {}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
    ],
)
def test_a_schema_without_a_strict_form_is_sent_unchanged(parameters: Json) -> None:
    function = {"name": "f", "description": "d", "parameters": parameters}
    assert make_strict([function]) == [function]


@pytest.mark.parametrize(("default", "text"), [(True, "true"), (None, "null"), ("é", '"é"')])
def test_a_default_is_described_in_json(default: object, text: str) -> None:
    schema = {"type": ["boolean", "string", "null"], "default": default}
    parameters = {"type": "object", "properties": {"a": schema}}
    (strict,) = make_strict([{"name": "f", "parameters": parameters}])
    assert strict["parameters"]["properties"]["a"]["description"] == f"Default: {text}."


def test_a_schema_may_refer_to_itself_and_to_its_definitions() -> None:
    parameters = {
        "type": "object",
        "properties": {"inner": {"$ref": "#"}, "a": {"$ref": "#/$defs/P"}},
        "$defs": {"P": {"type": "string"}},
    }
    (strict,) = make_strict([{"name": "f", "parameters": parameters}])
    assert strict["strict"] is True


def test_null_for_an_optional_property_is_removed_in_the_items_of_an_optional_list() -> None:
    def place(points: list[Point] | None = None) -> None:
        """Place points."""

    arguments = {"points": [{"x": 1, "y": None, "label": None}]}
    assert remove_filler_nulls(arguments, schema_of(place)["parameters"]) == {
        "points": [{"x": 1, "label": None}]
    }


def test_a_function_without_parameters_is_strict_too() -> None:
    (strict,) = make_strict([{"name": "f"}])
    assert strict["parameters"] == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("arguments", "remaining_arguments"),
    [
        (
            {
                "where": {"x": 1, "y": None, "label": None, "inner": None},
                "title": None,
                "at": None,
                "size": None,
            },
            {"where": {"x": 1, "label": None}},  # null is a value of `label`
        ),
        (
            {"where": {"x": 1, "inner": [{"x": 2, "y": None}]}},
            {"where": {"x": 1, "inner": [{"x": 2}]}},
        ),
        (
            {"where": {"x": 1}, "at": {"width": 3, "unit": None}},
            {"where": {"x": 1}, "at": {"width": 3}},
        ),
        ({"options": {"deep": None, "colour": "red"}}, {"options": {"colour": "red"}}),
        ({"unknown": None}, {"unknown": None}),  # not ours to judge: the call fails with its reason
    ],
)
def test_null_for_an_optional_argument_is_removed(
    arguments: Json, remaining_arguments: Json
) -> None:
    assert remove_filler_nulls(arguments, schema_of(draw)["parameters"]) == remaining_arguments


leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 0, "default": 3},
        {"enum": ["a", "b"], "type": "string"},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        {"type": "object"},
        {},
        {"const": 1},
        {"type": "string", "format": "uri", "minLength": 2},
    ]
)
schemas = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda properties, required_names: {
                "type": "object",
                "properties": properties,
                "required": [name for name in properties if name in required_names],
            },
            st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
            st.sets(st.sampled_from("abcd")),
        )
        | st.builds(lambda left, right: {"oneOf": [left, right]}, inner, inner)
    ),
    max_leaves=12,
)


@scaled_settings(300)
@given(properties=st.dictionaries(st.sampled_from("abcd"), schemas, max_size=4))
def test_every_strict_schema_obeys_the_rules_of_the_vendor(properties: Json) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": properties}}
    before = json.dumps(function)
    (strict,) = make_strict([function])
    assert json.dumps(function) == before  # nothing of ours is touched
    if strict.get("strict"):
        check_function(strict, "tools[0]", set())


@pytest.mark.parametrize("way", ["openai responses", "openai chat"])
async def test_openai_gets_strict_schemas_transparently_for_functions(
    way: str, provider_for: Opener
) -> None:
    call_reply = {
        "tool_calls": [{"name": "shell", "arguments": {"command": "uptime", "words": None}}]
    }
    async with FakeVendor([call_reply, call_reply, "Done."]) as vendor:
        talk = Talk(provider_for(way, vendor))
        first = await talk.ask()
        second = await talk.ask(max_tokens=30_000)
        await talk.ask()
    assert vendor.refusals == []
    assert [call.arguments for call in (*first.function_calls, *second.function_calls)] == [
        {"command": "uptime"}
    ] * 2
    tool = vendor.requests[0].body["tools"][0]
    assert (tool.get("function") or tool)["strict"] is True
    # what goes back is what the model said
    assert '\\"words\\": null' in vendor.requests[1].raw.decode()


async def test_a_vendor_without_strict_mode_gets_the_schema_unchanged(provider_for: Opener) -> None:
    async with FakeVendor(["x", "x", "x"]) as vendor:
        for way, settings in (
            ("claude opus", {}),
            ("deepseek", {}),
            ("openai chat", {"capabilities": {"strict": False}}),
        ):
            await Talk(provider_for(way, vendor, **settings)).ask()
    assert vendor.refusals == []
    assert not any("additionalProperties" in request.raw.decode() for request in vendor.requests)
