"""A run by hand, or a question, whose model server is not started ends with a sentence that says
so.
"""

from __future__ import annotations

import socket

import pytest

from tests.acceptance.story import Home

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

CONFIG = """
provider = "local"
[providers.local]
kind = "open_source"
base_url = "http://{}/v1"
model = "tiny"
"""


async def test_run_fails_after_one_round_of_attempts_where_nothing_listens(home: Home) -> None:
    with socket.socket() as unheard:  # bound and not listening: nobody else gets the port
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        home.write("config.toml", CONFIG.format(address))
        home.routine("work", '[run]\nprompt = "Work."\n')
        await home.start()
        result = await home.agentctl("run", "work")
    assert result.code == 1
    assert f"failed: local (tiny): no connection to {address}: nothing listens there" in result.err
    assert "is the model server started?" in result.err
    assert "put off" not in result.err
    (run,) = (await home.agentctl("runs", "--json")).json["items"]
    assert (run["status"], run["not_before"]) == ("failed", None)


@pytest.mark.slow
async def test_ask_ends_after_one_round_of_attempts_where_nothing_listens(home: Home) -> None:
    with socket.socket() as unheard:  # bound and not listening: nobody else gets the port
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        home.write("config.toml", CONFIG.format(address))
        await home.start()
        result = await home.agentctl("ask", "Are you there?")
    assert result.code == 1
    assert f"no connection to {address}: nothing listens there" in result.err
    assert "is the model server started?" in result.err
    assert "put off" not in result.err
    (run,) = (await home.agentctl("runs", "--json")).json["items"]
    assert (run["status"], run["not_before"]) == ("failed", None)
