"""The provider without a model: its answer is the gathered facts as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from daemon.models import NO_MODEL, Fact, Json, LLMMessage, LLMResponse, without_advice
from daemon.providers.base import LLMProvider
from daemon.providers.facts import humanize_key

_NO_MODEL_TEXT = (
    "*No model was asked: these are the gathered facts as they stand. "
    "To have them read and summed up, name a model in config.toml: `provider`, and its "
    "`[providers.…]`.*"
)
_NO_FACTS_TEXT = (
    "*No model was asked. To get an answer, name one in config.toml: `provider`, and its "
    "`[providers.…]`.*\n\n"
    "Hello. This routine came up as planned and agentd is well. It gathers no facts, so without a "
    "model there is nothing to tell."
)
_NO_MODEL_FOR_A_PERSON = (
    "*There is no model to answer. To have one, name it in config.toml: `provider`, and its "
    "`[providers.…]`.*\n\n"
    "Without one, `agentctl list`, `agentctl why ROUTINE` and `agentctl memory search WORDS` tell "
    "what is known here."
)


class OfflineProvider(LLMProvider):
    """Answers with the facts in a conversation, below a line that says that no model was asked."""

    kind: ClassVar[str] = "offline"

    def __init__(self, *, name: str = "offline") -> None:
        self.name = name

    @property
    def model_name(self) -> str:
        return NO_MODEL

    def supports_function_calling(self) -> bool:
        return False

    async def chat(
        self,
        messages: Sequence[LLMMessage],
        functions: Sequence[Json] | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LLMResponse:
        facts = [fact for message in messages for fact in message.facts]
        # Without a routine it is a person who asks, with `agentctl ask`.
        answer = report_of(facts) if facts or options.get("routine") else _NO_MODEL_FOR_A_PERSON
        return LLMResponse(content=answer, model=self.model_name)


def report_of(facts: Sequence[Fact]) -> str:
    """Return the facts as a Markdown report: the changes first, then each fact; one that could not
    be gathered says so.
    """
    if not facts:
        return _NO_FACTS_TEXT
    sections = [_NO_MODEL_TEXT]
    changes = [
        f"- {humanize_key(fact.name)}: {' '.join(change.split())}"
        for fact in facts
        for change in fact.changes
    ]
    if changes:
        sections.append("## What changed\n\n" + "\n".join(changes))
    sections += [f"## {humanize_key(fact.name)}\n\n{_format_fact(fact)}" for fact in facts]
    return "\n\n".join(sections) + "\n"


def _format_fact(fact: Fact) -> str:
    text = fact.text.strip()
    if fact.ok:
        return text or "nothing"
    text = without_advice(text)
    return f"**This could not be gathered** ({fact.tool}):\n\n{text or 'no reason was given'}"
