"""What a program opens is what the policy was told it would open.

Each program of the profile `read-only` that reads files is run by the tool shell, under strace,
with generated words that the policy allows, in a folder where many files are denied. No file that a
rule denies is opened, and no word of one is in what a model reads. (git may open such files, to
learn whether they changed; it may not show anything of them.)

The words are made of the program's own table of options and of names that were chosen to be
misread: options as values and as operands, `--` in odd places, slashes at the end, links, names
with blanks and signs. A plain `pytest` tries 400 lines, `pytest -m soak` 20,000; those are run that
the policy allows.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from daemon.policy.git import subcommands
from daemon.policy.options import Program
from daemon.policy.policy import Policy
from daemon.policy.profiles import PROGRAM_FOLDERS, read_only_programs
from tests.policy.conftest import SHIPPED

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt install strace"),
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git: apt install git"),
]

DENIED = [
    *(".env", ".ENV.old", "config/.env.production", ".ssh/config", ".ssh/deep/hosts", "id_rsa"),
    *("sub/.ssh/config", ".Aws/keys", "x.pem", "src/server.KEY", "my secrets/x", "sub/id_ed25519"),
    *("sub/my secrets/deep/y", "a.tresor", "sub/.Kube/config", "vault.kdbx", "src/-e.pem"),
]
SHOWN = [
    "notes.md",
    "src/a.py",
    "sub/keep.md",
    "config/app.toml",
    "-e",
    "x",
    "a b",
    "src/data.json",
]
RULE = """
[[rule]]
tool = "*"
effect = "deny"
paths = ["**/my secrets/**", "*.tresor"]
"""

RUNNER = "tests.policy.traced_lines"
# Names that may be taken for something else, beside those of the files.
NAMES = [
    *(".", "./", "..", "sub", "sub/", "sub/.", "src", "src/", "src//", "config/", "empty", "leads"),
    *(
        "leads/",
        "leads/.",
        "src/leads",
        ".ssh",
        ".ssh/",
        ".ssh/.",
        "./.ssh",
        "sub/../.ssh/",
        ".git",
    ),
    *(".git/", ".Aws/", "my secrets", "my secrets/", "sub/../.env", "./.env", "src/../x.pem", "-"),
    *("--", "-r", "-f", "-R", "--file=.env", "-f.env", "--from-file", "no such file", "*", ".*"),
    *("*.pem", "s*", "./*", "sub/*", "?env", "*/", "sub/.s*", "notes.md/", "x/..", "HEAD", "@"),
    *DENIED,
    *SHOWN * 4,
    *(".", "sub", "src", "config", "empty") * 3,
]
VALUES = [
    *("", "x", "1", "2", "CANARY", ".", "--", "-r", "*", "a,b", "1,2", "auto", "always", "never"),
    *(
        ".env",
        "x.pem",
        ".ssh",
        "notes.md",
        "%s",
        "%H",
        "name",
        "all",
        "\\n",
        "s",
        "2d",
        "--file=.env",
        'TZ=":.env" now',
        "+1f",
    ),
]
REVISIONS = [
    *(
        "HEAD",
        "HEAD~1",
        "main",
        "@",
        "HEAD^",
        "HEAD:notes.md",
        "HEAD:.env",
        "HEAD:.ssh/config",
        "--",
    ),
    *(
        "HEAD~1..HEAD",
        "main...HEAD",
        ":.env",
        "HEAD^{tree}",
        "HEAD:src",
        "HEAD:.ssh",
        "tag-of-blob",
    ),
    *(
        "stash",
        ":/first",
        "HEAD:./x.pem",
        "HEAD -- .env",
        "-p",
        "--all",
        "--stat",
        "-S",
        "--follow",
    ),
]


@cache
def programs_that_read() -> dict[str, Sequence[str]]:
    """Return the words of options of each program here that is told of files, by its name."""
    programs: dict[str, Sequence[str]] = {
        "sed": [
            "-n",
            "-e",
            "-E",
            "-s",
            "-z",
            "1p",
            "$p",
            "/x/p",
            "s/x/y/",
            "1,3p",
            "1d",
            "1r .env",
        ],
        "find": [
            *(
                "-name",
                "-newer",
                "-newermt",
                "-samefile",
                "-type",
                "-path",
                "-size",
                "-maxdepth",
                "-print",
                "-ls",
            ),
            *("f", "1", "*", "!", "-o", "-regex", "-printf", "-empty", "(", ")", "-prune", "-xdev"),
        ],
        "test": ["-f", "-e", "-nt", "-ef", "-s", "=", "!", "-a", "-o", "-d", "-L"],
    }
    for name, program in read_only_programs().items():
        if isinstance(program, Program):
            kinds = program.options + (
                program.operands if isinstance(program.operands, str) else "PATH"
            )
            if re.search("PATH|FILE|TREE", kinds):
                programs[name] = program.options.split()
    return {
        name: options
        for name, options in programs.items()
        if shutil.which(name, path=":".join(PROGRAM_FOLDERS))
    }


def spell(option: str, value: str, is_joined: bool) -> list[str]:
    """Return the words of an option of a table, such as `-n:NUM`, `--color[=WORD]` or `-abc`."""
    if option.startswith("--"):
        name = re.split(r"[\[=]", option)[0]
        if "=" not in option:
            return [name]
        return [f"{name}={value}"] if is_joined or "[" in option else [name, value]
    match = re.fullmatch(r"(-\w)([:?])\w+", option)
    if match:
        return [match[1] + value] if is_joined or match[2] == "?" else [match[1], value]
    if option == "-NUM":
        return ["-3"]
    return [
        option if is_joined or len(option) < 3 else f"-{option[1:][len(value) % len(option[1:])]}"
    ]


@st.composite
def command_lines(draw: st.DrawFn) -> str:
    """Draw one command, with or without sense."""
    program = draw(st.sampled_from([*sorted(programs_that_read()), *["grep", "diff", "git"] * 4]))
    values = st.sampled_from([*VALUES, *NAMES])
    if program == "git":
        name = draw(st.sampled_from(sorted(subcommands())))
        options: Sequence[str] = subcommands()[name].options.split()
        start, names = ["git", *name.split()], st.sampled_from([*REVISIONS, *NAMES])
    else:
        options, start, names = programs_that_read()[program], [program], st.sampled_from(NAMES)
    groups = [
        spell(draw(st.sampled_from(options)), draw(values), draw(st.booleans()))
        for _ in range(draw(st.integers(0, 3)) if options else 0)
    ]
    if program in ("grep", "diff", "ls", "du") and draw(st.booleans()):
        groups.append(["-r" if program in ("grep", "diff") else "-a"])
    if program in ("grep", "rg", "jq", "sed", "tr"):
        groups.append([draw(st.sampled_from(["", ".", "CANARY", "x", "-e", "1p"]))])
    groups += [[draw(names)] for _ in range(draw(st.integers(0, 3)))]
    if draw(st.integers(0, 4)) == 0:
        groups.append(["--"])
    words = [word for group in draw(st.permutations(groups)) for word in group]
    # a pattern for names is one only without quotes
    return " ".join(
        [
            *start,
            *(word if re.fullmatch(r"[\w./*?-]+", word) else shlex.quote(word) for word in words),
        ]
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which some files are denied, and changed since the last commit."""
    folder = tmp_path_factory.mktemp("traced")

    def write(names: Sequence[str], text: str) -> None:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def git(*words: str) -> None:
        env = {"PATH": os.defpath, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        ada = ["-c", "user.name=Ada", "-c", "user.email=a@example.invalid"]
        subprocess.run(["git", "-C", str(folder), *ada, *words], check=True, env=env)

    write(DENIED, "CANARY first\n")
    write(SHOWN, "plain first\n")
    (folder / "empty").mkdir()
    (folder / "leads").symlink_to(".ssh")
    (folder / "src" / "leads").symlink_to("../.env")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "first")
    write(DENIED, "CANARY second\n")
    write(SHOWN, "plain second\n")
    git("commit", "-qam", "second")
    git("tag", "tag-of-blob", "HEAD:.env")
    write(DENIED, "CANARY in the work tree\n")
    return folder


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(SHIPPED.read_text() + RULE)
    path.chmod(0o600)
    return path


