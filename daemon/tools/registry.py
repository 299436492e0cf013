"""The functions a model may be offered: from a Python signature to the JSON schema that the model
reads, and from its arguments to a call.

Pydantic does both through one TypedDict per function: its keys are the parameters the model sees,
so any legal name works, and what the model leaves out stays out, so that the function's own default
applies.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from daemon.errors import ToolFailed
from daemon.models import Json, ToolContext
from daemon.tools import argument_errors, docstrings
from daemon.tools.schema import drop_null, simplify_schema

_Parameter = inspect.Parameter


class Signature:
    """How a model calls one function: the schema it reads, and the check of what it sends.

    The types are read when they are first asked for: a millisecond per tool, that a start need not
    wait for.
    """

    def __init__(self, name: str, func: Callable[..., Any], parameters: Json | None = None) -> None:
        """`parameters` is the JSON schema to use as it is, of which only the first level is
        checked; None makes one from the types of `func`. Raises TypeError if `func` has no
        signature.
        """
        self.name, self._func, self._parameters = name, func, parameters
        try:
            self._signature = inspect.signature(func)
        except ValueError:
            raise TypeError(
                f"the signature of tool {name} cannot be read; wrap it in a function of your own"
            ) from None
        self.doc = docstrings.parse(inspect.getdoc(_innermost(func)))

    @functools.cached_property
    def _types(self) -> Json:
        return _resolve_types(
            self.name, self._func, self._signature, lenient=self._parameters is not None
        )

    @functools.cached_property
    def _injected_parameters(self) -> frozenset[str]:
        return frozenset(
            key
            for key, hint in self._types.items()
            if hint is ToolContext or ToolContext in typing.get_args(hint)
        )

    @property
    def _model_parameters(self) -> list[_Parameter]:
        return [
            parameter
            for key, parameter in self._signature.parameters.items()
            if key not in self._injected_parameters
        ]

    @functools.cached_property
    def _extra_keywords(self) -> str | None:
        return next(
            (
                parameter.name
                for parameter in self._model_parameters
                if parameter.kind is _Parameter.VAR_KEYWORD
            ),
            None,
        )

    @functools.cached_property
    def _validator_and_schema(self) -> tuple[TypeAdapter[Any] | None, Json]:
        if self._parameters is not None:
            return None, self._parameters
        adapter, schema = self._build_validator(self._model_parameters, self._types)
        return adapter, _schema(schema, self._model_parameters)

    @property
    def schema(self) -> Json:
        """The JSON schema that the model reads; TypeError for a type that JSON cannot express."""
        return self._validator_and_schema[1]

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function, which needs no thread of its own."""
        return inspect.iscoroutinefunction(self._func) or inspect.iscoroutinefunction(
            type(self._func).__call__
        )

    @functools.cached_property
    def _has_nameless_parameters(self) -> bool:
        """Whether the function has parameters that a caller cannot pass by name."""
        nameless = (_Parameter.POSITIONAL_ONLY, _Parameter.VAR_POSITIONAL)
        return any(parameter.kind in nameless for parameter in self._signature.parameters.values())

    def bind(self, arguments: Json, context: ToolContext | None) -> Callable[[], Any]:
        """Check the arguments and return the call, ready to be made; raises ToolFailed that names
        every fault.
        """
        values = self.check_arguments(arguments)
        parameters = self._signature.parameters
        keyword_arguments = {
            key: values.pop(key)
            for key in parameters
            if key in values and key not in (self._extra_keywords, *self._injected_parameters)
        }
        for key in self._injected_parameters:
            if context is not None:
                keyword_arguments[key] = context
            elif parameters[key].default is _Parameter.empty:
                raise ToolFailed(f"{self.name} works only inside a run")
        if not self._has_nameless_parameters:
            return functools.partial(
                self._func, **keyword_arguments, **(values if self._extra_keywords else {})
            )
        if self._extra_keywords:
            keyword_arguments[self._extra_keywords] = values
        bound_arguments = inspect.BoundArguments(self._signature, keyword_arguments)
        # an argument left out before a positional one would shift that into its place
        bound_arguments.apply_defaults()
        return functools.partial(self._func, *bound_arguments.args, **bound_arguments.kwargs)

    def check_arguments(self, arguments: Json) -> Json:
        """Return the arguments as the function takes them; raises ToolFailed that names every
        fault.
        """
        # A model never passes the tool context, even to a function that takes any keyword.
        adapter, schema = self._validator_and_schema
        faults = [
            argument_errors.describe_unknown(key, schema.get("properties", {}))
            for key in arguments
            if key in self._injected_parameters
        ]
        values = arguments
        if adapter is None:
            faults += argument_errors.check_by_schema(
                arguments, schema, closed=self._extra_keywords is None
            )
        elif not faults:
            try:
                values = adapter.validate_python(arguments)
            except ValidationError as error:
                faults = argument_errors.describe_validation_error(error, arguments, schema)
        if faults:
            raise argument_errors.make_failure(self.name, faults)
        return dict(values)

    def _build_validator(
        self, parameters: list[_Parameter], hints: Json
    ) -> tuple[TypeAdapter[Any], Json]:
        """Return what checks the arguments, and pydantic's schema of them."""
        keys: Json = {}
        extra: Json = {}
        for parameter in parameters:
            hint, default = hints[parameter.name], parameter.default
            if parameter.kind is _Parameter.VAR_KEYWORD:
                extra = {"extra_items": hint}
                continue
            if parameter.kind is _Parameter.VAR_POSITIONAL:
                hint, default = list[hint], ()  # type: ignore[valid-type]
            if isinstance(default, FieldInfo):
                hint = Annotated[hint, default]
            hint = _add_description(hint, self.doc.arguments.get(parameter.name))
            keys[parameter.name] = hint if default is _Parameter.empty else NotRequired[hint]
            if isinstance(default, FieldInfo) and default.is_required():
                keys[parameter.name] = hint
        # mypy reads TypedDict as a declaration; this one is made at run time, from the signature.
        shape: Any = TypedDict(self.name, keys, **extra)  # type: ignore[misc]
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(
                shape if extra else with_config(ConfigDict(extra="forbid"))(shape)
            )
            schema = adapter.json_schema()
        except PydanticUserError as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(
                f"tool {self.name} has a parameter that cannot come from JSON: {reason}"
            ) from None
        return adapter, schema


