"""Unit, lingering, limits, database and targets: each fault with its fix."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from daemon.app.doctor.database_file import DatabaseFile
from daemon.app.doctor.service_checks import (
    ServiceSurvey,
    TargetSurvey,
    check_service,
    survey_service,
)
from daemon.definitions.config.loading import load_config


@pytest.mark.parametrize(
    ("expected", "name", "state", "fix"),
    [
        (
            ServiceSurvey(database=DatabaseFile(faults=("Tree 4 page 9: btreeInitPage() error",))),
            "database",
            "fail",
            "agentctl restore",
        ),
        (ServiceSurvey(systemd=True), "service", "warn", "agentctl service install"),
        (
            ServiceSurvey(systemd=True, unit=Path("/u"), command="/gone", command_exists=False),
            "service",
            "fail",
            "install",
        ),
        (
            ServiceSurvey(systemd=True, unit=Path("/u"), user_unit=True, lingers=False, user="ada"),
            "linger",
            "fail",
            "enable-linger ada",
        ),
        (ServiceSurvey(open_files=256), "limits", "warn", "ulimit -n"),
        (
            ServiceSurvey(targets=(TargetSurvey("mail", "apprise", "names no address"),)),
            "target mail",
            "fail",
            "[targets]",
        ),
        (
            ServiceSurvey(targets=(TargetSurvey("mail", "mail", "no such file", "create it"),)),
            "target mail",
            "fail",
            "create it",
        ),
    ],
)
def test_each_installation_fault_has_a_fix(
    expected: ServiceSurvey, name: str, state: str, fix: str
) -> None:
    [check] = [check for check in check_service(expected) if check.name == name]
    assert check.state == state and fix in check.fix


def test_without_systemd_doctor_does_not_mention_it() -> None:
    assert {check.name for check in check_service(ServiceSurvey())} == {"limits"}


def test_doctor_goes_on_where_a_unit_is_for_root_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = tmp_path / "root/etc/systemd/system/agentd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nEnvironment=KEY=x\nExecStart=/gone/agentd\n")

    def refuse(*_: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Path, "read_text", refuse)
    service = survey_service(None, tmp_path / "state", {}, root=tmp_path / "root")
    assert (service.unit, service.command, service.command_exists) == (unit, "", True)


@pytest.mark.parametrize("command", ["-/bin/sh", "sh", '@"/bin/sh" agentd'])
def test_doctor_finds_the_program_of_a_unit_that_a_person_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    unit = tmp_path / ".config/systemd/user/agentd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"[Service]\nExecStart={command} --config /etc/agentd/config.toml\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    service = survey_service(None, tmp_path / "state", {}, root=tmp_path)
    assert (service.unit, service.command_exists) == (unit, True), service.command


def test_doctor_changes_nothing(tmp_path: Path) -> None:
    root, state = tmp_path / "root", tmp_path / "state"
    unit = root / "etc/systemd/system/agentd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(
        '[Service]\nExecStart="/opt/my agentd/bin/agentd" --config /etc/agentd/config.toml\n'
    )
    (root / "run/systemd/system").mkdir(parents=True)
    state.mkdir()
    (state / "agentd.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    config = tmp_path / "config.toml"
    config.write_text(
        (  # noqa: UP034
            '[targets.a]\nkind = "apprise"\nurl_env = "A"\n[targets.b]\nkind = "apprise"\nurl_env = '  # noqa: E501
            ""
            '"B"\n'
        )
    )
    env = {"USER": "of another", "A": "json://localhost"}
    service = survey_service(load_config(config), state, env, root=root)
    assert (service.command, service.command_exists, service.systemd, service.lingers) == (
        "/opt/my agentd/bin/agentd", False, True, False,
    )  # fmt: skip
    assert [(target.name, bool(target.fault)) for target in service.targets] == [
        ("a", False),
        ("b", True),
    ]
    account = pwd.getpwuid(os.geteuid()).pw_name  # whatever the environment says
    assert service.user == account
    assert service.database.faults
    assert sorted(path.name for path in state.iterdir()) == ["agentd.db"]


def test_doctor_names_an_address_outside_of_the_config_to_which_nothing_can_be_posted(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[targets.bad]\nkind = "ping"\nurl_file = "bad.url"\n'
        '[targets.good]\nkind = "webhook"\nurl_file = "good.url"\n'
    )
    for name, address in (("bad", "hc.lan/ping/1"), ("good", "https://hooks.example.org/agentd")):
        (tmp_path / f"{name}.url").write_text(f"{address}\n")
        (tmp_path / f"{name}.url").chmod(0o600)
    service = survey_service(load_config(config), tmp_path, {}, root=tmp_path)
    problem = "its address is none of http or https with a host"
    assert service.targets == (
        TargetSurvey("bad", "ping", problem),
        TargetSurvey("good", "webhook"),
    )


@pytest.mark.parametrize(
    ("address", "way"),
    [
        (
            "mailtos://ada:sesame@example.org?to=a@b.example&smtp=mx.lan",
            "mx.lan:587",
        ),
        ("mailto://ada:sesame@127.0.0.1:8025?to=a@b.example&from=c@d.example", "127.0.0.1:8025"),
        ("sendmail://?to=ada@example.org&program=/bin/sh", "/bin/sh"),
    ],
)
def test_doctor_names_where_mails_go_and_no_password(
    tmp_path: Path, address: str, way: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[targets.mail]\nkind = "mail"\nurl_env = "MAIL"\n')
    service = survey_service(load_config(config), tmp_path, {"MAIL": address}, root=tmp_path)
    (check,) = [check for check in check_service(service) if check.name == "target mail"]
    assert (check.state, check.found) == ("ok", f"mail by {way}")


def test_doctor_says_how_to_make_a_missing_file_with_an_address(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[targets.mail]\nkind = "mail"\nurl_file = "mail.url"\n')
    service = survey_service(load_config(config), tmp_path, {}, root=tmp_path)
    (check,) = [check for check in check_service(service) if check.name == "target mail"]
    assert check.found.endswith(f"targets.mail.url_file: no such file: {tmp_path}/mail.url")
    assert check.fix == (
        f"create it: (umask 077; cat > {tmp_path}/mail.url), one line, then Ctrl-D"
    )
