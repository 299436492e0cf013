"""`agentd service` shows, writes and removes the unit of this installation."""

import os
import sys
from pathlib import Path

import pytest

from daemon.app.commands.service_unit import install, plan_unit, uninstall
from daemon.errors import NotFound, Refused

needs_systemctl = pytest.mark.skipif(
    not any((Path(folder) / "systemctl").exists() for folder in os.environ["PATH"].split(":")),
    reason="needs systemctl: apt-get install systemd",
)


@pytest.fixture
def service_plan(tmp_path):
    return plan_unit(
        system=False, config=tmp_path / "my config.toml", home=tmp_path, user="nobody-of-that-name"
    )


@needs_systemctl
def test_service_install_shows_the_unit_and_explains_lingering(service_plan, tmp_path):
    assert (
        f"ExecStart={Path(sys.executable).with_name('agentd')}" in service_plan.description
        or "daemon.app.main" in service_plan.description
    )
    assert f'--config "{tmp_path}/my config.toml"' in service_plan.text
    assert service_plan.description.endswith("once: loginctl enable-linger")
    assert "run   systemctl --user enable --now agentd.service" in service_plan.description
    assert f"mkdir {tmp_path}/.local/state/agentd" in service_plan.description
    first_line, *_ = service_plan.summary.splitlines()
    assert first_line.startswith(f"write {service_plan.unit} (")
    assert "--print shows them" in first_line
    assert service_plan.description.endswith(service_plan.summary.partition("\n")[2])
    assert "ExecStart=" not in service_plan.summary
    assert not service_plan.unit.exists()


@needs_systemctl
def test_the_unit_is_rewritten_and_removed_and_a_foreign_unit_is_not(service_plan, tmp_path):
    for _ in range(2):
        assert install(service_plan, run=False) == [f"wrote {service_plan.unit}"]
    assert (
        service_plan.unit.read_text() == service_plan.text
        and (tmp_path / ".local/state/agentd").is_dir()
    )
    uninstall(system=False, home=tmp_path, run=False)
    assert not service_plan.unit.exists() and (tmp_path / ".local/state/agentd").is_dir(), (
        "state stays"
    )
    with pytest.raises(NotFound):
        uninstall(system=False, home=tmp_path, run=False)
    service_plan.unit.write_text("[Unit]\nDescription=mine\n")
    for act in (
        lambda: install(service_plan, run=False),
        lambda: uninstall(system=False, home=tmp_path, run=False),
    ):
        with pytest.raises(Refused, match="none of ours"):
            act()


@needs_systemctl
def test_a_path_with_an_apostrophe_is_quoted_for_systemd(tmp_path):
    plan = plan_unit(system=False, config=tmp_path / "o'brien/config.toml", home=tmp_path)
    assert f'--config "{tmp_path}/o\'brien/config.toml"' in plan.text


def test_a_unit_is_removed_where_there_is_no_systemd(tmp_path, monkeypatch):
    unit = tmp_path / ".config/systemd/user/agentd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("# agentd for one person\n")  # as `agentd init` writes it everywhere
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = uninstall(system=False, home=tmp_path)
    assert lines[0] == f"removed {unit}" and not unit.exists()


async def test_service_install_takes_no_state_folder(home):
    result = await home.run("agentd", "service", "install", "--user", "--state", home.folder)
    assert result.code == 5 and "BindPaths=DIR" in result.err


@needs_systemctl
async def test_service_install_without_a_terminal_is_refused(home):
    result = await home.run(
        "agentd", "service", "install", "--user", "--config", home.folder / "config.toml"
    )
    assert result.code == 5 and "--yes" in result.err and "--print" in result.out
    assert not (Path(home.env["HOME"]) / ".config").exists()
