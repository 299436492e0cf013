"""A run in full: what it was told, what it did and by which rule, what it used, where its report
went.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from daemon.cli.progress import summary
from daemon.cli.render import (
    BOLD,
    DIM,
    YELLOW,
    OutputStream,
    columns,
    counted,
    moment,
    one_line,
    short,
    span,
    toml_like,
    when,
    words,
)
from daemon.cli.run_record import paid, sections_of

EFFECTS = {"allow": "allowed", "deny": "denied", "ask": "not allowed unasked,"}
# Where messages come from that are not the task.
SOURCES = {
    "told": "told by a person",
    "nudge": "reminded",
    "afresh": "began afresh, as it had outgrown the model",
}
# What stands where there is no sandbox; the level itself says enough otherwise.
SANDBOXES = {
    "profiles": (
        "none on this machine, so only what changes nothing was run: agentctl doctor says why"
    ),
    "off": "none, as the policy wants it",
}
TAINTED = {"tainted": "tainted", "high": "tainted: read like orders"}
# How calls to a model ended that are no step of the run.
UNHEARD = {
    "answered": "asked beside the conversation",
    "failed": "no answer, nothing to pay",
    "unknown": "broke off; this is the most it can come to",
    "asked": "under way",
}
# The sign in which each answer to a question is shown.
APPROVALS = {
    "pending": "waiting",
    "approved": "ok",
    "used": "ok",
    "rejected": "fail",
    "expired": "warn",
    "void": "-",
}
FOLDED = 3  # lines of a result that are shown without --full
CHARACTERS_PER_TOKEN = 4  # the usual estimate for Latin text; the model's own count stands below it


def inspect(
    page: OutputStream,
    run: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    *,
    full: bool,
    calls: Sequence[Mapping[str, Any]] = (),
    approvals: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write everything that is known of a run; `calls` are those to models, `approvals` what people
    were asked.
    """
    _head(page, run)
    prompts = [step for step in steps if step["kind"] == "prompt"]
    for step in prompts:
        _prompt(page, step["body"], full=full)
    page.title("Task")
    _text(page, run["goal"], full=full)
    if run.get("input") is not None:
        page.title("Input")
        _text(page, json.dumps(run["input"], ensure_ascii=False, indent=2), full=full)
    page.title("Timeline")
    if not steps:
        page.say("  nothing yet")
    begin = moment(run["started"]) if run["started"] else None
    made = {step["call"]: step["body"] for step in steps if step["kind"] == "call"}
    answered = {step["call"] for step in steps if step["kind"] == "result"}
    by_step, others = paid(steps, calls)
    for step in steps:
        if step["kind"] != "call" or step["call"] not in answered:
            _step(page, step, made, begin, full=full, usd=by_step.get(step["seq"], {}).get("usd"))
    _usage(page, run, others)
    _approvals(page, approvals)
    if run["report"]:
        page.title("Report")
        _text(page, run["report"], full=True)
    _deliveries(page, run)


def _head(page: OutputStream, run: Mapping[str, Any]) -> None:
    page.say(f"{page.sign(run['status'])} {page.paint(run['routine'], BOLD)}  run {run['id']}")
    lines = [
        ("status", _status(run)),
        ("slot", f"{when(run['slot'])}, trigger {words(run['trigger'])}"),
    ]
    if run["started"]:
        lines.append(("started", when(run["started"])))
    if run["ended"]:
        lines.append(
            ("ended", f"{when(run['ended'])}, {span(run['active'] or _seconds(run))} of work")
        )
    if run["attempt"] > 1:
        lines.append(("attempts", str(run["attempt"])))
    if run["model"] or run["provider"]:
        lines.append(
            (
                "model",
                " / ".join(
                    part for part in (run["provider"], run["model"]) if part not in ("", "none")
                ),
            )
        )
    if level := run.get("sandbox"):
        lines.append(("sandbox", SANDBOXES.get(level, level)))
    if run.get("taint"):
        said = (
            "something read like orders to it"
            if run["taint"] == "high"
            else "it has read what strangers wrote"
        )
        lines.append(("taint", f"{run['taint']}: {said}"))
    if run["not_before"]:
        lines.append(("goes on", when(run["not_before"])))
    if run["event"]:
        lines.append(("event", run["event"]))
    for name, text in lines:
        page.say(f"  {name:<9} {page.safe(text)}")


