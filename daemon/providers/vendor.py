"""The life of one call to a vendor, from a conversation to an answer or an error of ours."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import structlog

from daemon.errors import (
    AnswerTooLarge,
    BadKey,
    ConfigError,
    Fatal,
    Fault,
    ProviderError,
    Transport,
)
from daemon.models import Chunk, Json, LLMMessage, LLMResponse
from daemon.providers import vendor_errors
from daemon.providers.base import ListedModel, LLMProvider
from daemon.providers.capabilities import capabilities as capabilities_of
from daemon.providers.strict_schemas import loosened, strictly, without_broken_entries
from daemon.providers.wire.base import ChatRequest, StreamAssembler, WireFormat
from daemon.providers.wire.sse import Event, EventStreamParser
from daemon.system.http_body import BodyTooLarge, parse_json
from daemon.telemetry.log import is_heard

T = TypeVar("T")
E = TypeVar("E", bound=ProviderError)
log = structlog.get_logger()

# Long enough for a slow network, and for a thousand connections that are opened at once by a busy
# process; short enough that a wrong address does not use up a run's time.
CONNECT_TIMEOUT = 30.0
# An answer of more tokens than these may take so long that it is streamed, watched or not: at the
# pace that Anthropic reckons with (128,000 an hour) 21,333 take ten minutes, after which an idle
# connection is cut on the way.
LONG = 16_384
# Megabytes that are read of one answer, where the config does not say: more than any model writes.
MAX_ANSWER_MB = 16
# Bytes of an answer that are taken apart on the event loop; a longer one is, in a thread.
_LARGE = 256 * 1024
# How much more room an answer gets that was cut: thinking, which counts, often took all of it.
_LONGER = 4
_DONE = "[DONE]"  # how Chat Completions ends a stream
# Translated tool lists kept per provider; a daemon has one list per routine in agent mode.
_TOOL_LISTS = 64
# A shorter key is a word that a local server ignores ("ollama"), and stands in honest texts too.
_SECRET = 8
# Characters of what a library says about a connection that failed; it may repeat what a server
# sent.
_LONGEST_REASON = 200
# What reading an answer raises that has not the agreed form.
_OF_FORM = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)


class RawResponse(NamedTuple):
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Incoming(NamedTuple):
    """What is coming back, its beginning read and its body not."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncGenerator[bytes, None]
    """The body as it comes; raises Transport where it breaks off."""


