"""One call to a vendor over HTTP: build the request, send it, parse the answer or raise a
ProviderError.
"""

from __future__ import annotations

import asyncio
import hashlib
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
from datetime import date, datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import structlog

from daemon.errors import (
    AnswerTooLarge,
    BadKey,
    ConfigError,
    Fatal,
    Fault,
    NothingListens,
    ProviderError,
    TransportError,
)
from daemon.models import Chunk, Json, LLMMessage, LLMResponse
from daemon.providers import vendor_errors
from daemon.providers.base import ListedModel, LLMProvider
from daemon.providers.capabilities import capabilities_of
from daemon.providers.strict_schemas import make_strict, normalize_functions, remove_filler_nulls
from daemon.providers.token_counts import fill_usage
from daemon.providers.wire.base import ChatRequest, StreamAssembler, WireFormat
from daemon.providers.wire.sse import Event, EventStreamParser
from daemon.system.http_body import BodyTooLarge, TooManyValues, parse_json
from daemon.system.http_client import describe_connection_error, root_cause
from daemon.telemetry.log import is_level_enabled

T = TypeVar("T")
E = TypeVar("E", bound=ProviderError)
log = structlog.get_logger()

# Seconds. Long enough for a slow network and for a thousand connections opened at once by a busy
# process; short enough that a wrong address does not use up a run's time.
CONNECT_TIMEOUT = 30.0
# A request with a larger max_tokens is streamed even if nobody watches: at the pace that Anthropic
# assumes (128,000 tokens an hour) 21,333 take ten minutes, after which routers drop an idle
# connection.
STREAM_ABOVE_TOKENS = 16_384
# Megabytes read of one answer, unless config.toml sets max_answer_mb: more than any model writes.
MAX_ANSWER_MB = 16
# Larger answers are parsed in a thread, so that they do not hold up the event loop.
_THREAD_ABOVE_BYTES = 256 * 1024
# A request whose answer was cut off is repeated with this many times the limit, as thinking, which
# counts, often used up all of it.
_LIMIT_FACTOR = 4
_DONE = "[DONE]"  # ends a stream of Chat Completions
# Converted tool lists kept per provider; a daemon has one list per routine in agent mode.
_MAX_TOOL_LISTS = 64
# A shorter key is a word that a local server ignores ("ollama") and may be part of any text.
_MIN_SECRET_CHARACTERS = 8
# Characters of a library's text about a failed connection, which may repeat what a server sent.
_MAX_REASON_CHARACTERS = 200
# OpenAI and Azure refuse a longer key of the prompt cache.
_MAX_CACHE_KEY_CHARACTERS = 64
# Exceptions of parsing an answer that has not the form of its API.
_MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)


class RawResponse(NamedTuple):
    """A response with any status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class StreamedResponse(NamedTuple):
    """A response of which the head was read and the body was not."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncGenerator[bytes, None]
    """The body as it arrives; raises TransportError if the connection breaks."""


