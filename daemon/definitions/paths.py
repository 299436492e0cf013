"""Where config, state and socket lie; standard library only, as the daemon and its small client
both ask here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

OVERLAY = "overlay.toml"
"""Settings that agents wrote, in the state folder; it stands above config.toml."""
LONGEST_SOCKET = 100
"""A socket's path may have 107 bytes on Linux and 103 on macOS; some room is left for
`agentd-hooks.sock`.
"""


def user_home() -> Path:
    """Return the user's home folder; `/` for a user without one, as containers have it too."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def config_places(env: Mapping[str, str], cwd: Path, home: Path) -> list[Path]:
    """Return where a config file may lie, the strongest place first."""
    if named := env.get("AGENTD_CONFIG"):
        return [Path(named)]
    return [
        cwd / "config.toml",
        home / ".config/agentd/config.toml",
        Path("/etc/agentd/config.toml"),
    ]


def looked_at(env: Mapping[str, str], cwd: Path, home: Path) -> str:
    """Return where a config was looked for in vain, in words."""
    return ", ".join(
        f"{place} (there, but not yours: name it with --config to use it)"
        if place.is_file()
        else str(place)
        for place in config_places(env, cwd, home)
    )


def find_config(
    explicit: Path | None, env: Mapping[str, str], cwd: Path, home: Path
) -> Path | None:
    """Return the config file to use; a named one is returned even if it is missing, so that its
    absence is told.
    """
    if explicit is not None:
        return explicit
    if named := env.get("AGENTD_CONFIG"):
        return Path(named)
    here, *others = config_places(env, cwd, home)
    if (
        here.is_file() and here.stat().st_uid == os.geteuid()
    ):  # a stranger's folder must not configure our agents
        return here
    return next((place for place in others if place.is_file()), None)


def find_state(env: Mapping[str, str], home: Path, *, uid: int) -> Path:
    """Return the folder of the daemon's own data."""
    if given := env.get("STATE_DIRECTORY"):
        return Path(given.partition(":")[0])  # systemd lists several with colons
    return Path("/var/lib/agentd") if uid == 0 else home / ".local/state/agentd"


def find_socket(state: Path, env: Mapping[str, str], *, uid: int) -> Path:
    """Return where the daemon listens."""
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        if folder := env.get(name, "").partition(":")[0]:
            return short(Path(folder) / "agentd.sock", uid=uid)
    return socket_in(state, uid=uid)


def socket_in(state: Path, *, uid: int) -> Path:
    """Return the socket that belongs to a state folder and to nothing else."""
    return short(state / "agentd.sock", uid=uid)


def hooks_beside(socket: Path) -> Path:
    """Return where webhooks are taken by the daemon that has this control socket."""
    return socket.with_name(f"{socket.stem}-hooks.sock")


def socket_places(
    explicit: str | None, env: Mapping[str, str], home: Path, *, uid: int
) -> list[Path]:
    """Return where a client looks for the daemon, in order."""
    if named := explicit or env.get("AGENTD_SOCKET"):
        return [Path(named)]
    folders = [Path(env["XDG_RUNTIME_DIR"])] if env.get("XDG_RUNTIME_DIR") else []
    folders += [Path(f"/run/user/{uid}"), find_state(env, home, uid=uid), Path("/run/agentd")]
    return list(dict.fromkeys(short(folder / "agentd.sock", uid=uid) for folder in folders))


def short(socket: Path, *, uid: int) -> Path:
    """Return the path itself, or one that stands for it when it is too long for a socket address.

    Not $TMPDIR: daemon and client may see different ones. Whoever uses the folder checks that it is
    theirs.
    """
    raw = os.fsencode(socket.absolute())
    if len(raw) <= LONGEST_SOCKET:
        return socket
    # it loads OpenSSL, which a client that asks for a list of routines need not wait for
    import hashlib

    return Path(f"/tmp/agentd-{uid}") / f"{hashlib.sha256(raw).hexdigest()[:16]}.sock"  # noqa: S108 - see above
