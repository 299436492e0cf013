"""Who judges the calls of a replayed run, and who answers where a person was asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.agent.texts import say
from daemon.agent.tool_calls import ApprovalDecision
from daemon.definitions.routines.routine import Routine
from daemon.models import ApprovalRequest, Effect, FunctionCall, Json, StepKind, Taint, Verdict
from daemon.policy.policy import Policy
from daemon.policy.policy_file import TOOLS
from daemon.runs.replay.recorded import Recording, request_of

if TYPE_CHECKING:
    from daemon.runs.replay.cassette import Cassette

# What older versions wrote as the reason of a verdict that a person gave, or that followed from one
# of a person: see runs/approvals/approver.py.
_ASKED_BY = "asked by "
_REASONS_OF_REFUSALS = (
    "a person said no",
    "nobody answered in time",
    "questions of this run were refused",
    "was approved once",
)


def rule_that_asked(body: Json) -> str:
    """Return the rule by which a person was asked about a call, given the body of its `call` step;
    empty if no person decided about it.
    """
    if "asked" in body:
        return str(body["asked"])
    # journals and frozen runs of older versions say so in the reason of the verdict only
    verdict = body.get("verdict") or {}
    reason = str(verdict.get("reason", ""))
    if verdict.get("effect") == "deny":
        was_refused = any(text in reason for text in _REASONS_OF_REFUSALS)
        return str(verdict.get("rule", "")) if was_refused else ""
    return reason.removeprefix(_ASKED_BY) if reason.startswith(_ASKED_BY) else ""


class RecordedPolicy:
    """Returns the verdicts that were recorded, or those of the policy that the replay tries.

    Where the recorded policy itself says something else today, its verdict of today is returned:
    the comparison then shows the difference.
    """

    def __init__(
        self,
        recording: Recording,
        recorded_policies: Mapping[str, Policy],
        *,
        current_policy: Policy | None,
        other_policy: Policy | None,
        is_changed: bool,
    ) -> None:
        """`recorded_policies` are those of the recorded run, by hash. `current_policy` judges calls
        that were never made, where none was recorded. `other_policy`, if given, judges all calls.
        `is_changed` says that something is changed for the replay, so that calls come up which the
        recorded run never made.
        """
        self._recording, self._other_policy = recording, other_policy
        self._recorded_policies, self._is_changed = recorded_policies, is_changed
        self._last_policy = next(reversed(list(recorded_policies.values())), current_policy)
        self._calls: dict[tuple[str, bool], list[Json]] = defaultdict(list)
        """The bodies of the `call` steps with a verdict, by request and whether the run was
        tainted.
        """
        for step in recording.calls.values():
            if step.body.get("verdict"):
                request = request_of(step.body["tool"], step.body.get("arguments"))
                self._calls[request, bool(step.body.get("taint"))].append(step.body)
        self._counts: dict[tuple[str, bool], int] = defaultdict(int)
        """How often each of these was judged in this replay."""

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict:
        """Return the verdict on a call: of the policy that the replay tries, else as recorded."""
        if self._other_policy is not None:
            return self._other_policy.judge(tool, arguments, routine=routine, tainted=tainted)
        key = (request_of(tool, arguments), tainted)
        calls = self._calls.get(key)
        if calls is None:  # it is judged again before it runs, or was never made
            if not self._is_changed and not self._recording.call_ids_of(tool, arguments):
                return Verdict(effect=Effect.ASK, rule="replay", reason="it was not begun then")
            if self._last_policy is None:
                return Verdict(effect=Effect.ALLOW, rule="replay", reason="its policy was not kept")
            return self._last_policy.judge(tool, arguments, routine=routine, tainted=tainted)
        body = calls[min(self._counts[key], len(calls) - 1)]
        self._counts[key] += 1
        policy = self._recorded_policies.get(str(body.get("policy", "")))
        if policy is not None:
            changed_verdict = _find_changed_verdict(policy, body, tool, arguments, routine, tainted)
            if changed_verdict is not None:
                return changed_verdict
        if rule := rule_that_asked(body):
            return Verdict(effect=Effect.ASK, rule=rule, reason="a person was asked")
        return recorded_verdict(body)

    def is_read_only(self, tool: str, arguments: Json) -> bool:
        """Return whether a call changed nothing."""
        if tool in TOOLS and TOOLS[tool].actions:
            return TOOLS[tool].actions.get(str(arguments.get("action")), False)
        if tool in TOOLS and tool not in ("shell", "http_request"):
            return not TOOLS[tool].changes
        call_ids = self._recording.call_ids_of(tool, arguments)
        return any(self._recording.calls[call_id].body.get("repeatable") for call_id in call_ids)


def _find_changed_verdict(
    policy: Policy, body: Json, tool: str, arguments: Json, routine: str, tainted: bool
) -> Verdict | None:
    """Return what the recorded policy says of a call in this version of agentd, if that differs
    from what was recorded.

    The files that a path leads through may have changed meanwhile, or be those of another machine.
    So a verdict counts as changed only if it differs both with the files on this disk and by the
    texts of the rules alone.
    """
    if body.get("by_files"):
        return None
    for variant in (policy.without_disk(), policy):
        verdict = variant.judge(tool, arguments, routine=routine, tainted=tainted)
        if _equals_recorded(verdict, body):
            return None
    return verdict


def recorded_verdict(body: Json) -> Verdict:
    """Return the verdict that a `call` step recorded."""
    verdict = body["verdict"]
    return Verdict(
        effect=Effect(verdict["effect"]),
        rule=verdict.get("rule", ""),
        reason=verdict.get("reason", ""),
        alternative=verdict.get("allowed", ""),
        once=verdict.get("once", ""),
    )


def _equals_recorded(verdict: Verdict, body: Json) -> bool:
    """Return whether a verdict is the one that a `call` step recorded.

    Of a call that a person decided about it only has to say that a person has to be asked.
    """
    if rule_that_asked(body):
        return verdict.effect is Effect.ASK
    old_verdict = recorded_verdict(body)
    if old_verdict.effect is Effect.DENY and verdict.effect is Effect.ASK:
        return True  # nobody could be asked: a sub-agent, or a rule that says so
    return verdict.effect is old_verdict.effect and verdict.rule == old_verdict.rule


class RecordedApprover:
    """Answers as people answered; allows each call about which none was asked, and keeps it in
    `would_ask`.
    """

    def __init__(self, recording: Recording, *, is_changed: bool) -> None:
        self._recording, self._is_changed = recording, is_changed
        self._calls_after_a_wait = _find_calls_after_a_wait(recording)
        self._waiting_calls: set[str] = set()
        self._answered_calls: set[str] = set()
        self.would_ask: dict[str, Verdict] = {}
        """Calls that a person would be asked about and was not, by id."""

    async def decide(
        self, call_id: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        """Return whether the call of this id may start, is refused, or waits for a person."""
        step = self._recording.calls.get(call_id)
        wait = ApprovalDecision(
            verdict=verdict,
            approval_request=ApprovalRequest(
                call_id=call_id, tool=call.name, request={}, digest="", rule=verdict.rule
            ),
        )
        is_recorded = (
            step is not None
            and bool(step.body.get("verdict"))
            and request_of(step.body["tool"], step.body.get("arguments"))
            == request_of(call.name, call.arguments)
        )
        if step is None or not is_recorded:
            return self._allow(call_id, verdict) if self._is_changed else wait
        if not rule_that_asked(step.body):
            return self._allow(call_id, verdict)
        if call_id in self._calls_after_a_wait and call_id not in self._answered_calls:
            self._waiting_calls.add(call_id)
            return wait
        old_verdict, asking_rule = recorded_verdict(step.body), str(step.body.get("asked", ""))
        if old_verdict.allows:
            approval = str(step.body.get("approval", ""))
            return ApprovalDecision(
                verdict=old_verdict,
                approval=approval,
                remembered_rule="" if approval else old_verdict.rule,
                asking_rule=asking_rule,
            )
        # the recorded result is the note on the refusal; from the third denial of the run on, a
        # sentence follows that tells the model to stop, and that is added anew here
        result = self._recording.results.get(call_id)
        text = str(result.body["text"]) if result else ""
        sentence_start = say("enough", self._recording.language, count="\0").partition("\0")[0]
        note = text.partition(f" {sentence_start}")[0]
        return ApprovalDecision(verdict=old_verdict, note=note, asking_rule=asking_rule)

    def give_next_answer(self) -> bool:
        """Answer the next call that waits, in the order of the record; return whether one waited
        for an answer.
        """
        waiting_calls = sorted(
            self._waiting_calls - self._answered_calls,
            key=self._recording.call_positions.__getitem__,
        )
        self._answered_calls.update(waiting_calls[:1])
        return bool(waiting_calls)

    def _allow(self, call_id: str, verdict: Verdict) -> ApprovalDecision:
        self.would_ask[call_id] = verdict
        return ApprovalDecision(
            verdict=replace(verdict, effect=Effect.ALLOW), remembered_rule=verdict.rule
        )


def _find_calls_after_a_wait(recording: Recording) -> set[str]:
    """Return the ids of the calls that were begun after their turn had waited for a person.

    The calls of a turn are begun in their order, but for those that wait. So once a call follows a
    later one of its turn, the turn has waited, and every call from there on was begun after that.
    """
    highest_numbers: dict[str, int] = {}
    calls_after_a_wait: set[str] = set()
    turns_that_waited: set[str] = set()
    for call_id in sorted(recording.calls, key=recording.call_positions.__getitem__):
        turn, _, number = call_id.partition(".")
        if not (turn.isdigit() and number.isdigit()):
            continue  # a gather step
        if int(number) < highest_numbers.get(turn, 0):
            turns_that_waited.add(turn)
        highest_numbers[turn] = max(int(number), highest_numbers.get(turn, 0))
        if turn in turns_that_waited:
            calls_after_a_wait.add(call_id)
    return calls_after_a_wait


def mark_verdicts_by_files(cassette: Cassette) -> Cassette:
    """Return the cassette with a mark (`by_files`) on each call whose verdict depends on the files
    of this machine, which another one does not have.
    """
    workspace = Path(cassette.workspace)
    policies = {
        policy_hash: Policy.read(text, workspace=workspace).without_disk()
        for policy_hash, text in cassette.policies.items()
    }
    routine_name = Routine.restore(cassette.definition).policy_name
    steps = []
    for step in cassette.steps:
        body = step.body
        policy = policies.get(str(body.get("policy", "")))
        if step.kind is StepKind.CALL and policy is not None and body.get("verdict"):
            verdict = policy.judge(
                body["tool"],
                body.get("arguments") or {},
                routine=routine_name,
                tainted=bool(body.get("taint")),
            )
            if not _equals_recorded(verdict, body):
                step = replace(step, body={**body, "by_files": True})
        steps.append(step)
    return replace(cassette, steps=steps)
