"""The policy in force answers for one routine: what may run, what only looks, how much, and in
which words.
"""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from daemon.models import Effect, Verdict
from daemon.policy.policy import Policy
from daemon.policy.reachable_paths import CallPath
from tests.policy.conftest import SHIPPED, Write

SHELL = '[[rule]]\ntool = "shell"\neffect = "allow"\n'


def test_a_command_line_gets_the_strictest_verdict_of_its_commands(write_policy: Write) -> None:
    rules = (
        f'{SHELL}argv = [["ls", "wc"]]\n[[rule]]\ntool = "shell"\neffect = "ask"\nargv = ["make"]\n'
    )
    policy = write_policy(rules)
    for line, effect in {
        "ls": Effect.ALLOW,
        "ls | wc": Effect.ALLOW,
        "ls && make": Effect.ASK,
        "ls; make; rm x": Effect.DENY,
        "ls | make | wc": Effect.ASK,
    }.items():
        assert policy.judge("shell", {"command": line}, routine="x").effect is effect, line


def test_a_verdict_has_rule_reason_and_alternative(write_policy: Write) -> None:
    policy = write_policy(
        f'{SHELL}argv = [["cat", "sort"]]\nprofile = "read-only"\n'
        '[[rule]]\ntool = "*"\neffect = "deny"\npaths = [".env"]\nreason = "secrets"\n'
        '[[rule]]\ntool = "file_write"\neffect = "allow"\npaths = ["reports/**"]\n'
        '[routine.narrow]\ntools = ["sysinfo"]\n'
        '[routine.hosts]\nhosts = ["example.org"]\n'
    )

    def verdict(tool: str, routine: str = "x", **arguments: str) -> tuple[str, str, str]:
        actual = policy.judge(tool, arguments, routine=routine)
        return actual.rule, actual.reason, actual.alternative

    assert verdict("shell", command="cat notes.md")[0] == "rule 1 (shell: cat…)"
    assert verdict("shell", command="cat .env") == (
        "rule 2 (*: .env)",
        "secrets",
        "the shell runs cat, sort",
    )
    assert verdict("shell", command="rm x") == (
        "default",
        "no rule allows the program rm",
        "the shell runs cat, sort",
    )
    assert (
        "sort -o is not an option that is known here"
        in verdict("shell", command="sort -o x notes.md")[1]
    )
    assert verdict("shell", command="sort --uniq notes.md")[2] == "write --unique"
    assert (
        verdict("shell", command="cd src")[2]
        == "every command starts in the workspace; name paths relative to it"
    )
    assert verdict("shell", command="echo $x")[0] == "built in"
    assert verdict("shell", command="./cat x")[1].startswith("./cat is not run")
    assert verdict("file_write", path="notes.md")[2] == "file_write may use reports/**"
    assert verdict("sysinfo")[1] == "no rule allows sysinfo"
    assert verdict("http_request", "hosts", url="https://example.net/x")[2] == (
        "this routine may ask example.org"
    )
    assert verdict("shell", "narrow", command="cat notes.md") == (
        "[routine.narrow]",
        "narrow may not use shell",
        "this routine may use sysinfo",
    )


def test_plan_equals_the_judged_line(shipped_policy: Policy) -> None:
    line = "grep -c TODO *.md 2>/dev/null && wc -l < notes.md || echo 'a  b' | /usr/bin/head -n 1"
    verdict, pipelines = shipped_policy.plan("shell", {"command": line}, routine="x")
    assert verdict.allows
    assert [pipeline.operator for pipeline in pipelines] == [";", "&&", "||"]
    commands = [command for pipeline in pipelines for command in pipeline.commands]
    assert [command.argv for command in commands] == [
        ("grep", "-c", "TODO", "./notes.md"),
        ("wc", "-l"),
        ("echo", "a  b"),
        ("/usr/bin/head", "-n", "1"),
    ]
    assert commands[1].stdin is not None
    assert commands[1].stdin.path_in_root == "notes.md"
    assert [command.program for command in commands] == ["grep", "wc", "echo", "head"]


def test_a_line_whose_wildcards_stand_for_too_many_names_together_is_refused(
    shipped_policy: Policy, workspace: Path
) -> None:
    for number in range(400):
        (workspace / "src" / str(number)).touch()
    for line in ("wc src/* src/* src/*", "wc src/* | wc src/* | wc src/*", "wc " + "src/* " * 490):
        verdict = shipped_policy.judge("shell", {"command": line}, routine="x")
        assert verdict.reason == "* and ? stand for too many names in this line"
    line = "wc src/* ; wc src/*"
    assert shipped_policy.judge("shell", {"command": line}, routine="x").allows


