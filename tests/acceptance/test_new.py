"""`agentctl new`: a routine file from a schedule in plain words, written once and as its author."""

from __future__ import annotations

import os
import tomllib

import pytest

from daemon.definitions.routines.folder import load_routine


@pytest.mark.process
async def test_a_routine_in_plain_words_is_written_loaded_and_due(home):
    await home.start()
    said = await home.agentctl("new", "weekly-plan", "weekdays at 9am", "--prompt", "Plan my day.")
    assert said.code == 0, said.err
    path = home.folder / "routines/weekly-plan.toml"
    assert f"wrote {path}" in said.out
    assert "it runs at 09:00 on weekdays, Europe/Berlin; next: " in said.out
    assert said.out.count(" 09:00 CE") == 3
    routine = load_routine(path)
    assert (routine.trigger.cron, routine.run.prompt) == ("0 9 * * 1-5", "Plan my day.")
    assert routine.deliver[0].path == "reports/{routine}/{slot:%Y-%m-%d}.md"
    assert path.stat().st_uid == os.getuid()
    assert [each.name for each in path.parent.iterdir()] == ["weekly-plan.toml"], (
        "nothing else is left there"
    )
    await home.agentctl("reload")
    assert "weekly-plan" in (await home.agentctl("next")).out


async def test_it_works_without_a_daemon_and_never_overwrites(home):
    assert (await home.agentd("new", "pulse", "every 2 hours")).code == 0
    path = home.folder / "routines/pulse.toml"
    before = path.read_text()
    assert "This routine is not written yet" in before
    assert "%H%M%S" in load_routine(path).deliver[0].path, "several reports a day need a file each"
    said = await home.agentd("new", "pulse", "daily at 7", "--prompt", "Other.")
    assert (said.code, said.out) == (5, "")
    assert "is there already, and nothing is overwritten" in said.err
    assert path.read_text() == before


async def test_to_stdout_nothing_is_written(home):
    said = await home.agentd(
        "new",
        "month-end",
        "on the last day of the month",
        "--stdout",
        "--prompt",
        'Say "bye".\nTwice.',
    )
    assert said.code == 0
    assert said.out.startswith("# on the last day of the month\n")
    read = tomllib.loads(said.out)
    assert read["trigger"] == {"cron": "0 0 L * *"}
    assert read["run"] == {"prompt": 'Say "bye".\nTwice.'}
    assert list((home.folder / "routines").iterdir()) == []


async def test_json_tells_where_and_when(home):
    said = await home.agentd("new", "noon", "daily at noon", "--json")
    assert said.json["file"] == str(home.folder / "routines/noon.toml")
    assert said.json["words"] == "at 12:00, Europe/Berlin"
    assert len(said.json["next"]) == 3


async def test_what_cannot_be_is_one_line_and_nothing_is_written(home):
    for words, told in (
        (("x", "now and then"), "'now and then' is not understood; write it like 'daily at 7', "),
        (("My Plan", "daily at 7"), "a routine's name is made of a-z, 0-9 and -"),
        (("../evil", "daily at 7"), "a routine's name is made of a-z, 0-9 and -"),
        (("ask", "daily at 7"), "taken by agentd"),
    ):
        said = await home.agentd("new", *words)
        assert said.code == 5, words
        assert told in said.err
        assert said.err.count("\n") == 1
    assert list((home.folder / "routines").iterdir()) == []
    assert not (home.folder / "evil.toml").exists()


async def test_a_folder_that_cannot_be_written_is_told(home):
    (home.folder / "routines").rmdir()
    home.write("routines", "a file")
    said = await home.agentd("new", "x", "daily at 7")
    assert said.code == 5
    assert "cannot be written" in said.err
