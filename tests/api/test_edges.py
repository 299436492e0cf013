"""Edge cases of agentctl: odd names, closed and full outputs, missing values."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from daemon.cli.call import hint_for_more
from tests.api.harness import ApiHarness, ask
from tests.cli.agentctl import COMMAND, ROOT, agentctl, agentctl_process, environment


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
    assert result.code == 2
    assert result.err.endswith(
        f"agentctl memory forget: error: argument --{name}: must not be empty\n"
    )
    body = json.dumps({other: "news", name: " ", "confirm": "c"}).encode()
    answer = await ask(harness.path, "POST", "/v1/memory/forget", body)
    assert answer.status == 422
    assert answer.json["detail"] == f"'{name}': expected text (found ' ')"


@pytest.mark.parametrize(
    "words",
    [
        "runs --status",
        "deliveries --status",
        "deliveries --run",
        "audit --run",
        "approvals --revoke",
        "ask how --session",
        "inspect last --html",
        "metrics --textfile",
        "list --socket",
        "logs --routine",
        "logs --run",
        "logs --since",
        "new daily every day at 7 --to",
        "new daily every day at 7 --look",
        "validate --config",
        "backup",
        "import-crontab",
    ],
)
async def test_an_empty_option_or_file_is_refused(
    harness: ApiHarness, tmp_path: Path, words: str
) -> None:
    await harness.complete_run()
    result = await agentctl(harness.path, *words.split(), "", env={"AGENTD_STATE": str(tmp_path)})
    assert (result.code, result.out) == (2, "")
    last_line = result.err.splitlines()[-1]
    assert last_line.startswith("agentctl ") and last_line.endswith(": must not be empty")


@pytest.mark.parametrize("words", [("--socket", ""), ("--socket=",), ("logs", "--socket", "")])
async def test_an_empty_socket_is_none(harness: ApiHarness, words: tuple[str, ...]) -> None:
    result = await agentctl(harness.path, *words)
    assert (result.code, result.err) == (2, "agentctl: --socket needs a path behind it\n")


@pytest.mark.parametrize("verb", ["approvals", "quarantine"])
async def test_an_empty_id_lists_nothing(harness: ApiHarness, verb: str) -> None:
    result = await agentctl(harness.path, verb, "")
    assert (result.code, result.out) == (4, "")
    assert result.err == "agentctl: nothing has an empty name\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("runs -n 0", "-n: expected a number from 1 to 1000 (found 0)"),
        ("next --days 0", "--days: expected a number from 1 to 3660 (found 0)"),
        ("runs --status rubbish", "--status: expected one of "),
    ],
)
async def test_an_error_names_the_option_that_was_typed(
    harness: ApiHarness, words: str, error: str
) -> None:
    result = await agentctl(harness.path, *words.split())
    assert result.code == 2
    assert result.err.startswith(f"agentctl: {error}")


async def test_a_subcommand_has_its_own_help_and_usage(harness: ApiHarness) -> None:
    for words in ("memory forget", "policy explain"):
        result = await agentctl(harness.path, "help", *words.split())
        assert result.code == 0
        assert result.out.startswith(f"usage: agentctl {words} ")
    result = await agentctl(harness.path, "memory", "forget", "nosuch")
    assert result.code == 2
    assert result.err.startswith("usage: agentctl memory forget ")
    assert "--routine ROUTINE" in result.err
    assert result.err.endswith("forget: error: unrecognized arguments: nosuch\n")


async def test_a_text_that_is_not_utf_8_is_named_as_such(harness: ApiHarness) -> None:
    word = os.fsdecode(b"caf\xe9")
    for words in (("ask", word), ("tell", "last", word)):
        result = await agentctl_process(harness.path, *words)
        assert (result.code, result.err) == (2, "agentctl: the text is not UTF-8\n")
    result = await agentctl_process(harness.path, "run", "daily-report", "--input", word)
    assert (result.code, result.err) == (2, "agentctl: --input: the text is not UTF-8\n")


async def test_memory_is_not_searched_for_nothing(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "memory", "search", "")
    assert (result.code, result.err) == (2, "agentctl memory search: say what to look for\n")


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


# of those that a daemon answers, and of those that agentd runs itself
WRITING_VERBS = [
    "list",
    "help",
    "inspect last --full",
    "run --help",
    "validate --config site.toml",
    "policy check policy.toml --config site.toml",
    "new daily every day at 7 --stdout --config site.toml",
    "logs --state .",
]


async def run_in_site(
    harness: ApiHarness, folder: Path, verb: str, redirection: str, stdout: int
) -> tuple[int | None, str]:
    """Run a verb in a folder with a config, a policy and a log; return its exit code and stderr."""
    await harness.complete_run()
    (folder / "site.toml").touch()
    (folder / "policy.toml").write_bytes((ROOT / "policy.toml").read_bytes())
    (folder / "logs").mkdir()
    (folder / "logs/agentd.jsonl").write_text(
        '{"at": "2026-11-20T09:00:00Z", "level": "info", "event": "x"}\n'
    )
    process = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        f'exec "$@" {redirection}',
        "sh",
        *COMMAND,
        *verb.split(),
        env=environment(harness.path.parent, AGENTD_SOCKET=str(harness.path)),
        cwd=folder,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    return process.returncode, err.decode()


@pytest.mark.parametrize("verb", WRITING_VERBS)
async def test_a_full_output_is_reported_in_one_line(
    harness: ApiHarness, tmp_path: Path, verb: str
) -> None:
    message = "agentctl: what it has to say cannot be written: No space left on device\n"
    code, err = await run_in_site(harness, tmp_path, verb, ">/dev/full", asyncio.subprocess.DEVNULL)
    assert (code, err) == (1, message)


@pytest.mark.parametrize("verb", WRITING_VERBS)
async def test_a_reader_that_has_gone_ends_every_verb_as_a_signal_would(
    harness: ApiHarness, tmp_path: Path, verb: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert await run_in_site(harness, tmp_path, verb, "", writer) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize("verb", ["list", "help", "inspect last --full"])
async def test_a_closed_output_is_no_failure(
    harness: ApiHarness, tmp_path: Path, verb: str
) -> None:
    code, err = await run_in_site(harness, tmp_path, verb, ">&-", asyncio.subprocess.DEVNULL)
    assert (code, err) == (0, "")
