"""A run replayed from its cassette is identical, or each difference is reported."""

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
from tests.runs.replay.conftest import OTHER, ROUTINE

STRICT = 'version = 1\n[[rule]]\ntool = "file_read"\neffect = "allow"\n'
ASKING = STRICT + '[[rule]]\ntool = "file_write"\neffect = "ask"\n'


async def read_all_tables(app: ReplayedApp) -> dict[str, list[Any]]:
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
    result: dict[str, Any] = await app.parts.replays.replay(run.id)
    return result


async def test_replay_is_identical_without_model_calls_tools_or_journal_writes(
    app: ReplayedApp,
) -> None:
    async with app:
        run = await app.run("shop")
        (app.state / "workspace" / "notes.txt").unlink()
        (app.state / "workspace" / "reports" / "out.md").unlink()
        before, model_calls = await read_all_tables(app), len(app.model_named("fake").calls)
        result = await app.parts.replays.replay(run.id)
        assert result["identical"]
        assert result["played"]["report"] == run.report == "Buy milk."
        assert result["played"]["status"] == "succeeded"
        assert (result["asked"], result["usd"]) == ({"input": 0, "output": 0}, 0.0)
        assert await read_all_tables(app) == before
        assert len(app.model_named("fake").calls) == model_calls
        assert not (app.state / "workspace" / "reports" / "out.md").exists()


