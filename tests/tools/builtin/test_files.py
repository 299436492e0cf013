"""The file tools reach exactly the paths that the policy allows."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from daemon.policy.reachable_paths import ReachablePaths
from daemon.system.safe_open import open_beneath
from tests.tools.builtin.conftest import Call

ANYWHERE = """
[[rule]]
tool = "file_*"
effect = "allow"
"""


@pytest.fixture
def free(calling: Callable[[str], Call]) -> Call:
    """Call a tool under a policy that allows every path the tools can reach."""
    return calling(ANYWHERE)


# --- reading


async def test_file_read_returns_a_text_file_unchanged(free: Call, workspace: Path) -> None:
    (workspace / "notes.md").write_text("日报\nline two\n")
    assert (await free("file_read", path="notes.md")).text == "日报\nline two\n"


async def test_file_read_returns_requested_lines_and_names_the_remaining_lines(
    free: Call, workspace: Path
) -> None:
    (workspace / "long").write_text("".join(f"{number}\n" for number in range(1, 11)))
    assert (await free("file_read", path="long", offset=9)).text == "9\n10\n"
    assert (
        await free("file_read", path="long", offset=2, limit=2)
    ).text == "2\n3\n[… more follows: offset = 4 …]"
    assert (
        await free("file_read", path="long", offset=12)
    ).text == "[failed] long has fewer than 12 lines"


@pytest.mark.parametrize("size", [8190, 8191, 8192, 8193, 20_000])
async def test_file_read_reaches_the_end_of_files_around_the_limit(
    free: Call, workspace: Path, size: int
) -> None:
    text = ("a line of text\n" * size)[:size]
    (workspace / "long").write_text(text)
    lines = text.splitlines(keepends=True)
    assert (await free("file_read", path="long")).text == text
    assert (await free("file_read", path="long", offset=len(lines))).text == lines[-1]
    assert (await free("file_read", path="long", limit=3)).text == "".join(
        lines[:3]
    ) + "[… more follows: offset = 4 …]"
    assert (await free("file_read", path="long", offset=len(lines) + 2)).text.startswith(
        "[failed] long has fewer than"
    )


async def test_file_read_counts_a_long_line_as_one(free: Call, workspace: Path) -> None:
    (workspace / "long").write_text(f"{'x' * 20_000}\nsecond\n{'y' * 8192}\nfourth\n{'z' * 9000}")
    assert (await free("file_read", path="long", limit=1)).text.endswith(
        "x\n[… more follows: offset = 2 …]"
    )
    assert (await free("file_read", path="long", offset=2, limit=1)).text.startswith("second\n")
    assert (await free("file_read", path="long", offset=4, limit=1)).text.startswith("fourth\n")
    assert "fewer than 6 lines" in (await free("file_read", path="long", offset=6)).text


@pytest.mark.parametrize(("byte", "shown"), [(b"x", "x"), (b"\xe9", r"\xe9"), (b"\x07", r"\x07")])
async def test_all_of_a_long_file_is_read_piece_by_piece(
    free: Call, workspace: Path, byte: bytes, shown: str
) -> None:
    (workspace / "long").write_bytes(
        b"".join(b"line %d %b\n" % (number, byte * 80) for number in range(1, 3001))
    )
    lines = [f"line {number} {shown * 80}\n" for number in range(1, 3001)]
    offset, lines_read = 1, set[str]()
    while offset:
        text = (await free("file_read", path="long", offset=offset)).text
        assert "characters cut" not in text
        lines_read |= set(text.splitlines(keepends=True))
        more = re.search(r"more follows: offset = (\d+)", text)
        offset = int(more[1]) if more else 0
    assert set(lines) <= lines_read


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
async def test_file_read_reads_utf_16(free: Call, workspace: Path, encoding: str) -> None:
    text = "\ufeff" * (encoding == "utf-16-be") + "日报\r\nline two\r\n"
    (workspace / "export.csv").write_bytes(text.encode(encoding))
    assert (await free("file_read", path="export.csv")).text == "日报\nline two\n"
    assert (await free("file_read", path="export.csv", offset=2)).text == "line two\n"


async def test_file_read_cuts_a_file_over_the_limit_with_a_note(
    calling: Callable[[str], Call], workspace: Path
) -> None:
    (workspace / "wide").write_text("x" * 5000)
    result = await calling(f"[limits]\noutput_bytes = 1000\n{ANYWHERE}")("file_read", path="wide")
    assert result.text.startswith("x" * 1000 + "\n[… cut in line 1")


async def test_file_read_reports_binary_and_empty_files(free: Call, workspace: Path) -> None:
    (workspace / "picture").write_bytes(b"\x89PNG\0\0")
    (workspace / "latin").write_bytes(b"caf\xe9\n")
    (workspace / "empty").touch()
    assert "binary file of 6 bytes" in (await free("file_read", path="picture")).text
    assert (await free("file_read", path="latin")).text == "caf\\xe9\n"
    assert (await free("file_read", path="empty")).text == "(the file is empty)"


async def test_file_read_refuses_fifos_folders_and_missing_files(
    free: Call, workspace: Path
) -> None:
    os.mkfifo(workspace / "fifo")
    assert "is no regular file" in (await free("file_read", path="fifo")).text
    assert "is a folder; file_list shows" in (await free("file_read", path=".")).text
    assert (await free("file_read", path="none")).text == "[failed] none does not exist"


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/etc/passwd",
        "sub/../../secret",
        "out",
        "up",
        "folder/passwd",
        "/proc/self/environ",
        "~/x",
        "a\0b",
        "",
    ],
)
@pytest.mark.parametrize("tool", ["file_read", "file_list", "file_write"])
async def test_no_path_of_a_file_tool_leads_out_of_the_workspace(
    free: Call, workspace: Path, tool: str, path: str
) -> None:
    (workspace.parent / "secret").write_text("CANARY")
    (workspace / "sub").mkdir()
    (workspace / "out").symlink_to(workspace.parent / "secret")
    (workspace / "up").symlink_to("../secret")
    (workspace / "folder").symlink_to("/etc")
    arguments = {"content": "changed"} if tool == "file_write" else {}
    result = await free(tool, path=path, **arguments)
    if path == "~/x" and tool == "file_write":  # a plain name of the workspace: nobody expands it
        assert (workspace / "~" / "x").read_text() == "changed"
        return
    assert not result.ok
    assert "CANARY" not in result.text
    assert (workspace.parent / "secret").read_text() == "CANARY"


async def test_a_link_in_the_workspace_is_judged_by_its_target(
    calling: Callable[[str], Call], workspace: Path
) -> None:
    call = calling(
        f'{ANYWHERE}\n[[rule]]\ntool = "*"\neffect = "deny"\npaths = [".env"]\nreason = "secret"\n'
    )
    (workspace / ".env").write_text("CANARY")
    (workspace / "innocent").symlink_to(".env")
    (workspace / "plain").write_text("text")
    (workspace / "link").symlink_to("plain")
    assert (await call("file_read", path="link")).text == "text"
    assert "secret" in (await call("file_read", path="innocent")).text
    result = await call("file_write", path="innocent", content="x")
    assert "secret" in result.text
    assert (workspace / ".env").read_text() == "CANARY"


async def test_readable_folders_of_the_policy_may_be_read_and_not_written(
    calling: Callable[[str], Call], workspace: Path, tmp_path: Path
) -> None:
    shared_folder = tmp_path / "shared"
    shared_folder.mkdir()
    (shared_folder / "a.txt").write_text("read me")
    (shared_folder / "out").symlink_to("/etc/passwd")
    (tmp_path / "single").write_text("one file")
    call = calling(f'[paths]\nread = ["{shared_folder}", "{tmp_path}/single"]\n{ANYWHERE}')
    assert (await call("file_read", path=f"{shared_folder}/a.txt")).text == "read me"
    assert (await call("file_read", path=f"{tmp_path}/single")).text == "one file"
    assert [
        entry["name"] for entry in (await call("file_list", path=str(shared_folder))).value
    ] == [
        "a.txt",
        "out",
    ]
    assert not (await call("file_read", path=f"{shared_folder}/out")).ok
    assert not (await call("file_write", path=f"{shared_folder}/a.txt", content="x")).ok
    assert (shared_folder / "a.txt").read_text() == "read me"


# --- listing


async def test_file_list_shows_type_size_and_time_of_each_entry(
    free: Call, workspace: Path
) -> None:
    (workspace / "b.txt").write_text("four")
    (workspace / "a").mkdir()
    (workspace / "c").symlink_to("/etc/passwd")
    os.utime(workspace / "b.txt", (0, 0))
    entries = (await free("file_list")).value
    assert [(entry["name"], entry["kind"]) for entry in entries] == [
        ("a", "folder"),
        ("b.txt", "file"),
        ("c", "link"),
    ]
    assert (entries[1]["size"], entries[1]["modified"]) == (4, "1970-01-01T00:00:00+00:00")
    assert "is no folder" in (await free("file_list", path="b.txt")).text


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a tmpfs, which keeps any time")
@pytest.mark.parametrize("seconds", [2**48, 2**57])
async def test_file_list_shows_a_file_of_a_year_that_no_calendar_has(
    calling: Callable[[str], Call], seconds: int
) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "odd").touch()
        os.utime(Path(folder, "odd"), (seconds, seconds))
        call = calling(f'[paths]\nread = ["{folder}"]\n{ANYWHERE}')
        entries = (await call("file_list", path=folder)).value
    assert [(entry["name"], entry["modified"]) for entry in entries] == [("odd", "")]


async def test_file_list_of_a_large_folder_is_cut_with_a_count(free: Call, workspace: Path) -> None:
    for number in range(1005):
        (workspace / f"{number:04}").touch()
    entries = (await free("file_list")).value
    assert len(entries) == 1001
    assert entries[-1]["name"] == "… and 5 more"


# --- writing


async def test_file_write_creates_missing_folders(free: Call, workspace: Path) -> None:
    result = await free("file_write", path="reports/2026/today.md", content="# 今天\n")
    assert result.text == "wrote reports/2026/today.md (9 bytes)"
    assert (workspace / "reports" / "2026" / "today.md").read_text() == "# 今天\n"
    assert [path.name for path in (workspace / "reports" / "2026").iterdir()] == ["today.md"]


async def test_file_write_replaces_a_file_atomically(free: Call, workspace: Path) -> None:
    (workspace / "a").write_text("old and longer")
    before = (workspace / "a").stat().st_ino
    assert (await free("file_write", path="a", content="new")).ok
    assert (workspace / "a").read_text() == "new"
    assert (workspace / "a").stat().st_ino != before


async def test_file_write_through_a_link_replaces_its_target_in_the_workspace(
    free: Call, workspace: Path
) -> None:
    (workspace / "real").write_text("old")
    (workspace / "link").symlink_to("real")
    assert (await free("file_write", path="link", content="new")).text == "wrote real (3 bytes)"
    assert (workspace / "link").is_symlink()
    assert (workspace / "real").read_text() == "new"


async def test_file_write_refuses_a_hard_linked_file(free: Call, workspace: Path) -> None:
    (workspace.parent / "elsewhere").write_text("shared")
    os.link(workspace.parent / "elsewhere", workspace / "here")
    assert "one of 2 names" in (await free("file_write", path="here", content="x")).text
    assert (workspace.parent / "elsewhere").read_text() == "shared"


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o755, 0o644)])
async def test_file_write_opens_no_file_to_more_users(
    free: Call, workspace: Path, before: int, after: int
) -> None:
    workspace.chmod(0o755)
    (workspace / "diary.md").touch()
    (workspace / "diary.md").chmod(before)
    assert (await free("file_write", path="diary.md", content="dear diary")).ok
    assert (workspace / "diary.md").stat().st_mode & 0o777 == after
    assert (workspace / "diary.md").read_text() == "dear diary"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "folder"])
async def test_file_write_refuses_to_replace_special_files(
    free: Call, workspace: Path, make: Callable[[Path], None]
) -> None:
    make(workspace / "odd")
    assert "not a plain file" in (await free("file_write", path="odd", content="x")).text
    assert "." not in [path.name for path in workspace.iterdir()]


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/post-commit",
        ".GIT/config",
        "sub/.git/config",
        ".gitattributes",
        ".ssh/authorized_keys",
        ".bashrc",
        ".jq",
        "sub/.envrc",
        ".config/git/config",
        "sub/../.git/hooks/x",
        ".local/lib/python3.11/site-packages/usercustomize.py",
        ".sqliterc",
        ".Rprofile",
        ".claude/settings.json",
    ],
)
async def test_file_write_never_writes_files_that_programs_execute(
    free: Call, workspace: Path, path: str
) -> None:
    result = await free("file_write", path=path, content="x")
    assert "is not written" in result.text
    assert list(workspace.iterdir()) == []


async def test_file_write_reports_a_file_in_place_of_a_folder(free: Call, workspace: Path) -> None:
    (workspace / "sub").touch()
    result = await free("file_write", path="sub/file", content="x")
    assert (
        result.text == "[failed] sub/file is no folder, or a file stands where a folder should be"
    )


async def test_a_file_swapped_for_a_link_after_the_verdict_is_not_followed(
    workspace: Path,
) -> None:

    (workspace / "file").write_text("text")
    path = ReachablePaths.of(workspace).resolve("file")
    (workspace / "file").unlink()
    (workspace / "file").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        open_beneath(path.root, path.path_in_root)
