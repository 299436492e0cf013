"""Telegram: a bot reads by long polling, so that no port is open, and writes
(https://core.telegram.org/bots/api).

A bot sends at most one message a second to a person, and twenty a minute to a group
(https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this); short bursts are
taken. An edit counts as a message.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from daemon.chat.base import (
    Button,
    ButtonPress,
    ChatEvent,
    ChatFailed,
    ChatFile,
    EventBatch,
    Person,
    ReceivedMessage,
)
from daemon.chat.telegram_html import render_telegram_html, utf16_length, visible_length
from daemon.delivery.markup import split_up_to_max_parts
from daemon.delivery.sanitize import strip_controls
from daemon.system.http_client import connection_settings, describe_connection_error

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger()

# Characters of a message, as UTF-16 counts them, once its formatting is read.
MAX_MESSAGE = 4096
MAX_PRESS_ANSWER = 200  # characters
# Seconds that a look for updates waits for one. Intermediaries cut what is silent for a minute.
POLL_SECONDS = 50
_TIMEOUT = 30.0  # seconds until any other request has failed where nothing comes
_MORE_FOR_WHOLE_ANSWER = 5.0  # seconds more, until a request has failed whose answer comes slowly
_MAX_ANSWER = 10_000_000  # bytes of an answer: a hundred updates have some kB each
MAX_FILE = 200_000  # bytes of a file that is read
MAX_TEXT = 50_000  # characters of one text of an update; Telegram's own limit is below that
_MAX_NAME = 64  # characters
# Seconds that a request waits for a limit of Telegram, and how often; after that it has failed.
_LONGEST_WAIT, _ATTEMPTS = 30.0, 3
# Messages that may be sent at once, and seconds for one after that.
_BURST, _SECONDS_PER_MESSAGE, _SECONDS_PER_GROUP_MESSAGE = 5, 1.0, 3.0
_MAX_CONVERSATIONS = 1000  # whose rate limit is remembered
_UPDATES = ["message", "callback_query"]
# Seconds after which the name of the bot is asked for again: @BotFather may have changed it.
_NAME_SECONDS = 3600.0


class TelegramChat:
    """A bot of Telegram; see `base.Chat`."""

    def __init__(self, token: str, *, base_url: str, name_seconds: float = _NAME_SECONDS) -> None:
        """`name_seconds` is for how long the bot's name is not asked for again."""
        self._token, self._base_url = token, base_url.rstrip("/")
        self._bot = token.partition(":")[0]
        """The id of the bot's own account."""
        self._username = ""
        """The name of that account in small letters, once it was asked for; empty before."""
        self._name_seconds = name_seconds
        self._ask_name_at = 0.0
        """When the name may be asked for again, by the clock of the loop."""
        self._clients: dict[str, httpx.AsyncClient] = {}
        """One that waits for updates, and one for all else."""
        self._rate_limits: dict[str, _MessageRateLimit] = {}
        """By conversation."""

    @property
    def shortest_edit_interval(self) -> float:
        return 3.0

    async def receive(self, position: str) -> EventBatch:
        parameters: dict[str, Any] = {"timeout": POLL_SECONDS, "allowed_updates": _UPDATES}
        if position.isdecimal():
            parameters["offset"] = int(position)
        updates = await self._call("getUpdates", parameters, client="updates")
        if not isinstance(updates, list):
            raise ChatFailed("getUpdates brought no list")
        events = []
        for update in updates:
            number = _int_or_none(update.get("update_id")) if isinstance(update, dict) else None
            if number is None:
                log.warning("chat.unreadable", update=str(update)[:200])
                continue
            position = str(number + 1)
            event = parse_update(update, bot=self._bot)
            if event is not None and not await self._is_for_another_bot(event):
                events.append(event)
        return EventBatch(events=events, position=position)

    async def _is_for_another_bot(self, event: ChatEvent) -> bool:
        """Tell whether an event is a command for another bot of a group: `/run@other_bot disks`.

        A group has an id below zero. In a private chat there is no other bot.
        """
        if not isinstance(event, ReceivedMessage) or not event.conversation.startswith("-"):
            return False
        command = re.match(r"/\w+@(\w+)", event.text)
        if command is None or command[1].lower() == self._username:
            return False
        now = asyncio.get_running_loop().time()
        if not self._username or now >= self._ask_name_at:
            try:
                account = await self._call("getMe", {})
            except ChatFailed:  # rather one answer too many than none
                return False
            name = _text_at(account, "username") if isinstance(account, dict) else ""
            self._username, self._ask_name_at = name.lower(), now + self._name_seconds
            if command[1].lower() != self._username:
                log.info("chat.command_of_other_bot", bot=command[1], own_name=name)
        return bool(self._username) and command[1].lower() != self._username

    def split(
        self, markdown: str, *, run: str = "", sanitize: Callable[[str], str] = str
    ) -> list[str]:
        return split_up_to_max_parts(
            markdown, MAX_MESSAGE, size=_part_length, run=run, sanitize=sanitize
        ) or [""]

    async def send(
        self,
        conversation: str,
        markdown: str,
        *,
        reply_to: str | None = None,
        buttons: Sequence[Sequence[Button]] = (),
    ) -> str:
        parameters: dict[str, Any] = {"chat_id": _chat_id(conversation)}
        if buttons:
            parameters["reply_markup"] = _make_keyboard(buttons)
        if reply_to is not None and reply_to.isdecimal():
            parameters["reply_parameters"] = {
                "message_id": int(reply_to),
                "allow_sending_without_reply": True,
            }
        message = await self._write("sendMessage", parameters, markdown)
        number = _int_or_none(message.get("message_id")) if isinstance(message, dict) else None
        if number is None:
            raise ChatFailed("sendMessage brought no message")
        return str(number)

    async def edit(
        self,
        conversation: str,
        message: str,
        markdown: str,
        *,
        buttons: Sequence[Sequence[Button]] = (),
    ) -> None:
        parameters = {
            "chat_id": _chat_id(conversation),
            "message_id": int(message),
            "reply_markup": _make_keyboard(buttons),
        }
        try:
            await self._write("editMessageText", parameters, markdown)
        except ChatFailed as error:
            if "message is not modified" not in str(error):
                raise

    async def show_typing(self, conversation: str) -> None:
        await self._call("sendChatAction", {"chat_id": _chat_id(conversation), "action": "typing"})

    async def answer_press(self, press: ButtonPress, text: str) -> None:
        if len(text) > MAX_PRESS_ANSWER:
            text = f"{text[: MAX_PRESS_ANSWER - 1]}…"
        parameters = {"callback_query_id": press.callback_id, "text": text}
        try:
            await self._call("answerCallbackQuery", parameters)
        except ChatFailed as error:
            if "query is too old" not in str(error):
                raise

    async def read_file(self, file: ChatFile) -> str:
        if file.size > MAX_FILE:
            raise ChatFailed(f"it has {file.size} bytes; at most {MAX_FILE} are read", retry=False)
        description = await self._call("getFile", {"file_id": file.id})
        path = description.get("file_path") if isinstance(description, dict) else None
        if not isinstance(path, str):
            raise ChatFailed("Telegram does not say where it is", retry=False)
        status, body = await self._request(
            "GET", f"{self._base_url}/file/bot{self._token}/{path}", limit=MAX_FILE
        )
        if status != 200:  # else the text of an error would be taken for the person's
            raise ChatFailed(
                f"Telegram answers with status {status}", retry=status == 429 or status >= 500
            )
        try:
            return strip_controls(body.decode("utf-8"))
        except UnicodeDecodeError:
            raise ChatFailed("it is no text in UTF-8", retry=False) from None

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    async def _write(self, method: str, parameters: Mapping[str, Any], markdown: str) -> Any:
        """Send or edit a message: formatted, or as plain text where Telegram cannot read the
        formatting.
        """
        markup = render_telegram_html(markdown) or "…"
        # a link would be fetched by Telegram, and by the programs of its readers
        parameters = {**parameters, "link_preview_options": {"is_disabled": True}}
        rate_limit = self._rate_limit_of(str(parameters["chat_id"]))
        await rate_limit.wait()
        try:
            return await self._call(method, {**parameters, "text": markup, "parse_mode": "HTML"})
        except ChatFailed as error:
            if "can't parse entities" not in str(error):
                raise
            log.warning("chat.formatting_refused", detail=str(error))
        await rate_limit.wait()
        return await self._call(method, {**parameters, "text": markdown.strip() or "…"})

    def _rate_limit_of(self, conversation: str) -> _MessageRateLimit:
        if conversation not in self._rate_limits and len(self._rate_limits) >= _MAX_CONVERSATIONS:
            del self._rate_limits[next(iter(self._rate_limits))]
        is_group = conversation.startswith("-")
        seconds = _SECONDS_PER_GROUP_MESSAGE if is_group else _SECONDS_PER_MESSAGE
        return self._rate_limits.setdefault(conversation, _MessageRateLimit(seconds))

    async def _call(
        self, method: str, parameters: Mapping[str, Any], *, client: str = "messages"
    ) -> Any:
        """Return the result of a method; wait where Telegram asks for a short wait."""
        url = f"{self._base_url}/bot{self._token}/{method}"
        for attempt in range(1, _ATTEMPTS + 1):
            status, body = await self._request("POST", url, parameters, client=client)
            try:
                answer = json.loads(body)
            except ValueError:
                answer = None
            if not isinstance(answer, dict):
                raise ChatFailed(f"{method}: status {status} without an answer of the Bot API")
            if answer.get("ok") is True:
                return answer.get("result")
            error = _make_failure(method, status, answer)
            if error.after is None or error.after > _LONGEST_WAIT or attempt == _ATTEMPTS:
                raise error
            await asyncio.sleep(error.after)
        raise AssertionError  # the last attempt returns or raises

    async def _request(
        self,
        http_method: str,
        url: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        client: str = "messages",
        limit: int = _MAX_ANSWER,
    ) -> tuple[int, bytes]:
        """Return status and body of an answer, up to `limit` bytes; ChatFailed for a longer one."""
        import httpx

        timeout = POLL_SECONDS + 15.0 if client == "updates" else _TIMEOUT
        whole_timeout = timeout + _MORE_FOR_WHOLE_ANSWER
        try:
            if client not in self._clients:
                settings = await asyncio.to_thread(connection_settings, self._base_url)
                if client not in self._clients:  # another call may have made it meanwhile
                    self._clients[client] = httpx.AsyncClient(**settings, timeout=timeout)
            async with (
                asyncio.timeout(whole_timeout),
                self._clients[client].stream(http_method, url, json=parameters) as answer,
            ):
                body = bytearray()
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > limit:
                        raise ChatFailed(f"an answer of more than {limit} bytes")
                return answer.status_code, bytes(body)
        except TimeoutError:
            raise ChatFailed(f"no whole answer within {whole_timeout:g} s") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ChatFailed(f"base_url cannot be used: {error}", retry=False) from None
        except (httpx.HTTPError, OSError) as error:
            # not the error itself: its request has the token in its address
            reason = describe_connection_error(error).replace(self._token, "…")
            raise ChatFailed(f"{type(error).__name__}: {reason}") from None


