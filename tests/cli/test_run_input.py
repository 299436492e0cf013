"""`agentctl run --input`: a text, a file or a pipe, each read whole or refused in one sentence."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.call import REFUSED, USAGE
from daemon.cli.run_input import MAX_INPUT_BYTES, read_input
from daemon.scheduler.triggers import MAX_INPUT_CHARACTERS
from tests.api.harness import Answer, ApiHarness, ask
from tests.cli.agentctl import agentctl


async def post(harness: ApiHarness, body: dict[str, Any]) -> Answer:
    """Ask for a run over the socket."""
    path = "/v1/routines/daily-report/run"
    return await ask(harness.path, "POST", path, json.dumps(body).encode())


def test_a_text_is_taken_as_it_is() -> None:
    assert read_input("Ticket 7: the disk is full") == "Ticket 7: the disk is full"


def test_a_file_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "ticket").write_text("\ufeff中文\n", "utf-8")
    assert read_input(f"@{tmp_path}/ticket") == "中文\n"


def test_a_pipe_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"@from a pipe\n")))
    assert read_input("-") == "@from a pipe\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "there is nothing in"),
        (b" \n", "there is nothing in"),
        (b"abc\xff", "is no text in UTF-8 (byte 4)"),
        (b"x" * (MAX_INPUT_BYTES + 1), "has more than 200,000 bytes"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "ticket"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"--input @.*ticket") as error:
        read_input(f"@{file}")
    assert problem in str(error.value)


def test_a_path_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_input("@a\0b")


async def test_the_input_is_kept_with_the_run(harness: ApiHarness, tmp_path: Path) -> None:
    result = await agentctl(harness.path, "run", "daily-report", "--input", "Ticket 7", "--detach")
    run = (await agentctl(harness.path, "inspect", result.out.strip(), "--json")).json
    assert run["input"] == {"text": "Ticket 7", "tainted": False}


async def test_tainted_marks_the_input(harness: ApiHarness, tmp_path: Path) -> None:
    (tmp_path / "mail").write_text("Dear agent")
    arguments = ("run", "daily-report", "--input", f"@{tmp_path}/mail", "--tainted", "--detach")
    result = await agentctl(harness.path, *arguments)
    run = await harness.journal.runs.get(result.out.strip())
    assert await harness.journal.runs.get_input(run.id) == {"text": "Dear agent", "tainted": True}


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("--tainted",), USAGE, "--tainted says who may have written the --input; name one"),
        (("--input", "@/nowhere/x"), USAGE, "/nowhere/x cannot be read: No such file"),
        (("--input", " "), REFUSED, "the input is empty; leave it out"),
        (
            ("--input", "x" * (MAX_INPUT_CHARACTERS + 1)),
            REFUSED,
            "the input has 20,001 characters; at most 20,000 are taken",
        ),
    ],
)
async def test_an_unusable_input_starts_no_run(
    harness: ApiHarness, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    result = await agentctl(harness.path, "run", "daily-report", *arguments)
    assert (result.code, problem in result.err) == (code, True), result.err
    assert list(await harness.journal.runs.find("daily-report")) == []


async def test_a_run_under_way_is_not_followed_as_if_it_had_the_input(harness: ApiHarness) -> None:
    await harness.take()
    result = await agentctl(harness.path, "run", "daily-report", "--input", "Ticket 7")
    assert result.code == REFUSED
    assert "daily-report is running already" in result.err


async def test_the_api_takes_a_flag_only_as_a_boolean_and_with_an_input(
    harness: ApiHarness,
) -> None:
    answer = await post(harness, {"input": "x", "tainted": "yes"})
    assert (answer.status, answer.json["detail"]) == (
        422,
        "'tainted': expected true or false (found \"yes\")",
    )
    answer = await post(harness, {"tainted": True})
    assert (answer.status, "send one" in answer.json["detail"]) == (422, True)
    answer = await post(harness, {"input": ["x"]})
    assert (answer.status, "expected text" in answer.json["detail"]) == (422, True)


async def test_a_post_to_the_runs_of_a_routine_starts_one_with_its_input(
    harness: ApiHarness,
) -> None:
    body = json.dumps({"input": "Ticket 7", "event": "mine-1"}).encode()
    answers = [
        await ask(harness.path, "POST", f"/v1/routines/daily-report/{last}", body)
        for last in ("runs", "runs", "run")
    ]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert len({answer.json["id"] for answer in answers}) == 1
    assert answers[0].json["input"] == {"text": "Ticket 7", "tainted": False}


async def test_half_a_surrogate_pair_is_refused(harness: ApiHarness) -> None:
    answer = await post(harness, {"input": "a\ud800b"})
    assert answer.status == 422
    assert "'input'" in answer.json["detail"]
    assert "half of a surrogate pair" in answer.json["detail"]


async def test_secrets_in_an_input_are_not_kept(harness: ApiHarness) -> None:
    harness.api.runs.services.secrets.add("a-secret-of-the-house")
    answer = await post(harness, {"input": "a-secret-of-the-house"})
    assert "a-secret-of-the-house" not in answer.raw.decode()
    assert answer.json["input"]["text"].startswith("[")
