"""`agentctl ui`: serve the page by uvicorn on a loopback port until Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from daemon.api.embedded_uvicorn import SocketServer
from daemon.api.listener import ListenerSocket
from daemon.cli.call import DONE, NOT_SUCCEEDED, Call
from daemon.cli.client import Client
from daemon.cli.render import DIM
from daemon.web.access import HEADERS, PageAccess
from daemon.web.app import DaemonClients, create_app


def serve(call: Call) -> int:
    """Serve the page on a loopback port until Ctrl-C."""
    client = call.client
    try:
        listener = _listen(call.port or 0)
    except OSError as error:
        call.err.write_line(
            f"agentctl: port {call.port} cannot be used: {error.strerror}; leave --port out to "
            "have a free one taken"
        )
        return NOT_SUCCEEDED
    # connections inherit the option: else a body waits 40 ms for the acknowledgement of its head
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asyncio.run(_serve(call, client, listener))
    return DONE


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        # create_server() would leave its socket open
        raise OSError(errno.EINVAL, "a port is a number from 0 to 65535")
    return socket.create_server(("127.0.0.1", port))


async def _serve(call: Call, client: Client, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    access = PageAccess(port)
    daemon = DaemonClients(client.socket_path, is_trusted=client.is_trusted)
    listener_socket = ListenerSocket(socket=listener, path=Path(f"127.0.0.1:{port}"), file_id=None)
    server = SocketServer(create_app(daemon, access), listener_socket, HEADERS)

    def stop() -> None:
        server.stop()
        daemon.close()

    # the terminal is the user's: a malformed request is not worth a line, a mistake of ours is
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    # before the first line of output: whoever has read that may press Ctrl-C
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop)

    def write_link() -> None:
        url = f"http://127.0.0.1:{port}/#{access.make_token()}"
        if call.json:
            call.print_json({"url": url})
        else:
            call.out.write_line(f"Open {url}")

    def write_another_link() -> None:
        write_link()
        call.out.stream.flush()

    write_link()
    if not call.json:
        text = "The link is good for one browser, and the page for as long as this runs."
        call.err.write_line(call.err.paint(text, DIM))
        if sys.stdin is not None and is_terminal_in_front(sys.stdin.fileno()):
            watch_lines(sys.stdin.fileno(), write_another_link)
            text = "Enter prints a new link, Ctrl-C ends the page."
            call.err.write_line(call.err.paint(text, DIM))
        if "SSH_CONNECTION" in os.environ:
            call.err.write_line(
                "Your browser is on another machine: type there, and open the link when it runs"
            )
            call.err.write_line(f"  {tunnel_command(port, os.environ)}")
    call.out.stream.flush()  # last: whoever has read the link may end the page
    await server.serve()


def watch_lines(descriptor: int, answer: Callable[[], None]) -> None:
    """Call `answer` whenever a line is typed at a terminal, until its end, or until the process is
    put into the background: there it would be stopped for reading.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        data = b""
        if is_terminal_in_front(descriptor):
            with suppress(OSError):  # the terminal is gone
                data = os.read(descriptor, 4096)
        if data:
            answer()
        else:
            loop.remove_reader(descriptor)

    loop.add_reader(descriptor, read)


def is_terminal_in_front(descriptor: int) -> bool:
    """Return whether what is typed at a terminal comes to this process."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # no terminal, or not ours
        return False


def tunnel_command(port: int, env: Mapping[str, str]) -> str:
    """Return the command that brings the port of the page to the machine on which it is typed, by
    the ssh server that this terminal came by.
    """
    user, host = env.get("LOGNAME") or env.get("USER"), os.uname().nodename
    ssh_port = env.get("SSH_CONNECTION", "").rpartition(" ")[2]
    words = ["ssh", "-N", "-L", f"{port}:127.0.0.1:{port}"]
    if ssh_port.isdecimal() and ssh_port != "22":
        words += ["-p", ssh_port]
    return shlex.join([*words, f"{user}@{host}" if user else host])
