"""A frozen run is a folder with checksums: any changed byte is detected."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.main import main
from daemon.cli.call import DONE, REFUSED
from daemon.cli.render import stderr_stream, stdout_stream
from daemon.cli.replay import write_frozen_run
from daemon.errors import DaemonError, NotFound, Refused
from daemon.runs.replay.folder import FORMAT, SUMS, _sums, read_frozen_run
from daemon.runs.replay.play import replay
from tests.properties import scaled_settings
from tests.replaying import ReplayedApp

SECRET = "hunter2-is-a-long-secret"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was frozen."""
    from tests.runs.replay.conftest import POLICY, REPLIES, ROUTINE

    folder = tmp_path_factory.mktemp("frozen")
    app = ReplayedApp(folder)
    app.write(
        "config.toml",
        f'provider = "fake"\n[providers.fake]\nkind = "scripted"\nreplies = [{REPLIES}]\n',
    )
    app.write("policy.toml", POLICY)
    app.write_routine("shop", ROUTINE.replace("what to buy", f"what to buy with {SECRET}"))
    (app.state / "workspace").mkdir(parents=True, mode=0o700)
    (app.state / "workspace" / "notes.txt").write_text("buy milk\n")

    async def freeze() -> None:
        async with app:
            run = await app.run("shop")
            app.daemon.installation.secrets.add(SECRET)
            files = await app.parts.replays.freeze(run.id, "shop-case")
            cassette = {"run": run.id, "files": files}
            assert (
                write_frozen_run(stdout_stream(), stderr_stream(), cassette, str(folder / "case"))
                == DONE
            )
            await app.journal._db.write(
                lambda connection: connection.execute("DELETE FROM step").rowcount
            )
            await app.journal._db.write(
                lambda connection: connection.execute("DELETE FROM run").rowcount
            )

    asyncio.run(freeze())
    shutil.rmtree(app.state)
    return folder / "case"


async def test_a_frozen_run_is_replayed_from_its_folder_alone(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["replay", str(case)]) == 0
    assert capsys.readouterr().out.startswith("identical: shop run ")
    assert sorted(path.suffix for path in case.iterdir()) == sorted(
        [".json"] * 3 + [".md"] * 3 + [".toml"] + [""]
    )


def test_secrets_are_redacted_in_a_frozen_run(case: Path) -> None:
    assert not [path for path in case.iterdir() if SECRET in path.read_text()]
    assert "[redacted]" in (case / "case.json").read_text()


@scaled_settings(300)
@given(data=st.data())
def test_any_changed_byte_of_a_frozen_run_is_detected(case: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(case.iterdir())))
    whole = path.read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    mask = data.draw(st.integers(1, 255))
    try:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ mask]) + whole[position + 1 :])
        with pytest.raises(DaemonError, match="is not what was frozen"):
            read_frozen_run(case)
    finally:
        path.write_bytes(whole)


def test_any_change_of_the_checksum_list_is_detected(case: Path) -> None:
    sums = (case / SUMS).read_bytes()
    try:
        for number in range(len(sums)):
            shorter, longer = (
                sums[:number] + sums[number + 1 :],
                sums[:number] + b"a" + sums[number:],
            )
            upper = sums[:number] + sums[number : number + 1].upper() + sums[number + 1 :]
            for changed_sums in {shorter, longer, upper} - {sums}:
                (case / SUMS).write_bytes(changed_sums)
                with pytest.raises(DaemonError, match="is not what was frozen"):
                    read_frozen_run(case)
    finally:
        (case / SUMS).write_bytes(sums)


def reseal(case: Path, folder: Path, **texts: str) -> Path:
    """Return a copy of a case in which somebody has changed files and their sums."""
    other_path = folder / "resealed"
    shutil.copytree(case, other_path)
    for name, text in texts.items():
        (other_path / name.replace("_", ".")).write_text(text)
    contents = {path.name: path.read_bytes() for path in other_path.iterdir() if path.name != SUMS}
    (other_path / SUMS).write_text(_sums(contents))
    return other_path


async def test_replay_of_a_frozen_run_with_another_outcome_exits_with_1(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed_case = reseal(case, tmp_path, report_md="Buy beer.")
    assert await asyncio.to_thread(main, ["replay", str(changed_case)]) == 1
    assert "the report differs" in capsys.readouterr().out
    (changed_case / "report.md").write_text("Buy milk.")
    assert await asyncio.to_thread(main, ["replay", str(changed_case)]) == 1
    assert "report.md was changed" in capsys.readouterr().err


async def test_a_difference_names_iteration_and_call_of_its_step(
    case: Path, tmp_path: Path
) -> None:
    steps = json.loads((case / "steps.json").read_text())
    (step,) = [step for step in steps if step["kind"] == "result" and step["call_id"] == "2.1"]
    step["body"]["text"] = "gone"
    outcome = await replay(read_frozen_run(reseal(case, tmp_path, steps_json=json.dumps(steps))))
    (difference,) = outcome.differences
    assert (difference.seq, difference.at) == (step["seq"], "iteration 2, 2.1 (shell)")
    assert "-gone\n+[error] denied by default" in difference.diff


def test_a_frozen_run_of_a_newer_format_is_refused(case: Path, tmp_path: Path) -> None:
    cassette = json.loads((case / "case.json").read_text()) | {
        "format": FORMAT + 1,
        "agentd": "9.9",
    }
    with pytest.raises(
        Refused, match=f"has format {FORMAT + 1}, written by agentd 9.9.*replay it with a newer one"
    ):
        read_frozen_run(reseal(case, tmp_path, case_json=json.dumps(cassette)))


def test_a_folder_without_a_frozen_run_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is no frozen run"):
        read_frozen_run(tmp_path)


def test_freezing_into_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    cassette = {"run": "x", "files": {"a.md": "b"}}
    assert write_frozen_run(stdout_stream(), stderr_stream(), cassette, str(tmp_path)) == REFUSED
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
