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
PREVIOUS_REPORT_CHARACTERS = 2_000  # enough to see what was said last time, not enough to be copied


@dataclass(frozen=True, kw_only=True, slots=True)
class Persona:
    """Who the agent is and for whom it works."""

    name: str = "agentd"
    user_name: str = ""
    persona: str = ""
    language: str = "en"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """What a prompt does not show of earlier runs, since strangers may have written it.

    Whoever reads such words is tainted, and has to ask a person before it uses some of its tools.
    """

    memories: int = 0
    previous_report: bool = False
    reports: Sequence[str] = ()
    """The routines whose reports are not shown (`context_from`)."""
    tools: Sequence[str] = ()
    """The tools that the run keeps by not being shown these."""
    is_denied: bool = False
    """Whether these tools would be denied then, instead of a person being asked."""

    def __bool__(self) -> bool:
        return bool(self.memories or self.previous_report or self.reports)

    def as_json(self) -> Json:
        """Return it as the body of a `prompt` step holds it."""
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
    """Empty where the routine has not reported yet, had nothing to say, or is left out."""
    at: datetime | None = None
    """When the run ended; None if there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptContext:
    """Everything a prompt is made of."""

    persona: Persona
    workspace: Path
    now: datetime
    zone: tzinfo
    tools: Sequence[str] = ()
    policy: str = ""
    memory_text: str | None = None
    """What memory has on the message; None: the agent is to look."""
    taint: Taint = Taint.NONE
    """What the memories and the previous report hold of strangers."""
    left_out: LeftOut = LeftOut()
    boundary: str = ""
    """Stands in the marks around what tools bring; nobody outside this run knows it."""
    identity: str = ""
    """Texts of USER.md, SOUL.md and AGENT.md."""
    skills: Sequence[tuple[str, str]] = ()
    """Names and descriptions of the skills there are."""
    skill: str = ""
    """The guides that this message needs."""
    routine: str = ""
    """Empty where the agent answers a person."""
    slot: datetime | None = None
    """None for a run started by hand."""
    lateness: float = 0.0
    """Seconds after the slot; told from a minute on."""
    was_down: bool = False
    silent_token: str = ""
    previous_report: str = ""
    previous_at: datetime | None = None
    other_reports: Sequence[OtherReport] = ()
    approach: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)
    """The routine's own sections, in order."""

    def say(self, key: str, **fields: object) -> str:
        return paragraph(key, self.persona.language, **fields)

    def mark_if_tainted(self, text: str) -> str:
        """Return what earlier runs left, between marks if strangers may have had a hand in it."""
        return mark_untrusted(text, self.boundary) if self.taint and self.boundary else text

    def local(self, moment: datetime) -> str:
        local_time = moment.astimezone(self.zone)
        # strftime takes longer, and names the day in the process's locale
        clock = local_time.isoformat(" ", "minutes")
        return (
            f"{clock[:16]} {local_time.tzname()} (UTC{clock[16:].replace(':', '')}, "
            f"{_DAYS[local_time.weekday()]})"
        )


def render(context: PromptContext) -> dict[str, str]:
    """Return the sections by name, in order, empty ones left out; their texts joined by blank lines
    are the prompt.
    """
    return {name: text for name, section in SECTIONS if (text := section(context))}


def join(sections: Mapping[str, str]) -> str:
    """Return the sections as one prompt."""
    return "\n\n".join(sections.values())


def _identity(context: PromptContext) -> str:
    persona = context.persona
    lines = [
        context.say(
            "identity", name=persona.name, user=persona.user_name or context.say("somebody")
        )
    ]
    lines += [text for text in (persona.persona.strip(), context.identity.strip()) if text]
    return "\n".join([*lines, context.say("language")])


def _tools(context: PromptContext) -> str | None:
    if not context.tools:
        return None
    ending = context.say("finish" if "finish" in context.tools else "final_text")
    return f"{context.say('tools', names=', '.join(context.tools))}\n{ending}"


def _safety(context: PromptContext) -> str:
    has_marks = context.boundary and (context.tools or context.taint)
    note = context.say("marks", boundary=context.boundary) if has_marks else ""
    policy = (
        context.say("policy", policy=context.policy) if context.policy and context.tools else ""
    )
    return "\n".join(text for text in (context.say("safety"), note, policy) if text)


def _memory(context: PromptContext) -> str | None:
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
    return "\n".join(parts) or None


def _skills(context: PromptContext) -> str | None:
    catalogue = "\n".join(f"- {name}: {description}" for name, description in context.skills)
    return context.say("skills", catalogue=catalogue) if catalogue else None


def _skill(context: PromptContext) -> str | None:
    return context.skill or None


def _environment(context: PromptContext) -> str:
    now = context.local(context.now)
    lines = [context.say("environment", workspace=context.workspace, now=now)]
    if context.slot is not None and context.lateness >= 60:
        cause = "caught_up" if context.was_down else "late"
        late = context.say(cause, late=duration_in_words(context.lateness))
        lines.append(context.say("scheduled", slot=context.local(context.slot), now=now, why=late))
    return "\n".join(lines)


def _principles(context: PromptContext) -> str | None:
    return context.say("principles") if context.tools else None


def _routine(context: PromptContext) -> str | None:
    if not context.routine:
        return None
    lines = [context.say("routine", routine=context.routine), context.say("failure")]
    if context.silent_token:
        lines.append(context.say("silence", token=context.silent_token))
    if context.previous_report:
        report = context.mark_if_tainted(context.previous_report[:PREVIOUS_REPORT_CHARACTERS])
        time = context.local(context.previous_at) if context.previous_at else "?"
        lines.append(context.say("previous", when=time, report=report))
    if context.left_out.previous_report:
        time = context.local(context.previous_at) if context.previous_at else "?"
        lines.append(context.say("previous_left_out", when=time))
    lines += [_other_report(other, context) for other in context.other_reports]
    if context.approach:
        name = f"routine:{context.routine}:approach"
        lines.append(
            context.say("approach", name=name, approach=context.mark_if_tainted(context.approach))
        )
    return "\n".join(lines)


def _other_report(other: OtherReport, context: PromptContext) -> str:
    if other.at is None:
        return context.say("report_missing", routine=other.routine)
    time = context.local(other.at)
    if other.routine in context.left_out.reports:
        return context.say("report_left_out", routine=other.routine, when=time)
    if not other.text:
        return context.say("report_silent", routine=other.routine, when=time)
    report = context.mark_if_tainted(other.text[:PREVIOUS_REPORT_CHARACTERS])
    return context.say("report", routine=other.routine, when=time, report=report)


def _own_sections(context: PromptContext) -> str | None:
    return (
        "\n\n".join(f"## {title}\n{text.strip()}" for title, text in context.sections.items())
        or None
    )


SECTIONS: tuple[tuple[str, Callable[[PromptContext], str | None]], ...] = (
    ("identity", _identity),
    ("tools", _tools),
    ("safety", _safety),
    ("skills", _skills),
    ("memory", _memory),
    ("skill", _skill),
    ("environment", _environment),
    ("principles", _principles),
    ("routine", _routine),
    ("own sections", _own_sections),
)