async def test_a_replayed_run_that_differs_is_reported_with_step_and_diff(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        result = await changed_by(
            app, run, "UPDATE run SET report = 'Buy beer.' WHERE id = ?", run.id
        )
        assert not result["identical"]
        assert [difference["what"] for difference in result["differences"]] == [
            "the report differs"
        ]
        assert "-Buy beer.\n+Buy milk." in result["differences"][0]["diff"]
        await changed_by(app, run, "UPDATE run SET report = 'Buy milk.' WHERE id = ?", run.id)


async def test_a_recorded_verdict_that_its_policy_would_not_give_is_reported(
    app: ReplayedApp,
) -> None:
    async with app:
        run = await app.run("shop")
        cassette = await load_cassette(app.journal, run.id, workspace="/nowhere", language="en")
        (hash_,) = cassette.policies
        policies = {hash_: STRICT}
        outcome = await replay(type(cassette)(**{**_fields(cassette), "policies": policies}))
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


async def test_replay_with_another_policy_shows_differing_verdicts(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        result = await app.parts.replays.replay(run.id, policy=ASKING)
        assert result["changed"] == "policy"
        assert result["would_ask"] == ["2.0: rule 2 (file_write)"]
        assert "→ ask by rule 2 (file_write), ok" in result["differences"][0]["diff"]
        replay = await app.parts.replays.replay(run.id, policy=STRICT)
        assert "→ deny by default, failed" in replay["differences"][0]["diff"]
        assert (
            await app.parts.replays.replay(
                run.id, policy=app.folder.joinpath("policy.toml").read_text()
            )
        )["identical"]


async def test_replay_with_another_model_calls_it_and_refuses_unrecorded_tool_calls(
    app: ReplayedApp,
) -> None:
    async with app:
        run = await app.run("shop")
        call_count = len(await app.spending("id"))
        result = await app.parts.replays.replay(run.id, model="other")
        other_model = app.model_named("other")
        assert len(other_model.calls) == 3
        answers = [
            message.content for message in other_model.calls[-1].messages if message.role == "tool"
        ]
        assert "buy milk" in answers[0]
        assert answers[1].startswith(
            "[error] not run: this is a replay, and the recorded run never made this call"
        )
        assert result["never_made"] == ['2.0 file_read {"path": "other.txt"}']
        assert result["played"]["report"] == "Buy milk; the other list could not be read."
        assert result["asked"]["input"] > 0
        assert result["usd"] == pytest.approx(
            (result["asked"]["input"] + 2 * result["asked"]["output"]) / 1e6
        )
        await app.journal.key_values.put("written", "behind what nobody waited for")
        assert len(await app.spending("id")) == call_count + 3
        assert (await app.journal.runs.find())[0].id == run.id
        assert not [line for line in app.log("run.finished") if line["run"] != run.id]


async def test_replay_with_another_prompt_calls_the_same_model(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        result = await app.parts.replays.replay(run.id, prompt="What is missing?")
        assert app.model_named("fake").calls[-1].messages[1].content == "What is missing?"
        assert result["differences"][0]["what"] == "the prompt differs"
        assert "+What is missing?" in result["differences"][0]["diff"]
        assert result["changed"] == "prompt"


async def test_a_replay_that_a_fallback_answered_costs_what_the_fallback_costs(
    app: ReplayedApp,
) -> None:
    config = (app.folder / "config.toml").read_text()
    app.write("config.toml", config.replace(OTHER, "", 1))  # the first model has no answer left
    app.write_routine("shop", f'{ROUTINE}fallback = ["other"]\n')
    async with app:
        run = await app.run("shop")
        result = await app.parts.replays.replay(run.id, prompt="What is missing?")
        assert len(app.model_named("other").calls) == 3
        assert result["usd"] == pytest.approx(
            (result["asked"]["input"] + 2 * result["asked"]["output"]) / 1e6
        )


async def test_a_spending_cap_applies_to_a_replay_with_another_model(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
    config = app.folder / "config.toml"
    app.write("config.toml", f"{config.read_text()}\n[budget]\nday = 0.0000001\n")
    async with app:
        result = await app.parts.replays.replay(run.id, model="other")
        assert not app.model_named("other").calls
        assert "cap on spending" in result["played"]["detail"]


async def test_a_changed_byte_in_the_journal_is_detected_by_replay(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        for step in await app.journal.runs.get_steps(run.id):
            where = f"WHERE run_id = '{run.id}' AND seq = {step.seq}"
            ((whole,),) = await _select_all(app, f"SELECT body FROM step {where}")
            bytewise = (
                whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
                for at in range(0, len(whole), 7)
            )
            for damaged_body in (*bytewise, "a text, as sqlite3's shell would write"):
                await _change(app, f"UPDATE step SET body = ? {where}", damaged_body)
                with pytest.raises(DaemonError, match="is not as it was written"):
                    await app.parts.replays.replay(run.id)
            await _change(app, f"UPDATE step SET body = ? {where}", whole)
        assert (await app.parts.replays.replay(run.id))["identical"]


async def _select_all(app: ReplayedApp, query: str) -> list[tuple[Any, ...]]:
    return await app.journal._db.read(lambda connection: connection.execute(query).fetchall())


async def _change(app: ReplayedApp, statement: str, *values: Any) -> None:
    await app.journal._db.write(lambda connection: connection.execute(statement, values).rowcount)


async def test_replay_refuses_another_model_together_with_another_prompt(app: ReplayedApp) -> None:
    async with app:
        run = await app.run("shop")
        with pytest.raises(Refused, match="one thing at a time"):
            await app.parts.replays.replay(run.id, model="other", prompt="x")


async def test_replay_of_a_forgotten_run_reports_that_no_step_is_left(app: ReplayedApp) -> None:
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


async def test_replay_works_without_a_daemon(
    app: ReplayedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    async with app:
        run = await app.run("shop")
    places = ["--config", str(app.folder / "config.toml"), "--state", str(app.state)]
    assert await asyncio.to_thread(main, ["replay", run.id[-8:], *places]) == 0
    assert capsys.readouterr().out.startswith(
        f"identical: shop run {run.id}, 11 steps; no model was asked"
    )
    other_path = app.folder / "other.toml"
    other_path.write_text(STRICT)
    assert (
        await asyncio.to_thread(
            main, ["replay", run.id, "--policy", str(other_path), "--json", *places]
        )
        == 1
    )
    result = json.loads(capsys.readouterr().out)
    assert (result["identical"], result["changed"]) == (False, "policy")
    assert await asyncio.to_thread(main, ["replay", "NOSUCHRUN", *places]) == 4
    assert await asyncio.to_thread(main, ["replay", run.id, "--model", "other", *places]) == 5
    assert "start the daemon" in capsys.readouterr().err
