"""`agentd replay` and `agentd freeze`: a recorded run played again, or written down, without a
daemon.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli.render import stderr_stream, stdout_stream
from daemon.cli.replay import exit_code_of_replay, write_frozen_run, write_replay
from daemon.errors import ConfigError, Fault, Refused
from daemon.policy.policy import Policy
from daemon.runs.replay.cassette import Cassette, load_cassette
from daemon.runs.replay.compare import ReplayChange
from daemon.runs.replay.folder import format_files, is_frozen_run, read_frozen_run
from daemon.runs.replay.play import replay as replay_cassette
from daemon.store.read_only import open_journal_read_only
from daemon.telemetry.log import configure
from daemon.telemetry.redaction import Secrets

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from daemon.definitions.config.config import Config


def replay(options: Namespace, *, state: Path, load_config: Callable[[], Config | None]) -> int:
    """Play a run, or a frozen one, again: 0 identical, 1 changed."""
    if options.model or options.prompt:
        raise Refused(
            "another model or prompt is really asked: start the daemon, which counts what that "
            "costs"
        )
    configure(level="error", console=False, file=None, secrets=Secrets())
    cassette = _load_cassette(options.run, state, load_config)
    change = ReplayChange()
    if options.policy:
        text = _read_policy(options.policy)
        change = ReplayChange(
            policy=Policy.read(text, workspace=Path(cassette.workspace), name=str(options.policy))
        )
    result = asyncio.run(replay_cassette(cassette, change)).as_json(Secrets().redact)
    if options.json:
        stdout_stream().write_line(json.dumps(result, ensure_ascii=False))
        return exit_code_of_replay(result)
    return write_replay(stdout_stream(), result)


def freeze(options: Namespace, *, state: Path, load_config: Callable[[], Config | None]) -> int:
    """Write a run into a folder as a regression case."""
    cassette = _load_cassette(options.run, state, load_config)
    files = format_files(cassette, Secrets().redact, folder=options.folder)
    return write_frozen_run(
        stdout_stream(), stderr_stream(), {"run": cassette.run.id, "files": files}, options.folder
    )


def _load_cassette(run: str, state: Path, load_config: Callable[[], Config | None]) -> Cassette:
    """Return what is to be replayed: a frozen run's folder, or a run of the journal, which is only
    read. A folder needs no config, so it is not loaded for one.
    """
    folder = Path(run)
    if folder.is_dir() and ("/" in run or is_frozen_run(folder)):
        return read_frozen_run(folder)
    config = load_config()
    workspace = config.workspace_path(state) if config else state / "workspace"
    language = config.agent.language if config else "en"
    journal = open_journal_read_only(state, config.store_url(os.environ) if config else "")
    return asyncio.run(load_cassette(journal, run, workspace=str(workspace), language=language))


def _read_policy(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            Fault(file=str(path), key="", found="", problem=f"cannot be read: {error}")
        ) from None
