"""Our dataclasses are the library's in everything but what they cost to declare."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from daemon import values

OURS_AND_THEIRS = pytest.mark.parametrize(
    "dataclass", [values.dataclass, dataclasses.dataclass], ids=["ours", "theirs"]
)


def made_by(dataclass: Callable[..., Any]) -> Any:
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Parcel:
        to: str
        weight: float = 1.0
        stamps: list[str] = field(default_factory=list)
        secret: bytes = field(default=b"", repr=False, compare=False)

    return Parcel


@OURS_AND_THEIRS
def test_defaults_are_filled_in_and_factories_called_for_each(dataclass):
    parcel = made_by(dataclass)
    one, other = parcel(to="Anna"), parcel(to="Anna", weight=1.0)
    assert (one.weight, one.stamps, one.secret) == (1.0, [], b"")
    assert one.stamps is not other.stamps
    given: list[str] = []
    assert parcel(to="Anna", stamps=given).stamps is given


@OURS_AND_THEIRS
def test_equal_are_those_of_one_class_whose_compared_fields_are(dataclass):
    parcel = made_by(dataclass)
    assert parcel(to="Anna") == parcel(to="Anna", secret=b"x")
    assert parcel(to="Anna") != parcel(to="Bert")
    assert parcel(to="Anna") != made_by(dataclass)(to="Anna")
    assert parcel(to="Anna") != "Anna"


@OURS_AND_THEIRS
def test_the_frozen_have_a_hash_of_what_makes_them_equal_and_others_none(dataclass):
    @dataclass(frozen=True)
    class Place:
        street: str
        note: str = field(default="", compare=False)

    assert len({Place("Elm"), Place("Elm", "loud"), Place("Oak")}) == 2

    @dataclass(slots=True)
    class Box:
        size: int

    with pytest.raises(TypeError, match="unhashable"):
        hash(Box(1))


@OURS_AND_THEIRS
def test_the_frozen_do_not_change(dataclass):
    one = made_by(dataclass)(to="Anna")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'to'"):
        one.to = "Bert"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'to'"):
        del one.to
    assert dataclasses.replace(one, to="Bert") == type(one)(to="Bert")


def wide_by(dataclass: Callable[..., Any], **more: Any) -> Any:
    """A class with more fields than are set one by one."""
    fields = [(f"f{number}", int, field(default=number)) for number in range(values.WIDE)]
    named = {"__annotations__": {name: kind for name, kind, _ in fields}, **{name: each for name, _, each in fields}}
    return dataclass(frozen=True, kw_only=True, slots=True)(type("Wide", (), {**named, **more}))


@OURS_AND_THEIRS
def test_a_value_of_many_fields_is_of_its_class_and_does_not_change_either(dataclass):
    made = []
    wide = wide_by(dataclass, __post_init__=lambda self: made.append(type(self)))
    for _ in range(2):  # the first time and later
        one = wide(f3=33)
        assert (one.f0, one.f3, one.f9) == (0, 33, 9)
        assert one == dataclasses.replace(wide(), f3=33)
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'f1'"):
            one.f1 = 2
        with pytest.raises(TypeError, match=r"Wide\.__init__\(\) got an unexpected keyword argument 'colour'"):
            wide(colour="red")
    assert set(made) == {wide}


@OURS_AND_THEIRS
@pytest.mark.parametrize("layout", [{}, {"__slots__": ()}], ids=["open", "with slots"])
def test_a_child_that_declares_no_fields_is_made_by_its_parent(dataclass, layout):
    child = type("Child", (wide_by(dataclass),), layout)
    one = child(f3=33)
    assert type(one) is child
    assert (one.f3, one.f9) == (33, 9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.f3 = 2


@OURS_AND_THEIRS
def test_those_that_are_not_frozen_do(dataclass):
    @dataclass(slots=True)
    class Box:
        size: int
        inside: list[str] = field(default_factory=list)

    box = Box(1)
    box.size = 2
    assert box == Box(2)
    with pytest.raises(AttributeError):
        box.colour = "red"  # it has slots


@OURS_AND_THEIRS
def test_they_show_what_they_hold_but_not_what_is_to_be_hidden(dataclass):
    shown = repr(made_by(dataclass)(to="Anna", secret=b"hush"))
    assert shown.endswith("Parcel(to='Anna', weight=1.0, stamps=[])")


@OURS_AND_THEIRS
def test_what_is_missing_too_much_or_in_the_wrong_place_is_refused_by_name(dataclass):
    parcel = made_by(dataclass)
    for _ in range(2):  # the first time and later
        with pytest.raises(TypeError, match=r"Parcel\.__init__\(\) missing 1 required keyword-only argument: 'to'"):
            parcel()
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            parcel(to="Anna", colour="red")
        with pytest.raises(TypeError, match="positional argument"):
            parcel("Anna")


@OURS_AND_THEIRS
def test_what_a_class_says_itself_stays(dataclass):
    @dataclass(frozen=True, slots=True)
    class Word:
        text: str
        folded: str = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "folded", self.text.casefold())

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Word) and self.folded == other.folded

        def __hash__(self) -> int:
            return hash(self.folded)

        def __repr__(self) -> str:
            return f"<{self.text}>"

    assert Word("Elm") == Word("ELM")
    assert {Word("Elm")} == {Word("elm")}
    assert repr(Word("Elm")) == "<Elm>"


@OURS_AND_THEIRS
def test_a_child_has_the_fields_of_its_parent_first(dataclass):
    @dataclass(frozen=True, slots=True)
    class Animal:
        name: str

    Animal("Rex")

    @dataclass(frozen=True, slots=True)
    class Dog(Animal):
        tail: int = 1

    rex = Dog("Rex", 2)
    assert (rex.name, rex.tail) == ("Rex", 2)
    assert rex != Animal("Rex")
    match rex:
        case Dog(name, tail):
            assert (name, tail) == ("Rex", 2)
    assert dataclasses.asdict(rex) == {"name": "Rex", "tail": 2}
    assert dataclasses.is_dataclass(Dog)


def test_the_constructor_has_its_parameters_once_it_was_needed():
    parcel = made_by(values.dataclass)
    parcel(to="Anna")
    assert list(inspect.signature(parcel).parameters) == ["to", "weight", "stamps", "secret"]


@OURS_AND_THEIRS
def test_a_constructor_of_its_own_stays_and_a_missing_hash_stays_missing(dataclass):
    @dataclass(init=False, frozen=True)
    class Event:
        name: str
        __hash__ = None

        def __init__(self, name: str) -> None:
            object.__setattr__(self, "name", name.upper())

    assert Event("a") == Event("A")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Event("a"))


@OURS_AND_THEIRS
def test_a_child_that_is_no_dataclass_may_have_attributes_of_its_own(dataclass):
    @dataclass(frozen=True)
    class Place:
        street: str

    class Home(Place):
        pass

    home = Home("Elm")
    home.cat = "Minka"
    with pytest.raises(dataclasses.FrozenInstanceError):
        home.street = "Oak"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del home.street
    del home.cat
    assert home == Home("Elm")


@pytest.mark.parametrize("parents", [values.dataclass, dataclasses.dataclass], ids=["of ours", "of theirs"])
@OURS_AND_THEIRS
def test_children_and_parents_may_be_declared_by_either(dataclass, parents):
    @parents(frozen=True, slots=True)
    class Animal:
        name: str

    @dataclass(frozen=True, slots=True)
    class Dog(Animal):
        tail: int = 1

    assert Dog("Rex").tail == 1 and {Dog("Rex")} == {Dog("Rex")}
    for each in (Animal("Rex"), Dog("Rex")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            each.name = "Bello"
    assert Animal.__dataclass_params__.frozen and Dog.__dataclass_params__.frozen
