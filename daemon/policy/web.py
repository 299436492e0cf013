"""Parse URLs strictly, and match them against the hosts of a rule: `api.example.org`,
`*.example.org` or `*`.

The URL that is requested is the one that was judged: the tool composes it anew from the parts
parsed here. The addresses that a host name resolves to are checked when the request is made
(tools/builtin/http_request).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args
from urllib.parse import quote

from daemon.policy.lexer import CallRejected

Method: TypeAlias = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
METHODS = frozenset(get_args(Method))
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@%\\]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What an URL parser takes for a number, and with it for an address: 127.1, 0x7f.1, 2130706433
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_URL_LENGTH = 8000


@dataclass(frozen=True, slots=True)
class Target:
    """One request, as far as rules can tell requests apart."""

    method: str
    scheme: str
    host: str
    """In lower case and ASCII; an address as `ipaddress` writes it, without brackets."""
    port: int
    path: str
    """With the query; never empty."""
    is_plain: bool = True
    """Nothing goes along but the address: neither headers nor a body that the caller chose."""

    @property
    def origin(self) -> str:
        """Scheme and host, with the port unless it is that of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (
            "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        )

    @property
    def url(self) -> str:
        """The whole address, as it is requested."""
        return self.origin + self.path

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


def parse_target(url: str, method: str = "GET", *, is_plain: bool = True) -> Target:
    """Read a URL; raise CallRejected for whatever another reader could take for something else."""
    if method not in METHODS:
        raise CallRejected(
            f"{method!r:.40} is no method", f"use one of {', '.join(sorted(METHODS))}"
        )
    if len(url) > _MAX_URL_LENGTH or not url.isprintable() or " " in url or "\\" in url:
        raise CallRejected(
            (
                f"the URL is longer than {_MAX_URL_LENGTH} characters, or holds blanks, "
                "backslashes or control characters"
            ),
            "write it percent-encoded",
        )
    match = _URL.fullmatch(url)
    if match is None or (scheme := match["scheme"].lower()) not in _PORTS:
        raise CallRejected(
            "the URL begins with neither http:// nor https://",
            "write it whole, like https://example.org/",
        )
    if "@" in match["authority"]:
        raise CallRejected(
            "a URL with a user name or password in it is not asked for",
            "leave out what stands before the @",
        )
    authority = _AUTHORITY.fullmatch(match["authority"])
    if authority is None:
        raise CallRejected(f"{match['authority']!r:.80} names no host", "write a plain host name")
    port = int(authority["port"] or _PORTS[scheme])
    if not 0 < port < 65536:
        raise CallRejected(f"there is no port {port}")
    path = quote((match["path"] or "/") + (match["query"] or ""), safe="/?:@!$&'()*+,;=-._~%[]|^")
    return Target(method, scheme, host_name(authority["host"]), port, path, is_plain)


def host_name(text: str) -> str:
    """Return a host in the one form that is compared; raise CallRejected for what is none, or an
    address in disguise.
    """
    host = text.removeprefix("[").removesuffix("]").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host.isascii():
        host = _to_ascii(host)
    host = host.removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))  # what was written in other digits
        except ValueError:
            raise CallRejected(
                f"{text!r:.80} is an address written oddly", "write it as four plain numbers"
            ) from None
    if len(host) > 253 or text.startswith("[") or not all(map(_LABEL.fullmatch, labels)):
        raise CallRejected(f"{text!r:.80} is no host name", "write a plain host name")
    return host


def _to_ascii(host: str) -> str:
    import idna  # few hosts need it, and its tables are large

    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError:
        raise CallRejected(
            f"{host!r:.80} is no host name", "write it as it stands in the address bar"
        ) from None


@dataclass(frozen=True, slots=True)
class HostPattern:
    """Which hosts one word of a rule stands for."""

    pattern: str
    name: str
    """Exact, or what follows the `*.`; empty for every host."""
    subdomains: bool
    port: int | None
    """None: 80 and 443, or every port."""
    any_port: bool = False
    """Whether every port is meant where none is named, as in a rule that denies."""

    @classmethod
    def of(cls, pattern: str, *, any_port: bool = False) -> HostPattern:
        """Read a word such as `api.example.org`, `*.example.org`, `[::1]:8080` or `*`; raise
        CallRejected for others.
        """
        match = re.fullmatch(r"(\*(?=$|:)|\*\.)?(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?", pattern)
        if match is None or "/" in pattern or (match[1] == "*") == bool(match[2]):
            raise CallRejected(
                f"{pattern!r:.80} is no host",
                'write "api.example.org", "*.example.org" or "host:8080"',
            )
        name = host_name(match[2]) if match[2] else ""
        return cls(
            pattern,
            name,
            subdomains=bool(match[1]),
            port=int(match[3]) if match[3] else None,
            any_port=any_port and not match[3],
        )

    def matches(self, target: Target) -> bool:
        """Tell whether it stands for the host and port of a request."""
        if self.port is None and not self.any_port and target.port not in _PORTS.values():
            return False
        if self.port is not None and target.port != self.port:
            return False
        if self.subdomains:
            return not self.name or target.host.endswith(f".{self.name}")
        return target.host == self.name

    def is_within(self, other_pattern: HostPattern) -> bool:
        """Tell whether another one stands for every host that this one stands for."""
        if other_pattern.port is not None and other_pattern.port != self.port:
            return False
        is_wider = self.any_port or self.port not in (None, *_PORTS.values())
        if other_pattern.port is None and not other_pattern.any_port and is_wider:
            return False
        if other_pattern.subdomains:
            return (
                not other_pattern.name
                or self.name.endswith(f".{other_pattern.name}")
                or (self.subdomains and self.name == other_pattern.name)
            )
        return not self.subdomains and self.name == other_pattern.name
