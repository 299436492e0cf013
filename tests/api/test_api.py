from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from daemon.api.forecast import STARTS_AT_ONCE, show_forecast
from daemon.api.routes import ROUTES
from daemon.errors import ConfigError, DaemonError, NotFound, Refused, StoreFull
from daemon.models import Outcome, Reason, Status
from tests.api.harness import NOW, ApiHarness, ask, make_error, open_harness

Get = Callable[[str], Awaitable[Any]]


@pytest.fixture
def get(harness: ApiHarness) -> Get:
    async def get(target: str) -> Any:
        answer = await ask(harness.path, "GET", target)
        assert answer.status == 200, answer.raw
        return answer.json

    return get


async def test_status_shows_paths_running_runs_and_next_starts(
    harness: ApiHarness, get: Get
) -> None:
    run = await harness.take()
    harness.engine.faults["broken"] = make_error("broken")
    await harness.engine.pause("heartbeat")
    status = await get("/v1/status")
    assert status["pid"] == os.getpid()
    assert status["version"] == "0.0.test"
    counts = {
        "on": 1,
        "paused": 1,
        "disabled": 0,
        "elsewhere": 0,
        "held": 0,
        "invalid": 1,
        "kept": 0,
    }
    assert status["routines"] == counts
    assert [active_run["id"] for active_run in status["active"]] == [run.id]
    # the other one is paused
    assert status["next"][0] == {
        "routine": "daily-report",
        "at": "2026-11-21T09:00:00.000Z",
    }
    assert status["counts"]["runs"] == {"running": 1}
    assert await get("/v1/status?counts=false") == {**status, "counts": None}
    refusal = await ask(harness.path, "GET", "/v1/status?counts=many")
    assert refusal.status == 422
    assert "true or false" in refusal.json["detail"]


async def test_a_forecast_of_many_starts_counts_each_and_lets_other_tasks_run(
    harness: ApiHarness,
) -> None:
    turns, turns_of_engine = 0, []
    find_slots = harness.engine.next_slots

    def next_slots(name: str, count: int, *, after: datetime | None = None) -> list[datetime]:
        turns_of_engine.append(turns)
        return find_slots(name, count, after=after)

    harness.engine.next_slots = next_slots  # type: ignore[method-assign]
    forecast = asyncio.create_task(show_forecast(harness.api, days=100))
    while not forecast.done():
        await asyncio.sleep(0)
        turns += 1
    starts = {row["key"]: row["starts"] for row in (await forecast)["routines"]}
    assert starts == {"daily-report": 100, "heartbeat": 100 * 48}
    assert len(turns_of_engine) == len(set(turns_of_engine)) > 100 * 48 / STARTS_AT_ONCE


async def test_every_answer_carries_the_version(harness: ApiHarness) -> None:
    for target in ("/v1/status", "/v1/runs/nope", "/nowhere"):
        assert (await ask(harness.path, "GET", target)).headers["agentd-version"] == "0.0.test"
    assert (await ask(harness.path, "GET", "/v1/status", headers={"bad header": "x"})).headers[
        "agentd-version"
    ]


async def test_routines_are_listed_with_last_run_and_delivery_status(
    harness: ApiHarness, get: Get
) -> None:
    run = await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    (delivery,) = await harness.journal.outbox.find(run=run.id)
    harness.engine.faults["broken"] = make_error("broken")
    await harness.journal.outbox.mark_failed(delivery.id, "disk on fire", None)
    routines = {routine["name"]: routine for routine in (await get("/v1/routines"))["items"]}
    assert list(routines) == ["broken", "daily-report", "heartbeat"]
    assert routines["daily-report"]["last"]["status"] == "succeeded"
    assert routines["daily-report"]["last"]["delivery"] == "failed"
    assert routines["daily-report"]["last"]["headline"] == "All is well"
    assert routines["heartbeat"]["last"] is None
    assert routines["broken"]["state"] == "invalid"
    assert routines["broken"]["faults"][0]["key"] == "trigger.cron"


@pytest.mark.parametrize(
    ("report", "headline"),
    [
        ("# Report\n\nOne disk is full.", "One disk is full."),
        ("# Report", "Report"),
        ("# Disks\n\nOne is full.", "Disks"),
        ("Report\n\nOne disk is full.", "Report"),
    ],
)
async def test_the_headline_of_a_run_is_no_generic_heading(
    harness: ApiHarness, get: Get, report: str, headline: str
) -> None:
    run = await harness.complete_run(report=report)
    assert (await get(f"/v1/runs/{run.id}"))["headline"] == headline


