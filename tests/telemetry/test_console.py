"""Short lines about events, for a person at a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.telemetry.console import EventConsole
from daemon.telemetry.redaction import MARK, Secrets

RUN = "01M875QEXRB081E7T7SVBR6E8F"
RUN_FINISHED = {"event": "run.finished", "routine": "daily", "run": RUN, "status": "succeeded"}


class Utf8Stream(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]


class AsciiStream(io.StringIO):
    encoding = "ascii"  # type: ignore[assignment]


class LinesOf:
    """The lines that records make on a stream."""

    def __init__(
        self, stream: io.StringIO | None = None, *, secret: str = "canary-7f3a91c2", **options: Any
    ) -> None:
        self.stream = stream or Utf8Stream()
        secrets = Secrets()
        secrets.add(secret)
        options = {"colour": False, "agentctl": ".venv/bin/agentctl", **options}
        self.console = EventConsole(
            self.stream, secrets, workspace=Path("/home/me/work"), delivery_wait=3600, **options
        )
        self.console.begin()

    def __call__(self, *records: dict[str, Any]) -> list[str]:
        """Write records, one second after each other, and return the lines."""
        for second, record in enumerate(records):
            at = f"2026-11-22T13:06:{second:02}.000Z"
            self.console.write({"at": at, "level": "info", **record})
        self.console.close()
        return [
            re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in self.stream.getvalue().splitlines()
        ]


def test_a_run_and_its_delivery_are_one_line() -> None:
    arrival = {
        "event": "delivery.arrived", "routine": "daily", "run": RUN, "target": "file",
        "receipt": "/home/me/work/reports/daily/2026-11-22.md",
    }  # fmt: skip
    start = {"event": "run.started", "routine": "daily", "run": RUN, "attempt": 1}
    first = {**start, "trigger": "first_run"}
    assert LinesOf()(first, {"event": "sandbox.chosen"}, RUN_FINISHED, arrival) == [
        "» daily started (first run)",
        "✓ daily 2.0 s → reports/daily/2026-11-22.md",
    ]
    later = {**arrival, "target": "mail", "receipt": "accepted by mail.example"}
    lines = LinesOf()({**start, "trigger": "cron"}, RUN_FINISHED, arrival, later)
    assert lines[0] == "» daily started" and lines[2] == "→ daily → mail"


def test_the_line_of_a_run_without_a_delivery_is_written_after_a_while() -> None:
    class WatchedStream(Utf8Stream):
        write_event = threading.Event()

        def flush(self) -> None:
            self.write_event.set()

    stream = WatchedStream()
    console = EventConsole(stream, Secrets(), colour=False, delivery_wait=0.01)
    console.begin()
    console.write({"at": "2026-11-22T13:06:00.000Z", "level": "info", **RUN_FINISHED})
    assert stream.write_event.wait(60)
    assert stream.getvalue().endswith(" ✓ daily\n")
    console.close()
    assert stream.getvalue().count("daily") == 1


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({**RUN_FINISHED, "silent": True}, "✓ daily, nothing to report"),
        (
            {**RUN_FINISHED, "status": "failed", "detail": "no connection"},
            "✗ daily failed: no connection; .venv/bin/agentctl inspect SVBR6E8F",
        ),
        ({**RUN_FINISHED, "status": "skipped", "detail": "gate"}, "- daily skipped: gate"),
        (
            {"event": "run.waiting", "routine": "daily", "run": RUN, "tools": "shell"},
            "⏸ daily waits for your word on shell: .venv/bin/agentctl approvals",
        ),
        (
            {"event": "approval.reminded", "routine": "daily", "run": RUN, "tool": "sh",
             "until": "2026-11-23T08:00:00+00:00"},
            "⏸ daily still waits for your word on sh, until 08:00:00: .venv/bin/agentctl approvals",
        ),
        (
            {"event": "approval.expired", "routine": "daily", "run": RUN, "tool": "shell"},
            "! daily: nobody allowed shell in time; it goes on without",
        ),
        (
            {"event": "delivery.left_out", "level": "warning", "routine": "daily",
             "target": "desktop", "run": RUN, "reason": "no desktop"},
            "- daily not delivered to desktop, now or later: no desktop",
        ),
        (
            {"event": "delivery.failed", "level": "error", "routine": "daily", "target": "mail",
             "run": RUN, "error": "550 no such user"},
            "✗ daily not delivered to mail: 550 no such user",
        ),
        (
            {"event": "definitions.reloaded", "added": ["a", "b"], "changed": [], "removed": ["c"]},
            "✓ files read again: added a, b; removed c",
        ),
        (
            {"event": "definitions.reloaded", "added": [], "changed": [], "removed": [],
             "files": ["policy.toml", "the key of [providers.claude]"]},
            "✓ files read again: policy.toml, the key of [providers.claude] in force",
        ),
        (
            {"event": "slot.missed", "level": "warning", "routine": "daily", "reason": "down",
             "first": "2026-11-21T08:00:00+00:00", "last": "2026-11-22T08:00:00+00:00", "count": 2},
            "! daily missed 2 starts, the last on Sun",
        ),
        (
            {"event": "cluster.listen_failed", "level": "warning", "problem": "no\nroute"},
            "! cluster listen failed: no route",
        ),
        (
            {"event": "run.crashed", "level": "error", "routine": "daily", "exception": "Traceb"},
            "✗ daily: run crashed; .venv/bin/agentctl logs has the traceback",
        ),
        (
            {"event": "library.logged", "level": "warning", "logger": "asyncio", "message": "slow"},
            "! asyncio: slow",
        ),
        ({"event": "daemon.stopping", "runs": 0}, "- stopping"),
        (
            {
                "event": "database.upgraded", "was": 16, "schema": 30, "database": "s/agentd.db",
                "copy": "s/agentd.db.before-upgrade-016",
            },
            (
                "- the database is upgraded from schema 16 to 30; a copy of before is "
                "s/agentd.db.before-upgrade-016"
            ),
        ),
    ],
)  # fmt: skip
def test_events_that_concern_a_person_are_one_sentence(record: dict[str, Any], line: str) -> None:
    assert " ".join(text.strip() for text in LinesOf()(record)).startswith(line)


def test_the_last_line_of_a_daemon_that_was_stopped_says_so() -> None:
    lines = LinesOf()
    assert lines({"event": "daemon.stopping", "runs": 0}) == ["- stopping", "- stopped"]
    assert lines() == ["- stopping", "- stopped"]
    assert LinesOf()({"event": "engine.started"}) == [], "it did not come to a stop"


@pytest.mark.parametrize("event", ["engine.started", "sandbox.chosen", "executor.draining"])
def test_other_infos_have_no_line(event: str) -> None:
    assert LinesOf()({"event": event, "routine": "daily", "detail": "x"}) == []


def test_findings_of_the_doctor_are_lines_only_where_something_does_not_work() -> None:
    warning = {"event": "doctor.found", "state": "warn", "check": "linger", "found": "off"}
    failure = {"event": "doctor.found", "level": "warning", "state": "fail", "check": "FTS5",
               "found": "missing", "fix": "use another Python"}  # fmt: skip
    survey = {"event": "doctor.looked", "checks": 24}
    assert LinesOf()(warning, failure, survey) == [
        "✗ FTS5: missing; use another Python",
        "- .venv/bin/agentctl doctor has notes on this installation",
    ]
    assert LinesOf()(survey) == []


def test_lines_wait_for_the_banner_which_lists_invalid_routines_itself() -> None:
    stream = Utf8Stream()
    console = EventConsole(stream, Secrets(), colour=False)
    at = "2026-11-22T13:06:00.000Z"
    console.write({"at": at, "level": "warning", "event": "routine.invalid", "fault": "x.toml: no"})
    console.write({"at": at, "level": "warning", "event": "skill.invalid", "fault": "s.md: no"})
    assert stream.getvalue() == ""
    console.write({"at": at, "level": "error", "event": "database.away", "problem": "refused"})
    assert "database away: refused" in stream.getvalue()
    console.begin()
    assert "skill invalid: s.md: no" in stream.getvalue() and "x.toml" not in stream.getvalue()
    console.write({"at": at, "level": "warning", "event": "routine.invalid", "fault": "y.toml: no"})
    assert "✗ y.toml: no" in stream.getvalue()


def test_outside_of_utf_8_signs_are_ascii() -> None:
    arrival = {"event": "delivery.arrived", "routine": "daily", "run": RUN, "target": "file",
               "receipt": "/elsewhere/a.md"}  # fmt: skip
    lines = LinesOf(AsciiStream())(RUN_FINISHED, arrival)
    assert lines == ["+ daily -> /elsewhere/a.md"]


def test_lines_are_wrapped_at_words_in_80_columns() -> None:
    detail = " ".join(f"word{number}" for number in range(40))
    lines = LinesOf()({**RUN_FINISHED, "status": "failed", "detail": detail})
    assert len(lines) > 3 and all(line.startswith(" " * 11) for line in lines[1:])
    assert max(map(len, lines)) <= 80


def test_secrets_are_redacted_and_control_characters_escaped() -> None:
    evil = "key canary-7f3a91c2 \x1b]0;owned\x07 \u202e"
    (line,) = LinesOf()({"event": "x.failed", "level": "error", "detail": evil})
    assert MARK in line and "canary" not in line and line.isprintable()


@pytest.mark.parametrize(
    "secret", ["correct horse battery staple 9", "two  blanks 7", "tab\tand 8"]
)
@pytest.mark.parametrize("fill", [0, 20, 30, 40])
def test_a_secret_with_blanks_is_redacted_where_its_line_is_wrapped(secret: str, fill: int) -> None:
    failure = {"event": "delivery.failed", "level": "error", "routine": "daily", "target": "mail"}
    report = {"event": "report.written", "routine": "daily", "title": secret, "text": secret}
    failure["error"] = f"{'x' * fill} the server refused {secret}"
    text = " ".join(LinesOf(secret=secret)(failure, report))
    assert text.count(MARK) == 3
    assert not set(secret.split()) & set(text.split())


def test_a_notice_of_no_routine_is_named_by_its_kind() -> None:
    notice = {"run": "", "routine": "", "notice": "incident.recovered", "target": "mail"}
    arrival = {"event": "delivery.arrived", "receipt": "accepted", **notice}
    failure = {"event": "delivery.failed", "level": "error", "error": "no such box", **notice}
    report = {"event": "report.written", "routine": "", "title": "daily works", "text": "Again."}
    assert LinesOf()(arrival, failure, report) == [
        "→ incident recovered → mail",
        "✗ incident recovered not delivered to mail: no such box",
        "→ daily works",
        "Again.",
    ]


records = st.fixed_dictionaries(
    {
        "at": st.just("2026-11-22T13:06:00.000Z"),
        "level": st.sampled_from(["info", "warning", "error"]),
        "event": st.just("x.happened"),
        "routine": st.none() | st.text(),
        "detail": st.none() | st.text(),
        "faults": st.lists(st.text()),
    }
)


@given(records)
def test_whatever_an_event_holds_its_lines_are_printable(record: dict[str, Any]) -> None:
    for line in LinesOf()(record):
        assert line.isprintable()


SPEAK = """
import sys, structlog
from daemon.telemetry.console import EventConsole
from daemon.telemetry.log import configure, wants_colour
from daemon.telemetry.redaction import Secrets
secrets = Secrets()
lines = EventConsole(sys.stderr, secrets, colour=wants_colour(sys.stderr))
configure(level="info", console=True, file=None, secrets=secrets, event_console=lines)
lines.begin()
structlog.get_logger().warning("disk.low", detail=" ".join(["word"] * 30))
"""


@pytest.mark.parametrize(
    ("env", "sign"),
    [
        ({"LC_ALL": "C.UTF-8"}, "\x1b[33m!\x1b[0m"),
        ({"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}, " ! "),
        ({"LC_ALL": "POSIX", "TERM": "dumb", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, " ! "),
    ],
)
def test_on_a_terminal_lines_are_as_wide_as_it_is(env: dict[str, str], sign: str) -> None:
    controller, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        **env,
    }
    child = subprocess.Popen([sys.executable, "-c", SPEAK], stderr=terminal, env=environment)
    os.close(terminal)
    output = b""
    try:
        while data := os.read(controller, 65536):
            output += data
    except OSError:  # EIO: the other side is closed
        pass
    os.close(controller)
    assert child.wait() == 0
    text = output.decode().replace("\r\n", "\n")
    assert sign in text and "disk low: word" in text
    plain = re.sub(r"\x1b\[\d+m", "", text)
    assert len(plain.splitlines()) == 4 and max(map(len, plain.splitlines())) <= 60
