"""Who has connected to the page: the kernel tells, as long as a process holds the connection."""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from daemon.web.access import NOBODY, PageAccess, uid_of_connection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/net/tcp")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: the client's and the server's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        server, _ = listener.accept()
        with server:
            yield client, server


def ports_of(server: socket.socket) -> tuple[int, int]:
    return server.getpeername()[1], server.getsockname()[1]


def wait_for_end(server: socket.socket) -> None:
    with suppress(ConnectionResetError):
        assert server.recv(1) == b""


def test_an_open_connection_is_of_its_user(ends):
    client_port, server_port = ports_of(ends[1])
    assert uid_of_connection(client_port, server_port) == os.geteuid()
    assert not PageAccess(server_port).is_other_user(client_port)


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_its_sender_has_closed_is_of_nobody(ends, reset):
    """Another user with the cookie could send a request and close at once: the kernel shows such a
    connection as root's, or not at all.
    """
    client, server = ends
    client_port, server_port = ports_of(server)
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    wait_for_end(server)
    assert uid_of_connection(client_port, server_port) == NOBODY
    assert PageAccess(server_port).is_other_user(client_port)


@pytest.mark.parametrize(
    "others",
    ['prefs={"a": 1}; ', "list[]=1; ", "a,b=1; ", "name=Jos\xe9; ", "flag; ", "path=/x; "],
)
def test_cookies_of_other_servers_of_this_machine_shut_nobody_out(others):
    access = PageAccess(8099)
    cookie = access.exchange_token(access.make_token())
    assert cookie is not None
    cookie = cookie.partition(";")[0]
    for header in (f"{others}{cookie}", f"{cookie}; {others}", cookie):
        assert access.has_cookie({"Cookie": header})
    assert not access.has_cookie({"Cookie": others})


def test_the_page_of_another_port_replaces_no_cookie():
    pages = [PageAccess(port) for port in (8099, 8100)]
    jar = {}
    for page in pages:
        cookie = page.exchange_token(page.make_token())
        assert cookie is not None
        name, _, value = cookie.partition(";")[0].partition("=")
        jar[name] = value
    header = "; ".join(f"{name}={value}" for name, value in jar.items())
    assert all(page.has_cookie({"Cookie": header}) for page in pages)