def test_a_rule_covers_a_command_by_its_words_as_they_were_written(write_policy: Write) -> None:
    allowing = '[[rule]]\ntool = "shell"\neffect = "allow"\n'
    policy = write_policy(
        f'{allowing}argv = ["ps", "-ef"]\nprofile = "read-only"\nmatch = ["ps -ef"]\n'
        f'{allowing}argv = ["ps", ["-o", "--format"]]\nprofile = "read-only"\n'
        f'{allowing}argv = ["diff"]\nprofile = "read-only"\n'
        '[[rule]]\ntool = "shell"\neffect = "deny"\nargv = ["diff", "-r"]\n'
        '[routine.narrow]\ncommands = ["ps -ef"]\n'
    )

    def verdict(line: str, routine: str = "x") -> Verdict:
        return policy.judge("shell", {"command": line}, routine=routine)

    assert verdict("ps -ef").allows
    assert verdict("ps -ef", "narrow").allows
    assert verdict("ps -o pid").allows
    assert verdict("diff notes.md notes.md").allows
    assert verdict("diff -r src src").rule == "rule 4 (shell: diff -r)"
    assert verdict("ps aux").reason == "no rule allows ps aux"


def test_options_of_git_itself_lead_around_no_rule_that_denies(write_policy: Write) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["git"]\n'
        '[[rule]]\ntool = "shell"\neffect = "deny"\nargv = ["git", "push"]\n'
        '[[rule]]\ntool = "shell"\neffect = "ask"\nargv = ["git", "pull"]\n'
    )
    for line, effect in (
        ("git fetch", Effect.ALLOW),
        ("git --no-pager push", Effect.DENY),
        ("git -c a.b=c -C . --git-dir .git push", Effect.DENY),
        ("/usr/bin/git --git-dir=.git push", Effect.DENY),
        ("git -P pull", Effect.ASK),
        ("git --shallow-file x push", Effect.DENY),
        ("git -C . fetch", Effect.ALLOW),
        ("git -c alias.p=push p", Effect.DENY),
        ("git -P -c 'alias.p=!rm -r reports' p", Effect.DENY),
        ("git --config-env alias.p=P p", Effect.DENY),
        ("git --config-env=alias.p=P p", Effect.DENY),
        ("git --exec-path=/srv p", Effect.DENY),
        ("git log -c --exec-path", Effect.ALLOW),
    ):
        assert policy.judge("shell", {"command": line}, routine="x").effect is effect, line


def test_config_for_git_matters_to_rules_about_git_only(write_policy: Write) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["git"]\n'
        '[[rule]]\ntool = "shell"\neffect = "deny"\nargv = [["hg", "rm"], "push"]\n'
    )
    line = "git -c color.ui=never log"
    assert policy.judge("shell", {"command": line}, routine="x").allows


def test_a_recursive_search_runs_with_denied_names_excluded(shipped_policy: Policy) -> None:
    verdict, (pipeline,) = shipped_policy.plan(
        "shell", {"command": "grep -r x -- src"}, routine="x"
    )
    argv = pipeline.commands[0].argv
    assert verdict.allows
    assert (argv[:3], argv[-2:]) == (("grep", "-r", "x"), ("--", "src"))
    assert {"--exclude=.[eE][nN][vV]*", "--exclude-dir=.[gG][iI\u0130\u0131][tT]"} <= set(argv)


def test_paths_denied_to_one_program_are_excluded_from_its_searches_only(
    write_policy: Write,
) -> None:
    policy = write_policy(
        f'{SHELL}argv = [["grep", "rg"]]\nprofile = "read-only"\n'
        '[[rule]]\ntool = "shell"\neffect = "deny"\nargv = ["grep"]\npaths = ["*.bak"]\n'
    )

    def plan(line: str) -> tuple[str, ...]:
        verdict, (pipeline,) = policy.plan("shell", {"command": line}, routine="x")
        assert verdict.allows
        return pipeline.commands[0].argv

    # the last is the sign of Kelvin
    assert "--exclude=*.[bB][aA][kK\u212a]" in plan("grep -r x src")
    assert plan("rg x src") == ("rg", "x", "src")


