"""The shell tool runs exactly the judged command line, and reports its outcome."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.sandbox.sandbox import Sandbox
from daemon.tools.builtin.command_lines import environment, find_program
from tests.tools.builtin.conftest import Call


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hello", "hello"),
        ("printf '%s\\n' b a | sort", "a\nb"),
        ("test -f none && echo there || echo missing", "missing"),
        ("cat < notes.md", "one\ntwo"),
        ("wc -l n*.md", "2 ./notes.md"),
        ("echo 'a  b' \"c  d\"", "a  b c  d"),
        ("echo -n *.none", "*.none"),
        ("true", "(no output)"),
        ("/usr/bin/head -n 1 notes.md", "one"),
        ("cat none 2>/dev/null; echo on", "on"),
        ("cat none 2>&1 | wc -l", "1"),
        ("echo on; cat < none || echo missing", "on\nnone: No such file or directory\nmissing"),
        ("grep three notes.md", "(no output)\n(grep ended with exit code 1)"),
        ("diff notes.md other.md | head -n 1", "1c1"),
        ("cmp -s notes.md other.md", "(no output)\n(cmp ended with exit code 1)"),
    ],
)
async def test_a_command_line_returns_its_output(
    call: Call, workspace: Path, command: str, text: str
) -> None:
    (workspace / "notes.md").write_text("one\ntwo\n")
    (workspace / "other.md").write_text("other\ntwo\n")
    result = await call("shell", command=command)
    assert (result.ok, result.text) == (True, text)


async def test_a_failed_command_line_keeps_its_partial_output(call: Call, workspace: Path) -> None:
    (workspace / "notes.md").write_text("one\n")
    result = await call("shell", command="cat notes.md none")
    assert not result.ok
    assert result.text == (
        "[failed] cat ended with exit code 1\n[partial output]\none\ncat: none: No such file or "
        "directory\n"
    )


async def test_only_exit_codes_of_signals_are_called_signals(
    calling: Callable[[str], Call],
) -> None:
    """129 would be SIGHUP, and is what git says for wrong usage; 255 is no signal at all."""
    rule = '[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["sh", "-c", "exit {code}"]\n'
    codes = (129, 137, 143, 255)
    call = calling("".join(rule.format(code=code) for code in codes))
    texts = {}
    for code in codes:
        texts[code] = (await call("shell", command=f"sh -c 'exit {code}'")).text.split("\n")[0]
    assert texts == {
        129: "[failed] sh ended with exit code 129",
        137: "[failed] sh was killed by signal 9, as at a limit of policy.toml: memory_mb, file_mb "
        "or shell_seconds",
        143: "[failed] sh was killed by signal 15",
        255: "[failed] sh ended with exit code 255",
    }


async def test_a_call_that_reached_its_limit_on_memory_says_so(
    calling: Callable[..., Call], workspace: Path
) -> None:
    """The kernel's words are put into a plain folder here: not each machine has the controller."""
    say = 'for group in call-*; do printf "oom 1\noom_kill 1\n" > $group/memory.events; done\n'
    rules = ""
    for name, end in (("killed", "kill -9 $$"), ("spared", "echo done")):
        (workspace / f"{name}.sh").write_text(f"{say}{end}\n")
        rules += f'[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["sh", "{name}.sh"]\n'
    call = calling(rules, Sandbox(level="off", groups=workspace))
    limit = (
        "(the programs of this call, with their files in memory, reached a limit of policy.toml: "
        "memory_mb; the kernel killed them)"
    )
    result = await call("shell", command="sh killed.sh")
    assert result.text.split("\n")[0] == f"[failed] sh was killed by signal 9 {limit}"
    result = await call("shell", command="sh spared.sh")
    assert (result.ok, result.text) == (True, f"done\n{limit}")


async def test_a_denied_command_line_does_not_start(call: Call, workspace: Path) -> None:
    result = await call("shell", command="echo a; touch pwned")
    assert not result.ok
    assert "no rule allows the program touch" in result.text
    assert list(workspace.iterdir()) == []


async def test_a_program_in_the_workspace_is_never_run_by_name(call: Call, workspace: Path) -> None:
    (workspace / "ls").write_text("#!/bin/sh\necho trojan\n")
    (workspace / "ls").chmod(0o755)
    result = await call("shell", command="ls")
    assert result.text == "ls"


async def test_a_command_line_over_its_time_limit_is_stopped_and_reported(
    calling: Callable[[str], Call],
) -> None:
    slow = '[limits]\nshell_seconds = 1\n[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["sleep"]\n'  # noqa: E501
    result = await calling(slow)("shell", command="sleep 600")
    assert not result.ok
    assert "stopped after 1 s" in result.text