async def test_a_routine_shows_its_definition_and_next_starts(get: Get) -> None:
    details = await get("/v1/routines/daily-report")
    assert details["definition"]["run"]["prompt"] == "Write the report."
    assert len(details["fires"]) == 3
    assert len((await get("/v1/routines/daily-report/next?count=7"))["items"]) == 7
    assert [start["routine"] for start in (await get("/v1/next?count=2"))["items"]] == [
        "heartbeat",
        "heartbeat",
    ]


async def test_a_routines_file_is_shown_as_it_was_written(
    harness: ApiHarness, get: Get, tmp_path: Path
) -> None:
    file = tmp_path / "daily-report.toml"
    target = "/v1/routines/daily-report/source"
    answer = await ask(harness.path, "GET", target)
    assert (answer.status, answer.json["detail"]) == (404, f"{file} is gone")
    text = '# Mine.\n[run]\nprompt = "Grüße"\n'
    file.write_text(f"\ufeff{text}", "utf-8")
    source = await get(target)
    assert (source["path"], source["text"]) == (str(file), text)
    assert source["digest"] == sha256(file.read_bytes()).hexdigest()
    assert "[ui]" in source["read_only"]
    file.write_bytes(b"#" * 1_000_001)
    assert "look at it with an editor" in (await ask(harness.path, "GET", target)).json["detail"]
    file.unlink()
    os.mkfifo(file)
    answer = await ask(harness.path, "GET", target)
    assert (answer.status, answer.json["detail"]) == (409, f"{file} is not a regular file")


async def test_pages_of_lists_neither_miss_nor_repeat_entries(
    harness: ApiHarness, get: Get
) -> None:
    run_ids = [(await harness.complete_run()).id for _ in range(5)]
    listed_ids: list[str] = []
    cursor = ""
    while True:
        page = await get(f"/v1/runs?limit=2{cursor}")
        listed_ids += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert listed_ids == sorted(run_ids, reverse=True)
    first = await get("/v1/routines?limit=1")
    second = await get(f"/v1/routines?limit=1&cursor={first['next']}")
    assert [first["items"][0]["name"], second["items"][0]["name"], second["next"]] == [
        "daily-report",
        "heartbeat",
        None,
    ]


async def test_steps_deliveries_and_slots_are_listed_in_pages(
    harness: ApiHarness, get: Get
) -> None:
    run = await harness.complete_run(
        deliver=[("file", {"path": str(number)}) for number in range(3)]
    )
    first = await get(f"/v1/runs/{run.id}/steps?limit=4")
    second = await get(f"/v1/runs/{run.id}/steps?limit=4&cursor={first['next']}")
    assert [step["seq"] for step in first["items"] + second["items"]] == list(range(7))
    page = await get("/v1/deliveries?limit=2")
    assert len(page["items"]) == 2
    assert len((await get(f"/v1/deliveries?limit=2&cursor={page['next']}"))["items"]) == 1
    await harness.journal.slots.account(
        "daily-report", first=NOW, last=NOW, count=1, outcome=Outcome.MISSED, reason=Reason.DOWN
    )
    page = await get("/v1/slots?routine=daily-report")
    assert {slot["outcome"] for slot in page["items"]} == {"ran", "missed"}
    page = await get("/v1/slots?routine=daily-report&scheduled=true")
    assert [slot["outcome"] for slot in page["items"]] == ["missed"], "a run by hand is no slot"


async def test_a_run_is_found_by_the_end_of_its_id_and_shows_its_deliveries(
    harness: ApiHarness, get: Get
) -> None:
    run = await harness.complete_run(deliver=[("file", {"path": "x.md"})])
    details = await get(f"/v1/runs/{run.id[-6:]}")
    assert details["id"] == run.id
    assert details["report"].startswith("# All is well")
    assert details["usage"]["cache_read"] == 800
    assert [delivery["status"] for delivery in details["deliveries"]] == ["pending"]
    assert details["delivery"] == "pending"


async def test_the_same_event_gives_the_same_run(harness: ApiHarness) -> None:
    body = json.dumps({"event": "click-1"}).encode()
    first = await ask(harness.path, "POST", "/v1/routines/daily-report/run", body)
    again = await ask(harness.path, "POST", "/v1/routines/daily-report/run", body)
    assert first.json["id"] == again.json["id"]
    assert first.json["status"] == "queued"


