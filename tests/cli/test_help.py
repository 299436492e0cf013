"""Every help text ends with examples, and every example is a valid command line."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import io
import json
import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app import main as agentd
from daemon.app.commands import logs
from daemon.app.commands.new_arguments import build_new_parser
from daemon.cli import memory
from daemon.cli.examples import EXAMPLES
from daemon.cli.help import group_all_verbs
from daemon.cli.main import main
from daemon.cli.verbs import COMMON_VERBS, SYNONYMS, VERBS
from tests.api.harness import ApiHarness
from tests.cli.agentctl import COMMAND, agentctl, environment, on_terminal, start
from tests.command_parsers import parse_command_line, policy_parser


def below(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """Yield a parser and those of its verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            yield from action.choices.values()


PARSERS = {
    parser.prog: parser
    for whole in (
        agentd.build_parser(),
        memory._make_parser(),
        policy_parser(),
        logs._parser(),
        build_new_parser(),
    )
    for parser in below(whole)
    if parser.prog != "agentd logs"
}


@pytest.mark.parametrize("prog", sorted(PARSERS))
def test_the_help_of_every_agentd_command_has_an_example(prog: str) -> None:
    assert "\nExample" in PARSERS[prog].format_help() or prog == "agentd policy"


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if not verb.parses_itself])
def test_the_help_of_every_verb_has_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    help_text = capsys.readouterr().out
    assert end.value.code == 0 and "\nExample" in help_text and f"\n  agentctl {name}" in help_text


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_an_entry_point_with_one_parameter(name: str) -> None:
    module, _, function = VERBS[name].entry_point.partition(":")
    act = getattr(importlib.import_module(f"daemon.{module}"), function)
    assert list(inspect.signature(act).parameters) == ["call"] and act.__doc__


