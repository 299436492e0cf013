"""A vendor of models on a real loopback socket, which refuses what the vendors refuse.

It speaks Chat Completions (any path that ends in `/chat/completions`), Responses (`/responses`) and
Messages (`/v1/messages`), checks every request by the rules of the vendor whose model is asked for
(`gpt-…`, `o3…`, `claude-…`, `minimax…`, `deepseek…`, `glm…`, `kimi…`, `qwen…`; `vllm/…`,
`ollama/…`, `llamacpp/…`, `lmstudio/…` are local servers, anything else a lenient one) and answers
from a script:

    async with FakeVendor(["hello"]) as vendor:             # in this process and loop
        provider = create_provider("open_source", base_url=f"{vendor.url}/v1", model="local", …)
        vendor.requests[-1].body["messages"]; vendor.refusals

    with VendorProcess(turns, latency=0.2, log=path) as vendor:    # in a process of its own; plain
    `with`
        vendor.url; vendor.requests()                       # the log, read back: it survives a
        killed client

    python -m tests.fakes.vendor --port 0 --script '["hello"]' --log requests.jsonl --latency 0.2
    {"url": "http://127.0.0.1:41523", "port": 41523, "pid": 4711}          ← its first line on
    stdout

Vendors that cache say in `usage` how much of a request they have seen before: of Anthropic's only
what was marked.

`context=1000` makes its models overflow beyond so many tokens; `name="a"` tells it from a second
one in the same test, whose calls and thinking it then takes for another vendor's. `strict=False`
answers whatever is asked.

A base URL is `url + "/v1"` for OpenAI's form, `url` for Anthropic's. The key "wrong" is refused,
any other is right.

A turn is a text, or a table whose keys combine:

    text, thinking, redacted: true, refusal, usage: {…}, finish: "length" | "content_filter" |
    "refusal" | …
    tool_calls: [{name, arguments: {…} or a raw (perhaps broken) string, id}]
    when: "text"            only for a request that holds this text, wherever it stands in the list
    repeat: 3               stands for so many turns
    latency: 0.2            seconds until the answer
    held: true              the answer waits until the test calls `release()`
    together: 100           the answer waits until so many such requests are under way (and
        `latency` from then on)
    error: 429, message, code, type, retry_after: 2        an error in the vendor's own form
    raw: "<html>…", status: 200, content_type: "text/html" this body as it stands; headers: {…} go
        with it
    empty: true             a 200 with `choices: []` (or `output: []`, `content: []`)
    truncate: 40            the body ends after so many bytes, and the connection with it
    reset: true | hang: true                               the connection is torn down | nothing
        ever comes
    after: 3                asked for a stream: so many of its events come before the fault above
    stream_error: true      asked for a stream: it ends in the middle, with the vendor's event for
        that
    pause: 0.05             asked for a stream: seconds between its events
    piece: 1000             asked for a stream: characters of text in each of its events (7)

By default a request takes the first turn that is left (`by="order"`); with `by="conversation"` the
turn is chosen by how many assistant turns the request holds already, so that any number of
conversations can be served, again and again; a conversation longer than the script gets its last
turn. When the script is used up, a request gets a 400 that says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, TextIO

from tests.fakes import chat, messages, responses
from tests.fakes.rules import Json, Refusal, digest, model_named, require, tokens

Turn = str | Json
_APIS: dict[str, ModuleType] = {
    "/chat/completions": chat,
    "/responses": responses,
    "/v1/messages": messages,
}
_VERSIONS = ("2023-06-01", "2026-10-21")
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    429: "Too Many Requests",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it arrived."""

    number: int
    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes
    refusal: str | None
    """Why the vendor turned it away, if it did; scripted errors are none."""


class Script:
    """The turns that are still to be said."""

    def __init__(self, turns: Iterable[Turn] = (), by: str = "order") -> None:
        tables: list[Json] = [{"text": turn} if isinstance(turn, str) else turn for turn in turns]
        self.turns = [turn for turn in tables for _ in range(turn.get("repeat", 1))]
        self.by = by

    def next(self, body: Any) -> Json:
        """Return the turn for this request."""
        if self.by == "conversation" and self.turns:
            return self.turns[min(_assistant_turns(body), len(self.turns) - 1)]
        text = ""
        for index, turn in enumerate(self.turns):
            if "when" in turn:
                text = text or json.dumps(body, ensure_ascii=False)
            if "when" not in turn or turn["when"] in text:
                return self.turns.pop(index)
        raise Refusal("the script of this fake vendor is used up", code="script_used_up")


