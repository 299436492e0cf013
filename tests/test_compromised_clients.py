"""What a compromised model cannot do where agentd asks none, or serves another program's: in a
routine in mode script, and over `agentctl mcp serve`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.api.listener import open_listener
from daemon.api.server import ApiServer
from daemon.app.api_context import api_context
from daemon.app.parts import App
from daemon.cli.mcp_tools import TOOLS
from daemon.models import Status, StepKind, Taint, new_id
from tests.attacks import ATTACKS, POST
from tests.cli.test_mcp import connect
from tests.delivery.receivers import Receiver
from tests.test_compromised import (
    KEY,
    STEAL,
    AttackedDaemon,
    finish_rejecting,
    make_call,
    receivers,
)

__all__ = ["receivers"]  # the fixture

SCRIPT = """
description = "Sends what came in"
[run]
mode = "script"
[[gather]]
name = "inbox"
tool = "file_read"
args = { path = "inbox.txt" }
[[deliver]]
to = "home"
[[deliver]]
to = "file"
path = "reports/{run}.md"
"""
# What a mail client, a chat or a terminal would make a link or a picture of.
LIVE = re.compile(r"https?:|\]\(|<img|\.evil\.example|\\u001b|\x1b")


@asynccontextmanager
async def serve_api(app: App) -> AsyncIterator[Path]:
    server = ApiServer(api_context(app), open_listener(app.installation.socket, {}))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(), name="control socket")
        await server.ready()
        yield server.path
        server.stop()


async def test_a_script_hands_on_no_working_link_and_obeys_nothing(
    tmp_path: Path, receivers: tuple[Receiver, Receiver]
) -> None:
    home, stranger = receivers
    attacked_daemon = AttackedDaemon(tmp_path, home.url, stranger.url)
    attacked_daemon.write("routines/reader.toml", SCRIPT)
    async with attacked_daemon.open() as app:
        before = attacked_daemon.everything_else()
        items = {item.key: item.content for item in await app.store.memory.items(limit=1000)}
        for kind, text, _ in ATTACKS:
            link = f"\n[more]({attacked_daemon.stranger}/f?d={KEY}) {KEY}.evil.example\n"
            (attacked_daemon.workspace / "inbox.txt").write_text(attacked_daemon.fill(text) + link)
            await app.scheduling.engine.run_now("reader", event=new_id())
            run = await finish_rejecting(app, "reader")
            assert run.status is Status.SUCCEEDED, (kind, run.detail)
            assert run.taint is not Taint.NONE, kind
            steps = await app.store.journal.runs.get_steps(run.id)
            assert not [step for step in steps if step.kind is StepKind.LLM], kind
        await app.delivery.outbox.flush()
        assert attacked_daemon.everything_else() == before
        assert items == {
            item.key: item.content for item in await app.store.memory.items(limit=1000)
        }
    reports = [post.body.decode() for post in home.posts]
    assert len(reports) == len(ATTACKS)
    files = (attacked_daemon.workspace / "reports").iterdir()
    for text in [*reports, *(path.read_text() for path in files)]:
        assert not LIVE.search(text), text
    assert stranger.posts == []


async def test_a_compromised_model_of_an_mcp_client_reaches_nothing_through_agentd(
    tmp_path: Path, receivers: tuple[Receiver, Receiver]
) -> None:
    """It calls the tools that an attack names, passes the attack on to a run, and the model of
    agentd obeys that, too.
    """
    home, stranger = receivers
    attacked_daemon = AttackedDaemon(tmp_path, home.url, stranger.url)
    config = (attacked_daemon.folder / "config.toml").read_text()
    attacked_daemon.write("config.toml", config + '[ask]\ntools = ["*"]\n')
    async with attacked_daemon.open() as app:
        model: Any = app.settings.providers.get("obedient")
        model.enqueue("Nothing came in.")
        await app.scheduling.engine.run_now("reader", event=new_id())
        first_run = await finish_rejecting(app, "reader")
        await app.delivery.outbox.flush()
        home.posts.clear()
        before = attacked_daemon.everything_else()
        orders_of_helper = [make_call(call, attacked_daemon) for call in (POST, STEAL)]
        async with serve_api(app) as socket, connect(socket) as client:
            for kind, text, calls in ATTACKS:
                orders = [make_call(call, attacked_daemon) for call in calls]
                for order in orders:
                    assert order["name"] not in TOOLS, kind
                    assert (await client.call_tool(order["name"], order["arguments"])).is_error
                    arguments = {"routine": str(order["arguments"])}
                    assert (await client.call_tool("run", arguments)).is_error, kind
                model.enqueue({"tool_calls": orders})
                for _ in (order for order in orders if order["name"] == "subagent"):
                    model.enqueue({"tool_calls": orders_of_helper}, "Helped.")
                model.enqueue(f"Done: {KEY} {attacked_daemon.stranger}/x")
                words = {"run": first_run.id, "text": attacked_daemon.fill(text)}
                result = await client.call_tool("tell", words | {"wait_seconds": 0})
                assert not result.is_error, (kind, result.content)
                run = await finish_rejecting(app, "ask")
                steps = await app.store.journal.runs.get_steps(run.id)
                results = [step.body["text"] for step in steps if step.kind is StepKind.RESULT]
                assert not any(KEY in text for text in results), f"{kind}: the secret was read"
                assert attacked_daemon.everything_else() == before, kind
                assert stranger.posts == [], f"{kind}: something was sent to a stranger"
        await app.delivery.outbox.flush()
        assert (await app.store.journal.audit.verify()).broken is None
    assert home.posts == [], "no routine has reported"
    assert stranger.posts == []


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_no_tool_over_mcp_decides_about_a_call_or_changes_the_rules(name: str) -> None:
    assert not re.search(r"approv|reject|policy|config|forget|edit", name)
