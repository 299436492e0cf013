"""The parts of a system that every program needs: its libraries and settings that tell nothing of
anybody.
"""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Programs and libraries; all but the first are links into it on most systems."""

SETTINGS = (
    *(
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/ld.so.preload",
    ),
    *(
        "/etc/passwd",
        "/etc/group",
        "/etc/nsswitch.conf",
        "/etc/localtime",
        "/etc/timezone",
        "/etc/os-release",
    ),
    *(
        "/etc/debian_version",
        "/etc/locale.alias",
        "/etc/magic",
        "/etc/magic.mime",
        "/etc/mime.types",
    ),
    *(
        "/etc/protocols",
        "/etc/services",
        "/etc/terminfo",
        "/etc/python3",
        "/etc/perl",
        "/etc/ssl/openssl.cnf",
    ),
)
"""Of /etc; no keys, no hosts, no accounts but names."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

MACHINE_FOLDERS = ("/etc", "/proc", "/sys", "/run", "/var/log", "/var/run", "/dev", "/boot")
"""What a program that looks at the machine reads, each as far as the user may."""


def system_links() -> list[tuple[str, str]]:
    """Return the folders of programs that are links, and where they lead."""
    return [(str(Path(name).readlink()), name) for name in FOLDERS if Path(name).is_symlink()]


def system_folders() -> list[str]:
    """Return the folders of programs that are folders."""
    return [name for name in FOLDERS if Path(name).is_dir() and not Path(name).is_symlink()]
