"""Dataclasses that cost next to nothing to declare.

The library's decorator writes and compiles six functions for each class, a third of a millisecond: for the 150 classes
that a start imports a fifth of all its time, and a MiB that stays. Most of these functions are never called. Here one
constructor is compiled, when the first instance is made, as that is where speed counts; the rest is written once and
shared. Type checkers see the library's decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

# A frozen value with fewer fields is made too quickly for a second class to be worth its memory.
WIDE = 10

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    from dataclasses import dataclass as _dataclass

    def dataclass(cls=None, /, *, init=True, frozen=False, kw_only=False, slots=False):
        """Make a dataclass of a class, as `dataclasses.dataclass` does with these options."""

        def made(cls):
            if cls.__doc__ is None:
                cls.__doc__ = cls.__name__  # else the library works out a signature to put there
            own = vars(cls)
            # Python writes None there for a class with an `__eq__`; a class that writes it itself means it
            if "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own):
                cls.__hash__ = _hash if frozen else None
            if "__eq__" not in own:
                cls.__eq__ = _eq
            if "__repr__" not in own:
                cls.__repr__ = _repr
            if frozen:
                cls.__setattr__, cls.__delattr__ = _refuse_to_set, _refuse_to_delete
            with _thawed(cls.__mro__[1:]):
                cls = _dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
            cls.__dataclass_params__.frozen = frozen
            if init:
                cls.__init__ = _first_init(cls, frozen=frozen)
            return cls

        return made if cls is None else made(cls)


# What a dataclass may be asked to be here.
OPTIONS = frozenset(["init", "frozen", "kw_only", "slots"])


@contextmanager
def _thawed(parents: Sequence[Any]) -> Iterator[None]:
    """Let the library take the parents for what it makes of their child: one that it has not frozen itself."""
    frozen = [own for each in parents if (own := vars(each).get("__dataclass_params__")) and own.frozen]
    for each in frozen:
        each.frozen = False
    try:
        yield
    finally:
        for each in frozen:
            each.frozen = True


def _first_init(cls: Any, *, frozen: bool) -> Any:
    """Return a constructor that puts the compiled one in its place."""

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807  what a traceback shows
        cls.__init__ = _compiled_init(cls, frozen=frozen)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _compiled_init(cls: Any, *, frozen: bool) -> Any:
    """Return the constructor; defaults and factories are at hand under names of their own.

    What has `init=False` is for `__post_init__` to set.
    """
    known: dict[str, Any] = {"_set": object.__setattr__, "_unset": MISSING}
    by_place, by_name, values = ["self"], list[str](), dict[str, str]()
    for each in fields(cls):
        if not each.init:
            continue
        name, value = each.name, each.name
        parameter = name
        if each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            parameter, value = f"{name}=_unset", f"_make_{name}() if {name} is _unset else {name}"
        elif each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
        (by_name if each.kw_only else by_place).append(parameter)
        values[name] = value
    plain = [f"self.{name} = {value}" for name, value in values.items()]
    body = [f"_set(self, {name!r}, {value})" for name, value in values.items()] if frozen else plain
    if frozen and len(values) >= WIDE and "__slots__" in vars(cls):
        known |= {"_own": cls, "_open": _open_twin(cls)}
        body = [
            "if self.__class__ is _own:",
            *(f" {line}" for line in ("_set(self, '__class__', _open)", *plain, "self.__class__ = _own")),
            "else:",  # a child that declares no fields
            *(f" {line}" for line in body),
        ]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), known)  # noqa: S102  as the library does
    init = known["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


def _open_twin(cls: Any) -> Any:
    """Return a class of the same layout whose instances may be written to.

    As one of it a new value takes its fields by plain assignment, a seventh of what going around the refusal costs.
    """
    free = {"__slots__": cls.__slots__, "__setattr__": object.__setattr__, "__module__": cls.__module__}
    return type(cls.__name__, cls.__bases__, free)


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = _compared(self.__class__)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self))


@cache
def _compared(cls: Any) -> Callable[[Any], Any]:
    """Return what takes out of an instance all that makes it equal to another."""
    names = [each.name for each in fields(cls) if each.compare]
    return attrgetter(*names) if names else lambda _: ()


def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _is_frozen(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(instance: Any, name: str) -> bool:
    """Say whether an attribute stays; a child that is no dataclass may have others of its own."""
    cls = type(instance)
    return "__dataclass_fields__" in vars(cls) or name in cls.__dataclass_fields__
