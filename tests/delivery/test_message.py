"""The title, header and body of a delivered report."""

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


def test_a_leading_heading_becomes_the_title_of_the_message(delivery):
    letter = compose(delivery("# Good morning #\n\nAll is well.\n\n## Disks\n\nfull"))
    assert (letter.title, letter.body) == ("Good morning", "All is well.\n\n## Disks\n\nfull")


def test_a_report_of_a_heading_only_is_not_empty(delivery):
    letter = compose(delivery("# All is well"))
    assert (letter.title, letter.body) == ("All is well", "All is well")


@pytest.mark.parametrize(
    "text", ["## Smaller\n\ntext", "#hashtag first", "text\n\n# Later", "#", "# "]
)
def test_a_heading_lookalike_stays_in_the_body_of_the_message(delivery, text):
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
            "scheduled for 2026-11-20 08:30 CET, begun 2026-11-23 00:30, 2 d 16 h late",
        ),
        (
            {"started": "2026-11-20T07:58:00+00:00", "delay": 1680.0},
            "scheduled for 2026-11-20 08:30 CET, begun 08:58",
        ),
        (
            {"started": "2026-11-20T08:03:00+00:00", "delay": 1680.0},
            "scheduled for 2026-11-20 08:30 CET, begun 09:03, 5 min late",
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
        ({"trigger": "watch"}, "started by new files 2026-11-20 08:30 CET"),
    ],
)
def test_late_report_shows_due_time_and_start_time(delivery, options, about):
    assert compose(delivery(**options)).about == f"Run `{RUN}`, {about}"


def test_the_message_of_a_failed_run_has_the_status_the_reason_and_a_next_step(delivery):
    letter = compose(
        delivery("", status=Status.TIMED_OUT, detail="not done within 600 s of active time")
    )
    assert letter.title == "daily-report timed out, 2026-11-20 08:30 CET"
    assert (
        letter.body
        == f"not done within 600 s of active time\n\n`agentctl inspect {RUN}` shows every step."
    )


def test_the_message_of_a_failed_run_keeps_its_partial_report(delivery):
    body = compose(
        delivery("Half a report.", status=Status.FAILED, detail="10 iterations used up")
    ).body
    assert body.startswith(
        "10 iterations used up\n\nWhat it had to say by then:\n\nHalf a report.\n\n"
    )


def test_a_failure_leaves_out_the_answer_of_report_items_that_a_model_has_repeated(delivery):
    counts = '{"items": 2, "new": 1, "seen": 1, "new_at": [0]}'
    kept = '{"items": 2} and {"new": 1}'
    body = compose(
        delivery(f"{counts}\nHalf a report.\n{kept}", status=Status.FAILED, detail="no")
    ).body
    assert body.startswith(f"no\n\nWhat it had to say by then:\n\nHalf a report.\n{kept}\n\n")
    only_counts = compose(delivery(counts, status=Status.FAILED, detail="no")).body
    assert only_counts == f"no\n\n`agentctl inspect {RUN}` shows every step."


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


def test_the_report_of_a_tainted_run_has_no_usable_address_and_mentions_injected_orders(delivery):
    tainted_delivery = delivery("[more](https://evil.example/x) \x1b[31mred")
    clean = compose(tainted_delivery)
    assert clean.body == "[more](https://evil.example/x) red"
    message = compose(
        replace(tainted_delivery, report=replace(tainted_delivery.report, taint=Taint.TAINTED))
    )
    assert message.body == "[more] (hxxps://evil[.]example/x) red"
    high = compose(
        replace(tainted_delivery, report=replace(tainted_delivery.report, taint=Taint.HIGH))
    )
    assert "looked like an attempt to give it orders" in high.body


def test_the_failure_reason_of_a_tainted_run_is_sanitized(delivery):
    tainted_delivery = delivery("", status=Status.FAILED, detail="see https://evil.example/x")
    message = compose(
        replace(tainted_delivery, report=replace(tainted_delivery.report, taint=Taint.TAINTED))
    )
    assert "hxxps://evil[.]example/x" in message.body


def test_the_output_of_a_script_keeps_its_first_line_and_its_columns(delivery):
    text = "\n  PID USER\n# 1 root\n"
    message = compose(delivery(text, verbatim=True))
    assert (message.title, message.body) == (
        "daily-report, 2026-11-20 08:30 CET",
        "  PID USER\n# 1 root",
    )
    assert message.verbatim


def test_the_output_of_a_failed_script_is_quoted_as_code(delivery):
    message = compose(
        delivery(
            "``` not mine\n",
            status=Status.FAILED,
            verbatim=True,
            detail="disk: df ended with exit code 1",
        )
    )
    assert "disk: df ended with exit code 1" in message.body
    assert "````\n``` not mine\n````" in message.body
    assert not message.verbatim
