"""Five ways to register functions without naming each one.

Skipped: private and special names, the words in INTERNAL, and functions whose parameters JSON
cannot express. What `@agent_callable` says of a function goes before all of that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar, overload

import structlog

from daemon.models import Json
from daemon.tools.registry import FunctionRegistry

# Public by name, but meant for the program around the object, not for a model.
INTERNAL = frozenset({"get_session", "create_tables", "drop_tables", "get_engine", "init_db"})
_MARK = "__agent_callable__"
F = TypeVar("F", bound=Callable[..., Any])

_log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mark:
    name: str | None = None
    description: str | None = None
    parameters: Json | None = None
    options: Json = field(default_factory=dict)


@overload
def agent_callable(name: F) -> F: ...
@overload
def agent_callable(
    name: str | None = None,
    description: str | None = None,
    parameters: Json | None = None,
    **options: Any,
) -> Callable[[F], F]: ...
def agent_callable(
    name: F | str | None = None,
    description: str | None = None,
    parameters: Json | None = None,
    **options: Any,
) -> F | Callable[[F], F]:
    """Mark a function as one a model may call; `options` are the marks of
    FunctionRegistry.register.
    """

    def mark(func: F, name: str | None = None) -> F:
        setattr(
            func,
            _MARK,
            _Mark(name=name, description=description, parameters=parameters, options=options),
        )
        return func

    return (lambda func: mark(func, name)) if name is None or isinstance(name, str) else mark(name)


def register_instance_methods(
    registry: FunctionRegistry, instance: object, prefix: str = ""
) -> list[str]:
    """Register every public method of an object, inherited ones too; return their names."""
    members = (
        (name, getattr(instance, name), descriptor) for name, descriptor in _methods(type(instance))
    )
    return list(_register(registry, members, prefix))


def register_module_functions(
    registry: FunctionRegistry,
    module: ModuleType,
    prefix: str = "",
    filter_func: Callable[[Callable[..., Any]], bool] | None = None,
) -> list[str]:
    """Register the functions a module defines, or those it names in `__all__`; return their
    names.
    """
    exported_names = getattr(module, "__all__", None)
    members = (
        (name, func, func)
        for name, func in vars(module).items()
        if inspect.isfunction(func)
        and (
            name in exported_names
            if exported_names is not None
            else func.__module__ == module.__name__
        )
        and (filter_func is None or filter_func(func))
    )
    return list(_register(registry, members, prefix))


def register_class_methods(
    registry: FunctionRegistry, cls: type, prefix: str = "", instance: object | None = None
) -> list[str]:
    """Register the public methods of a class; without an instance only static and class methods can
    be called.
    """
    members = (
        (name, getattr(cls if instance is None else instance, name), descriptor)
        for name, descriptor in _methods(cls)
        if instance is not None or isinstance(descriptor, staticmethod | classmethod)
    )
    return list(_register(registry, members, prefix))


def auto_discover_and_register(
    registry: FunctionRegistry, targets: Iterable[object | tuple[object, str]]
) -> list[str]:
    """Register modules, classes, functions and objects by what they are; a pair carries a prefix
    for its names.
    """
    names: list[str] = []
    for target in targets:
        item, prefix = target if isinstance(target, tuple) else (target, "")
        if isinstance(item, ModuleType):
            names += register_module_functions(registry, item, prefix)
        elif isinstance(item, type):
            names += register_class_methods(registry, item, prefix)
        elif inspect.isroutine(item):
            names += _register(registry, [(item.__name__, item, item)], prefix)
        else:
            names += register_instance_methods(registry, item, prefix)
    return names


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield names and descriptors of what can be called on a class's objects, without evaluating
    a property.
    """
    for name in dir(cls):
        descriptor = inspect.getattr_static(cls, name)
        if inspect.isfunction(descriptor) or isinstance(descriptor, staticmethod | classmethod):
            yield name, descriptor


def _register(
    registry: FunctionRegistry, members: Iterable[tuple[str, Any, Any]], prefix: str
) -> Iterator[str]:
    for name, func, descriptor in members:
        mark: _Mark | None = getattr(func, _MARK, None) or getattr(descriptor, _MARK, None)
        if mark is None and (name.startswith("_") or name in INTERNAL):
            continue
        mark = mark or _Mark()
        full_name = prefix + (mark.name or name)
        try:
            registry.register(full_name, mark.description, func, mark.parameters, **mark.options)
        except TypeError as error:
            _log.warning("function.skipped", function=full_name, detail=str(error))
            continue
        yield full_name
