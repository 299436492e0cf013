"""Access to the page: only for the browser that opened the printed link, and only from the page
itself.

A loopback port is open to every user and every web page of this machine. So the link carries a
token in its fragment, which browsers send to nobody; the page posts it once and gets a cookie for
it. Host and Origin are checked, as a stranger's host name may point at 127.0.0.1 (DNS rebinding),
and any page may make a browser send a form here. Browsers send a cookie to every port of its host
(RFC 6265 section 8.5), so also to a server of another user: that user's own connections are
refused.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

# 127.0.0.1 as /proc/net/tcp writes it, in the byte order of the machine, and what stands before it
# in /proc/net/tcp6
LOOPBACK = f"{int.from_bytes(bytes([127, 0, 0, 1]), sys.byteorder):08X}"
IPV4_IN_IPV6_PREFIX = f"{'0' * 16}{int.from_bytes(bytes([0, 0, 255, 255]), sys.byteorder):08X}"
# The columns of these tables.
_ENDS, _STATE, _UID, _INODE = slice(1, 3), 3, 7, 9
_ESTABLISHED = "01"
NOBODY = -1  # no user has this uid
# Scripts and styles come from this server only, no other page may frame this one, and forms are
# sent to this server only.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # with none at all, browsers send the forms of the page as from `null`
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageAccess:
    """The token of the link, good for one use, and the cookie that was given for it."""

    def __init__(self, port: int) -> None:
        self.hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.token: str | None = None
        self._cookies: set[str] = set()
        self._port = port
        # browsers keep one cookie of a name for all ports: each page has a name of its own
        self._cookie_name = f"agentd-{port}"
        self._uids = {0, os.geteuid()}
        """Who may connect: root, this user, and who has become this user by sudo."""
        if os.environ.get("SUDO_UID", "").isdecimal():
            self._uids.add(int(os.environ["SUDO_UID"]))

    def make_token(self) -> str:
        """Return the token of a new link. The one before is good no more; who is in stays in."""
        self.token = secrets.token_urlsafe(32)
        return self.token

    def exchange_token(self, token: str) -> str | None:
        """Return a `Set-Cookie` for the token of the link; None if it is wrong or was used."""
        if self.token is None or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self.token = None
        cookie = secrets.token_urlsafe(32)
        self._cookies.add(cookie)
        return f"{self._cookie_name}={cookie}; Path=/; HttpOnly; SameSite=Strict"

    def explain_refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Return why a request is refused; None if this page sent it, or its URL was typed."""
        if headers.get("Host", "") not in self.hosts:
            return "this page is served as 127.0.0.1 and as localhost only"
        origin = headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            return "a page from elsewhere may ask nothing here"
        if method != "GET" and origin is None:
            return "what changes something has to come from a page of ours"
        if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return "a page from elsewhere may ask nothing here"
        return None

    def is_other_user(self, client_port: int) -> bool:
        """Return whether another user of this machine has connected from a port of 127.0.0.1, or
        one who has closed the connection since, so that nobody can tell who it was.
        """
        uid = uid_of_connection(client_port, self._port)
        return uid is not None and uid not in self._uids

    def has_cookie(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has a cookie that this server gave out.

        The others come from other servers of this machine, with any text as their value; from
        http.cookies, one that it cannot read would hide all behind it.
        """
        pairs = (pair.strip().partition("=") for pair in headers.get("Cookie", "").split(";"))
        values = [value for name, _, value in pairs if name == self._cookie_name]
        return any(
            hmac.compare_digest(value.encode(), cookie.encode())
            for value in values
            for cookie in self._cookies
        )


def uid_of_connection(client_port: int, server_port: int) -> int | None:
    """Return the uid of the process that has connected from one port of 127.0.0.1 to another one;
    NOBODY if no process holds that end any more; None where the kernel does not say, as outside of
    Linux.

    Source: proc(5), /proc/net/tcp.
    """
    if row := _find_row(client_port, server_port):
        # The kernel shows the end that its process has closed as root's, without an inode.
        return int(row[_UID]) if row[_INODE] != "0" else NOBODY
    # The kernel ends both sides of a connection that is reset. Where our side lives on, the other
    # one is not of this system: WSL lets browsers of Windows connect like that.
    own_row = _find_row(server_port, client_port)
    is_alive = own_row is not None and own_row[_STATE] == _ESTABLISHED
    return None if is_alive or not _read_rows() else NOBODY


def _find_row(local_port: int, remote_port: int) -> list[str] | None:
    """Return the row of one end of a connection between two ports of 127.0.0.1."""
    possible_ends = [
        [f"{address}:{local_port:04X}", f"{address}:{remote_port:04X}"]
        for address in (LOOPBACK, f"{IPV4_IN_IPV6_PREFIX}{LOOPBACK}")
    ]
    return next((row for row in _read_rows() if row[_ENDS] in possible_ends), None)


def _read_rows() -> list[list[str]]:
    """Return the kernel's rows of all ends of connections; none outside of Linux."""
    rows: list[list[str]] = []
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        rows += [line.split() for line in lines[1:]]
    return rows
