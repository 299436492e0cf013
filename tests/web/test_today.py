"""What the page says first: that all is well, or what a person should look at."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo

import pytest

from daemon.models import new_id
from daemon.web.rendering import render
from daemon.web.today import (
    RoutineStarts,
    find_attention_items,
    find_failing_routines,
    group_starts,
    show_today,
)
from daemon.web.views import show_approvals, show_memory


def make_run(routine: str, status: str, *, ended: str | None = "2026-03-02T08:00:00Z") -> dict:
    return {"routine": routine, "status": status, "silent": False, "ended": ended}


def make_status(
    *subjects: str, acked_at: str | None = None, fault: str | None = None, **counts: int
):
    return {
        "incidents": [{"subject": subject, "acked": acked_at} for subject in subjects],
        "routines": {"invalid": 0, "kept": 0, **counts},
        "fault": fault,
    }


def test_a_failure_is_over_when_a_later_run_has_succeeded() -> None:
    runs = [
        make_run("mended", "running", ended=None),
        make_run("mended", "succeeded"),
        make_run("broken", "timed_out"),
        make_run("mended", "failed"),
        make_run("broken", "succeeded"),
    ]
    assert find_failing_routines(runs) == ["broken"]


def test_a_run_that_was_skipped_or_cancelled_mends_nothing() -> None:
    runs = [
        make_run("broken", "skipped"),
        make_run("broken", "cancelled"),
        make_run("broken", "failed"),
        make_run("broken", "succeeded"),
    ]
    assert find_failing_routines(runs) == ["broken"]


class Answers:
    """The answers of a daemon with these runs of today, the newest first, and incidents."""

    def __init__(self, *outcomes: tuple[str, str], incidents: tuple[dict, ...] = ()) -> None:
        now = datetime.now(UTC).isoformat()
        runs = [
            {"id": new_id(), "slot": now, "created": now, "detail": "", "headline": ""}
            | {"delivery": None, "report": "", "taint": "", "provider": "m"}
            | make_run(routine, status, ended=now)
            for routine, status in outcomes
        ]
        status = make_status() | {"incidents": list(incidents), "zone": "UTC", "version": "1"}
        status |= {"started": now, "active": [], "paused": []}
        self.answers = {"/v1/status": status, "/v1/runs": {"items": runs, "next": None}}

    def request(self, method: str, path: str) -> dict:
        return self.answers.get(path.partition("?")[0], {"items": [], "next": None})


def read_page(answers: Answers) -> tuple[str, list[str], str]:
    """Return the heading of the page, its alarms and what it says quietly of failures."""
    page = render(*show_today(answers, query={}))
    texts = {
        name: [" ".join(re.sub("<[^>]*>", "", text).split()) for text in re.findall(pattern, page)]
        for name, pattern in {
            "heading": r"(?s)<h1[^>]*>(.*?)</h1>",
            "alarms": r'<p class="alarm"[^>]*>(.*?)</p>',
            "quiet": r'<p class="quiet"[^>]*>(.*?)</p>',
        }.items()
    }
    quiet = [text for text in texts["quiet"] if "Failed" in text or "incident" in text]
    return texts["heading"][0], texts["alarms"], " ".join(quiet)


class ManyAnswers(Answers):
    """The answers of a daemon with many of what is listed below these paths."""

    def __init__(self, **counts: int) -> None:
        super().__init__()
        self.counts = counts

    def request(self, method: str, path: str) -> dict:
        name = path.partition("?")[0].rpartition("/")[2]
        if name not in self.counts:
            return super().request(method, path)
        query = parse_qs(path.partition("?")[2])
        begin, limit = int(query.get("cursor", ["0"])[0]), int(query["limit"][0])
        end = min(begin + limit, self.counts[name])
        items = [
            {"id": str(number), "routine": "notes", "target": "mail", "tool": "shell"}
            | {"status": "pending"}
            | {"key": f"note:{number}", "text": "", "category": "core", "updated": ""}
            | {"pinned": False, "tainted": False}
            for number in range(begin, end)
        ]
        return {"items": items, "next": str(end) if end < self.counts[name] else None}


def test_many_are_counted_as_many() -> None:
    heading, _, _ = read_page(ManyAnswers(deliveries=73, approvals=64))
    assert "73 reports did not arrive" in heading
    assert "64 calls wait for your word" in heading


class ManyCalls(ManyAnswers):
    """The answers of a daemon in which so many calls wait."""

    def request(self, method: str, path: str) -> dict:
        if not path.startswith("/v1/approvals/"):
            return super().request(method, path)
        now = datetime.now(UTC).isoformat()
        return {"id": path.rpartition("/")[2], "run": new_id(), "routine": "notes"} | {
            "tool": "shell",
            "what": "df",
            "rule": "rule 1",
            "reason": "",
            "taint": "",
            "status": "pending",
            "created": now,
            "expires": now,
            "decided": None,
            "by": "",
            "request": {},
            "digest": "0" * 64,
        }


@pytest.mark.parametrize(("count", "title", "has_more"), [(50, "50", False), (64, "50+", True)])
def test_approvals_say_where_more_calls_wait_than_they_show(
    count: int, title: str, has_more: bool
) -> None:
    page = render(*show_approvals(ManyCalls(approvals=count), query={}))
    assert f"<title>Approvals ({title}) · agentd</title>" in page
    assert page.count("<article") == 50
    assert ("There are more: answer these first." in page) == has_more


def test_what_is_folded_is_known_by_its_day_though_another_day_has_nothing_to_fold() -> None:
    answers = Answers()
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    starts = [{"routine": f"r{number}", "at": tomorrow} for number in range(13)]
    answers.answers["/v1/next"] = {"items": starts, "next": None}
    page = render(*show_today(answers, query={}))
    assert re.findall("<details[^>]*>", page) == ['<details id="more-2">']


def test_each_page_of_memory_leads_to_the_next() -> None:
    client = ManyAnswers(items=120)
    query: dict[str, str] = {}
    keys: list[str] = []
    while True:
        page = render(*show_memory(client, query=query))
        keys += re.findall("note:[0-9]+", page)
        link = re.search(r'href="/memory\?cursor=([^"]+)"', page)
        if link is None:
            break
        query = {"cursor": link[1]}
    assert keys == [f"note:{number}" for number in range(120)]


def test_a_failure_that_is_over_is_no_alarm_below_all_is_well() -> None:
    heading, alarms, quiet = read_page(
        Answers(("pages", "succeeded"), ("pages", "failed"), ("pages", "failed"))
    )
    assert "All is well" in heading and alarms == []
    assert quiet == "Failed today, and works again: pages 2 times"


def test_what_has_failed_last_is_an_alarm_and_not_well() -> None:
    heading, alarms, quiet = read_page(Answers(("pages", "failed"), ("notes", "succeeded")))
    assert "All is well" not in heading and "1 routine failed" in heading
    assert alarms == ["Failed today: pages"] and not quiet


def test_a_failure_that_a_person_knows_of_is_no_alarm() -> None:
    incident = {"id": 3, "subject": "routine pages", "acked": "2026-03-02T08:00:00Z"}
    heading, alarms, quiet = read_page(Answers(("pages", "failed"), incidents=(incident,)))
    assert "All is well" in heading and alarms == []
    assert quiet == "Failed today: pages (known) 1 incident: routine pages (known)"


def test_nothing_is_said_where_all_is_well_or_known() -> None:
    assert find_attention_items(make_status(), [], 0, []) == []
    status = make_status("routine mute", "target ops", acked_at="2026-03-02T08:00:00Z")
    assert find_attention_items(status, ["mute"], 0, []) == []


def test_each_attention_item_is_counted_and_leads_to_its_view_the_worst_first() -> None:
    status = make_status("routine mute", "target ops", fault="config.toml: …", invalid=1, kept=1)
    attention_items = find_attention_items(status, ["mute"], 2, [{}])
    assert [(item.text, item.href) for item in attention_items] == [
        ("1 routine failed", "/runs?routine=mute"),
        ("2 incidents are open", "/deliveries"),
        ("2 reports did not arrive", "/deliveries?status=failed"),
        ("2 routines have faults", "/routines"),
        ("the last reload changed nothing", "#fault"),
        ("1 call waits for your word", "/approvals"),
    ]
    assert [item.is_question for item in attention_items] == [False] * 5 + [True]


def test_a_call_that_waits_is_told_once_though_it_has_an_incident() -> None:
    attention_items = find_attention_items(make_status("approval for notes"), [], 0, [{}, {}])
    assert [item.text for item in attention_items] == ["2 calls wait for your word"]


def test_starts_in_the_hour_that_comes_twice_stand_in_the_order_of_their_times() -> None:
    zone = ZoneInfo("Europe/Berlin")
    half_past_two, two_again = (
        datetime(2026, 10, 25, hour, minute, tzinfo=UTC).astimezone(zone)
        for hour, minute in ((0, 30), (1, 0))
    )
    starts = [("pages", two_again), ("pages", half_past_two)]
    assert group_starts(starts, date(2026, 10, 25)) == [
        RoutineStarts("pages", first=half_past_two, last=two_again, start_count=2)
    ]
