"""What the page says first: that all is well, or what a person should look at."""

from __future__ import annotations

from daemon.web.today import find_attention_items, find_failing_routines


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
