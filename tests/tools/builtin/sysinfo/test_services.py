"""Failed units and errors are read from systemd of any age; an unreadable journal is never a quiet
one.
"""

import json
from datetime import timedelta

import pytest

from daemon.tools.builtin.sysinfo.programs import FactUnavailable
from daemon.tools.builtin.sysinfo.services import (
    group_errors,
    parse_failed_units,
    parse_journal,
    read_errors,
    read_failed_units,
    strip_variable_parts,
)
from tests.tools.builtin.sysinfo.program import NOW, Program


def test_failed_units_are_read_from_json():
    text = (
        '[{"unit":"nginx.service","load":"loaded","active":"failed","sub":"failed","description":"A '  # noqa: E501
        ""
        'web server"}]'
    )
    assert parse_failed_units(text) == [
        {"unit": "nginx.service", "state": "failed", "description": "A web server"}
    ]


def test_failed_units_are_read_from_an_older_systemd():
    text = (
        "nginx.service            loaded failed failed A high performance web server\n"
        "● mnt-nas.mount loaded failed failed /mnt/nas\n"
    )
    assert [(row["unit"], row["description"]) for row in parse_failed_units(text)] == [
        ("nginx.service", "A high performance web server"),
        ("mnt-nas.mount", "/mnt/nas"),
    ]


def test_a_label_that_a_stranger_gave_a_disk_is_not_shown_in_a_failed_unit():
    text = (
        r"run-media-anna-Send\x20the\x20key.mount loaded failed failed /run/media/anna/Send the key"
        "\nmedia-SEND.automount loaded failed failed SEND\n"
        "mediatheque.mount loaded failed failed /mediatheque\n"
        "media-server.service loaded failed failed Films\n"
    )
    assert [(row["unit"], row["description"]) for row in parse_failed_units(text)] == [
        ("run-media-….mount", "a removable disk"),
        ("media-….automount", "a removable disk"),
        ("mediatheque.mount", "/mediatheque"),
        ("media-server.service", "Films"),
    ]


@pytest.mark.parametrize("text", ["", "[]", "\n"])
def test_no_failed_unit_is_no_row(text):
    assert parse_failed_units(text) == []


async def test_without_systemd_no_program_is_run(machine):
    program = Program()
    with pytest.raises(FactUnavailable, match="systemd is not running here"):
        await read_failed_units(machine(), program)
    assert not program.calls


async def test_no_failed_unit_is_reported_in_words(machine):
    assert (
        await read_failed_units(machine(**{"run/systemd/system/x": ""}), Program("[]"))
        == "no unit has failed"
    )


async def test_an_error_of_systemctl_is_quoted(machine):
    with pytest.raises(FactUnavailable, match="Failed to connect to bus: Host is down"):
        await read_failed_units(
            machine(**{"run/systemd/system/x": ""}),
            Program(
                code=1,
                errors="System has not been booted\nFailed to connect to bus: Host is down\n",
            ),
        )


def journal_line(message, *, source="sshd", minutes=10, **fields):
    micros = int((NOW - timedelta(minutes=minutes)).timestamp() * 1e6)
    return json.dumps(
        {"__REALTIME_TIMESTAMP": str(micros), "SYSLOG_IDENTIFIER": source, "MESSAGE": message}
        | fields
    )


def test_errors_of_one_kind_are_counted_and_the_latest_is_shown():
    lines = [
        journal_line("Connection reset by 10.0.0.7 port 51022", minutes=50),
        journal_line("Connection reset by 10.0.0.9 port 40001", minutes=5),
        journal_line("I/O error, dev sda, sector 2048", source="kernel", minutes=7),
    ]
    assert group_errors(parse_journal("\n".join(lines), NOW)) == [
        {
            "count": 2,
            "source": "sshd",
            "message": "Connection reset by 10.0.0.9 port 40001",
            "last": "2026-11-20 08:25 UTC",
        },
        {
            "count": 1,
            "source": "kernel",
            "message": "I/O error, dev sda, sector 2048",
            "last": "2026-11-20 08:23 UTC",
        },
    ]


@pytest.mark.parametrize(
    ("line", "source", "message"),
    [
        (journal_line(list(b"caf\xe9 closed")), "sshd", "caf\ufffd closed"),
        (journal_line(None), "sshd", "(no text)"),
        (journal_line(["twice", "said"]), "sshd", "twice said"),
        (
            journal_line("x", SYSLOG_IDENTIFIER=None, _SYSTEMD_UNIT="cron.service"),
            "cron.service",
            "x",
        ),
        (journal_line("x", SYSLOG_IDENTIFIER=None, _COMM="mydaemon"), "mydaemon", "x"),
        (journal_line("x", SYSLOG_IDENTIFIER=None), "unknown", "x"),
        (journal_line("evil\x1b]0;title\x07"), "sshd", "evil ]0;title"),
    ],
)
def test_any_journald_entry_becomes_one_line(line, source, message):
    [entry] = parse_journal(line, NOW)
    assert (entry.source, entry.message) == (source, message)


def test_a_broken_line_of_the_system_journal_is_skipped():
    text = f"{{not json\n[]\n{{}}\n{journal_line('ok')}\n"
    assert [entry.message for entry in parse_journal(text, NOW)] == ["ok"]


def test_an_entry_may_hold_a_character_that_ends_a_line_for_python():
    line = journal_line("MARK").replace("MARK", "disk\u2028full")
    assert [entry.message for entry in parse_journal(line, NOW)] == ["disk full"]


@pytest.mark.parametrize(
    ("line", "later_line", "is_same"),
    [
        ("pid 4711 died", "pid 12 died", True),
        ("at 0x7ffde3a0", "at 0x55d01c22", True),
        (
            "unit 3f2a91bc-77aa-4e21-9f4e-0c0011223344 gone",
            "unit 11111111-2222-3333-4444-555555555555 gone",
            True,
        ),
        ("disk sda failed", "disk sdb failed", False),
        ("decade", "facade", False),
    ],
)
def test_errors_differing_only_in_numbers_are_of_one_kind(line, later_line, is_same):
    assert (strip_variable_parts(line) == strip_variable_parts(later_line)) is is_same


def test_many_kinds_of_errors_end_in_one_row():
    words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(40)]
    rows = group_errors(
        parse_journal("\n".join(journal_line(f"kind {word}") for word in words), NOW)
    )
    assert (len(rows), rows[-1]["source"], rows[-1]["message"], rows[-1]["count"]) == (
        21,
        "others",
        "20 more kinds",
        20,
    )


async def test_the_system_journal_is_read_for_one_day_and_up_to_a_limit(machine):
    files = machine(**{"var/log/journal/1/system.journal": ""})
    program = Program(journal_line("boom"))
    assert (await read_errors(files, program, NOW))[0]["message"] == "boom"
    assert f"--since=@{int((NOW - timedelta(days=1)).timestamp())}" in program.calls[0]
    assert "--lines=2000" in program.calls[0]


async def test_no_errors_is_reported_in_words(machine):
    assert await read_errors(
        machine(**{"var/log/journal/1/system.journal": ""}), Program(), NOW
    ) == ("none in the last 24 hours")


async def test_an_unreadable_system_journal_is_reported(machine):
    files = machine(**{"var/log/journal/1/system.journal": "", "run/systemd/system/x": ""})
    with pytest.raises(FactUnavailable, match="group systemd-journal"):
        await read_errors(files, Program(), NOW, readable=lambda path: False)


async def test_a_machine_without_a_system_journal_is_reported(machine):
    with pytest.raises(FactUnavailable, match="no systemd journal here"):
        await read_errors(machine(), Program(), NOW)
