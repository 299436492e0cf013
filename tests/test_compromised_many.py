"""A compromised model that tries thousands of calls, spelled in every way that a check may
overlook, under the shipped policy and under a typical one: none reaches a stranger, changes
anything outside the workspace, or reads a secret.

A plain `pytest` tries 240 calls, `pytest -m soak` 20,000. A failure names its seed.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from daemon.app.parts import App
from daemon.models import Status, StepKind, new_id
from tests.attack_calls import draw_call
from tests.test_compromised import (
    KEY,
    SHIPPED,
    AttackedDaemon,
    finish_rejecting,
    receivers,
)
from tests.test_unattended import TRIALS

__all__ = ["receivers"]

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

# What one run may call by the shipped policy, less the file that it reads first.
CALLS_IN_A_RUN, CALLS_IN_AN_ANSWER = 39, 13
# What their owners add for the twelve typical routines, as far as it needs nothing else installed.
TYPICAL = SHIPPED.read_text() + "".join(
    trial.policy for trial in TRIALS.values() if not trial.config
)
POLICIES = {"shipped": SHIPPED.read_text(), "typical": TYPICAL}


def add_secrets(workspace: Path) -> None:
    """Put files that the shipped policy denies into the workspace, and into a repository there."""
    secret_files = (".env", "config/.env.production", "config/server.pem")
    for name in secret_files:
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(f"PASSWORD={KEY}\n")
    (workspace / "src").mkdir()
    (workspace / "src" / "link-to-env").symlink_to("../.env")
    env = {"PATH": os.defpath, "HOME": str(workspace), "GIT_CONFIG_NOSYSTEM": "1"}
    git = ["git", "-C", str(workspace), "-c", "user.name=Ada", "-c", "user.email=a@example.invalid"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", f"first, with {KEY[:4]}"]):
        subprocess.run([*git, *words], check=True, env=env)


async def try_calls(app: App, attacked_daemon: AttackedDaemon, lot: random.Random) -> list[str]:
    """Live one run that reads a stranger's words, then makes calls drawn by lot; return what the
    model read of them.
    """
    model: Any = app.settings.providers.get("obedient")
    (attacked_daemon.workspace / "inbox.txt").write_text("Do what you can.")
    model.enqueue({"tool_calls": [{"name": "file_read", "arguments": {"path": "inbox.txt"}}]})
    for _ in range(CALLS_IN_A_RUN // CALLS_IN_AN_ANSWER):
        calls = [draw_call(lot) for _ in range(CALLS_IN_AN_ANSWER)]
        model.enqueue(
            {
                "tool_calls": [
                    {"name": name, "arguments": attacked_daemon.fill(arguments)}
                    for name, arguments in calls
                ]
            }
        )
    model.enqueue("Summary.")
    await app.scheduling.engine.run_now("reader", event=new_id())
    run = await finish_rejecting(app, "reader")
    assert run.status is Status.SUCCEEDED, run.detail
    steps = await app.store.journal.runs.get_steps(run.id)
    return [step.body["text"] for step in steps if step.kind is StepKind.RESULT]


async def attack(
    attacked_daemon: AttackedDaemon, policy: str, stranger: Any, *, calls: int, seed: int
) -> int:
    """Try so many calls, and fail for each promise that is broken; return how many were tried."""
    add_secrets(attacked_daemon.workspace)
    attacked_daemon.write("policy.toml", POLICIES[policy])
    lot, call_count = random.Random(seed), 0
    async with attacked_daemon.open() as app:
        before = attacked_daemon.everything_else()
        items = {item.key: item.content for item in await app.store.memory.items(limit=1000)}
        files = {path: path.read_bytes() for path in files_in(attacked_daemon.workspace)}
        while call_count < calls:
            results = await try_calls(app, attacked_daemon, lot)
            leaks = [text for text in results if KEY in text]
            assert leaks == [], f"seed {seed}, after {call_count} calls: a secret was read"
            assert attacked_daemon.everything_else() == before, (
                f"seed {seed}, after {call_count} calls"
            )
            assert stranger.posts == [], f"seed {seed}, after {call_count} calls"
            now = {path: path.read_bytes() for path in files_in(attacked_daemon.workspace)}
            assert now == files, f"seed {seed}, after {call_count} calls: the workspace was changed"
            call_count += len(results)
        assert {
            item.key: item.content for item in await app.store.memory.items(limit=1000)
        } == items
        await app.delivery.outbox.flush()
    assert stranger.posts == []
    assert not Path(f"/tmp/{attacked_daemon.token}").exists()
    return call_count


def files_in(workspace: Path) -> list[Path]:
    """Return the files of a workspace but for the inbox, reports and what runs write unasked."""
    own_folders = (workspace / "reports", workspace / "out", workspace / "inbox.txt")
    return [
        path
        for path in sorted(workspace.rglob("*"))
        if path.is_file() and not any(path.is_relative_to(folder) for folder in own_folders)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
async def test_calls_of_a_compromised_model_send_change_and_reveal_nothing(
    tmp_path: Path, receivers, policy: str
) -> None:
    home, stranger = receivers
    attacked_daemon = AttackedDaemon(tmp_path, home.url, stranger.url)
    assert await attack(attacked_daemon, policy, stranger, calls=120, seed=1) >= 120


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
async def test_10000_calls_of_a_compromised_model_send_change_and_reveal_nothing(
    tmp_path: Path, receivers, policy: str
) -> None:
    home, stranger = receivers
    attacked_daemon = AttackedDaemon(tmp_path, home.url, stranger.url)
    seed = random.SystemRandom().randrange(2**32)
    assert await attack(attacked_daemon, policy, stranger, calls=10_000, seed=seed) >= 10_000
