"""The line about a run that memory keeps."""

from __future__ import annotations

import pytest

from daemon.memory.archive import make_run_line
from daemon.models import Reply, Status
from tests.scheduler.test_explain import run


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ("All is well.", "All is well."),
        ("# Daily report\n\nThe disk is nearly full.\n", "The disk is nearly full."),
        ("*No model was asked.*\n\n## Host\n\n- up 3 days\n", "- up 3 days"),
        ("**Warning** the disk is full", "**Warning** the disk is full"),
        ("## Only a heading", "Only a heading"),
        ("| a | b |\n| --- | --- |", "| a | b |"),
        ("---\n\n***\n", "nothing to report"),
        ("", "nothing to report"),
        ("x" * 400, "x" * 300 + "…"),
    ],
)
def test_the_line_about_a_run_is_its_first_meaningful_line(report: str, line: str) -> None:
    run_line = make_run_line(
        run(Status.SUCCEEDED, goal="How is it?"), Reply(content=report, status=Status.SUCCEEDED)
    )
    assert run_line == f"daily, 2026-01-01 09:00 UTC: How is it? → {line}"


def test_summary_of_a_model_replaces_the_first_line() -> None:
    line = make_run_line(
        run(Status.SUCCEEDED), Reply(content="# x", status=Status.SUCCEEDED), "The disk is full."
    )
    assert line == "daily, 2026-01-01 09:00 UTC: The disk is full."
