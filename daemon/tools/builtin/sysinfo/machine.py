"""What the kernel tells about the machine itself: host, load, memory, disks.

Read from /proc, /sys and /etc below a root that tests can choose. Not here: anything that starts a
program, but for macOS, which has no /proc.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from daemon.durations import duration_in_words
from daemon.models import Json
from daemon.tools.builtin.sysinfo.programs import FactUnavailable
from daemon.tools.builtin.sysinfo.words import (
    format_moment,
    format_share,
    format_size,
)

# File systems on a medium of this machine. A network one is left out on purpose: asking it for its
# size hangs for as long as its server is away. Images that are always full (squashfs, iso9660) and
# those in memory say nothing.
_REAL_FILE_SYSTEMS = re.compile(
    "ext[234]|xfs|btrfs|zfs|bcachefs|f2fs|jfs|nilfs2|reiserfs|overlay|vfat|exfat|ntfs3?|fuseblk|hfs(plus)?|apfs"
)

# Words of the firmware's tables that give a virtual machine away.
_VIRTUAL_MACHINES = (
    ("vmware", "VMware"),
    ("virtualbox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("amazon ec2", "Amazon EC2"),
    ("google compute engine", "Google Compute Engine"),
    ("microsoft corporation virtual machine", "Hyper-V"),
    ("parallels", "Parallels"),
    ("openstack", "OpenStack"),
    ("digitalocean", "DigitalOcean"),
    ("hetzner", "Hetzner"),
    ("xen", "Xen"),
    ("kvm", "KVM"),
    ("qemu", "KVM"),
    ("bochs", "Bochs"),
)
_CONTAINERS = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
)
# What vendors of mainboards leave in place of a name.
_NO_NAME = re.compile(
    r"to be filled|default string|system (product|manufacturer)|not specified|o\.e\.m|^none$",
    re.IGNORECASE,
)


class Files:
    """Read small files of the kernel below a root; what cannot be read is empty."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def read(self, path: str) -> str:
        try:
            return (self.root / path).read_bytes().decode(errors="replace").strip("\x00\n ")
        except OSError:
            return ""

    def exists(self, path: str) -> bool:
        return os.access(self.root / path, os.F_OK)


def read_host(files: Files, now: datetime, sysctl_answer: str = "") -> Json:
    """Return name, system, kernel, kind of machine and since when it is up; `sysctl_answer` is what
    `sysctl kern.boottime` of macOS says of that.
    """
    boot_time = _boot_time(files.read("proc/stat"), sysctl_answer, now)
    facts = {
        "name": platform.node() or None,
        "system": os_name(files.read("etc/os-release") or files.read("usr/lib/os-release")),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "machine": kind_of_machine(files),
    }
    if boot_time:
        uptime = duration_in_words((now - boot_time).total_seconds())
        facts["up"] = f"{uptime}, since {format_moment(boot_time)}"
    return {key: fact for key, fact in facts.items() if fact is not None}


def os_name(os_release: str) -> str:
    """Return the distribution's own name for itself; without one, what Python knows."""
    match = re.search(r'^PRETTY_NAME=["\']?(.*?)["\']?$', os_release, re.MULTILINE)
    if match and match[1]:
        return match[1]
    release, _, _ = platform.mac_ver()
    return f"macOS {release}" if release else platform.system()


def _boot_time(stat: str, sysctl_answer: str, now: datetime) -> datetime | None:
    match = re.search(r"^btime (\d+)$", stat, re.MULTILINE) or re.search(
        r"\bsec = (\d+)", sysctl_answer
    )
    return datetime.fromtimestamp(int(match[1]), tz=now.tzinfo) if match else None


