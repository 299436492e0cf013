"""The system prompt: an ordered table of sections, rendered once per run and then frozen.

Changing the order is a change of one line of SECTIONS. Each section is a function of the context
that returns its text, or None when it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.agent.texts import paragraph
from daemon.agent.transcript import mark_untrusted
from daemon.durations import duration_in_words
from daemon.models import Json, Taint

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# Enough to see what was said last time, not enough to be copied.
PREVIOUS_REPORT_CHARACTERS = 2_000
# Seconds. Less is not worth a sentence: every run starts a little after its slot.
MIN_LATENESS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Persona:
    """Who the agent is and for whom it works, as the table `[agent]` of the config says."""

    name: str = "agentd"
    user_name: str = ""
    persona: str = ""
    """How the agent should sound, in the owner's words."""
    language: str = "en"
    """`en` or `zh`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOutContext:
    """What a prompt leaves out of earlier runs, since strangers may have written it.

    A run that reads such words is tainted, and a person has to approve some of its calls.
    """

    memories: int = 0
    """How many memories are left out."""
    previous_report: bool = False
    """Whether the routine's own previous report is left out."""
    reports: Sequence[str] = ()
    """The routines whose reports are left out (`context_from`)."""
    tools: Sequence[str] = ()
    """The tools that the run may use freely only as long as it is not tainted."""
    is_denied: bool = False
    """Whether calls of `tools` would be denied in a tainted run, instead of a person being
    asked.
    """

    def __bool__(self) -> bool:
        return bool(self.memories or self.previous_report or self.reports)

    def as_json(self) -> Json:
        """Return what was left out as the body of a `prompt` step holds it."""
        return {
            "memories": self.memories,
            "previous_report": self.previous_report,
            **({"reports": list(self.reports)} if self.reports else {}),
            "tools": list(self.tools),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherReport:
    """The last report of another routine, for a run with `context_from`."""

    routine: str
    text: str = ""
    """Empty if the routine has not reported yet, had nothing to say, or its report is left out."""
    at: datetime | None = None
    """When the run that reported ended; None if no run has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptContext:
    """Everything a prompt is made of. An empty or missing value leaves its paragraph out."""

    persona: Persona
    workspace: Path
    now: datetime
    zone: tzinfo
    tools: Sequence[str] = ()
    """The names of the tools that the model is offered."""
    policy: str = ""
    """A summary of what the policy allows, for the model."""
    memory_text: str | None = None
    """What memory has on the message; None if memory was not asked yet."""
    taint: Taint = Taint.NONE
    """The taint of the memories and reports that the prompt shows."""
    left_out: LeftOutContext = LeftOutContext()
    boundary: str = ""
    """Stands in the marks around what tools bring; nobody outside this run knows it."""
    identity: str = ""
    """Texts of USER.md, SOUL.md and AGENT.md."""
    skills: Sequence[tuple[str, str]] = ()
    """(name, description) of each skill that the agent may read."""
    skill_text: str = ""
    """The text of the skills that this message needs."""
    routine: str = ""
    """Empty where the agent answers a person."""
    slot: datetime | None = None
    """None for a run started by hand."""
    lateness: float = 0.0
    """Seconds by which the run started later than it was to: at its slot, put off by `spread`."""
    was_down: bool = False
    """Whether the run is late because the daemon did not run when it was to start."""
    silent_token: str = ""
    """The reply by which the model says that there is nothing to report."""
    previous_report: str = ""
    previous_at: datetime | None = None
    """When the run of the previous report ended."""
    other_reports: Sequence[OtherReport] = ()
    approach: str = ""
    """What the agent noted in an earlier run on how to do the task."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """The routine's own sections, in order."""

    def say(self, key: str, **fields: object) -> str:
        """Return a paragraph of agent/texts.py in the language of the agent."""
        return paragraph(key, self.persona.language, **fields)

    def mark_if_tainted(self, text: str) -> str:
        """Return a text of earlier runs, between marks if strangers may have written part of it."""
        return mark_untrusted(text, self.boundary) if self.taint and self.boundary else text

    def format_time(self, moment: datetime) -> str:
        """Return a moment in the zone of the prompt, with its UTC offset and weekday."""
        local_time = moment.astimezone(self.zone)
        # strftime takes longer, and names the day in the process's locale
        clock = local_time.isoformat(" ", "minutes")
        return (
            f"{clock[:16]} {local_time.tzname()} (UTC{clock[16:].replace(':', '')}, "
            f"{_DAYS[local_time.weekday()]})"
        )


def render(context: PromptContext) -> dict[str, str]:
    """Return the texts of the sections by name, in the order of SECTIONS, without those that have
    nothing to say. `join` makes one prompt of them.
    """
    return {name: text for name, section in SECTIONS if (text := section(context))}


def join(sections: Mapping[str, str]) -> str:
    """Return the sections as one prompt, with a blank line between them."""
    return "\n\n".join(sections.values())


def _render_identity(context: PromptContext) -> str:
    persona = context.persona
    lines = [
        context.say(
            "identity", name=persona.name, user=persona.user_name or context.say("somebody")
        )
    ]
    lines += [text for text in (persona.persona.strip(), context.identity.strip()) if text]
    return "\n".join([*lines, context.say("language")])


def _render_tools(context: PromptContext) -> str | None:
    if not context.tools:
        return None
    ending = context.say("finish" if "finish" in context.tools else "final_text")
    return f"{context.say('tools', names=', '.join(context.tools))}\n{ending}"


def _render_safety(context: PromptContext) -> str:
    lines = [context.say("safety")]
    if context.boundary and (context.tools or context.taint):
        lines.append(context.say("marks", boundary=context.boundary))
    if context.policy and context.tools:
        lines.append(context.say("policy", policy=context.policy))
    return "\n".join(lines)


def _render_memory(context: PromptContext) -> str | None:
    parts = [context.say("memory", memory_text=context.memory_text)] if context.memory_text else []
    if context.left_out.memories and "memory_recall" in context.tools:
        parts.append(
            context.say(
                "memories_left_out_denied" if context.left_out.is_denied else "memories_left_out",
                count=context.left_out.memories,
                tools=", ".join(context.left_out.tools),
            )
        )
    if "memory_store" in context.tools:
        parts.append(context.say("memory_tools"))
    if parts and not context.memory_text:
        parts.insert(0, context.say("memory_heading"))
    return "\n".join(parts) or None


def _render_skills(context: PromptContext) -> str | None:
    catalogue = "\n".join(f"- {name}: {description}" for name, description in context.skills)
    return context.say("skills", catalogue=catalogue) if catalogue else None


def _render_skill(context: PromptContext) -> str | None:
    return context.skill_text or None


def _render_environment(context: PromptContext) -> str:
    now = context.format_time(context.now)
    lines = [context.say("environment", workspace=context.workspace, now=now)]
    if context.slot is not None and context.lateness >= MIN_LATENESS:
        cause = context.say(
            "caught_up" if context.was_down else "late", late=duration_in_words(context.lateness)
        )
        slot = context.format_time(context.slot)
        lines.append(context.say("scheduled", slot=slot, now=now, why=cause))
    return "\n".join(lines)


def _render_principles(context: PromptContext) -> str | None:
    return context.say("principles") if context.tools else None


def _render_routine(context: PromptContext) -> str | None:
    if not context.routine:
        return None
    lines = [context.say("routine", routine=context.routine), context.say("failure")]
    if context.silent_token:
        lines.append(context.say("silence", token=context.silent_token))
    time = context.format_time(context.previous_at) if context.previous_at else "?"
    if context.previous_report:
        report = context.mark_if_tainted(context.previous_report[:PREVIOUS_REPORT_CHARACTERS])
        lines.append(context.say("previous", when=time, report=report))
    if context.left_out.previous_report:
        lines.append(context.say("previous_left_out", when=time))
    lines += [_render_other_report(other, context) for other in context.other_reports]
    if context.approach:
        name = f"routine:{context.routine}:approach"
        lines.append(
            context.say("approach", name=name, approach=context.mark_if_tainted(context.approach))
        )
    return "\n".join(lines)


def _render_other_report(report: OtherReport, context: PromptContext) -> str:
    if report.at is None:
        return context.say("report_missing", routine=report.routine)
    time = context.format_time(report.at)
    if report.routine in context.left_out.reports:
        return context.say("report_left_out", routine=report.routine, when=time)
    if not report.text:
        return context.say("report_silent", routine=report.routine, when=time)
    text = context.mark_if_tainted(report.text[:PREVIOUS_REPORT_CHARACTERS])
    return context.say("report", routine=report.routine, when=time, report=text)


def _render_own_sections(context: PromptContext) -> str | None:
    return (
        "\n\n".join(f"## {title}\n{text.strip()}" for title, text in context.sections.items())
        or None
    )


SECTIONS: tuple[tuple[str, Callable[[PromptContext], str | None]], ...] = (
    ("identity", _render_identity),
    ("tools", _render_tools),
    ("safety", _render_safety),
    ("skills", _render_skills),
    ("memory", _render_memory),
    ("skill", _render_skill),
    ("environment", _render_environment),
    ("principles", _render_principles),
    ("routine", _render_routine),
    ("own sections", _render_own_sections),
)