def _assistant_turns(body: Any) -> int:
    """Count what the model has said already; in Responses a turn may be several items, so count the
    answers to it.
    """
    if not isinstance(body, dict):
        return 0
    if "input" in body:
        items = body["input"] if isinstance(body["input"], list) else []
        own_items = [
            item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
            for item in items
        ]
        return sum(
            now and not before for before, now in zip([False, *own_items], own_items, strict=False)
        )
    return sum(message.get("role") == "assistant" for message in body.get("messages", ()))


class FakeVendor:
    """The server, living in the event loop of its test."""

    def __init__(
        self,
        turns: Iterable[Turn] = (),
        *,
        by: str = "order",
        latency: float = 0.0,
        strict: bool = True,
        context: int | None = None,
        name: str = "v",
        log: TextIO | None = None,
        port: int = 0,
    ) -> None:
        self.script = Script(turns, by)
        self.latency, self.strict, self.context, self.name = latency, strict, context, name
        self.requests: list[Request] = []
        self.connections: set[_Connection] = set()
        self.connection_count = 0
        self.most_at_once = 0
        """How many requests were under way at the same time, at most."""
        self.under_way = 0
        self.url = ""
        self.held_answers: list[Callable[[], None]] = []
        self.answers_to_release: list[Callable[[], None]] = []
        self.models: list[Json] = []
        """What it lists at `/models`, for GET."""
        self.loaded_models: list[Json] | None = None
        """What Ollama says at `/api/ps` of the models in memory; None: it is another server."""
        self.loaded_models_failures = 0
        """How many questions at `/api/ps` fail before it says that."""
        self._cached_marks: set[str] = set()
        """Digests of conversations that a later one may begin with."""
        self._number = 0
        self._log = log
        self._port = port

    @property
    def refusals(self) -> list[str]:
        return [request.refusal for request in self.requests if request.refusal]

    def release(self) -> None:
        """Send the answers that are held."""
        ready, self.answers_to_release = self.answers_to_release, []
        for send in ready:
            send()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self._port, backlog=2048
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        await self._server.wait_closed()

    def listing(self, headers: dict[str, str]) -> _Answer:
        """Say which models there are."""
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key == "wrong":
            no = Refusal("Incorrect API key provided: wrong.", status=401, code="invalid_api_key")
            return _Answer.of(chat.error(no, None), status=401)
        return _Answer.of({"object": "list", "data": self.models, "has_more": False})

    def answer(self, path: str, headers: dict[str, str], raw: bytes) -> _Answer:
        """Judge a request and say what goes back."""
        self._number += 1
        api = next(
            (api for end, api in _APIS.items() if path.partition("?")[0].endswith(end)), None
        )
        body: Any = None
        refusal: str | None = None
        try:
            body = self._judge(api, headers, raw, path)
            turn = self.script.next(body)
            answer = self._act(turn, api or chat, body)
        except Refusal as no:
            refusal = str(no)
            answer = _Answer.of((api or chat).error(no, body), status=no.status)
        self._record(path, headers, body, raw, refusal, answer)
        return answer

    def _judge(self, api: ModuleType | None, headers: dict[str, str], raw: bytes, path: str) -> Any:
        require(
            api is not None,
            f"Unknown request URL: POST {path}.",
            status=404,
            type_="not_found_error",
        )
        require("json" in headers.get("content-type", ""), "Unsupported content type", status=415)
        try:
            body = json.loads(raw)
        except ValueError:
            raise Refusal("We could not parse the JSON body of your request.") from None
        require(isinstance(body, dict), "The body must be an object.")
        if self.strict and api is not None:
            _check_key(body, headers)
            api.check(body, context=self.context, name=self.name)
            version = headers.get("anthropic-version")
            claude = api is messages and model_named(str(body["model"])).family == "anthropic"
            require(not claude or version in _VERSIONS, "anthropic-version: header is required")
        return body

    def _act(self, turn: Json, api: ModuleType, body: Json) -> _Answer:
        if "error" in turn:
            refusal = Refusal(
                turn.get("message", "scripted"),
                status=turn["error"],
                code=turn.get("code"),
                type_=turn.get("type"),
            )
            answer = _Answer.of(api.error(refusal, body), status=turn["error"])
            if "retry_after" in turn:
                answer.headers["retry-after"] = str(turn["retry_after"])
        elif "raw" in turn:
            answer = _Answer(
                status=turn.get("status", 200),
                body=turn["raw"].encode(),
                headers={
                    "content-type": turn.get("content_type", "text/html"),
                    **turn.get("headers", {}),
                },
            )
        else:
            message = api.answer(turn, body, self._number, name=self.name)
            if "usage" not in turn:
                self._count_cached(api, body, message["usage"])
            if turn.get("empty"):
                message |= {key: [] for key in ("choices", "output", "content") if key in message}
            answer = _Answer.of(message)
            if body.get("stream"):
                answer = _Answer.of_events(
                    _events(turn, api, message, body), pause=turn.get("pause", 0.0)
                )
        answer.latency = turn.get("latency", self.latency)
        answer.fault = next((fault for fault in ("reset", "hang") if turn.get(fault)), None)
        answer.truncate = turn.get("truncate")
        answer.together = turn.get("together", 0)
        answer.held = turn.get("held", False)
        name = "request-id" if api is messages else "x-request-id"
        answer.headers[name] = f"req_{self._number}"
        return answer

    def _count_cached(self, api: ModuleType, body: Json, usage: Json) -> None:
        """Count as read from the cache what an earlier request began with, where the vendor caches
        and it is enough.
        """
        least = api.least_cached(body)
        if least is None:
            return
        prefixes, size = [], 0
        for piece in api.pieces(body):
            prefixes.append(
                (digest([prefixes[-1][0] if prefixes else "", piece]), size := size + tokens(piece))
            )
        read_tokens = next(
            (
                count
                for mark, count in reversed(prefixes)
                if mark in self._cached_marks and count >= least
            ),
            0,
        )
        self._cached_marks |= {mark for mark, count in prefixes[-1:] if count >= least}
        api.count_cached(usage, read_tokens, size if size >= least else 0)

    def _record(
        self,
        path: str,
        headers: dict[str, str],
        body: Any,
        raw: bytes,
        refusal: str | None,
        answer: _Answer,
    ) -> None:
        number = self._number
        self.requests.append(
            Request(number=number, path=path, headers=headers, body=body, raw=raw, refusal=refusal)
        )
        if self._log:
            line = {
                "number": number,
                "at": time.time(),
                "path": path,
                "status": answer.status,
                "refusal": refusal,
            }
            self._log.write(json.dumps(line | {"body": body}) + "\n")
            self._log.flush()
            self.requests.clear()  # a long-lived process keeps them on disk only


