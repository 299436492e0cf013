"""A run while it lives: a line for each step that is done, and on a terminal a last line with what
is under way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from daemon.cli.render import DIM, RED, OutputStream, one_line, span

CLEAR = "\r\x1b[K"


class RunProgress:
    """Takes the events of one run and shows them."""

    def __init__(self, page: OutputStream) -> None:
        self._page = page
        self._under_way: dict[str, tuple[str, str, float]] = {}
        self._said = ""
        self._since = time.monotonic()
        self._thinker = "at work"
        self._transient = False

    def show(self, event: Mapping[str, Any]) -> None:
        """Take in one event."""
        match event["type"]:
            case "thinking":
                self._say_intent()
                self._since = time.monotonic()
                self._thinker = (
                    f"{event['provider']} is thinking" if event.get("provider") else "thinking"
                )
            case "failed_over":
                self._line(
                    "warn",
                    f"{event['from']} does not answer ({event['reason']}): {event['to']} is asked",
                    "",
                )
            case "tool_started":
                self._say_intent()
                call = event.get("call") or event["tool"]
                self._under_way[call] = (
                    event["tool"],
                    summary(event.get("args") or {}),
                    time.monotonic(),
                )
            case "tool_finished":
                self._finished(event)
            case "message":
                # the last one is the report, which comes by itself; any other announces what the
                # agent does next
                self._said = event["text"]
                return
            case "run_ended":
                self.clear()
                return
        self.tick()

    def tick(self) -> None:
        """Renew the line of what is under way."""
        if not self._page.terminal:
            return
        if self._under_way:
            since = min(begun for _, _, begun in self._under_way.values())
            doing = ", ".join(
                f"{tool} {args}".strip() for tool, args, _ in self._under_way.values()
            )
        else:
            since, doing = self._since, self._thinker
        seconds = int(time.monotonic() - since)
        text = f"{one_line(self._page.safe(doing))}" + (f"  {span(seconds)}" if seconds else "")
        text = self._page.paint(self._page.cut(text, (self._page.width or 80) - 3), DIM)
        self._page.stream.write(f"{CLEAR}{self._page.sign('running')} {text}")
        self._page.stream.flush()
        self._transient = True

    def clear(self) -> None:
        """Take the last line away, so that something else can be written there."""
        if self._transient:
            self._page.stream.write(CLEAR)
            self._transient = False
        self._page.stream.flush()

    def _finished(self, event: Mapping[str, Any]) -> None:
        call = event.get("call") or event["tool"]
        tool, args, begun = self._under_way.pop(call, (event["tool"], "", time.monotonic()))
        seconds = event.get("seconds")
        took = (
            span(time.monotonic() - begun if seconds is None else seconds) if seconds != 0 else ""
        )  # 0: not run
        name = f"{call.removeprefix('gather.')}: {tool}" if call.startswith("gather.") else tool
        self._line("ok" if event["ok"] else "fail", f"{name} {args}".strip(), took)
        if not event["ok"]:
            for line in str(event.get("preview") or "").splitlines():
                self._page.say("    " + self._page.paint(self._page.safe(line), RED))
        if not self._under_way:
            self._since = time.monotonic()

    def _line(self, status: str, text: str, took: str) -> None:
        self.clear()
        text = one_line(self._page.safe(text))
        if self._page.width is not None:
            text = self._page.cut(text, self._page.width - len(took) - 7)
        self._page.say(
            f"  {self._page.sign(status)} {text}  {self._page.paint(took, DIM)}".rstrip()
        )

    def _say_intent(self) -> None:
        if said := one_line(self._page.safe(self._said.strip().partition("\n")[0])):
            self.clear()
            self._page.say("  " + self._page.paint(said, DIM))
        self._said = ""


def summary(args: Mapping[str, Any]) -> str:
    """Return the arguments of a call as a few words: the command of a shell is enough."""
    if len(args) == 1:
        (only,) = args.values()
        if isinstance(only, str):
            return only
    shown = (
        f"{key}={item if isinstance(item, str) else json.dumps(item)}" for key, item in args.items()
    )
    return " ".join(shown)
