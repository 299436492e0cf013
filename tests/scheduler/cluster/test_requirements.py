"""What a run needs that not every machine has, judged from values."""

from datetime import UTC, datetime

import pytest

from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import McpConfig
from daemon.definitions.routines.routine import Routine
from daemon.scheduler.cluster.requirements import (
    capabilities_of,
    describe_missing_worker,
    missing_requirements,
)
from daemon.store.workers import Worker

EVERYWHERE = {"tools": ["shell", "scan", "finish"], "servers": ["time"]}


def routine(*tools: str, machines: tuple[str, ...] = (), gather: str = "") -> Routine:
    steps = [{"name": "first", "tool": gather}] if gather else []
    return Routine.model_validate(
        {
            "name": "work",
            "trigger": {"every": "1h", "machines": machines} if machines else {"every": "1h"},
            "run": {"mode": "agent", "prompt": "Go.", "tools": tools},
            "gather": steps,
        }
    )


def worker(host: str, has: dict[str, list[str]], capacity: int = 4) -> Worker:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Worker(
        id=host,
        kind="worker",
        host=host,
        pid=7,
        version="1",
        started=now,
        seen=now,
        capacity=capacity,
        has=has,
    )


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        (routine("shell", "scan"), []),
        (routine("time__*", "time__now", "sh*"), []),
        (routine("*__now"), []),
        (routine("print"), ["the tool print"]),
        (routine("shell", gather="print"), ["the tool print"]),
        (routine("space__*", "space__now", "print"), ["the MCP server space", "the tool print"]),
        (routine("shell", machines=("gpu-*", "box.example")), []),
        (routine("shell", machines=("gpu-*", "disk")), ["the name gpu-* or disk"]),
        (routine("print", machines=("disk",)), ["the name disk", "the tool print"]),
    ],
)
def test_a_run_needs_the_hosts_tools_and_servers_that_its_routine_names(asked, missing):
    assert missing_requirements(asked, EVERYWHERE, "box.example") == missing


def test_of_a_version_that_does_not_say_what_it_has_only_the_name_counts():
    assert missing_requirements(routine("print", "space__*"), {}, "box") == []
    assert missing_requirements(routine("print", machines=("disk",)), {}, "box") == [
        "the name disk"
    ]


def test_what_is_bound_to_other_hosts_is_not_had():
    servers = {
        "time": McpConfig(command=["t"]),
        "space": McpConfig(command=["s"], machines=["gpu-*"]),
    }
    config = Config.model_construct(mcp=servers)
    tools = ["shell", "scan", "time__now"]
    assert capabilities_of(config, tools, absent={"scan"}, host="box") == {
        "tools": ["shell"],
        "servers": ["time"],
    }
    assert capabilities_of(config, tools, absent=(), host="gpu-1")["servers"] == ["space", "time"]


def test_people_are_told_what_a_run_waits_for_and_who_lacks_it():
    asked = routine("print", machines=("gpu-*",))
    box, gpu = worker("box", EVERYWHERE), worker("gpu-1", EVERYWHERE)
    assert describe_missing_worker(asked.dump(), [box, gpu]) == (
        "waits for a machine with the name gpu-* and the tool print:"
        " worker box:7 lacks the name gpu-* and the tool print; worker gpu-1:7 lacks the tool print"
    )
    assert (
        describe_missing_worker(
            asked.dump(), [box, worker("gpu-2", {**EVERYWHERE, "tools": ["print"]})]
        )
        == ""
    )
    assert describe_missing_worker('{"name": "later", "mood": "of a newer version"}', [box]) == ""
    assert (
        describe_missing_worker(asked.dump(), [worker("gpu-1", {}, capacity=0)])
        == "waits for a worker: nobody who executes runs is there"
    )
