"""A routine is rehearsed, approved, run, replayed and frozen with the real daemon and agentctl."""

import pytest

from tests.acceptance.story import Home

CONFIG = """
provider = "fake"
[providers.fake]
kind = "scripted"
replies = [REPLIES]
"""
REPLIES = """
  { text = "I look.", tool_calls = [{ name = "file_read", arguments = { path = "notes.txt" } }] },
  { text = "I keep it.", tool_calls = [{ name = "file_write", arguments = { path = "list.md", content = "milk" } }] },
  "Buy milk.",
"""  # noqa: E501
POLICY = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "allow"
[routine.shop]
tainted_tools = ["file_write"]
"""
ROUTINE = """
[run]
mode = "agent"
prompt = "What is to be bought?"
tools = ["file_read", "file_write"]
rehearse_first = true
"""


@pytest.mark.process
async def test_a_routine_is_rehearsed_approved_replayed_and_frozen(home: Home, tmp_path) -> None:
    home.write("config.toml", CONFIG.replace("REPLIES", REPLIES * 3))
    home.write("policy.toml", POLICY)
    home.routine("shop", ROUTINE)
    home.workspace.mkdir(parents=True, mode=0o700)
    home.state.chmod(0o700)
    (home.workspace / "notes.txt").write_text("milk\n")
    (home.workspace / "notes.txt").chmod(0o644)
    await home.start()

    result = await home.agentctl("run", "shop")
    assert (result.code, "agentctl rehearse shop" in result.err) == (5, True)
    assert "shop is held back until a rehearsal was approved" in (await home.agentctl("list")).out
    assert "held back" in (await home.agentctl("why", "shop")).out
    rehearsal_result = await home.agentctl("rehearse", "shop")
    assert rehearsal_result.code == 0, rehearsal_result.err
    assert "would write list.md (4 bytes), a new file" in rehearsal_result.out
    assert "nothing was written, sent or started" in rehearsal_result.out
    assert not (home.workspace / "list.md").exists()
    rehearsal = rehearsal_result.out.split("--approve ")[1].strip()
    assert "as it was rehearsed" in (await home.agentctl("rehearse", "--approve", rehearsal)).out

    assert (await home.agentctl("run", "shop")).out == "Buy milk.\n"
    assert (home.workspace / "list.md").read_text() == "milk"
    (run,) = (await home.agentctl("--json", "runs", "shop")).json["items"]
    replay = await home.agentctl("replay", run["id"])
    assert (replay.code, replay.out.startswith("identical: shop run")) == (0, True), replay.err
    (home.folder / "strict.toml").write_text(
        'version = 1\n[[rule]]\ntool = "file_read"\neffect = "allow"\n'
    )
    other_result = await home.agentctl("replay", run["id"], "--policy", "strict.toml")
    assert (other_result.code, "→ deny by default" in other_result.out) == (1, True), (
        other_result.err
    )
    assert (await home.agentctl("replay", "nothere")).code == 4

    case = tmp_path / "case"
    freeze_result = await home.agentctl("freeze", run["id"], case)
    assert freeze_result.code == 0, freeze_result.err
    assert (
        await home.agentctl("freeze", run["id"], case)
    ).code == 5  # a folder with something in it is left alone
    await home.stop()
    assert (await home.agentctl("replay", case)).code == 0
    (case / "report.md").write_text("Buy beer.")
    damaged_replay = await home.agentctl("replay", case)
    assert (damaged_replay.code, "report.md was changed" in damaged_replay.err) == (1, True)
    offline = await home.agentd("replay", run["id"])
    assert (offline.code, offline.out.startswith("identical")) == (0, True), offline.err
    model_replay = await home.agentctl("replay", run["id"], "--model", "fake")
    assert (model_replay.code, "no daemon answers" in model_replay.err) == (3, True)
