"""The Bot API of Telegram on a real loopback socket, which refuses what Telegram refuses
(https://core.telegram.org/bots/api).

    async with FakeTelegram() as telegram:
        telegram.url, telegram.TOKEN               # for base_url and the token's file
        telegram.write("how are the disks?")       # a person writes to the bot
        telegram.press("Approve")                  # and presses a button of its last message
        await telegram.until(lambda: telegram.texts)

A person is known to the bot once it has an account in `people`. `fail` lets the next request of a
method fail as it is told. `offline` lets nothing through, and keeps what people write.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Any, Self

Json = dict[str, Any]

ADA, EVE, GROUP = 4711, 666, -1001234
BOT = 99
_TAGS = frozenset(
    "a b blockquote code del em i ins pre s span strike strong tg-spoiler u".split()  # noqa: SIM905
)
MAX_TEXT = 4096
BURST, GROUP_BURST = 20, 20


class Refusal(Exception):
    """What Telegram answers to a request that it does not take."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status, self.description, self.parameters = status, description, parameters


@dataclass(kw_only=True)
class Message:
    """A message of the bot as its reader sees it."""

    id: int
    chat: int
    text: str
    source: str
    """What was sent, with its formatting."""
    buttons: list[list[Json]]
    reply_to: int | None
    texts: list[str] = field(default_factory=list)
    """What it has read so far, oldest first."""

    def button(self, label: str) -> Json:
        return next(
            button for row in self.buttons for button in row if button["text"].startswith(label)
        )


