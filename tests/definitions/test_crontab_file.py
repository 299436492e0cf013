"""Crontabs are read as crontab(5) of Debian's cron and of cronie says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.definitions.crontab_file import CrontabFault, parse_crontab
from tests.properties import scaled_settings


def jobs(text, **options):
    return [
        (job.line, job.schedule, job.command, job.stdin)
        for job in parse_crontab(text, **options).jobs
    ]


def problem_of(text, **options):
    crontab = parse_crontab(text, **options)
    assert crontab.jobs == ()
    (fault,) = crontab.faults
    return fault.problem


def test_comments_and_empty_lines_say_nothing():
    assert parse_crontab("# a\n\n  \t# b\n   \n#* * * * * c\n") == parse_crontab("")


@pytest.mark.parametrize(
    ("line", "schedule", "command"),
    [
        ("30 7 * * 1-5 df -h", "30 7 * * 1-5", "df -h"),
        ("\t30\t7  *\t* 1-5\t  df  -h \r", "30 7 * * 1-5", "df  -h"),
        ("*/5 0-23/2 1,15 jan mon,fri a # b", "*/5 0-23/2 1,15 jan mon,fri", "a # b"),
        ("@daily backup", "@daily", "backup"),
        ("@Hourly\tbackup --all", "@Hourly", "backup --all"),
        ("@REBOOT start", "@reboot", "start"),
        ("-*/10 * * * * quiet", "*/10 * * * *", "quiet"),
        ("0 0 * * 7 A=1 job", "0 0 * * 7", "A=1 job"),
    ],
)
def test_a_job_has_a_schedule_and_a_command(line, schedule, command):
    assert jobs(line) == [(1, schedule, command, None)]


def test_a_system_crontab_names_the_user_of_each_job():
    text = "17 * * * * root cd / && run-parts /etc/cron.hourly\n@daily ada backup\n"
    crontab = parse_crontab(text, has_users=True)
    assert [(job.user, job.command) for job in crontab.jobs] == [
        ("root", "cd / && run-parts /etc/cron.hourly"),
        ("ada", "backup"),
    ]
    assert crontab.jobs[1].line == 2


@pytest.mark.parametrize(
    ("command", "words", "stdin"),
    [
        ("mail -s hi ada%Hello,%%bye", "mail -s hi ada", "Hello,\n\nbye\n"),
        (r"date +\%F", "date +%F", None),
        (r"printf '\%s' %a\%b", "printf '%s'", "a%b\n"),
        ("cat%", "cat", "\n"),
    ],
)
def test_a_percent_sign_begins_the_standard_input(command, words, stdin):
    assert jobs(f"@daily {command}") == [(1, "@daily", words, stdin)]


def test_variables_hold_for_the_lines_below_them():
    crontab = parse_crontab(
        "@daily a\nMAILTO = ada@example.org\n@daily b\n"
        "'CRON_TZ'=\"Europe/Berlin\"\nMAILTO=\"\"\nX='a b' \n@daily c\n"
    )
    assert [job.variables for job in crontab.jobs] == [
        {},
        {"MAILTO": "ada@example.org"},
        {"MAILTO": "", "CRON_TZ": "Europe/Berlin", "X": "a b"},
    ]
    assert [(variable.line, variable.name) for variable in crontab.variables] == [
        (2, "MAILTO"),
        (4, "CRON_TZ"),
        (5, "MAILTO"),
        (6, "X"),
    ]


def test_one_quote_alone_is_part_of_a_value():
    (variable,) = parse_crontab("A=it's\n").variables
    assert variable.value == "it's"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("60 * * * * x", "minute '60' "),
        ("* * * * x", "it is neither NAME=value nor a schedule of five fields and a command"),
        ("@daily", "it is neither NAME=value nor a command"),
        ("@fortnightly x", "crontab '@fortnightly' is not a known nickname"),
        ("0 0 31 2 * x", "day of month '31' "),
        ("hello", "it is neither NAME=value nor "),
        ("0~59 3 * * * x", "is drawn by chance"),
    ],
)
def test_a_line_that_cannot_be_read_is_explained(line, problem):
    assert problem in problem_of(line)


def test_a_user_without_a_command_is_no_job():
    assert "command" in problem_of("@daily root", has_users=True)
    assert "command" in problem_of("* * * * * root", has_users=True)


_LINES = st.one_of(
    st.text(max_size=60),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["* * * * *", "@daily", "@reboot", "1-5/2 3 * jan 7", "-0 0 * * *"]),
        st.sampled_from(["root", "x", "", "%", "a=b", "\\%"]),
        st.text(alphabet="ab %\\\"'=#\t", max_size=20),
    ),
    st.builds("{}={}".format, st.sampled_from(["MAILTO", "A", "'x y'"]), st.text(max_size=20)),
)


@scaled_settings(500)
@given(st.lists(_LINES, max_size=8), st.booleans())
def test_each_line_is_one_job_one_variable_one_fault_or_nothing(lines, has_users):
    text = "\n".join(lines)
    crontab = parse_crontab(text, has_users=has_users)
    entries = [*crontab.jobs, *crontab.variables, *crontab.faults]
    numbers = [entry.line for entry in entries]
    assert len(set(numbers)) == len(numbers)
    silent = [line for number, line in enumerate(text.split("\n"), 1) if number not in numbers]
    assert all(not line.strip(" \t\r") or line.strip(" \t\r").startswith("#") for line in silent)
    for job in crontab.jobs:
        assert job.command
        assert job.schedule
    for fault in crontab.faults:
        assert isinstance(fault, CrontabFault)
        assert fault.problem
        assert "\n" not in fault.problem