class VendorProvider(LLMProvider):
    """A model behind HTTP: a subclass does the HTTP (`_get`, `_post`, `_stream`), a WireFormat the
    conversion.
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
        self._model = _require_setting(
            model, self.name, "model", "the name that its vendor gives it"
        )
        self.base_url = _require_setting(
            base_url, self.name, "base_url", "such as http://127.0.0.1:11434/v1"
        ).rstrip("/")
        self.capabilities = capabilities_of(self._model, capabilities, provider=self.name)
        self._rewrites_tools = self.capabilities.strict or self.capabilities.most_tools > 0
        """Whether functions are left out or their schemas changed, so that answers have to be
        adapted.
        """
        self._host = _parse_host(self.base_url, self.name)
        self._address_hint = _missing_path_hint(self.base_url, wire)
        self._api_key, self._key_fault = api_key, _key_problem(api_key, needs_key, self.name)
        self._timeout, self._stall = timeout, stall
        self._temperature, self._max_tokens = temperature, max_tokens
        self.max_answer = max_answer_mb * 1_000_000
        """Bytes of an answer that are read at most, both compressed and decompressed; of a stream,
        of each event.
        """
        self._semaphore = asyncio.Semaphore(max_concurrency) if max_concurrency else nullcontext()
        self._tools_by_list: dict[int, tuple[Sequence[Json], bytes]] = {}
        self._dropped_params: set[str] = set()
        """The parameters of which the log says already that they are dropped."""

    @property
    def model_name(self) -> str:
        return self._model

    @property
    def max_tokens(self) -> int | None:
        return self._max_tokens

    def larger_max_tokens(self, max_tokens: int | None) -> int | None:
        current = max_tokens or self._max_tokens or self.wire.max_tokens
        if current is None:  # the answer reached the vendor's own limit
            return None
        larger = min(current * _LIMIT_FACTOR, self.capabilities.output or current * _LIMIT_FACTOR)
        return larger if larger > current else None

    @property
    def accepts_images(self) -> bool:
        return self.capabilities.images

    def supports_function_calling(self) -> bool:
        return self.capabilities.tools

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        request = self._build_request(messages, functions, temperature, options)
        if self.capabilities.stream or (request.max_tokens or 0) > STREAM_ABOVE_TOKENS:
            return await self._chat_by_stream(messages, functions, temperature, options)
        with self._name_errors():
            self._check_key()
            body = self._build_body(request, functions)
            async with self._semaphore:
                start = time.perf_counter()
                answer = await self._post_with_timeout(body)
            response = await _run_in_thread_if_large(
                len(answer.content), lambda: self._parse_answer(answer, request)
            )
            response = await self._note_cut_prompt(response, request)
        response = self._fill_usage(response, messages, functions)
        self._log_answer(response, start)
        if self._rewrites_tools:
            response = self._remove_filler_nulls(response, functions)
            response = self._note_left_out_tools(response, functions)
        return response

    async def _chat_by_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
        temperature: float | None,
        options: Json,
    ) -> LLMResponse:
        """Request a stream and wait for its end, as an idle connection may be dropped on
        the way.
        """
        response: LLMResponse | None = None
        async for chunk in self.chat_stream(messages, functions, temperature, **options):
            response = chunk.response or response
        if response is None:
            raise TransportError("the stream held no answer")
        return response

    async def chat_stream(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> AsyncIterator[Chunk]:
        request = self._build_request(messages, functions, temperature, options)
        with self._name_errors():
            self._check_key()
            body = self._build_body(request, functions, is_streamed=True)
            async with self._semaphore:
                start = time.perf_counter()
                async with self._open_stream(body) as stream:
                    if stream.status != 200 or "text/event-stream" not in stream.headers.get(
                        "content-type", ""
                    ):
                        # an error, or a server that does not stream
                        content = b"".join(
                            [chunk async for chunk in self._read_with_timeouts(stream)]
                        )
                        answer = RawResponse(stream.status, stream.headers, content)
                        response = await _run_in_thread_if_large(
                            len(content), lambda: self._parse_answer(answer, request)
                        )
                        yield Chunk(delta=response.content, thinking=response.reasoning)
                    else:
                        assembler = self.wire.new_assembler()
                        parser = EventStreamParser(self.max_answer)
                        with _mark_errors_unsure():
                            async for chunk in self._stream_chunks(stream, parser, assembler):
                                yield chunk
                            response = await _run_in_thread_if_large(
                                parser.size,
                                lambda: self._assemble_answer(stream, assembler, request),
                            )
        response = await self._note_cut_prompt(response, request)
        response = self._fill_usage(response, messages, functions)
        self._log_answer(response, start)
        if self._rewrites_tools:
            response = self._remove_filler_nulls(response, functions)
            response = self._note_left_out_tools(response, functions)
        yield Chunk(response=response)

    def _build_request(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
        temperature: float | None,
        options: Json,
    ) -> ChatRequest:
        temperature = self._temperature if temperature is None else temperature
        return ChatRequest(
            model=self._model,
            vendor=self._host,
            messages=messages,
            offers_tools=bool(functions) and self.capabilities.tools,
            temperature=None if temperature is None else self._supported_temperature(temperature),
            max_tokens=options.get("max_tokens") or self._max_tokens,
            cache_key=_make_cache_key(options.get("routine")),
            capabilities=self.capabilities,
            effort=self._supported_effort(options.get("effort")),
        )

    @contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Begin the text of every error of a call with this provider's name, and redact the key."""
        try:
            yield
        except ProviderError as error:
            # `args` is what the text, the repr and a pickle of an exception show
            error.args = (self._name_and_redact(str(error)),)
            raise

    def _fill_usage(
        self,
        response: LLMResponse,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None,
    ) -> LLMResponse:
        """Return the answer with estimates for the tokens that the vendor did not count."""
        complete_response = fill_usage(response, messages, functions)
        if complete_response is not response:
            log.warning(
                "provider.usage_estimated",
                provider=self.name,
                model=self._model,
                input=complete_response.usage.input,
                output=complete_response.usage.output,
                why="the answer does not say how many tokens it took, or says what cannot be",
                counted=self.name,
            )
        return complete_response

    def _log_answer(self, response: LLMResponse, start: float) -> None:
        if not is_level_enabled(logging.DEBUG):
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

    async def list_models(self) -> Sequence[ListedModel]:
        with self._name_errors():
            self._check_key()
            await self.load()  # the time limit is the vendor's, not that of importing a library
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await self._get(self.wire.models_path)
            except TimeoutError:
                raise TransportError(f"no answer within {self._timeout:g} s") from None
            if answer.status != 200:
                raise self._response_error(*answer)
            try:
                entries = await _run_in_thread_if_large(
                    len(answer.content), lambda: parse_json(answer.content)["data"]
                )
                return [_parse_listed_model(entry) for entry in entries]
            except TooManyValues as error:
                raise AnswerTooLarge(f"the list of its models holds {error}") from error
            except _MALFORMED as error:
                raise self._malformed_answer_error(
                    answer.content, _request_id(answer.headers)
                ) from error

    @abstractmethod
    async def _get(self, path: str) -> RawResponse:
        """Send a GET request. Raises TransportError if there is no response."""

    @abstractmethod
    async def _post(self, path: str, body: bytes) -> RawResponse:
        """Send a POST request. Raises TransportError if there is no response."""

    @abstractmethod
    def _stream(self, path: str, body: bytes) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send a POST request and yield its response before its body is read. Raises TransportError
        if there is no response.
        """

    def _check_key(self) -> None:
        if self._key_fault:
            raise BadKey(self._key_fault)

    def _build_body(
        self, request: ChatRequest, functions: Sequence[Json] | None, *, is_streamed: bool = False
    ) -> bytes:
        body = self.wire.build_body(request)
        if is_streamed:
            body |= self.wire.stream_fields
        json_body = to_json(body)
        if not request.offers_tools or not functions:  # most vendors refuse an empty list
            return json_body
        return b"".join(
            (memoryview(json_body)[:-1], b',"tools":', self._tools_json(functions), b"}")
        )

    def _tools_json(self, functions: Sequence[Json]) -> bytes:
        """Return the functions as JSON of the wire format; the same list is converted once."""
        key = id(functions)
        if key not in self._tools_by_list:
            if len(self._tools_by_list) >= _MAX_TOOL_LISTS:
                self._tools_by_list.pop(next(iter(self._tools_by_list)))
            vendor_functions = normalize_functions(
                functions[: self.capabilities.most_tools or None]
            )
            if self.capabilities.strict:
                vendor_functions = make_strict(vendor_functions)
            # The list is kept as well, or its id might be reused for another list.
            self._tools_by_list[key] = functions, to_json(self.wire.convert_tools(vendor_functions))
        return self._tools_by_list[key][1]

    def _note_left_out_tools(
        self, response: LLMResponse, functions: Sequence[Json] | None
    ) -> LLMResponse:
        """Return the answer, with a note on functions that were left out as the model takes no
        more.
        """
        limit = self.capabilities.most_tools
        if not functions or not limit or len(functions) <= limit or not self.capabilities.tools:
            return response
        names = ", ".join(function["name"] for function in functions[limit:])
        note = (
            f"{self._model} takes {limit} tools and was offered {len(functions)}; the last ones "
            f"were left out: {names}"
        )
        return replace(response, note="; ".join(filter(None, (response.note, note))))

    async def _note_cut_prompt(self, response: LLMResponse, request: ChatRequest) -> LLMResponse:
        """Return the answer, with a note if the vendor has cut the prompt without reporting it."""
        return response

    def _remove_filler_nulls(
        self, response: LLMResponse, functions: Sequence[Json] | None
    ) -> LLMResponse:
        """Return the answer with the arguments of its calls as the functions expect them: without
        the nulls that strict schemas require.
        """
        if not (self.capabilities.strict and functions and response.function_calls):
            return response
        schemas = {function["name"]: function.get("parameters") for function in functions}
        calls = (
            replace(call, arguments=remove_filler_nulls(call.arguments, schemas.get(call.name)))
            for call in response.function_calls
        )
        return replace(response, function_calls=tuple(calls))

    async def _post_with_timeout(self, body: bytes) -> RawResponse:
        await self.load()  # the time limit is the vendor's, not that of importing a library
        try:
            async with asyncio.timeout(self._timeout):
                return await self._post(self.wire.path, body)
        except TimeoutError:
            raise mark_unsure(TransportError(f"no answer within {self._timeout:g} s")) from None

    @asynccontextmanager
    async def _open_stream(self, body: bytes) -> AsyncIterator[StreamedResponse]:
        """Send a body and yield the response once its head has arrived."""
        await self.load()  # the time limit is the vendor's, not that of importing a library
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._timeout):
                    stream = await stack.enter_async_context(self._stream(self.wire.path, body))
            except TimeoutError:
                raise mark_unsure(TransportError(f"no answer within {self._timeout:g} s")) from None
            yield stream

    async def _read_with_timeouts(self, stream: StreamedResponse) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives. The first chunk may take `timeout` seconds, as a model may
        think for long; each later one `stall` seconds.
        """
        timeout = self._timeout
        async with aclosing(stream.chunks) as chunks:
            while True:
                try:
                    async with asyncio.timeout(timeout):
                        chunk = await anext(chunks, None)
                except TimeoutError:
                    raise mark_unsure(
                        TransportError(f"the answer stood still for {timeout:g} s")
                    ) from None
                if chunk is None:
                    return
                timeout = self._stall
                yield chunk

    async def _stream_chunks(
        self, stream: StreamedResponse, parser: EventStreamParser, assembler: StreamAssembler
    ) -> AsyncIterator[Chunk]:
        """Yield the text and thinking of a streamed answer, until its end."""
        try:
            async with aclosing(self._read_with_timeouts(stream)) as body:
                async for data in body:
                    for event in parser.feed(data):
                        if event.data != _DONE and (
                            chunk := await self._process_event(event, stream, assembler)
                        ):
                            yield chunk
                        if event.data == _DONE or assembler.is_complete:
                            await _drain(body)
                            return
        except BodyTooLarge as error:
            raise self._connection_error(error) from error
        for event in parser.finish():
            if event.data != _DONE and (
                chunk := await self._process_event(event, stream, assembler)
            ):
                yield chunk

    async def _process_event(
        self, event: Event, stream: StreamedResponse, assembler: StreamAssembler
    ) -> Chunk | None:
        try:
            data = await _run_in_thread_if_large(
                len(event.data), lambda: parse_json(event.data.encode())
            )
            if event.name == "error" or data.get("type") == "error":
                raise self._response_error(200, stream.headers, event.data.encode())
            if status := _hidden_error_status(data):
                raise self._response_error(status, stream.headers, event.data.encode())
            return assembler.add_event(event.name, data)
        except _MALFORMED as error:
            raise self._malformed_answer_error(
                event.data.encode(), _request_id(stream.headers)
            ) from error

    def _assemble_answer(
        self, stream: StreamedResponse, assembler: StreamAssembler, request: ChatRequest
    ) -> LLMResponse:
        """Return the answer of a stream. Raises TransportError if the stream ended too early."""
        answer = assembler.assemble()
        if answer is None:
            raise TransportError(
                "the answer broke off before its end", request_id=_request_id(stream.headers)
            )
        return self._parse_answer(RawResponse(200, stream.headers, b""), request, answer)

    def _parse_answer(
        self, answer: RawResponse, request: ChatRequest, assembled_answer: Json | None = None
    ) -> LLMResponse:
        """Parse an answer; `assembled_answer` is that of a stream, whose `answer.content` is
        empty.
        """
        if answer.status != 200:
            raise self._response_error(*answer)
        request_id = _request_id(answer.headers)
        try:
            data = parse_json(answer.content) if assembled_answer is None else assembled_answer
            if status := _hidden_error_status(data):
                content = answer.content or to_json(data)
                raise self._response_error(status, answer.headers, content)
            return self.wire.parse_answer(
                {**data, "id": request_id} if request_id else data, request
            )
        except ProviderError as error:
            error.request_id = error.request_id or request_id
            raise
        except _MALFORMED as error:
            raise self._malformed_answer_error(answer.content, request_id) from error

    def _response_error(
        self, status: int, headers: Mapping[str, str], content: bytes
    ) -> ProviderError:
        """Return the error of a response that is none of success."""
        return vendor_errors.from_response(
            status,
            headers,
            content,
            provider=self.name,
            has_key=self._api_key is not None,
            address_hint=self._address_hint,
        )

    def _malformed_answer_error(self, content: bytes, request_id: str | None) -> TransportError:
        """Return the error for an answer that has not the form of its API."""
        description = vendor_errors.describe(content)
        text = f"the answer is not of the agreed form but {description}"
        if self._address_hint:
            text += f"; {self._address_hint}"
        elif description.startswith("a web page"):
            text += f"; check `base_url` of [providers.{self.name}]"
        return TransportError(text, request_id=request_id)

    def _connection_error(self, error: BaseException) -> ProviderError:
        """Return the error for a failed connection. httpx and httpx2 name their exceptions
        alike.
        """
        causes = [error]
        while (cause := causes[-1].__cause__) is not None:
            causes.append(cause)
        for cause in causes:
            if isinstance(cause, BodyTooLarge):
                # Not retried: the vendor would charge for the answer again.
                return mark_unsure(
                    AnswerTooLarge(
                        f"the answer is too large and was not read to its end: {cause}; if such "
                        f"answers are right, raise max_answer_mb of [providers.{self.name}]"
                    )
                )
        names = {type(cause).__name__ for cause in causes}
        text = describe_connection_error(error)[:_MAX_REASON_CHARACTERS]
        is_refused = isinstance(root_cause(error), ConnectionRefusedError)
        if is_refused:
            text += "; is the model server started?"
        if "ConnectTimeout" in names:
            text = f"no answer within {CONNECT_TIMEOUT:g} s"
        if names & {"ConnectError", "ConnectTimeout", "ProxyError", "PoolTimeout"}:
            transport_error = NothingListens if is_refused else TransportError
            return transport_error(f"no connection to {self._host}: {text}")
        return mark_unsure(TransportError(f"the connection to {self._host} broke off: {text}"))

    def _supported_temperature(self, temperature: float | None) -> float | None:
        """Return the temperature if the model accepts it; else log once that it is dropped."""
        bounds = self.capabilities.temperature
        if temperature is None or (bounds and bounds[0] <= temperature <= bounds[1]):
            return temperature
        self._warn_of_dropped("temperature", temperature, bounds)
        return None

    def _supported_effort(self, effort: str | None) -> str | None:
        """Return the effort if the model knows that level; else log once that it is dropped, as of
        a fallback: a routine's own model is checked when the routine is loaded.
        """
        if effort is None or effort in self.capabilities.effort:
            return effort
        self._warn_of_dropped("effort", effort, self.capabilities.effort)
        return None

    def _warn_of_dropped(self, param: str, value: object, accepted_values: object) -> None:
        if param in self._dropped_params:
            return
        self._dropped_params.add(param)
        log.warning(
            "provider.param_dropped",
            provider=self.name,
            model=self._model,
            param=param,
            value=value,
            takes=accepted_values,
        )

    def _name_and_redact(self, text: str) -> str:
        """Return an error's text after the provider's name, and without the key, which a vendor may
        have repeated.
        """
        text = f"{self.name} ({self._model}): {text}"
        if self._api_key and len(self._api_key) >= _MIN_SECRET_CHARACTERS:
            text = text.replace(self._api_key, "[redacted]")
        return text


