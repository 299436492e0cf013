"""What each model supports: a table by the beginning of the model's name.

Vendors change this at any time, so each field can be set in `[providers.NAME.capabilities]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from daemon.definitions.reading import parse
from daemon.definitions.routines.routine import Effort
from daemon.definitions.values import Items, Table
from daemon.errors import ConfigError


class Capabilities(Table):
    """What one model takes and does."""

    temperature: Annotated[tuple[float, float], Strict(strict=False)] | Literal[False] = (0.0, 2.0)
    """The range it takes, or false if it refuses to be sent any."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What Chat Completions calls the limit on an answer."""
    reasoning: bool = False
    """Whether it is asked for its reasoning in encrypted form, which is sent back (Responses)."""
    echo: Literal["never", "received", "required"] = "received"
    """Whether `reasoning_content` goes back with the tool calls that it led to: never; under the
    name it came with, if it came; or always, if only as an empty text.
    """
    thinking: dict[str, Any] = Field(default_factory=dict)
    """The request's `thinking` table, such as `{type = "adaptive"}`; the vendor's default if empty.
    """
    tools: bool = True
    """Whether it can be offered functions."""
    most_tools: Annotated[int, Field(ge=0)] = 0
    """How many functions it takes: those beyond are left out; 0: no limit is known."""
    output: Annotated[int, Field(ge=0)] = 0
    """The longest answer it can give, in tokens: how far one that was cut may be asked for again;
    0: not known.
    """
    images: bool = False
    """Whether it can be shown images."""
    effort: Items[Effort] = ()
    """The levels of reasoning effort that it can be asked for, which a routine chooses from."""
    cache: bool = False
    """Whether a tool loop is to be marked for the vendor's prompt cache (Messages); the others
    cache unasked.
    """
    strict: bool = False
    """Whether it can be held to the schemas of its functions, as far as these can be put so."""
    stream: bool = False
    """Whether it answers in streams only."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields to send with every request as they stand, such as `{enable_thinking = false}`."""


_OPENAI = Capabilities(
    max_tokens_field="max_completion_tokens", echo="never", images=True, strict=True, most_tools=128
)
_OPENAI_REASONING = _OPENAI.model_copy(
    update={
        "temperature": False,
        "reasoning": True,
        "output": 128_000,
        "effort": ("none", "low", "medium", "high", "xhigh"),
    }
)
_GPT_5 = _OPENAI_REASONING.model_copy(update={"effort": ("minimal", "low", "medium", "high")})
_OPENAI_O = _OPENAI_REASONING.model_copy(update={"effort": ("low", "medium", "high")})
_CLAUDE = Capabilities(temperature=False, images=True, cache=True)
# Those before 4.6 know only thinking of a fixed budget, which is left to the user to ask for.
_CLAUDE_ADAPTIVE = _CLAUDE.model_copy(
    update={
        "thinking": {"type": "adaptive"},
        "output": 128_000,
        "effort": ("low", "medium", "high", "max"),
    }
)
# Without `display` these return their thinking signed but empty, and the text between two calls is
# part of their thinking.
_CLAUDE_SUMMARIZED = _CLAUDE_ADAPTIVE.model_copy(
    update={
        "thinking": {"type": "adaptive", "display": "summarized"},
        "effort": ("low", "medium", "high", "xhigh", "max"),
    }
)
_MINIMAX = Capabilities(temperature=(0.01, 1.0))

# The longest prefix of the model's name (in lower case, without a path before it) decides.
MODELS: Mapping[str, Capabilities] = {
    "gpt-": _OPENAI,
    "chatgpt-": _OPENAI,
    "gpt-5": _GPT_5,
    "gpt-5.": _OPENAI_REASONING,
    "gpt-5-chat": _OPENAI,
    "gpt-6": _OPENAI_REASONING,
    "o1": _OPENAI_O,
    "o3": _OPENAI_O,
    "o4": _OPENAI_O,
    "gpt-oss": Capabilities(effort=("low", "medium", "high")),  # open weights, served by others
    "claude-": _CLAUDE_SUMMARIZED,
    "claude-2": _CLAUDE,
    "claude-3": _CLAUDE,
    **{f"claude-{name}-4": _CLAUDE for name in ("haiku", "opus", "sonnet")},
    **{
        f"claude-{name}-4-{part}": _CLAUDE_ADAPTIVE
        for name in ("opus", "sonnet")
        for part in (6, 7, 8)
    },
    "minimax-": _MINIMAX.model_copy(update={"images": True}),
    "minimax-m2": _MINIMAX,
    # It ignores a temperature while it thinks.
    "deepseek-": Capabilities(
        temperature=False, echo="required", most_tools=128, effort=("high", "max")
    ),
    # Without `clear_thinking = false` the standard endpoint drops the thinking of earlier turns,
    # which a tool loop has to send back.
    "glm-": Capabilities(
        temperature=(0.0, 1.0), thinking={"type": "enabled", "clear_thinking": False}
    ),
    "glm-4.5": Capabilities(temperature=(0.0, 1.0)),  # too old to know clear_thinking
    "kimi-": Capabilities(temperature=(0.0, 1.0), echo="required"),
    "moonshot-": Capabilities(temperature=(0.0, 1.0), echo="required"),
}


def capabilities_of(
    model: str, overrides: Mapping[str, Any] | None = None, *, provider: str = ""
) -> Capabilities:
    """Return the capabilities of a model, with `overrides` from config.toml.

    Raises ConfigError if an override is invalid.
    """
    name = model.lower().rpartition("/")[2].removeprefix("ft:")  # OpenAI: fine-tuned
    known_capabilities = MODELS.get(
        max((prefix for prefix in MODELS if name.startswith(prefix)), key=len, default=""),
        Capabilities(),
    )
    if not overrides:
        return known_capabilities
    try:
        return parse(
            {**known_capabilities.model_dump(), **overrides}, Capabilities, file="config.toml"
        )
    except ConfigError as error:
        table = f"providers.{provider}.capabilities"
        raise ConfigError(
            *(replace(fault, key=f"{table}.{fault.key}") for fault in error.faults)
        ) from None
