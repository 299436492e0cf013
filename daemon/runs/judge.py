"""A second model that judges a report by a rubric (`[check.judge]`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon.agent.extraction import json_of
from daemon.agent.texts import say
from daemon.agent.transcript import mark_untrusted
from daemon.models import LLMMessage, Usage
from daemon.providers.facts import new_boundary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from daemon.models import LLMResponse

# More than any report that a person reads; a longer one is cut, and the judge is told.
MAX_REPORT_CHARACTERS = 100_000
NO_VERDICT = "the judge gave no verdict"
MAX_ANSWER_CHARACTERS = 200  # of an answer without a verdict, as people are shown it
# Models like to set words in bold, and to write a dash for a colon.
_VERDICT = re.compile(
    r"\**(?P<passed>PASS)\.?\**\.?|\**FAIL\** *[:–—-]\** *(?P<reason>[^\s*].*)", re.DOTALL
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What a judge says of a report."""

    passed: bool | None
    """None: it gave no verdict, twice."""
    reason: str
    """Why the report does not pass; empty if it does."""
    usage: Usage
    """Of all its answers."""
    model: str
    """As the vendor named it."""


async def judge_report(
    ask: Callable[[Sequence[LLMMessage]], Awaitable[LLMResponse]],
    report: str,
    rubric: str,
    *,
    is_tainted: bool,
    language: str,
) -> Judgement:
    """Have a model judge a report.

    `ask` sends the messages to the model. A model whose answer is no verdict is asked once more.
    """
    if len(report) > MAX_REPORT_CHARACTERS:
        excess = len(report) - MAX_REPORT_CHARACTERS
        report = f"{report[:MAX_REPORT_CHARACTERS]}\n[… cut here: {excess} more characters …]"
    taint_note = say("judge_tainted", language) if is_tainted else ""
    messages = [
        LLMMessage(
            role="system",
            content=say("judge_rules", language, taint=taint_note, rubric=rubric.strip()),
        ),
        LLMMessage(role="user", content=mark_untrusted(report, new_boundary())),
    ]
    usage = Usage()
    for _ in range(2):
        answer = await ask(messages)
        usage += answer.usage
        if verdict := _parse_verdict(answer.content):
            passed, reason = verdict
            return Judgement(passed=passed, reason=reason, usage=usage, model=answer.model)
        messages += [
            LLMMessage(role="assistant", content=answer.content or "-"),
            LLMMessage(role="user", content=say("judge_again", language)),
        ]
    words = " ".join(answer.content.split())[:MAX_ANSWER_CHARACTERS] or "nothing"
    return Judgement(
        passed=None, reason=f"{NO_VERDICT}: it said {words}", usage=usage, model=answer.model
    )


def _parse_verdict(answer: str) -> tuple[bool, str] | None:
    """Return (passed, reason) of an answer; None if it is no verdict.

    It is `PASS` or `FAIL: reason` and nothing else, or a JSON object with `pass` and `reason`.
    """
    if match := _VERDICT.fullmatch(answer.strip()):
        return bool(match["passed"]), match["reason"] or ""
    try:
        data = json.loads(json_of(answer))
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("pass"), bool):
        return None
    reason = data.get("reason", "")
    if not isinstance(reason, str) or not (data["pass"] or reason.strip()):
        return None
    return data["pass"], "" if data["pass"] else reason.strip()
