"""Send reports by SMTP, to `mailto://` and `mailtos://` URLs, which are read as apprise reads them.

    mailtos://USER:PASSWORD@HOST:PORT/MORE@RECIPIENTS?to=ADDRESSES&from=ADDRESS&smtp=SERVER&mode=starttls|ssl|insecure

Each recipient gets a mail of its own, as plain text and as HTML that loads nothing. A mail that is
sent again has the same Message-ID, so that a mailbox can drop the duplicate. smtplib blocks, so
mails are sent in a thread.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import socket
import ssl
import tomllib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from email.errors import HeaderParseError, MessageDefect
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import getaddresses, localtime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from daemon.delivery.channels.base import DeliveryProgress
from daemon.delivery.markup import render_html, render_text, take_opening
from daemon.delivery.message import compose
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt
from daemon.system.http_client import trusted_context
from daemon.telemetry.redaction import is_ordinary

if TYPE_CHECKING:
    from daemon.telemetry.redaction import Secrets

_PORTS = {"starttls": 587, "ssl": 465, "insecure": 25}
_SERVERS = Path(__file__).with_name("mail_servers.toml")
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,76}")
# Headers that this module or the email package writes.
_RESERVED_HEADERS = frozenset(
    [
        "auto-submitted",
        "bcc",
        "cc",
        "content-disposition",
        "content-transfer-encoding",
        "content-type",
        "date",
        "from",
        "message-id",
        "mime-version",
        "reply-to",
        "sender",
        "subject",
        "to",
    ]
)
_TIMEOUT = 15.0  # seconds for each answer of the server, unless the URL has `cto`
_MAX_SUBJECT = 250  # characters
_MAX_BODY = 30_000  # characters of Markdown: a longer report is attached,
_OPENING = 2_000  # and the mail itself has this many of its characters


@dataclass(frozen=True, kw_only=True, slots=True)
class MailAddress:
    """The parsed URL of a mail target."""

    server: str
    port: int
    mode: str
    """starttls, ssl or insecure."""
    user: str
    password: str
    sender: Address
    recipients: tuple[Address, ...]
    cc: tuple[Address, ...]
    bcc: tuple[Address, ...]
    reply_to: tuple[Address, ...]
    headers: tuple[tuple[str, str], ...]
    """Further headers, `+NAME=value` in the URL."""
    is_plain: bool
    """Whether mails have no HTML: `format=text`."""
    verifies: bool
    """Whether the server's certificate is verified: not with `verify=no`."""
    timeout: float


def is_mail(url: str) -> bool:
    """Return whether this module serves a URL. URLs that ask for encryption are left to apprise."""
    scheme, separator, remainder = url.strip().partition("://")
    query = _query(remainder.partition("?")[2])
    return (
        bool(separator)
        and scheme.lower() in ("mailto", "mailtos")
        and not {"pgp", "wkd"} & query.keys()
    )


