"""A policy file that says something else than its writer may think is refused, with all its faults
and their place.
"""

import os
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import ConfigError
from daemon.policy.policy import Policy
from daemon.policy.policy_file import TOOLS
from daemon.policy.web import parse_target
from tests.docs import register_tools
from tests.policy.conftest import SHIPPED, Write
from tests.properties import scaled_settings

DENY_PUSH = '[[rule]]\ntool = "shell"\neffect = "deny"\nargv = ["git", "push"]'
ALLOW_SHELL = '[[rule]]\ntool = "shell"\neffect = "allow"\n'


def faults(write: Write, text: str) -> list[str]:
    try:
        write(text)
    except ConfigError as error:
        return [str(fault) for fault in error.faults]
    return []


def test_the_empty_policy_allows_only_the_tool_finish(write_policy: Write) -> None:
    strict = write_policy("")
    for tool in ("shell", "file_read", "sysinfo", "memory_recall"):
        assert not strict.judge(tool, {"command": "ls", "path": "notes.md"}, routine="x").allows
    assert strict.judge("finish", {}, routine="x").allows


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ('defualt = "deny"', "defualt: unknown key"),
        ('default = "allow"', 'default: expected "deny" or "ask" (found "allow")'),
        ("[limits]\nshell_seconds = 0", "limits.shell_seconds: must be at least 1"),
        ("[limits]\nshell_secnods = 5", "limits.shell_secnods: unknown key"),
        (
            '[[rule]]\ntool = "shel"\neffect = "deny"',
            'rule[0].tool: no such tool (found "shel"); did you mean "shell"?',
        ),
        ('[[rule]]\ntool = "shell"\neffect = "alow"\nargv = ["ls"]', "rule[0].effect: expected"),
        ('[[rule]]\ntool = "shell"\nargv = ["ls"]', "rule[0].effect: is missing"),
        (f'{ALLOW_SHELL}argv = ["ls"]\nregex = "x"', "rule[0].regex: unknown key"),
        (f"{ALLOW_SHELL}argv = [[]]", "rule[0].argv"),
        (f'{ALLOW_SHELL}argv = "ls"', "rule[0].argv"),
        (ALLOW_SHELL, "rule[0]: would allow every program"),
        (
            f'{ALLOW_SHELL}argv = ["/usr/bin/ls"]',
            'programs go by their plain names (found "/usr/bin/ls"); write "ls"',
        ),
        (f'{ALLOW_SHELL}argv = ["bash"]', "runs whatever it is told to"),
        (f'{ALLOW_SHELL}argv = [["ls", "env"]]', "runs whatever it is told to"),
        (f'{ALLOW_SHELL}argv = ["make"]\nprofile = "read-only"', "does not know this program"),
        (f'{ALLOW_SHELL}argv = ["make"]\npaths = ["a/**"]', "known only with a profile"),
        (
            f'{ALLOW_SHELL}argv = ["ls"]\nprofile = "readonly"',
            'rule[0].profile: expected "read-only"',
        ),
        (
            '[[rule]]\ntool = "shell"\neffect = "deny"\nprofile = "read-only"',
            "would deny harmless forms",
        ),
        ('[[rule]]\ntool = "*"\neffect = "allow"', "would allow every tool"),
        (
            '[[rule]]\ntool = "file_read"\neffect = "allow"\nargv = ["x"]',
            "shell, git, script, routine and config have argv",
        ),
        (
            '[[rule]]\ntool = "file_read"\neffect = "allow"\nhosts = ["a.b"]',
            "only rules for the tool http_request have",
        ),
        ('[[rule]]\ntool = "http_request"\neffect = "allow"', "would allow every host there is"),
        (
            '[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = ["http://a.b"]',
            "rule[0].hosts[0]",
        ),
        ('[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = ["127.1"]', "written oddly"),
        (
            '[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = ["a.b"]\nmethods = ["get"]',
            "rule[0].methods[0]",
        ),
        (
            (
                '[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = ["a.b"]\nnetworks = '
                '["10.0.0.1/8"]'
            ),
            "has host bits set",
        ),
        (
            (
                '[[rule]]\ntool = "http_request"\neffect = "deny"\nhosts = ["a.b"]\nnetworks = '
                '["10.0.0.0/8"]'
            ),
            "this rule forbids",
        ),
        (
            '[[rule]]\ntool = "file_read"\neffect = "allow"\nprofile = "read-only"',
            "only rules for the tool shell",
        ),
        ('[[rule]]\ntool = "sysinfo"\neffect = "allow"\npaths = ["x"]', "sysinfo acts on no file"),
        (
            '[[rule]]\ntool = "sysinfo"\neffect = "allow"\nmatch = ["x"]',
            "takes no command and no path",
        ),
        (
            '[[rule]]\ntool = "file_read"\neffect = "allow"\npaths = ["[ab]"]',
            "rule[0].paths[0]: knows * ? and **",
        ),
        (
            '[[rule]]\ntool = "file_read"\neffect = "allow"\npaths = ["~/x"]',
            "relative to the workspace",
        ),
        (
            '[[rule]]\ntool = "*"\neffect = "deny"\npaths = ["src/**", "."]',
            "rule[0].paths: covers the workspace itself, and nothing in it",
        ),
        (
            '[[rule]]\ntool = "file_read"\neffect = "allow"\npaths = [".."]',
            "rule[0].paths[0]: is written relative to the workspace",
        ),
        ('[paths]\nread = ["relative"]', "paths.read[0]"),
        ('[routine.x]\ntools = ["shel"]', "routine.x.tools: no such tool"),
        ('[routine.x]\nallow = ["shell"]', "routine.x.allow: unknown key"),
        ("[routine.x.limits]\ntool_calls = -1", "routine.x.limits.tool_calls: must be at least 0"),
        (
            '[[rule]]\ntool = "file_write"\neffect = "allow"\nmatch = ["../x"]',
            "lies outside the workspace",
        ),
        (f'{ALLOW_SHELL}argv = ["ls"]\nmatch = ["ls $HOME"]', "$ is not expanded"),
        (f'{ALLOW_SHELL}argv = ["ls"]\nmatch = ["cat x"]', "the rule does not cover it"),
        (
            f'{ALLOW_SHELL}argv = ["mytool", ["run", "list"]]\nmatch = ["mytoool run"]',
            "the rule does not cover it: its argv is mytool list|run",
        ),
        (f'{ALLOW_SHELL}argv = ["ls"]\nmatch = ["ls; rm x"]', "default says deny"),
        (
            f'{ALLOW_SHELL}argv = ["ls"]\nnot_match = ["ls -a"]',
            "rule[0].not_match: the rule covers it",
        ),
        (
            f'{ALLOW_SHELL}argv = ["sort"]\nprofile = "read-only"\nmatch = ["sort -o x a"]',
            "sort -o is not an option",
        ),
        (
            f'{ALLOW_SHELL}argv = ["git"]\nmatch = ["git push"]\n{DENY_PUSH}',
            "rule 2 (shell: git push) says deny",
        ),
    ],
)
def test_fault_is_reported_with_its_place_and_correction(
    write_policy: Write, text: str, expected_text: str
) -> None:
    assert any(expected_text in fault for fault in faults(write_policy, text)), faults(
        write_policy, text
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("version = ", "policy: is not TOML: Invalid value (at end of document)"),
        (f"version = 1{'0' * 5000}", "policy:1: is a number with more digits than can be read"),
    ],
)
def test_the_text_of_a_policy_to_be_tried_that_cannot_be_read_is_one_fault(
    tmp_path: Path, text: str, fault: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        Policy.read(text, workspace=tmp_path)
    assert str(refusal.value).startswith(fault)
    assert len(refusal.value.faults) == 1


def test_all_faults_are_reported_together(write_policy: Write) -> None:
    text = (
        'defualt = "deny"\n[limits]\nshell_seconds = 0\n[[rule]]\ntool = "shel"\neffect = "deny"\n'
    )
    assert len(faults(write_policy, text)) == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('tool = "*"\neffect = "deny"', 'tool = "file_read"\neffect = "allow"'),
        (
            'tool = "shell"\neffect = "deny"\nargv = ["git"]',
            'tool = "shell"\neffect = "allow"\nargv = ["git", "log"]',
        ),
        (
            'tool = "shell"\neffect = "ask"\nargv = ["git"]',
            'tool = "shell"\neffect = "allow"\nargv = ["git", "log"]',
        ),
        (
            'tool = "shell"\neffect = "allow"\nargv = [["a", "b"]]',
            'tool = "shell"\neffect = "allow"\nargv = ["a", "x"]',
        ),
        (
            'tool = "file_read"\neffect = "deny"\npaths = ["a/**"]',
            'tool = "file_read"\neffect = "allow"\npaths = ["a/b/*"]',
        ),
        (
            'tool = "file_read"\neffect = "allow"',
            'tool = "file_read"\neffect = "allow"\nroutines = ["x"]',
        ),
        (
            'tool = "file_*"\neffect = "allow"',
            'tool = "file_read"\neffect = "allow"\npaths = ["a"]',
        ),
        (
            'tool = "shell"\neffect = "allow"\nargv = ["ls"]',
            'tool = "shell"\neffect = "allow"\nargv = ["ls"]\nprofile = "read-only"',
        ),
    ],
)
def test_a_rule_that_can_never_decide_is_an_error(
    write_policy: Write, first: str, second: str
) -> None:
    for text in (
        f"[[rule]]\n{first}\n[[rule]]\n{second}",
        f"[[rule]]\n{second}\n[[rule]]\n{first}",
    ):
        assert any("can never decide anything" in fault for fault in faults(write_policy, text))