async def test_a_queued_run_shows_its_position(harness: ApiHarness) -> None:
    harness.run_queue.run_ids.append("somebody else")
    run = await harness.claim()
    harness.run_queue.run_ids.append(run.id)
    assert (await ask(harness.path, "GET", f"/v1/runs/{run.id}")).json["position"] == 1


async def test_cancelling_ends_a_waiting_run_and_stops_a_running_one(harness: ApiHarness) -> None:
    waiting_run = await harness.claim()
    assert (await ask(harness.path, "POST", f"/v1/runs/{waiting_run.id}/cancel")).json[
        "status"
    ] == "cancelled"
    running_run = await harness.take()
    answer = (await ask(harness.path, "POST", f"/v1/runs/{running_run.id}/cancel")).json
    assert (answer["status"], answer["cancel"]) == ("running", True)
    assert [harness.run_queue.interrupted_ids.get_nowait() for _ in range(2)] == [
        waiting_run.id,
        running_run.id,
    ], "it leaves the line"
    assert (await ask(harness.path, "POST", f"/v1/runs/{waiting_run.id}/cancel")).status == 409


async def test_a_paused_routine_is_listed_as_paused_until_resumed(
    harness: ApiHarness,
) -> None:
    assert (await ask(harness.path, "POST", "/v1/routines/heartbeat/pause")).json[
        "state"
    ] == "paused"
    assert (await ask(harness.path, "POST", "/v1/routines/heartbeat/resume")).json["state"] == "on"


async def test_changing_requests_update_operator_seen_and_reads_do_not(harness: ApiHarness) -> None:
    await ask(harness.path, "GET", "/v1/status")
    assert await harness.journal.key_values.get("operator_seen") is None
    await ask(harness.path, "POST", "/v1/reload")
    assert await harness.journal.key_values.get("operator_seen") == NOW.isoformat()


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code", "detail"),
    [
        ("GET", "/v1/nowhere", b"", 404, "no_route", "/v1/openapi.json"),
        ("GET", "/v1/status/", b"", 404, "no_route", "no /v1/status/"),
        ("DELETE", "/v1/status", b"", 405, "method", "takes GET, not DELETE"),
        ("HEAD", "/v1/status", b"", 405, None, None),
        ("GET", "/v1/runs/01ZZZZZZZZ", b"", 404, "not_found", "01ZZZZZZZZ"),
        ("GET", "/v1/routines/daily-reprot", b"", 404, "not_found", "did you mean 'daily-report'?"),
        (
            "POST",
            "/v1/routines/daily-reprot/pause",
            b"",
            404,
            "not_found",
            "did you mean 'daily-report'?",
        ),
        ("POST", "/v1/routines/daily-report/run", b"{", 400, "bad_request", "not JSON: "),
        (
            "POST",
            "/v1/routines/daily-report/run",
            b"\x80\x81\x82\x83",
            400,
            "bad_request",
            "not JSON in UTF-8",
        ),
        ("POST", "/v1/routines/daily-report/run", b"[" * 100_000, 400, "bad_request", "not JSON"),
        ("POST", "/v1/routines/daily-report/run", b"[]", 400, "bad_request", "not an object"),
        (
            "POST",
            "/v1/routines/daily-report/run",
            b'{"evnt": "x"}',
            422,
            "bad_request",
            "did you mean 'event'?",
        ),
        (
            "POST",
            "/v1/routines/daily-report/run",
            b'{"event": 7}',
            422,
            "bad_request",
            "expected text (found 7)",
        ),
        ("POST", "/v1/reload", b"x" * 1_000_001, 413, "bad_request", "over 1000000 bytes"),
        ("GET", "/v1/runs?limit=0", b"", 422, "bad_request", "from 1 to 1000"),
        ("GET", "/v1/runs?limit=many", b"", 422, "bad_request", 'whole number (found "many")'),
        ("GET", "/v1/runs?status=happy", b"", 422, "bad_request", "expected one of queued, "),
        ("GET", "/v1/runs?offset=3", b"", 422, "bad_request", "unknown query field 'offset'"),
    ],
)
async def test_errors_are_answered_as_problem_json(
    harness: ApiHarness,
    method: str,
    target: str,
    body: bytes,
    status: int,
    code: str | None,
    detail: str | None,
) -> None:
    answer = await ask(harness.path, method, target, body)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    if code is not None and detail is not None:
        assert (answer.json["status"], answer.json["code"]) == (status, code)
        assert detail in answer.json["detail"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("gone"), 404, "not_found"),
        (Refused("not now"), 409, "refused"),
        (make_error("heartbeat"), 422, "invalid"),
        (StoreFull("the disk is full"), 507, "disk_full"),
        (DaemonError("hm"), 500, "failed"),
    ],
)
async def test_each_daemon_error_has_its_http_status_and_code(
    tmp_path: Path, error: DaemonError, status: int, code: str
) -> None:
    async def reload() -> Any:
        raise error

    async with open_harness(tmp_path, reload=reload) as harness:
        answer = await ask(harness.path, "POST", "/v1/reload")
    assert (answer.status, answer.json["code"], answer.json["detail"]) == (status, code, str(error))
    if isinstance(error, ConfigError):
        assert answer.json["faults"][0]["hint"] == "use 1"


