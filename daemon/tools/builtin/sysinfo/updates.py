"""Which updates wait, and whether something waits for a reboot: one row of a table per package
manager.

Nothing here goes to the network or refreshes a list: a report must not be what changes a machine.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from daemon.models import Json
from daemon.tools.builtin.sysinfo.machine import Files, in_container
from daemon.tools.builtin.sysinfo.programs import FactUnavailable, ProgramOutput, RunProgram

_MAX_NAMES = 10  # how many packages are named before "and 33 more"
_MAX_AGE = timedelta(days=7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """One package that waits for its newer version."""

    package: str
    security: bool = False


def read_apt(text: str) -> list[Update]:
    """Read `apt list --upgradable`: `bash/stable-security,now 5.2-2 amd64 [upgradable from:
    5.2-1]`.
    """
    lines = re.finditer(r"^([^/\s]+)/(\S+) \S+ \S+ \[upgradable from: ", text, re.MULTILINE)
    return [Update(package=line[1], security="-security" in line[2]) for line in lines]


def read_dnf(text: str) -> list[Update]:
    """Read `dnf check-update`: `bash.x86_64  5.2.26-3.fc40  updates`, up to the list of obsoleted
    packages.
    """
    listing = re.split(r"^Obsoleting ", text, maxsplit=1, flags=re.MULTILINE)[0]
    lines = re.finditer(
        r"^(\S+)\.(?:noarch|x86_64|i686|aarch64|ppc64le|s390x|riscv64)\s+\S+\s+\S+\s*$",
        listing,
        re.MULTILINE,
    )
    return [Update(package=line[1]) for line in lines]


def read_pacman(text: str) -> list[Update]:
    """Read `pacman -Qu`: `linux 6.9.1-1 -> 6.9.3-1`; what the owner told it to leave alone is
    marked [ignored].
    """
    return [
        Update(package=line[1]) for line in re.finditer(r"^(\S+) \S+ -> \S+$", text, re.MULTILINE)
    ]


def read_zypper(text: str) -> list[Update]:
    """Read `zypper list-updates`: `v | repo-oss | bash | 5.2-1 | 5.2-2 | x86_64`."""
    return [
        Update(package=line[1])
        for line in re.finditer(r"^v\s*\|[^|]*\|\s*(\S+)\s*\|", text, re.MULTILINE)
    ]


def read_apk(text: str) -> list[Update]:
    """Read `apk version -l '<'`: `musl-1.2.4-r2  < 1.2.5-r0`."""
    return [
        Update(package=line[1]) for line in re.finditer(r"^(\S+?)-\d\S*\s+<\s", text, re.MULTILINE)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageManager:
    """How one package manager is asked, and how its answer is read."""

    marker: str
    """A file that exists where the manager manages the system, not where it is merely installed."""
    argv: tuple[str, ...]
    read: Callable[[str], list[Update]]
    refresh: str
    """The command that brings the manager's lists up to date."""
    lists: tuple[str, ...] = ()
    """Files whose time shows when the lists were last refreshed, the most reliable first."""
    success_codes: frozenset[int] = frozenset([0])
    tells_security: bool = False


MANAGERS = (
    PackageManager(
        marker="var/lib/dpkg/status",
        argv=("apt", "list", "--upgradable"),
        read=read_apt,
        refresh="apt update",
        lists=("var/lib/apt/periodic/update-success-stamp", "var/lib/apt/lists"),
        tells_security=True,
    ),
    PackageManager(
        marker="var/lib/pacman/local",
        argv=("pacman", "-Qu"),
        read=read_pacman,
        refresh="pacman -Syu",
        lists=("var/lib/pacman/sync",),
        success_codes=frozenset([0, 1]),  # 1: nothing to list
    ),
    PackageManager(
        marker="etc/zypp",
        argv=("zypper", "--non-interactive", "--no-refresh", "--quiet", "list-updates"),
        read=read_zypper,
        refresh="zypper refresh",
        lists=("var/cache/zypp/solv",),
    ),
    PackageManager(
        marker="etc/dnf",
        argv=("dnf", "--quiet", "--cacheonly", "check-update"),
        read=read_dnf,
        refresh="dnf makecache",
        success_codes=frozenset([0, 100]),  # 100: there are updates
    ),
    PackageManager(
        marker="lib/apk/db", argv=("apk", "version", "-l", "<"), read=read_apk, refresh="apk update"
    ),
)