def _events(turn: Json, api: ModuleType, message: Json, body: Json) -> list[bytes]:
    """Return an answer as a stream, up to where a fault ends it."""
    events = api.stream(message, body, turn.get("piece", 7))
    is_broken = any(turn.get(fault) for fault in ("stream_error", "reset", "hang", "truncate"))
    if is_broken:
        events = events[: turn.get("after", len(events) // 2)]
    if turn.get("stream_error"):
        events.append(api.stream_error(body))
    return [_event(name, data) for name, data in events]


def _event(name: str, data: Any) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{f'event: {name}{chr(10)}' if name else ''}data: {text}\n\n".encode()


def _check_key(body: Json, headers: dict[str, str]) -> None:
    key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    model = model_named(str(body.get("model")))
    require(
        key not in ("", "wrong") if model.is_hosted else key != "wrong",
        f"Incorrect API key provided: {key or 'none'}.",
        status=401,
        code="invalid_api_key",
        type_="authentication_error" if model.family in ("anthropic", "minimax") else None,
    )


@dataclass
class _Answer:
    body: bytes
    headers: dict[str, str]
    status: int = 200
    latency: float = 0.0
    fault: str | None = None
    truncate: int | None = None
    together: int = 0
    held: bool = False
    events: list[bytes] | None = None
    """Of a stream; sent one by one."""
    pause: float = 0.0

    @classmethod
    def of_events(cls, events: list[bytes], *, pause: float) -> Self:
        headers = {"content-type": "text/event-stream; charset=utf-8"}
        return cls(body=b"", headers=headers, events=events, pause=pause)

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Self:
        body = json.dumps(value, ensure_ascii=False).encode()
        return cls(body=body, headers={"content-type": "application/json"}, status=status)

    @property
    def wire(self) -> bytes:
        length = (
            "transfer-encoding: chunked"
            if self.events is not None
            else f"content-length: {len(self.body)}"
        )
        head = [f"HTTP/1.1 {self.status} {_PHRASES.get(self.status, 'Status')}", length]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*head, "", ""]).encode() + self.body[: self.truncate]


