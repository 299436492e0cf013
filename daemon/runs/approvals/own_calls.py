"""Say before a routine's first run which calls of its own the policy does not simply allow: the
commands of its gate and its check, and what it gathers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from shlex import join

from daemon.definitions.routines.checks import PATH_PLACEHOLDER
from daemon.definitions.routines.routine import Routine
from daemon.definitions.words import display
from daemon.models import BUILT_IN_RULE, Effect, Json, Verdict
from daemon.policy.policy import Policy
from daemon.policy.policy_file import TOOLS

_NOTES_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ObstructedCall:
    """A call that a routine makes by itself and that the policy does not simply allow."""

    routine: Routine
    key: str
    """Which key of the routine's file makes it."""
    found: str
    """What stands there, for people: the command, or the name of the gather step."""
    tool: str
    args: Json
    verdict: Verdict
    required: bool
    """Whether a run without it fails."""

    @property
    def fails_every_run(self) -> bool:
        return self.required and self.verdict.effect is Effect.DENY

    @property
    def problem(self) -> str:
        """What becomes of the runs, and why the policy does not let the routine make the call."""
        verdict = self.verdict
        reason = f": {verdict.reason}" if verdict.reason else ""
        if self.fails_every_run:
            rule = {"default": "its default", BUILT_IN_RULE: "a built-in rule"}.get(
                verdict.rule, verdict.rule
            )
            name = self.routine.name
            return f"every run of {name} fails: the policy denies this, by {rule}{reason}"
        if verdict.effect is Effect.ASK:
            return f"each run waits until a person has approved it{reason} ({verdict.rule})"
        return f"the policy does not allow it{reason} ({verdict.rule})"

    @property
    def hint(self) -> str:
        """How to let the runs succeed."""
        explain = ["agentctl", "policy", "explain", "--routine", self.routine.policy_name]
        if self.tool != "shell":
            explain += ["--tool", self.tool]
        acts_on = self.args.get(TOOLS[self.tool].argument) if self.tool in TOOLS else None
        if len(self.args) != 1 or not isinstance(acts_on, str):
            acts_on = json.dumps(self.args, ensure_ascii=False)
        hint = f"what would be allowed: {display(join([*explain, '--', acts_on]))}"
        if self.key.startswith("gather"):
            hint += "; or write required = false if the report can do without it"
        return hint

    def __str__(self) -> str:
        text = f"{self.routine.policy_name}: {self.key}: {self.problem}"
        return f"{text}; {self.hint}" if self.fails_every_run else text


def find_obstructed_calls(policy: Policy, routines: Iterable[Routine]) -> Iterator[ObstructedCall]:
    """Yield the calls of the gates, checks and gather steps that the policy denies or asks about.

    A step with the path of a file that is to land is left out: its call is not known yet.
    """
    for routine in routines:
        calls: list[tuple[str, str, str, Json, bool]] = []
        checked_words = routine.check.command if routine.check else ()
        for key, words in (("gate", routine.gate.command), ("check", checked_words)):
            if words:
                command = join(words)
                calls.append((f"{key}.command", command, "shell", {"command": command}, True))
        for index, step in enumerate(routine.gather):
            if PATH_PLACEHOLDER not in step.args.values():
                calls.append((f"gather[{index}]", step.name, step.tool, step.args, step.required))
        for key, text, tool, args, required in calls:
            verdict = policy.judge(tool, args, routine=routine.policy_name)
            if not verdict.allows:
                yield ObstructedCall(
                    routine=routine,
                    key=key,
                    found=display(text),
                    tool=tool,
                    args=args,
                    verdict=verdict,
                    required=required,
                )


class OwnCallNotes:
    """What the policy says of the own calls of routines. To judge them takes some 0.2 ms each, so
    that is done once a minute for each routine and policy: links in the paths of calls may change.
    """

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._since = 0.0
        self._notes: dict[str, tuple[Routine, list[str]]] = {}
        """By the name of the routine, for this policy."""

    def notes_of(self, routine: Routine, policy: Policy) -> list[str]:
        """Return a line for each call that the policy does not simply allow."""
        if policy is not self._policy or time.monotonic() - self._since > _NOTES_SECONDS:
            self._policy, self._since, self._notes = policy, time.monotonic(), {}
        known_routine, notes = self._notes.get(routine.name, (None, []))
        if known_routine is not routine:
            notes = [str(own_call) for own_call in find_obstructed_calls(policy, [routine])]
            self._notes[routine.name] = routine, notes
        return notes
