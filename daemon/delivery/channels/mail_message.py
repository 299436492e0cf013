"""Make the mails of a delivery: `[host] routine: headline`, and the report as text and as HTML.

The text part is the Markdown of the report. The HTML part loads nothing from the network, and
leaves out the heading that the subject has already, since phones show the beginning of a mail
behind its subject. Both parts end with a line that identifies the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.header import Header
from email.headerregistry import (
    BaseHeader,
    HeaderRegistry,
    MessageIDHeader,
    UniqueUnstructuredHeader,
)
from email.message import EmailMessage
from email.policy import SMTP, Policy
from email.utils import localtime
from typing import cast

from daemon.delivery.channels.mail_url import MailSettings
from daemon.delivery.markup import (
    OPENING_CHARACTERS,
    fence,
    find_headline,
    render_html,
    render_text,
    take_opening,
)
from daemon.delivery.message import Message, compose
from daemon.models import Delivery

_MAX_SUBJECT = 250  # characters
_MAX_BODY = 30_000  # characters of Markdown: a longer report is attached
_ATTACHMENT_NOTE = "\n\n*(The whole report is attached.)*"
# Ends the text of a mail: programs show what follows as a signature (RFC 3676, 4.3).
_SIGNATURE = "-- "
# The only colour is a grey that is readable on white and on black: the mail program of the reader
# chooses all others.
_GREY = "#808080"
_CELL = f"padding: 3px 12px 3px 0; border-bottom: 1px solid {_GREY}; text-align: left"
_CODE_BLOCK = "display: block; overflow-x: auto; padding: 8px; background: rgba(128,128,128,.15)"
_STYLES = {
    "h1": "font-size: 1.4em; margin: 1em 0 .4em",
    "h2": "font-size: 1.2em; margin: 1.2em 0 .4em",
    "h3": "font-size: 1em; margin: 1.2em 0 .4em",
    "blockquote": f"margin: .8em 0; padding-left: 1em; border-left: 3px solid {_GREY}",
    "code": _CODE_BLOCK,
    "hr": f"border: 0; border-top: 1px solid {_GREY}",
    "table": "border-collapse: collapse; margin: .8em 0",
    "td": _CELL,
    "th": _CELL,
}
"""CSS by tag. `code` is a block of code only: within a line it stays as it is."""
_PAGE = """\
<!DOCTYPE html>
<html>
<head><meta name="color-scheme" content="light dark"></head>
<body style="font-family: system-ui, sans-serif; line-height: 1.5; max-width: 44em">
{content}</body>
</html>
"""
_FOOTER = """\
<div style="margin-top: 2em; border-top: 1px solid {grey}; font-size: .8em; color: {grey}">
{content}</div>
"""
_THREAD_HEADERS = ("References", "In-Reply-To")


def make_mails(
    settings: MailSettings, delivery: Delivery, host: str
) -> Iterator[tuple[str, EmailMessage]]:
    """Yield (address, mail) for each recipient in the order of the settings. After the first one,
    yield the same mail for each address in cc and bcc. `host` is the name of this machine.
    """
    message = compose(delivery)
    subject = _make_subject(message, host)
    is_cut = len(subject) > _MAX_SUBJECT
    if is_cut:
        subject = f"{subject[: _MAX_SUBJECT - 1]}…"
    text_part = _make_text_part(message)
    html_part = (
        ""
        if settings.is_plain
        else _make_html_part(message, with_heading=is_cut or not message.headline)
    )
    domain = settings.sender.domain or _encode_for_id(host)
    # Each machine and each new database counts deliveries from 1, and mailboxes drop an id they
    # know. Not by the host: another one of a cluster may send it again.
    created = (delivery.created or delivery.report.slot).timestamp()
    id_beginning = delivery.run or f"notice.{created:.6f}"
    own_headers = {name.lower() for name, _ in settings.headers}
    is_threaded = own_headers.isdisjoint(name.lower() for name in _THREAD_HEADERS)
    policy = SMTP.clone(
        cte_type="7bit", header_factory=_make_header_registry(is_threaded=is_threaded)
    )

    for number, recipient in enumerate(settings.recipients):
        mail = EmailMessage(policy=policy)
        mail["Subject"], mail["From"], mail["To"] = subject, settings.sender, recipient
        mail["Date"] = localtime()
        mail["Auto-Submitted"] = "auto-generated"  # prevents out-of-office replies (RFC 3834)
        mail["Message-ID"] = f"<{id_beginning}.{delivery.id}.{number}@{domain}>"
        if is_threaded:
            for header in _THREAD_HEADERS:
                mail[header] = _make_thread_id(delivery, host, domain)
        for header, addresses in (("Cc", settings.cc), ("Reply-To", settings.reply_to)):
            if addresses:
                mail[header] = addresses
        for header, value in settings.headers:
            mail[header] = " ".join(value.split())
        mail.set_content(text_part)
        if html_part:
            mail.add_alternative(html_part, subtype="html")
        if len(message.text) > _MAX_BODY:
            name = f"{delivery.routine or 'report'}.md"
            report_text = _replace_surrogates(message.markdown)
            mail.add_attachment(report_text, subtype="markdown", filename=name)
        yield recipient.addr_spec, mail
        if number == 0:
            copies = {copy.addr_spec for copy in (*settings.cc, *settings.bcc)}
            for copy in sorted(copies - {recipient.addr_spec for recipient in settings.recipients}):
                yield copy, mail


def _make_subject(message: Message, host: str) -> str:
    """Return the subject on one line: the host, the routine, and the headline of the report (the
    date, if it has none).
    """
    # the title of a question names the host already
    subject = message.subject.replace(f" on {host} ", " ", 1)
    headline = message.headline
    if not headline and message.date:  # the report of a run
        headline = find_headline(message.text[:_MAX_BODY], message.subject)
        # where a title was cut, half of a word may be an address that the whole word was not
        headline = message.sanitize(headline) or message.date
    if headline:
        subject += f": {headline}"
    return " ".join(_replace_surrogates(f"[{host}] {subject}").split())


def _make_text_part(message: Message) -> str:
    """Return the Markdown as it was written (cut if it is attached), and the line about the run."""
    text = _cut_if_attached(message.text, message)
    if message.about:
        text += f"\n\n{_SIGNATURE}\n{render_text(message.about)}"
    return _replace_surrogates(text)


def _make_html_part(message: Message, *, with_heading: bool) -> str:
    """Return the report (cut if it is attached) and the line about the run as an HTML page."""
    markdown = _cut_if_attached(message.text if with_heading else message.body, message)
    if message.verbatim:
        markdown = fence(markdown)
    html = render_html(_replace_surrogates(markdown), _STYLES)
    if message.about:
        html += _FOOTER.format(grey=_GREY, content=render_html(message.about))
    return _PAGE.format(content=html)


def _cut_if_attached(text: str, message: Message) -> str:
    """Return a text; of one that is over _MAX_BODY and so is attached, the beginning and a note."""
    if len(text) <= _MAX_BODY:
        return text
    opening = take_opening(text, OPENING_CHARACTERS, sanitize=message.sanitize)
    return opening + _ATTACHMENT_NOTE


def _make_thread_id(delivery: Delivery, host: str, domain: str) -> str:
    """Return the id of a message that was never sent. All mails of a routine on this host refer to
    it, so that mail programs show them as one thread. Digests have a thread of their own, and so
    have incidents that belong to no routine.
    """
    if delivery.routine:
        thread = f"routine.{_encode_for_id(delivery.routine)}"
    else:
        thread = f"notice.{_encode_for_id(delivery.content.partition('.')[0])}"
    return f"<{thread}.{_encode_for_id(host)}@{domain}>"


def _encode_for_id(name: str) -> str:
    """Return a name with only such characters as may stand in a message id (RFC 5322, 3.6.4)."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name) or "-"


class _SubjectHeader(UniqueUnstructuredHeader):
    """A subject that is read as it was written. Where the email package folds a long one, it may
    leave the first line empty or add blanks.
    """

    def fold(self, *, policy: Policy) -> str:
        """Return the header: ASCII on one line, as _MAX_SUBJECT is far below the 998 characters
        that a line may have (RFC 5322, 2.1.1); else in encoded words (RFC 2047).
        """
        text = str(self)
        if not text.isascii() or "=?" in text:  # a reader takes `=?` for an encoded word
            text = Header(text, "utf-8", header_name="Subject").encode(linesep=policy.linesep)
        return f"Subject: {text}{policy.linesep}"


def _make_header_registry(*, is_threaded: bool) -> HeaderRegistry:
    """Return a registry with which the email package folds no subject, and writes the ids in the
    headers of a thread as it writes Message-ID. By default it encodes long ids, and no mail program
    finds the thread.
    """
    registry = HeaderRegistry()
    # typeshed does not know that the registry takes classes which it combines with BaseHeader
    registry.map_to_type("Subject", cast("type[BaseHeader]", _SubjectHeader))
    if is_threaded:
        for name in _THREAD_HEADERS:
            registry.map_to_type(name, cast("type[BaseHeader]", MessageIDHeader))
    return registry


def _replace_surrogates(text: str) -> str:
    """Return a text with `?` for each lone surrogate, which no encoding has."""
    return text.encode(errors="replace").decode()