class _MessageRateLimit:
    """Lets messages of one conversation through at the rate that Telegram takes."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is for one message, once _BURST were sent at once."""
        self._seconds = seconds
        self._free_at = 0.0
        """When a whole burst may be sent again, by the clock of the loop."""

    async def wait(self) -> None:
        """Return when the next message may be sent."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + self._seconds
        if (delay := self._free_at - now - _BURST * self._seconds) > 0:
            await asyncio.sleep(delay)


def parse_update(update: Mapping[str, Any], *, bot: str) -> ChatEvent | None:
    """Return what a person has sent or pressed; None for an update that is neither, or that
    does not look like one of Telegram. `bot` is the id of our own account.
    """
    number = _int_or_none(update.get("update_id"))
    if number is None:
        return None
    message, press = _dict_at(update, "message"), _dict_at(update, "callback_query")
    if message:
        return _parse_message(message, number, bot)
    if press:
        return _parse_press(press, number)
    return None


def _parse_message(message: Mapping[str, Any], update: int, bot: str) -> ReceivedMessage | None:
    person = _parse_person(message)
    conversation, id_ = _int_or_none(_dict_at(message, "chat").get("id")), message.get("message_id")
    if person is None or conversation is None or _int_or_none(id_) is None:
        return None
    text = _text_at(message, "text") or _text_at(message, "caption")
    quotes = []
    # a Bot API server of before 2024 has forward_from, forward_date and the like for forward_origin
    is_forwarded = any(key.startswith("forward_") for key in message)
    if is_forwarded or message.get("via_bot") is not None:
        text, quotes = "", [text] if text else []
    replied_message = _dict_at(message, "reply_to_message")
    reply_to = _int_or_none(replied_message.get("message_id"))
    if replied_message and str(_dict_at(replied_message, "from").get("id")) != bot:
        # what somebody else has written there
        quotes.append(_text_at(replied_message, "text") or _text_at(replied_message, "caption"))
    quotes.append(_text_at(_dict_at(message, "quote"), "text"))
    files, notes = [], []
    document = _dict_at(message, "document")
    file_id, size = document.get("file_id"), _int_or_none(document.get("file_size"))
    if isinstance(file_id, str):
        name = _text_at(document, "file_name")[:200] or "file"
        files.append(ChatFile(id=file_id, name=name, size=size or 0))
    unread_kinds = [kind for kind in _UNREAD_KINDS if message.get(kind) is not None]
    if unread_kinds and not document:
        notes.append(f"What is no text is not read here: {', '.join(unread_kinds)}.")
    if not (text or any(quotes) or files or notes):
        return None  # somebody joined a group, or the like
    return ReceivedMessage(
        id=str(update),
        position=str(update + 1),
        person=person,
        conversation=str(conversation),
        message=str(id_),
        text=text,
        quotation="\n\n".join(filter(None, quotes)),
        reply_to=None if reply_to is None else str(reply_to),
        files=tuple(files),
        notes=tuple(notes),
    )


_UNREAD_KINDS = (
    *("photo", "voice", "audio", "video", "video_note", "animation", "sticker", "location"),
    *("contact", "poll", "story", "venue", "paid_media", "checklist"),
)


def _parse_press(press: Mapping[str, Any], update: int) -> ButtonPress | None:
    person, message = _parse_person(press), _dict_at(press, "message")
    conversation, id_ = _int_or_none(_dict_at(message, "chat").get("id")), press.get("id")
    if person is None or conversation is None or not isinstance(id_, str):
        return None
    return ButtonPress(
        id=str(update),
        position=str(update + 1),
        person=person,
        conversation=str(conversation),
        message=str(_int_or_none(message.get("message_id")) or ""),
        data=_text_at(press, "data"),
        callback_id=id_,
    )


def _parse_person(event: Mapping[str, Any]) -> Person | None:
    """Return who sent something; None for a channel, another bot, or nobody."""
    sender = _dict_at(event, "from")
    id_ = _int_or_none(sender.get("id"))
    if id_ is None or sender.get("is_bot") is True or event.get("sender_chat") is not None:
        return None
    names = (_text_at(sender, "first_name"), _text_at(sender, "last_name"))
    name = " ".join(" ".join(names).split())[:_MAX_NAME]
    return Person(id=str(id_), name=name or str(id_))


def _dict_at(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the JSON object that stands under a key; empty if none does."""
    value = values.get(key)
    return value if isinstance(value, dict) else {}


