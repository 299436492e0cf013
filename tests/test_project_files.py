"""What contributors meet first: the workflow, the templates and the hooks name what there is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from packaging.requirements import Requirement

from daemon import __version__
from tests.slow import ALL_TESTS, REASONS
from tests.test_packaging import PROJECT, PYTHONS

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github/workflows/ci.yml"
CI = ROOT / ".ci/run"
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))
PAGES = ("CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def commands_of(job: dict[str, Any]) -> str:
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


def test_the_workflow_tries_every_supported_python() -> None:
    jobs = read_yaml(WORKFLOW)["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == PYTHONS
    assert ".venv/bin/pytest" in commands_of(jobs["tests"])


def test_ci_leaves_no_slow_test_out() -> None:
    assert f"{ALL_TESTS} -rs" in commands_of(read_yaml(WORKFLOW)["jobs"]["tests"])
    assert f'all_tests="{ALL_TESTS.removeprefix(".venv/bin/pytest ")}"' in CI.read_text("utf-8")
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"`{ALL_TESTS}`" in (ROOT / page).read_text("utf-8"), page


def test_each_folder_and_file_that_is_called_slow_holds_tests() -> None:
    for name in REASONS:
        path = ROOT / "tests" / name
        assert path.is_file() or list(path.rglob("test_*.py")), name


def test_the_workflow_lints_checks_types_and_builds_docs_and_wheel() -> None:
    jobs = read_yaml(WORKFLOW)["jobs"]
    assert jobs.keys() == {"lint", "tests", "docs", "wheel"}
    lint = commands_of(jobs["lint"])
    for command in ("ruff check .", "ruff format --check .", "mypy"):
        assert f".venv/bin/{command}" in lint
    assert "twine check --strict dist/*" in commands_of(jobs["wheel"])


def test_the_workflow_installs_only_extras_that_there_are_and_may_only_read() -> None:
    workflow = read_yaml(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    commands = "\n".join(map(commands_of, workflow["jobs"].values()))
    installs = re.findall(r"-e '(\.\[.+?\])'", commands)
    assert installs
    extras = {name for words in installs for name in Requirement(f"x{words[1:]}").extras}
    assert extras <= PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_questions_that_each_have_a_name(path: Path) -> None:
    form = read_yaml(path)
    assert form["name"] and form["description"] and form["labels"]
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    names = [question["id"] for question in questions]
    assert names and len(names) == len(set(names))
    assert all(question["attributes"]["label"] for question in questions)


def test_the_bug_form_asks_for_version_doctor_and_log() -> None:
    (bug,) = [path for path in FORMS if path.stem == "bug"]
    extras_needed = {
        part["id"] for part in read_yaml(bug)["body"] if part.get("validations", {}).get("required")
    }
    assert {"version", "doctor", "log"} <= extras_needed


def test_the_hooks_before_a_commit_run_the_programs_of_the_clone() -> None:
    """Of other repositories nothing is downloaded."""
    (repository,) = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert hooks.keys() == {"ruff-check", "ruff-format", "mypy"}
    for hook in hooks.values():
        assert hook["language"] == "system"
        assert re.match(r"\.venv/bin/(ruff (check|format) |mypy$)", hook["entry"])


@pytest.mark.parametrize("page", PAGES)
def test_links_commands_and_paths_of_a_page_for_contributors_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        assert re.match("https?:", link) or (ROOT / page).parent.joinpath(link).exists(), link
    for module in re.findall(r"python -m (tests\.\w+)", text):
        assert importlib.util.find_spec(module), module
    for path in re.findall(r"`((?:tests|daemon|docs|completions|\.github)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def test_no_page_for_contributors_names_a_mailbox() -> None:
    """None is read by anybody: reports go to a maintainer by the forge."""
    for page in PAGES:
        assert not re.search(r"[\w.]+@[\w-]+\.\w+", (ROOT / page).read_text("utf-8")), page


def test_the_pictures_are_small_and_load_nothing_from_elsewhere() -> None:
    """`python -m tests.pictures` makes them."""
    files = {path.name: path.read_bytes() for path in (ROOT / "docs/pictures").iterdir()}
    assert files.keys() == {"first-minute.svg", "mail.png", "page.png"}
    assert all(len(content) < 300_000 for content in files.values())
    terminal = files["first-minute.svg"].decode()
    assert "url(http" not in terminal and "href" not in terminal
    text = " ".join(ElementTree.fromstring(terminal).itertext()).replace("\xa0", " ")
    for words in (f"agentd {__version__} is up", "agentctl run daily-report", "succeeded"):
        assert words in text, "run `python -m tests.pictures`"


def test_the_pages_show_the_banner_of_this_version() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")]
    versions = {version for text in texts for version in re.findall(r"agentd ([\d.]+) is up", text)}
    assert versions <= {__version__}