class VendorProvider(LLMProvider):
    """A model behind HTTP: subclasses bring the way there (`_post`), a `WireFormat` the
    language.
    """

    def __init__(
        self,
        *,
        model: str | None = None,
        base_url: str | None = None,
        wire: WireFormat,
        name: str | None = None,
        api_key: str | None = None,
        needs_key: bool = False,
        timeout: float = 300.0,
        stall: float = 60.0,
        temperature: float | None = None,
        max_tokens: int | None = None,
        max_answer_mb: int = MAX_ANSWER_MB,
        capabilities: Mapping[str, Any] | None = None,
        max_concurrency: int | None = None,
    ) -> None:
        self.name = name or self.kind
        self.wire = wire
        self._model = _required(model, self.name, "model", "the name that its vendor gives it")
        self.base_url = _required(
            base_url, self.name, "base_url", "such as http://127.0.0.1:11434/v1"
        ).rstrip("/")
        self.capabilities = capabilities_of(self._model, capabilities, provider=self.name)
        self._retouches = self.capabilities.strict or self.capabilities.most_tools > 0
        """Functions are not offered all, or not as they are: an answer may have to say so, or be
        put right.
        """
        self._vendor = _host(self.base_url, self.name)
        self._api_key, self._key_fault = api_key, _fault_of(api_key, needs_key, self.name)
        self._timeout, self._stall = timeout, stall
        self._temperature, self._max_tokens = temperature, max_tokens
        self.max_answer = max_answer_mb * 1_000_000
        """Bytes that are read of one answer at most, packed and unpacked; of a stream, of one
        event.
        """
        self._slots = asyncio.Semaphore(max_concurrency) if max_concurrency else nullcontext()
        self._tools: dict[int, tuple[Sequence[Json], bytes]] = {}
        self._said: set[str] = set()

    @property
    def model_name(self) -> str:
        return self._model

    @property
    def max_tokens(self) -> int | None:
        return self._max_tokens

    def longer(self, max_tokens: int | None) -> int | None:
        sent = max_tokens or self._max_tokens or self.wire.max_tokens
        if sent is None:  # the vendor's own limit was reached
            return None
        most = min(sent * _LONGER, self.capabilities.output or sent * _LONGER)
        return most if most > sent else None

    @property
    def sees(self) -> bool:
        return self.capabilities.images

    def supports_function_calling(self) -> bool:
        return self.capabilities.tools

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> LLMResponse:
        question = self._question(messages, functions, temperature, kw)
        if self.capabilities.stream or (question.max_tokens or 0) > LONG:
            return await self._in_pieces(messages, functions, temperature, kw)
        with self._signing():
            self._check_key()
            body = self._body(question, functions)
            async with self._slots:
                start = time.perf_counter()
                answer = await self._sent(body)
            response = await _in_thread_if_large(
                len(answer.content), lambda: self._read(answer, question)
            )
            if self._seems_odd(response, question):
                response = await self._looked_into(response, question)
        self._tell(response, start)
        return (
            self._noted(self._loosened(response, functions), functions)
            if self._retouches
            else response
        )

    async def _in_pieces(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
        temperature: float | None,
        kw: Json,
    ) -> LLMResponse:
        """Ask for a stream and wait for its end: a connection on which nothing happens for long is
        cut on the way.
        """
        response: LLMResponse | None = None
        async for chunk in self.chat_stream(messages, functions, temperature, **kw):
            response = chunk.response or response
        if response is None:
            raise Transport("the stream held no answer")
        return response

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **kw: Any,
    ) -> AsyncIterator[Chunk]:
        question = self._question(messages, functions, temperature, kw)
        with self._signing():
            self._check_key()
            body = self._body(question, functions, streamed=True)
            async with self._slots:
                start = time.perf_counter()
                async with self._begun(body) as incoming:
                    if incoming.status != 200 or "text/event-stream" not in incoming.headers.get(
                        "content-type", ""
                    ):
                        # an error, or a server that does not stream
                        content = b"".join([piece async for piece in self._patiently(incoming)])
                        answer = RawResponse(incoming.status, incoming.headers, content)
                        response = await _in_thread_if_large(
                            len(content), lambda: self._read(answer, question)
                        )
                        yield Chunk(delta=response.content, thinking=response.reasoning)
                    else:
                        pieces, reader = self.wire.pieces(), EventStreamParser(self.max_answer)
                        with _unsure_from_here():
                            async for chunk in self._chunks(incoming, reader, pieces):
                                yield chunk
                            response = await _in_thread_if_large(
                                reader.size, lambda: self._together(incoming, pieces, question)
                            )
        if self._seems_odd(response, question):
            response = await self._looked_into(response, question)
        self._tell(response, start)
        if self._retouches:
            response = self._noted(self._loosened(response, functions), functions)
        yield Chunk(response=response)

    def _question(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
        temperature: float | None,
        kw: Json,
    ) -> ChatRequest:
        temperature = self._temperature if temperature is None else temperature
        return ChatRequest(
            model=self._model,
            vendor=self._vendor,
            messages=messages,
            offers_tools=bool(functions) and self.capabilities.tools,
            temperature=None if temperature is None else self._allowed(temperature),
            max_tokens=kw.get("max_tokens") or self._max_tokens,
            cache_key=f"routine:{kw['routine']}" if kw.get("routine") else None,
            capabilities=self.capabilities,
        )

    @contextmanager
    def _signing(self) -> Iterator[None]:
        """Put this provider's name on every error of a call, and take the key out of it."""
        try:
            yield
        except ProviderError as error:
            error.args = (self._signed(str(error)),)
            raise

    def _tell(self, response: LLMResponse, start: float) -> None:
        if not is_heard(logging.DEBUG):
            return
        log.debug(
            "provider.answered",
            provider=self.name,
            model=response.model,
            request_id=response.request_id,
            finish=response.finish_reason,
            seconds=round(time.perf_counter() - start, 3),
            tokens=response.usage.total,
        )

    async def models(self) -> Sequence[ListedModel]:
        with self._signing():
            self._check_key()
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await self._get(self.wire.models)
            except TimeoutError:
                raise Transport(f"no answer within {self._timeout:g} s") from None
            if answer.status != 200:
                raise vendor_errors.from_response(*answer, provider=self.name)
            try:
                listed = await _in_thread_if_large(
                    len(answer.content), lambda: parse_json(answer.content)["data"]
                )
                return [_listed(each) for each in listed]
            except _OF_FORM as error:
                raise _misread(answer.content, _request_id(answer.headers)) from error

    @abstractmethod
    async def _get(self, path: str) -> RawResponse:
        """Fetch something; raises Transport if nothing came."""

    @abstractmethod
    async def _post(self, path: str, body: bytes) -> RawResponse:
        """Send a body and return what came back; raises Transport if nothing did."""

    @abstractmethod
    def _stream(self, path: str, body: bytes) -> AbstractAsyncContextManager[Incoming]:
        """Send a body and hold on to what is coming back; raises Transport if nothing does."""

    def _check_key(self) -> None:
        if self._key_fault:
            raise BadKey(self._key_fault)

    def _body(
        self, question: ChatRequest, functions: Sequence[Json] | None, *, streamed: bool = False
    ) -> bytes:
        body = self.wire.body(question)
        if streamed:
            body |= self.wire.streaming
        text = to_json(body)
        if not question.offers_tools or not functions:  # an empty list is an error to most
            return text
        return b"".join((memoryview(text)[:-1], b',"tools":', self._translated(functions), b"}"))

    def _translated(self, functions: Sequence[Json]) -> bytes:
        """Return the functions in the vendor's language; the same list is translated once."""
        key = id(functions)
        if key not in self._tools:
            if len(self._tools) >= _TOOL_LISTS:
                self._tools.pop(next(iter(self._tools)))
            wanted = without_broken_entries(functions[: self.capabilities.most_tools or None])
            wanted = strictly(wanted) if self.capabilities.strict else wanted
            # the list is kept too, so that its identity is not given to another one
            self._tools[key] = functions, to_json(self.wire.tools(wanted))
        return self._tools[key][1]

    def _noted(self, response: LLMResponse, functions: Sequence[Json] | None) -> LLMResponse:
        """Return the answer, with a note on functions that the model was not told of, as it takes
        no more.
        """
        most = self.capabilities.most_tools
        if not functions or not most or len(functions) <= most or not self.capabilities.tools:
            return response
        names = ", ".join(function["name"] for function in functions[most:])
        note = (
            f"{self._model} takes {most} tools and was offered {len(functions)}; the last ones were "  # noqa: E501
            f"left out: {names}"
        )
        return replace(response, note="; ".join(filter(None, (response.note, note))))

    def _seems_odd(self, response: LLMResponse, question: ChatRequest) -> bool:
        """Tell whether the vendor may have done something with the question that it does not
        say.
        """
        return False

    async def _looked_into(self, response: LLMResponse, question: ChatRequest) -> LLMResponse:
        """Return an answer that seems odd, with a note on what the vendor did if it did
        something.
        """
        return response

    def _loosened(self, response: LLMResponse, functions: Sequence[Json] | None) -> LLMResponse:
        """Return the answer with its calls as the functions expect them, strictly as they may have
        been asked for.
        """
        if not (self.capabilities.strict and functions and response.function_calls):
            return response
        schemas = {function["name"]: function.get("parameters") for function in functions}
        calls = (
            replace(call, arguments=loosened(call.arguments, schemas.get(call.name)))
            for call in response.function_calls
        )
        return replace(response, function_calls=tuple(calls))

    async def _sent(self, body: bytes) -> RawResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._post(self.wire.path, body)
        except TimeoutError:
            raise unsure(Transport(f"no answer within {self._timeout:g} s")) from None

    @asynccontextmanager
    async def _begun(self, body: bytes) -> AsyncIterator[Incoming]:
        """Send a body and wait for the beginning of what comes back."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._timeout):
                    incoming = await stack.enter_async_context(self._stream(self.wire.path, body))
            except TimeoutError:
                raise unsure(Transport(f"no answer within {self._timeout:g} s")) from None
            yield incoming

    async def _patiently(self, incoming: Incoming) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes; a model may think long before its first word, and not between
        two of them.
        """
        seconds = self._timeout
        async with aclosing(incoming.pieces) as pieces:
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        piece = await anext(pieces, None)
                except TimeoutError:
                    raise unsure(Transport(f"the answer stood still for {seconds:g} s")) from None
                if piece is None:
                    return
                seconds = self._stall
                yield piece

    async def _chunks(
        self, incoming: Incoming, reader: EventStreamParser, pieces: StreamAssembler
    ) -> AsyncIterator[Chunk]:
        """Yield what can be shown of a streamed answer, until its end."""
        try:
            async with aclosing(self._patiently(incoming)) as body:
                async for piece in body:
                    for event in reader.feed(piece):
                        if event.data != _DONE and (
                            chunk := await self._taken(event, incoming, pieces)
                        ):
                            yield chunk
                        if event.data == _DONE or pieces.ended:
                            await _drained(body)
                            return
        except BodyTooLarge as error:
            raise self._broken(error) from error
        for event in reader.end():
            if event.data != _DONE and (chunk := await self._taken(event, incoming, pieces)):
                yield chunk

    async def _taken(
        self, event: Event, incoming: Incoming, pieces: StreamAssembler
    ) -> Chunk | None:
        try:
            data = await _in_thread_if_large(
                len(event.data), lambda: parse_json(event.data.encode())
            )
            if event.name == "error" or data.get("type") == "error":
                raise vendor_errors.from_response(
                    200, incoming.headers, event.data.encode(), provider=self.name
                )
            if status := _hidden_failure(data):
                raise vendor_errors.from_response(
                    status, incoming.headers, event.data.encode(), provider=self.name
                )
            return pieces.add(event.name, data)
        except _OF_FORM as error:
            raise _misread(event.data.encode(), _request_id(incoming.headers)) from error

    def _together(
        self, incoming: Incoming, pieces: StreamAssembler, question: ChatRequest
    ) -> LLMResponse:
        """Return the answer that a stream came to."""
        whole = pieces.whole()
        if whole is None:
            raise Transport(
                "the answer broke off before its end", request_id=_request_id(incoming.headers)
            )
        return self._read(RawResponse(200, incoming.headers, b""), question, whole)

    def _read(
        self, answer: RawResponse, question: ChatRequest, streamed: Json | None = None
    ) -> LLMResponse:
        """Read an answer; `streamed` is what one came to that has no content of its own."""
        if answer.status != 200:
            raise vendor_errors.from_response(*answer, provider=self.name)
        request_id = _request_id(answer.headers)
        try:
            data = parse_json(answer.content) if streamed is None else streamed
            if status := _hidden_failure(data):
                content = answer.content or to_json(data)
                raise vendor_errors.from_response(
                    status, answer.headers, content, provider=self.name
                )
            return self.wire.read({**data, "id": request_id} if request_id else data, question)
        except ProviderError as error:
            error.request_id = error.request_id or request_id
            raise
        except _OF_FORM as error:
            raise _misread(answer.content, request_id) from error

    def _broken(self, error: BaseException) -> ProviderError:
        """Return what the failure of a connection is to us; httpx and httpx2 have the same names
        for theirs.
        """
        causes = [error]
        while (cause := causes[-1].__cause__) is not None:
            causes.append(cause)
        for cause in causes:
            if isinstance(cause, BodyTooLarge):
                # not asked again: whatever the vendor did for it would be paid again
                return unsure(
                    AnswerTooLarge(
                        f"the answer is too large and was not read to its end: {cause}; if such "
                        "answers are right, "
                        f"raise max_answer_mb of [providers.{self.name}]"
                    )
                )
        names = {type(cause).__name__ for cause in causes}
        reason = causes[-1]
        while isinstance(reason, BaseExceptionGroup):  # one error for each address of a name
            reason = reason.exceptions[0]
        text = str(reason)[:_LONGEST_REASON] or type(reason).__name__
        if "ConnectTimeout" in names:
            text = f"no answer within {CONNECT_TIMEOUT:g} s"
        if names & {"ConnectError", "ConnectTimeout", "ProxyError", "PoolTimeout"}:
            return Transport(f"no connection to {self._vendor}: {text}")
        return unsure(Transport(f"the connection to {self._vendor} broke off: {text}"))

    def _allowed(self, temperature: float | None) -> float | None:
        """Return the temperature if the model takes it."""
        span = self.capabilities.temperature
        if temperature is None or (span and span[0] <= temperature <= span[1]):
            return temperature
        self._say_once("provider.param_dropped", param="temperature", value=temperature, takes=span)
        return None

    def _say_once(self, event: str, *, param: str, **fields: Any) -> None:
        if param not in self._said:
            self._said.add(param)
            log.warning(event, provider=self.name, model=self._model, param=param, **fields)

    def _signed(self, text: str) -> str:
        """Return an error's text under the provider's name, and without the key that a vendor may
        have repeated.
        """
        text = f"{self.name} ({self._model}): {text}"
        if self._api_key and len(self._api_key) >= _SECRET:
            text = text.replace(self._api_key, "[redacted]")
        return text


