"""Facts on host, load, memory and disks, on any kind of machine."""

import os
from datetime import timedelta

import pytest

from daemon.tools.builtin.sysinfo.machine import (
    format_load,
    kind_of_machine,
    os_name,
    parse_mounts,
    read_disks,
    read_host,
    read_memory,
)
from daemon.tools.builtin.sysinfo.programs import FactUnavailable
from tests.tools.builtin.sysinfo.program import NOW


@pytest.mark.parametrize(
    ("os_release", "name"),
    [
        (
            'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n',
            "Debian GNU/Linux 12 (bookworm)",
        ),
        ("NAME=Arch\nPRETTY_NAME='Arch Linux'\n", "Arch Linux"),
        ("ID=alpine\nPRETTY_NAME=Alpine\n", "Alpine"),
    ],
)
def test_the_system_name_is_read_from_os_release(os_release, name):
    assert os_name(os_release) == name


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({".dockerenv": ""}, "container (docker)"),
        ({"run/.containerenv": ""}, "container (podman)"),
        ({"run/systemd/container": "systemd-nspawn\n"}, "container (systemd-nspawn)"),
        (
            {"proc/1/cgroup": "0::/kubepods.slice/kubepods-besteffort.slice\n"},
            "container (kubernetes)",
        ),
        ({"proc/1/cgroup": "9:name=systemd:/lxc/box\n"}, "container (lxc)"),
        (
            {"proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2"},
            "Windows Subsystem for Linux",
        ),
        (
            {
                "sys/class/dmi/id/sys_vendor": "QEMU\n",
                "sys/class/dmi/id/product_name": "Standard PC\n",
            },
            "virtual machine (KVM)",
        ),
        (
            {
                "sys/class/dmi/id/sys_vendor": "Microsoft Corporation",
                "sys/class/dmi/id/product_name": "Virtual Machine",
            },
            "virtual machine (Hyper-V)",
        ),
        ({"proc/cpuinfo": "flags\t\t: fpu vme hypervisor lahf_lm\n"}, "virtual machine"),
        (
            {
                "sys/class/dmi/id/sys_vendor": "LENOVO",
                "sys/class/dmi/id/product_name": "20XW00FPGE",
            },
            "LENOVO 20XW00FPGE",
        ),
        (
            {
                "sys/class/dmi/id/sys_vendor": "ASUS",
                "sys/class/dmi/id/product_name": "System Product Name",
            },
            "ASUS",
        ),
        (
            {"proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\x00"},
            "Raspberry Pi 4 Model B Rev 1.4",
        ),
        ({"proc/1/cgroup": "0::/init.scope\n", "proc/cpuinfo": "flags : fpu\n"}, None),
    ],
)
def test_the_kind_of_machine_is_recognized(machine, files, kind):
    assert kind_of_machine(machine(**files)) == kind


def test_uptime_is_a_duration_and_a_start_time(machine):
    boot_time = int((NOW - timedelta(days=12)).timestamp())
    facts = read_host(machine(**{"proc/stat": f"cpu 1 2\nbtime {boot_time}\nprocesses 9\n"}), NOW)
    assert facts["up"] == "12 d, since 2026-11-08 08:30 UTC"


def test_uptime_is_read_from_macos(machine):
    facts = read_host(machine(), NOW, "{ sec = 1795200000, usec = 27181 } Fri Nov 20 18:40:00 2026")
    assert "up" in facts


def test_unknown_facts_of_a_host_are_left_out(machine):
    assert {"up", "machine"}.isdisjoint(read_host(machine(), NOW))


def test_load_is_a_share_of_the_cores():
    assert format_load((2.0, 0.5, 4.21), 4) == {
        "cores": 4,
        "last_minute": "50 % (2.00)",
        "last_5_minutes": "13 % (0.50)",
        "last_15_minutes": "106 % (4.21)",
    }


MEMINFO = """MemTotal:       16000000 kB
MemFree:          500000 kB
MemAvailable:    4000000 kB
Cached:          3000000 kB
SwapTotal:       8000000 kB
SwapFree:        6000000 kB
HugePages_Total:       0
"""


def test_reclaimable_memory_does_not_count_as_used(machine):
    assert read_memory(machine(**{"proc/meminfo": MEMINFO})) == {
        "used": "75 % of 16.4 GB",
        "swap": "25 % of 8.19 GB",
    }


def test_a_machine_without_swap_reports_none(machine):
    text = MEMINFO.replace("8000000", "0").replace("6000000", "0")
    assert read_memory(machine(**{"proc/meminfo": text}))["swap"] == "none"


def test_memory_pressure_is_reported(machine):
    pressure = (
        "some avg10=0.00 avg60=3.10 avg300=7.42 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
        "total=1\n"
    )
    assert read_memory(machine(**{"proc/meminfo": MEMINFO, "proc/pressure/memory": pressure}))[
        "pressure"
    ] == ("7 % of the last 5 minutes")