@pytest.mark.parametrize(
    "words", [("memory", "--help"), ("memory", "pin", "--help"), ("logs", "-f", "--help")]
)
def test_verbs_that_parse_their_arguments_have_examples(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        main(list(words))
    assert "\nExample" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [("logs", "--help"), ("new", "--help"), ("policy", "--help"), ("policy", "check", "--help")],
)
def test_agentd_passes_arguments_to_verbs_that_parse_them(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        agentd.main(list(words))
    assert "\nExample" in capsys.readouterr().out


LINES = [line for lines in EXAMPLES.values() for line, _ in lines]


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_every_example_is_a_valid_command_line(line: str) -> None:
    program, *words = shlex.split(line)
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            parse_command_line(program, words)
        except SystemExit as end:
            pytest.fail(f"exit {end.code}: {errors.getvalue()}")


def test_every_example_is_of_an_existing_command() -> None:
    programs = {f"agentctl {name}" for name in VERBS} | PARSERS.keys()
    assert EXAMPLES.keys() <= programs


async def test_agentctl_events_prints_events_for_people_and_as_json(harness: ApiHarness) -> None:
    people = await start(harness.path, "events", "daily-report")
    programs = await start(harness.path, "events", "--json")
    assert people.stdout is not None and programs.stdout is not None
    first_lines = [
        asyncio.create_task(process.stdout.readline())
        for process in (people, programs)
        if process.stdout
    ]
    async with asyncio.timeout(60):
        # whoever listens later hears of a later run
        while not all(line_task.done() for line_task in first_lines):
            await harness.complete_run()
            await asyncio.wait(first_lines, timeout=0.2)
    line, record = (line_task.result().decode() for line_task in first_lines)
    assert "daily-report" in line and json.loads(record)["type"]
    for process in (people, programs):
        process.terminate()
        await process.wait()
    slip = await agentctl(harness.path, "events", "dialy-report")
    assert slip.code == 4


async def test_without_a_daemon_help_and_errors_name_the_next_step(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "list", cwd=home, env=environment(home, STATE_DIRECTORY=str(home)),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,  # noqa: E501
    )  # fmt: skip
    _, output = await process.communicate()
    assert (
        process.returncode == 3
        and b"init` writes one to ~/.config/agentd; then\nStart it with: " in output
    )


async def test_without_routines_each_verb_names_agentctl_new(harness: ApiHarness) -> None:
    harness.engine.routines.clear()
    for words in (["list"], ["next"], ["run", "tidy"], ["status"]):
        help_text = await agentctl(harness.path, *words)
        assert "agentctl new " in help_text.out + help_text.err, words
    assert "agentctl run ROUTINE" in (await agentctl(harness.path, "runs")).out


async def test_help_shows_ten_verbs_in_four_groups_and_all_others_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    few = (await on_terminal(tmp_path / "none", columns=80, env=plain)).out
    assert (await on_terminal(tmp_path / "none", "help", columns=80, env=plain)).out == few
    every = (await on_terminal(tmp_path / "none", "help", "--all", env=plain)).out
    assert {line.split()[0] for line in few.splitlines() if line.startswith("  ")} == {
        name for names in COMMON_VERBS.values() for name in names
    }
    assert sum(map(len, COMMON_VERBS.values())) == 10
    lines = few.splitlines()
    assert len(lines) <= 22 and max(map(len, lines)) <= 80, "one screen of 24 lines"
    assert all(f"\n{group}\n" in few and f"\n{group}\n" in every for group in COMMON_VERBS)
    for name in VERBS:
        assert every.count(f"\n  {name:<12}") == 1, name
    assert "Exit codes:" in every and f"shows {len(VERBS) - 10} more verbs" in few
    assert main([]) == 0  # into a pipe
    output = capsys.readouterr().out
    assert all(f"\n  {name:<12}" in output for name in VERBS)


def test_every_common_verb_is_of_its_group() -> None:
    by_group = group_all_verbs()
    for group, names in COMMON_VERBS.items():
        assert set(names) <= set(by_group[group])
    assert sorted(name for names in by_group.values() for name in names) == sorted(VERBS)


@pytest.mark.parametrize("word", sorted(SYNONYMS))
def test_a_word_of_other_programs_names_the_verb_and_runs_nothing(
    word: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert word not in VERBS
    assert main(["--socket", str(tmp_path / "none"), word, "daily-report"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and f"there is no verb {word!r}; " in output.err
    for command in SYNONYMS[word]:
        assert f"`{command}`" in output.err
        program, verb, *_ = command.split()
        assert verb in VERBS if program == "agentctl" else verb == "init"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["restart", "restrat"])
def test_restart_never_suggests_restore(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    error = capsys.readouterr().err
    assert "agentctl stop" in error and "restore" not in error


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_unknown_verb_fails_otherwise_than_by_a_sentence(word: str) -> None:
    if word in VERBS or word.startswith("-") or not word:
        return
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        assert main([word]) == 2
    assert errors.getvalue().startswith("agentctl: there is no verb")


@pytest.mark.parametrize("name", [name for name in VERBS if name != "help"])
async def test_the_usage_of_every_verb_says_agentctl(name: str, tmp_path: Path) -> None:
    result = await agentctl(tmp_path / "none", "help", name)
    assert (result.code, result.err) == (0, "") and "usage: agentd" not in result.out
    usage, _, description = result.out.partition("\n\n")
    assert usage.startswith(f"usage: agentctl {name} ")
    assert not description.startswith(("options:", "positional arguments:")), "it has a description"


@pytest.mark.parametrize("name", ["ui", "top", "completion"])
async def test_verbs_without_json_do_not_offer_it(name: str, tmp_path: Path) -> None:
    assert "--json" not in (await agentctl(tmp_path / "none", "help", name)).out


@pytest.mark.parametrize(
    ("arguments", "expectation"),
    [
        (["logs", "-n", "x"], "expected a whole number (found 'x')"),
        (["logs", "-n", "0"], "must be at least 1 (found '0')"),
        (["next", "--days", "1.5"], "expected a whole number (found '1.5')"),
        (["memory", "search", "x", "--limit", "many"], "expected a whole number (found 'many')"),
        (["next", "--days", "9" * 5_000], f"expected a whole number (found '{'9' * 80}')"),
        (["stop", "--timeout", "soon"], "expected a duration, like 30s or 2m (found 'soon')"),
        (["stop", "--timeout", "9999999999"], "'9999999999' is longer than ten years"),
        (["stop", "--timeout", "1e300"], "'1e300' is longer than ten years"),
        (["stop", "--timeout", "nan"], "expected a duration, like 30s or 2m (found 'nan')"),
        (["stop", "--timeout", "9999 weeks"], "'9999 weeks' is longer than ten years"),
        (["stop", "--timeout=-1"], "expected a duration, like 30s or 2m (found '-1')"),
    ],
)
async def test_a_number_or_duration_that_is_none_is_refused_with_what_is_expected(
    tmp_path: Path, arguments: list[str], expectation: str
) -> None:
    result = await agentctl(tmp_path / "none.sock", *arguments)
    assert result.code == 2
    assert result.err.endswith(f": {expectation}\n")