_OPENED = re.compile(r"^(\d+) +open\w*\(.*\) = \d+<([^>]*)>")
_STARTED = re.compile(r"^(\d+) +execve\(.*?, (\[.*?\]), ")


def check(workspace: Path, policy_file: Path, lines: Sequence[str]) -> int:
    """Run those of the lines that the policy allows, and fail for each denied file that is opened
    or shown; return how many were run.
    """
    policy = Policy.load(policy_file, workspace=workspace)
    allowed_lines = [
        line for line in lines if policy.judge("shell", {"command": line}, routine="x").allows
    ]
    trace, results = policy_file.with_name("trace"), policy_file.with_name("results")
    command = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-s",
        "500",
        "-e",
        "trace=open,openat,openat2,execve",
        "-o",
    ]
    process = subprocess.run(
        [
            *command,
            *map(str, (trace, sys.executable, "-m", RUNNER, workspace, policy_file, results)),
        ],
        input=json.dumps(allowed_lines),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    if "ptrace" in process.stderr and "not permitted" in process.stderr:
        pytest.skip("strace may not trace here (ptrace is forbidden)")
    assert process.returncode == 0, process.stderr
    leaks = [
        line
        for line, text in zip(allowed_lines, json.loads(results.read_text()), strict=True)
        if "CANARY" in text and "CANARY" not in line
    ]
    assert leaks == []
    programs: dict[str, str] = {}
    opened_files = []
    for line in trace.read_text(errors="replace").splitlines():
        if match := _STARTED.match(line):
            programs[match[1]] = match[2]
        elif (match := _OPENED.match(line)) and "O_DIRECTORY" not in line and "O_PATH" not in line:
            program = programs.get(match[1], "")
            path = os.path.relpath(match[2], workspace)
            if path in DENIED and not re.match(r'\["(?:[^"]*/)?git"', program):
                opened_files.append((path, program))
    assert opened_files == []
    return len(allowed_lines)


def test_a_denied_file_that_is_opened_is_noticed(workspace: Path, policy_file: Path) -> None:
    generous = policy_file.with_name("generous.toml")
    generous.write_text(
        'version = 1\n[[rule]]\ntool = "shell"\neffect = "allow"\nprofile = "read-only"\n'
    )
    generous.chmod(0o600)
    for line in ("md5sum .env", "grep -rc x .", "cat x.pem"):
        with pytest.raises(AssertionError):
            check(workspace, generous, [line])
    assert check(workspace, policy_file, ["cat notes.md", "cat .env", "grep -r plain ."]) == 2


BATCH = st.lists(command_lines(), min_size=200, max_size=200)
UNSHRUNK = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # the failing line is named: there is nothing to make smaller
    suppress_health_check=list(HealthCheck),
)


def test_no_program_opens_or_shows_what_is_denied(workspace: Path, policy_file: Path) -> None:
    count = 0

    @settings(UNSHRUNK, max_examples=2)
    @given(lines=BATCH)
    def run(lines: list[str]) -> None:
        nonlocal count
        count += check(workspace, policy_file, lines)

    run()
    assert count >= 20, "the policy allows some of them"


@pytest.mark.soak
def test_no_program_opens_or_shows_what_is_denied_in_20000_lines(
    workspace: Path, policy_file: Path, record_property: Callable[[str, object], None]
) -> None:
    line_count = run_lines = 0

    @settings(UNSHRUNK, max_examples=100)
    @given(lines=BATCH)
    def run(lines: list[str]) -> None:
        nonlocal line_count, run_lines
        line_count += len(lines)
        run_lines += check(workspace, policy_file, lines)

    run()
    record_property("lines tried", line_count)
    record_property("lines run", run_lines)
    assert line_count >= 20_000
