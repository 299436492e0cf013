"""Every run that a test makes is played again when the test is over, and must come out
identical.
"""

from __future__ import annotations

import tomllib

from daemon.errors import Refused
from daemon.runs.replay.cassette import recorded
from daemon.runs.replay.outcome import ReplayResult
from daemon.runs.replay.play import play
from daemon.store.read_only import journal_at


def told(outcome: ReplayResult) -> str:
    """Return in what a run differs when it is played again."""
    lines = [
        f"run {outcome.run} of {outcome.routine} is not what was recorded when it is replayed:"
    ]
    for each in outcome.differences:
        lines += [f"  {each.at}: {each.what}", each.diff]
    return "\n".join(lines)


async def all_identical(app) -> int:
    """Play every run of a daemon's journal again; return how many there were."""
    workspace = str(app.settings.config.workspace_path(app.installation.state))
    language = app.settings.config.agent.language
    runs = await app.store.journal.runs(limit=1000)
    for run in runs:
        cassette = await recorded(
            app.store.journal,
            run.id,
            workspace=workspace,
            language=language,
        )
        outcome = await play(cassette)
        assert outcome.identical, told(outcome)
    return len(runs)


async def all_identical_at(state, config) -> int:
    """Play every run of a state folder that nobody uses any more again; return how many there
    were.
    """
    if not (state / "agentd.db").is_file():
        return 0
    journal = journal_at(state)
    runs = await journal.runs(limit=1000)
    language = language_of(config)
    for run in runs:
        try:
            outcome = await play(
                await recorded(
                    journal, run.id, workspace=str(state / "workspace"), language=language
                )
            )
        except Refused as error:
            if not any(words in str(error) for words in ("forgotten", "cannot be read")):
                raise
            continue  # nothing is left of it, or it is a row that a test has made up
        assert outcome.identical, told(outcome)
    return len(runs)


def language_of(config) -> str:
    """Return the language that agents think in by a config; English where it cannot be read."""
    try:
        return tomllib.loads(config.read_text()).get("agent", {}).get("language", "en")
    except (OSError, ValueError):
        return "en"
