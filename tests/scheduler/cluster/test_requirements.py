"""Requirements of a run that not every machine meets."""

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


def worker(host: str, capabilities: dict[str, list[str]], capacity: int = 4) -> Worker:
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
        capabilities=capabilities,
    )


@pytest.mark.parametrize(
    ("required", "missing"),
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
def test_a_run_needs_the_hosts_tools_and_servers_that_its_routine_names(required, missing):
    assert missing_requirements(required, EVERYWHERE, "box.example") == missing


def test_a_worker_of_an_older_version_matches_by_name_only():
    assert missing_requirements(routine("print", "space__*"), {}, "box") == []
    assert missing_requirements(routine("print", machines=("disk",)), {}, "box") == [
        "the name disk"
    ]


def test_tools_bound_to_other_hosts_are_not_available():
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


def test_the_missing_requirements_of_a_run_are_reported_per_worker():
    print_routine = routine("print", machines=("gpu-*",))
    box, gpu = worker("box", EVERYWHERE), worker("gpu-1", EVERYWHERE)
    assert describe_missing_worker(print_routine.dump(), [box, gpu]) == (
        "waits for a machine with the name gpu-* and the tool print:"
        " worker box:7 lacks the name gpu-* and the tool print; worker gpu-1:7 lacks the tool print"
    )
    assert (
        describe_missing_worker(
            print_routine.dump(), [box, worker("gpu-2", {**EVERYWHERE, "tools": ["print"]})]
        )
        == ""
    )
    assert describe_missing_worker('{"name": "later", "mood": "of a newer version"}', [box]) == ""
    assert (
        describe_missing_worker(print_routine.dump(), [worker("gpu-1", {}, capacity=0)])
        == "waits for a worker: nobody who executes runs is there"
    )