async def in_thread(build: Callable[[], T]) -> T:
    """Build a client off the event loop; what this machine lacks for it becomes an error of
    ours.
    """
    try:
        return await asyncio.to_thread(build)
    except (
        ImportError,
        OSError,
        ValueError,
    ) as error:  # a proxy or a certificate file that the environment names
        raise Fatal(f"cannot be reached from this installation: {error}") from error


async def _in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Do some work on an answer of `size` bytes in a thread, if it is large enough for others to
    notice.
    """
    return await asyncio.to_thread(work) if size > _LARGE else work()


def unsure(error: E) -> E:
    """Mark an error of which nobody knows whether the vendor worked for it."""
    error.unsure = True
    return error


@contextmanager
def _unsure_from_here() -> Iterator[None]:
    """Mark what goes wrong once an answer has begun."""
    try:
        yield
    except ProviderError as error:
        error.unsure = True
        raise


def to_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8; a question mark takes the place of half a surrogate pair."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _required(value: str | None, name: str, key: str, hint: str) -> str:
    if value:
        return value
    raise ConfigError(
        Fault(
            file="config.toml",
            key=f"providers.{name}.{key}",
            found="",
            problem="is missing",
            hint=hint,
        )
    )


def _fault_of(key: str | None, is_needed: bool, name: str) -> str | None:
    """Return why a vendor cannot be asked with this key, if so."""
    if is_needed and not key:
        return f"there is no key; set api_key_file or api_key_env in [providers.{name}]"
    if not key or re.fullmatch(r"[!-~]+", key):
        return None
    odd = "the key holds a character that no key has (a space, a line break?)"
    return f"{odd}; check that of [providers.{name}]"


def same_host(url: str, other: str) -> bool:
    """Tell whether two addresses are of one host; what is no address is of none."""
    try:
        return urlsplit(url).hostname == urlsplit(other).hostname
    except ValueError:
        return False


def _host(url: str, name: str) -> str:
    """Return the host and port of an address; ConfigError if it is none, or holds a password."""
    try:
        parts = urlsplit(url)
        known = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port is None or parts.port)
            and url.isprintable()
        )
    except ValueError:
        known = False
    problem = (
        "is not an address" if not known else "holds a password" if "@" in parts.netloc else ""
    )
    if not problem:
        return parts.netloc
    shown = re.sub(r"//[^/@]*@", "//…@", url)
    hint = "use api_key_file or api_key_env" if "@" in url else "such as https://api.example.com/v1"
    key = f"providers.{name}.base_url"
    raise ConfigError(Fault(file="config.toml", key=key, found=shown, problem=problem, hint=hint))


def _listed(given: Json) -> ListedModel:
    """Read one model of a list: Anthropic says how it fares, OpenAI when it ends."""
    ends = given.get("retires_at") or given.get("shutdown_date")
    try:
        retires = date.fromisoformat(str(ends)[:10]) if ends else None
    except ValueError:
        retires = None
    return ListedModel(
        name=str(given["id"]), lifecycle=str(given.get("lifecycle") or ""), retires=retires
    )


async def _drained(body: AsyncIterator[bytes]) -> None:
    """Read what follows the end of an answer, which is nothing: a connection read to its end can be
    used again.
    """
    with suppress(Transport, AnswerTooLarge, TimeoutError):
        async with asyncio.timeout(1.0):
            async for _ in body:
                pass


def _misread(content: bytes, request_id: str | None) -> Transport:
    """Return what is wrong with an answer that has not the agreed form."""
    text = f"the answer is not of the agreed form but {vendor_errors.describe(content)}"
    return Transport(text, request_id=request_id)


def _request_id(headers: Mapping[str, str]) -> str | None:
    return headers.get("request-id") or headers.get("x-request-id")


def _hidden_failure(data: Any) -> int | None:
    """Return the status of an error that came as a 200: gateways pass their vendors' errors on like
    that.
    """
    error = data.get("error")
    if not error or any(data.get(key) for key in ("choices", "content")):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 200