class _Connection(asyncio.Protocol):
    """Just enough of HTTP/1.1: requests with a content-length, one after another on a kept
    connection.
    """

    transport: asyncio.Transport

    def __init__(self, vendor: FakeVendor) -> None:
        self._vendor = vendor
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._vendor.connections.add(self)
        self._vendor.connection_count += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._vendor.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", 0))
        if len(body) < length:
            return
        self._buffer = body[length:]
        vendor, (method, path, _) = self._vendor, first.split(" ")
        if method == "GET" and path.partition("?")[0].endswith("/models"):
            answer = vendor.listing(headers)
        elif method == "GET" and path == "/api/ps" and vendor.loaded_models is not None:
            answer = _Answer.of({"models": vendor.loaded_models})
            if vendor.loaded_models_failures > 0:
                vendor.loaded_models_failures -= 1
                answer.status = 500
        else:
            answer = vendor.answer(path, headers, body[:length])
        vendor.under_way += 1
        vendor.most_at_once = max(vendor.most_at_once, vendor.under_way)
        if answer.held:
            vendor.answers_to_release.append(lambda: self._send_later(answer))
        elif answer.together:
            vendor.held_answers.append(lambda: self._send_later(answer))
            if len(vendor.held_answers) >= answer.together:
                ready, vendor.held_answers = vendor.held_answers, []
                for send in ready:
                    send()
        else:
            self._send_later(answer)

    def _send_later(self, answer: _Answer) -> None:
        if answer.latency:
            asyncio.get_running_loop().call_later(answer.latency, self._send, answer)
        else:
            self._send(answer)

    def _send(self, answer: _Answer) -> None:
        self._vendor.under_way -= 1
        if answer.events is not None:
            self._streaming = asyncio.get_running_loop().create_task(
                self._stream(answer, answer.events)
            )
            return
        if answer.fault == "hang":
            return
        if answer.fault == "reset":
            self._reset()
            return
        self.transport.write(answer.wire)
        if answer.truncate is not None:
            self.transport.close()

    async def _stream(self, answer: _Answer, events: list[bytes]) -> None:
        self.transport.write(answer.wire)
        for event in events:
            if self.transport.is_closing():
                return
            self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(answer.pause)
        if answer.fault == "reset":
            self._reset()
        elif answer.truncate is not None:
            self.transport.close()
        elif answer.fault is None:
            self.transport.write(b"0\r\n\r\n")

    def _reset(self) -> None:
        raw: socket.socket = self.transport.get_extra_info("socket")
        # close() sends RST
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class VendorProcess:
    """The server in a process of its own, which ends with this one."""

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        by: str = "order",
        latency: float = 0.0,
        strict: bool = True,
        log: Path | None = None,
        port: int = 0,
    ) -> None:
        self._log = log
        self._command = [
            sys.executable,
            "-m",
            "tests.fakes.vendor",
            "--until-eof",
            "--port",
            str(port),
        ]
        self._command += ["--by", by, "--script", json.dumps(turns), "--latency", str(latency)]
        self._command += ["--log", str(log)] if log else []
        self._command += [] if strict else ["--lenient"]

    def __enter__(self) -> Self:
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
        )
        assert self._process.stdout
        self.url: str = json.loads(self._process.stdout.readline())["url"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.communicate()  # closes its stdin, which ends it

    def requests(self) -> list[Json]:
        """Read back what has been asked so far: number, at, path, status, refusal, body."""
        assert self._log, "start it with log=path"
        return (
            [json.loads(line) for line in self._log.read_text().splitlines()]
            if self._log.exists()
            else []
        )


async def _serve(options: argparse.Namespace) -> None:
    script: Any = options.script
    table = json.loads(script if script.lstrip()[:1] in ("[", "{") else Path(script).read_text())
    turns, by = (
        (table["turns"], table.get("by", options.by))
        if isinstance(table, dict)
        else (table, options.by)
    )
    log = Path(options.log).open("a") if options.log else None  # noqa: SIM115 - open as long as the process
    vendor = FakeVendor(
        turns,
        by=by,
        latency=options.latency,
        strict=not options.lenient,
        log=log,
        port=options.port,
    )
    if log is None:
        vendor.requests = _Forgetful()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.until_eof:
        loop.add_reader(0, lambda: None if os.read(0, 4096) else stop.set())
    async with vendor:
        print(
            json.dumps(
                {"url": vendor.url, "port": int(vendor.url.rpartition(":")[2]), "pid": os.getpid()}
            ),
            flush=True,
        )
        await stop.wait()


class _Forgetful(list[Request]):
    """Keep nothing: a benchmark sends a million of them."""

    def append(self, _: Request) -> None:
        pass


def main() -> None:
    """Serve from the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--script", default="[]", help="a JSON file, or the JSON itself: turns, or {turns, by}"
    )
    parser.add_argument("--by", choices=("order", "conversation"), default="order")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--log", help="a file that gets one JSON line per request, body included")
    parser.add_argument("--lenient", action="store_true", help="answer whatever is asked")
    parser.add_argument("--until-eof", action="store_true", help="end when stdin ends")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
