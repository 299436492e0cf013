"""A frozen run is a folder that proves itself: any byte that is not as it was is noticed."""

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
from daemon.runs.replay.folder import FORMAT, SUMS, _sums, read_case
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
            told = {"run": run.id, "files": files}
            assert (
                write_frozen_run(stdout_stream(), stderr_stream(), told, str(folder / "case"))
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


async def test_a_case_needs_nothing_besides_itself(
    case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["replay", str(case)]) == 0
    assert capsys.readouterr().out.startswith("identical: shop run ")
    assert sorted(path.suffix for path in case.iterdir()) == sorted(
        [".json"] * 3 + [".md"] * 3 + [".toml"] + [""]
    )


def test_secrets_are_taken_out_before_anything_is_written(case: Path) -> None:
    assert not [path for path in case.iterdir() if SECRET in path.read_text()]
    assert "[redacted]" in (case / "case.json").read_text()


@scaled_settings(300)
@given(data=st.data())
def test_any_byte_that_was_changed_is_noticed(case: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(case.iterdir())))
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(1, 255))
    try:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ other]) + whole[place + 1 :])
        with pytest.raises(DaemonError, match="is not what was frozen"):
            read_case(case)
    finally:
        path.write_bytes(whole)


def test_no_byte_of_the_list_itself_can_be_changed_dropped_or_added(case: Path) -> None:
    listed = (case / SUMS).read_bytes()
    try:
        for place in range(len(listed)):
            dropped, added = (
                listed[:place] + listed[place + 1 :],
                listed[:place] + b"a" + listed[place:],
            )
            upper = listed[:place] + listed[place : place + 1].upper() + listed[place + 1 :]
            for changed in {dropped, added, upper} - {listed}:
                (case / SUMS).write_bytes(changed)
                with pytest.raises(DaemonError, match="is not what was frozen"):
                    read_case(case)
    finally:
        (case / SUMS).write_bytes(listed)


def resealed(case: Path, folder: Path, **changed: str) -> Path:
    """Return a copy of a case in which somebody has changed files and their sums."""
    other = folder / "resealed"
    shutil.copytree(case, other)
    for name, text in changed.items():
        (other / name.replace("_", ".")).write_text(text)
    contents = {path.name: path.read_bytes() for path in other.iterdir() if path.name != SUMS}
    (other / SUMS).write_text(_sums(contents))
    return other


async def test_an_outcome_that_changed_is_exit_1(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = resealed(case, tmp_path, report_md="Buy beer.")
    assert await asyncio.to_thread(main, ["replay", str(other)]) == 1
    assert "the report differs" in capsys.readouterr().out
    (other / "report.md").write_text("Buy milk.")
    assert await asyncio.to_thread(main, ["replay", str(other)]) == 1
    assert "report.md was changed" in capsys.readouterr().err


async def test_a_step_that_was_changed_is_told_by_its_place(case: Path, tmp_path: Path) -> None:
    steps = json.loads((case / "steps.json").read_text())
    (step,) = [step for step in steps if step["kind"] == "result" and step["call_id"] == "2.1"]
    step["body"]["text"] = "gone"
    outcome = await replay(read_case(resealed(case, tmp_path, steps_json=json.dumps(steps))))
    (difference,) = outcome.differences
    assert (difference.seq, difference.at) == (step["seq"], "iteration 2, 2.1 (shell)")
    assert "-gone\n+[error] denied by default" in difference.diff


def test_a_format_of_the_future_is_refused_clearly(case: Path, tmp_path: Path) -> None:
    told = json.loads((case / "case.json").read_text()) | {"format": FORMAT + 1, "agentd": "9.9"}
    with pytest.raises(
        Refused, match=f"has format {FORMAT + 1}, written by agentd 9.9.*replay it with a newer one"
    ):
        read_case(resealed(case, tmp_path, case_json=json.dumps(told)))


def test_a_folder_that_is_no_case_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is no frozen run"):
        read_case(tmp_path)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    told = {"run": "x", "files": {"a.md": "b"}}
    assert write_frozen_run(stdout_stream(), stderr_stream(), told, str(tmp_path)) == REFUSED
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