async def test_command_lines_of_a_run_share_a_time_limit(calling: Callable[[str], Call]) -> None:
    call = calling(
        (  # noqa: UP034
            '[limits]\nshell_seconds = 1\n[[rule]]\ntool = "shell"\neffect = "allow"\nargv = '
            '["sleep"]\n'
        )
    )
    assert (await call("shell", command="sleep 0.2")).ok
    result = await call("shell", command="sleep 600")
    assert "stopped after 0." in result.text and "had left" in result.text
    second_result = await call("shell", command="sleep 0")
    assert not second_result.ok
    assert (
        "the programs of this run have had their 1 s (limits.shell_seconds of policy.toml)"
        in second_result.text
    )


async def test_output_over_the_policy_limit_is_cut_in_the_middle(
    calling: Callable[[str], Call],
) -> None:
    short = '[limits]\noutput_bytes = 1000\n[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["seq"]\n'  # noqa: E501
    result = await calling(short)("shell", command="seq 100000")
    assert result.text.startswith("1\n2\n")
    assert result.text.endswith("99999\n100000")
    assert "bytes cut from the middle" in result.text
    assert len(result.text) < 1100


async def test_the_note_on_a_long_output_says_how_much_is_missing(
    call: Call, workspace: Path
) -> None:
    (workspace / "log").write_text("a line of a log\n" * 30_000)
    text = (await call("shell", command="cat log")).text
    (missing,) = re.findall(r"\[… ([0-9,]+) [^…]* cut[^…]* …\]", text)
    shown = text.count("a line of a log\n")
    assert int(missing.replace(",", "")) == 16 * (30_000 - shown - 1)  # the last ends without \n


async def test_binary_output_becomes_readable_text(call: Call, workspace: Path) -> None:
    (workspace / "odd").write_bytes(b"caf\xe9 \x1b[31mred\x1b[0m \x00 50%\r100%\n")
    result = await call("shell", command="cat odd")
    assert result.text == "caf\\xe9 red \\x00 50%\n100%"


async def test_recursive_programs_skip_denied_files(call: Call, workspace: Path) -> None:
    for name in (
        "a.md",
        ".env",
        "sub/.env.local",
        "sub/ID_rsa.txt",
        "key.pem",
        ".ssh/config",
        "sub/.git/config",
    ):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("CANARY\n")
    (workspace / "link").symlink_to("/etc/passwd")
    result = await call("shell", command="grep -r CANARY .")
    assert result.text == "./a.md:CANARY"
    (workspace / "twin").mkdir()
    comparison = await call("shell", command="diff -rN . twin")
    assert "CANARY" in comparison.text
    assert "env" not in comparison.text
    assert "root:" not in comparison.text


async def test_standard_input_from_a_link_out_of_the_workspace_is_refused(
    call: Call, workspace: Path
) -> None:
    (workspace / "real").write_text("text\n")
    (workspace / "link").symlink_to("real")
    assert (await call("shell", command="cat < link")).text == "text"
    (workspace / "out").symlink_to("/etc/passwd")
    result = await call("shell", command="cat < out")
    assert "lies outside" in result.text


async def test_programs_ignore_settings_files_in_the_workspace(call: Call, workspace: Path) -> None:
    if find_program("jq") is None:
        pytest.skip("needs jq: apt install jq")
    (workspace / ".jq").write_text('def length: "trojan";')
    assert (await call("shell", command="jq -n '[1, 2] | length'")).text == "2"


def test_programs_have_a_fixed_environment(tmp_path: Path) -> None:
    variables = environment(str(tmp_path), "Europe/Berlin")
    assert variables.keys() == {"PATH", "HOME", "LANG", "TERM", "PAGER", "TZ"}
    assert variables["HOME"] == str(tmp_path)
    assert variables["TZ"] == "Europe/Berlin"
    assert "TZ" not in environment(tmp_path)


async def test_programs_use_the_time_zone_of_the_daemon(call: Call) -> None:
    assert (await call("shell", command="date +%Z")).ok


@pytest.mark.root
def test_programs_are_found_where_the_unit_hides_other_users() -> None:
    """`PrivateUsers=` of the user's unit: root's files belong to nobody there."""
    code = (
        "from daemon.tools.builtin.command_lines import find_program; print(find_program('sort'))"
    )
    namespace = ["unshare", "--user"]
    possible = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if possible.returncode:
        pytest.skip(f"root: this machine makes no user namespaces: {possible.stderr.strip()}")
    process = subprocess.run(
        [*namespace, sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.endswith("/bin/sort\n")


def test_programs_are_found_only_in_system_folders(tmp_path: Path) -> None:
    program = tmp_path / "sort"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert str(find_program("sort")).endswith("/bin/sort")
    assert find_program(str(program)) is None or program.stat().st_uid == 0
    assert find_program("no-such-program") is None
    assert find_program("/usr/bin/no-such-program") is None