def test_a_rule_that_adds_networks_for_a_host_of_another_rule_is_no_error(
    write_policy: Write,
) -> None:
    rule = '[[rule]]\ntool = "http_request"\n'
    policy = write_policy(
        f'{rule}effect = "allow"\nhosts = ["*.example.org"]\n'
        f'{rule}effect = "allow"\nhosts = ["nas.example.org"]\nnetworks = ["192.168.1.0/24"]\n'
    )
    networks = policy.networks(parse_target("https://nas.example.org/"), "x")
    assert [str(network) for network in networks] == ["192.168.1.0/24"]
    assert policy.networks(parse_target("https://www.example.org/"), "x") == ()


@pytest.mark.parametrize(
    ("misspelt", "real_faults"),
    [
        ('efect = "allow"', ["rule[0].effect: is missing", "rule[0].efect: unknown key"]),
        ('effect = "alow"', ["rule[0].effect: expected"]),
        ('effect = "allow"\npahts = ["a"]', ["rule[0].pahts: unknown key"]),
    ],
)
def test_a_misspelt_rule_is_the_only_one_that_is_reported(
    write_policy: Write, misspelt: str, real_faults: list[str]
) -> None:
    neighbours = "".join(
        f'[[rule]]\ntool = "file_read"\neffect = "allow"\npaths = ["{path}"]\n'
        for path in ("notes/**", "reports/a.md")
    )
    problems = faults(write_policy, f'[[rule]]\ntool = "file_read"\n{misspelt}\n{neighbours}')
    assert len(problems) == len(real_faults)
    for fault, expected in zip(problems, real_faults, strict=True):
        assert expected in fault


