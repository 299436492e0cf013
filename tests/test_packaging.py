"""A clone, a wheel, and the two commands of the README are complete."""

from __future__ import annotations

import email
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from daemon import __version__
from daemon.app.commands.init import FILES, ROUTINES, UNIT, init, shipped_folder, shipped_text
from daemon.app.commands.recipes import find_recipes
from daemon.app.commands.validate import check_all, examine
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.tables import ProviderConfig
from daemon.definitions.routines.checks import reference_checks
from daemon.definitions.routines.folder import load_folder
from daemon.errors import Refused
from tests.completions import scripts
from tests.library import examples
from tests.lock import LOCK, differences, render

ROOT = Path(__file__).parents[1]
# Their versions are dates, and the newest is what one wants.
BY_DATE = ("certifi", "tzdata")
# As .github/workflows/ci.yml tries them.
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# --- pins


def test_constraints_name_only_packages_and_versions() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[a-z0-9-]+==[\w.+!]+( ; .+)?", line), line
        assert "://" not in line


def test_every_dependency_has_an_upper_bound_and_a_pin() -> None:
    pins = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = [
        requirement for needs in PROJECT["optional-dependencies"].values() for requirement in needs
    ]
    # dev brings other extras
    extras = [requirement for requirement in extras if not requirement.startswith(PROJECT["name"])]
    for requirement in [*PROJECT["dependencies"], *extras]:
        name = re.match(r"[\w-]+", requirement)
        assert name is not None
        assert name[0] in pins, f"{requirement} is not pinned; the command is in .ci/run"
        assert "<" in requirement or "==" in requirement or name[0] in BY_DATE, (
            f"{requirement}: no upper bound"
        )


# What a plain `pip install .` brings, besides agentd itself.
PLAIN = """
annotated-types anthropic anyio apscheduler certifi click docstring-parser genai-prices h11 httpcore
httpcore2 httpx httpx2 idna jinja2 jiter markdown-it-py markupsafe mdurl openai opentelemetry-api
pydantic pydantic-core pyyaml sniffio sqlalchemy sqlmodel standardwebhooks starlette structlog
tomli-w truststore typing-extensions typing-inspection tzdata tzlocal uvicorn watchfiles
"""


def test_the_plain_install_brings_only_listed_packages() -> None:
    plain, needs = set[str](), [Requirement(requirement) for requirement in PROJECT["dependencies"]]
    visited = set[tuple[str, frozenset[str]]]()
    while needs:
        requirement = needs.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if (name, frozenset(requirement.extras)) in visited:
            continue
        visited.add((name, frozenset(requirement.extras)))
        plain.add(name)
        for text in importlib.metadata.requires(name) or ():
            further = Requirement(text)
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            ):
                needs.append(further)
    assert sorted(plain - set(PLAIN.split())) == [], "is it needed? then list it here"
    pins = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert sorted(set(PLAIN.split()) - pins) == []


# --- hashes


def test_the_lock_and_the_constraints_name_the_same_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    packages = tomllib.loads(LOCK.read_text())["packages"]
    assert [f"{package['name']}=={package['version']}" for package in packages] == [
        line.partition(";")[0].strip() for line in lines
    ], "make pylock.toml anew: tests/lock.py says how"


def test_the_lock_has_a_hash_for_each_file_and_no_address() -> None:
    text = LOCK.read_text()
    assert "://" not in text and "index" not in text
    lock = tomllib.loads(text)
    assert lock["lock-version"] == "1.0"
    for package in lock["packages"]:
        assert package.keys() <= {"name", "version", "marker", "sdist", "wheels"}
        files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
        assert files, package["name"]
        for file in files:
            assert file.keys() == {"path", "hashes"}
            assert re.fullmatch(r"wheels/[\w.+-]+", file["path"]), file
            assert re.fullmatch(r"[0-9a-f]{64}", file["hashes"]["sha256"]), file


