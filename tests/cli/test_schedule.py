"""The verbs next, why and pause, and how list and status show paused and queued routines."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from daemon.models import Outcome, Reason, Status
from daemon.store.journal import Claim
from daemon.testing import TestApp
from tests.api.harness import NOW, ApiHarness, ask
from tests.cli.agentctl import agentctl
from tests.cli.test_icalendar import read


async def test_pages_of_next_within_days_lose_no_start(harness: ApiHarness) -> None:
    page = (await ask(harness.path, "GET", "/v1/next?days=2&count=10")).json
    assert len(page["items"]) == 10
    items = list(page["items"])
    while page["next"]:
        cursor = page["next"].replace("+", "%2B").replace(" ", "%20")
        page = (await ask(harness.path, "GET", f"/v1/next?days=2&count=10&cursor={cursor}")).json
        items += page["items"]
    assert len(items) == 2 * 48 + 2
    assert len({(item["at"], item["routine"]) for item in items}) == len(items)
    assert items == sorted(items, key=lambda item: (item["at"], item["routine"]))
    assert (await ask(harness.path, "GET", "/v1/next?days=0")).status == 422
    assert (await ask(harness.path, "GET", "/v1/next?days=1&cursor=x")).status == 422


async def test_next_shows_the_requested_number_or_days(harness: ApiHarness) -> None:
    assert (await agentctl(harness.path, "next")).out.count("\n") == 1 + 10
    week = await agentctl(harness.path, "next", "daily-report", "--days", "7")
    assert week.out.count("daily-report") == 7
    few = await agentctl(harness.path, "next", "--days", "7", "-n", "5")
    assert few.out.count("\n") == 1 + 5
    assert "these are the first 5" in few.err
    result = await agentctl(harness.path, "next", "daily-report", "--days", "2", "--json")
    assert [item["at"] for item in json.loads(result.out)["items"]] == [
        "2026-11-21T09:00:00.000Z",
        "2026-11-22T09:00:00.000Z",
    ]
    assert (await agentctl(harness.path, "next", "--days", "0")).code == 2
    assert (await agentctl(harness.path, "forecast", "--days", "0")).code == 2


async def test_next_names_the_year_of_slots_in_another_year(harness: ApiHarness) -> None:
    harness.engine.now = datetime.now(UTC)
    last = harness.engine.next_slots("daily-report", 400)[-1].astimezone(ZoneInfo("Europe/Berlin"))
    lines = (await agentctl(harness.path, "next", "daily-report", "-n", "400")).out.splitlines()
    assert lines[-1].startswith(f"{last:%a %d %b %Y %H:%M %Z} ")


async def test_next_reads_several_pages_of_the_api(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "next", "heartbeat", "-n", "2500", "--json")
    times = [item["at"] for item in json.loads(result.out)["items"]]
    assert len(times) == len(set(times)) == 2500
    assert times == sorted(times)
    for number in ("0", "99999999999999999999"):
        result = await agentctl(harness.path, "next", "-n", number)
        assert result.code == 2
        assert f"-n: expected a number from 1 to 100000 (found {number})" in result.err


async def test_next_prints_an_icalendar(harness: ApiHarness) -> None:
    result = await agentctl(harness.path, "next", "daily-report", "--days", "3", "--ics")
    assert result.code == 0
    pairs = read(result.out)
    assert [value for name, value in pairs if name == "DTSTART"] == [
        f"202611{day}T090000Z" for day in (21, 22, 23)
    ]
    assert ("DESCRIPTION", "What happened\\nevery 1 day\\, 0:00:00") in pairs
    month = await agentctl(harness.path, "next", "daily-report", "--ics")
    assert month.out.count("BEGIN:VEVENT") == 30


async def test_why_answers_in_one_line(harness: ApiHarness) -> None:
    slot = (NOW - timedelta(hours=9)).replace(hour=0)
    await harness.journal.slots.account(
        "daily-report", first=slot, last=slot, count=1, outcome=Outcome.MISSED, reason=Reason.DOWN
    )
    result = await agentctl(harness.path, "why", "daily-report", "--at", slot.isoformat())
    assert result.code == 0
    assert result.out.startswith("daily-report missed Fri 20 Nov 01:00 CET: the daemon was down")
    assert result.out.count("\n") == 1
    answer = json.loads(
        (
            await agentctl(harness.path, "why", "daily-report", "--at", slot.isoformat(), "--json")
        ).out
    )
    assert (answer["outcome"], answer["reason"], answer["slot"]) == (
        "missed",
        "down",
        "2026-11-20T00:00:00.000Z",
    )
    assert answer["rule"] in answer["sentence"]
    assert "heartbeat" in (await agentctl(harness.path, "why", "heartbeat")).out


async def test_why_names_the_run_of_a_slot(harness: ApiHarness) -> None:
    claim = Claim(
        routine="heartbeat",
        definition="{}",
        trigger="every",
        slot=NOW,
        goal="g",
        outcome=Outcome.RAN,
    )
    (run,) = await harness.journal.slots.claim([claim])
    assert run
    claimed_run = await harness.journal.runs.claim(run.id, owner="test")
    assert claimed_run
    await harness.end(claimed_run, Status.FAILED, detail="the model is gone")
    result = await agentctl(harness.path, "why", "heartbeat", "--at", NOW.isoformat())
    assert (
        f'started on time for Fri 20 Nov 10:00 CET, by every = "30m"; run {run.id[-8:]} failed'
        in result.out
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("why", "nosuch"), 4, "no routine 'nosuch'"),
        (
            ("why", "heartbeat", "--at", "sometime"),
            2,
            "--at: 'sometime' is no moment; write it like 09:00, yesterday",
        ),
        (
            ("pause", "heartbeat", "--until", "never"),
            2,
            "--until: 'never' is no moment; write it like 2h, 09:00, tomorrow 09:00, mon 18:30, 2",
        ),
        (("pause", "heartbeat", "--until", "25:00"), 2, "--until: '25:00' is no time of the day"),
        (("pause", "heartbeat", "--until", "yesterday 09:00"), 2, "has passed already"),
        (("pause", "nosuch", "--until", "2h"), 4, "no routine 'nosuch'"),
        (("pause", "heartbeat", "--until", "0s"), 2, "'0s' has passed already"),
        (("pause", "heartbeat", "--until", "9999 days"), 2, "is longer than ten years"),
        (
            ("pause", "heartbeat", "--until", "9999-12-31 23:59"),
            2,
            "--until: expected a year from 2 to 9998",
        ),
        (("why", "heartbeat", "--at", "9999-12-31 23:59"), 2, "expected a year from 2 to 9998"),
        (("why", "heartbeat", "--at", "0001-01-01 02:00"), 2, "expected a year from 2 to 9998"),
    ],
)
async def test_invalid_schedule_commands_are_refused_in_one_line(
    harness: ApiHarness, words: tuple[str, ...], code: int, says: str
) -> None:
    result = await agentctl(harness.path, *words)
    assert result.code == code
    assert says in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("words", [("pause", "--until"), ("why", "--at")])
async def test_an_empty_moment_is_refused_with_the_usage_of_the_verb(
    harness: ApiHarness, words: tuple[str, str]
) -> None:
    verb, option = words
    result = await agentctl(harness.path, verb, "heartbeat", option, "")
    assert result.code == 2
    usage, *_, error = result.err.splitlines()
    assert usage.startswith(f"usage: agentctl {verb} ")
    assert error == f"agentctl {verb}: error: argument {option}: must not be empty"


async def test_the_api_refuses_moments_without_a_zone_or_in_the_past(harness: ApiHarness) -> None:
    for until, says in (
        ("2026-11-21T09:00", "with its zone"),
        ("2026-11-20T08:00Z", "has passed already"),
    ):
        answer = await ask(
            harness.path,
            "POST",
            "/v1/routines/heartbeat/pause",
            json.dumps({"until": until}).encode(),
        )
        assert answer.status == 422
        assert says in answer.json["detail"]


async def test_a_pause_has_one_end(harness: ApiHarness) -> None:
    body = json.dumps({"until": "2027-12-27T17:25:00Z", "seconds": 7200}).encode()
    answer = await ask(harness.path, "POST", "/v1/routines/heartbeat/pause", body)
    assert answer.status == 422
    assert "send one" in answer.json["detail"]
    assert (
        await ask(harness.path, "POST", "/v1/routines/heartbeat/pause", b'{"seconds": 0}')
    ).status == 422


@pytest.mark.parametrize("text", ["20 minutes", "20m", "1200s"])
async def test_a_pause_lasts_as_long_as_is_said_in_words_or_units(
    harness: ApiHarness, text: str
) -> None:
    assert (await agentctl(harness.path, "pause", "heartbeat", "--until", text)).code == 0
    end = harness.engine.states["heartbeat"].paused_until
    assert end == harness.engine.now + timedelta(minutes=20)


async def test_the_end_of_a_pause_is_shown_in_every_view_of_the_routine(
    harness: ApiHarness,
) -> None:
    # more than a year ahead for the daemon and for its client, whose clock is the machine's
    until = (max(NOW, datetime.now(UTC)) + timedelta(days=400)).replace(second=0, microsecond=0)
    local = until.astimezone(ZoneInfo("Europe/Berlin"))
    result = await agentctl(harness.path, "pause", "heartbeat", "--until", until.isoformat())
    assert result.out.startswith(f"heartbeat is paused until {local:%d %b %Y %H:%M %Z}")
    assert "or `agentctl resume heartbeat`" in result.out
    assert f"paused until {local:%d %b %Y}" in (await agentctl(harness.path, "list")).out
    assert (
        f"paused until {local:%d %b %Y}" in (await agentctl(harness.path, "show", "heartbeat")).out
    )
    status = (await agentctl(harness.path, "status")).out
    assert "1 paused" in status
    assert f"until {local:%d %b %Y}" in status
    fires = (await ask(harness.path, "GET", "/v1/routines/heartbeat/next")).json["items"]
    ahead = [datetime.fromisoformat(moment["at"]) for moment in fires]
    assert ahead and min(ahead) > until, "it goes on by itself, and that is what is next"


async def test_list_and_status_mark_a_routine_paused_for_failures(
    harness: ApiHarness,
) -> None:
    await harness.journal.routines.pause(
        "heartbeat", why="10 runs in a row failed, the last one: the key was refused"
    )
    harness.engine.states = await harness.journal.routines.get_states()
    output = (await agentctl(harness.path, "list")).out
    assert (
        "heartbeat is paused: 10 runs in a row failed, the last one: the key was refused" in output
    )
    assert "agentctl resume heartbeat lets it go on" in output
    status = (await agentctl(harness.path, "status")).out
    assert "until it is resumed: 10 runs in a row failed" in status
    daemon_status = (await ask(harness.path, "GET", "/v1/status")).json
    assert daemon_status["paused"] == [
        {
            "routine": "heartbeat",
            "until": None,
            "why": "10 runs in a row failed, the last one: the key was refused",
        }
    ]
    await agentctl(harness.path, "resume", "heartbeat")
    assert "is paused" not in (await agentctl(harness.path, "list")).out


async def test_status_shows_positions_of_queued_runs(harness: ApiHarness) -> None:
    runs = [await harness.claim(name) for name in ("daily-report", "heartbeat")]
    harness.run_queue.run_ids = [run.id for run in runs]
    status = (await agentctl(harness.path, "status")).out
    assert "queued and first in line" in status
    assert "queued with 1 run before it" in status


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
async def test_times_without_a_zone_are_those_of_the_config(harness: ApiHarness, zone: str) -> None:
    slot = datetime(2026, 11, 19, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    why = ("why", "daily-report", "--at", "2026-11-19 09:00", "--json")
    answer = json.loads((await agentctl(harness.path, *why, env={"TZ": zone})).out)
    assert "Thu 19 Nov 09:00 CET" in answer["sentence"]
    until = (datetime.now(UTC) + timedelta(days=400)).replace(hour=9, minute=0, second=0)
    pause = ("pause", "heartbeat", "--until", f"{until:%Y-%m-%d} 09:00")
    result = await agentctl(harness.path, *pause, env={"TZ": zone})
    paused_until = harness.engine.states["heartbeat"].paused_until
    local_time = slot.replace(year=until.year, month=until.month, day=until.day)
    assert paused_until == local_time
    assert f"{local_time:%a %d %b} 09:00 {local_time:%Z} in Europe/Berlin" in result.out


async def test_why_says_how_many_faults_there_are_besides_the_first(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine("broken", 'promt = 1\n[run]\nmodee = 2\nprovder = "x"\n')
    async with app, app.serve_api() as socket:
        result = await agentctl(socket, "why", "broken")
        assert result.code != 0
        assert result.err.strip().endswith("; and 2 more: agentctl show broken")
        assert len((await app.request("GET", "/v1/routines/broken")).json["faults"]) == 3


async def test_slots_and_why_say_that_a_minute_is_no_delay(harness: ApiHarness) -> None:
    claim = Claim(
        routine="heartbeat",
        definition="{}",
        trigger="every",
        slot=NOW,
        goal="g",
        outcome=Outcome.RAN,
        lateness=7.6,
    )
    (run,) = await harness.journal.slots.claim([claim])
    assert run
    output = (await agentctl(harness.path, "slots", "heartbeat")).out
    assert f"ran on time, within 7.6 s, run {run.id[-8:]}" in output
    sentence = (await agentctl(harness.path, "why", "heartbeat", "--at", NOW.isoformat())).out
    assert "on time for Fri 20 Nov 10:00 CET (7.6 s after it: up to a minute is on" in sentence
