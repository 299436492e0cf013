"""From a Python signature to a JSON schema, and from a model's arguments to a call.

Pydantic does both through one TypedDict per function: its keys are the parameters the model sees,
so any legal name works, and what the model leaves out stays out, so that the function's own default
applies.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
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
from daemon.tools.schema import tidy, without_null

_Parameter = inspect.Parameter


class Signature:
    """How a model calls one function: the schema it reads, and the check of what it sends.

    The types are read when they are first asked for: a millisecond per tool, that a start need not
    wait for.
    """

    def __init__(self, name: str, func: Callable[..., Any], parameters: Json | None = None) -> None:
        """Take up `func`; explicit `parameters` are taken as they are and checked on their first
        level.
        """
        self.name, self._func, self._parameters = name, func, parameters
        try:
            self._signature = inspect.signature(func)
        except ValueError:
            msg = f"the signature of tool {name} cannot be read; wrap it in a function of your own"
            raise TypeError(msg) from None
        self.doc = docstrings.parse(_docstring(func))

    @functools.cached_property
    def _types(self) -> Json:
        return _hints(self.name, self._func, self._signature, lenient=self._parameters is not None)

    @functools.cached_property
    def _injected(self) -> frozenset[str]:
        return frozenset(key for key, hint in self._types.items() if _is_context(hint))

    @property
    def _model_parameters(self) -> list[_Parameter]:
        return [p for key, p in self._signature.parameters.items() if key not in self._injected]

    @functools.cached_property
    def _extra_keywords(self) -> str | None:
        return next(
            (p.name for p in self._model_parameters if p.kind is _Parameter.VAR_KEYWORD), None
        )

    @functools.cached_property
    def _build(self) -> tuple[TypeAdapter[Any] | None, Json]:
        if self._parameters is not None:
            return None, self._parameters
        adapter, schema = self._validator(self._model_parameters, self._types)
        return adapter, _schema(schema, self._model_parameters)

    @property
    def schema(self) -> Json:
        """What the model reads; TypeError where JSON cannot say it."""
        return self._build[1]

    @functools.cached_property
    def is_async(self) -> bool:
        """What a call of it returns has to be awaited, and does not keep a thread waiting."""
        return inspect.iscoroutinefunction(self._func) or inspect.iscoroutinefunction(
            type(self._func).__call__
        )

    @functools.cached_property
    def _by_place(self) -> bool:
        """Some of its parameters have no names for a caller."""
        nameless = (_Parameter.POSITIONAL_ONLY, _Parameter.VAR_POSITIONAL)
        return any(parameter.kind in nameless for parameter in self._signature.parameters.values())

    def bind(self, arguments: Json, context: ToolContext | None) -> Callable[[], Any]:
        """Check the arguments and return the call, ready to be made; raises ToolFailed that names
        every fault.
        """
        values = self._checked(arguments)
        parameters = self._signature.parameters
        keyword_arguments = {
            key: values.pop(key)
            for key in parameters
            if key in values and key not in (self._extra_keywords, *self._injected)
        }
        for key in self._injected:
            if context is not None:
                keyword_arguments[key] = context
            elif parameters[key].default is _Parameter.empty:
                msg = f"{self.name} works only inside a run"
                raise ToolFailed(msg)
        if not self._by_place:
            return functools.partial(
                self._func, **keyword_arguments, **(values if self._extra_keywords else {})
            )
        if self._extra_keywords:
            keyword_arguments[self._extra_keywords] = values
        bound = inspect.BoundArguments(self._signature, keyword_arguments)
        # in the signature's order, so that nothing given slides into a gap before it
        bound.apply_defaults()
        return functools.partial(self._func, *bound.args, **bound.kwargs)

    def _checked(self, arguments: Json) -> Json:
        # What we inject is never the model's to give, whatever else the function accepts by
        # keyword.
        adapter, schema = self._build
        wrong = [
            argument_errors.unknown(key, schema.get("properties", {}))
            for key in arguments
            if key in self._injected
        ]
        values = arguments
        if adapter is None:
            wrong += argument_errors.by_schema(
                arguments, schema, closed=self._extra_keywords is None
            )
        elif not wrong:
            try:
                values = adapter.validate_python(arguments)
            except ValidationError as error:
                wrong = argument_errors.by_pydantic(error, arguments, schema)
        if wrong:
            raise argument_errors.misfit(self.name, wrong)
        return dict(values)

    def _validator(
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
                hint, default = _list_of(hint), ()
            if isinstance(default, FieldInfo):
                hint = Annotated[hint, default]
            hint = _described(hint, self.doc.arguments.get(parameter.name))
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
            msg = f"tool {self.name} has a parameter that cannot come from JSON: {reason}"
            raise TypeError(msg) from None
        return adapter, schema


def _schema(schema: Json, parameters: list[_Parameter]) -> Json:
    """Return what the model reads of the parameters, defaults included where JSON can say them."""
    schema = tidy(schema)
    properties = schema["properties"]
    for parameter in parameters:
        if parameter.name not in properties or parameter.default is _Parameter.empty:
            continue
        if parameter.default is None:
            properties[parameter.name] = without_null(properties[parameter.name])
        elif not isinstance(parameter.default, FieldInfo):
            try:
                properties[parameter.name]["default"] = to_jsonable_python(parameter.default)
            except PydanticSerializationError:
                # an object no model could write: that the argument may be left out says enough
                continue
    return schema


def _list_of(hint: Any) -> Any:
    return list[hint]


def _described(hint: Any, text: str | None) -> Any:
    """Add the docstring's words to a type that has none of its own."""
    has_description = any(
        isinstance(item, FieldInfo) and item.description
        for item in getattr(hint, "__metadata__", ())
    )
    return Annotated[hint, Field(description=text)] if text and not has_description else hint


def _hints(
    name: str, func: Callable[..., Any], signature: inspect.Signature, *, lenient: bool
) -> Json:
    """Return the types of the parameters; the return type is nobody's business here and may name
    what it likes.
    """
    annotations = {
        key: p.annotation
        for key, p in signature.parameters.items()
        if p.annotation is not _Parameter.empty
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
            msg = (
                f"tool {name}: the type {error.name!r} cannot be resolved; import it outside "
                "TYPE_CHECKING"
            )
            raise TypeError(msg) from None
        hints = {
            key: ToolContext
            for key, hint in annotations.items()
            if hint in (ToolContext, "ToolContext")
        }
    return {key: hints.get(key, Any) for key in signature.parameters}


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or ToolContext in typing.get_args(hint)


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


def _docstring(func: Callable[..., Any]) -> str | None:
    return inspect.getdoc(_innermost(func))
