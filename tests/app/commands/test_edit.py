"""`agentctl edit`: real editors, which are shell scripts here."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from daemon.definitions.routines.folder import AGENT_FOLDER
from tests.command_line import CommandResult

TIDY = '# mine\n[trigger]\ncron = "0 7 * * *"\n[run]\nprompt = "Tidy up."\n'
COMMAND = [sys.executable, "-c", "import sys; from daemon.cli.main import main; sys.exit(main())"]


class Desk:
    """A folder with a config, a routine and an editor, and no daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.drafts = folder, folder / "state", folder / "drafts"
        (folder / "config.toml").write_text("")
        (folder / "routines").mkdir()
        self.drafts.mkdir()
        self.file = folder / "routines" / "tidy.toml"
        self.file.write_text(TIDY)
        self.file.chmod(0o640)
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "HOME": str(folder),
            "AGENTD_CONFIG": str(folder / "config.toml"),
            "STATE_DIRECTORY": str(self.state),
            "AGENTD_SOCKET": str(folder / "none.sock"),
            "TMPDIR": str(self.drafts),
        }

    def editor(self, *scripts: str) -> None:
        """Let the editor do so with its file `$1`: each time the next of these scripts."""
        for number, script in enumerate(scripts):
            (self.folder / f"edit-{number}").write_text(script)
        editor = self.folder / "my editor"
        editor.write_text(
            f'#!/bin/sh\ncd "{self.folder}"\nnext=$(ls edit-? | head -1)\n. "./$next"\nrm "$next"\n'
        )
        editor.chmod(0o700)
        self.env["VISUAL"] = f"'{editor}'"

    async def edit(self, name: str = "tidy") -> CommandResult:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "edit", name, env=self.env, cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return CommandResult(process.returncode or 0, out.decode(), err.decode())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_valid_edit_is_written_at_once_with_the_mode_and_comments_of_the_file(
    desk: Desk,
) -> None:
    link = desk.folder / "elsewhere.toml"
    desk.file.rename(link)
    desk.file.symlink_to(link)
    desk.editor("""sed -i 's/0 7/30 8/' "$1" """)
    result = await desk.edit()
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{desk.file} is written; it counts when agentd starts\n"
    assert desk.file.read_text() == TIDY.replace("0 7", "30 8")
    assert desk.file.is_symlink() and link.stat().st_mode & 0o777 == 0o640
    assert (
        list(desk.drafts.iterdir()) == [] and len(list((desk.folder / "routines").iterdir())) == 1
    )


async def test_without_a_terminal_only_an_editor_that_is_named_is_started(desk: Desk) -> None:
    default_editor = desk.folder / "bin" / "editor"
    default_editor.parent.mkdir()
    default_editor.write_text("#!/bin/sh\necho started >&2\n")
    default_editor.chmod(0o700)
    desk.env["PATH"] = f"{default_editor.parent}:{desk.env['PATH']}"
    for variables in ({}, {"EDITOR": " "}):
        desk.env |= variables
        result = await desk.edit()
        assert (result.code, result.out) == (5, "")
        assert result.err.startswith(f"agentctl: there is no terminal to edit {desk.file} at, and ")
        assert "$EDITOR" in result.err and "agentctl validate" in result.err
    assert list(desk.drafts.iterdir()) == [] and desk.file.read_text() == TIDY
    desk.env["EDITOR"] = str(default_editor)
    result = await desk.edit()
    assert (result.code, result.out, result.err) == (0, "nothing was changed\n", "started\n")


async def test_an_edit_that_changes_nothing_writes_nothing(desk: Desk) -> None:
    before = desk.file.stat()
    desk.editor("true")
    result = await desk.edit()
    assert (result.code, result.out) == (0, "nothing was changed\n")
    assert desk.file.stat().st_ino == before.st_ino and list(desk.drafts.iterdir()) == []


