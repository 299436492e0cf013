"""To a mailbox, by SMTP: `mailto://` and `mailtos://` addresses, read as apprise reads them.

    mailtos://USER:PASSWORD@HOST:PORT/MORE@RECIPIENTS?to=ADDRESSES&from=ADDRESS&smtp=SERVER&mode=starttls|ssl|insecure

Each recipient gets a mail of its own, with HTML that loads nothing and with words. A mail that is
sent again has the same Message-ID, so that a mailbox can tell that it has it. smtplib blocks, so
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
from dataclasses import dataclass, field
from email.errors import HeaderParseError, MessageDefect
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import getaddresses, localtime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from daemon.delivery.markup import beginning, html, plain
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
_OUR_HEADERS = frozenset(
    {
        *(
            "subject",
            "from",
            "sender",
            "to",
            "cc",
            "bcc",
            "reply-to",
            "date",
            "message-id",
            "auto-submitted",
        ),
        *("mime-version", "content-type", "content-transfer-encoding", "content-disposition"),
    }
)
_TIMEOUT = 15.0  # seconds for each answer of the server; `cto` in the address says otherwise
_LONGEST_SUBJECT = 250
_LONGEST_BODY = 30_000  # characters of Markdown: a longer report comes as an attachment,
_BEGINNING = 2_000  # and so much of it stands in the mail


@dataclass(frozen=True, kw_only=True, slots=True)
class MailAddress:
    """What the address of a mail target says."""

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
    """More headers, `+NAME=value` in the address."""
    is_plain: bool
    """Whether mails have no HTML: `format=text`."""
    verifies: bool
    """Whether the certificate of the server must be sound: not with `verify=no`."""
    timeout: float


def is_mail(url: str) -> bool:
    """Return whether an address is one of ours; those that encrypt mails are left to apprise."""
    scheme, separator, rest = url.strip().partition("://")
    query = _query(rest.partition("?")[2])
    return (
        bool(separator)
        and scheme.lower() in ("mailto", "mailtos")
        and not {"pgp", "wkd"} & query.keys()
    )


def parse_mail_address(url: str) -> MailAddress:
    """Read the address of a mail target; DeliveryFailed names what is wrong, without the address,
    as it is a secret.
    """
    scheme, _, rest = url.strip().partition("://")
    if scheme.lower() not in ("mailto", "mailtos"):
        raise _fault("it begins neither with mailto:// nor with mailtos://")
    rest, _, arguments = rest.partition("?")
    query = _query(arguments)
    authority, _, path = rest.partition("/")
    account, _, host = authority.rpartition("@")
    user, _, password = account.partition(":")
    user, password = query.get("user", unquote(user)), query.get("pass", unquote(password))
    if not (user + password).isascii():
        raise _fault("users and passwords of SMTP consist only of ASCII characters")
    host, port = _host_and_port(host)
    targets = [unquote(part) for part in path.split("/") if part]
    if "@" in host:  # a recipient in place of the host
        targets, host = [host, *targets], ""
    targets.append(query.get("to", ""))

    local, _, user_domain = user.partition("@")
    server, mode = query.get("smtp", ""), query.get("mode", "").lower()
    domain = host or user_domain
    if not server and (usual := _usual_server(host)):
        server, port, mode = (
            str(usual["host"]),
            port or int(usual["port"]),
            mode or str(usual["mode"]),
        )
        if user and usual["login"] == "name":
            user = local
        elif user and usual["login"] == "address" and not user_domain:
            user = f"{user}@{host}"
        domain = user_domain or host
    mode = mode or ("starttls" if scheme.lower() == "mailtos" else "insecure")
    if mode not in _PORTS:
        raise _fault(f"mode={mode} is none of {', '.join(_PORTS)}")
    if not (server or domain):
        raise _fault("it names no server: mailtos://USER:PASSWORD@HOST?to=ADDRESS")

    sender = query.get("from", "")
    name = query.get("name", "" if "@" in sender else sender or "agentd")
    if "@" not in sender:
        local = local or ("root" if domain.startswith("localhost") else "")
        if not local:
            raise _fault("it lacks a sender: from=ADDRESS, or a user")
        sender = f"{local}@{domain}"
    senders = _addresses(sender, "from")
    if not senders:
        raise _fault("from= has no mail address")
    sender_address = Address(name or senders[0].display_name, addr_spec=senders[0].addr_spec)
    recipients = tuple(address for target in targets for address in _addresses(target, "to"))
    try:
        timeout = float(query.get("cto", _TIMEOUT))
    except ValueError:
        raise _fault("cto= is no number of seconds") from None
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
        headers=tuple(_own_headers(query)),
        is_plain=query.get("format", "").lower().startswith("t"),
        verifies=query.get("verify", "yes").lower()
        not in ("no", "false", "0", "off", "n", "deny", "disable"),
        timeout=timeout if 0 < timeout <= 60 else _TIMEOUT,
    )


def _own_headers(query: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of an address; DeliveryFailed for a name that is none (RFC 5322, 2.2) or is
    one of ours.
    """
    for key, value in query.items():
        if key.startswith("+"):
            if not _HEADER_NAME.fullmatch(key[1:]) or key[1:].lower() in _OUR_HEADERS:
                raise _fault(f"{key} names no header that may be added")
            yield key[1:], value