class FakeTelegram:
    """The server, living in the event loop of its test."""

    TOKEN = f"{BOT}:AAfake-token-of-a-bot-1234567890abcde"

    def __init__(self, *, burst: int = BURST) -> None:
        self.people = {ADA: "Ada", EVE: "Eve"}
        self.username = "fake_bot"
        """The name of the bot, which its owner can change."""
        self.groups = {GROUP}
        self.blocked_chats: set[int] = set()
        """Who has blocked the bot."""
        self.messages: list[Message] = []
        self.requests: list[tuple[str, Json]] = []
        self.refusals: list[str] = []
        self.presses: dict[str, str | None] = {}
        """What was answered to each press of a button; None: nothing yet."""
        self.files: dict[str, bytes] = {}
        self.lost_files: set[str] = set()
        """Paths of files that are described, and gone when they are fetched."""
        self.webhook = False
        self.offline = False
        self.url = ""
        self._burst = burst
        self._updates: list[Json] = []
        self.next_update, self._next_message = 1000, 1
        self.polls = 0
        """How many looks for updates have begun."""
        self._poll: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._change = asyncio.Condition()
        self._free_at: dict[int, float] = {}
        """When a whole burst may be sent again, by chat."""
        self._failures: dict[str, list[Refusal | str | None]] = {}
        self._connections: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._news.set()  # a poll under way has its answer
        for writer in list(self._connections):
            writer.transport.abort()
        await self._server.wait_closed()
        while self._connections:
            await asyncio.sleep(0)

    # --- what people do

    def write(
        self,
        text: str | None,
        *,
        person: int = ADA,
        chat: int | None = None,
        reply_to: int | None = None,
        **fields: Any,
    ) -> int:
        """Let a person write a message; return its id."""
        chat = person if chat is None else chat
        message = {
            "message_id": self._number(),
            "from": self._user(person),
            "chat": {"id": chat, "type": "private" if chat > 0 else "supergroup"},
            "date": int(time.time()),
            **fields,
        }
        if text is not None:
            message["text"] = text
        if reply_to is not None:
            original = next((item for item in self.messages if item.id == reply_to), None)
            message["reply_to_message"] = {
                "message_id": reply_to,
                "from": {"id": BOT, "is_bot": True, "first_name": "Bot"},
                "text": original.text if original else "…",
            }
        self.update({"message": message})
        return int(message["message_id"])

    def press(self, label: str, *, message: Message | None = None, person: int = ADA) -> str:
        """Let a person press a button of a message, by default the last one; return the press."""
        message = message or self.messages[-1]
        return self.press_data(message.button(label)["callback_data"], message, person=person)

    def press_data(self, data: str, message: Message, *, person: int = ADA) -> str:
        """Send the data of a button, as any client can; return the press."""
        press = f"press-{len(self.presses)}"
        self.presses[press] = None
        self.update(
            {
                "callback_query": {
                    "id": press,
                    "from": self._user(person),
                    "chat_instance": "1",
                    "message": {
                        "message_id": message.id,
                        "date": 1,
                        "chat": {"id": message.chat, "type": "private"},
                        "text": message.text,
                    },
                    "data": data,
                }
            }
        )
        return press

    def update(self, update: Any, number: int | None = None) -> int:
        """Put an update, whatever it is, into the queue; return its number."""
        if number is None:
            number = self.next_update
            self.next_update += 1
        self._updates.append(
            {"update_id": number, **update} if isinstance(update, dict) else update
        )
        self._news.set()
        return number

    def fail(self, method: str, *failures: Refusal | str | None) -> None:
        """Let the next requests of a method fail: by a refusal, with a raw body, by a `reset`, or
        `after` it was done without an answer. None lets one pass.
        """
        self._failures.setdefault(method, []).extend(failures)

    # --- what a test looks at

    @property
    def texts(self) -> list[str]:
        """What the messages of the bot read now."""
        return [message.text for message in self.messages]

    @property
    def unconfirmed_updates(self) -> list[Any]:
        """The updates that the bot has not confirmed."""
        return self._updates

    def of(self, method: str) -> list[Json]:
        """Return the parameters of the requests of a method that were taken."""
        return [parameters for name, parameters in self.requests if name == method]

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition holds, and return its value."""
        async with asyncio.timeout(120), self._change:
            await self._change.wait_for(condition)
            return condition()

    # --- the server

    def _number(self) -> int:
        self._next_message += 1
        return self._next_message - 1

    def _user(self, person: int) -> Json:
        return {"id": person, "is_bot": False, "first_name": self.people.get(person, "Somebody")}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                path = first.split(" ")[1]
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                if self.offline:
                    break
                status, body = await self._respond(path, raw)
                if body is None:
                    break
                writer.write(
                    f"HTTP/1.1 {status} Told\r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _respond(self, path: str, raw: bytes) -> tuple[int, bytes | None]:
        """Return status and body; None as the body: the connection is torn down."""
        _, bot, *parts = path.split("/")
        if bot == "file":
            file_path = "/".join(parts[1:])
            content = None if file_path in self.lost_files else self.files.get(file_path)
            return (404, b"{}") if content is None else (200, content)
        method = parts[0] if parts else ""
        failures = self._failures.get(method)
        failure = failures.pop(0) if failures else None
        try:
            if not bot.startswith("bot") or ":" not in bot:
                raise Refusal(404, "Not Found")
            if bot.removeprefix("bot") != self.TOKEN:
                raise Refusal(401, "Unauthorized")
            if failure == "reset":
                return 0, None
            if isinstance(failure, Refusal):
                raise failure
            if failure is not None and failure != "after":
                return 502, failure.encode()
            if method not in _METHODS:
                raise Refusal(404, "Not Found: method not found")
            parameters = json.loads(raw or b"{}")
            result = _METHODS[method](self, parameters)
            if asyncio.iscoroutine(result):
                result = await result
            self.requests.append((method, parameters))
            answer: Json = {"ok": True, "result": result}
            status = 200
        except Refusal as refusal:
            self.refusals.append(f"{method}: {refusal.description}")
            status = refusal.status
            answer = {"ok": False, "error_code": status, "description": refusal.description}
            if refusal.parameters:
                answer["parameters"] = refusal.parameters
        async with self._change:
            self._change.notify_all()
        return status, None if failure == "after" else json.dumps(answer).encode()

    async def _get_updates(self, parameters: Json) -> list[Any]:
        if self.webhook:
            raise Refusal(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook "
                "to delete the webhook first",
            )
        _require(0 <= parameters.get("timeout", 0) <= 50, "timeout must be from 0 to 50")
        _require(1 <= parameters.get("limit", 100) <= 100, "limit must be from 1 to 100")
        if self._poll is not None and not self._poll.done():
            self._poll.set_exception(
                Refusal(
                    409,
                    "Conflict: terminated by other getUpdates request; make sure that only one "
                    "bot instance is running",
                )
            )
        self.polls += 1
        async with self._change:
            self._change.notify_all()
        offset = parameters.get("offset", 0)
        self._updates = [
            update
            for update in self._updates
            if not isinstance(update, dict) or update["update_id"] >= offset
        ]
        poll = self._poll = asyncio.get_running_loop().create_future()
        if not self._updates and parameters.get("timeout"):
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait(
                    [news, poll], timeout=parameters["timeout"], return_when="FIRST_COMPLETED"
                )
            finally:
                news.cancel()
        if poll.done():
            poll.result()
        elif self._poll is poll:
            poll.set_result(None)
        return self._updates[: parameters.get("limit", 100)]

    def _get_me(self, parameters: Json) -> Json:
        return {"id": BOT, "is_bot": True, "first_name": "Bot", "username": self.username}

    def _send_message(self, parameters: Json) -> Json:
        chat = self._chat(parameters)
        text = _text_of(parameters)
        buttons = _buttons(parameters)
        reply = parameters.get("reply_parameters", {})
        if reply and not reply.get("allow_sending_without_reply"):
            _require(reply["message_id"] < self._next_message, "message to be replied not found")
        self._spend(chat)
        message = Message(
            id=self._number(),
            chat=chat,
            text=text,
            source=parameters["text"],
            buttons=buttons,
            reply_to=reply.get("message_id"),
            texts=[text],
        )
        self.messages.append(message)
        return _to_json(message)

    def _edit_message_text(self, parameters: Json) -> Json:
        chat = self._chat(parameters)
        text, buttons = _text_of(parameters), _buttons(parameters)
        message = next(
            (
                item
                for item in self.messages
                if (item.chat, item.id) == (chat, parameters.get("message_id"))
            ),
            None,
        )
        if message is None:
            raise Refusal(400, "Bad Request: message to edit not found")
        if (message.source, message.buttons) == (parameters["text"], buttons):
            raise Refusal(
                400,
                "Bad Request: message is not modified: specified new message content and reply "
                "markup are exactly the same as a current content and reply markup of the message",
            )
        self._spend(chat)
        message.text, message.source, message.buttons = text, parameters["text"], buttons
        message.texts.append(text)
        return _to_json(message)

    def _send_chat_action(self, parameters: Json) -> bool:
        self._chat(parameters)
        _require(
            parameters.get("action") in ("typing", "upload_document"), "wrong parameter action"
        )
        return True

    def _answer_callback_query(self, parameters: Json) -> bool:
        press = parameters.get("callback_query_id")
        if press not in self.presses or self.presses[press] is not None:
            raise Refusal(
                400,
                "Bad Request: query is too old and response timeout expired or query ID is invalid",
            )
        text = parameters.get("text", "")
        if len(text) > 200:
            raise Refusal(400, "Bad Request: MESSAGE_TOO_LONG")
        self.presses[press] = text
        return True

    def _get_file(self, parameters: Json) -> Json:
        path = f"documents/{parameters.get('file_id')}"
        _require(path in self.files, "invalid file_id")
        _require(len(self.files[path]) <= 20_000_000, "file is too big")
        return {"file_id": parameters["file_id"], "file_path": path}

    def _chat(self, parameters: Json) -> int:
        chat = parameters.get("chat_id")
        if chat not in self.people and chat not in self.groups:
            raise Refusal(400, "Bad Request: chat not found")
        if chat in self.blocked_chats:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        assert isinstance(chat, int)
        return chat

    def _spend(self, chat: int) -> None:
        """Count a message; refuse it beyond the rate of its chat."""
        now, seconds = time.monotonic(), 3.0 if chat < 0 else 1.0
        burst = GROUP_BURST if chat < 0 else self._burst
        free_at = max(self._free_at.get(chat, now), now) + seconds
        if free_at - now > burst * seconds:
            wait = int(seconds) + 1
            raise Refusal(429, f"Too Many Requests: retry after {wait}", retry_after=wait)
        self._free_at[chat] = free_at


_METHODS: dict[str, Callable[[FakeTelegram, Json], Any]] = {
    "getUpdates": FakeTelegram._get_updates,
    "getMe": FakeTelegram._get_me,
    "sendMessage": FakeTelegram._send_message,
    "editMessageText": FakeTelegram._edit_message_text,
    "sendChatAction": FakeTelegram._send_chat_action,
    "answerCallbackQuery": FakeTelegram._answer_callback_query,
    "getFile": FakeTelegram._get_file,
}


def _require(condition: bool, description: str) -> None:
    if not condition:
        raise Refusal(400, f"Bad Request: {description}")


def _to_json(message: Message) -> Json:
    return {"message_id": message.id, "date": 1, "chat": {"id": message.chat}, "text": message.text}


def _buttons(parameters: Json) -> list[list[Json]]:
    rows: list[list[Json]] = parameters.get("reply_markup", {}).get("inline_keyboard", [])
    for button in (button for row in rows for button in row):
        _require(bool(button.get("text")), "inline keyboard button text must be non-empty")
        if not 1 <= len(button.get("callback_data", "").encode()) <= 64:
            raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return rows


def _text_of(parameters: Json) -> str:
    """Return what a reader sees of a text."""
    text = parameters.get("text")
    _require(isinstance(text, str), "message text is empty")
    mode = parameters.get("parse_mode")
    _require(mode in (None, "HTML"), "unsupported parse_mode")
    if mode == "HTML":
        parser = _Entities()
        parser.feed(text)
        parser.close()
        if parser.open:
            raise _unreadable(f'Can\'t find end tag corresponding to start tag "{parser.open[-1]}"')
        text = "".join(parser.texts)
    _require(bool(text.strip()), "message text is empty")
    _require(len(text.strip().encode("utf-16-le")) // 2 <= MAX_TEXT, "message is too long")
    return str(text).strip()


def accepts(markup: str) -> bool:
    """Return whether Telegram takes a text as its HTML."""
    try:
        _text_of({"text": markup or "x", "parse_mode": "HTML"})
    except Refusal as refusal:
        return "can't parse" not in refusal.description
    return True


def _unreadable(problem: str) -> Refusal:
    return Refusal(400, f"Bad Request: can't parse entities: {problem}")


class _Entities(HTMLParser):
    """Reads the HTML of Telegram, and refuses every other one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_entityref(self, name: str) -> None:
        entities = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
        self.texts.append(entities.get(name, f"&{name};"))

    def handle_charref(self, name: str) -> None:
        self.texts.append(unescape(f"&#{name};"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            raise _unreadable(f'Unsupported start tag "{tag}" at byte offset 0')
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise _unreadable(f'Unsupported start tag "{tag}/" at byte offset 0')

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise _unreadable(f'Unmatched end tag at byte offset 0, found "</{tag}>"')

    def handle_data(self, data: str) -> None:
        if "<" in data:
            raise _unreadable("Unsupported start tag at byte offset 0")
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise _unreadable("Unsupported start tag at byte offset 0")
