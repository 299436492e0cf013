"""`[paths] secret = "deny"`: files whose names are those of keys, passwords and tokens are shown by
no tool, whatever a hostile model calls.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon.models import FunctionCall, Json, ToolContext
from daemon.policy.globs import Glob
from daemon.policy.policy import Policy
from daemon.policy.tables import load_table
from daemon.telemetry.redaction import Secrets
from daemon.tools.builtin import files, git, shell
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionRegistry
from tests.policy.conftest import SHIPPED
from tests.properties import combine, quick_share

PATTERNS = [pattern for group in load_table("secret_files").values() for pattern in group]
CANARY = "tropical-canary"
# A repository of which nothing is secret.
ORDINARY = """
README.md notes.md src/main.py src/settings.py src/secret_santa.py config.json config/app.toml
data.csv dump.sql identity.md id.md keyboard.md monkey.txt tokens.md docs/passwords.md
docs/credentials.md environment.yml pyproject.toml package.json Dockerfile docker-compose.yml
.gitignore .github/workflows/ci.yml reports/2026-11-27.md access.log shadow.css cookies.js
history.md bash_history.md terraform/main.tf nginx.conf keys.py public.asc certificate.crt
""".split()  # noqa: SIM905


def name_of(pattern: str) -> str:
    """Return the path of a file that a pattern covers."""
    if not pattern.endswith("**"):
        pattern = pattern.removesuffix("*")
    return pattern.replace("**/", "", 1).replace("/**", "/inside").replace("*", "x")


SECRET_FILES = sorted({name_of(pattern) for pattern in PATTERNS})
FOLDERS = ("", "sub/deeper/")


def test_each_name_can_be_kept_from_a_search_of_a_whole_tree() -> None:
    for pattern in PATTERNS:
        glob = Glob(pattern, ignore_case=True)
        assert glob.plain_name or glob.folder_name, pattern
        assert glob.covers(name_of(pattern)) and glob.covers(f"a/b/{name_of(pattern).upper()}")
    assert len(PATTERNS) == len(set(PATTERNS)) > 200


def test_ordinary_files_are_shown(tmp_path: Path) -> None:
    policy = Policy.load(SHIPPED, workspace=tmp_path)
    for name in ORDINARY:
        verdict = policy.judge("file_read", {"path": name}, routine="x")
        assert verdict.allows, (name, verdict)


@pytest.mark.parametrize(
    "name",
    [
        *(".netrc~", ".netrc.bak", ".env~", "#.env#", ".env.swp", ".my.cnf.rpmsave", "x.kdbx.old"),
        *("credentials.json.bak", "credentials.json~", ".pgpass.save", "wp-config.php~"),
        *(".notes.md.swp", ".git-credentials.lock", "secrets.yml.orig", "server.pem.bak"),
        *("prod.env.bak", "prod.env~", "a.keytab~", "store.kdb.bak", ".bash_history.1"),
        *("vpn.ovpn.old", "kubeconfig.bak", "deploy_rsa.bak", "ssh_host_rsa_key.old"),
    ],
)
def test_copies_that_editors_and_people_make_are_denied(tmp_path: Path, name: str) -> None:
    policy = Policy.load(SHIPPED, workspace=tmp_path)
    assert not policy.judge("file_read", {"path": name}, routine="x").allows


def test_rules_alone_decide_where_the_preset_is_not_chosen(tmp_path: Path) -> None:
    text = SHIPPED.read_text().replace('secret = "deny"', 'secret = "rules"')
    policy = Policy.read(text, workspace=tmp_path)
    verdict = policy.judge("file_read", {"path": "x.kdbx"}, routine="x")
    assert verdict.allows
    verdict = Policy.load(SHIPPED, workspace=tmp_path).judge(
        "file_read", {"path": "x.kdbx"}, routine="x"
    )
    assert (verdict.allows, verdict.rule) == (False, "[paths] secret")
    assert "keys, passwords or tokens" in verdict.reason


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each name, also deeper, in a repository where there is git."""
    folder = tmp_path_factory.mktemp("workspace")
    for place in FOLDERS:
        for name in SECRET_FILES:
            path = folder / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"user: ada\npassword: {CANARY}\n")
    for name in ORDINARY:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("plain\n")
    if shutil.which("git"):
        env = {"PATH": os.defpath, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        ada = ["-c", "user.name=Ada", "-c", "user.email=a@example.invalid"]
        for words in (["init", "-q"], ["add", "-A"], [*ada, "commit", "-qm", "all"]):
            subprocess.run(["git", "-C", str(folder), *words], check=True, env=env)
        (folder / ".my.cnf").write_text(f"{CANARY} changed\n")
    return folder


def caller(workspace: Path, text: str) -> Callable[[str, Json], str]:
    """Return how a model calls a tool under a policy, and what it reads then."""
    policy = Policy.read(text, workspace=workspace)
    registry = FunctionRegistry()
    settings = SimpleNamespace(policy=policy)
    for module in (shell, git, files):
        module.register(registry, settings)
    executor, redact = ToolExecutor(registry), Secrets().redact

    def call(tool: str, arguments: Json) -> str:
        if not policy.judge(tool, arguments, routine="x").allows:
            return ""
        context = ToolContext(run="run", routine="x", workspace=workspace)
        result = asyncio.run(executor.run(FunctionCall(name=tool, arguments=arguments), context))
        return redact(result.text)

    return call


# What a hostile model tries on one file.
ON_ONE_FILE = [
    ("file_read", {"path": "{file}"}),
    ("file_read", {"path": "./sub/../{file}"}),
    ("shell", {"command": "cat {quoted}"}),
    ("shell", {"command": "head -n 9 -- {quoted}"}),
    ("shell", {"command": "grep -h '' {quoted}"}),
    ("shell", {"command": "sed -n 1,9p {quoted}"}),
    ("shell", {"command": "diff {quoted} notes.md"}),
    ("shell", {"command": "sort < {quoted}"}),
    ("shell", {"command": "git show HEAD:{quoted}"}),
    ("git", {"command": "log -p -- {quoted}", "repository": "."}),
]
# What it tries on all at once.
ON_ALL = [
    ("shell", {"command": line})
    for line in (
        "grep -r canary",
        "grep -rh '' .",
        "grep -rh '' sub",
        "grep -rh '' sub/deeper/",
        "grep -r --include='*' password .",
        "grep -rz canary .",
        "rg canary",
        "rg -uu canary .",
        "rg --no-config -. canary sub",
        "diff -rN sub config",
        "diff -r . terraform",
        "cat * .*",
        "cat sub/deeper/*",
        "head .*",
        "git log -p",
        "git show HEAD",
        "git diff",
        "git diff HEAD",
        "git log -p -S canary",
        "git log -S canary --stat",
        "find . -name '.my.cnf' -size +0",
    )
]


def every_call() -> Iterator[tuple[str, Json]]:
    for name, place, (tool, arguments) in combine(SECRET_FILES, FOLDERS, ON_ONE_FILE):
        words = {"file": place + name, "quoted": f"'{place}{name}'"}
        yield tool, {key: text.format(**words) for key, text in arguments.items()}
    yield from ON_ALL


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hostile_model_reads_no_file_of_such_a_name(workspace: Path) -> None:
    call, calls = caller(workspace, SHIPPED.read_text()), list(every_call())
    assert len(calls) > (1_100 if quick_share() >= 1 else 200)
    leaks = [(tool, arguments) for tool, arguments in calls if CANARY in call(tool, arguments)]
    assert leaks == []


def test_without_the_preset_a_hostile_model_reads_some_of_them(workspace: Path) -> None:
    """The calls above are such that they read what no rule denies."""
    call = caller(workspace, SHIPPED.read_text().replace('secret = "deny"', 'secret = "rules"'))
    for tool, arguments in ON_ONE_FILE:
        if "git" not in (tool, str(arguments.get("command", ""))[:3]) or shutil.which("git"):
            words = {"file": ".my.cnf", "quoted": "'.my.cnf'"}
            values = {key: text.format(**words) for key, text in arguments.items()}
            assert CANARY in call(tool, values), (tool, values)


# Tokens whose form says what they are, put together here so that no scanner takes them for real.
TOKENS = [
    "npm_" + "a1" * 18,
    "hf_" + "aB" * 17,
    "glsa_" + "a1" * 16 + "_" + "0a" * 4,
    "dop_v1_" + "0a" * 32,
    "SG." + "a1" * 11 + "." + "b2" * 21 + "c",
    "sk_live_" + "a1" * 12,
    "rk_live_" + "a1" * 12,
    "pypi-" + "AgEIcHlwaS5vcmc" + "a1" * 30,
    "AGE-SECRET-KEY-1" + "Q9" * 29,
    "xapp-1-" + "A1" * 5 + "-" + "12" * 5 + "-" + "ab" * 16,
    "ya29." + "a1" * 20,
    "GOCSPX-" + "a1" * 14,
    "shpat_" + "0a" * 16,
    "glptt-" + "0a" * 20,
    "hvs." + "a1" * 45,
    "dapi" + "0a" * 16,
    "lin_api_" + "a1" * 20,
    "sq0csp-" + "a1" * 21 + "b",
    "110201543:" + "AA" + "a1" * 16 + "b",
    "https://hooks.slack.com/services/" + "T0AAAAAAA/B0AAAAAAA/" + "a1" * 12,
    "AccountKey=" + "a1" * 43 + "==",
    "ghp_" + "a1" * 18,
    "AKIA" + "A2" * 8,
]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:8])
def test_a_token_of_a_known_form_is_taken_out_of_what_any_tool_returns(
    tmp_path: Path, token: str
) -> None:
    (tmp_path / "notes.md").write_text(f'The job uses "{token}" since May.\n')
    text = caller(tmp_path, SHIPPED.read_text())("file_read", {"path": "notes.md"})
    assert token not in text and "[redacted]" in text
    assert text.startswith('The job uses "') and text.rstrip().endswith('" since May.')


def test_ordinary_words_are_no_tokens() -> None:
    text = (
        "hf_hub_download npm_config_registry=x pypi-server SG.md dapi_version xapp-cli ya29 "
        "dop_v1 sk_live hvs.md AccountKey=none at 12:30:45, 110201543:AA, glsa_x, shpat_id "
        "lin_api_key https://hooks.slack.com/services/docs 20261127:AABB"
    )
    assert Secrets().redact(text) == text