def test_a_misspelt_key_of_a_rule_is_not_reported_as_missing(write_policy: Write) -> None:
    text = '[[rule]]\ntool = "http_request"\neffect = "allow"\nhots = ["api.example.org"]'
    (fault,) = faults(write_policy, text)
    assert fault.endswith('did you mean "hosts"?')


def test_duplicate_rules_are_reported_once(write_policy: Write) -> None:
    twin = '[[rule]]\ntool = "file_read"\neffect = "allow"\n'
    assert len(faults(write_policy, twin * 2)) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            'tool = "shell"\neffect = "allow"\nargv = ["git"]',
            'tool = "shell"\neffect = "deny"\nargv = ["git", "push"]',
        ),
        (
            'tool = "file_read"\neffect = "allow"',
            'tool = "file_read"\neffect = "deny"\npaths = [".env"]',
        ),
        (
            'tool = "file_read"\neffect = "allow"\nroutines = ["a"]',
            'tool = "file_read"\neffect = "allow"\nroutines = ["b"]',
        ),
        (
            'tool = "shell"\neffect = "ask"\nargv = ["a", "b"]',
            'tool = "shell"\neffect = "allow"\nargv = ["a"]',
        ),
    ],
)
def test_a_deny_rule_for_part_of_an_allow_rule_is_no_fault(
    write_policy: Write, first: str, second: str
) -> None:
    assert faults(write_policy, f"[[rule]]\n{first}\n[[rule]]\n{second}") == []


# --- whose file it is


@pytest.mark.parametrize(
    ("mode", "is_refused"), [(0o600, False), (0o644, False), (0o666, True), (0o602, True)]
)
def test_a_policy_writable_by_others_is_refused(
    tmp_path: Path, mode: int, is_refused: bool
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("version = 1\n")
    path.chmod(mode)
    if is_refused:
        with pytest.raises(ConfigError, match="can be written by everybody; chmod o-w"):
            Policy.load(path, workspace=tmp_path / "workspace")
    else:
        Policy.load(path, workspace=tmp_path / "workspace")


def test_a_group_writable_policy_is_accepted_if_the_group_has_no_other_member(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("version = 1\n")
    path.chmod(0o664)  # what umask 002 gives, on systems where each user has a group of his own
    import grp
    import pwd

    me = pwd.getpwuid(os.geteuid()).pw_name
    group = grp.getgrgid(path.stat().st_gid)
    members = {
        *group.gr_mem,
        *(account.pw_name for account in pwd.getpwall() if account.pw_gid == group.gr_gid),
    } - {me, "root"}
    if members:
        with pytest.raises(ConfigError, match="can be written by the members of group"):
            Policy.load(path, workspace=tmp_path / "workspace")
    else:
        Policy.load(path, workspace=tmp_path / "workspace")


@pytest.mark.root
def test_a_policy_of_another_user_or_group_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("version = 1\n")
    os.chown(path, 65534, 0)
    with pytest.raises(ConfigError, match="belongs to nobody; chown it to root"):
        Policy.load(path, workspace=tmp_path / "workspace")
    os.chown(path, 0, 65534)
    path.chmod(0o664)
    with pytest.raises(ConfigError, match=r"can be written by (the members of )?group"):
        Policy.load(path, workspace=tmp_path / "workspace")


def test_a_policy_in_a_folder_writable_by_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / "policy.toml").write_text("version = 1\n")
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="open: can be written by everybody"):
        Policy.load(folder / "policy.toml", workspace=tmp_path / "workspace")
    folder.chmod(0o1777)  # like /tmp, where nobody can replace what is another's
    Policy.load(folder / "policy.toml", workspace=tmp_path / "workspace")


