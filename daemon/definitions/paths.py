"""The paths of config file, state folder and sockets.

Standard library only, as the client imports this module, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

OVERLAY = "overlay.toml"
"""The file of the state folder with the settings that agents wrote; they override config.toml."""
MAX_SOCKET_PATH = 100
"""In bytes. Linux takes 107 and macOS 103; some are left for the longer name `agentd-hooks.sock`.
"""


def user_home() -> Path:
    """Return the user's home folder; `/` for a user without one, as containers have it too."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def user_config_folder(env: Mapping[str, str], home: Path) -> Path:
    """Return the folder of a user's config: `agentd` in $XDG_CONFIG_HOME or ~/.config."""
    return _base_folder(env, "XDG_CONFIG_HOME", home / ".config") / "agentd"


def _base_folder(env: Mapping[str, str], variable: str, default: Path) -> Path:
    """Return a folder of the XDG base directory specification, by which a path that is not
    absolute is to be ignored.
    """
    folder = Path(env.get(variable, ""))
    return folder if folder.is_absolute() else default


def config_paths(env: Mapping[str, str], cwd: Path, home: Path) -> list[Path]:
    """Return the paths at which a config file is looked for, in order."""
    if explicit_name := env.get("AGENTD_CONFIG"):
        return [Path(explicit_name)]
    return [
        cwd / "config.toml",
        user_config_folder(env, home) / "config.toml",
        Path("/etc/agentd/config.toml"),
    ]


def describe_config_paths(env: Mapping[str, str], cwd: Path, home: Path) -> str:
    """Return in words at which paths no usable config file was found."""
    return ", ".join(
        f"{path} (there, but not yours: name it with --config to use it)"
        if path.is_file()
        else str(path)
        for path in config_paths(env, cwd, home)
    )


def find_config(
    explicit: Path | None, env: Mapping[str, str], cwd: Path, home: Path
) -> Path | None:
    """Return the config file to use; None if there is none.

    A file that was named is returned even if it is missing, so that its absence is reported.
    """
    if explicit is not None:
        return explicit
    if explicit_name := env.get("AGENTD_CONFIG"):
        return Path(explicit_name)
    local_file, *system_files = config_paths(env, cwd, home)
    # The folder of somebody else must not configure this user's agents.
    if local_file.is_file() and local_file.stat().st_uid == os.geteuid():
        return local_file
    return next((path for path in system_files if path.is_file()), None)


def find_state(env: Mapping[str, str], home: Path, *, uid: int) -> Path:
    """Return the state folder."""
    if folder := env.get("AGENTD_STATE"):
        return Path(folder)
    if folders := env.get("STATE_DIRECTORY"):
        return Path(folders.partition(":")[0])  # systemd lists several with colons
    if uid == 0:
        return Path("/var/lib/agentd")
    return _base_folder(env, "XDG_STATE_HOME", home / ".local/state") / "agentd"


def find_socket(state: Path, env: Mapping[str, str], *, uid: int) -> Path:
    """Return the path of the control socket."""
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        if folder := env.get(name, "").partition(":")[0]:
            return short_socket_path(Path(folder) / "agentd.sock", uid=uid)
    return socket_in(state, uid=uid)


def socket_in(state: Path, *, uid: int) -> Path:
    """Return the path of the control socket that lies in a state folder."""
    return short_socket_path(state / "agentd.sock", uid=uid)


def hooks_socket_for(socket: Path) -> Path:
    """Return the path of the webhook socket of the daemon with this control socket."""
    return socket.with_name(f"{socket.stem}-hooks.sock")


def socket_paths(
    explicit: str | None, env: Mapping[str, str], home: Path, *, uid: int
) -> list[Path]:
    """Return the paths at which a client looks for the control socket, in order."""
    if explicit_name := explicit or env.get("AGENTD_SOCKET"):
        return [Path(explicit_name)]
    folders = [Path(env["XDG_RUNTIME_DIR"])] if env.get("XDG_RUNTIME_DIR") else []
    folders += [Path(f"/run/user/{uid}"), find_state(env, home, uid=uid), Path("/run/agentd")]
    return list(
        dict.fromkeys(short_socket_path(folder / "agentd.sock", uid=uid) for folder in folders)
    )


def short_socket_path(socket: Path, *, uid: int) -> Path:
    """Return the path itself, or a short one in /tmp that stands for a path too long for a socket.

    Not in $TMPDIR, which may differ between daemon and client. Callers check the owner of the
    folder.
    """
    raw = os.fsencode(socket.absolute())
    if len(raw) <= MAX_SOCKET_PATH:
        return socket
    # Imported here, as it loads OpenSSL: the client is spared that.
    import hashlib

    return Path(f"/tmp/agentd-{uid}") / f"{hashlib.sha256(raw).hexdigest()[:16]}.sock"  # noqa: S108 - see above
