"""Unit, lingering, limits, database and targets: each fault with its fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.app.doctor.upkeep import InstallationState, look, rows
from daemon.definitions.config.loading import load_config


@pytest.mark.parametrize(
    ("found", "name", "state", "fix"),
    [
        (
            InstallationState(verdict="row 7 missing from index x"),
            "database",
            "fail",
            "agentctl restore",
        ),
        (InstallationState(systemd=True), "service", "warn", "agentctl service install"),
        (
            InstallationState(systemd=True, unit=Path("/u"), command="/gone", command_there=False),
            "service",
            "fail",
            "install",
        ),
        (
            InstallationState(
                systemd=True, unit=Path("/u"), user_unit=True, lingers=False, user="ada"
            ),
            "linger",
            "fail",
            "enable-linger ada",
        ),
        (InstallationState(open_files=256), "limits", "warn", "ulimit -n"),
        (
            InstallationState(targets=(("mail", "apprise", "names no address"),)),
            "target mail",
            "fail",
            "[targets]",
        ),
    ],
)
def test_each_fault_comes_with_its_fix(
    found: InstallationState, name: str, state: str, fix: str
) -> None:
    [row] = [row for row in rows(found) if row[0] == name]
    assert row[1] == state and fix in row[3]


def test_without_systemd_nothing_is_said_of_it() -> None:
    assert {name for name, *_ in rows(InstallationState())} == {"limits"}


def test_it_looks_and_changes_nothing(tmp_path: Path) -> None:
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
    env = {"USER": "ada", "A": "json://localhost"}
    found = look(load_config(config), state, env, root=root)
    assert (found.command, found.command_there, found.systemd, found.lingers) == (
        "/opt/my agentd/bin/agentd", False, True, False,
    )  # fmt: skip
    assert [(name, bool(fault)) for name, _, fault in found.targets] == [("a", False), ("b", True)]
    assert found.verdict not in ("", "ok")
    assert sorted(path.name for path in state.iterdir()) == ["agentd.db"]
