"""What the page shows of runs without a routine."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.client import ApiError
from daemon.web.rendering import render
from daemon.web.views import PageMoved, show_routine, show_runs


class Daemon:
    """The answers of a daemon without routines, in which these have run."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def request(self, method: str, path: str) -> Any:
        if path.startswith("/v1/routines/"):
            raise ApiError(404, {"code": "not_found", "detail": "there is no such routine"})
        items = []
        if any(f"routine={name}&" in f"{path}&" for name in self.names):
            items = [{"id": "01A", "routine": "ask"}]
        return {"items": items if "limit=1" in path else [], "next": None}


def test_the_name_of_a_run_without_a_routine_leads_to_such_runs() -> None:
    with pytest.raises(PageMoved) as moved:
        show_routine(Daemon("ask"), name="ask", query={})  # type: ignore[arg-type]
    assert moved.value.path == "/runs?routine=ask"
    with pytest.raises(ApiError, match="no such routine"):
        show_routine(Daemon("ask"), name="nobody", query={})  # type: ignore[arg-type]


def test_runs_without_a_routine_are_named_as_what_is_shown() -> None:
    page = render(*show_runs(Daemon("ask"), query={"routine": "ask"}))  # type: ignore[arg-type]
    assert "<option selected>ask</option>" in page
    assert "<option>" not in render(*show_runs(Daemon(), query={}))  # type: ignore[arg-type]
