"""What we promise of a run that was lived to its end, however often its process died."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeAlias

from daemon.agent.texts import say
from daemon.models import Run, Status
from daemon.store.rows import STEP_COLUMNS, decode, row_checksum
from daemon.store.texts import decode_references, inflate_text, references
from tests.crash.scenario import AGAIN, ONCE, REFUSED, SUBAGENT, CrashScenario

QUESTION = "coalesce(kind, '') = 'approval.asked'"
"""Of a row of the outbox: it asks people to approve a call, and is no report."""

Call: TypeAlias = tuple[str, str]
"""The run and the place of a call."""


@dataclass(frozen=True)
class Outcome:
    """What is the same however often a process died."""

    status: Status
    report: str | None
    silent: bool
    slots: Any
    deliveries: Any
    approvals: Any
    memory_items: Any


def outcome(scenario: CrashScenario, run: Run) -> Outcome:
    """Return what became of a run."""
    return Outcome(
        status=run.status,
        report=run.report,
        silent=run.silent,
        slots=scenario.look(
            "SELECT outcome, reason, event IS NULL, count FROM slot ORDER BY run_id"
        ),
        deliveries=scenario.look(
            (
                f"SELECT target, status FROM outbox WHERE run_id = ? AND NOT {QUESTION} ORDER BY "
                "target"
            ),
            run.id,
        ),
        # After three refusals a run asks no more: where a death came between two answers, the
        # question that still waits is void.
        approvals=scenario.look(
            (
                "SELECT CASE WHEN ? AND status = 'void' THEN 'rejected' ELSE status END, count(*) "
                "FROM approval GROUP BY 1"
            ),
            scenario.script.refuses,
        ),
        memory_items=scenario.look("SELECT category, count(*) FROM memory_item GROUP BY category"),
    )


def interruptible(scenario: CrashScenario) -> set[Call]:
    """Return the calls of which a process that dies now leaves nothing but that they began: these
    are not repeated.
    """
    begin_steps = scenario.look(
        "SELECT run_id, call_id, body FROM step AS call WHERE kind = 'call' AND NOT EXISTS (SELECT "
        "1 FROM step WHERE"
        " run_id = call.run_id AND call_id = call.call_id AND kind = 'result')"
    )
    return {(run, call) for run, call, body in begin_steps if not decode(body)["repeatable"]}


def check(
    scenario: CrashScenario,
    run: Run,
    expected: Outcome,
    *,
    deaths: int,
    interrupted_calls: set[Call] | None = None,
) -> None:
    """Check the promises; `interrupted_calls` are the calls that were under way at the deaths,
    where that is known.
    """
    assert scenario.broken_promises == []
    came_to = outcome(scenario, run)
    assert came_to == expected, f"{came_to}, not {expected}; the run: {run.detail}"
    _check_calls(scenario, run, deaths, interrupted_calls)
    _check_journal(scenario)
    _check_words(scenario, run)
    _check_reports(scenario, expected, deaths)
    _check_questions(scenario, deaths)


def _check_calls(
    scenario: CrashScenario, run: Run, deaths: int, under_way: set[Call] | None
) -> None:
    """Nothing that changes something started twice or got lost; what is unknown is what was under
    way.
    """
    steps_by_call, unknown = {}, set()
    for id_, call, kind, body in scenario.look(
        (  # noqa: UP034
            "SELECT run_id, call_id, kind, body FROM step WHERE kind IN ('call', 'result') ORDER BY "  # noqa: E501
            "run_id, seq"
        )
    ):
        step = decode(body)
        if kind == "call":
            assert (id_, call) not in steps_by_call, "a call was written down twice"
            steps_by_call[id_, call] = step
        elif step["text"].endswith(say("interrupted", "en")):
            unknown.add((id_, call))
    if under_way is None:
        assert len(unknown) <= deaths
    elif run.status is not Status.CANCELLED:
        assert unknown == under_way
    for key, step in steps_by_call.items():
        number, start_counts = step["arguments"].get("n"), scenario.start_counts
        if step["tool"] in ONCE and (step.get("verdict") or {}).get("effect") != "deny":
            least = 0 if key in unknown or run.status is Status.CANCELLED else 1
            assert least <= start_counts[number] <= 1, (
                f"{step['tool']} {number} started {start_counts[number]} times"
            )
        elif step["tool"] in AGAIN:
            least = 0 if run.status is Status.CANCELLED else 1
            assert least <= start_counts[number] <= 1 + deaths
        elif step["tool"] in REFUSED:
            assert start_counts[number] == 0
    numbers = {step["arguments"].get("n") for step in steps_by_call.values()}
    assert set(scenario.start_counts) <= numbers, "a call started that nobody wrote down"


def _check_journal(scenario: CrashScenario) -> None:
    """No hole, no double, nothing that the row does not know of, a result for each call, all of
    each prompt.
    """
    texts = dict(scenario.look("SELECT digest, body FROM text"))
    digests = {
        digest for (body,) in scenario.look("SELECT body FROM step") for digest in references(body)
    }
    assert digests <= {digest for digest, body in texts.items() if inflate_text(digest, body)}
    for id_, steps, seal, status in scenario.look("SELECT id, steps, seal, status FROM run"):
        assert Status(status).has_ended
        rows = scenario.look(f"SELECT {STEP_COLUMNS} FROM step WHERE run_id = ? ORDER BY seq", id_)
        assert [row[4] for row in rows] == list(range(steps))
        assert seal == sum(map(row_checksum, rows))
        answers = [row[1] for row in rows if row[0] == "llm"]
        assert answers == list(range(1, len(answers) + 1))
        calls, results = ([row[3] for row in rows if row[0] == kind] for kind in ("call", "result"))
        assert len(set(results)) == len(results), "a call has two results"
        assert set(calls) == set(results) or status == "cancelled", "a call has no result"
        assert sum(row[0] == "prompt" for row in rows) <= 1
    begun_children = sum(
        decode(body)["tool"] == SUBAGENT
        for (body,) in scenario.look("SELECT body FROM step WHERE kind = 'call'")
    )
    (children,) = scenario.look("SELECT count(*) FROM run WHERE routine = ?", SUBAGENT)[0]
    assert children == begun_children or scenario.script.cancel_turn is not None
    assert scenario.look("SELECT count(*) FROM run WHERE routine NOT IN ('work', ?)", SUBAGENT) == [
        (0,)
    ]


def _check_words(scenario: CrashScenario, run: Run) -> None:
    """What people were told is done was heard once; what is remembered of the run is all that was
    said.
    """
    bodies = [
        decode(body)
        for (body,) in scenario.look("SELECT body FROM step WHERE kind = 'message' ORDER BY seq")
    ]
    message_counts = Counter(body["text"] for body in bodies if body.get("source") == "told")
    confirmations = [wish for wish in scenario.confirmed_wishes if wish.startswith("tell")]
    if run.status is not Status.CANCELLED:
        assert message_counts == Counter(f"Be quick. ({wish})" for wish in confirmations)
        pieces = 1 + sum(
            _pieces(kind, decode_references(body)) for kind, body in _steps(scenario, run)
        )
        has_ended = run.status is not Status.SKIPPED
        query = (
            "SELECT count(*) FROM memory_segment WHERE memory_run = (SELECT id FROM memory_run "
            "WHERE run_id = ?)"
        )
        assert scenario.look(query, run.id) == [(pieces * has_ended,)]


def _steps(scenario: CrashScenario, run: Run) -> list[tuple[str, bytes]]:
    return scenario.look("SELECT kind, body FROM step WHERE run_id = ?", run.id)


def _pieces(kind: str, body: Any) -> int:
    match kind:
        case "message":
            return body.get("source") not in ("goal", "nudge")
        case "llm":
            return bool(body["content"].strip()) + len(body["calls"])
        case "result":
            return 1
    return 0


def _check_reports(scenario: CrashScenario, expected: Outcome, deaths: int) -> None:
    """Each report arrived: once, and again only where we died between sending it and writing that
    down.
    """
    messages = Counter(scenario.messages)
    targets = [target for target, status in expected.deliveries if status == "delivered"]
    assert sorted(target for _, target, _ in messages) == targets
    assert max(messages.values(), default=0) <= 1 + deaths
    if expected.report:
        assert all(expected.report in text for _, _, text in messages)


def _check_questions(scenario: CrashScenario, deaths: int) -> None:
    """People were told of each question, once in each place, and nothing tells of it as open any
    more.
    """
    question_counts: Counter[tuple[str, str]] = Counter()
    for target, options in scenario.look(f"SELECT target, options FROM outbox WHERE {QUESTION}"):
        question_counts.update((id_, target) for id_ in json.loads(options)["approvals"])
    approval_ids = [id_ for (id_,) in scenario.look("SELECT id FROM approval")]
    assert question_counts == Counter(
        (id_, target) for id_ in approval_ids for target in ("alpha", "beta")
    )
    assert max(Counter(scenario.questions).values(), default=0) <= 1 + deaths
    assert scenario.look(
        "SELECT count(*) FROM incident WHERE closed IS NULL AND subject LIKE 'approval %'"
    ) == [(0,)]