def kind_of_machine(files: Files) -> str | None:
    """Return `container (docker)`, `virtual machine (KVM)` or the maker's name of the box, if it is
    cheap to see.
    """
    if container := in_container(files):
        return container
    if "microsoft" in files.read("proc/sys/kernel/osrelease").lower():
        return "Windows Subsystem for Linux"
    maker, product = (
        files.read(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")
    )
    product_name = f"{maker} {product}".strip()
    for word, name in _VIRTUAL_MACHINES:
        if word in product_name.lower():
            return f"virtual machine ({name})"
    if re.search(r"^flags\s*:.*\bhypervisor\b", files.read("proc/cpuinfo"), re.MULTILINE):
        return "virtual machine"
    if board := files.read("proc/device-tree/model"):
        return board
    return " ".join(part for part in (maker, product) if part and not _NO_NAME.search(part)) or None


def in_container(files: Files) -> str | None:
    if files.exists(".dockerenv"):
        return "container (docker)"
    if files.exists("run/.containerenv"):
        return "container (podman)"
    if manager := files.read("run/systemd/container"):
        return f"container ({manager})"
    groups = files.read("proc/1/cgroup")
    return next((f"container ({name})" for word, name in _CONTAINERS if f"/{word}" in groups), None)


def format_load(averages: tuple[float, float, float], cores: int) -> Json:
    """Return the load averages as shares of the cores: above 100 % work is waiting."""
    names = ("last_minute", "last_5_minutes", "last_15_minutes")
    shares = {
        name: f"{format_share(round(average, 2), cores)} ({average:.2f})"
        for name, average in zip(names, averages, strict=True)
    }
    return {"cores": cores, **shares}


def read_memory(files: Files) -> Json:
    """Return how much memory and swap are in use, the container's own limit if there is one, and
    the pressure.
    """
    table = {
        name: int(count) * 1024
        for name, count in re.findall(
            r"^(\w+):\s+(\d+) kB$", files.read("proc/meminfo"), re.MULTILINE
        )
    }
    if not table.get("MemTotal"):
        return _installed_memory()
    total, swap = table["MemTotal"], table.get("SwapTotal", 0)
    # MemAvailable is from Linux 3.14; caches that the kernel gives back on demand are not "in use"
    available = table.get("MemAvailable", table.get("MemFree", 0) + table.get("Cached", 0))
    facts: Json = {
        "used": f"{format_share(total - available, total)} of {format_size(total)}",
        "swap": f"{format_share(swap - table.get('SwapFree', 0), swap)} of {format_size(swap)}"
        if swap
        else "none",
    }
    if limit := _container_limit(files, total):
        facts["container_limit"] = limit
    if match := re.search(
        r"^some .*avg300=(\d+)\.", files.read("proc/pressure/memory"), re.MULTILINE
    ):
        facts["pressure"] = f"{match[1]} % of the last 5 minutes" if int(match[1]) else "none"
    return facts


def _installed_memory() -> Json:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        raise FactUnavailable("not known on this system") from None
    return {"installed": format_size(total)}


def _container_limit(files: Files, total: int) -> str | None:
    for folder, limit, used, cache in (
        ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        (
            "sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        limit_text, used_text = files.read(f"{folder}/{limit}"), files.read(f"{folder}/{used}")
        # version 1 writes "no limit" as 2**63
        if limit_text.isdigit() and used_text.isdigit() and 0 < int(limit_text) < total:
            # pages of files are counted as used, although the kernel drops them before it refuses
            # anything
            inactive = re.search(
                rf"^{cache} (\d+)$", files.read(f"{folder}/memory.stat"), re.MULTILINE
            )
            used_bytes = int(used_text) - (int(inactive[1]) if inactive else 0)
            return f"{format_share(used_bytes, int(limit_text))} of {format_size(int(limit_text))}"
    return None


# Where desktops mount what a stranger may have plugged in, by the label that the stranger gave it.
_REMOVABLE = re.compile("(/media|/run/media)/.*", re.DOTALL)
# A name that the kernel gave; in /dev/mapper are names that stand on the disk itself.
_KERNEL_NAME = re.compile(r"/dev/((?:[hsv]d|xvd|nvme|mmcblk|sr|md|dm-|loop)[a-z0-9]{0,12})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One file system and where it is."""

    point: str
    read_only: bool
    device: str
    """The kernel's name of the disk, or else its number, such as 8:17."""

    @property
    def name(self) -> str:
        """How a report names it: by where it is, without the label of a removable disk."""
        match = _REMOVABLE.fullmatch(self.point)
        return f"{match[1]}/… ({self.device})" if match else self.point


def parse_mounts(mountinfo: str, is_folder: Callable[[str], bool] = os.path.isdir) -> list[Mount]:
    """Read /proc/self/mountinfo: the file systems on real media, each once, by its shortest path.

    A container sees single files such as /etc/hosts as mounts of the host's disk; these are left
    out. Whether a file system is read-only is read from its own options: our mount of it may merely
    be a hardened one.
    """
    mounts_by_point: dict[str, Mount] = {}
    for line in mountinfo.splitlines():
        mount_fields, _, source_fields = line.partition(" - ")
        if len(mount_fields.split(" ")) < 6 or len(source_fields.split(" ")) < 3:
            continue
        _, _, device, _, target, *_ = mount_fields.split(" ")
        kind, source, options = source_fields.split(" ")[:3]
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), target)
        if (
            not _REAL_FILE_SYSTEMS.fullmatch(kind)
            or (kind == "overlay" and point != "/")
            or not is_folder(point)
        ):
            # overlays other than our own root are other containers, on disks that are listed anyway
            continue
        if device not in mounts_by_point or len(point) < len(mounts_by_point[device].point):
            kernel_name = _KERNEL_NAME.fullmatch(source)
            mounts_by_point[device] = Mount(
                point=point,
                read_only="ro" in options.split(","),
                device=kernel_name[1] if kernel_name else device,
            )
    return sorted(mounts_by_point.values(), key=lambda mount: mount.point)


def read_disks(
    files: Files, statvfs: Callable[[str], os.statvfs_result] = os.statvfs
) -> list[Json]:
    """Return one row per real file system, as df computes it, rounded so that small changes leave
    the row as it is.
    """
    table = parse_mounts(files.read("proc/self/mountinfo")) or [
        Mount(point="/", read_only=False, device="")
    ]
    rows = list(_rows(table, statvfs))
    if not rows:
        raise FactUnavailable("no file system could be asked")
    if not any(row["note"] for row in rows):
        for row in rows:
            del row["note"]
    return rows


def _rows(table: Iterable[Mount], statvfs: Callable[[str], os.statvfs_result]) -> Iterable[Json]:
    for mount in table:
        try:
            statistics = statvfs(mount.point)
        except OSError:
            continue
        used, free = statistics.f_blocks - statistics.f_bfree, statistics.f_bavail
        if not statistics.f_blocks:
            continue
        total = format_size(statistics.f_blocks * statistics.f_frsize)
        yield {
            "mount": mount.name,
            "used": f"{format_share(used, used + free)} of {total}",
            "free": format_size(free * statistics.f_frsize, digits=2),
            "inodes": format_share(statistics.f_files - statistics.f_ffree, statistics.f_files)
            if statistics.f_files
            else "no limit",
            "note": "read-only" if mount.read_only else "",
        }
