"""The progress of a run: a line per finished step, and on a terminal what is under way."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from daemon.cli.render import DIM, RED, OutputStream, one_line, parse_instant
from daemon.durations import duration_in_words

CLEAR_LINE = "\r\x1b[K"


class RunProgress:
    """Shows the events of one run on a stream."""

    def __init__(self, out: OutputStream) -> None:
        self._out = out
        self._running_calls: dict[str, tuple[str, str, float]] = {}
        """Tool, arguments and start (monotonic seconds) of each call under way, by its name."""
        self._message = ""
        """The latest message of the agent, not shown yet."""
        self._model_start = time.monotonic()
        self._model_state = "at work"
        self._has_current_line = False

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        match event["type"]:
            case "thinking" if event.get("text"):
                return  # `agentctl events` and `inspect` show what a model thinks
            case "thinking":
                self._write_message()
                self._model_start = time.monotonic()
                self._model_state = (
                    f"{event['provider']} is thinking" if event.get("provider") else "thinking"
                )
            case "run_retry_scheduled":
                self._model_start = time.monotonic()
                self._model_state = f"put off until {parse_instant(event['until']):%H:%M:%S}"
                self._write_step("warn", f"{self._model_state}: {event['detail']}", "")
            case "failed_over":
                text = (
                    f"{event['from']} does not answer ({event['reason']}): {event['to']} is asked"
                )
                self._write_step("warn", text, "")
            case "tool_started":
                self._write_message()
                call = event.get("call") or event["tool"]
                arguments = summarize_arguments(event.get("args") or {})
                self._running_calls[call] = (event["tool"], arguments, time.monotonic())
            case "tool_finished":
                self._write_tool_result(event)
            case "message":
                # The last message is the report, which is printed at the end; any other announces
                # what the agent does next, and is shown with that.
                self._message = event["text"]
                return
            case "run_ended":
                self.clear()
                return
        self.show_current()

    def show_current(self) -> None:
        """Rewrite the line with what is under way, and since when; only on a terminal."""
        if not self._out.is_terminal:
            return
        if self._running_calls:
            calls = self._running_calls.values()
            start = min(start for _, _, start in calls)
            text = ", ".join(f"{tool} {arguments}".strip() for tool, arguments, _ in calls)
        else:
            start, text = self._model_start, self._model_state
        text = one_line(self._out.sanitize(text))
        seconds = int(time.monotonic() - start)
        if seconds:
            text += f"  {duration_in_words(seconds)}"
        text = self._out.paint(self._out.truncate(text, (self._out.width or 80) - 3), DIM)
        self._out.stream.write(f"{CLEAR_LINE}{self._out.sign('running')} {text}")
        self._out.stream.flush()
        self._has_current_line = True

    def clear(self) -> None:
        """Remove the line with what is under way, so that other text can be written there."""
        if self._has_current_line:
            self._out.stream.write(CLEAR_LINE)
            self._has_current_line = False
        self._out.stream.flush()

    def _write_tool_result(self, event: Mapping[str, Any]) -> None:
        call, now = event.get("call") or event["tool"], time.monotonic()
        tool, arguments, start = self._running_calls.pop(call, (event["tool"], "", now))
        seconds = event.get("seconds")
        if seconds is None:
            duration = duration_in_words(now - start)
        elif seconds == 0:  # it was not run
            duration = ""
        else:
            duration = duration_in_words(seconds)
        name = f"{call.removeprefix('gather.')}: {tool}" if call.startswith("gather.") else tool
        self._write_step("ok" if event["ok"] else "fail", f"{name} {arguments}".strip(), duration)
        if not event["ok"]:
            from daemon.models import without_advice  # 10 ms, for denied calls alone

            for line in without_advice(str(event.get("preview") or "")).splitlines():
                text = self._out.sanitize(line)
                self._out.write_prose(text, colour=RED, begin="    ", indent="    ")
        if not self._running_calls:
            self._model_start = time.monotonic()

    def _write_step(self, status: str, text: str, duration: str) -> None:
        out = self._out
        self.clear()
        text = one_line(out.sanitize(text))
        if out.width is not None:
            text = out.truncate(text, out.width - len(duration) - 7)
        out.write_line(f"  {out.sign(status)} {text}  {out.paint(duration, DIM)}".rstrip())

    def _write_message(self) -> None:
        first_line, _, _ = self._message.strip().partition("\n")
        text = one_line(self._out.sanitize(first_line))
        if text:
            self.clear()
            self._out.write_line("  " + self._out.paint(text, DIM))
        self._message = ""


def summarize_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as `name=value …`, a single string without its name."""
    values = list(arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )
