"""The time zone and the id of this host."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from daemon.system.clock import SystemClock, format_date_time, host_zone, machine_id, midnight


def host(root: Path, *, localtime: str = "", timezone: str = "") -> Path:
    (root / "etc").mkdir()
    if localtime:
        (root / "etc/localtime").symlink_to(localtime)
    if timezone:
        (root / "etc/timezone").write_text(timezone)
    return root


def test_clock_returns_utc() -> None:
    now = SystemClock().now()
    assert now.tzinfo is UTC
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)


def test_midnight_is_the_first_instant_of_a_day() -> None:
    def midnight_of(now: datetime, zone: str) -> datetime:
        return midnight(now, ZoneInfo(zone)).astimezone(UTC)

    # an hour later Havana's clocks went from 01:00 back to midnight
    begin = datetime(2025, 11, 2, 4, 0, tzinfo=UTC)
    for minutes in (0, 30, 60, 90, 150, 24 * 60 + 59):
        assert midnight_of(begin + timedelta(minutes=minutes), "America/Havana") == begin
    assert midnight_of(begin - timedelta(minutes=1), "America/Havana") == begin - timedelta(days=1)
    assert midnight_of(begin + timedelta(hours=25), "America/Havana") == begin + timedelta(hours=25)
    missing_midnight = datetime(
        2026, 3, 28, 22, 0, tzinfo=UTC
    )  # Beirut's went from midnight to 01:00
    assert midnight_of(missing_midnight + timedelta(hours=12), "Asia/Beirut") == missing_midnight


def test_a_date_of_another_year_names_the_year_in_its_zone() -> None:
    auckland, eve = ZoneInfo("Pacific/Auckland"), datetime(2026, 12, 31, 12, 0, tzinfo=UTC)
    assert format_date_time(datetime(2026, 12, 31, 23, 59, tzinfo=UTC), eve) == "Thu 31 Dec 23:59"
    assert format_date_time(datetime(2027, 1, 1, 0, 0, tzinfo=UTC), eve) == "Fri 01 Jan 2027 00:00"
    assert format_date_time(datetime(2027, 1, 1, 2, 0, tzinfo=auckland), eve) == "Fri 01 Jan 02:00"


@pytest.mark.parametrize(
    ("env", "localtime", "timezone", "zone"),
    [
        ({"TZ": "Asia/Tokyo"}, "/usr/share/zoneinfo/Europe/Berlin", "", "Asia/Tokyo"),
        ({"TZ": ":Asia/Tokyo"}, "", "", "Asia/Tokyo"),
        ({"TZ": "/usr/share/zoneinfo/Asia/Tokyo"}, "", "", "Asia/Tokyo"),
        # a POSIX rule names no zone of the database
        (
            {"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"},
            "/usr/share/zoneinfo/Europe/Berlin",
            "",
            "Europe/Berlin",
        ),
        ({"TZ": "Mars/Olympus"}, "", "Europe/Paris\n", "Europe/Paris"),
        ({"TZ": "Europe"}, "", "", "UTC"),
        ({"TZ": "../etc/passwd"}, "", "", "UTC"),
        ({}, "../usr/share/zoneinfo/Europe/Berlin", "", "Europe/Berlin"),
        ({}, "/var/db/timezone/zoneinfo/America/Argentina/Salta", "", "America/Argentina/Salta"),
        ({}, "/usr/share/zoneinfo/posix/Europe/Berlin", "", "Europe/Berlin"),
        ({}, "/usr/share/zoneinfo/Europe/Berlin", "Europe/Paris\n", "Europe/Berlin"),
        ({}, "/etc/my-own-rules", "# by hand\nEurope/Paris\n", "Europe/Paris"),
        ({}, "/usr/share/zoneinfo/Etc/UTC", "", "UTC"),
        ({}, "", "", "UTC"),
    ],
)
def test_the_zone_of_the_host_equals_that_of_libc(
    tmp_path: Path, env: dict[str, str], localtime: str, timezone: str, zone: str
) -> None:
    assert host_zone(env, host(tmp_path, localtime=localtime, timezone=timezone)) == zone


def test_a_machine_keeps_its_id(tmp_path: Path) -> None:
    root = host(tmp_path)
    nameless = machine_id(root)
    (root / "etc/machine-id").write_text("uninitialized\n")
    assert machine_id(root) == nameless
    (root / "etc/machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
    assert machine_id(root) == "3d1219c7c4c5404aaa1f6d2a48adfda4"
