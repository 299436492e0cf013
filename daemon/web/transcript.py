"""One run as a page, from its prompt to its deliveries; and `agentctl inspect --html`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from daemon.cli.call import DONE, NOT_SUCCEEDED, Call, quote
from daemon.cli.inspect import (
    describe_left_out,
    describe_work,
    match_model_calls,
    prompt_sections,
)
from daemon.web.queries import request_items
from daemon.web.rendering import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.cli.client import Client

    Context = dict[str, Any]

STYLE = Path(__file__).parent / "static" / "style.css"
MAX_STEPS = 100_000  # of one run


def transcript_context(client: Client, run: Context) -> Context:
    """Return what the template of a transcript shows."""
    run_id = quote(run["id"])
    steps = request_items(client, f"/v1/runs/{run_id}/steps?limit=1000", MAX_STEPS)
    model_calls = client.request("GET", f"/v1/runs/{run_id}/calls")["items"]
    call_by_step, extra_calls = match_model_calls(steps, model_calls)
    prompt: Context = next((step["body"] for step in steps if step["kind"] == "prompt"), {})
    return {
        "title": f"{run['routine']}, run {run['id'][-8:]}",
        "run": run,
        "work": describe_work(run) if run["ended"] else "",
        **describe_task(run["goal"], steps),
        "iterations": group_by_iteration(steps),
        "first_tainted": find_first_tainted_call(steps),
        "prompt": list(prompt_sections(prompt)) if prompt else [],
        "tools": [str(function["name"]) for function in prompt.get("functions") or ()],
        "left_out": describe_left_out(left_out) if (left_out := prompt.get("left_out")) else "",
        "call_by_step": call_by_step,
        "extra_calls": extra_calls,
        "approvals": client.request("GET", f"/v1/approvals?run={run_id}&limit=200")["items"],
    }


def describe_task(goal: str, steps: Sequence[Any]) -> Context:
    """Return whether the steps show the task already, and what the step with it is called: the task
    is shown twice only where the model was given facts with it.
    """
    tasks = [
        step["body"].get("text", "").strip()
        for step in steps
        if step["kind"] == "message" and step["body"].get("source") == "goal"
    ]
    has_facts = any(task != goal.strip() for task in tasks)
    return {
        "is_task_among_steps": bool(tasks) and not has_facts,
        "task_title": "Task and facts" if has_facts else "Task",
    }


def group_by_iteration(steps: list[Any]) -> list[Context]:
    """Return the steps by iteration in the order they began, each call together with its result."""
    results = {step["call"]: step for step in steps if step["kind"] == "result"}
    iterations: dict[int, list[Context]] = {}
    for step in steps:
        if step["kind"] in ("prompt", "result"):
            continue
        result = results.get(step["call"]) if step["kind"] == "call" else None
        iterations.setdefault(step["iteration"], []).append({"step": step, "result": result})
    return [{"number": number, "entries": entries} for number, entries in iterations.items()]


def find_first_tainted_call(steps: list[Any]) -> str | None:
    """Return the call whose result was the first with words of strangers."""
    return next(
        (step["call"] for step in steps if step["kind"] == "result" and step["body"].get("taint")),
        None,
    )


def write_page(call: Call, run_id: str) -> int:
    """Write a run into the file `call.html`, as a page that needs nothing besides itself."""
    run = call.client.request("GET", f"/v1/runs/{quote(run_id)}")
    style = Markup(STYLE.read_text("utf-8"))  # noqa: S704  # a file of ours
    text = render("standalone.html", {**transcript_context(call.client, run), "style": style})
    try:
        # a transcript may be as private as what the run has read
        descriptor = os.open(call.html, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
    except FileExistsError:
        call.err.write_line(
            f"agentctl: {call.html} is there already; name another file, or take that one away"
        )
        return NOT_SUCCEEDED
    except OSError as error:
        call.err.write_line(f"agentctl: {call.html} cannot be written: {error.strerror}")
        return NOT_SUCCEEDED
    call.err.write_line(f"{call.html} holds the run, readable without agentd")
    return DONE