def parse_mail_address(url: str) -> MailAddress:
    """Parse the URL of a mail target.

    Raises DeliveryFailed; its text names what is wrong but leaves out the URL, which is a secret.
    """
    scheme, _, remainder = url.strip().partition("://")
    if scheme.lower() not in ("mailto", "mailtos"):
        raise _address_error("it begins neither with mailto:// nor with mailtos://")
    remainder, _, arguments = remainder.partition("?")
    query = _query(arguments)
    authority, _, path = remainder.partition("/")
    account, _, host = authority.rpartition("@")
    user, _, password = account.partition(":")
    user, password = query.get("user", unquote(user)), query.get("pass", unquote(password))
    if not (user + password).isascii():
        raise _address_error("users and passwords of SMTP consist only of ASCII characters")
    host, port = _host_and_port(host)
    targets = [unquote(segment) for segment in path.split("/") if segment]
    if "@" in host:  # a recipient in place of the host
        targets, host = [host, *targets], ""
    targets.append(query.get("to", ""))

    local_part, _, user_domain = user.partition("@")
    server, mode = query.get("smtp", ""), query.get("mode", "").lower()
    domain = host or user_domain
    if not server and (known_server := _known_server(host)):
        server, port, mode = (
            str(known_server["host"]),
            port or int(known_server["port"]),
            mode or str(known_server["mode"]),
        )
        if user and known_server["login"] == "name":
            user = local_part
        elif user and known_server["login"] == "address" and not user_domain:
            user = f"{user}@{host}"
        domain = user_domain or host
    mode = mode or ("starttls" if scheme.lower() == "mailtos" else "insecure")
    if mode not in _PORTS:
        raise _address_error(f"mode={mode} is none of {', '.join(_PORTS)}")
    if not (server or domain):
        raise _address_error("it names no server: mailtos://USER:PASSWORD@HOST?to=ADDRESS")

    sender = query.get("from", "")
    name = query.get("name", "" if "@" in sender else sender or "agentd")
    if "@" not in sender:
        local_part = local_part or ("root" if domain.startswith("localhost") else "")
        if not local_part:
            raise _address_error("it lacks a sender: from=ADDRESS, or a user")
        sender = f"{local_part}@{domain}"
    senders = _addresses(sender, "from")
    if not senders:
        raise _address_error("from= has no mail address")
    sender_address = Address(name or senders[0].display_name, addr_spec=senders[0].addr_spec)
    recipients = tuple(address for target in targets for address in _addresses(target, "to"))
    try:
        timeout = float(query.get("cto", _TIMEOUT))
    except ValueError:
        raise _address_error("cto= is no number of seconds") from None
    return MailAddress(
        server=server or domain,
        port=port or _PORTS[mode],
        mode=mode,
        user=user,
        password=password,
        sender=sender_address,
        recipients=recipients or (sender_address,),
        cc=_addresses(query.get("cc", ""), "cc"),
        bcc=_addresses(query.get("bcc", ""), "bcc"),
        reply_to=_addresses(query.get("reply", ""), "reply"),
        headers=tuple(_extra_headers(query)),
        is_plain=query.get("format", "").lower().startswith("t"),
        verifies=query.get("verify", "yes").lower()
        not in ("no", "false", "0", "off", "n", "deny", "disable"),
        timeout=timeout if 0 < timeout <= 60 else _TIMEOUT,
    )


def _extra_headers(query: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each further header.

    Raises DeliveryFailed for a name that is not allowed (RFC 5322, 2.2) or that this module sets.
    """
    for key, value in query.items():
        if key.startswith("+"):
            if not _HEADER_NAME.fullmatch(key[1:]) or key[1:].lower() in _RESERVED_HEADERS:
                raise _address_error(f"{key} names no header that may be added")
            yield key[1:], value


class _Sockets:
    """The sockets of one connection, which another thread may shut down at any moment."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._is_shut_down = False

    def add(self, new_socket: socket.socket) -> None:
        """Add a socket, and shut it down at once if the others are shut down already."""
        self._sockets.append(new_socket)
        if self._is_shut_down:
            self.shut_down()

    def close(self) -> None:
        """Close the sockets that are still open, as after a connection that failed to start."""
        for open_socket in self._sockets:
            open_socket.close()

    def shut_down(self) -> None:
        """Make every blocking call on these sockets return, in whatever thread it waits."""
        self._is_shut_down = True
        for open_socket in tuple(self._sockets):
            with suppress(OSError):
                # Not SSLSocket.shutdown: it drops the TLS state first, while the other thread may
                # be writing.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)


class _Connection(smtplib.SMTP):
    """An SMTP connection that registers its socket in `sockets` before the server's greeting.

    smtplib reads the greeting in its constructor. A server that sends it one byte at a time would
    hold the thread for hours, as the timeout applies to each read; shutting down the socket ends
    that. `_get_socket` is private to smtplib; tests/delivery/channels/test_mail.py checks that it
    still exists.
    """

    def __init__(self, sockets: _Sockets, host: str, port: int, timeout: float) -> None:
        self._sockets = sockets
        super().__init__(host, port, timeout=timeout)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain_socket: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._sockets.add(plain_socket)
        return plain_socket


class _TlsConnection(smtplib.SMTP_SSL, _Connection):
    """A _Connection with TLS from the start."""

    def __init__(
        self, sockets: _Sockets, host: str, port: int, timeout: float, context: ssl.SSLContext
    ) -> None:
        self._sockets = sockets
        smtplib.SMTP_SSL.__init__(self, host, port, timeout=timeout, context=context)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain_socket = _Connection._get_socket(self, host, port, timeout)
        tls_socket = self.context.wrap_socket(
            plain_socket, server_hostname=host, do_handshake_on_connect=False
        )
        self._sockets.add(tls_socket)
        tls_socket.do_handshake()  # only now, as a handshake may block as well
        return tls_socket


class MailChannel:
    """Sends reports to the recipients of a mail URL."""

    def __init__(self, url: str, *, secrets: Secrets) -> None:
        self._url, self._secrets = url, secrets
        self._progress = DeliveryProgress()
        self._refusals: dict[int, smtplib.SMTPResponseException] = {}
        """By id of the delivery: the server's answer for the first recipient it refused for
        good.
        """

    async def send(self, delivery: Delivery) -> Receipt:
        """Send the report; the receipt has the number of recipients.

        Raises DeliveryFailed if the server refuses a recipient; the other recipients get their mail
        nevertheless.
        """
        address = parse_mail_address(self._url)
        if not is_ordinary(address.password):
            self._secrets.add_word(address.password)
        sockets = _Sockets()
        try:
            count = await asyncio.to_thread(self._send_all, address, delivery, sockets)
        except asyncio.CancelledError:
            sockets.shut_down()
            raise
        return Receipt(detail="E-Mail took it" + (f" for {count} recipients" if count > 1 else ""))

    def _send_all(self, address: MailAddress, delivery: Delivery, sockets: _Sockets) -> int:
        """Send the mails that have not been sent yet, one to each recipient; return the number of
        all mails. Runs in a thread.
        """
        server, port, timeout = address.server, address.port, address.timeout
        temporary: smtplib.SMTPResponseException | None = None
        try:
            mails = list(_mails(address, delivery))
            context = trusted_context() if address.verifies else _trusting_context()
            if address.mode == "ssl":
                connection: smtplib.SMTP = _TlsConnection(sockets, server, port, timeout, context)
            else:
                connection = _Connection(sockets, server, port, timeout)
            with closing(connection):
                if address.mode == "starttls":
                    connection.starttls(context=context)
                    if connection.sock:
                        sockets.add(connection.sock)
                if address.user and address.password:
                    connection.login(address.user, address.password)
                for number, (recipient, mail) in self._progress.unsent(delivery, mails):
                    try:
                        connection.send_message(mail, address.sender.addr_spec, [recipient])
                    except smtplib.SMTPRecipientsRefused as error:
                        answer = smtplib.SMTPResponseException(
                            *next(iter(error.recipients.values()))
                        )
                        if 400 <= answer.smtp_code < 500:
                            temporary = answer
                            continue
                        self._refusals.setdefault(delivery.id, answer)
                    self._progress.mark_sent(delivery, number)
                # The mails have arrived, whatever the server answers to QUIT.
                with suppress(OSError, smtplib.SMTPException):
                    connection.quit()
        except (OSError, smtplib.SMTPException) as error:
            failure = self._failure(error, address)
            if not failure.retry:
                self._forget(delivery)
            raise failure from error
        except ValueError as error:  # an impossible host name or header
            self._forget(delivery)
            raise _address_error(str(error)) from None
        finally:
            sockets.close()
        if temporary:
            raise self._failure(temporary, address)
        if refusal := self._forget(delivery):
            raise self._failure(refusal, address)
        return len(mails)

    def _forget(self, delivery: Delivery) -> smtplib.SMTPResponseException | None:
        """Drop the progress of a delivery that ends here, and return the refusal it met, if any."""
        self._progress.forget(delivery)
        return self._refusals.pop(delivery.id, None)

    def _failure(self, error: Exception, address: MailAddress) -> DeliveryFailed:
        """Return a server's error as a DeliveryFailed; only a permanent one (5xx) is not retried.

        A refused login (535) is retried, as somebody may correct the password within the day.
        """
        retry = True
        reason = str(error) or type(error).__name__
        if isinstance(error, smtplib.SMTPResponseException):
            answer: bytes | str = error.smtp_error
            text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
            reason = f"it answered {error.smtp_code} {' '.join(text.split())[:300]}"
            retry = not 500 <= error.smtp_code < 600 or isinstance(
                error, smtplib.SMTPAuthenticationError
            )
        elif isinstance(error, smtplib.SMTPNotSupportedError) and address.mode == "starttls":
            reason += (
                " mode=ssl in the address of the target uses TLS from the start, mode=insecure "
                "none."
            )
        return DeliveryFailed(
            self._secrets.redact(f"{address.server}:{address.port}: {reason}"), retry=retry
        )


def _trusting_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate, for `verify=no`."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _mails(address: MailAddress, delivery: Delivery) -> Iterator[tuple[str, EmailMessage]]:
    """Yield (recipient, mail) for each recipient; addresses in cc and bcc get the mail of the
    first.
    """
    message = compose(delivery)
    source = f"*{message.about}*\n\n{message.body}" if message.about else message.body
    source = source.encode(errors="replace").decode()
    is_whole = len(source) <= _MAX_BODY
    if not is_whole:
        source = f"{take_opening(source, _OPENING)}\n\n*(The whole report is attached.)*"
    text_part, html_part = render_text(source), "" if address.is_plain else render_html(source)
    subject = " ".join(message.title.encode(errors="replace").decode().split())
    if len(subject) > _MAX_SUBJECT:
        subject = f"{subject[: _MAX_SUBJECT - 1]}…"

    for number, recipient in enumerate(address.recipients):
        mail = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
        mail["Subject"], mail["From"], mail["To"] = subject, address.sender, recipient
        mail["Date"] = localtime()
        mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office reply, please
        mail["Message-ID"] = (
            f"<{delivery.run or 'notice'}.{delivery.id}.{number}@{address.sender.domain}>"
        )
        for header, addresses in (("Cc", address.cc), ("Reply-To", address.reply_to)):
            if addresses:
                mail[header] = addresses
        for header, value in address.headers:
            mail[header] = " ".join(value.split())
        mail.set_content(text_part)
        if html_part:
            mail.add_alternative(html_part, subtype="html")
        if not is_whole:
            name = f"{delivery.routine or 'report'}.md"
            report_text = message.markdown.encode(errors="replace").decode()
            mail.add_attachment(report_text, subtype="markdown", filename=name)
        yield recipient.addr_spec, mail
        if number == 0:
            copies = {copy.addr_spec for copy in (*address.cc, *address.bcc)}
            for copy in sorted(copies - {other.addr_spec for other in address.recipients}):
                yield copy, mail


def _query(text: str) -> dict[str, str]:
    """Return the query arguments of a URL; a + stays a + (not a space), as in ada+reports@…"""
    arguments: dict[str, str] = {}
    for pair in text.split("&"):
        key, _, value = pair.partition("=")
        if value:
            key = unquote(key)
            arguments[key if key.startswith("+") else key.lower()] = unquote(value).strip()
    return arguments


def _host_and_port(text: str) -> tuple[str, int]:
    """Return (host in lower case, port); the port is 0 if there is none."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return unquote(text).strip("[]").lower(), 0
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise _address_error(
            "its port is no number of 1 to 65535; write a / or : in a password as %2F or %3A"
        )
    return unquote(host).strip("[]").lower(), int(port)


def _known_server(domain: str) -> dict[str, str | int] | None:
    """Return the server of a well-known mail provider, by its domain."""
    servers = tomllib.loads(_SERVERS.read_text("utf-8"))["server"]
    return next((server for server in servers if domain in server["domains"]), None)


def _addresses(text: str, key: str) -> tuple[Address, ...]:
    """Return the mail addresses in a list separated by commas, semicolons or spaces."""
    if "<" not in text:
        text = ",".join(text.split())
    try:
        return tuple(
            Address(name, addr_spec=spec)
            for name, spec in getaddresses([text.replace(";", ",")])
            if name or spec
        )
    except (HeaderParseError, MessageDefect, ValueError, IndexError):
        raise _address_error(f"{key}= has what is no mail address") from None


def _address_error(problem: str) -> DeliveryFailed:
    return DeliveryFailed(f"the address of a mailbox cannot be used: {problem}", retry=False)
