"""Parse the URL of a mail target: of a mail server, or of the program `sendmail` of this machine.

    mailtos://USER:PASSWORD@HOST:PORT/MORE@RECIPIENTS?to=ADDRESSES&from=ADDRESS&smtp=SERVER&mode=starttls|ssl|insecure
    sendmail://?to=ADDRESSES&from=ADDRESS&program=/usr/sbin/sendmail

`mailto://` and `mailtos://` are read as apprise reads them.
"""

from __future__ import annotations

import os
import pwd
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from email.errors import HeaderParseError, MessageDefect
from email.headerregistry import Address
from email.utils import getaddresses
from pathlib import Path
from urllib.parse import unquote

from daemon.errors import DeliveryFailed

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
# Seconds for each answer of the server and for the program, unless the URL has `cto`.
_TIMEOUT, _PROGRAM_TIMEOUT = 15.0, 60.0
_MAX_TIMEOUT = 60.0  # seconds
# By these apprise encrypts mails.
_ENCRYPTION_KEYS = frozenset(["pgp", "wkd"])
_SENDMAIL = "/usr/sbin/sendmail"
# Commas and semicolons with nothing between them.
_SEPARATORS = re.compile(r"[,;](?:\s*[,;])*")
# A user of this machine, or an alias, as sendmail takes it in place of an address.
_LOCAL_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class MailSettings:
    """What the URL of a target says of each mail."""

    sender: Address
    recipients: tuple[Address, ...]
    cc: tuple[Address, ...]
    bcc: tuple[Address, ...]
    reply_to: tuple[Address, ...]
    headers: tuple[tuple[str, str], ...]
    """Further headers, `+NAME=value` in the URL."""
    is_plain: bool
    """Whether mails have no HTML: `format=text`."""
    timeout: float
    """How many seconds each answer of a server may take, or the program that sends a mail."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SmtpUrl(MailSettings):
    """The parsed URL of a mail server and the recipients of its mails."""

    server: str
    port: int
    mode: str
    """starttls, ssl or insecure."""
    user: str
    password: str
    verifies: bool
    """Whether the server's certificate is verified: not with `verify=no`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendmailUrl(MailSettings):
    """The parsed URL of the program `sendmail` and the recipients of its mails."""

    program: str
    """An absolute path."""


def is_mail(url: str) -> bool:
    """Return whether this module serves a URL. URLs that ask for encryption are left to apprise."""
    scheme, separator, remainder = url.strip().partition("://")
    query = _parse_query(remainder.partition("?")[2])
    return (
        bool(separator)
        and scheme.lower() in ("mailto", "mailtos", "sendmail")
        and not _ENCRYPTION_KEYS & query.keys()
    )


def is_sendmail(url: str) -> bool:
    """Return whether mails to a URL are sent by the program `sendmail`."""
    return url.strip().lower().startswith("sendmail://")


def parse_sendmail_url(url: str) -> SendmailUrl:
    """Parse a `sendmail://` URL. Raises DeliveryFailed."""
    scheme, _, remainder = url.strip().partition("://")
    if scheme.lower() != "sendmail":
        raise make_url_error("it does not begin with sendmail://")
    remainder, _, arguments = remainder.partition("?")
    if remainder.strip("/"):
        raise make_url_error("sendmail:// has no host and no path: sendmail://?to=ADDRESS")
    query = _parse_query(arguments)
    _refuse_encryption(query)
    program = query.get("program", _SENDMAIL)
    if not program.startswith("/") or "\0" in program:
        raise make_url_error("program= is no absolute path")
    recipients = _parse_addresses(query.get("to", ""), "to", with_local_users=True)
    if not recipients:
        raise make_url_error("it lacks a recipient: sendmail://?to=ADDRESS")
    return SendmailUrl(
        program=program,
        # without a domain the program adds the one of this machine
        sender=_read_sender(query, default=_login_name()),
        recipients=recipients,
        cc=_parse_addresses(query.get("cc", ""), "cc", with_local_users=True),
        bcc=_parse_addresses(query.get("bcc", ""), "bcc", with_local_users=True),
        reply_to=_parse_addresses(query.get("reply", ""), "reply", with_local_users=True),
        headers=tuple(_read_extra_headers(query)),
        is_plain=_is_plain(query),
        timeout=_read_timeout(query, _PROGRAM_TIMEOUT),
    )


