"""`agentctl inspect`: one run in full, from its prompt to its deliveries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from daemon.cli.call import DONE, Call, quote
from daemon.cli.client import ApiError
from daemon.cli.deliveries import format_delivery
from daemon.cli.markdown import format_report
from daemon.cli.progress import WITHHELD, summarize_arguments
from daemon.cli.render import (
    BOLD,
    DIM,
    YELLOW,
    OutputStream,
    display_width,
    format_instant,
    humanize,
    one_line,
    parse_instant,
    short_id,
)
from daemon.cli.runs import SANDBOX_LEVELS, find_run
from daemon.durations import duration_in_words
from daemon.plurals import pluralize

VERDICT_EFFECTS = {"allow": "allowed", "deny": "denied", "ask": "not allowed unasked,"}
# The sources of messages that are not the task.
MESSAGE_SOURCES = {
    "told": "told by a person",
    "nudge": "reminded",
    "check": "told what is wrong with its report",
    "dedupe": "told that it reported no items",
    "afresh": "compacted, as it had outgrown the model",
}
RUN_TAINTS = {"high": "something read like orders to it"}
RESULT_TAINTS = {"tainted": "tainted", "high": "tainted: read like orders"}
# How calls to a model ended that are no step of the run.
EXTRA_CALL_OUTCOMES = {
    "answered": "asked beside the conversation",
    "failed": "no answer, nothing to pay",
    "unknown": "broke off; this is the most it can come to",
    "asked": "under way",
}
# The state whose sign each status of an approval is shown with.
APPROVAL_SIGNS = {
    "pending": "waiting",
    "approved": "ok",
    "used": "ok",
    "rejected": "fail",
    "expired": "warn",
    "void": "-",
}
MAX_FOLDED_LINES = 3  # of a text without --full
# The usual estimate for Latin text; the model's own count stands under Usage.
CHARACTERS_PER_TOKEN = 4
STEP_INDENT = " " * 14
# How runs are started that look at no gate, in words; the daemon's list is in runs/execute.py.
UNGATED_TRIGGERS = {
    "manual": "a run by hand",
    "once": "a run by hand",
    "first_run": "a first run",
    "rehearsal": "a rehearsal",
}


def inspect(call: Call) -> int:
    """Show one run in full; follow it with --follow, or write it as a page with --html."""
    run = find_run(call)
    if call.follow:
        from daemon.cli.follow import follow

        return follow(call, run)
    if call.html:
        from daemon.cli.verbs import load_entry_point

        code: int = load_entry_point("web.transcript:write_page")(call, run["id"])
        return code
    run_id = quote(run["id"])
    steps = call.request_items(f"/v1/runs/{run_id}/steps?limit=1000")
    model_calls = call.client.request("GET", f"/v1/runs/{run_id}/calls")["items"]
    approvals = call.client.request("GET", f"/v1/approvals?run={run_id}&limit=200")["items"]
    if call.json:
        return call.print_json(
            {**run, "steps": steps, "calls": model_calls, "approvals": approvals}
        )
    out = call.out
    call_by_step, extra_calls = match_model_calls(steps, model_calls)
    _write_head(out, run)
    if keys := find_ignored_gates(call, run):
        text = f"{UNGATED_TRIGGERS[run['trigger']]} looks at none: {', '.join(keys)} did not count"
        out.write_line(f"  {'gate':<9} {out.sanitize(text)}")
    if any(step["kind"] == "call" and step["body"].get("mode") == "observe" for step in steps):
        text = "observe: nobody was asked, and what it did not allow was denied and recorded"
        out.write_line(f"  {'policy':<9} {text}")
    for step in steps:
        if step["kind"] == "prompt":
            _write_prompt(out, step["body"], full=call.full)
    out.write_title("Task")
    write_text(out, run["goal"], full=call.full)
    if run.get("input") is not None:
        out.write_title("Input")
        write_text(out, json.dumps(run["input"], ensure_ascii=False, indent=2), full=call.full)
    out.write_title("Timeline")
    _Timeline(out, run, steps, call_by_step, full=call.full).write()
    _write_usage(out, run, extra_calls)
    _write_approvals(out, approvals)
    if run["report"]:
        out.write_title("Report")
        report, verbatim = run["report"].strip("\n"), not run["provider"]
        for line in format_report(report, out, indent=2, verbatim=verbatim).splitlines():
            out.write_line(f"  {line}".rstrip())
    if run["deliveries"]:
        out.write_title("Deliveries")
        for delivery in reversed(run["deliveries"]):
            out.write_line(f"  {format_delivery(out, delivery)}")
    return DONE


def find_ignored_gates(call: Call, run: Mapping[str, Any]) -> list[str]:
    """Return the keys of its routine's `[gate]` that a run did not look at, as it was started by a
    person or for the first time. Empty if there are none, or the routine is gone.
    """
    from daemon.models import GATED_EVENT

    if run["trigger"] not in UNGATED_TRIGGERS or str(run["event"]).startswith(GATED_EVENT):
        return []
    try:
        routine = call.client.request("GET", f"/v1/routines/{quote(run['routine'])}")
    except ApiError:
        return []
    gate = routine["definition"].get("gate") or {}
    return [key for key, value in gate.items() if value]


def match_model_calls(
    steps: Sequence[Mapping[str, Any]], model_calls: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the call behind each answer of a model, by the number of its step, and all others.

    The others were not answered, or belong to what a run does besides its loop: choosing skills,
    summing up, sub-agents.
    """
    call_by_step: dict[int, Mapping[str, Any]] = {}
    other_calls = list(model_calls)
    for step in steps:
        if step["kind"] != "llm":
            continue
        usage = step["body"].get("usage") or {}
        for index, call in enumerate(other_calls):
            if call["outcome"] == "answered" and all(
                call["usage"].get(key, 0) == usage[key] for key in usage
            ):
                call_by_step[step["seq"]] = other_calls.pop(index)
                break
    return call_by_step, other_calls


