"""The verbs `ask` and `tell`: what is said goes to the agent as it was typed, what it answers is
shown as it comes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from daemon.cli.call import (
    DETACHED,
    DONE,
    UNREACHABLE,
    USAGE,
    Call,
    exit_code_of,
    quote,
    start_command,
)
from daemon.cli.client import Lost, Problem, Unreachable
from daemon.cli.progress import RunProgress
from daemon.cli.render import DIM, RED, YELLOW, one_line, short, words
from daemon.cli.run_names import run_named


def ask(call: Call) -> int:
    """Put a message to the agent, and print its answer as it comes."""
    text = _text(call)
    if text is None:
        return USAGE
    body = {"text": text, "event": os.urandom(16).hex()}
    if call.session:
        body["session"] = call.session
    if call.new:
        body["fresh"] = "yes"
    return _spoken(call, "/v1/ask", body)


def tell(call: Call) -> int:
    """Tell a run something, and follow it to its end."""
    text = _text(call)
    if text is None:
        return USAGE
    run = run_named(call)["id"]
    return _spoken(
        call, f"/v1/runs/{quote(run)}/tell", {"text": text, "event": os.urandom(16).hex()}
    )


def _text(call: Call) -> str | None:
    """Return what was typed behind the verb, or comes in by a pipe; None if nothing did."""
    if call.text:
        return " ".join(call.text)
    if not sys.stdin.isatty() and (piped := sys.stdin.read()).strip():
        return piped
    call.err.say("agentctl: say something: agentctl ask how full are the disks")
    return None


def _spoken(call: Call, target: str, body: dict[str, Any]) -> int:
    begun = None
    try:
        begun = _sent(call, target, body)
        return _said(call, begun)
    except KeyboardInterrupt:
        # Before the answer nobody knows whether a run has begun: asked again, the same event names
        # it.
        return _stop(call, begun or _sent(call, target, body))


def _sent(call: Call, target: str, body: dict[str, Any]) -> Mapping[str, Any]:
    try:
        return dict(call.client.ask("POST", target, body))
    except Lost:
        return dict(call.client.ask("POST", target, body))  # the same event: it is not said twice


def _said(call: Call, begun: Mapping[str, Any]) -> int:
    err, run = call.err, begun["id"]
    if call.detach:
        call.out.say(call.client.text("GET", f"/v1/runs/{run}") if call.json else run)
        return DONE
    if not begun["new"] and not call.json:
        err.say(
            err.paint(
                f"taken as said to {begun['routine']}, run {short(run)}, which is under way", DIM
            )
        )
    answer = AnswerView(call)
    try:
        for event in call.client.stream(f"/v1/runs/{run}/events", answer.tick):
            answer.show(event)
            if event["type"] in ("run_ended", "run_waiting"):
                return answer.end(call.client.ask("GET", f"/v1/runs/{run}"))
    except (Lost, Unreachable):
        pass
    answer.end_line()
    err.say(
        (  # noqa: UP034
            f"the daemon stopped; run {short(run)} goes on when it starts again. Start it with: "
            f"{start_command()}"
        )
    )
    return UNREACHABLE


def _stop(call: Call, begun: Mapping[str, Any]) -> int:
    """Cancel the run that was begun for this, or leave one alone that is somebody else's business,
    too.
    """
    err, name = call.err, short(begun["id"])
    err.say()
    if not begun["new"]:
        err.say(f"detached; run {name} goes on in the daemon, and knows what you said.")
        return DETACHED
    try:
        call.client.ask("POST", f"/v1/runs/{begun['id']}/cancel", {})
        err.say(f"cancelled; run {name} is stopped. agentctl inspect {name} shows how far it came.")
    except (Problem, Lost, Unreachable) as error:
        err.say(f"run {name} could not be cancelled: {error}")
    return DETACHED


class AnswerView:
    """An answer as it comes: on a terminal piece by piece, elsewhere as a whole at its end."""

    def __init__(self, call: Call) -> None:
        self._call, self._progress = call, RunProgress(call.err)
        self._piecewise = call.out.terminal and not call.json
        self._turn = self._last = ""
        """What has been shown of the turn that is under way, and of the one before."""

    def tick(self) -> None:
        if self._piecewise and not self._turn and self._call.err.terminal:
            self._progress.tick()

    def show(self, event: Mapping[str, Any]) -> None:
        if self._call.json:
            return
        if event["type"] == "delta":
            if self._piecewise:
                self._progress.clear()
                out = self._call.out
                out.stream.write(out.safe(event["text"]))
                out.stream.flush()
                self._turn += event["text"]
            return
        if event["type"] == "thinking":  # asked again after a fault, it begins its answer anew
            self.end_line()
        if event["type"] == "message":
            if self._turn.strip():
                self.end_line()
            return
        self._progress.show(event)

    def end_line(self) -> None:
        self._progress.clear()
        if self._turn and not self._turn.endswith("\n"):
            self._call.out.stream.write("\n")
        self._last, self._turn = self._turn or self._last, ""

    def end(self, run: Mapping[str, Any]) -> int:
        """Show what has not been shown yet; return the exit code."""
        call, out, err = self._call, self._call.out, self._call.err
        if call.json:
            call.say_json(run)
        else:
            self.end_line()
            report = (run["report"] or "").strip()
            if report and self._last.strip() != report:
                out.say(out.safe(report))
            if run["status"] != "succeeded":
                colour = YELLOW if run["status"] in ("waiting", "skipped") else RED
                detail = f": {one_line(err.safe(run['detail']))}" if run["detail"] else ""
                err.say(
                    f"{err.sign(run['status'])} {err.paint(words(run['status']) + detail, colour)}"
                )
        return exit_code_of(run["status"], [each["status"] for each in run["deliveries"]])