async def test_faults_are_named_with_their_lines_and_the_text_is_kept(desk: Desk) -> None:
    desk.editor("""sed -i 's/prompt =/promt =/; s/0 7/61 7/' "$1" """)
    result = await desk.edit()
    assert result.code == 1 and desk.file.read_text() == TIDY
    assert f"{desk.file}:3: trigger.cron: " in result.err
    assert f"{desk.file}:5: run.promt: unknown key" in result.err
    draft = Path(result.err.rstrip().rpartition(" is in ")[2])
    assert "promt" in draft.read_text() and draft.is_relative_to(desk.drafts)


async def test_text_that_is_not_toml_or_not_utf_8_is_a_fault(desk: Desk) -> None:
    desk.editor("""echo 'prompt = hi' > "$1" """)
    assert f"{desk.file}:1: is not TOML" in (await desk.edit()).err
    desk.editor("""printf '\\377\\376' > "$1" """)
    assert "is not UTF-8 text" in (await desk.edit()).err
    assert desk.file.read_text() == TIDY


async def test_a_file_that_was_changed_meanwhile_is_left_alone(desk: Desk) -> None:
    desk.editor(f"""echo '# a' >> "$1"; echo '# b' >> '{desk.file}'""")
    result = await desk.edit()
    assert result.code == 5 and "was changed meanwhile; your text is in " in result.err
    assert desk.file.read_text() == TIDY + "# b\n"


@pytest.mark.parametrize(
    ("editor", "problem"),
    [
        ("false", "false ended with 1"),
        ("no-such-editor", "cannot be started"),
        ("'x", "not a"),
    ],
)
async def test_an_editor_that_fails_changes_nothing(desk: Desk, editor: str, problem: str) -> None:
    desk.env["EDITOR"] = editor
    result = await desk.edit()
    assert result.code == 1 and problem in result.err and "Traceback" not in result.err
    assert desk.file.read_text() == TIDY


async def test_a_routine_of_an_agent_an_unknown_one_and_a_path_are_refused(desk: Desk) -> None:
    (desk.state / AGENT_FOLDER).mkdir(parents=True)
    (desk.state / AGENT_FOLDER / "watch.toml").write_text(TIDY)
    of_agent = await desk.edit("watch")
    assert of_agent.code == 5 and "`agentctl adopt watch` makes it yours" in of_agent.err
    unknown = await desk.edit("tidyy")
    assert unknown.code == 4 and "did you mean 'tidy'?" in unknown.err
    path = await desk.edit("../config")
    assert path.code == 4 and "there is no file" in path.err


@pytest.mark.root
async def test_a_file_of_another_user_is_refused(desk: Desk) -> None:
    os.chown(desk.file, 12345, 12345)
    result = await desk.edit()
    assert result.code == 5 and "belongs to another user (uid 12345)" in result.err


async def test_at_a_terminal_one_may_edit_again(desk: Desk) -> None:
    desk.editor(
        """sed -i 's/prompt/promt/' "$1" """, """sed -i 's/promt/prompt/; s/up/it/' "$1" """
    )
    controller, terminal = pty.openpty()

    def take_the_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *COMMAND, "edit", "tidy", env=desk.env, cwd=desk.folder, stdin=terminal, stdout=terminal,
        stderr=terminal, start_new_session=True, preexec_fn=take_the_terminal,
    )  # fmt: skip
    os.close(terminal)
    text = ""
    while "Edit it again? [Y/n]" not in text:
        text += (await asyncio.to_thread(os.read, controller, 65536)).decode()
    assert "tidy.toml:5: " in text
    os.write(controller, b"y\n")
    while "is written" not in text:
        text += (await asyncio.to_thread(os.read, controller, 65536)).decode()
    assert await process.wait() == 0
    os.close(controller)
    assert desk.file.read_text() == TIDY.replace("up", "it")


@pytest.mark.process
async def test_with_a_daemon_its_files_are_edited_and_it_reads_them(home):
    home.routine("tidy", TIDY)
    await home.start()
    home.env["EDITOR"] = "sed -i s/7/8/"
    result = await home.agentctl("edit", "tidy")
    assert (result.code, result.err) == (0, "") and "the daemon reads it by itself" in result.out
    await home.wait_for_log("definitions.reloaded")
    assert "08:00" in (await home.agentctl("show", "tidy")).out
