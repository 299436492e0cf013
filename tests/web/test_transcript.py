"""The page of one run."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.client import Client
from daemon.cli.inspect import describe_work, event_in_words
from daemon.web import rendering
from daemon.web.rendering import (
    one_line_arguments,
    render,
    report_html,
    sentence_html,
    text_with_code,
    user_name,
)
from daemon.web.transcript import (
    describe_task,
    find_first_tainted_call,
    group_by_iteration,
    transcript_context,
)
from tests.api.harness import NOW, open_harness


async def test_the_page_of_a_run_says_how_long_the_run_worked(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run = await harness.complete_run(started=NOW, ended=NOW + timedelta(seconds=3))

        def read_page() -> str:
            client = Client(str(harness.path))
            view = client.request("GET", f"/v1/runs/{run.id}")
            context = {**transcript_context(client, view), "style": ""}
            return str(render("standalone.html", context))

        assert "3.0 s of work" in await asyncio.to_thread(read_page)


def test_the_work_of_a_run_whose_process_was_killed_is_said_to_be_known_in_part() -> None:
    run = {
        "active": 0.004,
        "attempt": 2,
        "started": "2026-11-20T08:00:00Z",
        "ended": "2026-11-20T08:00:16Z",
    }
    assert describe_work(run) == "16 s after its start, 4 ms of work noted"
    assert describe_work({**run, "attempt": 1}) == "4 ms of work"


@pytest.mark.parametrize(
    ("asked", "titles", "count"),
    [
        ("", ["Task"], 1),
        ("Greet.", ["Task"], 1),
        ("Greet.\n\n<facts>", ["Task", "Task and facts"], 2),
    ],
)
async def test_the_page_of_a_run_shows_the_task_once(
    tmp_path: Path, asked: str, titles: list[str], count: int
) -> None:
    async with open_harness(tmp_path) as harness:
        run = await harness.complete_run()
        client = Client(str(harness.path))
        context = await asyncio.to_thread(
            lambda: transcript_context(client, client.request("GET", f"/v1/runs/{run.id}"))
        )
    context["run"]["goal"] = "Greet."
    step = {"seq": 1, "kind": "message", "call": None, "iteration": 0}
    steps = [step | {"body": {"source": "goal", "text": asked}}] if asked else []
    context |= describe_task("Greet.", steps) | {"iterations": group_by_iteration(steps)}
    page = render("standalone.html", {**context, "style": ""})
    assert re.findall(r">(Task[^<]*)</", page) == titles
    assert page.count("Greet.") == count


def test_a_text_of_ours_is_a_sentence_with_code_on_a_page() -> None:
    assert sentence_html("start it by `agentctl <run>`") == (
        "Start it by <code>agentctl &lt;run&gt;</code>"
    )
    assert text_with_code("evil is paused: `<x>`") == "evil is paused: <code>&lt;x&gt;</code>"
    assert sentence_html("config.toml: a `b") == "config.toml: a `b"
    assert sentence_html("One `b` and ` c") == "One <code>b</code> and ` c"
    assert sentence_html("") == ""


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("inbox/a.csv and 2 more (0123456789abcdef)", "inbox/a.csv and 2 more"),
        ("msg_2Lml1Dq", "msg_2Lml1Dq"),
        ("0123456789abcdef0123456789abcdef", ""),
        ("01J9ZX3V6Y8K2M4N6P8Q0R2S4T", ""),
    ],
)
def test_the_event_of_a_run_is_shown_without_its_hash(event: str, words: str) -> None:
    assert event_in_words(event) == words


def test_who_answered_is_shown_by_name_where_the_machine_knows_it() -> None:
    own_name = pwd.getpwuid(os.getuid()).pw_name
    assert user_name(f"uid {os.getuid()}") == own_name
    for other in ("uid 999999999", "Ada (telegram)", "the daemon"):
        assert user_name(other) == other


async def test_the_page_of_a_run_shows_its_short_id_and_no_random_event(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        run = await harness.complete_run(started=NOW, ended=NOW + timedelta(seconds=3))

        def read_page() -> str:
            client = Client(str(harness.path))
            view = {**client.request("GET", f"/v1/runs/{run.id}"), "event": "a" * 32}
            context = {**transcript_context(client, view), "style": ""}
            return str(render("standalone.html", context))

        page = await asyncio.to_thread(read_page)
    assert f'<code title="{run.id}">{run.id[-8:]}</code>' in page
    assert "<dt>Event</dt>" not in page


def test_a_run_that_waits_has_a_colour_of_its_own_and_stands_in_the_legends() -> None:
    folder = Path(rendering.__file__).parent
    style = (folder / "static/style.css").read_text()
    for shape in (".cell", ".mark", ".card", ".badge"):
        rules = re.findall(r"([^{}]*)\{[^{}]*\}", style)
        assert not [rule for rule in rules if f"{shape}.waiting" in rule and "missed" in rule]
    for page in ("routines", "today"):
        (legend,) = re.findall(
            'aria-label="Legend".*', (folder / f"templates/{page}.html").read_text()
        )
        assert '"waiting"' in legend


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"command": "df -h"}, "df -h"),
        ({}, ""),
        ({"path": ".", "depth": 2, "what": ["a b"]}, 'path="." depth=2 what=["a b"]'),
        ({"text": "two\nlines"}, ""),
        ({"text": "a" * 121}, ""),
        ({"number": 3}, "number=3"),
    ],
)
def test_a_call_with_few_arguments_is_one_line(arguments: dict[str, Any], line: str) -> None:
    assert one_line_arguments(arguments) == line


def test_a_run_is_said_to_be_tainted_where_it_became_so() -> None:
    steps = [
        {"kind": "call", "call": "a", "body": {}},
        {"kind": "result", "call": "a", "body": {"taint": ""}},
        {"kind": "result", "call": "b", "body": {"taint": "tainted"}},
        {"kind": "result", "call": "c", "body": {"taint": "tainted"}},
    ]
    assert find_first_tainted_call(steps) == "b"
    assert find_first_tainted_call(steps[:2]) is None


def test_addresses_of_a_report_work_unless_its_run_has_read_what_strangers_wrote() -> None:
    report = "# Wiki\n\nSee [it](https://example.org) &#8238;<script>"
    html = report_html(report, "", top_level=3)
    assert "<h3>Wiki</h3>" in html and 'href="https://example.org"' in html
    assert "\u202e" not in html and "<script" not in html
    tainted_html = report_html(report, "tainted", top_level=3)
    assert "<a" not in tainted_html and "(hxxps://example[.]org)" in tainted_html
