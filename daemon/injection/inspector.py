"""Inspect the result of a call before the model sees it: who may have written it (taint), and
whether it gives orders (injection check).

Taint depends on where a text comes from, not on its content; the one exception is an output that is
nothing but numbers of this machine (policy/numbers.py). A result that the injection check blocks is
kept in quarantine for a person, and the model reads why in its place.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from daemon.injection.check import (
    Block,
    Detector,
    InjectionFinding,
    Pass,
    Review,
    check_tool_result,
    needs_injection_check,
)
from daemon.models import FunctionCall, Json, Run, Taint, ToolResult, max_taint

if TYPE_CHECKING:
    from daemon.store.journal import Journal

log = structlog.get_logger()

# What a model reads in the place of a result that is withheld, by language.
WITHHELD = {
    "en": (
        "[withheld: what {tool} returned gave orders to you ({reason}). It is kept as {id} for a "
        "person.]"
    ),
    "zh": "[已扣留:{tool} 返回的内容在向你下命令({reason})。已保存为 {id},供人查看。]",
}

# Tools that answer in our own words, or in those of the owner. All others bring text that anybody
# may have written, also the tools of users and of MCP servers; of some, `routine` among them, the
# result itself says so (`taint_of_result`).
OWN_TOOLS = frozenset(
    {
        "finish",
        "report_items",
        "self_info",
        "file_write",
        "memory_store",
        "memory_forget",
        "skill",
        "routine",
        "config",
    }
)
# Parts of sysinfo that quote logs: whoever can reach a port of this machine can write lines there.
LOG_QUOTING_PARTS = frozenset({"errors"})
# Characters. A longer text is checked in a thread: on the event loop it would hold up all other
# runs.
MAX_LENGTH_ON_LOOP = 6_000


def taint_of_result(tool: str, value: Any) -> Taint:
    """Return the taint that a result of this tool, with this `value`, gives a run."""
    if tool == "routine":  # a routine that a tainted run made may have the words of strangers
        summaries = value if isinstance(value, list) else [value]
        is_untrusted = any(isinstance(item, dict) and item.get("untrusted") for item in summaries)
        return Taint.TAINTED if is_untrusted else Taint.NONE
    if tool in OWN_TOOLS:
        return Taint.NONE
    if tool == "subagent":  # the report of a tainted run is tainted
        is_trusted = isinstance(value, dict) and not value.get("untrusted")
        return Taint.NONE if is_trusted else Taint.TAINTED
    if tool in ("memory_recall", "memory_expand"):
        texts = value if isinstance(value, list) else []
        return Taint.TAINTED if any(item.get("untrusted") for item in texts) else Taint.NONE
    if tool == "sysinfo":
        # a list has lines of logs; a part without any is a sentence of our own
        quotes_logs = isinstance(value, dict) and any(
            isinstance(value.get(part), list) and value[part] for part in LOG_QUOTING_PARTS
        )
        return Taint.TAINTED if quotes_logs else Taint.NONE
    return Taint.TAINTED


class InjectionPolicy(Protocol):
    """What the inspector needs of the policy."""

    @property
    def detector(self) -> str:
        """The user's own check as `module:function`; empty if there is none."""

    def shows_injected_result(self, tool: str, arguments: Json, *, routine: str) -> bool:
        """Tell whether a result that gives orders is shown all the same, with the taint `high`."""

    def prints_only_numbers(self, tool: str, arguments: Json, output: str) -> bool:
        """Tell whether a successful call printed nothing but numbers of this machine."""


class InjectionInspector:
    """Inspect the results of the calls of one run."""

    def __init__(
        self,
        run: Run,
        journal: Journal,
        policy: InjectionPolicy,
        *,
        language: str = "en",
        withholds: bool = True,
    ) -> None:
        """Without `withholds`, a result that gives orders is returned as it is, with the taint
        `high`: for callers whose results no model reads.
        """
        self._run, self._journal, self._policy, self._language = run, journal, policy, language
        self._withholds = withholds

    async def inspect(self, call_id: str, call: FunctionCall, result: ToolResult) -> ToolResult:
        """Return the result as the model may see it, with the taint that it gives the run.

        `call_id` is the id of the call in the run.
        """
        taint = taint_of_result(call.name, result.value)
        if result.ok and self._policy.prints_only_numbers(call.name, call.arguments, result.text):
            taint = Taint.NONE
        finding = await self._check(call.name, result.text)
        if isinstance(finding, Block):
            if self._withholds and not self._policy.shows_injected_result(
                call.name, call.arguments, routine=self._run.routine
            ):
                replacement = await self._withhold(call_id, call, result, finding)
                return replace(
                    result,
                    text=replacement,
                    value=None,
                    dry_run_effect="",
                    taint=taint,
                    withheld=True,
                )
            finding = Review(finding.reason, finding.excerpt)
        if isinstance(finding, Review):
            log.warning("injection.suspected", tool=call.name, call=call_id, reason=finding.reason)
            return replace(result, taint=max_taint(taint, Taint.HIGH))
        if not isinstance(finding, Pass):
            log.info("injection.noticed", tool=call.name, call=call_id, reason=finding.reason)
        return replace(result, taint=taint)

    async def _check(self, tool: str, text: str) -> InjectionFinding:
        if not needs_injection_check(tool):
            return Pass()
        detector = _load_detector(self._policy.detector)
        if len(text) <= MAX_LENGTH_ON_LOOP and detector is None:
            return check_tool_result(tool, text)
        return await asyncio.to_thread(check_tool_result, tool, text, detector)

    async def _withhold(
        self, call_id: str, call: FunctionCall, result: ToolResult, finding: InjectionFinding
    ) -> str:
        quarantine_id = await self._journal.audit.quarantine(
            run=self._run.id,
            routine=self._run.routine,
            call_id=call_id,
            tool=call.name,
            reason=finding.reason,
            text=result.text,
        )
        log.warning(
            "injection.blocked",
            tool=call.name,
            call=call_id,
            reason=finding.reason,
            quarantine=quarantine_id,
        )
        text = WITHHELD["zh" if self._language == "zh" else "en"]
        return text.format(tool=call.name, reason=finding.reason, id=quarantine_id)


def _load_detector(name: str) -> Detector | None:
    """Return the user's own check, named `module:function`; None for an empty name.

    It is imported when it is called. An exception in the import or the call becomes a Review, so
    that it cannot end a run.
    """
    if not name:
        return None
    module, _, function = name.partition(":")

    def detect(tool: str, text: str) -> InjectionFinding | str | None:
        try:
            detector = getattr(import_module(module), function)
            answer: InjectionFinding | str | None = detector(tool, text)
        except Exception:
            log.exception("injection.detector_failed", detector=name)
            return Review("your own detector failed")
        return answer

    return detect
