"""Paths of config, state and socket: daemon and client agree."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.definitions.paths import (
    config_paths,
    find_config,
    find_socket,
    find_state,
    socket_in,
    socket_paths,
)

HOME = Path("/home/ada")
UID = 1000


def test_named_config_wins_even_if_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").touch()
    path = tmp_path / "other.toml"
    assert find_config(path, {"AGENTD_CONFIG": "/x"}, tmp_path, HOME) == path
    assert find_config(None, {"AGENTD_CONFIG": "/x"}, tmp_path, HOME) == Path("/x")


def test_a_config_in_the_working_directory_precedes_that_of_the_home_folder(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    for folder in (home / ".config/agentd", here):
        folder.mkdir(parents=True)
    assert find_config(None, {}, here, home) in (None, Path("/etc/agentd/config.toml"))
    (home / ".config/agentd/config.toml").touch()
    assert find_config(None, {}, here, home) == home / ".config/agentd/config.toml"
    (here / "config.toml").touch()
    assert find_config(None, {}, here, home) == here / "config.toml"


@pytest.mark.root
def test_a_config_of_another_user_in_the_working_directory_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    os.chown(tmp_path / "config.toml", 65534, 65534)
    assert find_config(None, {}, tmp_path, HOME) in (None, Path("/etc/agentd/config.toml"))


def test_config_paths_are_listed_in_order() -> None:
    assert [str(path) for path in config_paths({}, Path("/w"), HOME)] == [
        "/w/config.toml",
        "/home/ada/.config/agentd/config.toml",
        "/etc/agentd/config.toml",
    ]
    assert config_paths({"AGENTD_CONFIG": "/x"}, Path("/w"), HOME) == [Path("/x")]


def test_the_state_folder_is_that_of_systemd_the_home_folder_or_root() -> None:
    assert find_state({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, HOME, uid=UID) == Path(
        "/var/lib/a"
    )
    assert find_state({}, HOME, uid=UID) == HOME / ".local/state/agentd"
    assert find_state({}, Path("/root"), uid=0) == Path("/var/lib/agentd")


def test_a_named_state_folder_wins_over_that_of_systemd() -> None:
    env = {"AGENTD_STATE": "/data", "STATE_DIRECTORY": "/var/lib/a"}
    assert find_state(env, HOME, uid=UID) == find_state(env, HOME, uid=0) == Path("/data")


def test_the_base_folders_of_the_user_are_respected_where_they_are_absolute() -> None:
    env = {"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}
    assert find_state(env, HOME, uid=UID) == Path("/s/agentd")
    assert find_state(env, HOME, uid=0) == Path("/var/lib/agentd")
    assert config_paths(env, Path("/w"), HOME)[1] == Path("/c/agentd/config.toml")
    relative = {"XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": ""}
    assert find_state(relative, HOME, uid=UID) == HOME / ".local/state/agentd"
    assert config_paths(relative, Path("/w"), HOME)[1] == HOME / ".config/agentd/config.toml"


def test_the_socket_is_in_the_runtime_folder_else_in_the_state_folder() -> None:
    env = {"RUNTIME_DIRECTORY": "/run/agentd", "XDG_RUNTIME_DIR": "/run/user/1000"}
    assert find_socket(HOME, env, uid=UID) == Path("/run/agentd/agentd.sock")
    assert find_socket(HOME, {"XDG_RUNTIME_DIR": "/run/user/1000"}, uid=UID) == Path(
        "/run/user/1000/agentd.sock"
    )
    assert find_socket(HOME, {}, uid=UID) == HOME / "agentd.sock"


@pytest.mark.parametrize("length", [10, 86, 87, 88, 89, 300])
def test_a_socket_path_is_never_too_long_to_bind(length: int) -> None:
    state = Path("/" + "s" * length)
    path = socket_in(state, uid=UID)
    assert len(os.fsencode(path)) <= 100
    assert (path == state / "agentd.sock") is (len(str(state / "agentd.sock")) <= 100)
    assert path != socket_in(Path(f"{state}x"), uid=UID)


def test_the_length_of_a_path_is_counted_in_bytes() -> None:
    assert socket_in(Path("/" + "日" * 40), uid=UID).parent == Path("/tmp/agentd-1000")


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"XDG_RUNTIME_DIR": "/run/user/1000"},
        {"XDG_RUNTIME_DIR": "/run/" + "x" * 200},
        {"HOME": "/elsewhere"},
    ],
)
@pytest.mark.parametrize("home", [HOME, Path("/home/" + "x" * 200)])
def test_client_looks_at_every_socket_path_of_the_daemon(env: dict[str, str], home: Path) -> None:
    state = find_state(env, home, uid=UID)
    assert find_socket(state, env, uid=UID) in socket_paths(None, env, home, uid=UID)


def test_the_client_finds_a_daemon_of_the_user_session_and_of_the_system_without_its_variables() -> (  # noqa: E501
    None
):
    places = [str(path) for path in socket_paths(None, {}, HOME, uid=UID)]
    assert places == [
        "/run/user/1000/agentd.sock",
        "/home/ada/.local/state/agentd/agentd.sock",
        "/run/agentd/agentd.sock",
    ]


def test_a_named_socket_is_the_only_place() -> None:
    assert socket_paths("/a", {"AGENTD_SOCKET": "/b"}, HOME, uid=UID) == [Path("/a")]
    assert socket_paths(None, {"AGENTD_SOCKET": "/b"}, HOME, uid=UID) == [Path("/b")]


def test_the_longest_accepted_socket_path_can_be_bound(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    while len(str(folder / "agentd.sock")) < 100:
        folder = folder.with_name(folder.name + "s")
    folder.mkdir()
    path = socket_in(folder, uid=UID)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_importing_paths_loads_little_more_than_pathlib() -> None:
    code = (
        "import sys, daemon.definitions.paths; "
        "print(*(m for m in sys.modules if m.split('.')[0] in ('pydantic', 'asyncio')))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == ""
