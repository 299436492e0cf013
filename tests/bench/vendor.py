"""The cheapest vendor there can be, so that the floors are low: canned answers, no checks, 0.05 ms
a request.

It answers any POST in the form of its path (Chat Completions, Responses or Messages): a call of
`file_read` first, a text once the conversation holds a tool's result. `GET /marks` tells when each
request began to arrive (the machine's monotonic clock) and the two bodies of a run; `GET /forget`
starts anew. (The strict vendor that the tests use is in tests/fakes.)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from typing import Any, Self

from tests.bench.measure import ROOT

_REPORT = (
    "Disk and memory are fine; nothing has failed since yesterday. The notes ask for nothing. " * 3
)
_ARGUMENTS = {"path": "notes.md"}
# Of a token: a count far below it would look like a question that was cut, which the daemon looks
# into.
_LETTERS = 4


def _chat(number: int, tokens: int, report: str, *, is_last: bool) -> Any:
    function = {"name": "file_read", "arguments": json.dumps(_ARGUMENTS)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    message = {"content": report} if is_last else {"content": None, "tool_calls": [call]}
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": "stop" if is_last else "tool_calls",
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_780_000_000,
        "model": "bench",
        "choices": [choice],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 60, "total_tokens": tokens + 60},
    }


def _responses(number: int, tokens: int, report: str, *, is_last: bool) -> Any:
    reasoning = {
        "id": f"rs_{number}",
        "type": "reasoning",
        "summary": [],
        "encrypted_content": "x" * 400,
    }
    text = {"type": "output_text", "text": report, "annotations": []}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    call = {
        "type": "function_call",
        "call_id": f"call_{number}",
        "name": "file_read",
        "status": "completed",
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_780_000_000,
        "status": "completed",
        "model": "bench",
        "output": [
            reasoning,
            message if is_last else {**call, "arguments": json.dumps(_ARGUMENTS)},
        ],
        "usage": {"input_tokens": tokens, "output_tokens": 60, "total_tokens": tokens + 60},
    }


def _messages(number: int, tokens: int, report: str, *, is_last: bool) -> Any:
    thinking_block = {"type": "thinking", "thinking": "I look first.", "signature": "x" * 400}
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": "file_read", "input": _ARGUMENTS}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [thinking_block, {"type": "text", "text": report} if is_last else use],
        "stop_reason": "end_turn" if is_last else "tool_use",
        "usage": {"input_tokens": tokens, "output_tokens": 60},
    }


# What each language calls a tool's result, so that the second request of a run is known; and its
# answers.
_APIS = {
    b"/chat/completions": (b'"tool_call_id"', _chat),
    b"/responses": (b'"function_call_output"', _responses),
    b"/v1/messages": (b'"tool_result"', _messages),
}


class Book:
    """What arrived, and when."""

    def __init__(self, latency: float, *, news: bool) -> None:
        self.latency, self.news = latency, news
        self.count = 0
        self.forget()

    @property
    def report(self) -> str:
        return (
            f"{_REPORT}Report {self.count} looked at volume v{self.count}."
            if self.news
            else _REPORT
        )

    def forget(self) -> None:
        self.marks: list[float] = []
        self.bodies: dict[str, bytes] = {}


class Connection(asyncio.Protocol):
    """One client, with keep-alive."""

    def __init__(self, book: Book) -> None:
        self._book, self._buffer, self._begin = book, b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._buffer:
            self._begin = time.monotonic()
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        body_length = int(length[1]) if length else 0
        if not separator or len(body) < body_length:
            return
        self._buffer = b""
        if head.startswith(b"GET"):
            self._reply(self._view(head))
            return
        book = self._book
        book.count += 1
        book.marks.append(self._begin)
        path = head.split(b" ", 2)[1]
        mark, answer_of = next(api for end, api in _APIS.items() if path.endswith(end))
        has_result = mark in body
        book.bodies["second" if has_result else "first"] = body
        answer = json.dumps(
            answer_of(book.count, len(body) // _LETTERS, book.report, is_last=has_result)
        ).encode()
        if book.latency:
            asyncio.get_running_loop().call_later(book.latency, self._reply, answer)
        else:
            self._reply(answer)

    def _view(self, head: bytes) -> bytes:
        if head.startswith(b"GET /forget"):
            self._book.forget()
        bodies = {call: body.decode() for call, body in self._book.bodies.items()}
        return json.dumps(
            {"marks": self._book.marks[:4], "count": self._book.count, "bodies": bodies}
        ).encode()

    def _reply(self, body: bytes) -> None:
        if not self._transport.is_closing():
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"  # noqa: E501
            self._transport.write(head.encode() + body)


async def serve(latency: float, *, news: bool) -> None:
    book = Book(latency, news=news)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(book), "127.0.0.1", 0, backlog=1024
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


class Vendor:
    """The vendor in a process of its own; with `news` no report of it is like another."""

    def __init__(self, latency: float = 0.0, *, news: bool = False) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.vendor",
                "--latency",
                str(latency),
                *(["--news"] if news else []),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def asked_at(self, path: str) -> str:
        """Return the address of one of its languages."""
        return f"{self.url}{path}"

    @property
    def chat_url(self) -> str:
        return self.asked_at("/v1/chat/completions")

    def forget(self) -> None:
        self._get("/forget")

    @property
    def first_byte(self) -> float:
        """When the first request since `forget` began to arrive, on the machine's monotonic
        clock.
        """
        return float(self._get("/marks")["marks"][0])

    @property
    def bodies(self) -> str:
        """The two requests of a run as they were sent last, as a JSON list."""
        bodies = self._get("/marks")["bodies"]
        return f"[{bodies['first']},{bodies['second']}]"

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path) as answer:
            return json.load(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--news", action="store_true")
    options = parser.parse_args()
    asyncio.run(serve(options.latency, news=options.news))
