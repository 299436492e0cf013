"""`agentd validate`: one command, every problem, before anything starts."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from daemon.app.commands.init import init
from daemon.app.commands.validate import TOOLS, Checkup, check_all, examine
from daemon.app.installation import Installation
from daemon.app.main import main
from daemon.app.wiring import open_app
from daemon.definitions.config.loading import load_config
from daemon.errors import ConfigError
from daemon.models import Status
from daemon.telemetry.redaction import Secrets
from daemon.testing import TestApp
from tests.terminal_stream import Terminal

GATHER = '[[gather]]\nname = "machine"\ntool = "sysinfo"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the shipped files."""
    init(tmp_path)
    return tmp_path


def test_every_problem_of_every_file_is_printed_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.toml").write_text('provider = "offlin"\n[log]\nlevel = "loud"\n')
    (folder / "policy.toml").write_text("versoin = 1\n")
    (folder / "routines" / "broken.toml").write_text("enabled = maybe\n")
    (folder / "routines" / "typo.toml").write_text('[run]\nprompt = "x"\nprovder = "offline"\n')
    assert check_all(folder / "config.toml", env={}) == 1
    *problems, summary = capsys.readouterr().out.splitlines()
    for part in (
        "config.toml:1: provider",
        "config.toml:3: log.level",
        "policy.toml",
        "broken.toml:1: is not TOML",
        "provder",
    ):
        assert any(part in problem for problem in problems), part
    assert summary == f"{len(problems)} problems in 4 files"


def test_at_a_terminal_a_long_problem_is_broken_between_words(folder: Path) -> None:
    (folder / "config.toml").write_text(f'provider = "{"no such model " * 3}"\n')
    with Terminal() as terminal, redirect_stdout(terminal):
        assert check_all(folder / "config.toml", env={}) == 1
        lines = terminal.getvalue().splitlines()
    *problem, summary = lines
    assert summary == "1 problem in 1 file"
    assert len(problem) > 1
    assert all(len(line) <= 80 for line in problem if " " in line.strip())
    assert all(line.startswith("  ") for line in problem[1:])


def test_problems_of_a_file_are_printed_in_the_order_of_its_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "routines" / "typo.toml").write_text(
        'descriptoin = "x"\n[run]\npromt = "x"\ntimeout = "-3s"\n[[deliver]]\nto = "nowhere"\n'
    )
    assert check_all(folder / "config.toml", env={}) == 1
    *problems, _ = capsys.readouterr().out.splitlines()
    lines = [int(problem.split(":")[1]) for problem in problems]
    assert lines == sorted(lines)
    assert len(lines) >= 4


@pytest.mark.parametrize(
    "edit", ['[targets.box]\nurl = "nonsense"\n', "[log\n"], ids=["a target", "no TOML"]
)
def test_a_fault_of_the_config_makes_no_faults_of_routines(folder: Path, edit: str) -> None:
    (folder / "token").write_text("1:a")
    (folder / "token").chmod(0o600)
    (folder / "config.toml").write_text(
        f'{edit}[providers.own]\nkind = "scripted"\n'
        '[chat.phone]\nkind = "telegram"\ntoken_file = "token"\nallow = [1]\n'
    )
    (folder / "routines/r.toml").write_text(
        '[run]\nprompt = "x"\nprovider = "own"\n'
        '[[deliver]]\nto = "box"\n[[deliver]]\nto = "phone"\n'
    )
    faults = check_folder(folder).faults
    assert faults
    assert {fault.file for fault in faults} == {f"{folder}/config.toml"}


def test_validate_without_problems_lists_the_checked_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_all(folder / "config.toml", env={}) == 0
    assert capsys.readouterr().out == (
        f"no problems in {folder}/config.toml, {folder}/policy.toml,"
        " 3 routines (daily-report, heartbeat, inbox-watch)\n"
    )


