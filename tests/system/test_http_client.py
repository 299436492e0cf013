"""Why a connection could not be made is said in the words of the system; clients are used again."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from daemon.system.http_client import ClientPool, describe_connection_error


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


class _Client:
    """A client that notes whether it was closed; closing takes a turn of the loop."""

    is_closed = False

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


async def test_the_client_used_last_is_taken_first() -> None:
    pool = ClientPool(_Client)
    first, second = pool.take(), pool.take()
    await pool.give_back(first)
    await pool.give_back(second)
    assert pool.take() is second
    assert pool.take() is first
    assert pool.take() not in (first, second)


async def test_clients_that_were_idle_for_too_long_are_closed() -> None:
    pool = ClientPool(_Client, keepalive=-1.0)
    first, second = pool.take(), pool.take()
    await pool.give_back(first)
    await pool.give_back(second)
    assert first.is_closed
    assert not second.is_closed


async def test_a_client_is_taken_while_stale_ones_are_closed() -> None:
    pool = ClientPool(_Client, keepalive=-1.0)

    async def request() -> None:
        client = pool.take()
        await asyncio.sleep(0)
        assert not client.is_closed
        await pool.give_back(client)

    for _ in range(6):
        await asyncio.gather(*(request() for _ in range(8)))


async def test_a_client_that_is_given_back_after_closing_is_closed() -> None:
    pool = ClientPool(_Client)
    idle, taken = pool.take(), pool.take()
    await pool.give_back(idle)
    await pool.close()
    assert idle.is_closed
    assert not taken.is_closed
    await pool.give_back(taken)
    assert taken.is_closed
