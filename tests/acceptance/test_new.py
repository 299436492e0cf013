"""`agentctl new` writes a routine file from a schedule in plain words."""

from __future__ import annotations

import os
import tomllib

import pytest

from daemon.app.main import main
from daemon.definitions.routines.folder import load_routine


@pytest.mark.slow
@pytest.mark.process
async def test_new_writes_a_routine_from_plain_words_that_loads_and_is_due(home):
    await home.start()
    result = await home.agentctl(
        "new", "weekly-plan", "weekdays at 9am", "--prompt", "Plan my day."
    )
    assert result.code == 0, result.err
    path = home.folder / "routines/weekly-plan.toml"
    assert f"wrote {path}" in result.out
    assert "it runs at 09:00 on weekdays, Europe/Berlin; next: " in result.out
    assert result.out.count(" 09:00 CE") == 3
    routine = load_routine(path)
    assert (routine.trigger.cron, routine.run.prompt) == ("0 9 * * 1-5", "Plan my day.")
    assert routine.deliver[0].path == "reports/{routine}/{slot:%Y-%m-%d}.md"
    assert path.stat().st_uid == os.getuid()
    assert [file.name for file in path.parent.iterdir()] == ["weekly-plan.toml"], (
        "nothing else is left there"
    )
    await home.agentctl("reload")
    assert "weekly-plan" in (await home.agentctl("next")).out


async def test_new_works_without_a_daemon_and_never_overwrites_a_routine(home):
    assert (await home.agentd("new", "pulse", "every 2 hours")).code == 0
    path = home.folder / "routines/pulse.toml"
    before = path.read_text()
    assert "This routine is not written yet" in before
    assert "%H%M%S" in load_routine(path).deliver[0].path, "several reports a day need a file each"
    result = await home.agentd("new", "pulse", "daily at 7", "--prompt", "Other.")
    assert (result.code, result.out) == (5, "")
    assert "is there already, and nothing is overwritten" in result.err
    assert path.read_text() == before


async def test_new_with_stdout_writes_no_file(home):
    result = await home.agentd(
        "new",
        "month-end",
        "on the last day of the month",
        "--stdout",
        "--prompt",
        'Say "bye".\nTwice.',
    )
    assert result.code == 0
    assert result.out.startswith("# on the last day of the month\n")
    routine = tomllib.loads(result.out)
    assert routine["trigger"] == {"cron": "0 0 L * *"}
    assert routine["run"] == {"prompt": 'Say "bye".\nTwice.'}
    assert list((home.folder / "routines").iterdir()) == []


async def test_new_with_stdout_prints_its_notes_beside_the_file(home):
    url = "http://127.0.0.1:1/a"
    result = await home.agentd("new", "x", "at 7", "--stdout", "--prompt", f"Read {url}.")
    assert result.code == 0 and tomllib.loads(result.out)
    assert result.err.startswith(f"note: no run reads {url}, which the prompt names: ")
    assert result.err.endswith(f"; write it again with --look {url}\n")


async def test_new_takes_either_stdout_or_json(home):
    result = await home.agentd("new", "x", "at 7", "--stdout", "--json")
    assert (result.code, result.out) == (2, "")
    assert "--stdout prints the file, which is TOML: it goes without --json" in result.err


async def test_new_with_json_prints_file_and_next_starts(home):
    result = await home.agentd("new", "noon", "daily at noon", "--json")
    assert result.json["file"] == str(home.folder / "routines/noon.toml")
    assert result.json["words"] == "at 12:00, Europe/Berlin"
    assert len(result.json["next"]) == 3


async def test_new_refuses_invalid_names_and_schedules_in_one_line(home):
    for words, code, message in (
        (("x", "now and then"), 2, "'now and then' is not understood; write it like 'daily at 7'"),
        (("My Plan", "daily at 7"), 5, "a routine's name is made of a-z, 0-9 and -"),
        (("../evil", "daily at 7"), 5, "a routine's name is made of a-z, 0-9 and -"),
        (("ask", "daily at 7"), 5, "taken by agentd"),
    ):
        result = await home.agentd("new", *words)
        assert result.code == code, words
        assert message in result.err
        assert result.err.count("\n") == 1
    assert list((home.folder / "routines").iterdir()) == []
    assert not (home.folder / "evil.toml").exists()


def test_an_error_bears_the_name_of_the_program_that_was_typed(home, capsys):
    for program in ("agentctl", "agentd"):
        assert main(["new", "x", "now and then", *home.places], program=program) == 2
        assert capsys.readouterr().err.startswith(f"{program}: 'now and then' is not understood")


async def test_new_reports_an_unwritable_folder(home):
    (home.folder / "routines").rmdir()
    home.write("routines", "a file")
    result = await home.agentd("new", "x", "daily at 7")
    assert result.code == 5
    assert "cannot be written" in result.err


async def test_new_takes_words_without_quotes_before_and_behind_options(home):
    for name, words in (
        ("a", ("every", "day", "at", "7:30", "--prompt", "Plan my day.")),
        ("b", ("--prompt", "Plan my day.", "every", "day", "at", "7:30")),
        ("c", ("every day", "--to", "file", "at", "7:30", "--prompt", "Plan my day.")),
    ):
        result = await home.agentd("new", name, *words)
        assert (result.code, result.err) == (0, "")
        assert f"try it: agentctl run {name}" in result.out
        assert load_routine(home.folder / f"routines/{name}.toml").trigger.cron == "30 7 * * *"


async def test_new_without_a_schedule_or_a_recipe_is_a_usage_error(home):
    result = await home.agentd("new", "x", "--prompt", "Plan my day.")
    assert result.code == 2
    assert "say when it runs, as in: new NAME every day at 7; or name a --recipe" in result.err


@pytest.mark.slow
@pytest.mark.process
async def test_new_writes_a_recipe_beside_the_config_of_the_daemon_and_it_runs(home):
    await home.start()
    result = await home.agentctl(
        "new", "hello", "--recipe", "mail-report", "at", "7", "--to", "log"
    )
    assert result.code == 0, result.err
    assert "its reports go to log\n" in result.out
    assert (await home.agentctl("run", "hello")).code in (0, 1)
    assert "hello" in (await home.agentctl("list")).out
