"""To chats and phones, by the library apprise: one URL per target
(https://github.com/caronc/apprise/wiki).

The library says only whether it worked; why not, it tells its log, which is read along here. It
blocks, so each message is sent in a thread of its own. What the service takes decides what it gets:
HTML without images, Markdown or words; a report that is too long comes as an attachment, or else in
parts. Mail goes by mail.py, unless PGP encrypts it.
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
from daemon.delivery.markup import beginning, html, plain, some_parts
from daemon.delivery.message import Message, compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt, Status
from daemon.telemetry.redaction import is_ordinary

if TYPE_CHECKING:
    from daemon.telemetry.redaction import Secrets

# Below that, a service's limit is an oversight of the library rather than a limit.
_SHORTEST = 100
_LONGEST_REASON = 300
# Of a report that comes as an attachment: how much of it stands in the message itself.
_BEGINNING = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    title: str
    body: str
    attached: str = ""
    """The whole report, where the body is only its beginning."""


class AppriseChannel:
    """Sends reports to what an apprise URL stands for."""

    def __init__(self, url: str, *, secrets: Secrets) -> None:
        self._url, self._secrets = url, secrets
        self._plugin: Any = None
        self._progress = DeliveryProgress()

    async def send(self, delivery: Delivery) -> Receipt:
        """Send the report; the receipt says which service took it."""
        if self._plugin is None:
            self._plugin = await asyncio.to_thread(service, self._url)
            for part in private_parts(self._plugin):
                self._secrets.add_word(part)
        letter, form = compose(delivery), _form(self._plugin)
        messages = _messages(letter, delivery.run, self._plugin, form)
        for message in self._progress.left(delivery, messages):
            await asyncio.to_thread(self._send, message, form, delivery)
        many = f" in {len(messages)} parts" if len(messages) > 1 else ""
        return Receipt(detail=f"{self._plugin.service_name} took it{many}")

    def _send(self, message: _Message, form: str, delivery: Delivery) -> None:
        import apprise
        from apprise.attachment.memory import AttachMemory

        attached = None
        if message.attached:
            memory: Any = AttachMemory
            name = f"{delivery.routine or 'report'}.md"
            attached = apprise.AppriseAttachment(
                memory(message.attached, name=name, mimetype="text/markdown")
            )
        kind = (
            apprise.NotifyType.INFO
            if delivery.report.status is Status.SUCCEEDED
            else apprise.NotifyType.WARNING
        )
        with _listening() as said:
            try:
                sent = self._plugin.notify(
                    title=message.title,
                    body=message.body,
                    notify_type=kind,
                    attach=attached,
                    body_format=apprise.NotifyFormat(form),
                )
            except TypeError as error:  # how the library refuses what it cannot send at all
                raise DeliveryFailed(
                    self._secrets.redact(f"{self._plugin.service_name}: {error}"), retry=False
                ) from None
        if not sent:
            why = " ".join(" ".join(said[-2:]).split()) or "it did not say why"
            raise DeliveryFailed(self._secrets.redact(f"{self._plugin.service_name}: {why}"))


def service(url: str) -> Any:
    """Return the plugin that a URL stands for; DeliveryFailed if there is none, without the URL, as
    it is a secret.
    """
    try:
        import apprise
    except ModuleNotFoundError as error:
        problem = (
            f"the package {error.name} is not installed: pip install 'agentd-routines[notify]'"
        )
        raise DeliveryFailed(problem, retry=False) from None
    with _listening() as said:
        plugin = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    if plugin is None:
        scheme = url.partition(":")[0]
        why = f" ({' '.join(said[-1].split())})" if said and url not in said[-1] else ""
        raise DeliveryFailed(
            f"apprise knows no service by this {scheme}: URL, or it lacks a part{why}", retry=False
        )
    return plugin


def private_parts(plugin: Any) -> list[str]:
    """Return the parts of its URL that a plugin itself declares private, such as a token in place
    of the host.
    """
    declared = {**plugin.template_tokens, **plugin.template_args}
    names = [table.get("map_to", name) for name, table in declared.items() if table.get("private")]
    values = [getattr(plugin, name, None) for name in names]
    return [value for value in values if isinstance(value, str) and not is_ordinary(value)]


def _form(plugin: Any) -> str:
    """Return what a service is sent: html, markdown or text; a `format=` in its URL decides."""
    told = plugin.notify_format
    first = told[0] if isinstance(told, tuple) else told
    return str(plugin.resolve_format("html" if first.value == "html" else "markdown").value)


def _messages(letter: Message, run: str, plugin: Any, form: str) -> list[_Message]:
    """Return the report as the messages that its service takes."""
    rendered = _RENDERED[form]
    title, above = _title(letter.title, plugin.title_maxlen)
    source = (
        f"{above}*{letter.about}*\n\n{letter.body}" if letter.about else f"{above}{letter.body}"
    )
    limit = max(plugin.body_maxlen - (0 if title else len(letter.title)), _SHORTEST)

    def size(text: str) -> int:
        return len(rendered(text))

    if len(source) <= 2 * limit and size(source) <= limit:
        return [_Message(title=title, body=rendered(source))]
    if plugin.attachment_support:
        told = "\n\n*(The whole report is attached.)*"
        room = min(_BEGINNING, limit - len(told))
        begin = beginning(source, room, size=size)
        return [_Message(title=title, body=rendered(begin + told), attached=letter.markdown)]
    pieces = some_parts(source, limit - len(_numbered(99, 99)), size=size, run=run)
    return [
        _Message(title=title, body=rendered(piece + _numbered(number, len(pieces))))
        for number, piece in enumerate(pieces, 1)
    ]


def _numbered(number: int, all_: int) -> str:
    return f"\n\n*({number} of {all_})*"


def _title(title: str, most: int) -> tuple[str, str]:
    """Return the title, or where the service has none, what stands above the body instead of it."""
    if not most:
        return "", f"**{title}**\n\n"
    return (title if len(title) <= most else f"{title[: most - 1]}…"), ""


def _same(markdown: str) -> str:
    return markdown


_RENDERED: dict[str, Callable[[str], str]] = {"html": html, "markdown": _same, "text": plain}


class _Ear(logging.Handler):
    """Keeps what is said in the thread that made it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        text = record.getMessage()
        # that a mail server said 451 is, to the library, a detail for debugging; so is the whole of
        # every message
        if record.levelno >= logging.WARNING or (
            "xception" in text and len(text) < _LONGEST_REASON
        ):
            self.said.append(text)


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect what apprise warns of while the block runs; none of it goes to our log, as it may
    name a secret.
    """
    logger, listener = logging.getLogger("apprise"), _Ear()
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(listener)
    try:
        yield listener.said
    finally:
        logger.removeHandler(listener)