def test_a_file_that_is_not_the_locked_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "good-1.0-py3-none-any.whl").write_bytes(b"good")
    (tmp_path / "bad-1.0-py3-none-any.whl").write_bytes(b"evil")
    (tmp_path / "other-1.0.tar.gz").write_bytes(b"other")
    good, bad = (hashlib.sha256(word).hexdigest() for word in (b"good", b"bad"))
    files = {"good-1.0-py3-none-any.whl": good, "bad-1.0-py3-none-any.whl": bad}
    lock_text = render(
        {
            "requires-python": ">=3.11",
            "packages": [
                {
                    "name": name.partition("-")[0],
                    "version": "1.0",
                    "wheels": [
                        {"url": f"https://files.example/x/{name}", "hashes": {"sha256": digest}},
                        {"url": "https://files.example/x-1-cp310-cp310-win32.whl", "hashes": {}},
                    ],
                }
                for name, digest in files.items()
            ],
        }
    )
    assert "example" not in lock_text and "win32" not in lock_text
    assert differences(tomllib.loads(lock_text), tmp_path) == [
        "bad-1.0-py3-none-any.whl is not the file that pylock.toml names",
        "other-1.0.tar.gz is not in pylock.toml",
    ]


def test_uv_lock_is_ignored_by_git() -> None:
    assert "uv.lock" in (ROOT / ".gitignore").read_text().split()


# --- the README's commands


def test_the_readme_has_the_two_commands_that_ci_pastes() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    commands = [line for line in lines if line.startswith("python3 -m venv .venv")]
    start, test = commands
    assert re.search(r"&& \.venv/bin/agentd\b(?!.*pytest)", start)
    assert re.search(r"-e '\.\[dev\]' *&& \.venv/bin/pytest\b", test)


def test_the_ci_script_is_executable_bash() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


# --- what ships


def test_the_shipped_files_have_no_faults(tmp_path: Path) -> None:
    examination = examine(shipped_folder() / "config.toml", env={}, state=tmp_path)
    assert [str(fault) for fault in examination.faults] == []
    assert examination.notes == []


def test_the_shipped_routines_need_no_model_no_key_and_no_network() -> None:
    config = load_config(shipped_folder() / "config.toml")
    assert config.provider == "offline"
    tools = {"sysinfo", "file_list", "file_read", "git"}
    contents = load_folder(
        shipped_folder() / "routines", checks=reference_checks(config.provider_names, tools)
    )
    assert tuple(sorted(contents.routines)) == ROUTINES
    assert not contents.faults
    assert all(routine.deliver for routine in contents.routines.values())
    # there is something to see right away, except of what waits for a file
    assert [name for name, routine in contents.routines.items() if not routine.first_run] == [
        "inbox-watch"
    ]


def test_the_shipped_config_shows_every_key_with_its_default() -> None:
    text = (shipped_folder() / "config.toml").read_text()
    sound = tomllib.loads(
        re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE).partition(
            "\n# Where reports may go"
        )[0]
    )
    keys = {(table, key) for table in ("agent", "daemon", "log") for key in sound[table]}
    tables = {table: Config.model_fields[table].annotation for table in ("agent", "daemon", "log")}
    assert keys == {
        (table, key)
        for table, model in tables.items()
        for key in getattr(model, "model_fields", ())
    }
    assert {"provider", "timezone", "workspace", "routines", "policy"} <= set(sound)
    config = Config.model_validate({**sound, "timezone": None, "workspace": None})
    assert config.daemon == Config().daemon
    assert config.log == Config().log
    assert config.routines == Config().routines
    for key in ProviderConfig.model_fields:
        assert re.search(rf"^# +{key}\b", text, re.MULTILINE), (
            f"{key} of [providers.NAME] is not shown"
        )


# --- init


