"""Whoever asks how a verb is used is shown it: every help ends with examples, and every example is
read by its verb.
"""

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

from daemon.app import main as agentd
from daemon.app.commands import logs
from daemon.app.commands.policy_arguments import add_policy_verbs
from daemon.cli import memory
from daemon.cli.examples import EXAMPLES
from daemon.cli.main import main
from daemon.cli.verbs import VERBS
from tests.api.harness import ApiHarness
from tests.cli.agentctl import COMMAND, agentctl, environment, start

OWN = ("memory", "logs", "policy", "help")


def below(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """Yield a parser and those of its verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            yield from action.choices.values()


def policy() -> ArgumentParser:
    from daemon.cli.parser import Parser

    parser = Parser(prog="agentd policy")
    for each in add_policy_verbs(parser):
        agentd.add_location_options(each, of_verb=True)
    return parser


PARSERS = {
    parser.prog: parser
    for whole in (agentd.build_parser(), memory._parser(), policy(), logs._parser())
    for parser in below(whole)
    if parser.prog != "agentd logs"
}


@pytest.mark.parametrize("prog", sorted(PARSERS))
def test_the_help_of_agentds_verbs_and_of_verbs_of_verbs_has_an_example(prog: str) -> None:
    assert "\nExample" in PARSERS[prog].format_help() or prog == "agentd policy"


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if not verb.parses_itself])
def test_the_help_of_every_verb_has_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    told = capsys.readouterr().out
    assert end.value.code == 0 and "\nExample" in told and f"\n  agentctl {name}" in told


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_done_by_a_function_of_one_call(name: str) -> None:
    module, _, function = VERBS[name].entry_point.partition(":")
    act = getattr(importlib.import_module(f"daemon.{module}"), function)
    assert list(inspect.signature(act).parameters) == ["call"] and act.__doc__


@pytest.mark.parametrize(
    "words", [("memory", "--help"), ("memory", "pin", "--help"), ("logs", "-f", "--help")]
)
def test_verbs_that_read_their_own_words_have_examples_too(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        main(list(words))
    assert "\nExample" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("logs", "--help"), ("policy", "--help"), ("policy", "check", "--help")]
)
def test_agentd_hands_the_words_behind_such_a_verb_on(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        agentd.main(list(words))
    assert "\nExample" in capsys.readouterr().out


LINES = [line for lines in EXAMPLES.values() for line, _ in lines]


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_every_example_is_a_command_line_that_is_understood(line: str) -> None:
    program, *words = shlex.split(line)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            understood(program, words)
        except SystemExit as end:
            pytest.fail(f"exit {end.code}: {said.getvalue()}")


def understood(program: str, words: list[str]) -> None:
    verb, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("", words)
    if program == "agentctl" and verb not in OWN and not VERBS[verb].parses_itself:
        VERBS[verb].parse(verb, rest)
    elif verb == "memory":
        memory._parser().parse_args(rest)
    elif verb == "logs":
        logs._parser().parse_args(rest)
    elif verb == "policy":
        policy().parse_args(rest)
    elif verb == "help":
        assert rest[0] in VERBS
    else:
        agentd.build_parser().parse_args(words)


def test_there_is_no_example_of_what_does_not_exist() -> None:
    known = {f"agentctl {name}" for name in VERBS} | PARSERS.keys()
    assert EXAMPLES.keys() <= known


async def test_events_come_as_they_happen_for_people_and_for_programs(harness: ApiHarness) -> None:
    people = await start(harness.path, "events", "daily-report")
    programs = await start(harness.path, "events", "--json")
    assert people.stdout is not None and programs.stdout is not None
    heard = [
        asyncio.create_task(each.stdout.readline()) for each in (people, programs) if each.stdout
    ]
    async with asyncio.timeout(60):
        while not all(each.done() for each in heard):  # whoever listens later hears of a later run
            await harness.complete_run()
            await asyncio.wait(heard, timeout=0.2)
    line, record = (each.result().decode() for each in heard)
    assert "daily-report" in line and json.loads(record)["type"]
    for process in (people, programs):
        process.terminate()
        await process.wait()
    slip = await agentctl(harness.path, "events", "dialy-report")
    assert slip.code == 4


async def test_a_newcomer_is_told_the_next_step_at_every_turn(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    nobody = await asyncio.create_subprocess_exec(
        *COMMAND, "list", cwd=home, env=environment(home, STATE_DIRECTORY=str(home)),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,  # noqa: E501
    )  # fmt: skip
    _, said = await nobody.communicate()
    assert (
        nobody.returncode == 3
        and b"init` writes one to ~/.config/agentd; then\nStart it with: " in said
    )


async def test_without_routines_each_verb_says_how_to_get_one(harness: ApiHarness) -> None:
    harness.engine.routines.clear()
    for words in (["list"], ["next"], ["run", "tidy"], ["status"]):
        told = await agentctl(harness.path, *words)
        assert "agentctl new " in told.out + told.err, words
    assert "agentctl run ROUTINE" in (await agentctl(harness.path, "runs")).out
