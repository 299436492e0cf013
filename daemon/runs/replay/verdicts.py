"""Who judges the calls of a run that is played again, and who answers where a person was asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
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

# What verdicts of older versions say that were a person's, or followed from one: see
# runs/approvals/approver.py.
_ASKED_BY = "asked by "
_REFUSED = (
    "a person said no",
    "nobody answered in time",
    "questions of this run were refused",
    "was approved once",
)


def asked_by(body: Json) -> str:
    """Return the rule by which a person was asked, if the verdict of a call was a person's or
    followed from one.

    Empty if it was not. Journals and frozen runs of older versions say so in the reason of the
    verdict only.
    """
    if "asked" in body:
        return str(body["asked"])
    verdict = body.get("verdict") or {}
    reason = str(verdict.get("reason", ""))
    if verdict.get("effect") == "deny":
        return str(verdict.get("rule", "")) if any(words in reason for words in _REFUSED) else ""
    return reason.removeprefix(_ASKED_BY) if reason.startswith(_ASKED_BY) else ""


class RecordedPolicy:
    """Judge by the policy that is to be tried, else as was judged then; notice where that is no
    longer so.
    """

    def __init__(
        self,
        recording: Recording,
        then: Mapping[str, Policy],
        by_now: Policy | None,
        other: Policy | None,
        *,
        trying: bool,
    ) -> None:
        """Take the policies of then by hash, the one for calls that were never made, and one that
        is to be tried.

        `trying` says that something is otherwise, so that calls come up which the recorded run
        never made.
        """
        self._trying = trying
        self._recording, self._then, self._other = recording, then, other
        self._last = next(reversed(list(then.values())), by_now)
        self._verdicts: dict[tuple[str, bool], list[Json]] = defaultdict(list)
        for step in recording.calls.values():
            if step.body.get("verdict"):
                request = request_of(step.body["tool"], step.body.get("arguments"))
                self._verdicts[request, bool(step.body.get("taint"))].append(step.body)
        self._asked: dict[tuple[str, bool], int] = defaultdict(int)

    def judge(self, tool: str, arguments: Json, *, routine: str, tainted: bool = False) -> Verdict:
        """Say whether a call may run."""
        if self._other is not None:
            return self._other.judge(tool, arguments, routine=routine, tainted=tainted)
        found = self._verdicts.get((request_of(tool, arguments), tainted))
        if found is None and not self._trying and not self._recording.keys_of(tool, arguments):
            return Verdict(effect=Effect.ASK, rule="replay", reason="it was not begun then")
        if found is None:  # it is judged again before it runs, or was never made
            if self._last is None:
                return Verdict(effect=Effect.ALLOW, rule="replay", reason="its policy was not kept")
            return self._last.judge(tool, arguments, routine=routine, tainted=tainted)
        place = self._asked[request_of(tool, arguments), tainted]
        self._asked[request_of(tool, arguments), tainted] += 1
        body = found[min(place, len(found) - 1)]
        then = self._then.get(str(body.get("policy", "")))
        if (
            then is not None
            and (now := _otherwise(then, body, tool, arguments, routine, tainted)) is not None
        ):
            return now
        verdict = verdict_of(body)
        if rule := asked_by(body):
            return Verdict(effect=Effect.ASK, rule=rule, reason="a person was asked")
        return verdict

    def is_read_only(self, tool: str, arguments: Json) -> bool:
        """Tell whether a call changed nothing."""
        if tool in TOOLS and TOOLS[tool].actions:
            return TOOLS[tool].actions.get(str(arguments.get("action")), False)
        if tool in TOOLS and tool not in ("shell", "http_request"):
            return not TOOLS[tool].changes
        keys = self._recording.keys_of(tool, arguments)
        return any(self._recording.calls[key].body.get("repeatable") for key in keys)


def _otherwise(
    then: Policy, body: Json, tool: str, arguments: Json, routine: str, tainted: bool
) -> Verdict | None:
    """Return what the policy of then says by this version, if that is something else than was
    recorded.

    The files that a path leads through may be others by now, or on another machine: it has to
    differ both by what is written and by what is on the disk.
    """
    if body.get("by_files"):
        return None
    for policy in (then.on_paper(), then):
        now = policy.judge(tool, arguments, routine=routine, tainted=tainted)
        if _same(now, body):
            return None
    return now


def verdict_of(body: Json) -> Verdict:
    """Return the verdict that a `call` step recorded."""
    found = body["verdict"]
    return Verdict(
        effect=Effect(found["effect"]),
        rule=found.get("rule", ""),
        reason=found.get("reason", ""),
        allowed=found.get("allowed", ""),
    )


def _same(now: Verdict, body: Json) -> bool:
    """Tell whether the policy says what it said then; of a call that a person decided only that one
    had to be asked.
    """
    if asked_by(body):
        return now.effect is Effect.ASK
    then = verdict_of(body)
    if then.effect is Effect.DENY and now.effect is Effect.ASK:
        return True  # nobody could be asked: a sub-agent, or a rule that says so
    return now.effect is then.effect and now.rule == then.rule


class RecordedApprover:
    """Answer as people answered; where they were not asked then, go on as if they had said yes, and
    take note of it.
    """

    def __init__(self, recording: Recording, *, trying: bool) -> None:
        self._recording, self._trying = recording, trying
        self._waiting: set[str] = set()
        self._answered: set[str] = set()
        self.would_ask: dict[str, Verdict] = {}
        """Calls that a person would be asked about and was not then."""

    async def decide(
        self, key: str, call: FunctionCall, verdict: Verdict, taint: Taint
    ) -> ApprovalDecision:
        """Say what became of the question."""
        step = self._recording.calls.get(key)
        same = step is not None and request_of(
            step.body["tool"], step.body.get("arguments")
        ) == request_of(call.name, call.arguments)
        if step is None or not same or not step.body.get("verdict"):
            if not self._trying:
                return ApprovalDecision(
                    verdict=verdict, approval_request=self._petition(key, call, verdict)
                )
            return self._as_if(key, verdict)
        if not asked_by(step.body):
            return self._as_if(key, verdict)
        if key not in self._answered and self._waited(key):
            self._waiting.add(key)
            return ApprovalDecision(
                verdict=verdict, approval_request=self._petition(key, call, verdict)
            )
        then, asked = verdict_of(step.body), str(step.body.get("asked", ""))
        if then.allows:
            approval = str(step.body.get("approval", ""))
            return ApprovalDecision(
                verdict=then,
                approval=approval,
                remembered_rule="" if approval else then.rule,
                asked=asked,
            )
        said = self._recording.results.get(key)
        note = str(said.body["text"]) if said else ""
        head = say("enough", self._recording.language, count="\0").partition("\0")[0]
        return ApprovalDecision(verdict=then, note=note.partition(f" {head}")[0], asked=asked)

    def answer(self) -> bool:
        """Let the next answer come, in the order of then; tell whether there was one to wait
        for.
        """
        waiting = sorted(self._waiting - self._answered, key=self._recording.order.__getitem__)
        self._answered.update(waiting[:1])
        return bool(waiting)

    def _as_if(self, key: str, verdict: Verdict) -> ApprovalDecision:
        self.would_ask[key] = verdict
        return ApprovalDecision(
            verdict=replace(verdict, effect=Effect.ALLOW), remembered_rule=verdict.rule
        )

    @staticmethod
    def _petition(key: str, call: FunctionCall, verdict: Verdict) -> ApprovalRequest:
        return ApprovalRequest(
            call_id=key, tool=call.name, request={}, digest="", rule=verdict.rule
        )

    def _waited(self, key: str) -> bool:
        """Tell whether the record shows that the rest of the turn was done before this call."""
        place = self._recording.order[key]
        return any(
            self._recording.done.get(other, place) < place
            for other in _behind(key, self._recording)
        )


def _behind(key: str, recording: Recording) -> Iterator[str]:
    """Yield the calls of the same turn that stand behind this one."""
    turn, _, place = key.partition(".")
    if not (turn.isdigit() and place.isdigit()):
        return
    for other in recording.calls:
        head, _, tail = other.partition(".")
        if head == turn and tail.isdigit() and int(tail) > int(place):
            yield other


def marked(cassette: Cassette) -> Cassette:
    """Return a cassette whose calls say where the verdict hung on files, which another machine does
    not have.
    """
    workspace = Path(cassette.workspace)
    policies = {
        hash_: Policy.read(text, workspace=workspace).on_paper()
        for hash_, text in cassette.policies.items()
    }
    name = Routine.restore(cassette.definition).under
    steps = []
    for step in cassette.steps:
        policy = (
            policies.get(str(step.body.get("policy", ""))) if step.kind is StepKind.CALL else None
        )
        if policy is not None and step.body.get("verdict"):
            body = step.body
            now = policy.judge(
                body["tool"],
                body.get("arguments") or {},
                routine=name,
                tainted=bool(body.get("taint")),
            )
            if not _same(now, body):
                step = replace(step, body={**body, "by_files": True})
        steps.append(step)
    return replace(cassette, steps=steps)
