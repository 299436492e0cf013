from __future__ import annotations

import json
import logging
import os
import pty
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from daemon.errors import ConfigError
from daemon.telemetry.log import BURST, _LibraryHandler, configure, format_line, is_level_enabled
from daemon.telemetry.redaction import MARK, Secrets

CANARY = "canary-7f3a91c2"


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Leave no handler and no configuration to the next test."""
    yield
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _LibraryHandler)]:
        root.removeHandler(handler)
        handler.output.close()


@pytest.fixture
def secrets() -> Secrets:
    known_secrets = Secrets()
    known_secrets.add(CANARY)
    return known_secrets


@pytest.fixture
def file(tmp_path: Path, secrets: Secrets) -> Path:
    path = tmp_path / "logs" / "agentd.jsonl"
    configure(level="info", console=False, file=path, secrets=secrets)
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_one_json_line_that_begins_with_time_level_and_name(file: Path) -> None:
    structlog.get_logger().info("run.finished", seconds=1.5, status="succeeded")
    (record,) = records(file)
    assert list(record) == ["at", "level", "event", "seconds", "status"]
    assert (record["level"], record["event"], record["seconds"]) == ("info", "run.finished", 1.5)
    assert record["at"].endswith("Z")


def test_bound_context_is_on_every_line(file: Path) -> None:
    with structlog.contextvars.bound_contextvars(run="R1", routine="daily"):
        structlog.get_logger().info("tool.finished", ok=True)
    structlog.get_logger().info("daemon.stopping")
    inside, outside = records(file)
    assert list(inside.items())[2:] == [
        ("event", "tool.finished"), ("routine", "daily"), ("run", "R1"), ("ok", True)
    ]  # fmt: skip
    assert "run" not in outside


def test_the_log_level_applies_and_may_change_at_a_reload(file: Path, secrets: Secrets) -> None:
    log = structlog.get_logger()
    log.debug("not.wanted")
    configure(level="debug", console=False, file=file, secrets=secrets)
    log.debug("now.wanted")
    configure(level="error", console=False, file=file, secrets=secrets)
    log.warning("not.wanted")
    assert [record["event"] for record in records(file)] == ["now.wanted"]
    with pytest.raises(ValueError, match="'loud' is none of debug, info"):
        configure(level="loud", console=False, file=None, secrets=secrets)


def test_no_secret_reaches_the_log_file(file: Path) -> None:
    log = structlog.get_logger()
    log.info("said", text=f"key {CANARY}", nested={"deep": [CANARY]}, **{CANARY: 1})
    log.info(CANARY, path=Path("/x") / CANARY)
    try:
        raise ValueError(CANARY)
    except ValueError:
        log.exception("failed")
    logging.getLogger("httpx").warning("GET https://x/?key=%s", CANARY)
    assert CANARY not in file.read_text()
    assert len(records(file)) == 4
    assert file.read_text().count(MARK) >= 6


def test_a_traceback_is_a_field_of_its_line(file: Path) -> None:
    try:
        raise ValueError("boom")
    except ValueError as error:
        structlog.get_logger().exception("run.crashed", run="R1")
        structlog.get_logger().error("run.crashed", exc_info=error)
    first, second = records(file)
    assert first["level"] == "error"
    assert first["exception"].endswith("ValueError: boom")
    assert second["exception"].startswith("Traceback")


def test_library_records_are_logged_from_warning_up(file: Path) -> None:
    logging.getLogger("apscheduler").info("chatter")
    logging.getLogger("apscheduler").warning("job %s missed", "x")
    (record,) = records(file)
    assert (record["event"], record["logger"], record["message"]) == (
        "library.logged",
        "apscheduler",
        "job x missed",
    )


def test_a_library_that_logs_arguments_that_do_not_fit_goes_on_and_is_logged(file: Path) -> None:
    fields = {"name": "apscheduler", "levelno": logging.WARNING, "levelname": "WARNING"}
    record = logging.makeLogRecord({**fields, "msg": "%d jobs missed", "args": ("x",)})
    # not by a logger: pytest's own handler of it raises
    (handler,) = [
        each for each in logging.getLogger().handlers if isinstance(each, _LibraryHandler)
    ]
    handler.handle(record)
    (line,) = records(file)
    assert (line["level"], line["message"]) == ("warning", "%d jobs missed")


class HandMovedClock:
    """Seconds that pass when the test says so."""

    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(file: Path, secrets: Secrets) -> HandMovedClock:
    """The clock by which repeated lines are counted into `file`."""
    clock = HandMovedClock()
    configure(level="info", console=False, file=file, secrets=secrets, monotonic=clock)
    return clock


def fail(message: str, *arguments: object) -> None:
    """Log an error of a library with its traceback, always from this place."""
    try:
        raise OSError(24, "Too many open files")
    except OSError:
        logging.getLogger("asyncio").exception(message, *arguments)


def test_repeated_library_lines_are_written_once_a_minute_with_a_count(
    file: Path, clock: HandMovedClock
) -> None:
    for number in range(1000):
        fail(f"socket.accept() out of system resource\nsocket: <TransportSocket fd={number}>")
    clock.seconds += 59
    structlog.get_logger().info("tick")
    first, tick = records(file)
    assert first["message"].endswith("fd=0>") and first["exception"].endswith(
        "[Errno 24] Too many open files"
    )
    assert "repeated" not in first and "counted" not in first and tick["event"] == "tick"
    clock.seconds += 2
    structlog.get_logger().info("tick")
    _, _, again, _ = records(file)
    assert (again["event"], again["repeated"], again["message"][-7:]) == (
        "library.logged",
        999,
        "fd=999>",
    )
    fail("socket.accept() out of system resource\nsocket: <TransportSocket fd=1>")
    assert len(records(file)) == 4, "a line with a count begins a minute, too"
    clock.seconds += 61
    structlog.get_logger().info("tick")
    assert [record.get("repeated") for record in records(file)[4:]] == [1, None]
    clock.seconds += 61
    fail("socket.accept() out of system resource")
    assert "repeated" not in records(file)[-1], (
        "what has stopped for a minute and comes again is new"
    )


def test_counted_lines_are_written_at_the_end_of_the_process(
    file: Path, clock: HandMovedClock
) -> None:
    for _ in range(3):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.shutdown()
    assert [record.get("repeated") for record in records(file)] == [None, 2]
    logging.shutdown()
    assert len(records(file)) == 2


def test_different_lines_of_libraries_are_all_written(file: Path, clock: HandMovedClock) -> None:
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).warning("first")
        logging.getLogger(name).warning("second")
        logging.getLogger(name).error("second")
    for text in ("1", "x"):
        try:
            int(text) / 0
        except (ValueError, ZeroDivisionError):
            logging.getLogger("asyncio").exception("second")
    assert len(records(file)) == 8


def test_many_kinds_of_library_lines_are_counted_together(
    file: Path, clock: HandMovedClock
) -> None:
    for number in range(1000):
        letters = f"{number:09b}".translate({48: "a", 49: "b"})
        logging.getLogger("asyncio").warning(letters)
    assert len(records(file)) <= 501
    clock.seconds += 61
    structlog.get_logger().info("tick")
    assert records(file)[-2]["repeated"] == 1000 - (len(records(file)) - 2)


def test_own_log_lines_are_counted_by_the_field_counted(file: Path, clock: HandMovedClock) -> None:
    for _ in range(5):
        for listener in ("a.sock", "b.sock"):
            structlog.get_logger().warning("listener.full", counted=listener, listener=listener)
    assert [record["listener"] for record in records(file)] == ["a.sock", "b.sock"]
    clock.seconds += 61
    structlog.get_logger().info("tick")
    assert [record.get("repeated") for record in records(file)] == [None, None, 4, 4, None]


def test_the_log_file_is_private(file: Path) -> None:
    structlog.get_logger().info("a")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_full_log_file_is_rotated_and_old_files_removed(tmp_path: Path, secrets: Secrets) -> None:
    path = tmp_path / "agentd.jsonl"
    configure(level="info", console=False, file=path, secrets=secrets, max_bytes=400, keep=2)
    for number in range(40):
        structlog.get_logger().info("tick", number=number)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["agentd.jsonl", "agentd.jsonl.1", "agentd.jsonl.2"]
    numbers = [r["number"] for name in reversed(files) for r in records(tmp_path / name)]
    assert numbers == list(range(numbers[0], 40))  # in order, and none lost on the way
    assert all(file.stat().st_size <= 400 for file in tmp_path.iterdir())
    configure(level="info", console=False, file=path, secrets=secrets, max_bytes=100, keep=0)
    structlog.get_logger().info("tick", number=41)
    assert [r["number"] for r in records(path)] == [41]
    assert [file.name for file in tmp_path.iterdir()] == ["agentd.jsonl"]


def test_files_beside_the_log_that_are_not_its_own_keep_no_line_from_it(
    tmp_path: Path, secrets: Secrets
) -> None:
    path, dated = tmp_path / "agentd.jsonl", tmp_path / "agentd.jsonl.20261128"
    dated.write_text("of logrotate")
    for number in (3, 99):  # which cannot be removed as files are
        (tmp_path / f"agentd.jsonl.{number}").mkdir()
    configure(level="info", console=False, file=path, secrets=secrets, max_bytes=400, keep=2)
    for number in range(40):
        structlog.get_logger().info("tick", number=number)
    names = ("agentd.jsonl.2", "agentd.jsonl.1", "agentd.jsonl")
    numbers = [r["number"] for name in names for r in records(tmp_path / name)]
    assert numbers == list(range(numbers[0], 40))
    assert dated.read_text() == "of logrotate"


def test_a_removed_log_file_is_created_again(file: Path) -> None:
    structlog.get_logger().info("first")
    file.unlink()
    structlog.get_logger().info("second")
    assert [record["event"] for record in records(file)] == ["second"]


def test_lines_lost_on_a_full_disk_are_reported_afterwards(
    tmp_path: Path, secrets: Secrets
) -> None:
    path = tmp_path / "agentd.jsonl"
    configure(level="info", console=False, file=path, secrets=secrets)
    path.unlink()
    path.mkdir()  # stands for a disk that refuses: opening fails as writing would
    log = structlog.get_logger()
    log.info("lost")
    log.info("lost")
    path.rmdir()
    log.info("kept")
    gap, repetition = records(path)
    assert (gap["event"], gap["lines"]) == ("log.lines_lost", 2)
    assert repetition["event"] == "kept"


def test_a_line_of_which_the_disk_took_the_beginning_spoils_no_other(
    tmp_path: Path, secrets: Secrets
) -> None:
    path = tmp_path / "agentd.jsonl"
    room = 200_000  # more than any other file of this process has while the limit holds
    filling = json.dumps({"event": "x" * room})[:room]
    path.write_text(f'{{"event": "before"}}\n{filling}')  # the last line was cut
    configure(level="info", console=False, file=path, secrets=secrets)
    log, limits = structlog.get_logger(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
    try:
        log.info("cut")
        log.info("lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.info("kept")
    first, cut, cut_too, gap, kept = path.read_text().splitlines()
    assert json.loads(first)["event"] == "before"
    assert (cut, '"cut"' in cut_too) == (filling, False)
    assert (json.loads(gap)["lines"], json.loads(kept)["event"]) == (2, "kept")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full (Linux)")
def test_full_disk_raises_nothing_in_the_caller(secrets: Secrets) -> None:
    configure(level="info", console=False, file=Path("/dev/full"), secrets=secrets)
    structlog.get_logger().info("lost")


def test_an_unwritable_log_file_is_reported_in_one_line(tmp_path: Path, secrets: Secrets) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"file/agentd.jsonl: the log cannot be written there: Not a directory"
    ):
        configure(
            level="info", console=False, file=tmp_path / "file" / "agentd.jsonl", secrets=secrets
        )


def test_enabled_level_is_known_before_logging(tmp_path: Path, secrets: Secrets) -> None:
    for level, is_enabled in (
        ("debug", [True, True]),
        ("info", [False, True]),
        ("error", [False, False]),
    ):
        configure(level=level, console=False, file=tmp_path / "log.jsonl", secrets=secrets)
        assert [is_level_enabled(logging.DEBUG), is_level_enabled(logging.INFO)] == is_enabled
    for logger_class in (structlog.stdlib.BoundLogger, structlog.BoundLogger):
        structlog.configure(wrapper_class=logger_class)
        assert is_level_enabled(logging.DEBUG), "a logger of another kind decides for itself"


def test_log_lines_of_threads_do_not_mix(tmp_path: Path, secrets: Secrets) -> None:
    path = tmp_path / "agentd.jsonl"
    configure(level="info", console=False, file=path, secrets=secrets, max_bytes=2_000, keep=200)

    def speak(speaker: int) -> None:
        for number in range(100):
            structlog.get_logger().info("tick", who=speaker, number=number)

    threads = [threading.Thread(target=speak, args=(speaker,)) for speaker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(records(file)) for file in tmp_path.iterdir()) == 400


def test_console_lines_have_local_time_and_unquoted_words() -> None:
    record = {
        "at": "2026-11-20T08:30:00.000Z",
        "level": "info",
        "event": "run.finished",
        "run": "R1",
        "detail": "a b",
        "x": None,
    }
    line = format_line(record, colour=False)
    assert line.endswith('info     run.finished run=R1 detail="a b"')
    assert "\x1b" not in line
    assert "\x1b[1mrun.finished\x1b[0m" in format_line(record, colour=True)
    assert format_line({}, colour=False).strip() == "info"


def test_escape_sequences_in_a_log_record_are_escaped() -> None:
    evil = "\x1b]0;owned\x07\x9b2J\u202e"
    line = format_line({"event": evil, "text": evil, "exception": f"a\n\t{evil}"}, colour=False)
    assert "\n\t" in line
    assert all(char.isprintable() or char in "\n\t" for char in line)


SPEAK = """
import structlog
from daemon.telemetry.log import BURST, configure
from daemon.telemetry.redaction import Secrets
secrets = Secrets(); secrets.add("canary-7f3a91c2")
configure(level="info", console=True, file=None, secrets=secrets)
structlog.get_logger().warning("disk.low", key="canary-7f3a91c2")
"""


def on_terminal(code: str, **env: str) -> str:
    """Run a program with its stderr on a real terminal, and return what appeared there."""
    controller, terminal = pty.openpty()
    environment = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        **env,
    }
    child = subprocess.Popen([sys.executable, "-c", code], stderr=terminal, env=environment)
    os.close(terminal)
    output = b""
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:  # EIO: the other side is closed
            break
        if not data:
            break
        output += data
    os.close(controller)
    assert child.wait() == 0
    return output.decode()


def test_the_console_is_coloured_on_a_terminal() -> None:
    assert "\x1b[33mwarning" in on_terminal(SPEAK)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_the_console_is_plain_if_colour_is_disabled(env: dict[str, str]) -> None:
    text = on_terminal(SPEAK, **env)
    assert "disk.low" in text
    assert "\x1b" not in text
    assert CANARY not in text


def test_the_console_is_plain_in_a_pipe() -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    output = subprocess.run(
        [sys.executable, "-c", SPEAK], capture_output=True, check=True, env=environment
    )
    assert b"\x1b" not in output.stderr
    assert f"disk.low key={MARK}".encode() in output.stderr
    assert output.stdout == b""


def test_closed_console_raises_nothing_in_the_caller(tmp_path: Path) -> None:
    code = SPEAK.replace("file=None", f"file=Path({str(tmp_path / 'a.jsonl')!r})").replace(
        "structlog.get", "import os; os.close(2); structlog.get"
    )
    code += "os._exit(0)  # Python itself would complain about the terminal that is gone"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(
        [sys.executable, "-c", "from pathlib import Path\n" + code], check=True, env=environment
    )
    assert len(records(tmp_path / "a.jsonl")) == 1


def break_down(routine: str) -> None:
    """Log a warning of our own and an error with its traceback, always from this place."""
    structlog.get_logger().warning("rule.odd", routine=routine)
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        structlog.get_logger().exception("queue.failed", routine=routine)


@pytest.mark.slow
def test_own_faults_that_repeat_themselves_are_counted_after_a_burst(
    file: Path, clock: HandMovedClock
) -> None:
    for _ in range(5000):
        break_down("mail")
    break_down("other")
    lines = records(file)
    assert len([line for line in lines if line["routine"] == "mail"]) == 2 * (BURST + 1)
    assert len([line for line in lines if line["routine"] == "other"]) == 2
    for _ in range(60):  # an hour
        clock.seconds += 61
        for _ in range(100):
            break_down("mail")
    assert len(records(file)) < len(lines) + 2 * 61, "a fault that goes on is two lines a minute"
    repeat_count = sum(
        line.get("repeated", 0) for line in records(file) if line["event"] == "rule.odd"
    )
    written_count = sum(
        line["event"] == "rule.odd" and "repeated" not in line for line in records(file)
    )
    assert 0 <= 5000 + 1 + 6000 - repeat_count - written_count <= 100, "each is written or counted"
    clock.seconds += 61
    structlog.get_logger().info("tick")
    clock.seconds += 61
    structlog.get_logger().info("tick")
    before = len(records(file))
    break_down("mail")
    assert len(records(file)) == before + 2, "what has stopped and comes again is new"


def test_ordinary_events_of_a_busy_day_are_all_written(file: Path, clock: HandMovedClock) -> None:
    for number in range(500):
        structlog.get_logger().info("run.finished", routine="mail", run=str(number))
        structlog.get_logger().warning("run.failed", routine=f"r{number}")
    assert len(records(file)) == 1000