async def build_in_thread(build: Callable[[], T]) -> T:
    """Build a client in a thread. Raises Fatal if a package is missing, or if the environment names
    a proxy or certificate file that cannot be used.
    """
    try:
        return await asyncio.to_thread(build)
    except (ImportError, OSError, ValueError) as error:
        raise Fatal(f"cannot be reached from this installation: {error}") from error


async def _run_in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Run `work` on an answer of `size` bytes: in a thread if that would hold up the event loop."""
    return await asyncio.to_thread(work) if size > _THREAD_ABOVE_BYTES else work()


def mark_unsure(error: E) -> E:
    """Mark an error after which the vendor may still have answered, and charge for it."""
    error.unsure = True
    return error


@contextmanager
def _mark_errors_unsure() -> Iterator[None]:
    """Mark every ProviderError of the block: an answer has begun, so the vendor charges for it."""
    try:
        yield
    except ProviderError as error:
        error.unsure = True
        raise


def to_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8, with a question mark in place of a lone surrogate."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _make_cache_key(routine: str | None) -> str | None:
    """Return the key of the vendor's prompt cache for the requests of a routine."""
    if not routine:
        return None
    key = f"routine:{routine}"
    if len(key) > _MAX_CACHE_KEY_CHARACTERS:
        return hashlib.sha256(key.encode()).hexdigest()
    return key


