"""Why a connection could not be made is said in the words of the system."""

from __future__ import annotations

import socket

import httpx
import pytest

from daemon.system.http_client import describe_connection_error


async def test_a_closed_port_is_one_at_which_nothing_listens() -> None:
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))  # bound and not listening: refused
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            with pytest.raises(httpx.ConnectError) as error:
                await client.get(f"http://127.0.0.1:{busy_socket.getsockname()[1]}/")
    text = describe_connection_error(error.value)
    assert text == "nothing listens there (Connection refused)"


def test_an_unknown_host_may_be_a_missing_network() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert describe_connection_error(error) == (
        "no such host, or no network (Name or service not known)"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionResetError(104, "x"), "Connection reset by peer"),
        (ExceptionGroup("several", [OSError("one"), OSError("two")]), "one"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_other_reasons_are_told_as_they_are(error: BaseException, text: str) -> None:
    assert describe_connection_error(error) == text