@pytest.mark.parametrize(
    "files",
    [
        {
            "sys/fs/cgroup/memory.max": "512000000\n",
            "sys/fs/cgroup/memory.current": "500000000\n",
            "sys/fs/cgroup/memory.stat": "anon 100000000\ninactive_file 244000000\n",
        },
        {
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "512000000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "500000000\n",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 244000000\n",
        },
    ],
)
def test_memory_of_a_container_is_a_share_of_its_limit(machine, files):
    assert (
        read_memory(machine(**{"proc/meminfo": MEMINFO}, **files))["container_limit"]
        == "50 % of 512 MB"
    )


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096)])
def test_a_container_without_a_limit_reports_none(machine, limit):
    files = {"sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.current": "1"}
    assert "container_limit" not in read_memory(machine(**{"proc/meminfo": MEMINFO}, **files))


def test_without_proc_the_installed_memory_is_reported(machine):
    assert read_memory(machine()).keys() == {"installed"}


MOUNTINFO = r"""21 26 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
26 1 254:0 / / ro,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
27 26 254:0 /srv /srv/shared rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
28 26 254:2 / /boot/efi rw,relatime shared:30 - vfat /dev/vda2 ro,fmask=0077
29 26 7:1 / /snap/core/1 ro,nodev shared:31 - squashfs /dev/loop1 ro
30 26 0:44 / /mnt/nas rw,relatime shared:32 - nfs4 nas:/export rw,vers=4.2
31 26 0:50 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=a
32 26 8:17 / /media/My\040Disk rw - exfat /dev/sdb1 rw
33 26 0:31 / /run rw,nosuid - tmpfs tmpfs rw,size=10
34 26 254:5 /etc/hosts /etc/hosts rw - ext4 /dev/vda5 rw
35 26 254:5 / /var/lib/data rw - ext4 /dev/vda5 rw
broken line
"""


def anywhere(path):
    return path != "/etc/hosts"


def test_each_real_file_system_is_listed_once():
    assert [mount.point for mount in parse_mounts(MOUNTINFO, anywhere)] == [
        "/",
        "/boot/efi",
        "/media/My Disk",
        "/var/lib/data",
    ]


def test_a_label_that_a_stranger_gave_a_disk_is_not_shown():
    lines = "".join(
        f"{number} 1 8:{number} / {target} rw - {kind} {source} rw\n"
        for number, (target, kind, source) in enumerate(
            [
                ("/media/IGNORE_ALL_RULES", "vfat", "/dev/sdb1"),
                (r"/run/media/anna/Send\040the\040key", "exfat", "/dev/nvme1n1p2"),
                ("/media/anna/LABEL", "ext4", "/dev/mapper/SEND-KEY"),
                ("/run/media/anna/X", "fuseblk", "SEND"),
                ("/mediatheque", "ext4", "/dev/sdc1"),
                ("/mnt/backup", "ext4", "/dev/mapper/data"),
            ]
        )
    )
    assert {mount.name for mount in parse_mounts(lines, anywhere)} == {
        "/media/… (sdb1)",
        "/run/media/… (nvme1n1p2)",
        "/media/… (8:2)",
        "/run/media/… (8:3)",
        "/mediatheque",
        "/mnt/backup",
    }


def test_a_disk_read_only_only_for_the_daemon_is_not_reported_read_only():
    assert [mount.point for mount in parse_mounts(MOUNTINFO, anywhere) if mount.read_only] == [
        "/boot/efi"
    ]


def test_the_root_of_a_container_is_a_disk():
    line = "500 400 0:60 / / rw,relatime - overlay overlay rw,lowerdir=/x\n"
    assert [mount.point for mount in parse_mounts(line)] == ["/"]


def statvfs(blocks, free, available, files=1000, free_files=900):
    return os.statvfs_result(
        (4096, 4096, blocks, free, available, files, free_files, free_files, 0, 255)
    )


def test_percent_used_equals_that_of_df(machine):
    # 100 GB, 20 GB reserved for root: df divides by what an ordinary user can reach
    files = machine(**{"proc/self/mountinfo": "26 1 8:1 / / rw - ext4 /dev/sda1 rw\n"})
    assert read_disks(files, lambda _: statvfs(25_000_000, 10_000_000, 5_000_000)) == [
        {"mount": "/", "used": "75 % of 102 GB", "free": "20 GB", "inodes": "10 %"}
    ]


def test_a_read_only_disk_and_a_disk_without_inodes_are_marked(machine):
    files = machine(**{"proc/self/mountinfo": "26 1 8:1 / / rw - btrfs /dev/sda1 ro\n"})
    [row] = read_disks(files, lambda _: statvfs(1000, 500, 500, files=0, free_files=0))
    assert (row["inodes"], row["note"]) == ("no limit", "read-only")


def test_an_unreadable_disk_is_left_out_and_no_disk_at_all_is_reported(machine):
    def refuse(path):
        raise PermissionError(path)

    with pytest.raises(FactUnavailable, match="no file system"):
        read_disks(machine(), refuse)
