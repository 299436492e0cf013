"""Send reports to chats and phones with the library apprise: one URL per target
(https://github.com/caronc/apprise/wiki).

The library returns only whether a message was sent. The reason of a failure goes to the library's
log, so this module reads that log. The library blocks, so each message is sent in a thread. A
service gets what it can show: HTML without images, Markdown or plain text; a report that is too
long is attached, or else sent in parts. Mail is sent by mail.py, unless PGP encrypts it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daemon.delivery.channels.base import DeliveryProgress
from daemon.delivery.markup import (
    OPENING_CHARACTERS,
    fence,
    render_html,
    render_text,
    split_up_to_max_parts,
    take_opening,
)
from daemon.delivery.message import Message, compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt, Status
from daemon.telemetry.redaction import is_ordinary_word

if TYPE_CHECKING:
    from daemon.telemetry.redaction import Secrets

# Characters. A smaller limit of a service is a mistake in the library rather than a limit.
_MIN_LIMIT = 100
_MAX_REASON = 300  # characters of a debug message that may be the reason of a failure


@dataclass(frozen=True, kw_only=True, slots=True)
class _ServiceMessage:
    title: str
    body: str
    attachment: str = ""
    """The whole report as Markdown, if the body is only its beginning."""


class AppriseChannel:
    """Sends reports to the service of an apprise URL."""

    def __init__(self, url: str, *, secrets: Secrets) -> None:
        self._url, self._secrets = url, secrets
        self._plugin: Any = None
        self._progress = DeliveryProgress()

    async def send(self, delivery: Delivery) -> Receipt:
        """Send the report; the receipt names the service."""
        if self._plugin is None:
            self._plugin = await asyncio.to_thread(load_plugin, self._url)
            for value in private_values(self._plugin):
                self._secrets.add_word(value)
        format_ = _choose_format(self._plugin)
        # in a thread, as a report may be long: 200 kB take some seconds
        report = await asyncio.to_thread(compose, delivery)
        messages = await asyncio.to_thread(
            _make_messages, report, delivery.run, self._plugin, format_
        )
        for number, message in self._progress.remaining(delivery, messages):
            await asyncio.to_thread(self._send, message, format_, delivery)
            self._progress.mark_done(delivery, number)
        self._progress.clear(delivery)
        count = f" in {len(messages)} parts" if len(messages) > 1 else ""
        return Receipt(detail=f"{self._plugin.service_name} took it{count}")

    def _send(self, message: _ServiceMessage, format_: str, delivery: Delivery) -> None:
        import apprise
        from apprise.attachment.memory import AttachMemory

        attachment = None
        if message.attachment:
            memory: Any = AttachMemory
            name = f"{delivery.routine or 'report'}.md"
            attachment = apprise.AppriseAttachment(
                memory(message.attachment, name=name, mimetype="text/markdown")
            )
        kind = (
            apprise.NotifyType.INFO
            if delivery.report.status is Status.SUCCEEDED
            else apprise.NotifyType.WARNING
        )
        with _collect_log() as messages:
            try:
                is_sent = self._plugin.notify(
                    title=message.title,
                    body=message.body,
                    notify_type=kind,
                    attach=attachment,
                    body_format=apprise.NotifyFormat(format_),
                )
            except TypeError as error:  # the library raises it for what it cannot send at all
                raise DeliveryFailed(
                    self._secrets.redact(f"{self._plugin.service_name}: {error}"), retry=False
                ) from None
        if not is_sent:
            reason = " ".join(" ".join(messages[-2:]).split()) or "it did not say why"
            raise DeliveryFailed(self._secrets.redact(f"{self._plugin.service_name}: {reason}"))


def load_plugin(url: str) -> Any:
    """Return the library's plugin for a URL.

    Raises DeliveryFailed if there is none; its text leaves out the URL, which is a secret.
    """
    try:
        import apprise
    except ModuleNotFoundError as error:
        problem = (
            f"the package {error.name} is not installed: pip install 'agentd-routines[notify]'"
        )
        raise DeliveryFailed(problem, retry=False) from None
    with _collect_log() as messages:
        plugin = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if plugin is None:
        scheme = url.partition(":")[0]
        reason = (
            f" ({' '.join(messages[-1].split())})" if messages and url not in messages[-1] else ""
        )
        raise DeliveryFailed(
            f"apprise knows no service by this {scheme}: URL, or it lacks a part{reason}",
            retry=False,
        )
    return plugin


def private_values(plugin: Any) -> list[str]:
    """Return the parts of a plugin's URL that the plugin declares private, such as a token in place
    of the host.
    """
    fields = {**plugin.template_tokens, **plugin.template_args}
    names = [table.get("map_to", name) for name, table in fields.items() if table.get("private")]
    values = [getattr(plugin, name, None) for name in names]
    return [value for value in values if isinstance(value, str) and not is_ordinary_word(value)]


def _choose_format(plugin: Any) -> str:
    """Return the format for a service: html, markdown or text. `format=` in its URL decides."""
    formats = plugin.notify_format
    preferred_format = formats[0] if isinstance(formats, tuple) else formats
    return str(
        plugin.resolve_format("html" if preferred_format.value == "html" else "markdown").value
    )


def _make_messages(message: Message, run: str, plugin: Any, format_: str) -> list[_ServiceMessage]:
    """Return the report as messages that its service accepts: one, or the parts of a long one."""
    render = _RENDERERS[format_]
    title, heading = _fit_title(message.title, plugin.title_maxlen, message.sanitize)
    body = fence(message.body) if message.verbatim else message.body
    source = f"{heading}*{message.about}*\n\n{body}" if message.about else f"{heading}{body}"
    limit = max(plugin.body_maxlen - (0 if title else len(message.title)), _MIN_LIMIT)

    def size(text: str) -> int:
        return len(render(text))

    if len(source) <= 2 * limit and size(source) <= limit:
        return [_ServiceMessage(title=title, body=render(source))]
    if plugin.attachment_support:
        note = "\n\n*(The whole report is attached.)*"
        room = min(OPENING_CHARACTERS, limit - len(note))
        opening = take_opening(source, room, size=size, sanitize=message.sanitize)
        return [
            _ServiceMessage(title=title, body=render(opening + note), attachment=message.markdown)
        ]
    parts = split_up_to_max_parts(
        source,
        limit - len(_part_note(99, 99)),
        size=size,
        run=run,
        sanitize=message.sanitize,
    )
    return [
        _ServiceMessage(title=title, body=render(part + _part_note(number, len(parts))))
        for number, part in enumerate(parts, 1)
    ]


def _part_note(number: int, count: int) -> str:
    return f"\n\n*({number} of {count})*"


def _fit_title(title: str, limit: int, sanitize: Callable[[str], str]) -> tuple[str, str]:
    """Return (title, heading): a service without titles, whose `limit` is 0, gets the title as a
    heading of the body.
    """
    if not limit:
        return "", f"**{title}**\n\n"
    if len(title) <= limit:
        return title, ""
    length = limit - 1
    while len(opening := sanitize(title[:length])) >= limit:
        length -= 1
    return f"{opening}…", ""


def _keep_markdown(markdown: str) -> str:
    return markdown


_RENDERERS: dict[str, Callable[[str], str]] = {
    "html": render_html,
    "markdown": _keep_markdown,
    "text": render_text,
}


class _LogCollector(logging.Handler):
    """Collects log messages of the thread that made the handler."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.messages: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        text = record.getMessage()
        # The library logs the answer of a mail server at level debug, like the text of each
        # message.
        if record.levelno >= logging.WARNING or ("xception" in text and len(text) < _MAX_REASON):
            self.messages.append(text)


@contextmanager
def _collect_log() -> Iterator[list[str]]:
    """Collect apprise's log messages of this thread while the block runs.

    They are kept out of the daemon's log, as they may name a secret.
    """
    logger, collector = logging.getLogger("apprise"), _LogCollector()
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(collector)
    try:
        yield collector.messages
    finally:
        logger.removeHandler(collector)