class _Sockets:
    """The sockets of a connection, which another thread may shut down at any moment."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._is_shut_down = False

    def add(self, one: socket.socket) -> None:
        """Take a socket; it is shut down at once where the others are."""
        self._sockets.append(one)
        if self._is_shut_down:
            self.shut_down()

    def close(self) -> None:
        """Close what a failed start of a connection has left open."""
        for each in self._sockets:
            each.close()

    def shut_down(self) -> None:
        """Wake the thread that waits for the server, wherever it does."""
        self._is_shut_down = True
        for each in tuple(self._sockets):
            with suppress(OSError):
                # not SSLSocket.shutdown: that forgets the encryption first, and the thread may be
                # writing
                socket.socket.shutdown(each, socket.SHUT_RDWR)


class _Connection(smtplib.SMTP):
    """A connection to a mail server whose socket is known before the server has said anything.

    smtplib reads the greeting in its constructor. A server that sends it a byte at a time would
    hold the thread for hours, past any time limit for a single read; whoever has the socket can end
    that. `_get_socket` is private: a test names it (tests/delivery/channels/test_mail.py).
    """

    def __init__(self, sockets: _Sockets, host: str, port: int, timeout: float) -> None:
        self._sockets = sockets
        super().__init__(host, port, timeout=timeout)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain_socket: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._sockets.add(plain_socket)
        return plain_socket


class _TlsConnection(smtplib.SMTP_SSL, _Connection):
    """The same with TLS from the start."""

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
        tls_socket.do_handshake()  # now that the socket is known, too
        return tls_socket


class MailChannel:
    """Sends reports to what a mail address names."""

    def __init__(self, url: str, *, secrets: Secrets) -> None:
        self._url, self._secrets = url, secrets
        self._progress: dict[int, _Progress] = {}
        """By delivery, so that a retry does not repeat what arrived. Kept by the process only."""

    async def send(self, delivery: Delivery) -> Receipt:
        """Send the report; the receipt says for how many recipients the server took it.

        Raises DeliveryFailed. A recipient that the server refuses does not keep the others from
        their mail.
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
        """Send what has not arrived yet, one mail to each recipient; return how many there are."""
        progress = self._progress.setdefault(delivery.id, _Progress())
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
                for number, (recipient, mail) in enumerate(mails):
                    if number in progress.done:
                        continue
                    try:
                        connection.send_message(mail, address.sender.addr_spec, [recipient])
                    except smtplib.SMTPRecipientsRefused as error:
                        answer = smtplib.SMTPResponseException(
                            *next(iter(error.recipients.values()))
                        )
                        if 400 <= answer.smtp_code < 500:
                            temporary = answer
                            continue
                        progress.refused = progress.refused or answer
                    progress.done.add(number)
                with suppress(
                    OSError, smtplib.SMTPException
                ):  # all has arrived, whatever it answers to that
                    connection.quit()
        except (OSError, smtplib.SMTPException) as error:
            failure = self._failure(error, address)
            if not failure.retry:
                del self._progress[delivery.id]
            raise failure from error
        except ValueError as error:  # a name of a server or a header that cannot be one
            del self._progress[delivery.id]
            raise _fault(str(error)) from None
        finally:
            sockets.close()
        if temporary:
            raise self._failure(temporary, address)
        del self._progress[delivery.id]
        if progress.refused:
            raise self._failure(progress.refused, address)
        return len(mails)

    def _failure(self, error: Exception, address: MailAddress) -> DeliveryFailed:
        """Return what a fault of the server means: a refusal for good is not tried again, anything
        else is.

        A wrong password is: within a day somebody may put it right.
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


@dataclass
class _Progress:
    """How far a delivery of several mails has come."""

    done: set[int] = field(default_factory=set)
    """Numbers of the mails that arrived, or whose recipient was refused for good."""
    refused: smtplib.SMTPResponseException | None = None
    """What the server said of the first recipient that it refused for good."""


def _trusting_context() -> ssl.SSLContext:
    """Return a context that takes any certificate, as `verify=no` asks."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _mails(address: MailAddress, delivery: Delivery) -> Iterator[tuple[str, EmailMessage]]:
    """Yield a recipient and its mail, for each; who gets a copy gets that of the first."""
    letter = compose(delivery)
    source = f"*{letter.about}*\n\n{letter.body}" if letter.about else letter.body
    source = source.encode(errors="replace").decode()
    is_whole = len(source) <= _LONGEST_BODY
    if not is_whole:
        source = f"{beginning(source, _BEGINNING)}\n\n*(The whole report is attached.)*"
    words, page = plain(source), "" if address.is_plain else html(source)
    subject = " ".join(letter.title.encode(errors="replace").decode().split())
    if len(subject) > _LONGEST_SUBJECT:
        subject = f"{subject[: _LONGEST_SUBJECT - 1]}…"

    for number, recipient in enumerate(address.recipients):
        mail = EmailMessage(policy=SMTP.clone(cte_type="7bit"))
        mail["Subject"], mail["From"], mail["To"] = subject, address.sender, recipient
        mail["Date"], mail["Auto-Submitted"] = (
            localtime(),
            "auto-generated",
        )  # no "I am on holiday" in answer
        mail["Message-ID"] = (
            f"<{delivery.run or 'notice'}.{delivery.id}.{number}@{address.sender.domain}>"
        )
        for header, others in (("Cc", address.cc), ("Reply-To", address.reply_to)):
            if others:
                mail[header] = others
        for header, value in address.headers:
            mail[header] = " ".join(value.split())
        mail.set_content(words)
        if page:
            mail.add_alternative(page, subtype="html")
        if not is_whole:
            name = f"{delivery.routine or 'report'}.md"
            whole = letter.markdown.encode(errors="replace").decode()
            mail.add_attachment(whole, subtype="markdown", filename=name)
        yield recipient.addr_spec, mail
        if number == 0:
            copies = {copy.addr_spec for copy in (*address.cc, *address.bcc)}
            for copy in sorted(copies - {each.addr_spec for each in address.recipients}):
                yield copy, mail


