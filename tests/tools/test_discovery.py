"""Five ways to register functions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.tools.discovery import (
    agent_callable,
    auto_discover_and_register,
    register_class_methods,
    register_instance_methods,
    register_module_functions,
)
from daemon.tools.registry import FunctionRegistry


class Base:
    def inherited(self) -> str:
        """Say so."""
        return "inherited"


class Shop(Base):
    """What a program has and a model may use."""

    def __init__(self, name: str = "shop") -> None:
        self.name = name
        self.callback = lambda: None

    @property
    def broken(self) -> str:
        raise AssertionError("nobody asked")

    def get_customer(self, name: str) -> str:
        return f"{self.name}: {name}"

    def get_session(self) -> None: ...

    def create_tables(self) -> None: ...

    def _private(self) -> None: ...

    @staticmethod
    def price(article: str) -> int:
        return len(article)

    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    @agent_callable(name="buy", description="Buy an article", idempotent=False, timeout=5)
    def _order(self, article: str) -> str:
        return article

    def with_session(self, session: Base) -> None: ...


@pytest.fixture
def registry() -> FunctionRegistry:
    return FunctionRegistry()


@pytest.fixture
def module() -> ModuleType:
    new_module = ModuleType("made")
    exec(
        "from os.path import join\n"
        "def first(a: int) -> int:\n    'The first.'\n    return a\n"
        "def second() -> None: ...\n"
        "def _hidden() -> None: ...\n"
        "class Thing: ...\n",
        vars(new_module),
    )
    for value in vars(new_module).values():
        if getattr(value, "__name__", "") in ("first", "second", "_hidden"):
            value.__module__ = "made"
    return new_module


async def test_the_public_methods_of_an_object_are_registered(registry: FunctionRegistry) -> None:
    with capture_logs() as logs:
        names = register_instance_methods(registry, Shop("corner"), prefix="shop_")
    assert sorted(names) == [
        "shop_buy",
        "shop_get_customer",
        "shop_inherited",
        "shop_kind",
        "shop_price",
    ]
    definition = registry.get_function("shop_get_customer")
    assert definition is not None
    assert definition.func("Ann") == "corner: Ann"
    assert list(definition.parameters["properties"]) == ["name"]
    # a method that no model could call is left out, and the operator told
    (entry,) = logs
    assert (entry["event"], entry["function"]) == ("function.skipped", "shop_with_session")


def test_decorator_settings_take_precedence(registry: FunctionRegistry) -> None:
    register_instance_methods(registry, Shop())
    definition = registry.get_function("buy")
    assert definition is not None
    assert (definition.description, definition.timeout) == ("Buy an article", 5)


def test_functions_defined_in_a_module_are_registered(
    registry: FunctionRegistry, module: ModuleType
) -> None:
    assert register_module_functions(registry, module, "m_") == ["m_first", "m_second"]
    assert register_module_functions(
        registry, module, filter_func=lambda func: func.__name__ == "first"
    ) == ["first"]


def test_functions_in_all_of_a_module_are_registered(
    registry: FunctionRegistry, module: ModuleType
) -> None:
    module.__all__ = ["second", "join"]  # type: ignore[attr-defined]
    assert register_module_functions(registry, module) == ["join", "second"]


def test_without_an_instance_only_static_and_class_methods_are_registered(
    registry: FunctionRegistry,
) -> None:
    assert sorted(register_class_methods(registry, Shop)) == ["kind", "price"]
    with_object = register_class_methods(registry, Shop, "s_", instance=Shop())
    assert sorted(with_object) == ["s_buy", "s_get_customer", "s_inherited", "s_kind", "s_price"]


def test_objects_classes_modules_and_functions_are_registered_by_kind(
    registry: FunctionRegistry, module: ModuleType
) -> None:
    @agent_callable(description="look a customer up", read_only=True)
    def lookup(name: str) -> str:
        """Not this."""
        return name

    @agent_callable
    def bare() -> None:
        """Said in the docstring."""

    names = auto_discover_and_register(
        registry, [lookup, bare, (module, "m_"), (Shop(), "shop_"), (Shop, "c_")]
    )
    assert names[:4] == ["lookup", "bare", "m_first", "m_second"]
    assert {"shop_price", "shop_get_customer", "c_price"} <= set(names)
    descriptions = {
        function["name"]: function["description"] for function in registry.list_functions()
    }
    assert (descriptions["lookup"], descriptions["bare"]) == (
        "look a customer up",
        "Said in the docstring.",
    )
    definition: Any = registry.get_function("lookup")
    assert definition.read_only
