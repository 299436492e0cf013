"""A unit for this installation: shown first, written whole, removed without a trace of our own
making.
"""

import os
import sys
from pathlib import Path

import pytest

from daemon.app.commands.service_unit import install, plan, uninstall
from daemon.errors import NotFound, Refused

needs_systemctl = pytest.mark.skipif(
    not any((Path(folder) / "systemctl").exists() for folder in os.environ["PATH"].split(":")),
    reason="needs systemctl: apt-get install systemd",
)


@pytest.fixture
def wanted(tmp_path):
    return plan(
        system=False, config=tmp_path / "my config.toml", home=tmp_path, user="nobody-of-that-name"
    )


@needs_systemctl
def test_what_will_be_written_is_shown_whole_with_what_lingering_is(wanted, tmp_path):
    assert (
        f"ExecStart={Path(sys.executable).with_name('agentd')}" in wanted.description
        or "daemon.app.main" in wanted.description
    )
    assert f'--config "{tmp_path}/my config.toml"' in wanted.text
    assert "loginctl enable-linger nobody-of-that-name" in wanted.description
    assert "run   systemctl --user enable --now agentd.service" in wanted.description
    assert f"mkdir {tmp_path}/.local/state/agentd" in wanted.description
    assert not wanted.unit.exists()


@needs_systemctl
def test_it_is_written_again_and_removed_but_a_strangers_unit_is_not_touched(wanted, tmp_path):
    for _ in range(2):
        assert install(wanted, run=False) == [f"wrote {wanted.unit}"]
    assert wanted.unit.read_text() == wanted.text and (tmp_path / ".local/state/agentd").is_dir()
    uninstall(system=False, home=tmp_path, run=False)
    assert not wanted.unit.exists() and (tmp_path / ".local/state/agentd").is_dir(), "state stays"
    with pytest.raises(NotFound):
        uninstall(system=False, home=tmp_path, run=False)
    wanted.unit.write_text("[Unit]\nDescription=mine\n")
    for act in (
        lambda: install(wanted, run=False),
        lambda: uninstall(system=False, home=tmp_path, run=False),
    ):
        with pytest.raises(Refused, match="none of ours"):
            act()


@needs_systemctl
async def test_nobody_at_the_terminal_is_a_no(home):
    told = await home.run(
        "agentd", "service", "install", "--user", "--config", home.folder / "config.toml"
    )
    assert told.code == 5 and "--yes" in told.err and "[Service]" in told.out
    assert not (Path(home.env["HOME"]) / ".config").exists()
