"""The functions a model may be offered, each with the schema it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from daemon.models import Json
from daemon.tools.signature import Signature

# What every vendor takes as a function's name.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionDefinition:
    """One function as a model sees it, and what is known of running it."""

    name: str
    description: str
    func: Callable[..., Any]
    read_only: bool = False
    """Changes nothing: calls of one turn may run side by side."""
    idempotent: bool = False
    """Twice is the same as once: may be run again after a crash. What is read-only always is."""
    timeout: float | None = None
    """Seconds."""
    changes: Callable[[Any, Any], list[str]] | None = None
    """What differs between two results, in words."""
    signature: Signature = field(repr=False, compare=False)

    @property
    def parameters(self) -> Json:
        """JSON schema of the arguments."""
        return self.signature.schema

    def __post_init__(self) -> None:
        if self.read_only and not self.idempotent:
            object.__setattr__(self, "idempotent", True)


class FunctionRegistry:
    """Functions by name.

    Names are unique: a later tool must not take the place, and the rights, of an earlier one.
    """

    def __init__(self, *, known_good: bool = False) -> None:
        """`known_good` functions have signatures that JSON can express, and are read by `read` or
        when first needed.
        """
        self._known_good = known_good
        self._functions: dict[str, FunctionDefinition] = {}
        self._lists: dict[frozenset[str], list[Json]] = {}

    def register(
        self,
        name: str,
        description: str | None,
        func: Callable[..., Any],
        parameters: Json | None = None,
        *,
        read_only: bool = False,
        idempotent: bool = False,
        timeout: float | None = None,
        changes: Callable[[Any, Any], list[str]] | None = None,
    ) -> FunctionDefinition:
        """Add a function; without `parameters` its signature is read, without `description` its
        docstring.

        Raises ValueError for a name that is taken or that vendors refuse, TypeError for parameters
        JSON cannot express.
        """
        if not _NAME.fullmatch(name):
            msg = f"{name!r} cannot name a tool: 1 to 64 of A-Z a-z 0-9 _ - are allowed"
            raise ValueError(msg)
        if name in self._functions:
            msg = f"there is already a tool called {name}"
            raise ValueError(msg)
        signature = Signature(name, func, parameters)
        if not self._known_good:
            signature.schema  # noqa: B018  read now: what JSON cannot say is refused here
        definition = FunctionDefinition(
            name=name,
            description=description or signature.doc.description,
            func=func,
            read_only=read_only,
            idempotent=idempotent,
            timeout=timeout,
            changes=changes,
            signature=signature,
        )
        self._functions[name] = definition
        self._lists.clear()
        return definition

    def read(self) -> None:
        """Read the signatures that nobody has needed yet."""
        for definition in list(self._functions.values()):
            definition.signature.schema  # noqa: B018

    def adopt(self, other_registry: FunctionRegistry) -> None:
        """Take over the functions of another registry; ValueError for a name that is taken."""
        for definition in other_registry._functions.values():
            if definition.name in self._functions:
                msg = f"there is already a tool called {definition.name}"
                raise ValueError(msg)
            self._functions[definition.name] = definition
        self._lists.clear()

    def get_function(self, name: str) -> FunctionDefinition | None:
        return self._functions.get(name)

    def has_function(self, name: str) -> bool:
        return name in self._functions

    def names(self, patterns: Iterable[str] | None = None) -> list[str]:
        """Return the names, of all functions or of those that a name or glob in `patterns` covers,
        as registered.
        """
        if patterns is None:
            return list(self._functions)
        exact_names = set(patterns)
        if exact_names <= self._functions.keys():
            return [name for name in self._functions if name in exact_names]
        globs = [pattern for pattern in exact_names if not _NAME.fullmatch(pattern)]
        return [
            name
            for name in self._functions
            if name in exact_names
            or (globs and any(fnmatchcase(name, pattern) for pattern in globs))
        ]

    def list_functions(self, names: Iterable[str] | None = None) -> list[Json]:
        """Return `{"name", "description", "parameters"}` of the functions that `names` (globs too)
        cover, or of all.

        The same set gives the same object until something is registered, so that providers can
        cache its translation.
        """
        selected_names = frozenset(self.names(names))
        if selected_names not in self._lists:
            self._lists[selected_names] = [
                {
                    "name": function.name,
                    "description": function.description,
                    "parameters": function.parameters,
                }
                for name, function in self._functions.items()
                if name in selected_names
            ]
        return self._lists[selected_names]

    def nearest(self, name: str) -> str | None:
        """Return the registered name most like `name`, if any is."""
        return next(iter(get_close_matches(name, self._functions, n=1)), None)
