"""Log lines in the native protocol of journald."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.telemetry.journald import JournalSocket, encode_fields, fields_of, is_journal_stream
from daemon.telemetry.redaction import MARK, Secrets
from tests.properties import scaled_settings


class Journal:
    """What systemd-journald is to a program that logs."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(20)
        self.by_file = 0

    def read(self) -> dict[str, str]:
        """Return the next entry, whichever way it came."""
        data, ancillary, _, _ = self.socket.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        for _level, kind, raw in ancillary:
            assert kind == socket.SCM_RIGHTS and data == b""
            (file,) = array.array("i", raw)
            seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
            assert fcntl.fcntl(file, fcntl.F_GET_SEALS) == seals, (
                "journald refuses what could change under it"
            )
            data = os.pread(file, os.fstat(file).st_size, 0)
            os.close(file)
            self.by_file += 1
        return unpack(data)


def unpack(data: bytes) -> dict[str, str]:
    """Read fields as the protocol has them: `NAME=value`, or the name, a length and the value."""
    fields = {}
    while data:
        line, _, rest_of_data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if equals:
            data = rest_of_data
        else:
            (length,) = struct.unpack("<Q", rest_of_data[:8])
            value, data = rest_of_data[8 : 8 + length], rest_of_data[8 + length :]
            assert data[:1] == b"\n"
            data = data[1:]
        assert name.isascii() and name == name.upper() and not name.startswith(b"_")
        fields[name.decode()] = value.decode()
    return fields


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    new_journal = Journal(tmp_path / "socket")
    yield new_journal
    new_journal.socket.close()


# Runs with stderr connected to a socket, as systemd connects it, and logs.
SCRIPT = """
import os, sys, structlog
from pathlib import Path
from daemon.telemetry.log import configure
from daemon.telemetry.redaction import Secrets
secrets = Secrets()
secrets.add("canary-7f3a91c2")
about = os.fstat(2)
env = {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"} if sys.argv[2] == "yes" else {"JOURNAL_STREAM": "1:2"}
configure(level="info", console=True, file=None, secrets=secrets, env=env, journal=sys.argv[1])
log = structlog.get_logger()
with structlog.contextvars.bound_contextvars(run="01J", routine="daily-report", slot="2026-11-20T08:30"):
    log.warning("run.retry_scheduled", detail="canary-7f3a91c2 said no", seconds=1.5, where=["a", "b"], **{"odd key!": 1})
try:
    1 / 0
except ZeroDivisionError:
    log.exception("run.crashed", none=None)
log.info("big", text="x" * 3_000_000)
"""  # noqa: E501


def stderr_of_script(journal: str, is_journal_stream: str) -> str:
    """Run the script with a pipe for stderr and return what came through it."""
    command = [sys.executable, "-c", SCRIPT, journal, is_journal_stream]
    process = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stderr


def test_a_log_line_is_a_journald_entry_with_fields(journal: Journal) -> None:
    assert stderr_of_script(journal.path, "yes") == "", "stderr would give every line a second time"
    first, second, third = (journal.read() for _ in range(3))
    assert first["MESSAGE"].startswith("run.retry_scheduled routine=daily-report run=01J")
    fields = {
        "PRIORITY": "4", "SYSLOG_IDENTIFIER": "agentd", "AGENTD_EVENT": "run.retry_scheduled", (
            "AGENTD_RUN"
        ): (
            "01J"
        ),
        "AGENTD_ROUTINE": "daily-report", "AGENTD_SLOT": "2026-11-20T08:30", "AGENTD_SECONDS": (
            "1.5"
        ),
        "AGENTD_WHERE": '["a", "b"]', "AGENTD_ODD_KEY_": "1", "AGENTD_DETAIL": f"{MARK} said no",
    }  # fmt: skip
    assert fields.items() <= first.items()
    assert (
        "\nZeroDivisionError: division by zero" in second["MESSAGE"] and second["PRIORITY"] == "3"
    )
    assert "AGENTD_NONE" not in second
    assert len(third["AGENTD_TEXT"]) == 3_000_000 and journal.by_file == 1, (
        "what is too large comes as a file"
    )


def test_a_terminal_or_pipe_gets_ordinary_log_lines(journal: Journal) -> None:
    assert "run.retry_scheduled" in stderr_of_script(journal.path, "no")


def test_without_a_journal_behind_the_socket_lines_go_to_stderr(tmp_path: Path) -> None:
    text = stderr_of_script(str(tmp_path / "nobody"), "yes")
    assert "run.retry_scheduled" in text and "canary" not in text


def test_stuck_journal_blocks_no_caller(journal: Journal) -> None:
    way = JournalSocket(journal.path)
    count = 0
    while way.send({"level": "info", "event": "tick"}, "tick"):
        count += 1
        assert count < 100_000
    assert not way.send({"level": "info", "event": "tick"}, "tick")
    for _ in range(count):
        assert journal.read()["MESSAGE"] == "tick"
    assert way.send({"level": "info", "event": "tock"}, "tock"), "and it goes on once there is room"
    assert journal.read()["MESSAGE"] == "tock"
    way.close()


@pytest.mark.parametrize("journal_stream", [None, "", "1", "1:2", "a:b", "1:2:3", ":"])
def test_only_the_stream_named_by_systemd_is_journald(
    journal_stream: str | None, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w") as stream:
        assert not is_journal_stream(
            stream, {} if journal_stream is None else {"JOURNAL_STREAM": journal_stream}
        )
        about = os.fstat(stream.fileno())
        assert is_journal_stream(stream, {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"})


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


@given(
    message=TEXTS,
    values=st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.lists(TEXTS)), max_size=5),
)
@scaled_settings()
def test_any_log_record_round_trips_through_journald(
    message: str, values: dict[str, object]
) -> None:
    fields = fields_of({"level": "info", **values}, message)
    assert unpack(encode_fields(fields)) == fields
    assert all(len(name) <= 64 for name in fields)


def test_secrets_are_redacted_in_journald_entries(journal: Journal) -> None:
    secrets = Secrets()
    secrets.add("canary-7f3a91c2")
    way = JournalSocket(journal.path, redact=secrets.redact)
    assert way.send({"level": "info", "detail": "canary-7f3a91c2"}, "canary-7f3a91c2")
    assert "canary" not in str(journal.read())
    way.close()