def test_a_linked_policy_is_checked_at_its_real_file(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("version = 1\n")
    (tmp_path / "policy.toml").symlink_to("real.toml")
    Policy.load(tmp_path / "policy.toml", workspace=tmp_path / "workspace")
    (tmp_path / "real.toml").chmod(0o666)
    with pytest.raises(ConfigError, match="can be written by everybody"):
        Policy.load(tmp_path / "policy.toml", workspace=tmp_path / "workspace")


def test_missing_policy_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        Policy.load(tmp_path / "policy.toml", workspace=tmp_path)


def test_a_policy_file_within_reach_of_tools_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("version = 1\n")
    with pytest.raises(
        ConfigError, match="which no tool may reach; give agents a folder of their own"
    ):
        Policy.load(path, workspace=tmp_path)
    state = tmp_path / "state"
    Policy.load(path, workspace=state / "workspace", private=[state])
    with pytest.raises(ConfigError, match="no tool may reach"):
        Policy.load(path, workspace=state, private=[state / "agentd.db"])
    path.write_text(f'version = 1\n[paths]\nread = ["{tmp_path}"]\n')
    with pytest.raises(ConfigError, match=r"paths\.read"):
        Policy.load(path, workspace=tmp_path / "workspace")


# --- files that nobody wrote

_WORDS = st.sampled_from(
    [
        "shell",
        "file_read",
        "*",
        "deny",
        "ask",
        "allow",
        "read-only",
        "ls",
        "git",
        "a/**",
        "",
        "x",
        "~",
    ]
)
_VALUES = st.recursive(
    st.one_of(_WORDS, st.integers(-1, 99), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=3)
    ),
    max_leaves=5,
)
_RULE_KEYS = (
    "tool",
    "effect",
    "argv",
    "profile",
    "paths",
    "routines",
    "reason",
    "match",
    "not_match",
    "tainted",
    "x",
)
_FILES = st.fixed_dictionaries(
    {"version": st.sampled_from([1, 1, 1, 2])},
    optional={
        "default": _VALUES,
        "limits": _VALUES,
        "paths": _VALUES,
        "routine": _VALUES,
        "rule": st.lists(
            st.dictionaries(st.sampled_from(_RULE_KEYS), _VALUES, max_size=5), max_size=3
        ),
    },
)


@scaled_settings(300)
@given(data=_FILES)
def test_no_random_policy_allows_a_call_without_an_allow_rule(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, object]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "random"
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / "policy.toml"
    path.write_text(tomli_w.dumps(data))
    try:
        policy = Policy.load(path, workspace=folder / "workspace")
    except ConfigError:
        return
    for tool, arguments in (
        ("shell", {"command": "touch x"}),
        ("file_write", {"path": "x"}),
        ("http_request", {}),
    ):
        verdict = policy.judge(tool, arguments, routine="x")
        allowing = [
            rule for rule in policy.rules if rule.effect == "allow" and rule.is_for(tool, "x")
        ]
        assert not verdict.allows or allowing


_LINES = SHIPPED.read_text().splitlines()


@scaled_settings(60)
@given(left_out=st.sets(st.sampled_from(range(len(_LINES))), min_size=1, max_size=6))
def test_the_shipped_policy_with_lost_lines_allows_no_more_tools(
    tmp_path_factory: pytest.TempPathFactory, left_out: set[int]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "lost"
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / "policy.toml"
    path.write_text("\n".join(line for number, line in enumerate(_LINES) if number not in left_out))
    try:
        policy = Policy.load(path, workspace=folder / "workspace")
    except ConfigError:
        return
    for line in ("touch x", "curl http://x.invalid", "sh -c id", "python3 -c 1"):
        assert not policy.judge("shell", {"command": line}, routine="x").allows
    assert not policy.judge("http_request", {"url": "http://x.invalid"}, routine="x").allows
    assert not policy.judge("file_read", {"path": "/etc/passwd"}, routine="x").allows


def test_a_tool_that_may_not_be_repeated_is_declared_as_changing_something() -> None:
    registry = register_tools()
    for name in registry.names():
        definition = registry.get_function(name)
        assert definition is not None
        assert TOOLS[name].changes or definition.read_only or definition.idempotent, name