def parse_smtp_url(url: str) -> SmtpUrl:
    """Parse a `mailto://` or `mailtos://` URL.

    Raises DeliveryFailed; its text names what is wrong but leaves out the URL, which is a secret.
    """
    scheme, _, remainder = url.strip().partition("://")
    if scheme.lower() not in ("mailto", "mailtos"):
        raise make_url_error("it begins neither with mailto:// nor with mailtos://")
    remainder, _, arguments = remainder.partition("?")
    query = _parse_query(arguments)
    _refuse_encryption(query)
    authority, _, path = remainder.partition("/")
    account, _, host = authority.rpartition("@")
    user, _, password = account.partition(":")
    user, password = query.get("user", unquote(user)), query.get("pass", unquote(password))
    if not (user + password).isascii():
        raise make_url_error("users and passwords of SMTP consist only of ASCII characters")
    host, port = _split_host_and_port(host)
    recipient_lists = [unquote(segment) for segment in path.split("/") if segment]
    if "@" in host:  # a recipient in place of the host
        recipient_lists, host = [host, *recipient_lists], ""
    recipient_lists.append(query.get("to", ""))

    local_part, _, user_domain = user.partition("@")
    server, mode = query.get("smtp", ""), query.get("mode", "").lower()
    domain = host or user_domain
    if not server and (known_server := _find_known_server(host)):
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
        raise make_url_error(f"mode={mode} is none of {', '.join(_PORTS)}")
    if not (server or domain):
        raise make_url_error("it names no server: mailtos://USER:PASSWORD@HOST?to=ADDRESS")

    local_part = local_part or ("root" if domain.startswith("localhost") else "")
    if not local_part and "@" not in query.get("from", ""):
        raise make_url_error("it lacks a sender: from=ADDRESS, or a user")
    sender = _read_sender(query, default=f"{local_part}@{domain}")
    recipients = tuple(
        address for text in recipient_lists for address in _parse_addresses(text, "to")
    )
    return SmtpUrl(
        server=server or domain,
        port=port or _PORTS[mode],
        mode=mode,
        user=user,
        password=password,
        sender=sender,
        recipients=recipients or (sender,),
        cc=_parse_addresses(query.get("cc", ""), "cc"),
        bcc=_parse_addresses(query.get("bcc", ""), "bcc"),
        reply_to=_parse_addresses(query.get("reply", ""), "reply"),
        headers=tuple(_read_extra_headers(query)),
        is_plain=_is_plain(query),
        verifies=query.get("verify", "yes").lower()
        not in ("no", "false", "0", "off", "n", "deny", "disable"),
        timeout=_read_timeout(query, _TIMEOUT),
    )


def _refuse_encryption(query: dict[str, str]) -> None:
    """Raise DeliveryFailed for a URL that asks for encrypted mails, which only apprise makes."""
    for key in sorted(_ENCRYPTION_KEYS & query.keys()):
        raise make_url_error(f'{key}= takes kind = "apprise": mails of kind mail are not encrypted')


def _read_sender(query: dict[str, str], *, default: str) -> Address:
    """Return the sender: `from=` with an address, or else `default`, which may be a user of this
    machine; `from=` without an address is its name. Raises DeliveryFailed.
    """
    sender = query.get("from", "")
    name = query.get("name", "" if "@" in sender else sender or "agentd")
    if "@" not in sender:
        sender = default
    senders = _parse_addresses(sender, "from", with_local_users="@" not in sender)
    if not senders:
        raise make_url_error("from= has no mail address")
    try:
        return Address(name or senders[0].display_name, senders[0].username, senders[0].domain)
    except ValueError:
        raise make_url_error("name= has what no name has") from None


def _is_plain(query: dict[str, str]) -> bool:
    return query.get("format", "").lower().startswith("t")


def _read_timeout(query: dict[str, str], default: float) -> float:
    """Return `cto` in seconds, or `default` if that is missing or out of range."""
    try:
        timeout = float(query.get("cto", default))
    except ValueError:
        raise make_url_error("cto= is no number of seconds") from None
    return timeout if 0 < timeout <= _MAX_TIMEOUT else default


def _login_name() -> str:
    """Return the name of the user that agentd runs as."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container whose user is a number only
        return "agentd"


def _read_extra_headers(query: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each further header.

    Raises DeliveryFailed for a name that is not allowed (RFC 5322, 2.2) or that this module sets.
    """
    for key, value in query.items():
        if key.startswith("+"):
            if not _HEADER_NAME.fullmatch(key[1:]) or key[1:].lower() in _RESERVED_HEADERS:
                raise make_url_error(f"{key} names no header that may be added")
            yield key[1:], value


def _parse_query(text: str) -> dict[str, str]:
    """Return the query arguments of a URL; a + stays a + (not a space), as in ada+reports@…"""
    arguments: dict[str, str] = {}
    for pair in text.split("&"):
        key, _, value = pair.partition("=")
        if value:
            key = unquote(key)
            arguments[key if key.startswith("+") else key.lower()] = unquote(value).strip()
    return arguments


def _split_host_and_port(text: str) -> tuple[str, int]:
    """Return (host in lower case, port); the port is 0 if there is none."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return unquote(text).strip("[]").lower(), 0
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise make_url_error(
            "its port is no number of 1 to 65535; write a / or : in a password as %2F or %3A"
        )
    return unquote(host).strip("[]").lower(), int(port)


def _find_known_server(domain: str) -> dict[str, str | int] | None:
    """Return the server of a well-known mail provider, by its domain."""
    servers = tomllib.loads(_SERVERS.read_text("utf-8"))["server"]
    return next((server for server in servers if domain in server["domains"]), None)


def _parse_addresses(text: str, key: str, *, with_local_users: bool = False) -> tuple[Address, ...]:
    """Return the mail addresses in a list separated by commas, semicolons or spaces; with
    `with_local_users` also users of this machine. Raises DeliveryFailed.
    """
    if "<" not in text:
        text = ",".join(text.split())
    # Of a list that it cannot parse, getaddresses returns a pair of empty texts, and since Python
    # 3.13 nothing else: nobody may be left out for that. So it is given no empty entries.
    text = _SEPARATORS.sub(",", text).strip(", ")
    addresses = []
    try:
        for name, spec in getaddresses([text] if text else []):
            if with_local_users and _LOCAL_USER.fullmatch(spec):
                addresses.append(Address(name, username=spec))
            elif name or spec:
                addresses.append(Address(name, addr_spec=spec))
            else:
                raise ValueError
    except (HeaderParseError, MessageDefect, ValueError, IndexError):
        raise make_url_error(f"{key}= has what is no mail address") from None
    return tuple(addresses)


def make_url_error(problem: str) -> DeliveryFailed:
    return DeliveryFailed(f"the address of a mailbox cannot be used: {problem}", retry=False)