def _require_setting(value: str | None, name: str, key: str, hint: str) -> str:
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


def _key_problem(key: str | None, is_required: bool, name: str) -> str | None:
    """Return what is wrong with an API key; None if it can be sent."""
    if is_required and not key:
        return f"there is no key; set api_key_file or api_key_env in [providers.{name}]"
    if not key or re.fullmatch(r"[!-~]+", key):
        return None
    problem = "the key holds a character that no key has (a space, a line break?)"
    return f"{problem}; check that of [providers.{name}]"


def same_host(url: str, other_url: str) -> bool:
    """Return whether two URLs have the same host; False if one is no URL."""
    try:
        return urlsplit(url).hostname == urlsplit(other_url).hostname
    except ValueError:
        return False


def _parse_host(url: str, name: str) -> str:
    """Return the host and port of a base URL. Raises ConfigError if it is no URL or contains a
    password.
    """
    try:
        parts = urlsplit(url)
        is_valid = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port is None or parts.port)
            and url.isprintable()
        )
    except ValueError:
        is_valid = False
    if is_valid and "@" not in parts.netloc:
        return parts.netloc
    problem = "holds a password" if is_valid else "is not an address"
    masked_url = re.sub(r"//[^/@]*@", "//…@", url)
    hint = "use api_key_file or api_key_env" if "@" in url else "such as https://api.example.com/v1"
    key = f"providers.{name}.base_url"
    raise ConfigError(
        Fault(file="config.toml", key=key, found=masked_url, problem=problem, hint=hint)
    )


