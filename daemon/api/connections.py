"""The open connections of a listener: their limits, their peers, and which one is ended when there
are too many.
"""

from __future__ import annotations

import ipaddress
import resource
import socket
from dataclasses import dataclass
from typing import Protocol

import structlog

from daemon.api.listener import peer_credentials

log = structlog.get_logger()

# Ordinary clients need far fewer: whoever opens more only keeps them open. Each holds some 100 kB
# while its request is read, and glibc keeps what many of them held at once.
MAX_CONNECTIONS = 512
# Where few descriptors are allowed, enough for agentctl and a page or two.
MIN_CONNECTIONS = 8
# One IPv6 customer has at least a /64 of addresses, and may use a new one for each connection.
IPV6_NETWORK = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """The limits of one listener. Times are in seconds; an answer under way, such as a stream, has
    no limit.
    """

    connections: int
    """Open at once."""
    per_peer: int
    """Of these, from one peer."""
    head: float = 10.0
    """Until the head of a request is complete, from the connection's start or from its first byte
    on an idle one.
    """
    body: float = 30.0
    """From the head until the body is complete."""
    idle: float = 5.0
    """Between an answer and the next request, and for reading the rest of an answer before the
    connection ends.
    """


def limits_for(descriptors: int) -> ConnectionLimits:
    """Return the limits of one listener in a process that may have so many descriptors open.

    There are three listeners at most: together they take half, the other half is for runs, tools
    and the database.
    """
    connections = min(MAX_CONNECTIONS, max(MIN_CONNECTIONS, descriptors // 6))
    return ConnectionLimits(connections=connections, per_peer=connections * 3 // 4)


def limits_of_this_process() -> ConnectionLimits:
    """Return the limits of one listener under the soft descriptor limit that holds now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits_for(MAX_CONNECTIONS * 6 if soft == resource.RLIM_INFINITY else soft)


def peer_of(connection: socket.socket) -> tuple[str, int]:
    """Return the peer of a connection, `uid:1000` or an IP address, and its pid or port.

    For IPv6 the peer is the /64 network. Raises OSError if the other end is closed already.
    """
    if connection.family == socket.AF_UNIX:
        uid, pid = peer_credentials(connection)
        return f"uid:{uid}", pid or 0
    host, port, *_ = connection.getpeername()
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped), port
        return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False)), port
    return str(address), port


class ClientConnection(Protocol):
    """A connection as far as its listener needs to know it."""

    peer: str

    def evict(self) -> None: ...


class Connections:
    """The open connections of one listener.

    A connection that waits for a request can be ended without harm: no request of it is under way.
    So a new connection beyond the limit evicts the one that has waited longest, and is refused if
    none waits.
    """

    def __init__(self, listener: str, limits: ConnectionLimits) -> None:
        self.listener, self.limits = listener, limits
        self._connections: set[ClientConnection] = set()
        self._count_by_peer: dict[str, int] = {}
        """How many connections are open, by peer."""
        self._waiting_by_peer: dict[str, dict[ClientConnection, None]] = {}
        """Connections that wait for a request, by peer, those that wait longest first."""

    def __len__(self) -> int:
        return len(self._connections)

    def admit(self, connection: ClientConnection) -> bool:
        """Count a new connection, evicting a waiting one if need be; return False if it has to be
        refused.
        """
        count = self._count_by_peer.get(connection.peer, 0)
        if count >= self.limits.per_peer:
            idle_connections = self._waiting_by_peer.get(connection.peer, {})
        elif len(self._connections) >= self.limits.connections:
            idle_connections = max(self._waiting_by_peer.values(), key=len, default={})
        else:
            idle_connections = None
        if idle_connections is not None:
            log.warning(
                "listener.full",
                counted=self.listener,
                listener=self.listener,
                peer=connection.peer,
                of_this_peer=count,
                open=len(self._connections),
            )
            if not idle_connections:
                return False
            longest_idle = next(iter(idle_connections))
            self.release(longest_idle)
            longest_idle.evict()
        self._connections.add(connection)
        self._count_by_peer[connection.peer] = self._count_by_peer.get(connection.peer, 0) + 1
        return True

    def release(self, connection: ClientConnection) -> None:
        """Forget a connection; safe to repeat."""
        if connection not in self._connections:
            return
        self.set_waiting(connection, waiting=False)
        self._connections.remove(connection)
        self._count_by_peer[connection.peer] -= 1
        if not self._count_by_peer[connection.peer]:
            del self._count_by_peer[connection.peer]

    def set_waiting(self, connection: ClientConnection, *, waiting: bool) -> None:
        """Note that a connection waits for a request from now on, or no longer does."""
        if connection not in self._connections:
            return
        waiting_of_peer = self._waiting_by_peer.setdefault(connection.peer, {})
        waiting_of_peer.pop(connection, None)
        if waiting:
            waiting_of_peer[connection] = None
        elif not waiting_of_peer:
            del self._waiting_by_peer[connection.peer]