def _query(text: str) -> dict[str, str]:
    """Return the arguments of an address; a + is one, as in ada+reports@example.org."""
    arguments: dict[str, str] = {}
    for pair in text.split("&"):
        key, _, value = pair.partition("=")
        if value:
            key = unquote(key)
            arguments[key if key.startswith("+") else key.lower()] = unquote(value).strip()
    return arguments


def _host_and_port(text: str) -> tuple[str, int]:
    """Return a host, in lower case, and its port or 0."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return unquote(text).strip("[]").lower(), 0
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise _fault(
            "its port is no number of 1 to 65535; write a / or : in a password as %2F or %3A"
        )
    return unquote(host).strip("[]").lower(), int(port)


def _usual_server(domain: str) -> dict[str, str | int] | None:
    """Return the server of a well-known mail provider, by its domain."""
    servers = tomllib.loads(_SERVERS.read_text("utf-8"))["server"]
    return next((server for server in servers if domain in server["domains"]), None)


def _addresses(text: str, key: str) -> tuple[Address, ...]:
    """Return the mail addresses in a list of them."""
    if "<" not in text:
        text = ",".join(text.split())
    try:
        return tuple(
            Address(name, addr_spec=spec)
            for name, spec in getaddresses([text.replace(";", ",")])
            if name or spec
        )
    except (HeaderParseError, MessageDefect, ValueError, IndexError):
        raise _fault(f"{key}= has what is no mail address") from None


def _fault(problem: str) -> DeliveryFailed:
    return DeliveryFailed(f"the address of a mailbox cannot be used: {problem}", retry=False)
