"""Changes of a host that a person wants to know."""

import pytest

from daemon.tools.builtin.sysinfo import changes

UP = {"up": "12 d, since 2026-11-08 08:30 CET"}


def disk(mount="/", used="71 % of 252 GB", free="73 GB", inodes="3 %", **more):
    return {"mount": mount, "used": used, "free": free, "inodes": inodes} | more


def error(source, message, count=1):
    return {"count": count, "source": source, "message": message, "last": "2026-11-20 08:23 UTC"}


UNIT = {"unit": "nginx.service", "state": "failed", "description": "A web server"}


@pytest.mark.parametrize(
    ("part", "before", "after", "expected_text"),
    [
        ("host", UP, UP, []),
        ("host", UP, {"up": "12 d, since 2026-11-08 08:31 CET"}, []),  # the clock was slewed
        (
            "host",
            UP,
            {"up": "3 h, since 2026-11-20 05:12 CET"},
            ["rebooted: up 3 h, since 2026-11-20 05:12 CET"],
        ),
        (
            "host",
            {"kernel": "Linux 6.1.0-26"},
            {"kernel": "Linux 6.1.0-28"},
            ["kernel Linux 6.1.0-26 → Linux 6.1.0-28"],
        ),
        ("host", {}, UP, []),
        ("disks", [disk()], [disk(used="72 % of 252 GB")], []),
        (
            "disks",
            [disk()],
            [disk(used="84 % of 252 GB", free="41 GB")],
            ["disk / 71 % → 84 % (41 GB free)"],
        ),
        (
            "disks",
            [disk()],
            [disk(used="60 % of 252 GB", free="99 GB")],
            ["disk / 71 % → 60 % (99 GB free)"],
        ),
        (
            "disks",
            [disk(used="89 % of 252 GB")],
            [disk(used="90 % of 252 GB", free="25 GB")],
            ["disk / 89 % → 90 % (25 GB free)"],
        ),
        ("disks", [disk()], [disk(inodes="40 %")], ["inodes of / 3 % → 40 %"]),
        ("disks", [disk(inodes="no limit")], [disk(inodes="no limit")], []),
        ("disks", [disk()], [disk(note="read-only")], ["disk / has become read-only"]),
        (
            "disks",
            [disk(), disk("/old")],
            [disk(), disk("/new", "1 % of 2.00 TB")],
            ["disk /new is new: 1 % of 2.00 TB", "disk /old is gone"],
        ),
        ("disks", [disk()], "no file system could be asked", []),
        ("units", "no unit has failed", [UNIT], ["unit nginx.service has failed"]),
        ("units", [UNIT], "no unit has failed", ["unit nginx.service is no longer failed"]),
        ("units", [UNIT], [UNIT], []),
        ("units", "systemd is not running here", [UNIT], []),  # it may have been failed all along
        ("units", [UNIT], "systemctl gave no answer within 10 s", []),
        (
            "errors",
            "none in the last 24 hours",
            [error("sshd", "Connection reset by 10.0.0.7", 12)],
            ["new error of sshd: Connection reset by 10.0.0.7 (12 times)"],
        ),
        ("errors", [error("sshd", "pid 12 died", 3)], [error("sshd", "pid 99 died", 50)], []),
        (
            "errors",
            [error("sshd", "pid 12 died")],
            [error("cron", "pid 12 died")],
            ["new error of cron: pid 12 died (once)"],
        ),
        ("errors", "there is no systemd journal here", [error("sshd", "x")], []),
        ("errors", "none in the last 24 hours", [error("others", "3 more kinds", 9)], []),
        ("memory", {"used": "64 % of 16.4 GB"}, {"used": "75 % of 16.4 GB"}, []),
        (
            "memory",
            {"used": "64 % of 16 GB"},
            {"used": "93 % of 16 GB"},
            ["memory is tight: 64 % → 93 %"],
        ),
        (
            "memory",
            {"used": "93 % of 16 GB"},
            {"used": "64 % of 16 GB"},
            ["memory is no longer tight: 93 % → 64 %"],
        ),
        ("memory", {"swap": "2 % of 8 GB"}, {"swap": "25 % of 8 GB"}, ["swap 2 % → 25 %"]),
        ("memory", {"swap": "none"}, {"swap": "25 % of 8 GB"}, []),
        (
            "load",
            {"last_15_minutes": "35 % (0.70)"},
            {"last_15_minutes": "180 % (3.60)"},
            ["more work than the cores can do: load 35 % → 180 % over 15 minutes"],
        ),
        ("load", {"last_15_minutes": "150 % (3)"}, {"last_15_minutes": "180 % (3.6)"}, []),
        (
            "updates",
            {"pending": 0, "reboot": "nothing asks for one"},
            {"pending": 12, "security": 3, "reboot": "needed, for linux-image"},
            [
                "12 updates waiting, 3 of them for security (was 0)",
                "a reboot is needed, for linux-image",
            ],
        ),
        ("updates", {"pending": 12}, {"pending": 1, "security": 0}, ["1 update waiting (was 12)"]),
        ("updates", {"pending": 12}, {"pending": 12}, []),
        ("updates", "not known", {"pending": 12}, []),
    ],
)
def test_a_change_of_the_host_is_described_in_words(part, before, after, expected_text):
    assert changes({part: before}, {part: after}) == expected_text


def test_a_long_list_of_changes_is_cut():
    after = [error("app", f"kind {chr(97 + n)}") for n in range(20)]
    lines = changes({"errors": "none in the last 24 hours"}, {"errors": after})
    assert len(lines) == 7
    assert lines[-1] == "and 14 more new kinds of error"


def test_one_change_over_the_limit_is_shown_rather_than_counted():
    after = [error("app", f"kind {chr(97 + n)}") for n in range(7)]
    assert len(changes({"errors": "none in the last 24 hours"}, {"errors": after})) == 7


def test_the_most_urgent_change_comes_first():
    before = {"updates": {"pending": 0}, "disks": [disk()], "host": UP}
    after = {
        "updates": {"pending": 5},
        "disks": [disk(used="99 % of 252 GB")],
        "host": {"up": "3 h, since 2026-11-20 05:12 CET"},
    }
    assert [line.split()[0] for line in changes(before, after)] == ["rebooted:", "disk", "5"]


@pytest.mark.parametrize(
    "side",
    [
        None,
        "text",
        7,
        [],
        {"host": "sentence"},
        {"disks": [1, None]},
        {"updates": {"pending": "x"}},
    ],
)
def test_facts_of_an_unknown_shape_give_no_change(side):
    good = {
        "host": UP,
        "disks": [disk()],
        "updates": {"pending": 5},
        "units": [UNIT],
        "errors": [error("a", "b")],
    }
    assert changes(side, good) == []
    assert changes(good, side) == []
