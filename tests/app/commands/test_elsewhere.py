"""Files for places that cannot be tried here (Docker, Kubernetes, macOS): whole, and in agreement
with our commands.
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
README = (ROOT / "README.md").read_text("utf-8")


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


def test_the_container_ends_as_a_user_of_its_own_who_was_made_before() -> None:
    found = instructions()
    assert {name for name, _ in found} <= KNOWN and found[0][0] == "FROM"
    users = [value for name, value in found if name == "USER"]
    assert users == ["agentd"] and found.index(("USER", "agentd")) < [
        name for name, _ in found
    ].index("ENTRYPOINT")
    runs = " && ".join(value for name, value in found if name == "RUN")
    assert (
        "useradd --system --uid 10001" in runs
        and "pip install --no-cache-dir -c constraints.txt ." in runs
    )
    assert all(part.count('"') % 2 == 0 and shlex.split(part) for part in runs.split("&&"))


def test_the_container_starts_what_we_have() -> None:
    found = dict(instructions())
    program, *words = json.loads(found["ENTRYPOINT"])
    assert program == "agentd" and build_parser().parse_args(words).config == Path(
        "/etc/agentd/config.toml"
    )
    client, verb = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    assert client == "agentctl" and verb in VERBS
    made = re.search(r"agentd (init /etc/agentd)", found["RUN"])
    assert made and build_parser().parse_args(made[1].split()).directory == Path("/etc/agentd")


def test_what_is_copied_into_the_image_holds_no_history_and_no_environment() -> None:
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
    assert [(each["name"], each["value"]) for each in container["env"]] == [
        ("CREDENTIALS_DIRECTORY", mounts["keys"])
    ]


def test_the_launch_agent_is_a_property_list_that_starts_what_we_have() -> None:
    told = plistlib.loads((ROOT / "systemd/org.agentd.agentd.plist").read_bytes())
    assert told["Label"] == "org.agentd.agentd"
    program, *words = told["ProgramArguments"]
    assert (
        program.endswith("/bin/agentd")
        and build_parser().parse_args(words).config.name == "config.toml"
    )
    assert told["RunAtLoad"] is True and told["Umask"] == 0o77
    assert told["KeepAlive"] == {"Crashed": True}, (
        "exit 78, a wrong config, is not begun again and again"
    )
    assert told["ExitTimeOut"] > DaemonConfig().grace.total_seconds()


def test_the_readme_says_what_nobody_has_run() -> None:
    place = README[README.index("`Dockerfile`") :].partition("\n\n")[0]
    assert (
        "systemd/cronjob.yaml" in place
        and "org.agentd.agentd.plist" in place
        and "unproven" in place
    )


# --- several machines on one database


@pytest.fixture
def fleet() -> Any:
    return yaml.safe_load((ROOT / "compose.yml").read_text("utf-8"))


def test_the_fleet_is_a_database_two_daemons_and_three_workers_that_we_can_start(
    fleet: Any,
) -> None:
    ours = {
        name: service
        for name, service in fleet["services"].items()
        if service["image"] == "agentd-fleet"
    }
    entry = json.loads(dict(instructions())["ENTRYPOINT"])[1:]
    verbs = {
        name: build_parser().parse_args([*entry, *service.get("command", ())]).verb
        for name, service in ours.items()
    }
    assert {name: verb.__name__ for name, verb in verbs.items()} == {
        "daemon-1": "serve",
        "daemon-2": "serve",
        "worker": "worker",
    }
    assert ours["worker"]["deploy"]["replicas"] == 3
    known = {value.partition("=")[0] for name, value in instructions() if name == "ARG"}
    for service in ours.values():
        assert service["depends_on"]["db"]["condition"] == "service_healthy"
        assert (
            int(service["stop_grace_period"].removesuffix("s"))
            > DaemonConfig().grace.total_seconds()
        )
        assert service["build"]["args"].keys() <= known
    assert "healthcheck" in fleet["services"]["db"]
    named = [
        volume.partition(":")[0]
        for service in fleet["services"].values()
        for volume in service["volumes"]
    ]
    assert {name for name in named if not name.startswith(".")} == fleet["volumes"].keys()
    states = [
        each
        for service in ours.values()
        for each in service["volumes"]
        if each.endswith(":/var/lib/agentd")
    ]
    assert len(states) == len(set(states)), (
        "two processes on one state folder: the second one refuses to start"
    )


def test_the_settings_that_the_fleet_asks_for_are_ours(fleet: Any, tmp_path: Path) -> None:
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
        assert config.store_url(fleet["services"][service]["environment"]).startswith(
            "postgresql://agentd:"
        )


def test_the_readme_says_that_nobody_has_run_the_fleet() -> None:
    section = README[README.index("## When one machine is not enough") :].partition("\n## ")[0]
    assert "compose.yml" in section and "unproven" in section
