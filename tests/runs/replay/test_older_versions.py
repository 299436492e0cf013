"""Runs recorded by older versions, which lack fields of steps, are replayed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from daemon.agent.transcript import Transcript
from daemon.errors import OverBudget
from daemon.models import Fact, Json, Run, Step, StepKind
from daemon.providers.facts import new_boundary, wrap
from daemon.runs.replay.compare import compare_steps
from daemon.runs.replay.recorded import RecordedModel, Recording, drop_superseded_limits
from daemon.runs.replay.recorded_policy import rule_that_asked

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
def test_facts_are_read_from_the_field_and_without_a_field_from_the_text(
    body: Json, facts: tuple[Fact, ...]
) -> None:
    transcript = Transcript([Step(kind=StepKind.MESSAGE, iteration=0, body=body)])
    assert transcript.messages[0].facts == facts
    assert transcript.messages[0].content == body["text"]


def test_a_compacted_conversation_keeps_its_facts() -> None:
    goal: Json = {"text": WRITTEN, "source": "goal", "facts": [AS_FIELD]}
    compaction: Json = {"text": "In few words: …", "source": "afresh"}
    steps = [
        Step(kind=StepKind.PROMPT, iteration=0, body={"system": "You are agentd."}),
        *(Step(kind=StepKind.MESSAGE, iteration=0, body=body) for body in (goal, compaction)),
    ]
    assert [message.facts for message in Transcript(steps).messages] == [(), (HOST,)]


@pytest.mark.parametrize(
    ("effect", "rule", "reason", "field", "asking_rule"),
    [
        ("allow", "approval 7 by ada", "asked by rule 1 (shell)", {}, "rule 1 (shell)"),
        ("deny", "rule 1 (shell)", "a person said no", {}, "rule 1 (shell)"),
        ("deny", "rule 1 (shell)", "nobody answered in time", {}, "rule 1 (shell)"),
        ("deny", "rule 2 (shell)", "too dangerous", {}, ""),
        ("allow", "rule 3 (shell)", "", {}, ""),
        ("deny", "rule 1 (shell)", "in other words", {"asked": "rule 1 (shell)"}, "rule 1 (shell)"),
    ],
)
def test_a_recorded_verdict_names_the_rule_that_asked(
    effect: str, rule: str, reason: str, field: Json, asking_rule: str
) -> None:
    assert (
        rule_that_asked({"verdict": {"effect": effect, "rule": rule, "reason": reason}, **field})
        == asking_rule
    )


@pytest.mark.parametrize("iteration", [0, 1])
@pytest.mark.parametrize("field", [{}, {"offered": ["file_read", "shell"]}])
def test_a_recorded_call_of_an_unknown_tool_lists_the_offered_tools(
    field: Json, iteration: int
) -> None:
    text = "[error] there is no tool 'shel' here. The nearest is 'shell'. Offered: file_read, shell"
    steps = [
        Step(
            kind=StepKind.CALL,
            iteration=iteration,
            call_id="1.0",
            body={"tool": "shel", "arguments": {}},
        ),
        Step(
            kind=StepKind.RESULT,
            iteration=iteration,
            call_id="1.0",
            body={"tool": "shel", "ok": False, "text": text, **field},
        ),
    ]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    run = Run(id="1", routine="a", definition="", trigger="manual", slot=now, created=now)
    recording = Recording(steps, run, "en")
    assert recording.unknown_tools() == {"shel"}
    # what the model was offered says nothing of the gather
    assert recording.tools_of_gather() == (None if iteration else ["file_read", "shell"])


def limit_step(iteration: int, **body: object) -> Step:
    return Step(kind=StepKind.LIMIT, iteration=iteration, body={"rule": "[run.budget] day", **body})


@pytest.mark.parametrize(
    ("steps", "detail", "rule", "tokens"),
    [
        ([limit_step(1)], "whatever", "[run.budget] day", None),
        ([limit_step(1, tokens=900)], "whatever", "[run.budget] day", 900),
        (
            [],
            "stopped: a cap on spending does not cover another call ([run.budget] day)",
            "[run.budget] day",
            None,
        ),
        (
            [],
            "stopped: the budget of 900 tokens does not cover another call",
            "[run.budget] tokens",
            900,
        ),
    ],
)
async def test_a_cap_is_read_from_its_step_and_without_a_step_from_the_detail(
    steps: list[Step], detail: str, rule: str, tokens: int | None
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    run = Run(
        id="1",
        routine="a",
        definition="",
        trigger="manual",
        slot=now,
        created=now,
        detail=detail,
    )
    recording = Recording(steps, run, "en")
    model = RecordedModel("a", "m", recording, list(recording.model_steps))
    with pytest.raises(OverBudget) as error:
        await model.chat([])
    assert (error.value.rule, error.value.tokens) == (rule, tokens)


def test_a_limit_counts_only_as_the_last_step() -> None:
    answer = Step(kind=StepKind.LLM, iteration=1, body={"content": "Hello."})
    last = limit_step(2)
    assert drop_superseded_limits([limit_step(0), answer, last]) == [answer, last]
    assert drop_superseded_limits([]) == []


@pytest.mark.parametrize("has_field", [True, False])
def test_goals_with_other_boundaries_are_equal(has_field: bool) -> None:
    goals = []
    for boundary in (new_boundary(), new_boundary()):
        body: Json = {"text": f"Go.\n\n{wrap([HOST], boundary)}", "source": "goal"}
        if has_field:
            body["boundary"] = boundary
        goals.append([Step(kind=StepKind.MESSAGE, iteration=0, body=body)])
    assert list(compare_steps(*goals)) == []
