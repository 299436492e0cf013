"""A conversation that has outgrown its model, in few words: made from the transcript, without
asking anybody.

The goal stands as it was given. Of what followed the model's own words and the beginnings of
results are kept, the newest in most detail, as whoever goes on needs to know what has been done and
what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.agent.transcript import Transcript
    from daemon.models import LLMMessage

GOAL = 12_000  # characters of the task, facts included
MAX_LATER_CHARACTERS = 8_000  # characters of all that followed
SHORTEST, LONGEST = 200, 2_000  # characters of one message, from the oldest to the newest

_TEXTS = {
    "en": {
        "head": (
            "[The conversation had become too long. It begins afresh here; this is what is known of "  # noqa: E501
            "it.]"
        ),
        "task": "The task:",
        "done": "What was done so far, oldest first; do not do it again:",
        "go": "Go on from here and finish the task.",
        "cut": " […]",
    },
    "zh": {
        "head": "[对话对模型来说已过长,现从此处重新开始;以下是已知内容。]",
        "task": "任务:",
        "done": "到目前为止已完成的事情,从旧到新;不要重复:",
        "go": "请从这里继续并完成任务。",
        "cut": " […]",
    },
}


def digest(transcript: Transcript, language: str) -> str:
    """Return what a fresh conversation begins with."""
    words = _TEXTS.get(language, _TEXTS["en"])
    messages = [message for message in transcript.messages if message.role != "system"]
    goal, later_messages = messages[0].content if messages else "", messages[1:]
    lines: list[str] = []
    room = MAX_LATER_CHARACTERS
    for index, message in enumerate(reversed(later_messages)):
        if not (line := _line(message, max(SHORTEST, LONGEST >> index), words["cut"])):
            continue
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    parts = [words["head"], words["task"], _shorten(goal, GOAL, words["cut"])]
    if lines:
        parts += [words["done"], "\n".join(reversed(lines))]
    return "\n\n".join([*parts, words["go"]])


def _line(message: LLMMessage, limit: int, mark: str) -> str:
    calls = ", ".join(
        f"{call.name}({_shorten(str(call.arguments), SHORTEST, mark)})"
        for call in message.tool_calls
    )
    text = _shorten(" ".join(message.content.split()), limit, mark)
    if message.role == "tool":
        return f"- {message.name}{'' if message.ok else ' (failed)'}: {text}"
    return f"- {message.role}: {' '.join(filter(None, (text, calls)))}" if text or calls else ""


def _shorten(text: str, limit: int, mark: str) -> str:
    return text if len(text) <= limit else text[:limit] + mark
