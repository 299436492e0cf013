"""Say before a routine's first run what its agent will ask a person about, or be denied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from json import dumps

from daemon.definitions.routines.routine import Routine
from daemon.models import Effect
from daemon.policy.policy import Policy
from daemon.policy.policy_file import NAMED_ONLY_TOOLS, TOOLS

# Events that bring words of strangers along.
EVENTS = ("watch", "webhook", "after")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedApprovals:
    """What a person is asked about in the runs of one routine."""

    routine: str
    asks_always: tuple[str, ...] = ()
    """Tools of which the policy wants some calls approved in every run."""
    reads: tuple[str, ...] = ()
    """Tools and events that bring words of strangers into a run."""
    asks_after_reading: tuple[str, ...] = ()
    """Tools that the run uses freely until it has read such words, unless `tainted_tools` has
    them.
    """
    asks_by_rule: tuple[str, ...] = ()
    """Tools of which a rule says `tainted = "ask"`, whatever `tainted_tools` has."""
    denied_by_rule: tuple[str, ...] = ()
    """Tools of which a rule says `tainted = "deny"`, whatever `tainted_tools` has."""
    has_subagents: bool = False
    """It may start sub-agents, for which nobody is asked."""
    output_folder: str = ""
    """The folder in which the run writes unasked though it has read such words."""
    is_denied: bool = False
    """Nobody is asked: what would have to be approved is denied (`on_ask = "deny"`)."""

    def __bool__(self) -> bool:
        return bool(
            self.asks_always or self.asks_after_reading or self.asks_by_rule or self.denied_by_rule
        )

    def __str__(self) -> str:
        """Say it in a sentence; empty where nobody is asked about anything, nor anything denied."""
        verdict = "it is denied" if self.is_denied else "a person is asked before"
        parts = []
        if self.asks_always:
            parts.append(f"{verdict} some calls of {', '.join(self.asks_always)}")
        after_reading = []
        if self.asks_after_reading:
            names = ", ".join(self.asks_after_reading)
            if self.output_folder and "file_write" in self.asks_after_reading:
                names = names.replace(
                    "file_write", f"file_write (but for files below {self.output_folder}/)"
                )
            remedy = "to let it: "
            if "http_request" in self.asks_after_reading:
                remedy += "name whole addresses in a rule with safe = true, or "
            section = self.routine.partition("/")[0]  # what an agent made has its maker's rights
            after_reading.append(
                f"{verdict} {names}; {remedy}[routine.{section}] "
                f"tainted_tools = {dumps(list(self.asks_after_reading))} in policy.toml"
            )
        if self.asks_by_rule:
            after_reading.append(
                f"{verdict} {', '.join(self.asks_by_rule)}, as a rule of policy.toml says "
                'tainted = "ask"'
            )
        if self.denied_by_rule:
            after_reading.append(
                f"it is denied {', '.join(self.denied_by_rule)}, as a rule of policy.toml says "
                'tainted = "deny"'
            )
        if after_reading:
            reads = ", ".join(self.reads)
            parts.append(f"once it has read words of strangers ({reads}), {after_reading[0]}")
            parts += after_reading[1:]
        if parts and self.is_denied:
            parts.append('nobody is asked, by on_ask = "deny" in policy.toml')
        elif self.has_subagents and (
            self.asks_always or self.asks_after_reading or self.asks_by_rule
        ):
            parts.append("its sub-agents are denied what a person would be asked about")
        return f"{self.routine}: {'; '.join(parts)}" if parts else ""


def expected_approvals(routine: Routine, policy: Policy) -> ExpectedApprovals:
    """Return what a person is asked about in the runs of a routine, as far as it is known now."""
    name = routine.policy_name
    if routine.run.mode != "agent":
        return ExpectedApprovals(routine=name)
    tools = tuple(allowed_tools(name, offered_tools(routine), policy))
    reads = sources_of_strangers_words(routine, tools)
    held_tools = policy.tools_held_by_taint(name, tools) if reads else ()
    by_rule = policy.taint_rules_of(name, held_tools)
    return ExpectedApprovals(
        routine=name,
        asks_always=policy.tools_to_approve(name, tools),
        reads=reads,
        asks_after_reading=tuple(tool for tool in held_tools if tool not in by_rule),
        asks_by_rule=tuple(tool for tool in by_rule if by_rule[tool] is Effect.ASK),
        denied_by_rule=tuple(tool for tool in by_rule if by_rule[tool] is Effect.DENY),
        output_folder=policy.output_folder(name) if reads and "file_write" in tools else "",
        has_subagents="subagent" in tools,
        is_denied=policy.denies_what_it_would_ask(name),
    )


def describe_approvals(routine: Routine, policy: Policy, now: datetime) -> str:
    """Say what a person is asked about in the runs of a routine, or that it is observed; empty
    where nobody is asked about anything, nor anything denied.
    """
    expected_text = str(expected_approvals(routine, policy))
    observation = policy.observation_of(routine.policy_name)
    if observation is None:
        return expected_text
    text = observation.describe(now)
    if policy.is_observed(routine.policy_name, now) or not expected_text:
        return text
    return f"{text}; {expected_text.removeprefix(f'{routine.policy_name}: ')}"


def sources_of_strangers_words(routine: Routine, tools: Iterable[str]) -> tuple[str, ...]:
    """Return the events, and the gathered or offered tools, that bring words of strangers."""
    from daemon.injection.inspector import OWN_TOOLS  # a start can do without it

    events = [
        event for event in EVENTS if any(getattr(trigger, event) for trigger in routine.triggers)
    ]
    tools_of_routine = dict.fromkeys([*(gather.tool for gather in routine.gather), *tools])
    return (*events, *(tool for tool in tools_of_routine if tool not in OWN_TOOLS))


def offered_tools(routine: Routine) -> Iterator[str]:
    """Yield the tools that a routine's agent is offered, by name.

    A pattern that stands for tools of an MCP server is yielded as it is, since the server is not
    asked.
    """
    for pattern in routine.run.tools:
        yield from (tool for tool in TOOLS if fnmatchcase(tool, pattern))
        if pattern not in TOOLS and ("__" in pattern or not set(pattern) & set("*?[")):
            yield pattern


def allowed_tools(name: str, tools: Iterable[str], policy: Policy) -> Iterator[str]:
    """Yield the tools of which the policy may allow the routine a call, or ask a person about it.

    Only the names of tools are looked at: a rule may still deny each call by its arguments.
    """
    for tool in tools:
        by_default = policy.default is not Effect.DENY and tool not in NAMED_ONLY_TOOLS
        if policy.offers(tool, name) and (
            by_default
            or any(
                rule.effect is not Effect.DENY and rule.is_for(tool, name) for rule in policy.rules
            )
        ):
            yield tool