def test_init_writes_all_files_and_overwrites_none(tmp_path: Path) -> None:
    folder = tmp_path / "agentd"
    paths = init(folder)
    assert [path.relative_to(folder).as_posix() for path in paths] == [*FILES, UNIT]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    (folder / "config.toml").write_text("# mine\n")
    (folder / "policy.toml").unlink()
    assert init(folder) == [folder / "policy.toml"]
    assert (folder / "config.toml").read_text() == "# mine\n"


def test_the_files_of_init_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(tmp_path)
    assert check_all(tmp_path / "config.toml", env={}) == 0
    assert "no problems in" in capsys.readouterr().out


def test_init_into_the_default_folder_writes_the_systemd_user_unit(tmp_path: Path) -> None:
    paths = init(tmp_path / ".config/agentd")
    unit = tmp_path / ".config/systemd/user/agentd.service"
    assert unit in paths
    (command,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    assert str(Path(sys.executable).parent) in command
    assert command.endswith(f" --config {tmp_path}/.config/agentd/config.toml")


def test_the_unit_escapes_spaces_and_percent_signs_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "100% mine"
    init(folder)
    assert f'"{tmp_path}/100%% mine/config.toml"' in (folder / UNIT).read_text()


def test_init_into_an_unwritable_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match=r"file: (File exists|Not a directory)"):
        init(tmp_path / "file")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one commit of the shipped files, and an edited config.toml."""
    folder = tmp_path / "checkout"
    for name in (*FILES, UNIT):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(shipped_text(shipped_folder(), name))
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "shipped"]):
        subprocess.run([*command, *words], check=True)
    with (folder / "config.toml").open("a") as config:
        config.write('[targets.mail]\nkind = "mail"\nurl = "mailto://secret@example.org"\n')
    return folder


def test_the_edits_of_a_checkout_are_not_shipped(checkout: Path) -> None:
    text = shipped_text(checkout, "config.toml")
    assert "mailto://secret" not in text
    assert text == shipped_text(shipped_folder(), "config.toml")


def test_an_edited_config_without_its_history_is_not_copied(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    with pytest.raises(Refused, match=r"config\.toml was edited, and git does not tell"):
        shipped_text(checkout, "config.toml")
    (checkout / "config.toml").write_text("[targets")
    with pytest.raises(Refused, match="was edited"):
        shipped_text(checkout, "config.toml")
    (checkout / "config.toml").write_text(shipped_text(shipped_folder(), "config.toml"))
    assert shipped_text(checkout, "config.toml") == shipped_text(shipped_folder(), "config.toml")


# --- the wheel


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and return the folder that it was installed into."""
    if not all(map(importlib.util.find_spec, ("pip", "hatchling"))):
        pytest.skip("needs pip and hatchling: python -m ensurepip; pip install hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q"]
    command += ["--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_wheel_contains_the_shipped_files(site: Path) -> None:
    names = [path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()]
    assert {f"daemon/_shipped/{name}" for name in (*FILES, UNIT, "systemd/agentd.service")} <= set(
        names
    )
    data = (path for pattern in ("*.toml", "*.sql") for path in (ROOT / "daemon").rglob(pattern))
    assert {str(path.relative_to(ROOT)) for path in data} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", ".ci/"))]
    code = """
from daemon.app.commands.init import shipped_folder
from daemon.app.commands.recipes import find_recipes
print(shipped_folder(), *find_recipes().values())
"""
    env = {**os.environ, "PYTHONPATH": str(site)}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd="/", env=env, check=True, capture_output=True, text=True
    )
    folder, *recipes = process.stdout.split()
    assert folder == str(site / "daemon/_shipped")
    expected = [file.relative_to(ROOT) for file in find_recipes().values()]
    assert recipes == [f"{folder}/{file}" for file in expected]


# Where Debian, Fedora and Homebrew have them, below the prefix that a wheel is installed into.
SHARED = {
    "man/man1/agentctl.1": "docs/man/agentctl.1",
    "man/man1/agentd.1": "docs/man/agentd.1",
    "bash-completion/completions/agentctl": "completions/agentctl.bash",
    "bash-completion/completions/agentd": "completions/agentd.bash",
    "zsh/site-functions/_agentctl": "completions/agentctl.zsh",
    "fish/vendor_completions.d/agentctl.fish": "completions/agentctl.fish",
    "fish/vendor_completions.d/agentd.fish": "completions/agentd.fish",
}


