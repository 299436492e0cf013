"""Runs that older versions recorded say in words what steps say in fields now, and are replayed as
well.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from daemon.agent.transcript import Transcript
from daemon.models import Fact, Json, Run, Step, StepKind
from daemon.providers.facts import new_boundary, wrap
from daemon.runs.replay.recorded import Recording
from daemon.runs.replay.verdicts import asked_by

HOST = Fact(name="host", tool="sysinfo", ok=True, text="up", changes=("rebooted",))
WRITTEN = f"Report.\n\n{wrap([HOST], new_boundary())}"
AS_FIELD = {"name": "host", "tool": "sysinfo", "ok": True, "text": "up", "changes": ["rebooted"]}


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        ({"text": WRITTEN, "source": "goal"}, (HOST,)),
        ({"text": WRITTEN, "source": "goal", "facts": [AS_FIELD]}, (HOST,)),
        ({"text": WRITTEN, "source": "goal", "facts": []}, ()),
        ({"text": WRITTEN, "source": "told", "told": 1}, ()),
    ],
)
def test_facts_are_read_from_the_field_and_from_the_text_only_where_there_is_none(
    body: Json, facts: tuple[Fact, ...]
) -> None:
    transcript = Transcript([Step(kind=StepKind.MESSAGE, iteration=0, body=body)])
    assert transcript.messages[0].facts == facts
    assert transcript.messages[0].content == body["text"]


def test_facts_stay_where_a_conversation_begins_afresh() -> None:
    goal: Json = {"text": WRITTEN, "source": "goal", "facts": [AS_FIELD]}
    afresh: Json = {"text": "In few words: …", "source": "afresh"}
    steps = [
        Step(kind=StepKind.PROMPT, iteration=0, body={"system": "You are agentd."}),
        *(Step(kind=StepKind.MESSAGE, iteration=0, body=body) for body in (goal, afresh)),
    ]
    assert [message.facts for message in Transcript(steps).messages] == [(), (HOST,)]


@pytest.mark.parametrize(
    ("effect", "rule", "reason", "field", "asked"),
    [
        ("allow", "approval 7 by ada", "asked by rule 1 (shell)", {}, "rule 1 (shell)"),
        ("deny", "rule 1 (shell)", "a person said no", {}, "rule 1 (shell)"),
        ("deny", "rule 1 (shell)", "nobody answered in time", {}, "rule 1 (shell)"),
        ("deny", "rule 2 (shell)", "too dangerous", {}, ""),
        ("allow", "rule 3 (shell)", "", {}, ""),
        ("deny", "rule 1 (shell)", "in other words", {"asked": "rule 1 (shell)"}, "rule 1 (shell)"),
    ],
)
def test_a_verdict_says_by_which_rule_a_person_was_asked(
    effect: str, rule: str, reason: str, field: Json, asked: str
) -> None:
    assert (
        asked_by({"verdict": {"effect": effect, "rule": rule, "reason": reason}, **field}) == asked
    )


@pytest.mark.parametrize("field", [{}, {"offered": ["file_read", "shell"]}])
def test_a_refused_call_of_an_unknown_tool_says_which_tools_there_were(field: Json) -> None:
    text = "[error] there is no tool 'shel' here. The nearest is 'shell'. Offered: file_read, shell"
    steps = [
        Step(
            kind=StepKind.CALL, iteration=1, call_id="1.0", body={"tool": "shel", "arguments": {}}
        ),
        Step(
            kind=StepKind.RESULT,
            iteration=1,
            call_id="1.0",
            body={"tool": "shel", "ok": False, "text": text, **field},
        ),
    ]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    run = Run(id="1", routine="a", definition="", trigger="manual", slot=now, created=now)
    assert Recording(steps, run, "en").unknown_here() == {"shel": ["file_read", "shell"]}