def _seconds(run: Mapping[str, Any]) -> float:
    return (moment(run["ended"]) - moment(run["started"] or run["ended"])).total_seconds()


def _status(run: Mapping[str, Any]) -> str:
    text = words(run["status"])
    if run["cancel"] and not run["ended"]:
        text += ", being cancelled"
    if run["silent"]:
        text += ", with nothing to report"
    if run["position"]:
        text += f", {counted(run['position'], 'run')} before it"
    return f"{text}: {run['detail']}" if run["detail"] else text


def _prompt(page: OutputStream, body: Mapping[str, Any], *, full: bool) -> None:
    system = str(body.get("system", ""))
    page.title(f"Prompt, about {len(system) // CHARACTERS_PER_TOKEN} tokens")
    for name, text in sections_of(body):
        page.say(f"  {page.safe(name):<12} {page.paint(f'{len(text):>7} characters', DIM)}")
        if full:
            _text(page, text, full=True, indent="    ")
    offered = [str(function["name"]) for function in body.get("functions") or ()]
    for name, found in (
        ("offered", offered),
        ("skills", (body.get("route") or {}).get("skills") or ()),
    ):
        if found:
            page.say(f"  {name:<12} {page.safe(', '.join(found))}")


def _step(
    page: OutputStream,
    step: Mapping[str, Any],
    calls: Mapping[str, Any],
    begin: datetime | None,
    *,
    full: bool,
    usd: float | None = None,
) -> None:
    body = step["body"]
    match step["kind"]:
        case "result":
            call = calls.get(step["call"]) or {}
            sign = page.sign("ok" if body["ok"] else "fail")
            took = span(body["seconds"]) if body.get("seconds") else ""  # 0: it was not run
            tainted = (
                page.paint(f"  {TAINTED.get(body['taint'], body['taint'])}", YELLOW)
                if body.get("taint")
                else ""
            )
            _entry(
                page,
                step,
                begin,
                f"{sign} {_call_words(page, step, call or body)}  {page.paint(took, DIM)}{tainted}",
            )
            if full and call.get("arguments"):
                _text(
                    page,
                    json.dumps(call["arguments"], ensure_ascii=False, indent=2),
                    full=True,
                    indent=_INDENT,
                )
            _verdict(page, call)
            _text(page, str(body["text"]), full=full, indent=_INDENT)
        case "call":
            _entry(
                page,
                step,
                begin,
                f"{page.sign('running')} {_call_words(page, step, body)}  no result yet",
            )
            _verdict(page, body)
        case "llm":
            usage = body.get("usage") or {}
            cached = f" ({usage['cache_read']:,} cached)" if usage.get("cache_read") else ""
            used = f"{usage.get('input', 0):,} in{cached}, {usage.get('output', 0):,} out"
            used += f", ${usd:.4f}" if usd is not None else ""
            asks = f", asks for {counted(len(body['calls']), 'call')}" if body.get("calls") else ""
            model = body.get("model") if body.get("model") != "none" else "no model"
            told = f"{page.sign('ok')} {model or 'model'} answered{asks}"
            took = f"{span(body.get('seconds') or 0)}, {used}"
            _entry(page, step, begin, f"{told}  {page.paint(took, DIM)}")
            if full and body.get("reasoning"):
                page.say(_INDENT + page.paint("thinking:", DIM))
                _text(page, body["reasoning"], full=True, indent=f"{_INDENT}  ")
            _text(page, body.get("content") or "", full=full, indent=_INDENT)
        case "failover":
            text = one_line(
                (  # noqa: UP034
                    f"{body.get('from')} gave no answer, {body.get('to')} is asked: "
                    f"{body.get('reason', '')}"
                )
            )
            _entry(page, step, begin, f"{page.sign('warn')} {page.safe(text)}")
        case "message" if body.get("source") not in (None, "goal"):
            _entry(
                page,
                step,
                begin,
                f"{page.sign('ok')} {SOURCES.get(body['source'], body['source'])}",
            )
            _text(page, body.get("text") or "", full=full, indent=_INDENT)