def prompt_sections(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each section of the prompt that a run kept."""
    system, start = str(body.get("system", "")), 0
    for name, length in (body.get("sections") or {"system": len(system)}).items():
        yield name, system[start : start + length]
        start += length + 2  # a blank line stands between sections


def describe_model(run: Mapping[str, Any]) -> str:
    """Return `provider / model`, or the one of them that there is."""
    return " / ".join(name for name in (run["provider"], run["model"]) if name not in ("", "none"))


def _write_head(out: OutputStream, run: Mapping[str, Any]) -> None:
    out.write_line(f"{out.sign(run['status'])} {out.paint(run['routine'], BOLD)}  run {run['id']}")
    status = humanize(run["status"])
    if run["cancel"] and not run["ended"]:
        status += ", being cancelled"
    if run["silent"]:
        status += ", with nothing to report"
    if run["position"]:
        status += f", {pluralize(run['position'], 'run')} before it"
    if run["detail"]:
        status += f": {run['detail']}"
    lines = [
        ("status", status),
        ("slot", f"{format_instant(run['slot'])}, trigger {humanize(run['trigger'])}"),
    ]
    if run["started"]:
        lines.append(("started", format_instant(run["started"])))
    if run["ended"]:
        lines.append(("ended", f"{format_instant(run['ended'])}, {describe_work(run)}"))
    if run["attempt"] > 1:
        lines.append(("attempts", str(run["attempt"])))
    if run["model"] or run["provider"]:
        lines.append(("model", describe_model(run)))
    if level := run.get("sandbox"):
        lines.append(("sandbox", SANDBOX_LEVELS.get(level, level)))
    if taint := run.get("taint"):
        reason = RUN_TAINTS.get(taint, "it has read what strangers wrote")
        lines.append(("taint", f"{taint}: {reason}"))
    if run["not_before"]:
        lines.append(("goes on", format_instant(run["not_before"])))
    event = run["event"] or ""
    if out.is_terminal:  # a program may look for the hash of an event
        event = event_in_words(event)
    if event:
        lines.append(("event", event))
    for name, text in lines:
        out.write_line(f"  {name:<9} {out.sanitize(text)}")


def _write_prompt(out: OutputStream, body: Mapping[str, Any], *, full: bool) -> None:
    system = str(body.get("system", ""))
    out.write_title(f"Prompt, about {len(system) // CHARACTERS_PER_TOKEN} tokens")
    for name, text in prompt_sections(body):
        length = out.paint(f"{len(text):>7} characters", DIM)
        out.write_line(f"  {out.sanitize(name):<12} {length}")
        if full:
            write_text(out, text, full=True, indent="    ")
    functions = [str(function["name"]) for function in body.get("functions") or ()]
    skills = (body.get("route") or {}).get("skills") or ()
    for name, values in (("offered", functions), ("skills", skills)):
        if values:
            out.write_line(f"  {name:<12} {out.sanitize(', '.join(values))}")
    if left_out := body.get("left_out"):
        out.write_line(f"  {'left out':<12} {out.sanitize(describe_left_out(left_out))}")


def describe_left_out(left_out: Mapping[str, Any]) -> str:
    """Say what a prompt leaves out of earlier runs, and why."""
    parts = []
    if left_out["memories"]:
        count = left_out["memories"]
        parts.append("1 memory" if count == 1 else f"{count} memories")
    if left_out["previous_report"]:
        parts.append("the last report")
    parts += [f"the last report of {name}" for name in left_out.get("reports", ())]
    tools = ", ".join(left_out["tools"])
    return (
        f"{' and '.join(parts)} with words of strangers; a run that has read them asks a person "
        f"before it uses {tools}"
    )


class _Timeline:
    """The steps of a run in order, each with its offset from the start."""

    def __init__(
        self,
        out: OutputStream,
        run: Mapping[str, Any],
        steps: Sequence[Mapping[str, Any]],
        call_by_step: Mapping[int, Mapping[str, Any]],
        *,
        full: bool,
    ) -> None:
        self.out = out
        self.begin: datetime | None = parse_instant(run["started"]) if run["started"] else None
        self.steps = steps
        self.call_by_step = call_by_step
        self.full = full

    def write(self) -> None:
        if not self.steps:
            self.out.write_line("  nothing yet")
        calls = {step["call"]: step["body"] for step in self.steps if step["kind"] == "call"}
        finished_calls = {step["call"] for step in self.steps if step["kind"] == "result"}
        for step in self.steps:
            body = step["body"]
            match step["kind"]:
                case "result":
                    self._write_result(step, calls.get(step["call"]) or {})
                case "call" if step["call"] not in finished_calls:
                    call = self._describe_call(step, body)
                    self._write_entry(step, f"{self.out.sign('running')} {call}  no result yet")
                    self._write_verdict(body)
                case "llm":
                    self._write_answer(step)
                case "failover":
                    text = (
                        f"{body.get('from')} gave no answer, {body.get('to')} is asked: "
                        f"{body.get('reason', '')}"
                    )
                    text = self.out.sanitize(one_line(text))
                    self._write_entry(step, f"{self.out.sign('warn')} {text}")
                case "limit":
                    text = self.out.sanitize(one_line(f"no budget left: {body.get('rule', '')}"))
                    self._write_entry(step, f"{self.out.sign('warn')} {text}")
                case "message" if body.get("source") not in (None, "goal"):
                    source = MESSAGE_SOURCES.get(body["source"], body["source"])
                    self._write_entry(step, f"{self.out.sign('ok')} {source}")
                    self._write_text(body.get("text") or "")

    def _write_entry(self, step: Mapping[str, Any], text: str) -> None:
        offset = ""
        if self.begin and step["at"]:
            seconds = (parse_instant(step["at"]) - self.begin).total_seconds()
            offset = f"+{duration_in_words(seconds)}"
        self.out.write_line(f"  {self.out.paint(f'{offset:>9}', DIM)} {text}".rstrip())

    def _write_text(self, text: str) -> None:
        write_text(self.out, text, full=self.full, indent=STEP_INDENT)

    def _write_result(self, step: Mapping[str, Any], call: Mapping[str, Any]) -> None:
        out, body = self.out, step["body"]
        sign = "warn" if body.get("withheld") else "ok" if body["ok"] else "fail"
        text = f"{out.sign(sign)} {self._describe_call(step, call or body)}"
        # 0 seconds: it was not run
        duration = duration_in_words(body["seconds"]) if body.get("seconds") else ""
        text += f"  {out.paint(duration, DIM)}"
        if taint := body.get("taint"):
            text += out.paint(f"  {RESULT_TAINTS.get(taint, taint)}", YELLOW)
        if body.get("withheld"):
            text += out.paint(f"  {WITHHELD}", YELLOW)
        self._write_entry(step, text)
        if self.full and call.get("arguments"):
            self._write_text(json.dumps(call["arguments"], ensure_ascii=False, indent=2))
        self._write_verdict(call)
        text = str(body["text"])
        if not body["ok"]:
            from daemon.models import without_advice  # 10 ms, for denied calls alone

            text = without_advice(text)
        self._write_text(text)

    def _write_answer(self, step: Mapping[str, Any]) -> None:
        out, body = self.out, step["body"]
        usage = body.get("usage") or {}
        cache_note = f" ({usage['cache_read']:,} cached)" if usage.get("cache_read") else ""
        tokens = f"{usage.get('input', 0):,} in{cache_note}, {usage.get('output', 0):,} out"
        usd = self.call_by_step.get(step["seq"], {}).get("usd")
        if usd is not None:
            tokens += f", ${usd:.4f}"
        model = body.get("model") if body.get("model") != "none" else "no model"
        text = f"{out.sign('ok')} {model or 'model'} answered"
        if body.get("calls"):
            text += f", asks for {pluralize(len(body['calls']), 'call')}"
        duration = duration_in_words(body.get("seconds") or 0)
        self._write_entry(step, f"{text}  {out.paint(f'{duration}, {tokens}', DIM)}")
        if self.full and body.get("reasoning"):
            out.write_line(STEP_INDENT + out.paint("thinking:", DIM))
            write_text(out, body["reasoning"], full=True, indent=f"{STEP_INDENT}  ")
        self._write_text(body.get("content") or "")

    def _describe_call(self, step: Mapping[str, Any], call: Mapping[str, Any]) -> str:
        """Return the tool and arguments of a call, with the name of the gathered fact or gate."""
        text = f"{call['tool']} {summarize_arguments(call.get('arguments') or {})}".strip()
        name = str(step["call"] or "")
        if name.startswith(("gather.", "gate.")):
            text = f"{name.removeprefix('gather.')}: {text}"
        text = one_line(self.out.sanitize(text))
        return self.out.truncate(text, self.out.width - 30) if self.out.width else text

    def _write_verdict(self, call: Mapping[str, Any]) -> None:
        verdict = call.get("verdict")
        if not verdict:
            return
        text = f"{VERDICT_EFFECTS.get(verdict['effect'], verdict['effect'])} by {verdict['rule']}"
        if verdict.get("reason"):
            text += f": {verdict['reason']}"
        self.out.write_line(STEP_INDENT + self.out.paint(self.out.sanitize(one_line(text)), DIM))


def _write_usage(
    out: OutputStream, run: Mapping[str, Any], extra_calls: Sequence[Mapping[str, Any]]
) -> None:
    usage = run["usage"]
    if not usage["input"] and not usage["output"] and not extra_calls:
        return
    out.write_title("Usage")
    cache_note = f", {usage['cache_read']:,} of them from the cache" if usage["cache_read"] else ""
    reasoning = f", {usage['reasoning']:,} of them reasoning" if usage["reasoning"] else ""
    iterations = pluralize(run["iterations"], "iteration")
    out.write_line(f"  {usage['input']:,} tokens in{cache_note}")
    out.write_line(f"  {usage['output']:,} tokens out{reasoning}, in {iterations}")
    if run.get("usd") is not None:
        out.write_line(f"  ${run['usd']:.4f}")
    for call in extra_calls:
        outcome = EXTRA_CALL_OUTCOMES.get(call["outcome"], call["outcome"])
        text = out.sanitize(f"{call['provider']} / {call['model']}: {outcome}")
        tokens = f"{call['usage']['input']:,} in, {call['usage']['output']:,} out"
        if call["usd"] is not None:
            tokens += f", ${call['usd']:.4f}"
        out.write_line(f"  {text}  {out.paint(tokens, DIM)}")


def _write_approvals(out: OutputStream, approvals: Sequence[Mapping[str, Any]]) -> None:
    if not approvals:
        return
    out.write_title("Approvals")
    for approval in reversed(approvals):
        state = approval["status"]
        if approval["by"]:
            state += f" by {approval['by']}"
        action = one_line(out.sanitize(f"{approval['tool']} {approval['what']}"))
        line = (
            f"{out.sign(APPROVAL_SIGNS.get(approval['status'], ''))} {short_id(approval['id'])} "
            f"{out.sanitize(state)}: {action}"
        )
        out.write_line(f"  {out.truncate(line, out.width - 2) if out.width else line}")
        if approval["decided"]:
            time = f"answered {format_instant(approval['decided'])}"
        else:
            time = f"asked {format_instant(approval['created'])}"
        out.write_line(out.paint(f"      {time}, by {out.sanitize(approval['rule'])}", DIM))


def write_text(out: OutputStream, text: str, *, full: bool, indent: str = "  ") -> None:
    """Write a text, or without `full` its first lines, cut to the width of the terminal."""
    lines = out.sanitize(text.strip()).splitlines()
    shown_lines = lines if full else lines[:MAX_FOLDED_LINES]
    for line in shown_lines:
        if not full and out.width is not None:
            line = out.truncate(line, out.width - display_width(indent))
        out.write_line(f"{indent}{line}".rstrip())
    hidden_count = len(lines) - len(shown_lines)
    if hidden_count:
        text = f"… {pluralize(hidden_count, 'more line')} (--full shows them)"
        out.write_line(indent + out.paint(text, DIM))


def event_in_words(event: str) -> str:
    """Return the event of a run as far as it says something to a person: the files that landed, or
    the id of a webhook, without the hash; empty for an id of agentd or a random one.
    """
    text = re.sub(r" \([0-9a-f]{16}\)$", "", event)
    return "" if re.fullmatch(r"[0-9a-f]{32,64}|[0-9A-HJKMNP-TV-Z]{26}", text) else text


def seconds_of_work(run: Mapping[str, Any]) -> float:
    """Return how many seconds an ended run was under way; `active` is 0 for a single attempt."""
    if run["active"]:
        return float(run["active"])
    begin = parse_instant(run["started"] or run["ended"])
    return (parse_instant(run["ended"]) - begin).total_seconds()


def describe_work(run: Mapping[str, Any]) -> str:
    """Return how long an ended run was under way, and if that was in several attempts, how long
    after its start it ended: of an attempt whose process was killed nobody knows the time.
    """
    text = f"{duration_in_words(seconds_of_work(run))} of work"
    if run["attempt"] < 2 or not run["started"]:
        return text
    distance = parse_instant(run["ended"]) - parse_instant(run["started"])
    since_start = duration_in_words(distance.total_seconds())
    return f"{since_start} after its start, {text} noted"
