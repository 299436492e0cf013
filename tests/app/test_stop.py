"""A stop of the daemon."""

import asyncio
import os
import signal

from daemon.app.installation import Installation
from daemon.app.lifecycle import STOP_SECONDS, serve
from daemon.app.wiring import open_app
from daemon.definitions.config.loading import load_config
from daemon.telemetry.redaction import Secrets


async def test_a_stop_may_take_as_long_as_the_grace_that_a_reload_has_set(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[daemon]\ngrace = "1s"\n')
    (tmp_path / "policy.toml").write_text("version = 1\n")
    installation = Installation(
        config=load_config(file),
        state=tmp_path / "state",
        socket=tmp_path / "state/agentd.sock",
        log_file=tmp_path / "state/logs/agentd.jsonl",
        console=False,
        env={},
        secrets=Secrets(),
    )

    async def change_and_stop(app):
        file.write_text('[daemon]\ngrace = "10m"\n')
        await app.reloader.reload()
        os.kill(os.getpid(), signal.SIGTERM)  # taken by the event loop of this test

    limits: list[float] = []
    try:
        async with open_app(installation) as app:
            await serve(app, change_and_stop, limit_end=limits.append)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert limits == [600 + STOP_SECONDS]