async def read_updates(files: Files, run_program: RunProgram, now: datetime) -> Json:
    """Return how many updates wait, which, and whether a reboot is asked for."""
    manager = next((manager for manager in MANAGERS if files.exists(manager.marker)), None)
    if manager is None:
        raise FactUnavailable(
            "not known: none of the package managers that agentd can ask is in use here"
        )
    if manager.argv[0] == "apt" and not list(
        (files.root / "var/lib/apt/lists").glob("*_Packages*")
    ):
        raise FactUnavailable("not known: apt has no package lists here; `apt update` fetches them")
    output = await run_program(manager.argv, 30)
    if output.code not in manager.success_codes:
        raise FactUnavailable(f"not known: {manager.argv[0]} gave no list: {output.complaint}")
    return describe_updates(manager, output, files, now)


def describe_updates(
    manager: PackageManager, output: ProgramOutput, files: Files, now: datetime
) -> Json:
    """Return the facts of an answer; they stay the same while nothing changes, so that a gate
    can compare them.
    """
    updates = manager.read(output.text)
    facts: Json = {"pending": len(updates)}
    if manager.tells_security:
        facts["security"] = sum(update.security for update in updates)
    if updates:
        facts["packages"] = _names(updates)
    if lists_time := _lists_time(manager, files, now):
        facts["lists"] = f"from {lists_time:%Y-%m-%d}, so more may wait: `{manager.refresh}`"
    facts["reboot"] = describe_reboot(files)
    return facts


def _names(updates: list[Update]) -> str:
    """Name security updates first, then the others in the manager's order."""
    names = list(
        dict.fromkeys(
            update.package for update in sorted(updates, key=lambda update: not update.security)
        )
    )
    excess = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {excess} more" if excess > 0 else "")


def _lists_time(manager: PackageManager, files: Files, now: datetime) -> datetime | None:
    """Return when the lists were refreshed if that is too long ago to be trusted."""
    for path in manager.lists:
        if files.exists(path):
            refreshed_at = datetime.fromtimestamp(
                (files.root / path).stat().st_mtime, tz=now.tzinfo
            )
            return refreshed_at if now - refreshed_at > _MAX_AGE else None
    return None


def describe_reboot(files: Files, release: str | None = None) -> str:
    """Return whether the system waits for a reboot, by two signs that cost nothing to see.

    Debian's packages leave a note. Anywhere a newer kernel of the same flavour may lie beside the
    running one; one of another flavour says nothing, since many virtual machines are started with a
    kernel from outside.
    """
    if files.exists("run/reboot-required"):
        packages = sorted(set(files.read("run/reboot-required.pkgs").split()))
        return f"needed, for {', '.join(packages)}" if packages else "needed"
    running_kernel = release or platform.release()
    flavour = _flavour(running_kernel)
    kernels = [path.parent.name for path in (files.root / "lib/modules").glob("*/modules.dep")]
    newest = max(
        (kernel for kernel in kernels if _flavour(kernel) == flavour),
        key=_version,
        default=running_kernel,
    )
    if _version(newest) > _version(running_kernel) and not in_container(files):
        return f"needed: kernel {newest} is installed, {running_kernel} is running"
    return "nothing asks for one"


def _flavour(kernel: str) -> str:
    return re.sub(r"\d+", "#", kernel)


def _version(kernel: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", kernel)]
