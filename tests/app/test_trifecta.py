"""Doctor names each routine that holds strangers' words, private data and a way to act on them
unasked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.app.doctor.checks import Survey, judge
from daemon.app.trifecta import find_trifectas
from daemon.definitions.routines.routine import Routine
from daemon.policy.policy import Policy

RULES = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "http_request"
effect = "allow"
hosts = ["api.example.org"]
methods = ["GET", "POST"]
[[rule]]
tool = "memory_store"
effect = "allow"
"""
OPTED = '[routine.r]\ntainted_tools = ["http_request"]\n'


def routine(**fields: Any) -> Routine:
    return Routine.model_validate({"name": "r", **fields})


def agent(*tools: str, **fields: Any) -> Routine:
    return routine(run={"mode": "agent", "prompt": "x", "tools": list(tools)}, **fields)


def rights_of(tmp_path: Path, policy: str, definition: Routine) -> list[str]:
    (tmp_path / "policy.toml").write_text(policy)
    trifectas = find_trifectas(
        {"r": definition}, Policy.load(tmp_path / "policy.toml", workspace=tmp_path / "ws")
    )
    return [f"{triangle.reads} {triangle.private} {triangle.acts}" for triangle in trifectas]


@pytest.mark.parametrize(
    ("policy", "definition"),
    [
        # acting is asked about; nothing private; another tool was named; one answer without tools;
        # narrowed away
        (RULES, agent("file_read", "http_request")),
        (RULES + OPTED, agent("memory_store", "http_request", "self_info")),
        (RULES + OPTED, agent("file_read", "memory_store")),
        (
            RULES + OPTED,
            routine(run={"prompt": "x"}, gather=[{"name": "a", "tool": "file_read"}]),
        ),
        (
            RULES + '[routine.r]\ntools = ["file_read"]\ntainted_tools = ["http_request"]\n',
            agent("*"),
        ),
    ],
)
def test_a_routine_with_two_of_the_three_dangerous_rights_is_fine(
    tmp_path: Path, policy: str, definition: Routine
) -> None:
    assert rights_of(tmp_path, policy, definition) == []


@pytest.mark.parametrize("tools", [("file_read", "http_request"), ("*",), ("file_*", "http_*")])
def test_a_routine_with_all_three_dangerous_rights_is_named(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    (trifecta,) = rights_of(tmp_path, RULES + OPTED, agent(*tools))
    assert "file_read" in trifecta
    assert trifecta.endswith("('http_request',)")


MADE_BY_M = {"origin": {"routine": "m", "run": "01"}}
MAKER_OPTED = '[routine.m]\ntainted_tools = ["http_request"]\n'


def test_a_routine_that_an_agent_made_is_judged_by_the_section_of_its_maker(
    tmp_path: Path,
) -> None:
    definition = agent("file_read", "http_request", **MADE_BY_M)
    assert rights_of(tmp_path, RULES + OPTED, definition) == []
    (tmp_path / "policy.toml").write_text(RULES + MAKER_OPTED)
    policy = Policy.load(tmp_path / "policy.toml", workspace=tmp_path / "ws")
    (trifecta,) = find_trifectas({"r": definition}, policy)
    assert (trifecta.routine, trifecta.acts) == ("m/r", ("http_request",))
    rows = {row.name: row for row in judge(Survey(trifectas=(trifecta,)))}
    assert "[routine.m] tainted_tools" in rows["routine m/r"].fix


def test_a_tool_outside_the_section_of_the_maker_is_no_right(tmp_path: Path) -> None:
    narrowed = MAKER_OPTED + 'tools = ["http_request"]\n'
    assert rights_of(tmp_path, RULES + narrowed, agent("*", **MADE_BY_M)) == []


def test_a_pattern_gives_no_right_to_a_tool_that_must_be_named(tmp_path: Path) -> None:
    policy = RULES + '[[rule]]\ntool = "routine"\neffect = "allow"\n'
    tools = ("file_read", "routine")
    star, named = (f'[routine.r]\ntainted_tools = ["{word}"]\n' for word in ("*", "routine"))
    assert rights_of(tmp_path, policy + star, agent(*tools)) == []
    assert len(rights_of(tmp_path, policy + named, agent(*tools))) == 1


def test_doctor_names_the_right_to_remove(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(RULES + OPTED)
    policy = Policy.load(tmp_path / "policy.toml", workspace=tmp_path / "ws")
    trifectas = find_trifectas({"r": agent("file_read", "http_request")}, policy)
    rows = {row.name: row for row in judge(Survey(trifectas=trifectas))}
    assert rows["routine r"].state == "warn"
    assert "holds all three: reads strangers: file_read, http_request" in rows["routine r"].found
    assert "[routine.r] tainted_tools" in rows["routine r"].fix


def test_no_shipped_routine_has_all_three_dangerous_rights(tmp_path: Path) -> None:
    from daemon.definitions.routines.folder import load_folder

    home = Path(__file__).parents[2]
    policy = Policy.load(home / "policy.toml", workspace=tmp_path / "ws")
    assert find_trifectas(load_folder(home / "routines").routines, policy) == ()
