"""Run one call of a model: check its arguments, run the function, put what came out into words."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import structlog
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from daemon.errors import DaemonError, Fenced, ToolFailed, Unavailable, is_shortage
from daemon.models import FunctionCall, Json, ToolContext, ToolResult
from daemon.tools.registry import FunctionDefinition, FunctionRegistry
from daemon.tools.threads import Threads

# How a result that is not plain output begins, and what stands for a function that returned
# nothing.
_RESULT_WORDS = {
    "en": {
        "done": "Done.",
        "failed": "[failed]",
        "partial": "[partial output]",
        "error": "[error]",
    },
    "zh": {"done": "执行成功", "failed": "[失败]", "partial": "[部分输出]", "error": "[错误]"},
}
# What a tool puts out beyond it would only fill the context.
MAX_CHARS = 100_000
# Bytes of a file or an output in a result of our tools. With the notes on what they have left out
# themselves a text is not cut here once more; an output that is none may be, as each byte of it is
# shown by up to four characters.
MAX_TEXT_BYTES = 99_000
MAX_LOGGED = 2_000  # characters of a failure in the log: the words may be those of a server

_log = structlog.get_logger()


class ToolExecutor:
    """Executes the functions of one registry."""

    def __init__(
        self, registry: FunctionRegistry, *, limit: float | None = None, max_chars: int = MAX_CHARS
    ) -> None:
        """Take `limit` seconds for every function that has no time limit of its own."""
        self.registry = registry
        self._limit = limit
        self._max_chars = max_chars
        self._threads = Threads()

    async def execute(
        self, name: str, arguments: Json, *, context: ToolContext | None = None
    ) -> Any:
        """Call a function and return what it returned. Raises ToolFailed with words for the model,
        or what the function raises.
        """
        definition = self.registry.get_function(name)
        if definition is None:
            similar_name = self.registry.nearest(name)
            msg = f"there is no tool {name}" + (
                f", did you mean {similar_name}?" if similar_name else ""
            )
            raise ToolFailed(msg)
        call = definition.signature.bind(arguments, context)
        limit = definition.timeout if definition.timeout is not None else self._limit
        if limit is None:
            return await self._call(definition, call)
        try:
            async with asyncio.timeout(limit) as scope:
                return await self._call(definition, call)
        except TimeoutError:
            if not scope.expired():
                raise
            raise ToolFailed(_describe_timeout(definition, limit)) from None

    async def _call(self, definition: FunctionDefinition, call: Callable[[], Any]) -> Any:
        if definition.signature.is_async:
            return await call()
        result = await self._threads.run(f"tool {definition.name}", call)
        return (
            await result if not isinstance(result, str) and inspect.isawaitable(result) else result
        )

    async def run(self, call: FunctionCall, context: ToolContext | None = None) -> ToolResult:
        """Run one call to its end, whatever that is: the model hears of every fault, and never sees
        a traceback.

        Raises Unavailable where this machine has no thread, process or descriptor left for the
        call: a model could do nothing about it, and the run is tried again later. Raises Fenced
        where another process has the run: nothing more of it may be written.
        """
        language = context.language if context else "en"
        words = _RESULT_WORDS.get(language, _RESULT_WORDS["en"])
        try:
            if call.invalid is not None:
                raise ToolFailed(
                    f"the arguments of {call.name} could not be read, nothing was executed: "
                    f"{call.invalid}"
                )
            value = await self.execute(call.name, call.arguments, context=context)
            definition = self.registry.get_function(call.name)
            as_text = definition.as_text if definition else None
            text = self.format_result(as_text(value) if as_text else value, language)
            fits = isinstance(value, str) and len(value) <= self._max_chars
            return ToolResult(ok=True, text=text, value=text if fits else _to_jsonable(value))
        except Fenced:
            raise
        except ToolFailed as error:
            if is_shortage(error.__context__):  # which the tool has put into words
                raise Unavailable(f"this machine lacks room: {error.__context__}") from error
            _log.info("tool.failed", tool=call.name, detail=str(error)[:MAX_LOGGED])
            if context is not None and context.verbatim:
                return ToolResult(
                    ok=False,
                    text=self._sanitize(error.partial),
                    value={"failure": self._sanitize(str(error))},
                    transient=error.transient,
                )
            text = f"{words['failed']} {error}"
            if error.partial:
                text += f"\n{words['partial']}\n{error.partial}"
            return ToolResult(ok=False, text=self._sanitize(text), transient=error.transient)
        except DaemonError as error:
            _log.info("tool.failed", tool=call.name, detail=str(error)[:MAX_LOGGED])
            return ToolResult(ok=False, text=self._sanitize(f"{words['failed']} {error}"))
        # the model must hear of it; a sys.exit() ends only the call
        except (Exception, SystemExit) as error:
            if is_shortage(error):
                raise Unavailable(f"this machine lacks room: {error}") from error
            _log.error("tool.crashed", tool=call.name, exc_info=True)
            detail = " ".join(str(error).split())
            return ToolResult(
                ok=False,
                text=self._sanitize(f"{words['error']} {type(error).__name__}: {detail}"),
                transient=isinstance(error, ConnectionError | TimeoutError),
            )

    def format_result(self, result: Any, language: str = "en") -> str:
        """Return what a function returned as the model reads it."""
        if result is None:
            return _RESULT_WORDS.get(language, _RESULT_WORDS["en"])["done"]
        if isinstance(result, str):
            return self._sanitize(result)
        if isinstance(result, dict | list | tuple | set | frozenset | BaseModel) or is_dataclass(
            result
        ):
            return self._sanitize(json.dumps(_to_jsonable(result), ensure_ascii=False))
        return self._sanitize(str(result))

    def _sanitize(self, text: str) -> str:
        """Return the text fit to be sent and stored; where it is too long, its middle is cut out,
        and that is said.
        """
        if len(text) > self._max_chars:
            half = self._max_chars // 2
            text = f"{text[:half]}\n[… {len(text) - 2 * half} characters cut …]\n{text[-half:]}"
        return _replace_surrogates(text)


def _describe_timeout(definition: FunctionDefinition, limit: float | None) -> str:
    text = f"{definition.name} did not finish within {limit:g} s"
    if not definition.signature.is_async:
        text += (
            "; it could not be stopped and may still be at work, so check what it did before "
            "calling it again"
        )
    return text


def _to_jsonable(value: Any) -> Any:
    """Return the value as JSON in UTF-8 can say it; what that has no word for becomes its text."""
    if isinstance(value, str):
        return _replace_surrogates(value)
    value = to_jsonable_python(value, fallback=str)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.loads(_replace_surrogates(json.dumps(value, ensure_ascii=False)))
    return value


def _replace_surrogates(text: str) -> str:
    """Return the text without halves of surrogate pairs, which odd file names bring and no database
    takes.
    """
    return text if text.isascii() else text.encode(errors="replace").decode()