def test_a_routine_section_narrows_tools_and_limits_but_never_denies_finish(
    write_policy: Write,
) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "sysinfo"\neffect = "allow"\n[[rule]]\ntool = "memory_*"\neffect = '
        '"allow"\n'
        '[routine.heartbeat]\ntools = ["memory_r*"]\nlimits = { tool_calls = 3 }\n'
    )
    assert policy.judge("sysinfo", {}, routine="daily").allows
    assert not policy.judge("sysinfo", {}, routine="heartbeat").allows
    assert policy.judge("memory_recall", {}, routine="heartbeat").allows
    assert policy.judge("finish", {}, routine="heartbeat").allows
    assert policy.limits_for("daily").tool_calls == 40
    assert policy.limits_for("heartbeat").tool_calls == 3
    assert policy.limits_for("heartbeat").shell_seconds == 120


def test_limits_of_a_routine_section_only_lower_limits(write_policy: Write) -> None:
    policy = write_policy("[limits]\nshell_seconds = 10\n[routine.x.limits]\nshell_seconds = 600\n")
    assert policy.limits_for("x").shell_seconds == 10


@pytest.mark.parametrize(
    ("tool", "arguments", "looks"),
    [
        ("sysinfo", {}, True),
        ("file_read", {"path": "x"}, True),
        ("file_write", {"path": "x"}, False),
        ("memory_store", {}, False),
        ("unheard_of", {}, False),
        ("shell", {"command": "df -h | head && git log"}, True),
        ("shell", {"command": "ls; make"}, False),
        ("shell", {"command": "sort -o x notes.md"}, False),
        ("shell", {"command": "cat /etc/shadow"}, False),
        ("shell", {"command": "cat < /etc/shadow"}, False),
        ("shell", {"command": "ls > x"}, False),
        ("shell", {}, False),
        ("http_request", {"url": "https://a.example"}, True),
        ("http_request", {"url": "https://a.example", "method": "HEAD"}, True),
        ("http_request", {"url": "https://a.example", "method": "POST"}, False),
        ("routine", {"action": "list"}, True),
        ("routine", {"action": "remove", "name": "x"}, False),
        ("routine", {"action": "unheard_of"}, False),
        ("routine", {}, False),
    ],
)
def test_read_only_calls_are_recognized(
    shipped_policy: Policy, tool: str, arguments: dict[str, str], looks: bool
) -> None:
    assert shipped_policy.is_read_only(tool, arguments) is looks


def test_a_path_is_judged_by_where_it_leads_and_not_by_how_it_was_written(
    write_policy: Write,
) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "file_read"\neffect = "allow"\n'
        '[[rule]]\ntool = "*"\neffect = "deny"\npaths = ["secret/**"]\n'
        '[routine.narrow]\ntools = ["sysinfo"]\n'
    )

    def effect(*names: str, tool: str = "file_read", routine: str = "x") -> Effect:
        path = CallPath(text=names[-1], real=f"/w/{names[0]}", root="/w", names=names)
        return policy.judge_path(tool, path, routine=routine).effect

    assert effect("notes.md", "secret/link") is Effect.ALLOW
    assert effect("secret/key", "notes.md") is Effect.DENY
    assert effect("notes.md", tool="file_write") is Effect.DENY
    assert effect("notes.md", routine="narrow") is Effect.DENY


def test_a_routine_is_singled_out_by_its_section_or_by_a_rule_that_may_grant_it_something(
    write_policy: Write,
) -> None:
    policy = write_policy(
        '[routine.own]\ntools = ["sysinfo"]\n'
        '[[rule]]\ntool = "sysinfo"\neffect = "allow"\n'
        '[[rule]]\ntool = "file_read"\neffect = "ask"\nroutines = ["granted*"]\n'
        '[[rule]]\ntool = "memory_store"\neffect = "deny"\nroutines = ["denied"]\n'
    )
    assert policy.find_rule_for_one_only("own", "maker") == "[routine.own]"
    assert policy.find_rule_for_one_only("granted", "maker") == policy.rules[1].label
    assert policy.find_rule_for_one_only("granted", "granted-too") == ""
    assert policy.find_rule_for_one_only("denied", "maker") == ""
    assert policy.find_rule_for_one_only("maker", "granted") == ""


def test_user_and_mcp_tools_are_allowed_by_name_or_server_pattern(
    workspace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        (  # noqa: UP034
            'version = 1\n[[rule]]\ntool = "weather"\neffect = "allow"\n[[rule]]\ntool = '
            '"time__*"\neffect = "allow"\n'
        )
    )
    policy = Policy.load(path, workspace=workspace, tools=["weather"])
    assert policy.judge("weather", {"city": "x"}, routine="x").allows
    assert policy.judge("time__now", {}, routine="x").allows
    assert not policy.judge("mail__send", {}, routine="x").allows