def _schema(schema: Json, parameters: list[_Parameter]) -> Json:
    """Return what the model reads of the parameters, defaults included where JSON can say them."""
    schema = simplify_schema(schema)
    properties = schema["properties"]
    for parameter in parameters:
        if parameter.name not in properties or parameter.default is _Parameter.empty:
            continue
        if parameter.default is None:
            properties[parameter.name] = drop_null(properties[parameter.name])
        elif not isinstance(parameter.default, FieldInfo):
            try:
                properties[parameter.name]["default"] = to_jsonable_python(parameter.default)
            except PydanticSerializationError:
                # an object no model could write: that the argument may be left out says enough
                continue
    return schema


def _add_description(hint: Any, text: str | None) -> Any:
    """Add the docstring's words to a type that has none of its own."""
    has_description = any(
        isinstance(item, FieldInfo) and item.description
        for item in getattr(hint, "__metadata__", ())
    )
    return Annotated[hint, Field(description=text)] if text and not has_description else hint


def _resolve_types(
    name: str, func: Callable[..., Any], signature: inspect.Signature, *, lenient: bool
) -> Json:
    """Return the types of the parameters, without the return type, which may name what cannot be
    resolved here. `lenient` takes Any for all types if one cannot be resolved.
    """
    annotations = {
        key: parameter.annotation
        for key, parameter in signature.parameters.items()
        if parameter.annotation is not _Parameter.empty
    }
    scope = getattr(_innermost(func), "__globals__", {})
    # Linters move imports that only annotations need under TYPE_CHECKING; ours must be found
    # nevertheless.
    scope = {"ToolContext": ToolContext, **scope}
    try:
        hints = typing.get_type_hints(
            SimpleNamespace(__annotations__=annotations), globalns=scope, include_extras=True
        )
    except NameError as error:
        if not lenient:
            raise TypeError(
                f"tool {name}: the type {error.name!r} cannot be resolved; import it outside "
                "TYPE_CHECKING"
            ) from None
        hints = {
            key: ToolContext
            for key, hint in annotations.items()
            if hint in (ToolContext, "ToolContext")
        }
    return {key: hints.get(key, Any) for key in signature.parameters}


def _innermost(func: Callable[..., Any]) -> Any:
    """Return the function that was written, beneath partials, decorators, methods and callable
    objects.
    """
    while isinstance(func, functools.partial):
        func = func.func
    func = inspect.unwrap(func)
    if not inspect.isroutine(func) and not inspect.isclass(func):
        func = inspect.unwrap(type(func).__call__)
    return getattr(func, "__func__", func)


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
    as_text: Callable[[Any], str] | None = None
    """A result as a model reads it; JSON on one line if left out."""
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
        """With `known_good`, as for built-in tools, `register` does not check that JSON can express
        a signature: the schema is made by `read`, or when it is first needed.
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
        as_text: Callable[[Any], str] | None = None,
    ) -> FunctionDefinition:
        """Add a function; without `parameters` its signature is read, without `description` its
        docstring.

        Raises ValueError for a name that is taken or that vendors refuse, TypeError for parameters
        JSON cannot express.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a tool: 1 to 64 of A-Z a-z 0-9 _ - are allowed")
        if name in self._functions:
            raise ValueError(f"there is already a tool called {name}")
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
            as_text=as_text,
            signature=signature,
        )
        self._functions[name] = definition
        self._lists.clear()
        return definition

    def make_schemas(self) -> None:
        """Make the schemas of the parameters that were not needed yet."""
        for definition in list(self._functions.values()):
            definition.signature.schema  # noqa: B018

    def adopt(self, other_registry: FunctionRegistry) -> None:
        """Take over the functions of another registry.

        Raises ValueError for a name that is taken; nothing is changed then.
        """
        for name in other_registry._functions:
            if name in self._functions:
                raise ValueError(f"there is already a tool called {name}")
        self._functions.update(other_registry._functions)
        self._lists.clear()

    def replace(self, old_registry: FunctionRegistry, new_registry: FunctionRegistry) -> None:
        """Take over the functions of `new_registry` in place of those of `old_registry`.

        Raises ValueError for a name that another function has; nothing is changed then.
        """
        other_names = self._functions.keys() - old_registry._functions.keys()
        for name in new_registry._functions:
            if name in other_names:
                raise ValueError(f"there is already a tool called {name}")
        for name in list(old_registry._functions):
            self._functions.pop(name, None)
        self._functions.update(new_registry._functions)
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