@pytest.mark.parametrize("table", ["gate", "check"])
def test_validate_fails_where_the_policy_denies_the_command_that_every_run_needs(
    folder: Path, table: str
) -> None:
    for name, command in (
        ("may", '["test", "-s", "inbox/todo"]'),
        ("may-not", '["rm", "-rf", "inbox"]'),
    ):
        (folder / f"routines/{name}.toml").write_text(
            f'[run]\nprompt = "x"\n[{table}]\ncommand = {command}\n'
            f'{GATHER}[[deliver]]\nto = "log"\n'
        )
    examination = check_folder(folder)
    (fault,) = examination.faults
    assert (fault.file, fault.key) == (f"{folder}/routines/may-not.toml", f"{table}.command")
    assert fault.found == "rm -rf inbox"
    assert fault.problem.startswith("every run of may-not fails: the policy denies this, by ")
    assert "required" not in fault.hint
    assert examination.notes == []


PEEK = """
[run]
mode = "script"
[[gather]]
name = "users"
tool = "file_read"
args = { path = "PATH" }
required = REQUIRED
[[deliver]]
to = "log"
"""


def test_validate_fails_where_the_policy_denies_what_every_run_has_to_gather(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    routine = folder / "routines/peek.toml"
    routine.write_text(PEEK.replace("PATH", "/etc/passwd").replace("REQUIRED", "true"))
    assert check_all(folder / "config.toml", env={}) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line == (
        f"{routine}:4: gather[0]: every run of peek fails: the policy denies this, by a built-in "
        "rule: /etc/passwd lies outside what may be read (found users); what would be "
        "allowed: agentctl policy explain --routine peek --tool file_read -- /etc/passwd; or write "
        "required = false if the report can do without it"
    )
    assert summary == "1 problem in 1 file"

    routine.write_text(PEEK.replace("PATH", "/etc/passwd").replace("REQUIRED", "false"))
    assert check_all(folder / "config.toml", env={}) == 0, "the run goes on without it"
    note = capsys.readouterr().out.splitlines()[0]
    assert note.startswith(f"note: {routine}:4: gather[0]: the policy does not allow it: ")


def test_validate_names_the_rule_that_denies_what_a_routine_gathers(folder: Path) -> None:
    policy = folder / "policy.toml"
    rule = '[[rule]]\ntool = "file_read"\neffect = "EFFECT"\npaths = ["letters/**"]\n'
    shipped_policy = policy.read_text()
    routine = folder / "routines/peek.toml"
    routine.write_text(PEEK.replace("PATH", "letters/a.txt").replace("REQUIRED", "true"))
    for text in (
        f"{shipped_policy}\n{rule.replace('EFFECT', 'deny')}",
        f"{shipped_policy}\n{rule.replace('EFFECT', 'ask')}".replace(
            'on_ask = "park"', 'on_ask = "deny"'
        ),
    ):
        policy.write_text(text)
        (fault,) = check_folder(folder).faults
        assert re.search(r"denies this, by rule \d+ \(file_read: letters/\*\*\)", fault.problem)
        command = "agentctl policy explain --routine peek --tool file_read -- letters/a.txt"
        assert command in fault.hint


async def test_a_routine_that_validate_calls_failing_fails(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine("peek", PEEK.replace("PATH", "/etc/passwd").replace("REQUIRED", "true"))
    (fault,) = examine(tmp_path / "config.toml", env={}, state=app.state, tools=TOOLS).faults
    async with app:
        run = await app.run("peek")
        assert run.status is Status.FAILED
        assert run.detail.startswith("could not gather users: /etc/passwd lies outside")
        assert "/etc/passwd lies outside" in fault.problem


def test_validate_reports_a_gather_step_that_a_person_must_approve(folder: Path) -> None:
    policy = folder / "policy.toml"
    policy.write_text(
        f'{policy.read_text()}\n[[rule]]\ntool = "file_read"\neffect = "ask"\n'
        'paths = ["letters/**"]\n'
    )
    (folder / "routines/peek.toml").write_text(
        '[run]\nprompt = "x"\n[[gather]]\nname = "a"\ntool = "file_read"\n'
        'args = { path = "letters/a.txt" }\n[[deliver]]\nto = "log"\n'
    )
    notes = examine(folder / "config.toml", env={}, state=folder / "state", tools=TOOLS).notes
    (note,) = [note for note in notes if "gather[0]" in note]
    assert "gather[0]: each run waits until a person has approved it (rule " in note


@pytest.mark.parametrize(
    ("rule", "host", "networks"),
    [
        ('hosts = ["127.0.0.1:8091"]', "127.0.0.1", '["127.0.0.1/32"]'),
        ('hosts = ["localhost:8091"]', "localhost", '["127.0.0.1/32", "::1/128"]'),
        ('urls = ["http://[fd00::5]/a"]', "fd00::5", '["fd00::5/128"]'),
    ],
)
async def test_validate_says_which_line_lets_a_rule_reach_a_private_address(
    folder: Path, capsys: pytest.CaptureFixture[str], rule: str, host: str, networks: str
) -> None:
    policy, shipped_policy = folder / "policy.toml", (folder / "policy.toml").read_text()
    rule = f'\n[[rule]]\ntool = "http_request"\neffect = "allow"\n{rule}\n'
    policy.write_text(shipped_policy + rule)
    assert check_all(folder / "config.toml", env={}) == 0
    note = capsys.readouterr().out.splitlines()[0]
    assert note.startswith(f"note: {policy}: rule ")
    assert f"no request to {host} is made" in note
    assert note.endswith(f"add networks = {networks} to the rule")
    line = f"networks = {networks}\n"
    policy.write_text(shipped_policy + rule + line)
    assert check_folder(folder).notes == []
    for names in ("8.8.8.8", "api.example.org", "*.example.org"):
        policy.write_text(
            f'{shipped_policy}\n[[rule]]\ntool = "http_request"\neffect = "allow"\n'
            f'hosts = ["{names}"]\n'
        )
        assert check_folder(folder).notes == []


def test_validate_fails_where_a_daemon_would_not_start(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.toml").write_text(
        'provider = "claude"\n[providers.claude]\nkind = "claude"\nmodel = "m"\n'
        'api_key_env = "ANTHROPIC_API_KEY"\n'
        '[targets.ops]\nkind = "mail"\nurl_file = "mail.url"\n'
    )
    assert check_all(folder / "config.toml", env={}) == 1
    *notes, summary = capsys.readouterr().out.splitlines()
    assert summary.startswith("2 things are missing on this machine: a daemon would not start")
    config = folder / "config.toml"
    variable = (
        "the environment variable ANTHROPIC_API_KEY is not set; export it where agentd starts"
    )
    assert notes[0] == f"note: {config}:5: providers.claude.api_key_env: {variable}"
    assert notes[1].startswith(f"note: {config}:8: targets.ops.url_file: no such file")
    assert check_all(folder / "config.toml", env={}, elsewhere=True) == 0


EMBEDDER = (
    '[memory]\nembedder = "openai_compatible"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
)
SERVER = '[mcp.t]\nurl = "http://127.0.0.1:1/"\n'
BOT = '[chat.bot]\nkind = "telegram"\nallow = [1]\n'
STARTS = {
    "nothing besides": "",
    "a search with its key": '[search]\nkind = "tavily"\napi_key_file = "key"\n',
    "a search whose key file is missing": '[search]\nkind = "tavily"\napi_key_file = "no"\n',
    "a search whose variable is not set": '[search]\nkind = "tavily"\napi_key_env = "NOPE"\n',
    "an MCP server with its key": f'{SERVER}api_key_file = "key"\n',
    "an MCP server whose key file is missing": f'{SERVER}api_key_file = "no"\n',
    "an MCP server whose variable is not set": f'{SERVER}api_key_env = "NOPE"\n',
    "an embedder with its key": f'{EMBEDDER}api_key_file = "key"\n',
    "an embedder whose key file is missing": f'{EMBEDDER}api_key_file = "no"\n',
    "a database whose file is missing": '[store]\nurl_file = "no"\n',
    "a database whose variable is not set": '[store]\nurl_env = "NOPE"\n',
    "a database whose address is none": '[store]\nurl_file = "key"\n',
    "a workspace that is a folder": 'workspace = "skills"\n',
    "a workspace that is made": 'workspace = "new/folder"\n',
    "a workspace that is a file": 'workspace = "key"\n',
    "a workspace in a file": 'workspace = "key/folder"\n',
    "a workspace that is a link to nothing": 'workspace = "link"\n',
    "a target without its address": '[targets.ops]\nkind = "webhook"\nurl_file = "no"\n',
    "a chat with its token": f'{BOT}token_file = "key"\n',
    "a chat without its token": f'{BOT}token_file = "no"\n',
    "webhooks without their secret": '[hooks]\nsecret_file = "no"\n',
    "a provider that nobody uses and nobody knows": '[providers.p]\nkind = "nomod:Cls"\n',
    "a provider that nobody uses, without its key": (
        '[providers.p]\nkind = "claude"\nmodel = "m"\napi_key_file = "no"\n'
    ),
    "an unknown provider that answers": 'provider = "p"\n[providers.p]\nkind = "nomod:Cls"\n',
    "a provider without its key that answers": (
        'provider = "p"\n[providers.p]\nkind = "claude"\nmodel = "m"\napi_key_env = "NOPE"\n'
    ),
}


@pytest.mark.parametrize("config", STARTS.values(), ids=STARTS)
async def test_validate_fails_exactly_where_the_daemon_does_not_start(
    tmp_path: Path, config: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "skills").mkdir()
    app = TestApp(tmp_path, config=config)
    app.write("key", "tvly-0123456789")
    app.write_routine("r", '[run]\nprompt = "x"\n')
    code = check_all(tmp_path / "config.toml", env={}, state=app.state)
    has_started = True
    try:
        async with app:
            pass
    except ConfigError:
        has_started = False
    assert code == (0 if has_started else 1)


def test_validate_names_each_key_without_which_no_daemon_starts(folder: Path) -> None:
    (folder / "config.toml").write_text(
        f'{SERVER}api_key_env = "NOPE"\n[search]\nkind = "tavily"\napi_key_file = "no"\n'
        f'{EMBEDDER}api_key_file = "no"\n[store]\nurl_env = "NOPE"\n'
    )
    missing = check_folder(folder).missing_parts
    places = (":6: search", ":3: mcp.t", ":11: memory", ":13: store")
    for note, place in zip(missing, places, strict=True):
        assert f"config.toml{place}." in note
    assert check_all(folder / "config.toml", env={}, elsewhere=True) == 0


def test_a_provider_that_nobody_uses_is_a_note_and_one_of_a_routine_a_fault(folder: Path) -> None:
    (folder / "config.toml").write_text('[providers.p]\nkind = "nomod:Cls"\n')
    (note,) = check_folder(folder).notes
    assert "config.toml:2: providers.p.kind" in note
    (folder / "routines/r.toml").write_text('[run]\nprompt = "x"\nprovider = "p"\n')
    assert [fault.key for fault in check_folder(folder).faults] == ["providers.p.kind"]


def test_validate_refuses_a_policy_that_opens_the_scripts_as_the_daemon_does(folder: Path) -> None:
    policy = folder / "policy.toml"
    text = policy.read_text()
    assert 'read = ["/var/log",' in text
    policy.write_text(text.replace("read = [", f'read = ["{folder / "scripts"}", ', 1))
    (folder / "scripts").mkdir(exist_ok=True)
    (fault,) = examine(folder / "config.toml", env={}, state=folder / "state").faults
    assert "which no tool may reach" in fault.problem


def test_validate_prints_problems_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "routines" / "typo.toml").write_text('[run]\nprompt = "x"\nprovider = "claud"\n')
    assert check_all(folder / "config.toml", json=True, env={}) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["faults"] == [
        {
            "file": str(folder / "routines/typo.toml"),
            "key": "run.provider",
            "found": '"claud"',
            "problem": "no such provider in config.toml",
            "hint": "known: offline",
            "line": 3,
        }
    ]
    assert answer["summary"] == "1 problem in 1 file"


def test_validate_checks_routines_despite_a_broken_config(folder: Path) -> None:
    (folder / "routines").rename(folder / "mine")
    (folder / "mine/typo.toml").write_text(
        '[run]\nprompt = "x"\nprovider = "a"\nfallback = ["b"]\n'
    )
    (folder / "config.toml").write_text('routines = "mine"\nx = 1\n[providers.a]\nkind = "clod"\n')
    examination = examine(folder / "config.toml", env={}, state=folder)
    assert [fault.key for fault in examination.faults] == [
        "x",
        "providers.a.kind",
        "run.fallback[0]",
    ]


def test_a_missing_api_key_is_a_note_of_validate(folder: Path) -> None:
    text = 'provider = "claude"\n[providers.claude]\nkind = "claude"\nmodel = "m"\n[providers.unused]\n'  # noqa: E501
    (folder / "config.toml").write_text(text + 'kind = "openai"\nmodel = "m"\n')
    examination = examine(folder / "config.toml", env={}, state=folder)
    assert examination.faults == []
    (note,) = examination.notes
    assert ".toml:2: providers.claude: has no API key" in note


def test_validate_reports_an_unusable_webhook_secret(folder: Path) -> None:
    (folder / "config.toml").write_text('[hooks]\nsecret_file = "hooks.secret"\n')
    (fault,) = examine(folder / "config.toml", env={}, state=folder).faults
    path = folder / "hooks.secret"
    assert (fault.key, fault.problem) == ("hooks.secret_file", f"no such file: {path}")
    assert f"cat > {path}" in fault.hint


def test_a_note_on_a_key_that_the_environment_sets_names_no_line(folder: Path) -> None:
    (folder / "config.toml").write_text('[targets.ops]\nkind = "webhook"\nurl_env = "OPS_HOOK"\n')
    env = {"AGENTD_TARGETS__OPS__URL_ENV": "OTHER_HOOK"}
    notes = examine(folder / "config.toml", env=env, state=folder / "state").notes
    place = f"{folder / 'config.toml'}: targets.ops.url_env: "
    assert [note.startswith(place) for note in notes if "is not set" in note] == [True]


def test_validate_names_files_that_are_probably_meant_to_be_routines(folder: Path) -> None:
    routines = folder / "routines"
    (routines / "report.yaml").write_text("run: x\n")
    (routines / "notes.md").write_text("mine")
    (routines / ".draft.toml").write_text("")
    (routines / "old").mkdir()
    (routines / "old/week.toml").write_text("")
    (routines / "pictures").mkdir()
    examination = examine(folder / "config.toml", env={}, state=folder / "state")
    assert examination.faults == []
    assert examination.notes == [
        f"{routines}/old: routines in a folder of their own are not read",
        f"{routines}/report.yaml: is not read; a routine is a file report.toml",
    ]


@pytest.mark.parametrize(
    ("kind", "address", "problem"),
    [
        ("apprise", "tgram://nonsense", "apprise knows no service by this tgram: URL"),
        ("apprise", "ntfys://ntfy.sh/topic", ""),
        ("mail", "tgram://nonsense", "it begins neither with mailto:// nor with mailtos://"),
        ("mail", "mailto://relay.lan:25?from=a@example.org&to=b@example.org", ""),
        ("webhook", "hooks.example.org/agentd", "its address is none of http or https with a host"),
        ("webhook", "https://hooks.example.org/agentd", ""),
        ("ping", "https://[::1", "its address is none of http or https with a host"),
        ("ping", "http://hc.lan:8000/ping/1", ""),
    ],
)
def test_validate_names_an_address_to_which_nothing_can_be_sent(
    folder: Path, kind: str, address: str, problem: str
) -> None:
    if kind == "apprise":
        pytest.importorskip("apprise", reason="needs pip install 'agentd-routines[notify]'")
    (folder / "config.toml").write_text(
        f'[targets.chat]\nkind = "{kind}"\nurl_env = "CHAT_ADDRESS"\n'
    )
    env = {"CHAT_ADDRESS": address}
    place = f"{folder / 'config.toml'}:1: targets.chat: "
    notes = examine(folder / "config.toml", env=env, state=folder / "state").notes
    assert [note for note in notes if "targets.chat" in note] == (
        [note for note in notes if note.startswith(place) and problem in note] if problem else []
    )
    assert bool(notes) == bool(problem)


@pytest.mark.parametrize(
    ("run", "more", "has_note"),
    [
        ('mode = "agent"\ntools = ["sysinfo"]', "", True),
        ('mode = "agent"\ntools = ["http_request"]', '[dedupe]\nkey = "url"', True),
        ('mode = "agent"\ntools = ["sysinfo", "git"]\nrequired_tools = ["git"]', "", False),
        ('mode = "agent"\ntools = ["file_write", "memory_recall"]', "", False),
        (
            'mode = "agent"\ntools = ["file_read"]',
            '[[gather]]\nname = "machine"\ntool = "sysinfo"',
            False,
        ),
        ('mode = "agent"\ntools = ["file_read"]', '[trigger]\nwatch = ["inbox/*"]', False),
        (
            'mode = "agent"\ntools = ["file_read"]',
            '[[trigger]]\nwatch = ["inbox/*"]\n[[trigger]]\nwebhook = true',
            False,
        ),
        (
            'mode = "agent"\ntools = ["file_read"]',
            '[[trigger]]\nwatch = ["inbox/*"]\n[[trigger]]\ncron = "0 8 * * *"',
            True,
        ),
        ('mode = "agent"\ntools = ["file_read"]', '[trigger]\npace = "1h..6h"', True),
        ("", '[[gather]]\nname = "machine"\ntool = "sysinfo"', False),
    ],
)
def test_validate_says_where_an_answer_without_a_look_would_succeed(
    folder: Path, run: str, more: str, has_note: bool
) -> None:
    (folder / "routines/disks.toml").write_text(
        f'[run]\nprompt = "How full are the disks?"\n{run}\n{more}\n[[deliver]]\nto = "log"\n'
    )
    examination = examine(folder / "config.toml", env={}, state=folder / "state", tools=TOOLS)
    assert examination.faults == []
    notes = [
        note for note in examination.notes if "run.required_tools: nothing is gathered" in note
    ]
    assert len(notes) == has_note


@pytest.mark.parametrize(
    ("prompt", "more", "note"),
    [
        ("Plan my day.", "", "run.prompt: nothing is gathered: a model can only say what it knows"),
        ("Read http://a.example/x.", "", "gathered, and no run reads http://a.example/x: a model"),
        ("Plan my day.", 'mode = "agent"', ""),
        ("Plan my day.", GATHER, ""),
        ("Plan my day.", "[trigger]\nwebhook = true", ""),
    ],
)
def test_validate_says_where_a_model_is_asked_without_facts_or_tools(
    folder: Path, prompt: str, more: str, note: str
) -> None:
    (folder / "routines/day.toml").write_text(
        f'[run]\nprompt = "{prompt}"\n{more}\n[[deliver]]\nto = "log"\n'
    )
    examination = check_folder(folder)
    assert examination.faults == []
    notes = [text for text in examination.notes if "day.toml:2: run.prompt: " in text]
    assert len(notes) == bool(note) and note in "".join(notes)


def test_validate_reports_unknown_tools(folder: Path) -> None:
    examination = examine(
        folder / "config.toml",
        env={},
        state=folder,
        tools={"sysinf", "git", "file_list", "file_read"},
    )
    assert {fault.key for fault in examination.faults} == {"gather[0].tool"}


def test_validate_takes_the_name_of_a_routine_for_all_that_is_checked_with_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ("--config", str(folder / "config.toml"), "--state", str(folder / "state"))
    assert main(["validate", "heartbeat", *places]) == 0
    assert "no problems in " in capsys.readouterr().out
    (folder / "routines" / "heartbeat.toml").write_text("nope = 1\n")
    assert main(["validate", "heartbeat", *places]) == 1
    assert "heartbeat.toml:1: nope" in capsys.readouterr().out
    assert main(["validate", "nosuch", *places]) == 1
    assert "nosuch/config.toml: no such file" in capsys.readouterr().out


def test_validate_without_a_config_names_the_tried_paths(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check_all(None, env={}) == 1
    output = capsys.readouterr().out
    assert "config.toml: not found in " in output
    assert "/etc/agentd/config.toml" in output
    assert "`agentd init` writes one" in output


def test_validate_reports_invalid_provider_settings(folder: Path) -> None:
    (folder / "config.toml").write_text(
        'provider = "a"\n[ask]\nprovider = "b"\n'
        '[providers.a]\nkind = "claude"\nmodel = "m"\ncapabilities = { tool = true }\n'
        '[providers.b]\nkind = "openai"\nmodel = "m"\ncapabilities = { tols = true }\n'
        '[providers.c]\nkind = "open_source"\nmodel = "m"\nbase_url = '
        '"http://127.0.0.1:1/v1"\ntimeout = "9s"\n'
    )
    examination = examine(folder / "config.toml", env={}, state=folder)
    assert [fault.key for fault in examination.faults] == [
        "providers.a.capabilities.tool",
        "providers.b.capabilities.tols",
    ]
    assert {fault.file for fault in examination.faults} == {str(folder / "config.toml")}


async def test_validate_knows_the_tools_of_a_daemon(folder: Path) -> None:
    installation = Installation(
        config=load_config(folder / "config.toml"),
        state=folder / "state",
        socket=folder / "agentd.sock",
        log_file=folder / "agentd.jsonl",
        console=False,
        env={},
        secrets=Secrets(),
    )
    async with open_app(installation) as app:
        assert set(app.tools.registry.names()) == TOOLS


def test_validate_reports_a_relative_readable_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "policy.toml").write_text('version = 1\n[paths]\nread = ["etc"]\n')
    assert check_all(folder / "config.toml", env={}) == 1
    assert 'paths.read[0]: must begin with / or ~/ (found "etc")' in capsys.readouterr().out


GATHERING = """
[run]
prompt = "Sum up."
[[gather]]
name = "machine"
tool = "sysinfo"
args = {args}
required = {required}
[[deliver]]
to = "log"
"""


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ('{partz = ["load"]}', "partz"),
        ('{parts = ["cpu"]}', "parts"),
        ('{parts = "load", more = 1}', "more"),
    ],
)
def test_arguments_that_a_gathering_tool_does_not_take_are_a_problem(
    folder: Path, args: str, problem: str
) -> None:
    routine = folder / "routines/facts.toml"
    routine.write_text(GATHERING.format(args=args, required="true"))
    (fault,) = check_folder(folder).faults
    assert (fault.key, problem in fault.problem) == ("gather[0].args", True)
    assert fault.hint == "sysinfo takes parts"
    routine.write_text(GATHERING.format(args=args, required="false"))
    assert not check_folder(folder).faults, "the run goes on without it"


