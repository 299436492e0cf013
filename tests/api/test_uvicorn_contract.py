"""What daemon/api/embedded_uvicorn.py uses of uvicorn and h11 beyond their documentation, name by
name.

uvicorn documents `Config` and `Server.serve`, but no way to time a head or a body, and its own loop
wakes ten times a second. So one file overrides parts of it. When a release changes one of them, a
test here says which.
"""

import ast
import asyncio
import inspect
from contextlib import AbstractContextManager
from pathlib import Path

import h11
import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

import daemon
from daemon.api import embedded_uvicorn

PACKAGE = Path(daemon.__file__).parent

# The methods that we override or call: which arguments they take, and what we count on.
SERVER = {
    "main_loop": (
        [],
        "it is awaited between start-up and shutdown, and its end is the order to stop",
    ),
    "on_tick": (
        ["counter"],
        "on_tick(0) sets `server_state.default_headers`, which every answer carries",
    ),
    "startup": (["sockets"], "it binds the sockets that `serve` was called with"),
    "capture_signals": ([], "`serve` enters it to take SIGINT and SIGTERM, which are ours"),
    "serve": (["sockets"], "it is the whole life of the server"),
}
PROTOCOL = {
    "connection_made": (["transport"], "asyncio calls it"),
    "connection_lost": (["exc"], "asyncio calls it"),
    "data_received": (
        ["data"],
        "asyncio calls it; after it, h11 knows how far the request has come",
    ),
    "on_response_complete": ([], "the cycle calls it after the last byte of an answer"),
    "send_400_response": (["msg"], "it is called for a request that h11 cannot read"),
}
# What every connection has, with the types we count on; None before the first request.
ATTRIBUTES = {
    "conn": h11.Connection,
    "loop": asyncio.AbstractEventLoop,
    "server_state": ServerState,
    "transport": type(None),
    "client": type(None),
    "cycle": type(None),
}


@pytest.mark.parametrize("name", SERVER)
def test_uvicorn_server_has_the_method(name: str) -> None:
    assert_takes(uvicorn.Server, name, *SERVER[name])


@pytest.mark.parametrize("name", PROTOCOL)
def test_uvicorn_protocol_has_the_method(name: str) -> None:
    assert_takes(H11Protocol, name, *PROTOCOL[name])


def assert_takes(owner: type, name: str, parameters: list[str], reason: str) -> None:
    method = getattr(owner, name, None)
    assert method, (
        f"uvicorn {uvicorn.__version__} has no {owner.__name__}.{name} any more; api needs it: "
        f"{reason}"
    )
    _self, *names = inspect.signature(method).parameters
    assert names == parameters, (
        f"{owner.__name__}.{name} of uvicorn {uvicorn.__version__} takes {names}, not {parameters}; "  # noqa: E501
        f"api needs it: {reason}"
    )


@pytest.mark.parametrize("name", ["main_loop", "on_tick", "startup", "serve"])
def test_uvicorn_server_awaits_the_method(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(uvicorn.Server, name)), (
        f"uvicorn.Server.{name} is no coroutine any more"
    )


async def test_uvicorn_server_works_as_embedded_uvicorn_expects() -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            _empty_app,
            log_config=None,
            headers=[("a", "b")],
            date_header=False,
            server_header=False,
        )
    )
    assert server.should_exit is False, (
        "embedded_uvicorn.py sets uvicorn.Server.should_exit to stop it"
    )
    await server.on_tick(0)
    assert server.server_state.default_headers == [], (
        "uvicorn sets headers before the config is loaded"
    )
    server.config.load()
    await server.on_tick(0)
    assert server.server_state.default_headers == [(b"a", b"b")], (
        "uvicorn.Server.on_tick(0) sets no headers any more"
    )
    assert isinstance(server.capture_signals(), AbstractContextManager), (
        "capture_signals is no context manager any more"
    )
    steps = inspect.getsource(uvicorn.Server._serve)
    begin, loop, end = (
        steps.find(f"self.{name}(") for name in ("startup", "main_loop", "shutdown")
    )
    assert 0 < begin < loop < end, (
        "uvicorn.Server does not start up, await main_loop and shut down in this order"
    )


async def test_uvicorn_protocol_has_the_attributes_of_embedded_uvicorn() -> None:
    config = uvicorn.Config(_empty_app, log_config=None, lifespan="off")
    config.load()
    protocol = H11Protocol(config, ServerState(), {})
    for name, kind in ATTRIBUTES.items():
        assert isinstance(getattr(protocol, name, ...), kind), (
            f"`{name}` of a connection of uvicorn {uvicorn.__version__} is not what "
            "embedded_uvicorn.py reads"
        )
    cycle = inspect.getsource(uvicorn.protocols.http.h11_impl.RequestResponseCycle.send)
    assert "self.disconnected" in cycle, (
        "uvicorn's cycle does not keep silent once `disconnected` is set"
    )


@pytest.mark.parametrize("name", ["their_state", "our_state", "trailing_data", "send"])
def test_h11_connection_has_the_attributes_of_embedded_uvicorn(name: str) -> None:
    assert hasattr(h11.Connection(h11.SERVER), name), (
        f"h11 {h11.__version__} has no Connection.{name} any more"
    )


def test_every_overridden_uvicorn_method_is_listed() -> None:
    overridden = {
        name
        for name in vars(embedded_uvicorn.EmbeddedUvicorn)
        if hasattr(uvicorn.Server, name) and name[:2] != "__"
    }
    assert overridden <= set(SERVER), f"name {overridden - set(SERVER)} in SERVER, too"
    overridden = {
        name
        for name in vars(embedded_uvicorn.PeerProtocol)
        if hasattr(H11Protocol, name) and name[:2] != "__"
    }
    assert overridden <= set(PROTOCOL), f"name {overridden - set(PROTOCOL)} in PROTOCOL, too"


def test_every_used_uvicorn_attribute_is_listed() -> None:
    tree = ast.parse(Path(embedded_uvicorn.__file__).read_text())
    (protocol,) = (
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "PeerProtocol"
    )
    attributes = [
        node
        for node in ast.walk(protocol)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    ]
    own_names = {
        attribute.attr for attribute in attributes if isinstance(attribute.ctx, ast.Store)
    } | set(vars(embedded_uvicorn.PeerProtocol))
    names = {attribute.attr for attribute in attributes} - (own_names - set(ATTRIBUTES))
    assert names == set(ATTRIBUTES), f"embedded_uvicorn.py reads {sorted(names)} of a connection"


@pytest.mark.slow
def test_only_one_file_imports_uvicorn_and_h11() -> None:
    """Whoever else needs a server uses `SocketServer` of api/embedded_uvicorn.py."""
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
        if name.partition(".")[0] in ("uvicorn", "h11")
    }
    assert users == {"api/embedded_uvicorn.py"}


async def _empty_app(scope: object, receive: object, send: object) -> None:
    """Answer nothing."""
