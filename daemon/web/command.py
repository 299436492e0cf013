"""`agentctl ui`: serve the page by uvicorn on a loopback port until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import socket
from collections.abc import Mapping
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
        listener = socket.create_server(("127.0.0.1", call.port or 0))
    except (OSError, OverflowError) as error:
        call.err.write_line(
            f"agentctl: port {call.port} cannot be used: {error}; leave --port out to have a free "
            "one taken"
        )
        return NOT_SUCCEEDED
    # connections inherit the option: else a body waits 40 ms for the acknowledgement of its head
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    asyncio.run(_serve(call, client, listener))
    return DONE


async def _serve(call: Call, client: Client, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    access = PageAccess(port)
    daemon = DaemonClients(client.socket_path, trusted=client.is_trusted)
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
    url = f"http://127.0.0.1:{port}/#{access.token}"
    if call.json:
        call.print_json({"url": url})
    else:
        call.out.write_line(f"Open {url}")
        text = "The link is good for one browser, and the page for as long as this runs."
        call.err.write_line(call.err.paint(text, DIM))
        if "SSH_CONNECTION" in os.environ:
            call.err.write_line(
                "Your browser is on another machine: type there, and open the link when it runs"
            )
            call.err.write_line(f"  {tunnel_command(port, os.environ)}")
    call.out.stream.flush()
    await server.serve()


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
