from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.app.commands.logs import LogFilter, Tail, follow, main, parse_since
from daemon.system.watch import DirectoryWatcher
from tests.terminal_stream import Terminal

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def line(number: int, **fields: Any) -> str:
    at = (NOW + timedelta(minutes=number)).isoformat()
    return json.dumps(
        {
            "at": at,
            "level": "info",
            "event": f"e{number}",
            "routine": "daily",
            "run": "01ABCDEF",
            **fields,
        }
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "agentd.jsonl"
    path.with_name("agentd.jsonl.2").write_text(line(0) + "\n")
    path.with_name("agentd.jsonl.1").write_text(
        "\n".join([line(1), line(2, routine="other")]) + "\n"
    )
    path.write_text(
        "\n".join([line(3, level="warning"), "not json", line(4, run="01GHIJKL"), "[]"]) + "\n"
    )
    return path


def event_names(log: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main([*words, "--json"], log) == 0
    return [json.loads(line)["event"] for line in capsys.readouterr().out.split("\n") if line]


@pytest.mark.parametrize(
    ("words", "events"),
    [
        ([], ["e0", "e1", "e2", "e3", "e4"]),
        (["-n", "2"], ["e3", "e4"]),
        (["--routine", "other"], ["e2"]),
        (["--routine", "dail"], []),
        (["--level", "warning"], ["e3"]),
        (["--run", "01GHIJKL"], ["e4"]),
        (["--run", "GHIJKL"], ["e4"]),
        (["--since", "2026-11-20T09:02:00+00:00"], ["e2", "e3", "e4"]),
        (["--since", "2026-11-20T09:01+00:00", "-n", "1", "--routine", "daily"], ["e4"]),
    ],
)
def test_logs_are_filtered_across_rotated_files_and_invalid_lines(
    log: Path, capsys: pytest.CaptureFixture[str], words: list[str], events: list[str]
) -> None:
    assert event_names(log, capsys, *words) == events


def test_a_line_separator_within_a_record_does_not_hide_it(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {**json.loads(line(5)), "detail": "one\u2028two\x85"}
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
    assert event_names(log, capsys, "-n", "1") == ["e5"]


def test_logs_are_readable_and_without_colour_in_a_pipe(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-n", "1"], log) == 0
    text = capsys.readouterr().out
    assert "info     e4 routine=daily run=01GHIJKL" in text
    assert "\x1b" not in text


RUN = {"routine": "daily", "run": "01M875QEXRB081E7T7SVBR6E8F"}


def short_line(monkeypatch, path: Path, *words: str) -> tuple[int, str]:
    """Return what `agentctl logs` shows at a terminal."""
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("NO_COLOR", "1")
    return main([*words], path), stream.getvalue()


def test_a_terminal_gets_the_short_lines_of_the_daemon_below_their_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reloaded = {"added": [], "changed": [], "removed": [], "routine": None, "run": None}
    path = tmp_path / "logs" / "agentd.jsonl"
    path.parent.mkdir()
    receipt = str(tmp_path / "workspace/r.md")
    path.write_text(
        "\n".join(
            [
                line(0, event="run.started", trigger="cron", attempt=1, **RUN),
                line(1, event="run.finished", status="succeeded", **RUN),
                line(1, event="delivery.arrived", target="file", receipt=receipt, **RUN),
                line(2, event="engine.reloaded", **reloaded),
                line(3, event="run.finished", status="succeeded", **RUN),
                line(24 * 60, event="run.finished", status="failed", detail="no key", **RUN),
                line(24 * 60 + 1, event="run.started", odd="of another version", **RUN),
            ]
        )
        + "\n"
    )
    code, text = short_line(monkeypatch, path)
    day, next_day = (f"{(NOW + timedelta(days=days)).astimezone():%A %d %B %Y}" for days in (0, 1))
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", text) for text in text.splitlines()]
    assert code == 0 and lines[:4] == [
        day,
        "» daily started",
        "✓ daily 1 min → r.md",
        "✓ daily",
    ]
    assert lines[4] == next_day and lines[5].startswith("✗ daily failed: no key; ")
    assert "of another version" in text and "reloaded" not in text
    assert short_line(monkeypatch, path, "-n", "3")[1].count("daily") == 3
    long_text = short_line(monkeypatch, path, "--long")[1]
    assert "engine.reloaded" in long_text and "2026" in long_text
    assert short_line(monkeypatch, path, "--level", "critical")[1] == ""
    assert "--long shows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1h", NOW - timedelta(hours=1)),
        ("2d12h", NOW - timedelta(days=2, hours=12)),
        ("1h30m15s", NOW - timedelta(hours=1, minutes=30, seconds=15)),
        ("20 minutes", NOW - timedelta(minutes=20)),
        ("1 week", NOW - timedelta(weeks=1)),
        ("2026-11-20T08:30:00+00:00", NOW - timedelta(minutes=30)),
        ("yesterday", datetime(2026, 11, 19).astimezone()),
        ("yesterday 09:00", datetime(2026, 11, 19, 9).astimezone()),
    ],
)
def test_since_accepts_a_duration_or_a_date(text: str, moment: datetime) -> None:
    assert parse_since(text, NOW) == moment


def test_since_a_moment_to_come_is_refused() -> None:
    with pytest.raises(ValueError, match="'tomorrow' has yet to come"):
        parse_since("tomorrow", NOW)


@pytest.mark.parametrize("text", ["", "soon", "1x", "2026-13-01"])
def test_an_invalid_since_is_refused(
    text: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"is no moment.* or a length of time such as 1h"):
        parse_since(text, NOW)
    if text:
        assert main(["--since", text], log) == 2
        assert "agentctl: --since: " in capsys.readouterr().err


def test_a_missing_log_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], tmp_path / "none.jsonl") == 4
    assert "has agentd run here?" in capsys.readouterr().err


