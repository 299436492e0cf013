"""Every run that a test makes is replayed when the test is over, and must come out identical."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

from daemon.app.parts import App
from daemon.errors import Refused
from daemon.runs.parts import RunParts
from daemon.runs.replay.cassette import load_cassette
from daemon.runs.replay.compare import ReplayResult
from daemon.runs.replay.folder import format_files
from daemon.runs.replay.play import replay
from daemon.scheduler.engine import RoutineEngine
from daemon.store.journal import Journal
from daemon.store.read_only import open_journal_read_only
from daemon.testing import TestApp
from tests.empty_database import copy_empty_database


class ReplayedApp(TestApp):
    """A TestApp whose runs are all replayed when it is closed."""

    async def __aenter__(self) -> Self:
        self.state.mkdir(mode=0o700, exist_ok=True)
        copy_empty_database(self.state / "agentd.db")
        return await super().__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                await assert_runs_replay(self.daemon)
        finally:
            await super().__aexit__(kind, *error)

    @property
    def journal(self) -> Journal:
        return self.daemon.store.journal

    @property
    def engine(self) -> RoutineEngine:
        return self.daemon.scheduling.engine

    @property
    def parts(self) -> RunParts:
        return self.daemon.runs.parts

    async def spending(self, columns: str) -> list[tuple[Any, ...]]:
        """Return these columns of the ledger of model calls, oldest call first."""
        query = f"SELECT {columns} FROM spending ORDER BY id"
        return await self.journal._db.read(lambda connection: connection.execute(query).fetchall())


def describe_differences(result: ReplayResult) -> str:
    """Return in what a run differs when it is replayed."""
    lines = [f"run {result.run} of {result.routine} is not what was recorded when it is replayed:"]
    for difference in result.differences:
        lines += [f"  {difference.at}: {difference.what}", difference.diff]
    return "\n".join(lines)


async def assert_runs_replay(app: App) -> int:
    """Replay every run of a daemon's journal; return how many there were."""
    workspace = str(app.settings.config.workspace_path(app.installation.state))
    language = app.settings.config.agent.language
    runs = await app.store.journal.runs.find(limit=1000)
    for run in runs:
        cassette = await load_cassette(
            app.store.journal,
            run.id,
            workspace=workspace,
            language=language,
        )
        result = await replay(cassette)
        assert result.is_identical, describe_differences(result)
        format_files(cassette, str)  # raises Refused for a run that could not be read again
    return len(runs)


async def assert_runs_replay_in(state: Path, config: Path) -> int:
    """Replay every run of a state folder that no daemon uses any more; return how many there
    were.
    """
    if not (state / "agentd.db").is_file():
        return 0
    journal = open_journal_read_only(state)
    runs = await journal.runs.find(limit=1000)
    language = read_language(config)
    for run in runs:
        try:
            result = await replay(
                await load_cassette(
                    journal, run.id, workspace=str(state / "workspace"), language=language
                )
            )
        except Refused as error:
            if not any(words in str(error) for words in ("forgotten", "cannot be read")):
                raise
            continue  # nothing is left of it, or it is a row that a test has made up
        assert result.is_identical, describe_differences(result)
    return len(runs)


def read_language(config: Path) -> str:
    """Return the language that agents think in by a config; English where it cannot be read."""
    try:
        agent = tomllib.loads(config.read_text()).get("agent", {})
    except (OSError, ValueError):
        return "en"
    language: str = agent.get("language", "en")
    return language
