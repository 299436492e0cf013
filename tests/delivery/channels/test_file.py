"""Reports as files: whole or absent, never over a file of another, never outside the workspace."""

import os
import resource
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.delivery.channels.file import FileChannel, fill_path
from daemon.errors import DeliveryFailed
from daemon.models import Report, Status
from daemon.system.safe_open import open_folder_beneath
from tests.properties import scaled_settings

OTHER = "01JBBBBBBBBBBBBBBBBBBBBBBB"
REPORT = Report(
    run="01JAAAAAAAAAAAAAAAAAAAAAAA",
    routine="daily-report",
    slot=datetime(2026, 11, 20, 23, 30, tzinfo=UTC),
    status=Status.SUCCEEDED,
    text="",
    scheduled_zone="Europe/Berlin",
)


@pytest.fixture
def channel(workspace):
    return FileChannel(workspace)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.mark.parametrize(
    ("template", "path"),
    [
        (
            "reports/{routine}/{slot:%Y-%m-%d}.md",
            "reports/daily-report/2026-11-21.md",
        ),  # already tomorrow in Berlin
        ("{slot}.md", "2026-11-21-0030.md"),
        ("{run}.md", "01JAAAAAAAAAAAAAAAAAAAAAAA.md"),
        ("latest.md", "latest.md"),
        ("a//b/./c.md", "a/b/c.md"),
        ("{slot:%D}.md", "11-21-26.md"),  # a slash of the format makes no folder
    ],
)
def test_a_report_path_uses_the_time_zone_of_the_routine(template, path):
    assert str(fill_path(template, REPORT)) == path


@pytest.mark.parametrize(
    "template",
    [
        "/etc/motd",
        "../x.md",
        "a/../../x.md",
        "~/x.md",
        "",
        ".",
        "{routine.__class__}",
        "{status}",
        "{run:x}",
        "{0}/../x",
    ],
)
def test_a_report_path_out_of_the_workspace_is_a_permanent_failure(template):
    with pytest.raises(DeliveryFailed) as error:
        fill_path(template, REPORT)
    assert error.value.retry is False


@scaled_settings(100)
@given(st.text(max_size=40))
def test_a_routine_name_cannot_lead_a_report_path_out_of_the_workspace(name):
    try:
        path = fill_path("reports/{routine}/x.md", replace(REPORT, routine=name))
    except DeliveryFailed:
        return
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert path.parts[0] == "reports"


async def test_a_report_is_written_and_its_receipt_is_the_path(channel, workspace, delivery):
    receipt = await channel.send(delivery("All is well."))
    path = workspace / "reports/daily-report/2026-11-20.md"
    assert receipt.detail == str(path)
    assert path.read_text().endswith("\n\nAll is well.\n")
    assert files(workspace) == ["reports/daily-report/2026-11-20.md"]


async def test_another_report_of_the_same_day_gets_a_numbered_file(channel, workspace, delivery):
    await channel.send(delivery("first"))
    await channel.send(delivery("second", id_=2, run=OTHER))
    await channel.send(delivery("third", id_=3, run="01JCCCCCCCCCCCCCCCCCCCCCCC"))
    last_lines = {
        path.name: path.read_text().splitlines()[-1]
        for path in (workspace / "reports/daily-report").iterdir()
    }
    assert last_lines == {
        "2026-11-20.md": "first",
        "2026-11-20-2.md": "second",
        "2026-11-20-3.md": "third",
    }


async def test_a_repeated_delivery_leaves_one_report_file(channel, workspace, delivery):
    first = await channel.send(delivery("All is well."))
    again = await channel.send(delivery("All is well."))
    assert first == again
    assert len(files(workspace)) == 1


async def test_a_report_of_each_minute_of_a_day_has_a_file(channel, workspace, delivery):
    folder = workspace / "reports/daily-report"
    folder.mkdir(parents=True)
    for name in ("2026-11-20.md", *(f"2026-11-20-{number}.md" for number in range(2, 1440))):
        (folder / name).touch()
    receipt = await channel.send(delivery("the last"))
    assert receipt.detail.endswith("2026-11-20-1440.md")


async def test_a_repeated_delivery_reuses_its_numbered_file(channel, workspace, delivery):
    await channel.send(delivery("first"))
    second = await channel.send(delivery("second", id_=2, run=OTHER))
    assert await channel.send(delivery("second", id_=2, run=OTHER)) == second
    assert len(files(workspace)) == 2


async def test_a_report_quoting_another_run_is_not_mistaken_for_its_report(
    channel, workspace, delivery
):
    await channel.send(delivery("See also *Run `01JBBBBBBBBBBBBBBBBBBBBBBB`, of yesterday*"))
    await channel.send(delivery("second", id_=2, run=OTHER))
    assert len(files(workspace)) == 2


