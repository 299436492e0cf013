"""Files for Docker, Kubernetes and macOS, which cannot run here, agree with the commands of
agentd.
"""

from __future__ import annotations

import json
import plistlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemon.app.main import build_parser
from daemon.cli.verbs import VERBS
from daemon.definitions.config.loading import load_config
from daemon.definitions.config.tables import DaemonConfig

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, continued lines joined."""
    lines = [
        line
        for line in (ROOT / "Dockerfile").read_text("utf-8").splitlines()
        if not line.startswith("#")
    ]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
        for line in text.splitlines()
        if line.strip()
    ]


# https://docs.docker.com/reference/dockerfile/
KNOWN = {
    "FROM",
    "ARG",
    "RUN",
    "WORKDIR",
    "COPY",
    "USER",
    "ENV",
    "VOLUME",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "ENTRYPOINT",
}


def test_the_container_runs_as_a_user_of_its_own() -> None:
    commands = instructions()
    assert {name for name, _ in commands} <= KNOWN and commands[0][0] == "FROM"
    users = [value for name, value in commands if name == "USER"]
    assert users == ["agentd"] and commands.index(("USER", "agentd")) < [
        name for name, _ in commands
    ].index("ENTRYPOINT")
    runs = " && ".join(value for name, value in commands if name == "RUN")
    assert (
        "useradd --system --uid 10001" in runs
        and "pip install --no-cache-dir -c constraints.txt ." in runs
    )
    assert all(part.count('"') % 2 == 0 and shlex.split(part) for part in runs.split("&&"))


def test_the_container_starts_agentd_with_existing_options() -> None:
    commands = dict(instructions())
    program, *words = json.loads(commands["ENTRYPOINT"])
    assert program == "agentd" and build_parser().parse_args(words).config == Path(
        "/etc/agentd/config.toml"
    )
    client, verb = json.loads(commands["HEALTHCHECK"].partition("CMD ")[2])
    assert client == "agentctl" and verb in VERBS
    match = re.search(r"agentd (init /etc/agentd)", commands["RUN"])
    assert match and build_parser().parse_args(match[1].split()).directory == Path("/etc/agentd")


def test_the_image_contains_no_git_history_or_virtual_environment() -> None:
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv"} <= set(left_out)
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "daemon", "systemd"):
        assert (ROOT / name).exists() and name not in left_out, "the build needs it"


@pytest.fixture
def cronjob() -> Any:
    return yaml.safe_load((ROOT / "systemd/cronjob.yaml").read_text("utf-8"))


def test_the_cron_job_runs_one_routine_through_the_containers_command(cronjob: Any) -> None:
    assert (cronjob["apiVersion"], cronjob["kind"]) == ("batch/v1", "CronJob")
    spec = cronjob["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = build_parser().parse_args(
        [*json.loads(dict(instructions())["ENTRYPOINT"])[1:], *container["args"]]
    )
    assert (
        options.routine == "daily-report" and (ROOT / f"routines/{options.routine}.toml").is_file()
    )
    assert (
        spec["concurrencyPolicy"] == "Forbid" and spec["jobTemplate"]["spec"]["backoffLimit"] == 0
    )
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] > DaemonConfig().grace.total_seconds()


def test_the_cron_jobs_user_is_the_containers_and_its_volumes_are_where_agentd_looks(
    cronjob: Any,
) -> None:
    pod = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == volumes.keys()
    assert (mounts["definitions"], mounts["state"]) == ("/etc/agentd", "/var/lib/agentd")
    assert "STATE_DIRECTORY=/var/lib/agentd" in dict(instructions())["ENV"]
    items = [item["path"] for item in volumes["definitions"]["configMap"]["items"]]
    assert items == ["config.toml", "policy.toml", "routines/daily-report.toml"]
    assert [(variable["name"], variable["value"]) for variable in container["env"]] == [
        ("CREDENTIALS_DIRECTORY", mounts["keys"])
    ]


def test_the_launch_agent_is_a_valid_property_list_for_agentd() -> None:
    property_list = plistlib.loads((ROOT / "systemd/org.agentd.agentd.plist").read_bytes())
    assert property_list["Label"] == "org.agentd.agentd"
    program, *words = property_list["ProgramArguments"]
    assert (
        program.endswith("/bin/agentd")
        and build_parser().parse_args(words).config.name == "config.toml"
    )
    assert property_list["RunAtLoad"] is True and property_list["Umask"] == 0o77
    assert property_list["KeepAlive"] == {"Crashed": True}, (
        "exit 78, a wrong config, is not begun again and again"
    )
    assert property_list["ExitTimeOut"] > DaemonConfig().grace.total_seconds()


def test_the_docs_mark_container_and_macos_files_as_unproven() -> None:
    paragraphs = (DOCS / "operations.md").read_text("utf-8").split("\n\n")
    for name in ("`Dockerfile`", "cronjob.yaml`", "org.agentd.agentd.plist`"):
        assert any(name in text and "unproven" in text for text in paragraphs), name


# --- several machines on one database


@pytest.fixture
def cluster() -> Any:
    return yaml.safe_load((ROOT / "compose.yml").read_text("utf-8"))


def test_compose_starts_a_database_two_daemons_and_three_workers(
    cluster: Any,
) -> None:
    services = {
        name: service
        for name, service in cluster["services"].items()
        if service["image"] == "agentd-fleet"
    }
    entry = json.loads(dict(instructions())["ENTRYPOINT"])[1:]
    verbs = {
        name: build_parser().parse_args([*entry, *service.get("command", ())]).verb
        for name, service in services.items()
    }
    assert {name: verb.__name__ for name, verb in verbs.items()} == {
        "daemon-1": "serve",
        "daemon-2": "serve",
        "worker": "worker",
    }
    assert services["worker"]["deploy"]["replicas"] == 3
    arguments = {value.partition("=")[0] for name, value in instructions() if name == "ARG"}
    for service in services.values():
        assert service["depends_on"]["db"]["condition"] == "service_healthy"
        assert (
            int(service["stop_grace_period"].removesuffix("s"))
            > DaemonConfig().grace.total_seconds()
        )
        assert service["build"]["args"].keys() <= arguments
    assert "healthcheck" in cluster["services"]["db"]
    volume_names = [
        volume.partition(":")[0]
        for service in cluster["services"].values()
        for volume in service["volumes"]
    ]
    assert {name for name in volume_names if not name.startswith(".")} == cluster["volumes"].keys()
    states = [
        volume
        for service in services.values()
        for volume in service["volumes"]
        if volume.endswith(":/var/lib/agentd")
    ]
    assert len(states) == len(set(states)), (
        "two processes on one state folder: the second one refuses to start"
    )


def test_the_settings_of_compose_are_valid_config(cluster: Any, tmp_path: Path) -> None:
    lines = [
        line[4:]
        for line in (ROOT / "compose.yml").read_text("utf-8").splitlines()
        if line.startswith("#   ")
    ]
    file = tmp_path / "config.toml"
    file.write_text("\n".join(lines[lines.index("[store]") :]))
    file.chmod(0o600)
    config = load_config(file)
    assert (config.executor.kind, config.executor.here) == ("procrastinate", False)
    for service in ("daemon-1", "worker"):
        assert config.store_url(cluster["services"][service]["environment"]).startswith(
            "postgresql://agentd:"
        )


def test_the_docs_mark_compose_as_unproven() -> None:
    page = (DOCS / "cluster.md").read_text("utf-8")
    paragraph = page[page.index("`compose.yml`") :].partition("\n\n")[0]
    assert "unproven" in paragraph