async def test_an_internal_error_is_answered_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def reload() -> Any:
        raise ZeroDivisionError("secret detail")

    async with open_harness(tmp_path, reload=reload) as harness:
        answer = await ask(harness.path, "POST", "/v1/reload")
        assert (await ask(harness.path, "GET", "/v1/status")).status == 200
    assert (answer.status, answer.json["code"]) == (500, "internal")
    assert b"secret detail" not in answer.raw
    assert b"Traceback" not in answer.raw
    assert "secret detail" in caplog.text  # but the operator's log has it


async def test_malformed_http_is_answered_as_problem_json(harness: ApiHarness) -> None:
    answer = await ask(harness.path, "GET", "/v1/status", headers={"no colon in": "\x00"})
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["code"] == "bad_request"


@pytest.mark.parametrize("header", ["Origin", "Referer", "Sec-Fetch-Site"])
async def test_requests_of_a_browser_are_refused(harness: ApiHarness, header: str) -> None:
    answer = await ask(harness.path, "POST", "/v1/reload", headers={header: "https://example.org"})
    assert (answer.status, answer.json["code"]) == (403, "browser")
    assert await harness.journal.key_values.get("operator_seen") is None


async def test_doctor_returns_its_checks(get: Get) -> None:
    assert (await get("/v1/doctor")) == {
        "ok": True,
        "checks": [{"name": "Python", "state": "ok", "found": "3.11", "fix": ""}],
    }


async def test_a_run_of_every_status_is_shown_as_json(harness: ApiHarness, get: Get) -> None:
    for status in (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT, Status.SKIPPED):
        run = await harness.take()
        await harness.end(run, status, report=None, detail="because")
        assert (await get(f"/v1/runs/{run.id}"))["detail"] == "because"
    assert len((await get("/v1/runs?status=failed"))["items"]) == 1


async def test_the_openapi_document_lists_all_routes_and_resolvable_references(get: Get) -> None:
    document = await get("/v1/openapi.json")
    assert document["openapi"] == "3.1.0"
    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert routes == {(method, path) for method, path, _ in ROUTES}
    names = [
        operation["operationId"]
        for item in document["paths"].values()
        for operation in item.values()
    ]
    assert len(set(names)) == len(names)
    schemas = document["components"]["schemas"]
    references = set(_references(document))
    assert references
    assert all(
        reference.startswith("#/components/schemas/") and reference.rsplit("/", 1)[1] in schemas
        for reference in references
    )
    for path, item in document["paths"].items():
        for operation in item.values():
            assert operation["summary"].endswith(".")
            in_path = {
                parameter["name"]
                for parameter in operation["parameters"]
                if parameter["in"] == "path"
            }
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert all(
                parameter["required"]
                for parameter in operation["parameters"]
                if parameter["in"] == "path"
            )
            assert set(operation["responses"]) == {"200", "default"}
    limit = {
        parameter["name"]: parameter["schema"]
        for parameter in document["paths"]["/v1/runs"]["get"]["parameters"]
    }["limit"]
    assert limit == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        references = [value["$ref"]] if "$ref" in value else []
        return references + [
            reference for item in value.values() for reference in _references(item)
        ]
    if isinstance(value, list):
        return [reference for item in value for reference in _references(item)]
    return []