async def test_a_report_path_without_a_date_holds_the_latest_report(channel, workspace, delivery):
    await channel.send(delivery("old", path="reports/latest.md"))
    await channel.send(delivery("new", id_=2, run=OTHER, path="reports/latest.md"))
    assert files(workspace) == ["reports/latest.md"]
    assert "new" in (workspace / "reports/latest.md").read_text()


async def test_a_file_of_the_user_is_never_overwritten_by_a_report(channel, workspace, delivery):
    (workspace / "reports/daily-report").mkdir(parents=True)
    (workspace / "reports/daily-report/2026-11-20.md").write_text("my notes")
    receipt = await channel.send(delivery())
    assert receipt.detail.endswith("2026-11-20-2.md")
    assert (workspace / "reports/daily-report/2026-11-20.md").read_text() == "my notes"


@pytest.mark.parametrize("obstacle", ["link", "dangling", "folder", "pipe"])
async def test_a_report_never_replaces_a_link_folder_or_device(
    channel, workspace, delivery, tmp_path, obstacle
):
    folder = workspace / "reports/daily-report"
    folder.mkdir(parents=True)
    name, outside = folder / "2026-11-20.md", tmp_path / "outside.md"
    outside.write_text("untouched")
    match obstacle:
        case "link":
            name.symlink_to(outside)
        case "dangling":
            name.symlink_to(tmp_path / "nowhere")
        case "folder":
            name.mkdir()
        case "pipe":
            os.mkfifo(name)
    receipt = await channel.send(delivery())
    assert receipt.detail.endswith("2026-11-20-2.md")
    assert outside.read_text() == "untouched"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("link", ["reports", "reports/daily-report"])
async def test_a_link_in_a_report_path_is_refused_and_named(
    channel, workspace, delivery, tmp_path, link
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / link).parent.mkdir(exist_ok=True)
    (workspace / link).symlink_to(outside)
    with pytest.raises(DeliveryFailed, match="symbolic link") as error:
        await channel.send(delivery())
    assert error.value.retry  # the user can put a real folder there within the day
    assert list(outside.iterdir()) == []


async def test_the_workspace_itself_may_be_a_link(tmp_path, workspace, delivery):
    (tmp_path / "ws").symlink_to(workspace)
    await FileChannel(tmp_path / "ws").send(delivery())
    assert len(files(workspace)) == 1


async def test_report_files_and_their_new_folders_are_private(channel, workspace, delivery):
    receipt = await channel.send(delivery())
    assert stat.S_IMODE(Path(receipt.detail).stat().st_mode) == 0o600
    assert stat.S_IMODE((workspace / "reports").stat().st_mode) == 0o700


async def test_reports_are_readable_by_others_if_their_folder_is(channel, workspace, delivery):
    (workspace / "reports").mkdir()
    (workspace / "reports").chmod(0o2775)
    receipt = await channel.send(delivery())
    assert stat.S_IMODE(Path(receipt.detail).stat().st_mode) == 0o644  # never writable for others
    assert stat.S_IMODE((workspace / "reports/daily-report").stat().st_mode) == 0o2755


@pytest.mark.root
async def test_under_root_a_report_belongs_to_the_owner_of_its_folder(channel, workspace, delivery):
    os.chown(workspace, 12345, 23456)
    receipt = await channel.send(delivery())
    for path in (workspace / "reports", Path(receipt.detail)):
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


async def test_an_unwritable_workspace_is_retried(tmp_path, delivery):
    (tmp_path / "ws").write_text("a file where the workspace should be")
    with pytest.raises(DeliveryFailed) as error:
        await FileChannel(tmp_path / "ws").send(delivery())
    assert error.value.retry


async def test_a_too_long_report_name_is_a_permanent_failure(channel, delivery):
    with pytest.raises(DeliveryFailed, match="too long") as error:
        await channel.send(delivery(path="x" * 300 + ".md"))
    assert not error.value.retry


async def test_a_full_disk_leaves_no_partial_report(workspace, channel, delivery):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(DeliveryFailed, match="File too large") as error:
            await channel.send(delivery("x" * 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.retry
    assert files(workspace) == []


def test_a_folder_name_cannot_lead_upwards(tmp_path):
    for part in ("..", ".", "", "a/b"):
        with (
            pytest.raises(ValueError, match="not the name"),
            open_folder_beneath(tmp_path, ["x", part], create=True),
        ):
            pass


@pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="open descriptors are counted in /proc, as on Linux"
)
def test_descriptors_are_closed_after_success_and_failure(tmp_path):
    def open_descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    (tmp_path / "file").write_text("")
    before = open_descriptors()
    with (
        pytest.raises(NotADirectoryError),
        open_folder_beneath(tmp_path, ["file", "c"], create=True),
    ):
        pass
    with pytest.raises(FileNotFoundError), open_folder_beneath(tmp_path, ["missing"]):
        pass
    with open_folder_beneath(tmp_path, ["a", "b", "c"], create=True):
        assert open_descriptors() == before + 1
    assert open_descriptors() == before