def shared_folder(site: Path) -> Path:
    (folder,) = site.glob("*.data/data/share")
    return folder


def test_a_wheel_brings_manual_pages_and_completions(site: Path) -> None:
    folder = shared_folder(site)
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert files.keys() == SHARED.keys()
    for name, path in files.items():
        assert path.read_text("utf-8") == (ROOT / SHARED[name]).read_text("utf-8")


def test_the_completions_of_both_programs_are_loaded_by_their_names(site: Path) -> None:
    """As bash-completion and fish do it: the first Tab behind a command reads the file of its
    name.
    """
    folder = shared_folder(site)
    code = """
. "$0/bash-completion/completions/agentd"
COMP_WORDS=(agentd val) COMP_CWORD=1
_agentd
echo "${COMPREPLY[@]}"
"""
    result = subprocess.run(
        ["bash", "-c", code, folder], capture_output=True, text=True, check=True
    )
    assert (result.stdout.strip(), result.stderr) == ("validate", "")
    if fish := shutil.which("fish"):
        file = folder / "fish/vendor_completions.d/agentd.fish"
        code = f"source {file}; complete --do-complete 'agentd val'"
        env = {"HOME": str(site), "PATH": os.environ["PATH"]}
        result = subprocess.run([fish, "-c", code], capture_output=True, text=True, env=env)
        assert result.stdout.split() == ["validate"], result.stderr


def test_the_written_completions_are_current() -> None:
    for path, text in scripts().items():
        assert path.read_text("utf-8") == text, "run `python -m tests.completions`"


def test_a_wheel_says_that_it_has_types(site: Path) -> None:
    assert (site / "daemon" / "py.typed").is_file()


def test_the_project_file_and_the_package_name_the_same_version() -> None:
    assert PROJECT["version"] == __version__


def test_the_version_of_a_wheel_is_that_of_the_programs_and_of_the_changelog(site: Path) -> None:
    (file,) = site.glob("*.dist-info/METADATA")
    assert email.message_from_string(file.read_text("utf-8"))["Version"] == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", changelog, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert versions[1][0] == __version__ and versions[1][1], "a release has a date"


def test_the_metadata_of_a_wheel_is_complete(site: Path) -> None:
    (file,) = site.glob("*.dist-info/METADATA")
    metadata = email.message_from_string(file.read_text("utf-8"))
    assert metadata["Name"] == PROJECT["name"]
    assert metadata["Author"] == "agentd contributors"
    assert {"cron", "agents", "daemon"} <= set(metadata["Keywords"].split(","))
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    assert versions == PYTHONS
    assert metadata.get_payload().startswith("# agentd")


def test_programs_using_the_wheel_are_type_checked_strictly(site: Path, tmp_path: Path) -> None:
    """The examples of docs/library.md have no fault, and mypy sees one that is put in."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    # the wheel alone: reading the types of all that it needs takes half a minute
    (packages / "wheel.pth").write_text(str(site))
    program = "\n".join(
        f"async def example_{number}() -> None:\n{textwrap.indent(text, '    ')}\n"
        for number, text in enumerate(examples().values())
        if "from pydantic" not in text
    )
    (tmp_path / "program.py").write_text(program)
    wrong = "from daemon import Agent, LLMMessage\nAgent(3)\nLLMMessage(role=4)\n"
    (tmp_path / "wrong.py").write_text(wrong)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
    command += ["--cache-dir", str(tmp_path / "cache"), "program.py", "wrong.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = [line for line in result.stdout.splitlines() if ": error: " in line]
    assert [line.partition(" error: ")[0] for line in lines] == ["wrong.py:2:", "wrong.py:3:"], (
        result.stdout + result.stderr
    )
