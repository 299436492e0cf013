"""`agentctl ask` and `tell`: send a message to the agent, and show its answer as it comes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from signal import SIG_IGN, SIGINT, signal
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
from daemon.cli.client import ApiError, ConnectionLost, Unreachable
from daemon.cli.progress import RunProgress
from daemon.cli.render import DIM, RED, YELLOW, humanize, one_line, short_id
from daemon.cli.runs import find_run

ASK_PATH = "/v1/ask"


def ask(call: Call) -> int:
    """Ask the agent something, and print its answer as it comes."""
    text = _read_message(call)
    if text is None:
        return USAGE
    body = {"text": text, "event": os.urandom(16).hex()}
    if call.session:
        body["session"] = call.session
    if call.new:
        body["fresh"] = "yes"
    return _converse(call, ASK_PATH, body)


def tell(call: Call) -> int:
    """Tell a run something, and follow it to its end."""
    text = _read_message(call)
    if text is None:
        return USAGE
    path = f"/v1/runs/{quote(find_run(call)['id'])}/tell"
    return _converse(call, path, {"text": text, "event": os.urandom(16).hex()})


def _read_message(call: Call) -> str | None:
    """Return the words behind the verb, or what a pipe brings; None after an error message."""
    try:
        text = " ".join(call.text) if call.text else _read_pipe()
        text.encode()  # of an argument, a byte that is not UTF-8 is half of a surrogate pair
    except UnicodeError:
        call.err.write_line("agentctl: the text is not UTF-8")
        return None
    if call.text or text.strip():
        return text
    call.err.write_line("agentctl: say something: agentctl ask how full are the disks")
    return None


def _read_pipe() -> str:
    return "" if sys.stdin.isatty() else sys.stdin.read()


def _converse(call: Call, path: str, body: dict[str, Any]) -> int:
    """Send a message and show the answer; Ctrl-C stops the run that it began."""
    run = None
    try:
        run = _send(call, path, body)
        return _show_answer(call, run)
    except KeyboardInterrupt:
        # What follows takes a moment, and a second Ctrl-C must not leave the run behind.
        signal(SIGINT, SIG_IGN)
        if run is None and path == ASK_PATH:
            return _withdraw(call, body)
        # Sent again, the same event gives the same run.
        return _stop(call, run or _send(call, path, body))


def _withdraw(call: Call, body: Mapping[str, Any]) -> int:
    """Withdraw a message before the answer to it: nobody knows yet whether a run has begun."""
    err, message = call.err, {key: body[key] for key in ("event", "session") if key in body}
    err.write_line()
    try:
        answer = call.client.request("POST", f"{ASK_PATH}/withdraw", message)
    except (ApiError, ConnectionLost, Unreachable) as error:
        err.write_line(f"the message could not be withdrawn: {error}")
        return DETACHED
    if answer["run"] is None:
        err.write_line("withdrawn; no run has begun.")
    elif answer["new"]:
        err.write_line(f"cancelled; run {short_id(answer['run'])} is stopped.")
    else:
        _write_detached(call, answer["run"])
    return DETACHED


def _send(call: Call, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
    """Return the run that takes the message."""
    try:
        return dict(call.client.request("POST", path, body))
    except ConnectionLost:  # with the same event, the message is not taken twice
        return dict(call.client.request("POST", path, body))


def _show_answer(call: Call, run: Mapping[str, Any]) -> int:
    out, err, run_id = call.out, call.err, run["id"]
    if call.detach:
        if call.json:
            out.write_line(call.client.request_text("GET", f"/v1/runs/{run_id}"))
        else:
            out.write_line(run_id)
        return DONE
    if not run["new"] and not call.json:
        text = f"taken as said to {run['routine']}, run {short_id(run_id)}, which is under way"
        err.write_line(err.paint(text, DIM))
    view = AnswerView(call)
    try:
        for event in call.client.stream(f"/v1/runs/{run_id}/events", view.show_progress):
            view.show(event)
            if event["type"] in ("run_ended", "run_waiting"):
                return view.finish(call.client.request("GET", f"/v1/runs/{run_id}"))
    except (ConnectionLost, Unreachable):
        pass
    view.end_line()
    err.write_line(
        f"the daemon stopped; run {short_id(run_id)} goes on when it starts again. "
        f"Start it with: {start_command()}"
    )
    return UNREACHABLE


def _stop(call: Call, run: Mapping[str, Any]) -> int:
    """Cancel the run if this message began it; a run that was under way before goes on."""
    err, name = call.err, short_id(run["id"])
    err.write_line()
    if not run["new"]:
        _write_detached(call, run["id"])
        return DETACHED
    try:
        call.client.request("POST", f"/v1/runs/{run['id']}/cancel", {})
    except (ApiError, ConnectionLost, Unreachable) as error:
        err.write_line(f"run {name} could not be cancelled: {error}")
    else:
        err.write_line(
            f"cancelled; run {name} is stopped. agentctl inspect {name} shows how far it came."
        )
    return DETACHED


def _write_detached(call: Call, run_id: str) -> None:
    name = short_id(run_id)
    call.err.write_line(f"detached; run {name} goes on in the daemon, and knows what you said.")


class AnswerView:
    """Shows an answer: on a terminal in pieces as it comes, elsewhere as a whole at its end."""

    def __init__(self, call: Call) -> None:
        self._call, self._progress = call, RunProgress(call.err)
        self._is_incremental = call.out.is_terminal and not call.json
        self._current_text = self._last_text = ""
        """What was shown of the answer of the model that is under way, and of the one before it."""

    def show_progress(self) -> None:
        """Show what is under way, unless an answer of the model is being written."""
        if self._is_incremental and not self._current_text and self._call.err.is_terminal:
            self._progress.show_current()

    def show(self, event: Mapping[str, Any]) -> None:
        """Show an event of the run."""
        if self._call.json:
            return
        match event["type"]:
            case "delta":
                if self._is_incremental:
                    self._progress.clear()
                    out = self._call.out
                    out.stream.write(out.sanitize(event["text"]))
                    out.stream.flush()
                    self._current_text += event["text"]
            case "message":
                if self._current_text.strip():
                    self.end_line()
            case "thinking" if event.get("text"):
                pass
            case "thinking":  # after a fault the model begins its answer anew
                self.end_line()
                self._progress.show(event)
            case _:
                self._progress.show(event)

    def end_line(self) -> None:
        """End the line of the answer of the model that is under way."""
        self._progress.clear()
        if self._current_text and not self._current_text.endswith("\n"):
            self._call.out.stream.write("\n")
        self._last_text, self._current_text = self._current_text or self._last_text, ""

    def finish(self, run: Mapping[str, Any]) -> int:
        """Show what has not been shown yet; return the exit code."""
        call, out, err = self._call, self._call.out, self._call.err
        if call.json:
            call.print_json(run)
        else:
            self.end_line()
            report = (run["report"] or "").strip()
            if report and self._last_text.strip() != report:
                out.write_line(out.sanitize(report))
            if run["status"] != "succeeded":
                text = humanize(run["status"])
                if run["detail"]:
                    text += f": {one_line(err.sanitize(run['detail']))}"
                colour = YELLOW if run["status"] in ("waiting", "skipped") else RED
                err.write_line(f"{err.sign(run['status'])} {err.paint(text, colour)}")
        return exit_code_of(run["status"], [delivery["status"] for delivery in run["deliveries"]])