_INDENT = " " * 14


def _entry(page: OutputStream, step: Mapping[str, Any], begin: datetime | None, text: str) -> None:
    offset = (
        f"+{span((moment(step['at']) - begin).total_seconds())}" if begin and step["at"] else ""
    )
    page.say(f"  {page.paint(f'{offset:>9}', DIM)} {text}".rstrip())


def _call_words(page: OutputStream, step: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    name = str(step["call"] or "")
    what = f"{call['tool']} {summary(call.get('arguments') or {})}".strip()
    if name.startswith(("gather.", "gate.")):
        what = f"{name.removeprefix('gather.')}: {what}"
    what = one_line(page.safe(what))
    return page.cut(what, page.width - 30) if page.width else what


def _verdict(page: OutputStream, call: Mapping[str, Any]) -> None:
    verdict = call.get("verdict")
    if verdict:
        said = EFFECTS.get(verdict["effect"], verdict["effect"])
        reason = f": {verdict['reason']}" if verdict.get("reason") else ""
        page.say(
            _INDENT + page.paint(page.safe(one_line(f"{said} by {verdict['rule']}{reason}")), DIM)
        )


def _usage(page: OutputStream, run: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> None:
    usage = run["usage"]
    if not usage["input"] and not usage["output"] and not others:
        return
    page.title("Usage")
    cached = f", {usage['cache_read']:,} of them from the cache" if usage["cache_read"] else ""
    reasoning = f", {usage['reasoning']:,} of them reasoning" if usage["reasoning"] else ""
    page.say(f"  {usage['input']:,} tokens in{cached}")
    page.say(
        f"  {usage['output']:,} tokens out{reasoning}, in {counted(run['iterations'], 'iteration')}"
    )
    if run.get("usd") is not None:
        page.say(f"  ${run['usd']:.4f}")
    # without an answer, or asked beside the conversation: which skills it needs, what is worth
    # remembering
    for call in others:
        told = (
            f"{call['provider']} / {call['model']}: {UNHEARD.get(call['outcome'], call['outcome'])}"
        )
        used = f"{call['usage']['input']:,} in, {call['usage']['output']:,} out"
        used += f", ${call['usd']:.4f}" if call["usd"] is not None else ""
        page.say(f"  {page.safe(told)}  {page.paint(used, DIM)}")


def _approvals(page: OutputStream, approvals: Sequence[Mapping[str, Any]]) -> None:
    if not approvals:
        return
    page.title("Approvals")
    for each in reversed(approvals):
        state = f"{each['status']} by {each['by']}" if each["by"] else each["status"]
        at = (
            f"answered {when(each['decided'])}"
            if each["decided"]
            else f"asked {when(each['created'])}"
        )
        what = one_line(page.safe(f"{each['tool']} {each['what']}"))
        line = (
            f"{page.sign(APPROVALS.get(each['status'], ''))} {short(each['id'])} "
            f"{page.safe(state)}: {what}"
        )
        page.say(f"  {page.cut(line, page.width - 2) if page.width else line}")
        page.say(page.paint(f"      {at}, by {page.safe(each['rule'])}", DIM))


def _deliveries(page: OutputStream, run: Mapping[str, Any]) -> None:
    if not run["deliveries"]:
        return
    page.title("Deliveries")
    for delivery in reversed(run["deliveries"]):
        page.say(f"  {delivery_line(page, delivery)}")


def delivery_line(page: OutputStream, delivery: Mapping[str, Any]) -> str:
    """Return one delivery as a line."""
    return (
        f"{page.sign(delivery['status'])} {delivery['target']}: "
        f"{one_line(page.safe(delivery_words(delivery)))}"
    )


def delivery_words(delivery: Mapping[str, Any]) -> str:
    """Return what became of a delivery; a question is named as one."""
    words = _outcome_of(delivery)
    return f"question: {words}" if delivery.get("kind") == "question" else words


def _outcome_of(delivery: Mapping[str, Any]) -> str:
    match delivery["status"]:
        case "delivered":
            tries = f", at attempt {delivery['attempts']}" if delivery["attempts"] > 1 else ""
            return f"{delivery['receipt'] or 'delivered'}{tries}"
        case "pending" if delivery["error"]:
            return (
                f"not yet: {delivery['error']}; next try {when(delivery['next_at'], never='soon')}"
            )
        case "failed":
            return f"given up after {counted(delivery['attempts'], 'attempt')}: {delivery['error']}"
        case "suppressed":
            return str(delivery["error"] or "not sent, as there was nothing to report")
        case _:
            return "on its way"


def _text(page: OutputStream, text: str, *, full: bool, indent: str = "  ") -> None:
    """Write a text, folded unless it is wanted in full."""
    lines = page.safe(text.strip()).splitlines()
    shown = lines if full else lines[:FOLDED]
    for line in shown:
        folded = (
            line if full or page.width is None else page.cut(line, page.width - columns(indent))
        )
        page.say(f"{indent}{folded}".rstrip())
    if len(lines) > len(shown):
        page.say(
            indent
            + page.paint(
                f"… {counted(len(lines) - len(shown), 'more line')} (--full shows them)", DIM
            )
        )


def preview(page: OutputStream, told: Mapping[str, Any], *, full: bool) -> None:
    """Write what a run would be told, with about how many tokens each part takes."""
    model = " / ".join(
        part for part in (told["provider"], told["model"]) if part not in ("", "none")
    )
    page.say(
        (  # noqa: UP034
            f"{page.paint(told['routine'], BOLD)}  about {told['tokens']:,} tokens to "
            f"{page.safe(model)}"
        )
    )
    for title, parts in (
        ("Prompt", told["sections"]),
        ("Tools", told["functions"]),
        ("Task", [told["task"]]),
    ):
        if not parts:
            continue
        page.title(f"{title}, about {sum(part['tokens'] for part in parts):,} tokens")
        for part in parts:
            page.say(_part(page, part))
            if full:
                _text(page, part["text"], full=True, indent="    ")


def _part(page: OutputStream, part: Mapping[str, Any]) -> str:
    tokens = f"{part['tokens']:>7,} tokens"
    return f"  {page.safe(part['name']):<16} {page.paint(tokens, DIM)}"


def definition(page: OutputStream, value: Mapping[str, Any]) -> None:
    """Write a definition as it would stand in its file, in dotted keys."""
    for line in toml_like(value):
        for part in page.safe(line).splitlines():
            page.say(f"  {part}")


def checks(page: OutputStream, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of `doctor`: what was looked at, what was found, and how to mend it."""
    page.table(["", "CHECK", "FOUND"], [(row["state"], row["name"], row["found"]) for row in rows])
    for row in rows:
        if row["state"] != "ok" and row["fix"]:
            page.say()
            page.say(
                (  # noqa: UP034
                    f"{page.sign(row['state'])} {page.paint(row['name'], BOLD)}: "
                    f"{page.safe(row['fix'])}"
                )
            )
    faulty = sum(row["state"] == "fail" for row in rows)
    page.say()
    page.say(f"{counted(faulty, 'thing')} to mend" if faulty else "all is well")