def _missing_path_hint(url: str, wire: WireFormat) -> str:
    """Return what to try in place of a base URL without a path; empty if it needs none.

    The paths of Anthropic's API begin with `/v1`, all others begin behind it.
    """
    if urlsplit(url).path or wire.path.startswith("/v1/"):
        return ""
    return f'base_url has no path, and such servers answer beneath /v1: try base_url = "{url}/v1"'


def _parse_listed_model(entry: Json) -> ListedModel:
    """Parse an entry of a vendor's list of models. Anthropic has `lifecycle`, `created_at` and
    `retires_at`, OpenAI `created` (in seconds) and `shutdown_date`.
    """
    end = entry.get("retires_at") or entry.get("shutdown_date")
    try:
        retires = date.fromisoformat(str(end)[:10]) if end else None
    except ValueError:
        retires = None
    return ListedModel(
        name=str(entry["id"]),
        lifecycle=str(entry.get("lifecycle") or ""),
        retires=retires,
        created=_parse_creation(entry),
    )


def _parse_creation(entry: Json) -> float:
    """Return when a listed model came out, in seconds since 1970; 0 if the vendor does not say."""
    seconds = entry.get("created")
    if isinstance(seconds, int) and 0 < seconds < 1 << 40:
        return float(seconds)
    try:
        return datetime.fromisoformat(str(entry.get("created_at"))).timestamp()
    except (ValueError, OverflowError):
        return 0.0


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read the empty remainder of a body, as only a connection read to its end can be reused."""
    with suppress(TransportError, AnswerTooLarge, TimeoutError):
        async with asyncio.timeout(1.0):
            async for _ in body:
                pass


def _request_id(headers: Mapping[str, str]) -> str | None:
    return headers.get("request-id") or headers.get("x-request-id")


def _hidden_error_status(data: Any) -> int | None:
    """Return the status of an error that came with status 200, as some gateways send the errors of
    their vendors; None if there is no error.
    """
    error = data.get("error")
    if not error or any(data.get(key) for key in ("choices", "content")):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 200
