"""The edges of a command line: odd names, closed and full outputs, what is asked for in passing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.api.harness import ApiHarness
from tests.cli.agentctl import COMMAND, agentctl, environment


async def test_last_is_the_last_run_of_all(harness: ApiHarness) -> None:
    nothing = await agentctl(harness.path, "inspect", "last")
    assert (nothing.code, nothing.err) == (4, "agentctl: nothing has run yet\n")
    await harness.complete_run()
    run = await harness.complete_run()
    for name in ("last", "daily-report"):
        assert (await agentctl(harness.path, "inspect", name)).out.startswith(
            f"✓ daily-report  run {run.id}"
        )
        over = await agentctl(harness.path, "cancel", name)
        assert over.code == 5 and run.id[-8:] in over.err


@pytest.mark.parametrize("name", ["a/b", "../etc", "..", "a%2Fb", "ü", "a b", "?", "#"])
async def test_a_name_that_nothing_can_have_is_the_name_of_nothing(
    harness: ApiHarness, name: str
) -> None:
    for verb in ("show", "inspect", "pause"):
        said = await agentctl(harness.path, verb, name)
        assert said.code == 4, (verb, said.err)
        assert said.err.startswith("agentctl: there is no r")


async def test_nothing_has_an_empty_name(harness: ApiHarness) -> None:
    said = await agentctl(harness.path, "show", "")
    assert (said.code, said.err) == (4, "agentctl: nothing has an empty name\n")


async def test_what_is_named_is_named_as_it_was_written(harness: ApiHarness) -> None:
    said = await agentctl(harness.path, "cancel", "nightly")
    assert said.err == "agentctl: there is no run 'nightly'; `agentctl runs` shows what there is\n"


async def test_an_option_without_its_value_is_said(harness: ApiHarness) -> None:
    said = await agentctl(harness.path, "--socket")
    assert (said.code, said.err) == (2, "agentctl: --socket needs a path behind it\n")


async def test_a_log_without_what_was_asked_for_says_so(
    harness: ApiHarness, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/agentd.jsonl").write_text(
        '{"at": "2026-11-20T09:00:00Z", "level": "info", "event": "x"}\n'
    )
    said = await agentctl(harness.path, "logs", "--state", str(tmp_path), "--routine", "nope")
    assert (said.code, said.out) == (0, "")
    assert "no line of" in said.err
    assert (await agentctl(harness.path, "logs", "--state", str(tmp_path), "-n", "0")).code == 2


@pytest.mark.parametrize("verb", ["list", "help", "inspect last --full"])
async def test_an_output_without_room_is_one_line_and_a_closed_one_none(
    harness: ApiHarness, verb: str
) -> None:
    await harness.complete_run()
    env = environment(harness.path.parent, AGENTD_SOCKET=str(harness.path))
    for redirection, code, told in (
        (
            ">/dev/full",
            1,
            "agentctl: what it has to say cannot be written: No space left on device\n",
        ),
        (">&-", 0, ""),
    ):
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            f'exec "$@" {redirection}',
            "sh",
            *COMMAND,
            *verb.split(),
            env=env,
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await process.communicate()
        assert (process.returncode, err.decode()) == (code, told), redirection
