"""Edge cases of agentctl: odd names, closed and full outputs, missing values."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from daemon.cli.call import hint_for_more
from tests.api.harness import ApiHarness, ask
from tests.cli.agentctl import COMMAND, agentctl, environment


async def test_last_names_the_last_run(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "inspect", "last")
    assert (result.code, result.err) == (4, "agentctl: nothing has run yet\n")
    await harness.complete_run()
    run = await harness.complete_run()
    for name in ("last", "daily-report"):
        assert (await agentctl(harness.path, "inspect", name)).out.startswith(
            f"✓ daily-report  run {run.id}"
        )
        over = await agentctl(harness.path, "cancel", name)
        assert over.code == 5 and run.id[-8:] in over.err


@pytest.mark.parametrize("name", ["a/b", "../etc", "..", "a%2Fb", "ü", "a b", "?", "#"])
async def test_an_impossible_name_is_not_found(harness: ApiHarness, name: str) -> None:
    for verb in ("show", "inspect", "pause"):
        result = await agentctl(harness.path, verb, name)
        assert result.code == 4, (verb, result.err)
        assert result.err.startswith("agentctl: there is no r")


@pytest.mark.parametrize("verb", ["show", "runs", "slots", "next", "report", "events"])
async def test_an_empty_name_is_not_found(harness: ApiHarness, verb: str) -> None:
    result = await agentctl(harness.path, verb, "")
    assert (result.code, result.err) == (4, "agentctl: nothing has an empty name\n")


@pytest.mark.parametrize("name", ["key", "query", "run", "routine", "before"])
async def test_an_empty_condition_has_nothing_forgotten(harness: ApiHarness, name: str) -> None:
    # the harness has no memory: a request that is not refused at once fails
    other = "run" if name == "routine" else "routine"
    options = (f"--{other}", "news", f"--{name}", "", "--yes")
    result = await agentctl(harness.path, "memory", "forget", *options)
    assert (result.code, result.err) == (2, f"agentctl: '{name}': expected text (found '')\n")
    body = json.dumps({other: "news", name: " ", "confirm": "c"}).encode()
    answer = await ask(harness.path, "POST", "/v1/memory/forget", body)
    assert answer.status == 422
    assert answer.json["detail"] == f"'{name}': expected text (found ' ')"


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "--status"),
        ("deliveries", "--status"),
        ("deliveries", "--run"),
        ("audit", "--run"),
        ("approvals", "--revoke"),
        ("approvals",),
        ("quarantine",),
    ],
)
async def test_an_empty_option_lists_nothing(harness: ApiHarness, words: tuple[str, ...]) -> None:
    result = await agentctl(harness.path, *words, "")
    assert (result.code, result.out) == (4, "")
    assert result.err == "agentctl: nothing has an empty name\n"


@pytest.mark.parametrize("path", ["approvals", "deliveries", "audit"])
async def test_an_empty_id_is_that_of_no_run(harness: ApiHarness, path: str) -> None:
    answer = await ask(harness.path, "GET", f"/v1/{path}?run=")
    assert (answer.status, answer.json["code"]) == (404, "not_found")


async def test_a_name_that_is_too_long_for_a_path_is_not_found(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "replay", "a" * 5000)
    assert result.code == 4
    assert result.err.startswith("agentctl: there is no run 'aaaa")


def test_the_hint_for_more_runs_names_a_number_that_is_taken() -> None:
    assert hint_for_more(20, "name a routine") == "-n 100 shows them"
    assert hint_for_more(300, "name a routine") == "-n 1000 shows them"
    assert hint_for_more(1000, "name a routine") == "name a routine"


async def test_what_cannot_be_imported_or_exported_is_told_in_one_line(
    harness: ApiHarness, tmp_path: Path
) -> None:
    long_line = tmp_path / "long.jsonl"
    long_line.write_text("x" * 3_000_000)
    result = await agentctl(harness.path, "memory", "import", str(long_line))
    assert (result.code, result.err) == (2, "agentctl: the body is over 1000000 bytes\n")
    result = await agentctl(harness.path, "memory", "import", "")
    assert (result.code, result.err) == (1, "agentctl: '': No such file or directory\n")
    result = await agentctl(harness.path, "memory", "export", "")
    assert (result.code, result.err) == (1, "agentctl: '': No such file or directory\n")
    result = await agentctl(harness.path, "memory", "export", str(long_line))
    assert result.code == 1
    assert result.err.endswith("is there already; name another file, or take that one away\n")


async def test_an_unknown_run_is_named_as_typed(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "cancel", "nightly")
    assert (
        result.err == "agentctl: there is no run 'nightly'; `agentctl runs` shows what there is\n"
    )


async def test_an_option_without_its_value_is_a_usage_error(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "--socket")
    assert (result.code, result.err) == (2, "agentctl: --socket needs a path behind it\n")


async def test_logs_without_matching_lines_report_it(harness: ApiHarness, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/agentd.jsonl").write_text(
        '{"at": "2026-11-20T09:00:00Z", "level": "info", "event": "x"}\n'
    )
    result = await agentctl(harness.path, "logs", "--state", str(tmp_path), "--routine", "nope")
    assert (result.code, result.out) == (0, "")
    assert "no line of" in result.err
    assert (await agentctl(harness.path, "logs", "--state", str(tmp_path), "-n", "0")).code == 2


@pytest.mark.parametrize("verb", ["list", "help", "inspect last --full"])
async def test_a_full_output_is_reported_in_one_line_and_a_closed_output_is_not(
    harness: ApiHarness, verb: str
) -> None:
    await harness.complete_run()
    env = environment(harness.path.parent, AGENTD_SOCKET=str(harness.path))
    for redirection, code, message in (
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
        assert (process.returncode, err.decode()) == (code, message), redirection
