"""The parts of a system that every program needs: libraries, and settings without private data."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Programs and libraries; all but the first are links into it on most systems."""

SETTINGS = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/locale.alias",
    "/etc/magic",
    "/etc/magic.mime",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
    "/etc/terminfo",
    "/etc/python3",
    "/etc/perl",
    "/etc/ssl/openssl.cnf",
)
"""Files and folders of /etc without keys and hosts; of accounts they hold the names."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

MACHINE_FOLDERS = ("/etc", "/proc", "/sys", "/run", "/var/log", "/var/run", "/dev", "/boot")
"""Folders of facts about the machine; a program reads in them what its user may read."""


def system_links() -> list[tuple[str, str]]:
    """Return those of FOLDERS that are links, as pairs of where the link leads and its path."""
    return [(str(Path(name).readlink()), name) for name in FOLDERS if Path(name).is_symlink()]


def system_folders() -> list[str]:
    """Return those of FOLDERS that exist and are no links."""
    return [name for name in FOLDERS if Path(name).is_dir() and not Path(name).is_symlink()]
