"""What agentctl makes of answers that a daemon rarely gives."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.api.bodies import MAX_BODY_BYTES
from daemon.cli.approvals import approvals, audit, quarantine
from daemon.cli.call import DONE, NOT_SUCCEEDED, Call
from daemon.cli.client import ConnectionLost
from daemon.cli.deliveries import deliveries
from daemon.cli.memory import _read_batches, check, export, forget
from daemon.cli.schedule import list_slots
from daemon.cli.seen import seen
from daemon.models import Json


class FakeClient:
    """A client of a daemon that gives these answers, in order."""

    def __init__(self, *answers: Json | Exception) -> None:
        self._answers = iter(answers)
        self.paths: list[str] = []

    def request(self, method: str, path: str, body: Json | None = None) -> Any:
        self.paths.append(path)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def request_text(self, method: str, path: str, body: Json | None = None) -> str:
        return json.dumps(self.request(method, path, body))


def call_of(client: FakeClient, **options: Any) -> Call:
    call = Call(None, {"json": False, **options})
    call._client = client  # type: ignore[assignment]
    return call


@pytest.mark.parametrize("is_all", [False, True])
def test_what_forgetting_does_not_reach_fits_a_screen(
    is_all: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    plan: Json = {"items": [], "runs": [{"id": "01A", "routine": "notes"}], "quotes": {}}
    plan["out_of_reach"] = [*(f"the report of run {n}" for n in range(500)), "backups", "the log"]
    options = {"key": None, "query": None, "run": None, "routine": "notes", "before": None}
    forget(call_of(FakeClient(plan), **options, yes=False, all=is_all))
    lines = capsys.readouterr().out.splitlines()
    assert "  backups" in lines and "  the log" in lines and "  the report of run 0" in lines
    assert ("  … and 482 more; --all shows them" in lines) != is_all
    assert (len(lines) > 500) == is_all


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(
    ("verb", "options", "answer", "code"),
    [
        (audit, {"verify": True}, {"rows": 9, "broken": 5, "head": "a"}, NOT_SUCCEEDED),
        (audit, {"verify": True}, {"rows": 9, "broken": None, "head": "a"}, DONE),
        (check, {}, {"ok": False, "faults": ["2 texts are missing"]}, NOT_SUCCEEDED),
        (check, {}, {"ok": True, "faults": []}, DONE),
        (
            approvals,
            {"revoke": None, "remembered": True},
            {"items": [], "fault": "line 1 is no rule"},
            NOT_SUCCEEDED,
        ),
        (approvals, {"revoke": None, "remembered": True}, {"items": [], "fault": None}, DONE),
    ],
)
def test_the_exit_code_of_a_check_is_the_same_with_json(
    verb: Callable[[Call], int],
    options: Json,
    answer: Json,
    code: int,
    is_json: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verb(call_of(FakeClient(answer), json=is_json, **options)) == code
    if is_json:
        assert json.loads(capsys.readouterr().out) == answer


@pytest.mark.parametrize("is_json", [False, True])
def test_all_approvals_are_listed_however_many_there_are(
    is_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    approval = {
        "status": "approved", "by": "uid 1000", "routine": "daily", "tool": "shell", "what": "ls",
        "reason": "", "rule": "rule 1", "created": "2026-11-20T08:00:00+00:00", "calls": 1,
        "run": "01J", "taint": "",
    }  # fmt: skip
    client = FakeClient(
        {"items": [{**approval, "id": "first"}], "next": "7"},
        {"items": [{**approval, "id": "second"}], "next": None},
    )
    options = {"revoke": None, "remembered": False, "approval": None, "all": True}
    assert approvals(call_of(client, json=is_json, **options)) == DONE
    output = capsys.readouterr().out
    assert "first" in output and "second" in output
    assert client.paths[1].endswith("cursor=7")


LISTED: Json = {
    "id": "01A", "run": "01B", "routine": "notes", "tool": "shell", "target": "mail",
    "created": "2026-11-20T08:00:00+00:00", "at": "2026-11-20T08:00:00+00:00",
    "first": "2026-11-20T08:00:00+00:00", "last": "2026-11-20T08:00:00+00:00",
    "status": "delivered", "receipt": "sent", "error": "", "attempts": 1, "kind": "report",
    "outcome": "ran", "reason": "", "rule": "", "lateness": 0, "count": 1, "seq": 1, "actor": "",
    "body": {}, "times": 1, "title": "A walrus", "key": "walrus",
}  # fmt: skip


@pytest.mark.parametrize("verb", [deliveries, list_slots, audit, quarantine, seen])
def test_a_list_that_leaves_items_out_says_how_to_see_them(
    verb: Callable[[Call], int], capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"action": None, "run": None, "status": None, "verify": False, "text": None}

    def last_line(limit: int, next_cursor: str | None) -> str:
        client = FakeClient({"items": [LISTED], "next": next_cursor, "total": 4711})
        assert verb(call_of(client, routine="notes", limit=limit, **options)) == DONE
        return capsys.readouterr().out.splitlines()[-1]

    assert last_line(20, "20") == "there are more: -n 100 shows them"
    assert last_line(1000, "1000").startswith("there are more: ")
    assert "-n" not in last_line(1000, "1000").split()
    assert "there are more" not in last_line(20, None)


def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "copy.jsonl"
    broken = FakeClient({"lines": [{"a": 1}], "next": "2"}, ConnectionLost("gone"))
    with pytest.raises(ConnectionLost):
        export(call_of(broken, file=str(file)))
    assert not file.exists()
    assert export(call_of(FakeClient({"lines": [{"a": 1}], "next": None}), file=str(file))) == DONE
    assert file.read_text() == '{"a": 1}\n'


def test_no_batch_of_an_import_is_more_than_the_api_takes() -> None:
    lines = [json.dumps({"text": text * 2000}, ensure_ascii=False) + "\n" for text in "花草水"] * 99
    batches = list(_read_batches(io.StringIO("".join(lines))))
    assert "".join(text for _, text in batches) == "".join(lines)
    sizes = [len(json.dumps({"lines": text, "first": first})) for first, text in batches]
    assert max(sizes) <= MAX_BODY_BYTES
