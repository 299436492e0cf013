"""A run is played again from its record: it comes out identical, or it is told where the two part
and why.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from daemon.app.main import main
from daemon.errors import DaemonError, Refused
from daemon.models import Run
from daemon.runs.replay.cassette import load_cassette
from daemon.runs.replay.play import replay
from tests.replaying import ReplayedApp

STRICT = 'version = 1\n[[rule]]\ntool = "file_read"\neffect = "allow"\n'
ASKING = STRICT + '[[rule]]\ntool = "file_write"\neffect = "ask"\n'


async def everything(app: ReplayedApp) -> dict[str, list[Any]]:
    """Return every row of every table."""

    def work(connection: Any) -> dict[str, list[Any]]:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in tables
            if "fts" not in name
        }

    return await app.journal._db.read(work)


async def changed_by(app: ReplayedApp, run: Run, statement: str, *values: Any) -> dict[str, Any]:
    """Change the record of a run behind its back, and return what its replay says then."""
    await app.journal._db.write(lambda connection: connection.execute(statement, values).rowcount)
    told: dict[str, Any] = await app.parts.replays.replay(run.id)
    return told


async def test_a_run_comes_out_as_it_did_without_a_model_a_tool_or_a_word_in_the_journal(
    app: ReplayedApp,
) -> None:
    async with app:
        run = await app.run("shop")
        (app.state / "workspace" / "notes.txt").unlink()
        (app.state / "workspace" / "reports" / "out.md").unlink()
        before, asked = await everything(app), len(app.model_named("fake").calls)
        told = await app.parts.replays.replay(run.id)
        assert told["identical"]
        assert told["played"]["report"] == run.report == "Buy milk."
        assert told["played"]["status"] == "succeeded"
        assert (told["asked"], told["usd"]) == ({"input": 0, "output": 0}, 0.0)
        assert await everything(app) == before
        assert len(app.model_named("fake").calls) == asked
        assert not (app.state / "workspace" / "reports" / "out.md").exists()


async def test_what_is_not_as_it_was_is_told_with_its_step_and_a_diff(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        told = await changed_by(
            app, run, "UPDATE run SET report = 'Buy beer.' WHERE id = ?", run.id
        )
        assert not told["identical"]
        assert [each["what"] for each in told["differences"]] == ["the report differs"]
        assert "-Buy beer.\n+Buy milk." in told["differences"][0]["diff"]
        await changed_by(app, run, "UPDATE run SET report = 'Buy milk.' WHERE id = ?", run.id)


async def test_a_verdict_that_the_policy_of_then_would_not_give_is_told(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        cassette = await load_cassette(app.journal, run.id, workspace="/nowhere", language="en")
        (hash_,) = cassette.policies
        other = {hash_: STRICT}
        outcome = await replay(type(cassette)(**{**_fields(cassette), "policies": other}))
        assert not outcome.is_identical
        first = outcome.differences[0]
        assert (first.at, first.what) == (
            "iteration 2, 2.0 (file_write)",
            "the call or its verdict differs: verdict",
        )
        assert '-  "effect": "allow"' in first.diff
        assert '+  "effect": "deny"' in first.diff


def _fields(cassette: Any) -> dict[str, Any]:
    return {name: getattr(cassette, name) for name in type(cassette).__dataclass_fields__}


async def test_another_policy_shows_which_verdicts_would_differ(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        told = await app.parts.replays.replay(run.id, policy=ASKING)
        assert told["changed"] == "policy"
        assert told["would_ask"] == ["2.0: rule 2 (file_write)"]
        assert "→ ask by rule 2 (file_write), ok" in told["differences"][0]["diff"]
        denied = await app.parts.replays.replay(run.id, policy=STRICT)
        assert "→ deny by default, failed" in denied["differences"][0]["diff"]
        assert (
            await app.parts.replays.replay(
                run.id, policy=app.folder.joinpath("policy.toml").read_text()
            )
        )["identical"]


async def test_another_model_is_really_asked_and_what_was_never_called_is_refused(
    app: ReplayedApp,
) -> None:
    async with app:
        run = await app.run("shop")
        spent = len(await app.spending("id"))
        told = await app.parts.replays.replay(run.id, model="other")
        other = app.model_named("other")
        assert len(other.calls) == 3
        answers = [
            message.content for message in other.calls[-1].messages if message.role == "tool"
        ]
        assert "buy milk" in answers[0]
        assert answers[1].startswith(
            "[error] not run: this is a replay, and the recorded run never made this call"
        )
        assert told["never_made"] == ['2.0 file_read {"path": "other.txt"}']
        assert told["played"]["report"] == "Buy milk; the other list could not be read."
        assert told["asked"]["input"] > 0
        assert told["usd"] == pytest.approx(
            (told["asked"]["input"] + 2 * told["asked"]["output"]) / 1e6
        )
        await app.journal.facts.remember("written", "behind what nobody waited for")
        assert len(await app.spending("id")) == spent + 3
        assert (await app.journal.runs.find())[0].id == run.id
        assert not [line for line in app.log("run.finished") if line["run"] != run.id]


async def test_another_prompt_asks_the_same_model_again(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        told = await app.parts.replays.replay(run.id, prompt="What is missing?")
        assert app.model_named("fake").calls[-1].messages[1].content == "What is missing?"
        assert told["differences"][0]["what"] == "the prompt differs"
        assert "+What is missing?" in told["differences"][0]["diff"]
        assert told["changed"] == "prompt"


async def test_a_cap_holds_for_a_replay_that_asks(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
    config = app.folder / "config.toml"
    app.write("config.toml", f"{config.read_text()}\n[budget]\nday = 0.0000001\n")
    async with app:
        told = await app.parts.replays.replay(run.id, model="other")
        assert not app.model_named("other").calls
        assert "cap on spending" in told["played"]["detail"]


async def test_a_byte_that_was_changed_in_the_journal_is_noticed(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        for step in await app.journal.runs.get_steps(run.id):
            where = f"WHERE run_id = '{run.id}' AND seq = {step.seq}"
            ((whole,),) = await _all(app, f"SELECT body FROM step {where}")
            bytewise = (
                whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
                for at in range(0, len(whole), 7)
            )
            for other in (*bytewise, "a text, as sqlite3's shell would write"):
                await _change(app, f"UPDATE step SET body = ? {where}", other)
                with pytest.raises(DaemonError, match="is not as it was written"):
                    await app.parts.replays.replay(run.id)
            await _change(app, f"UPDATE step SET body = ? {where}", whole)
        assert (await app.parts.replays.replay(run.id))["identical"]


async def _all(app: ReplayedApp, query: str) -> list[tuple[Any, ...]]:
    return await app.journal._db.read(lambda connection: connection.execute(query).fetchall())


async def _change(app: ReplayedApp, statement: str, *values: Any) -> None:
    await app.journal._db.write(lambda connection: connection.execute(statement, values).rowcount)


async def test_one_thing_is_changed_at_a_time(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        with pytest.raises(Refused, match="one thing at a time"):
            await app.parts.replays.replay(run.id, model="other", prompt="x")


async def test_a_forgotten_run_says_that_nothing_is_left(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        await app.journal._db.write(
            lambda connection: (
                connection.execute("DELETE FROM step WHERE run_id = ?", (run.id,)).rowcount
            )
        )
        with pytest.raises(Refused, match="nothing of it is left"):
            await app.parts.replays.replay(run.id)
        await app.journal._db.write(
            lambda connection: connection.execute("DELETE FROM run").rowcount
        )


async def test_without_a_daemon_the_record_is_enough(
    app: ReplayedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    async with app:
        run = await app.run("shop")
    places = ["--config", str(app.folder / "config.toml"), "--state", str(app.state)]
    assert await asyncio.to_thread(main, ["replay", run.id[-8:], *places]) == 0
    assert capsys.readouterr().out.startswith(
        f"identical: shop run {run.id}, 11 steps; no model was asked"
    )
    other = app.folder / "other.toml"
    other.write_text(STRICT)
    assert (
        await asyncio.to_thread(main, ["replay", run.id, "--policy", str(other), "--json", *places])
        == 1
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["identical"], told["changed"]) == (False, "policy")
    assert await asyncio.to_thread(main, ["replay", "NOSUCHRUN", *places]) == 4
    assert await asyncio.to_thread(main, ["replay", run.id, "--model", "other", *places]) == 5
    assert "start the daemon" in capsys.readouterr().err