def test_a_rule_without_a_profile_cannot_reach_denied_paths(write_policy: Write) -> None:
    policy = write_policy(
        f'{SHELL}argv = ["backup"]\n[[rule]]\ntool = "*"\neffect = "deny"\npaths = [".env*"]\n'
    )
    assert policy.judge("shell", {"command": "backup report"}, routine="x").allows
    for line in (
        "backup .env",
        "backup -f config/.env.local",
        "backup CONFIG=.env",
        "backup < .env",
        "backup ../a/.env",
    ):
        assert not policy.judge("shell", {"command": line}, routine="x").allows, line


def test_a_search_with_unknown_options_reads_all_of_its_folder(write_policy: Write) -> None:
    deny = '[[rule]]\ntool = "*"\neffect = "deny"\npaths = [".env*"]\n'
    policy = write_policy(f'{SHELL}argv = [["grep", "diff", "rg"]]\n{deny}')
    for line in ("grep TODO notes.md", "grep -r TODO .", "diff notes.md log.txt", "grep -r x src"):
        assert policy.judge("shell", {"command": line}, routine="x").allows, line
    for line in (
        "grep -R CANARY",
        "grep -R CANARY .",
        "grep -rd recurse CANARY src",
        "grep --directories=recurse CANARY",
        "grep --recursiv CANARY config",
        "diff -r --to-file=config src",
        "rg --hidden -uu CANARY",
        "rg --no-ignore -L CANARY src",
    ):
        assert not policy.judge("shell", {"command": line}, routine="x").allows, line