def _text_at(values: Mapping[str, Any], key: str) -> str:
    """Return the text that stands under a key, without control characters; empty if none does."""
    value = values.get(key)
    return strip_controls(value[:MAX_TEXT]).strip() if isinstance(value, str) else ""


def _int_or_none(value: Any) -> int | None:
    """Return a value that is an id, a size or a number of seconds; None if it is none."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    # ids have 52 bits at most
    return value if is_number and abs(value) < 1 << 53 else None


def _chat_id(conversation: str) -> int | str:
    try:
        return int(conversation)
    except ValueError:
        return conversation


def _part_length(markdown: str) -> int:
    """Return the length of a part: of what is seen of it, or of its source, if that is longer."""
    return max(visible_length(render_telegram_html(markdown)), utf16_length(markdown))


def _make_keyboard(buttons: Sequence[Sequence[Button]]) -> dict[str, Any]:
    return {
        "inline_keyboard": [
            [{"text": button.label, "callback_data": button.data} for button in row]
            for row in buttons
        ]
    }


def _make_failure(method: str, status: int, answer: Mapping[str, Any]) -> ChatFailed:
    code = _int_or_none(answer.get("error_code")) or status
    description = str(answer.get("description") or "no reason was told")[:300]
    retry_after = _int_or_none(_dict_at(answer, "parameters").get("retry_after"))
    problem = f"{method}: {code} {description}"
    if code in (401, 404):
        problem += " (the token is not that of a bot: ask @BotFather for it)"
    if code == 409 and "webhook" in description:
        problem += " (another program has set a webhook: deleteWebhook ends that)"
    elif code == 409:
        problem += " (another program reads with this token: use a bot of its own for each)"
    return ChatFailed(
        problem,
        retry=code in (409, 429) or code >= 500,
        after=float(retry_after) if retry_after is not None and retry_after >= 0 else None,
    )
