"""One run as a page: what it was told, what it did and by which rule, what it used, where its
report went.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from daemon.cli.call import DONE, NOT_SUCCEEDED, Call, quote
from daemon.cli.inspect import match_model_calls, prompt_sections
from daemon.web.queries import all_of
from daemon.web.rendering import render

if TYPE_CHECKING:
    from daemon.cli.client import Client

    Context = dict[str, Any]

STYLE = Path(__file__).parent / "static" / "style.css"
MOST_STEPS = 100_000  # of one run


def context_of(client: Client, run: Context) -> Context:
    """Return what the template of a transcript shows."""
    id_ = quote(run["id"])
    steps = all_of(client, f"/v1/runs/{id_}/steps?limit=1000", MOST_STEPS)
    by_step, others = match_model_calls(
        steps, client.request("GET", f"/v1/runs/{id_}/calls")["items"]
    )
    return {
        "title": f"{run['routine']}, run {run['id'][-8:]}",
        "run": run,
        "turns": turns_of(steps),
        "prompt": prompt_of(steps),
        "tools": tools_of(steps),
        "paid": by_step,
        "unheard": others,
        "approvals": client.request("GET", f"/v1/approvals?run={id_}&limit=200")["items"],
    }


def transcript(client: Client, name: str) -> str:
    """Return one run as a page that needs nothing besides itself, for whoever has no daemon."""
    run = client.request("GET", f"/v1/runs/{quote(name)}")
    style = Markup(STYLE.read_text("utf-8"))  # noqa: S704  # a file of ours
    return render("alone.html", {**context_of(client, run), "style": style})


def write(call: Call, run: str) -> int:
    """Write a run as a page that needs nothing besides itself."""
    text = transcript(call.client, run)
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


def prompt_of(steps: list[Any]) -> list[tuple[str, str]]:
    """Return the frozen prompt by section."""
    for step in steps:
        if step["kind"] == "prompt":
            return list(prompt_sections(step["body"]))
    return []


def tools_of(steps: list[Any]) -> list[str]:
    """Return the names of the tools that the model was offered."""
    offered = next(
        (step["body"].get("functions") or () for step in steps if step["kind"] == "prompt"), ()
    )
    return [str(each["name"]) for each in offered]


def turns_of(steps: list[Any]) -> list[Context]:
    """Return the steps as a reader meets them: a call together with its result, turn by turn."""
    results = {step["call"]: step for step in steps if step["kind"] == "result"}
    turns: dict[int, list[Context]] = {}
    for step in steps:
        if step["kind"] in ("prompt", "result"):
            continue
        entry = {
            "step": step,
            "result": results.get(step["call"]) if step["kind"] == "call" else None,
        }
        turns.setdefault(step["iteration"], []).append(entry)
    return [{"number": number, "entries": entries} for number, entries in turns.items()]