def test_a_denied_path_is_denied_by_each_name_it_has(
    write_policy: Write, workspace: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    for folder in (workspace / "store", shared):
        (folder / "private").mkdir(parents=True)
        (folder / "private" / "k.txt").touch()
        (folder / "open.txt").touch()
    (workspace / "data").symlink_to("store")
    (workspace / "logs").symlink_to(shared)
    (tmp_path / "alias").symlink_to("shared")
    (tmp_path / "ws").symlink_to("workspace")
    (shared / "log").symlink_to("/")
    rule = '[[rule]]\ntool = "{}"\neffect = "{}"\n'
    for pattern, denied, shown in (
        ("data/private/**", "store/private/k.txt", "store/open.txt"),
        ("data/private/k.txt", "store/private/k.txt", "store/open.txt"),
        ("logs/private/**", f"{shared}/private/k.txt", f"{shared}/open.txt"),
        (f"{tmp_path}/alias/private/**", f"{shared}/private/k.txt", f"{shared}/open.txt"),
        (f"{tmp_path}/alias/p*/*.txt", f"{shared}/private/k.txt", f"{shared}/open.txt"),
        (f"{workspace}/store/private/**", "store/private/k.txt", "store/open.txt"),
        (f"{tmp_path}/ws/data/private/**", "store/private/k.txt", "store/open.txt"),
        (f"{tmp_path}/*/store/private/**", "store/private/k.txt", "store/open.txt"),
        (f"{workspace}/**", "store/private/k.txt", f"{shared}/open.txt"),
        (f"{tmp_path.parent}/**", f"{shared}/private/k.txt", "store/open.txt"),
        (f"{workspace}/notes.md", "notes.md", "src/notes.md"),
        (f"{workspace}/*", "notes.md", "src/notes.md"),
        (f"{workspace}/**/k.txt", "store/private/k.txt", f"{shared}/private/k.txt"),
        (f"{shared}/log", f"{shared}/log", "store/open.txt"),
    ):
        policy = write_policy(
            f'[paths]\nread = ["{tmp_path}/alias"]\n'
            + rule.format("file_read", "allow")
            + f'{SHELL}profile = "read-only"\n'
            + rule.format("*", "deny")
            + f'paths = ["{pattern}"]\n'
        )
        for path, allows in ((denied, False), (shown, True)):
            folder = path.rpartition("/")[0]
            for tool, call in (
                ("file_read", {"path": path}),
                ("shell", {"command": f"cat {path}"}),
                ("shell", {"command": f"grep -r x {folder}"}),
            ):
                if allows and "grep" in str(call):
                    continue  # what is denied lies beneath, too
                verdict = policy.judge(tool, call, routine="x")
                assert verdict.allows is allows, (pattern, call)


def test_a_fifo_is_looked_at_and_not_opened(shipped_policy: Policy, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    for line, allows in (
        ("ls -l fifo", True),
        ("stat fifo", True),
        ("find fifo -type p", True),
        ("test -p fifo", True),
        ("[ -p fifo ]", True),
        ("cat fifo", False),
        ("file fifo", False),
        ("grep -r x fifo", False),
        ("wc < fifo", False),
        ("ls < fifo", False),
    ):
        verdict = shipped_policy.judge("shell", {"command": line}, routine="x")
        assert verdict.allows is allows, line


@pytest.mark.parametrize("effect", [Effect.DENY, Effect.ASK])
@pytest.mark.parametrize("pattern", ["private", "**/private", "store/private", "{store}/private"])
def test_a_folder_that_is_denied_or_asked_about_stands_for_what_is_in_it(
    write_policy: Write, workspace: Path, pattern: str, effect: Effect
) -> None:
    (workspace / "store" / "private" / "deep").mkdir(parents=True)
    (workspace / "store" / "private" / "deep" / "k.txt").touch()
    (workspace / "store" / "private.txt").touch()
    policy = write_policy(
        '[[rule]]\ntool = "file_read"\neffect = "allow"\n'
        f'{SHELL}profile = "read-only"\n'
        f'[[rule]]\ntool = "*"\neffect = "{effect}"\n'
        f'paths = ["{pattern.format(store=workspace / "store")}"]\n'
    )
    for path in ("store/private", "store/private/deep", "store/Private/deep/k.txt"):
        assert policy.judge("file_read", {"path": path}, routine="x").effect is effect, path
        for line in (f"cat {path}", f"grep -r x {path}", f"diff -r {path} src"):
            assert policy.judge("shell", {"command": line}, routine="x").effect is effect, line
    assert policy.judge("file_read", {"path": "store/private.txt"}, routine="x").allows
    assert policy.judge("file_read", {"path": "src/a.py"}, routine="x").allows
    (workspace / "store" / "reports").mkdir()
    (workspace / "store" / "reports" / "a.txt").touch()
    if "store" in pattern:  # of the others, one may lie in any folder
        for line in ("grep -r x store/reports", "diff -r store/reports src"):
            assert policy.judge("shell", {"command": line}, routine="x").allows, line
        verdict = policy.judge("shell", {"command": "diff -r store src"}, routine="x")
        assert verdict.effect is effect


def test_a_folder_that_is_allowed_does_not_stand_for_what_is_in_it(write_policy: Write) -> None:
    policy = write_policy('[[rule]]\ntool = "file_read"\neffect = "allow"\npaths = ["src"]\n')
    assert policy.judge("file_read", {"path": "src"}, routine="x").allows
    assert not policy.judge("file_read", {"path": "src/a.py"}, routine="x").allows


def test_a_path_with_one_name_stands_once_in_its_rule(write_policy: Write) -> None:
    patterns = ("src/**", "src/*/x", "*/a.py", "*.pem", "/nowhere/**", "/*")
    quoted = ", ".join(f'"{pattern}"' for pattern in patterns)
    policy = write_policy(f'[[rule]]\ntool = "*"\neffect = "deny"\npaths = [{quoted}]\n')
    assert tuple(glob.pattern for glob in policy.rules[0].paths) == patterns


def test_policy_hash_is_the_hash_of_its_file(shipped_policy: Policy) -> None:
    assert shipped_policy.hash == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    output = subprocess.run(
        ["sha256sum", SHIPPED], capture_output=True, text=True, check=True
    ).stdout
    assert output.startswith(shipped_policy.hash)


def test_the_policy_summary_for_a_prompt_is_short(shipped_policy: Policy) -> None:
    text = shipped_policy.summary(
        "daily-report", ["shell", "file_read", "file_write", "sysinfo", "http_request", "finish"]
    )
    lines = text.splitlines()
    assert lines[0].startswith("- shell: ")
    assert "journalctl" in lines[0]
    assert "git blame|branch|" in lines[0]
    assert lines[1].startswith("- file_read: the workspace, /var/log")
    assert lines[2] == "- file_write: reports/**, out/**"
    assert lines[3] == "- sysinfo"
    assert lines[4].startswith("- never: *.pem")
    assert "http_request" not in text
    assert len(text) < 1500
    assert shipped_policy.summary("x", ["http_request"]) == "- no tool"
    assert "绝不" in shipped_policy.summary("x", ["shell"], language="zh")