class Listener:
    """Follows a log and queues the lines that are shown."""

    def __init__(
        self, path: Path, log_filter: LogFilter, number: int | None = 10, **options: Any
    ) -> None:
        self.output_lines: asyncio.Queue[str] = asyncio.Queue()
        self.task = asyncio.create_task(follow(path, log_filter, number, self._show, **options))

    def _show(self, _line: str, record: dict[str, Any]) -> None:
        self.output_lines.put_nowait(record["event"])

    async def next(self, count: int) -> list[str]:
        return [await self.output_lines.get() for _ in range(count)]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        assert self.output_lines.empty()


async def test_following_shows_the_last_lines_and_then_each_new_one_once(log: Path) -> None:
    listener = Listener(log, LogFilter(), 2)
    assert await listener.next(2) == ["e3", "e4"]
    with log.open("a") as file:
        file.write(line(5) + "\n" + line(6)[:20])
        file.flush()
        assert await listener.next(1) == ["e5"]
        file.write(line(6)[20:] + "\n")
        file.flush()
        assert await listener.next(1) == ["e6"]
    await listener.stop()


async def test_following_goes_on_over_a_rotation(log: Path) -> None:
    listener = Listener(log, LogFilter(), 1)
    assert await listener.next(1) == ["e4"]
    with log.open("a") as file:
        file.write(line(5) + "\n")
    log.rename(log.with_name("agentd.jsonl.1"))
    log.write_text(line(6) + "\n")
    assert await listener.next(2) == ["e5", "e6"]
    with log.open("a") as file:
        file.write(line(7) + "\n")
    assert await listener.next(1) == ["e7"]
    await listener.stop()


async def test_following_may_begin_before_there_is_a_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "agentd.jsonl"
    listener = Listener(log, LogFilter(routine="daily"))
    while not log.parent.exists():
        await asyncio.sleep(0)
    log.write_text(line(1, routine="other") + "\n" + line(2) + "\n")
    assert await listener.next(1) == ["e2"]
    await listener.stop()


async def test_five_hundred_follow_by_one_watcher(log: Path) -> None:
    watcher = DirectoryWatcher(wake_every=0.05)
    listeners = [Listener(log, LogFilter(), 1, directory_watcher=watcher) for _ in range(500)]
    for listener in listeners:
        assert await listener.next(1) == ["e4"]
    with log.open("a") as file:
        file.write(line(5) + "\n")
    for listener in listeners:
        assert await listener.next(1) == ["e5"]
    for listener in listeners:
        await listener.stop()
    assert watcher._task is None


def test_a_tail_of_a_file_that_is_gone_reads_nothing(tmp_path: Path) -> None:
    log = tmp_path / "agentd.jsonl"
    log.write_text("one\n")
    tail = Tail(log)
    assert tail.read_new_lines() == ["one"]
    log.unlink()
    assert tail.read_new_lines() == []
    log.write_text("two\n")
    assert tail.read_new_lines() == ["two"]
    tail.close()
