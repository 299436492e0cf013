"""A report tells its reader what it is, for when it was due and when it came."""

from dataclasses import replace

import pytest

from daemon.delivery.message import compose
from daemon.models import Status, Taint

RUN = "01JAAAAAAAAAAAAAAAAAAAAAAA"


def test_a_report_is_dated_in_its_routines_zone(delivery):
    assert compose(delivery("All is well.\n")).markdown == (
        f"# daily-report, 2026-11-20 08:30 CET\n\n*Run `{RUN}`, scheduled for 2026-11-20 08:30 "
        "CET*\n\nAll is well.\n"
    )


def test_a_report_that_brings_a_title_keeps_it(delivery):
    letter = compose(delivery("# Good morning #\n\nAll is well.\n\n## Disks\n\nfull"))
    assert (letter.title, letter.body) == ("Good morning", "All is well.\n\n## Disks\n\nfull")


@pytest.mark.parametrize(
    "text", ["## Smaller\n\ntext", "#hashtag first", "text\n\n# Later", "#", "# "]
)
def test_what_only_looks_like_a_title_stays_in_the_text(delivery, text):
    letter = compose(delivery(text))
    assert letter.title == "daily-report, 2026-11-20 08:30 CET"
    assert letter.body == text.strip()


@pytest.mark.parametrize(
    ("options", "about"),
    [
        (
            {"started": "2026-11-20T07:30:01+00:00", "ended": "2026-11-20T07:30:20+00:00"},
            "scheduled for 2026-11-20 08:30 CET",
        ),
        (
            {"started": "2026-11-20T10:42:00+00:00", "ended": "2026-11-20T10:45:00+00:00"},
            "scheduled for 2026-11-20 08:30 CET, begun 11:42, 3 h 12 min late, done 11:45",
        ),
        (
            {"started": "2026-11-22T23:30:00+00:00", "ended": "2026-11-22T23:30:09+00:00"},
            "scheduled for 2026-11-20 08:30 CET, begun 2026-11-23 00:30, 2 days late",
        ),
        (
            {"trigger": "manual", "started": "2026-11-20T07:30:00+00:00"},
            "started by hand 2026-11-20 08:30 CET",
        ),
        (
            {
                "trigger": "manual",
                "started": "2026-11-20T07:40:00+00:00",
                "ended": "2026-11-20T07:50:00+00:00",
            },
            "started by hand 2026-11-20 08:30 CET, begun 08:40, done 08:50",
        ),
        ({"trigger": "first_run"}, "first run 2026-11-20 08:30 CET"),
    ],
)
def test_late_report_shows_due_time_and_start_time(delivery, options, about):
    assert compose(delivery(**options)).about == f"Run `{RUN}`, {about}"


def test_a_failure_says_so_in_its_title_and_gives_the_reason_and_the_next_step(delivery):
    letter = compose(
        delivery("", status=Status.TIMED_OUT, detail="not done within 600 s of active time")
    )
    assert letter.title == "daily-report timed out, 2026-11-20 08:30 CET"
    assert (
        letter.body
        == f"not done within 600 s of active time\n\n`agentctl inspect {RUN}` shows every step."
    )


def test_a_failure_keeps_what_was_written_by_then(delivery):
    body = compose(
        delivery("Half a report.", status=Status.FAILED, detail="10 iterations used up")
    ).body
    assert body.startswith(
        "10 iterations used up\n\nWhat it had to say by then:\n\nHalf a report.\n\n"
    )


def test_reason_of_a_failure_appears_once(delivery):
    assert (
        compose(delivery("no key", status=Status.FAILED, detail="no key")).body.count("no key") == 1
    )


@pytest.mark.parametrize("status", [status for status in Status if status.has_ended])
def test_every_ending_has_a_text(delivery, status):
    letter = compose(delivery("", status=status))
    assert letter.title
    assert letter.body


def test_empty_report_is_marked_as_empty(delivery):
    assert compose(delivery("  \n")).body == "(The report is empty.)"


def test_in_the_report_of_a_tainted_run_no_address_is_left_and_orders_are_mentioned(delivery):
    told = delivery("[more](https://evil.example/x) \x1b[31mred")
    clean = compose(told)
    assert clean.body == "[more](https://evil.example/x) red"
    tainted = compose(replace(told, report=replace(told.report, taint=Taint.TAINTED)))
    assert tainted.body == "[more] (hxxps://evil[.]example/x) red"
    high = compose(replace(told, report=replace(told.report, taint=Taint.HIGH)))
    assert "looked like an attempt to give it orders" in high.body


def test_the_reason_of_a_failure_is_a_strangers_word_too(delivery):
    told = delivery("", status=Status.FAILED, detail="see https://evil.example/x")
    tainted = compose(replace(told, report=replace(told.report, taint=Taint.TAINTED)))
    assert "hxxps://evil[.]example/x" in tainted.body
