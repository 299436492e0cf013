"""What looks at a report beside texts and commands: a schema of the workspace, and a judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.errors import ConfigError, OverBudget, ProviderError, Retryable
from daemon.models import Taint
from daemon.runs.gather import one_line
from daemon.runs.judge import judge_report
from daemon.runs.protocols import CheckOutcome
from daemon.runs.report_schema import ReportSchemaError, find_faults, load_schema

if TYPE_CHECKING:
    from daemon.definitions.routines.routine import Judge
    from daemon.models import LLMMessage, LLMResponse
    from daemon.providers import LLMProvider

_PASSED = "PASS"
MAX_REASON_CHARACTERS = 1_000


@dataclass(frozen=True, kw_only=True)
class LiveChecker:
    """Reads the schema, and asks the judge."""

    workspace: Path
    language: str
    find_provider: Callable[[Judge], LLMProvider]
    """Return the model that judges, paid from the budget of the run. Raises ConfigError."""
    routine: str
    deadline: float
    """In the event loop's time."""
    backoff: float
    """Seconds before a judge that failed is asked again."""
    redact: Callable[[str], str]

    async def check_schema(self, call_id: str, file: str, report: str) -> CheckOutcome:
        try:
            validator = await asyncio.to_thread(load_schema, self.workspace, file)
            faults = await asyncio.to_thread(find_faults, validator, report)
        except ReportSchemaError as error:
            return CheckOutcome(passed=None, text=f"its schema {file} {error}")
        if faults:
            return CheckOutcome(passed=False, text=f"the report does not fit {file}: {faults}")
        return CheckOutcome(passed=True, text=_PASSED)

    async def ask_judge(
        self, call_id: str, judge: Judge, report: str, taint: Taint
    ) -> CheckOutcome:
        name = judge.provider or ""
        try:
            provider = self.find_provider(judge)
            name = provider.name

            async def ask(messages: Sequence[LLMMessage]) -> LLMResponse:
                from daemon.providers.retry import ask

                return await ask(
                    provider,
                    messages,
                    deadline=self.deadline,
                    backoff=self.backoff,
                    routine=self.routine,
                )

            judgement = await judge_report(
                ask,
                report,
                judge.rubric,
                is_tainted=bool(taint),
                language=self.language,
            )
        except Retryable as error:
            # the same exception, as its class decides whether the run is tried again
            error.args = (f"{_describe_judge(name)} could not be asked: {error}",)
            raise
        except (ConfigError, OverBudget, ProviderError) as error:
            rule = f" ({error.rule})" if isinstance(error, OverBudget) else ""
            reason = one_line(f"{error}{rule}")
            return CheckOutcome(
                passed=None, text=f"{_describe_judge(name)} could not be asked: {reason}"
            )
        text = _PASSED
        if judgement.passed is None:
            text = judgement.reason
        elif not judgement.passed:
            reason = " ".join(self.redact(judgement.reason).split())[:MAX_REASON_CHARACTERS]
            text = f"the judge said no: {reason}"
        return CheckOutcome(
            passed=judgement.passed, text=text, usage=judgement.usage, model=judgement.model
        )


def _describe_judge(provider: str) -> str:
    """Return how a failure names the judge, so that nobody takes it for the model of the run."""
    return f"the judge, provider {provider}," if provider else "the judge"