async def test_a_daemon_does_not_take_a_routine_whose_facts_cannot_be_had(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine("facts", GATHERING.format(args='{parts = ["cpu"]}', required="true"))
    app.write_routine("fine", GATHERING.format(args='{parts = ["load"]}', required="true"))
    async with app:
        assert list(app.faults) == ["facts"]
        assert "gather[0].args" in str(app.faults["facts"])


def test_tools_without_a_rule_and_reports_that_go_nowhere_are_notes(folder: Path) -> None:
    (folder / "routines/curious.toml").write_text(
        '[run]\nmode = "agent"\nprompt = "Look."\ntools = ["file_read", "http_request"]\n'
        'required_tools = ["file_read"]\n'
    )
    notes = [note for note in check_folder(folder).notes if "curious.toml" in note]
    assert [note.rpartition("/curious.toml")[2] for note in notes] == [
        ": no [[deliver]]: its report is kept in the journal only (agentctl inspect curious)",
        ":4: run.tools: no rule of the policy allows http_request: every call of it is denied",
    ]


def test_a_target_that_gets_each_report_twice_is_noted_with_its_line(folder: Path) -> None:
    places = (
        ("log", ""),
        ("file", 'path = "a.md"'),
        ("file", 'path = "b.md"'),
        ("log", 'on = ["failed"]'),
        ("desktop", 'on = ["failed"]'),
        ("desktop", 'on = ["succeeded"]'),
    )
    (folder / "routines/loud.toml").write_text(
        '[run]\nprompt = "x"\n'
        + "".join(f'[[deliver]]\nto = "{to}"\n{more}\n' for to, more in places)
    )
    notes = [note for note in check_folder(folder).notes if "twice" in note]
    assert [note.rpartition("/")[2] for note in notes] == [
        (
            "loud.toml:13: deliver[3].to: each report goes to log twice; take one of the two "
            "out, or give each an `on` of its own"
        )
    ]


def check_folder(folder: Path) -> Checkup:
    return examine(folder / "config.toml", env={}, state=folder / "state", tools=TOOLS)


def test_a_trigger_that_starts_nothing_any_more_is_noted_with_its_line(folder: Path) -> None:
    (folder / "config.toml").write_text('provider = "offline"\ntimezone = "Europe/Berlin"\n')
    (folder / "state/workspace").mkdir(parents=True)
    (folder / "state/workspace/always.ics").write_text(
        "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20200101\r\n"
        "RRULE:FREQ=DAILY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    triggers = {
        "gone": "at = 2020-01-01T09:00:00Z",
        "night": 'cron = "0 3 * * *"\nactive_hours = "08:00-20:00"',
        "weekend": 'cron = "0 9 * * sun"\nactive_days = "mon-fri"',
        "holiday": 'every = "1h"\nskip = ["always.ics"]',
        "off": "at = 2020-01-01T09:00:00Z\n",
        "fine": 'cron = "0 3 * * *"\nactive_hours = "02:00-04:00"',
        "past-and-webhook": "at = 2020-01-01T09:00:00Z\n[[trigger]]\nwebhook = true",
        "later": 'cron = "0 9 * * *"\nskip = ["2026-01-01/2026-12-31"]',
    }
    for name, trigger in triggers.items():
        enabled = "enabled = false\n" if name == "off" else ""
        (folder / f"routines/{name}.toml").write_text(
            f'{enabled}[[trigger]]\n{trigger}\n[run]\nprompt = "x"\n'
            f'{GATHER}[[deliver]]\nto = "log"\n'
        )
    notes = examine(folder / "config.toml", env={}, state=folder / "state").notes
    texts = sorted(note.rpartition("/")[2] for note in notes if "trigger" in note)
    leave_out = (
        "starts nothing: active_hours, active_days and skip leave out its slots; widen them, or "
        "move the slots"
    )
    past = "lies in the past; write a later moment, or remove the file"
    assert texts == [
        f"gone.toml:2: trigger.at: {past}",
        f"holiday.toml:2: trigger.every: {leave_out}",
        f"night.toml:2: trigger.cron: {leave_out}",
        f"past-and-webhook.toml:2: trigger[0].at: {past}",
        f"weekend.toml:2: trigger.cron: {leave_out}",
    ]


def test_keys_that_do_nothing_are_noted_with_their_line(folder: Path) -> None:
    (folder / "config.toml").write_text(
        '[digest]\nat = "07:00"\n[memory]\nmodel = "m"\n[search]\nbase_url = "http://h"\n'
        '[listen]\nhooks = true\n[hooks]\nsecret_file = "s"\n'
        '[mcp.x]\nurl = "http://h/mcp"\nenv = { A = "b" }\n'
        '[providers.p]\nkind = "command"\ncommand = ["true"]\nmax_tokens = 5\n'
        '[targets.mail]\nkind = "mail"\nurl = "sendmail://?to=ada@example.org"\n'
        '[targets.files]\nkind = "file"\npath = "out/{date}.md"\n'
    )
    (folder / "s").write_text("whsec_" + "A" * 40)
    (folder / "s").chmod(0o600)
    (folder / "routines" / "a.toml").write_text(
        f'[run]\nprompt = "x"\n{GATHER}[[deliver]]\nto = "mail"\npath = "a.md"\n'
    )
    notes = examine(folder / "config.toml", env={}, state=folder / "state", tools=TOOLS).notes
    for part in (
        'config.toml:2: digest.at: has no effect: without every = "day" or "week"',
        "config.toml:4: memory.model: has no effect: without embedder",
        "config.toml:6: search.base_url: has no effect: without kind",
        "config.toml:8: listen.hooks: has no effect: without address",
        "config.toml:13: mcp.x.env: has no effect: it is for a command",
        "config.toml:17: providers.p.max_tokens: has no effect: kind command does not take it",
        "config.toml:23: targets.files.path: unknown field {date}; known: {routine}",
        "a.toml:8: deliver[0].path: has no effect: mail is of kind mail",
    ):
        assert any(part in note for note in notes), (part, notes)
