"""Pending updates of every package manager, and nothing unknown is claimed."""

import os
from datetime import timedelta

import pytest

from daemon.tools.builtin.sysinfo.machine import in_container
from daemon.tools.builtin.sysinfo.programs import FactUnavailable
from daemon.tools.builtin.sysinfo.updates import (
    MANAGERS,
    Update,
    describe_reboot,
    read_apk,
    read_apt,
    read_dnf,
    read_pacman,
    read_updates,
    read_zypper,
)
from tests.tools.builtin.sysinfo.program import NOW, Program

APT = """Listing...
bash/oldstable 5.2.15-2+b13 amd64 [upgradable from: 5.2.15-2+b8]
libssl3/stable-security,now 3.0.15-1~deb12u1 amd64 [upgradable from: 3.0.14-1~deb12u2]
python3-minimal/jammy-updates,jammy-security 3.10.6-1 amd64 [upgradable from: 3.10.4]
"""
DNF = """
Last metadata expiration check: 0:12:01 ago on Fri 20 Nov 2026.
bash.x86_64                      5.2.26-4.fc40            updates
glibc-langpack-en.x86_64         2.39-22.fc40             updates
tzdata.noarch                    2026b-1.fc40             updates
Obsoleting Packages
foo.noarch                       1-1                      updates
    bar.noarch                   1-0                      @updates
"""
ZYPPER = """S | Repository | Name | Current Version | Available Version | Arch
--+------------+------+-----------------+-------------------+-------
v | repo-oss   | bash | 5.2.15-1.1      | 5.2.26-1.1        | x86_64
v | repo-oss   | vim  | 9.1.0-1.1       | 9.1.2-1.1         | x86_64
"""


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (read_apt, APT, [("bash", False), ("libssl3", True), ("python3-minimal", True)]),
        (read_apt, "Listing...\n", []),
        (read_dnf, DNF, [("bash", False), ("glibc-langpack-en", False), ("tzdata", False)]),
        (
            read_pacman,
            "linux 6.9.1.arch1-1 -> 6.9.3.arch1-1\nvim 9.1-1 -> 9.2-1 [ignored]\n",
            [("linux", False)],
        ),
        (read_zypper, ZYPPER, [("bash", False), ("vim", False)]),
        (
            read_apk,
            (
                "Installed:       Available:\nmusl-1.2.4-r2   < "
                "1.2.5-r0\nca-certificates-bundle-2026-r0 < 2027-r0\n"
            ),
            [("musl", False), ("ca-certificates-bundle", False)],
        ),
    ],
)
def test_the_output_of_each_package_manager_is_parsed(parse, text, expected):
    assert parse(text) == [
        Update(package=package, security=security) for package, security in expected
    ]


@pytest.fixture
def debian(machine, tmp_path):
    """A Debian whose lists were fetched just now."""
    files = machine(
        **{
            "var/lib/dpkg/status": "",
            "var/lib/apt/lists/x_Packages": "",
            "var/lib/apt/periodic/update-success-stamp": "",
        }
    )
    stamp = NOW.timestamp()
    os.utime(tmp_path / "var/lib/apt/periodic/update-success-stamp", (stamp, stamp))
    return files


async def test_pending_updates_are_counted_with_security_updates_first(debian):
    assert await read_updates(debian, Program(APT), NOW) == {
        "pending": 3,
        "security": 2,
        "packages": "libssl3, python3-minimal, bash",
        "reboot": "nothing asks for one",
    }


async def test_many_pending_updates_are_named_in_part(debian):
    text = "".join(f"p{n}/stable 2 amd64 [upgradable from: 1]\n" for n in range(14))
    assert (await read_updates(debian, Program(text), NOW))["packages"].endswith("p9 and 4 more")


async def test_an_up_to_date_machine_has_no_pending_updates(debian):
    assert (await read_updates(debian, Program("Listing...\n"), NOW))["pending"] == 0


async def test_stale_package_lists_are_marked(debian):
    later = NOW + timedelta(days=30)
    assert (await read_updates(debian, Program(APT), later))[
        "lists"
    ] == "from 2026-11-20, so more may wait: `apt update`"


async def test_missing_package_lists_are_reported_as_unknown(machine):
    with pytest.raises(FactUnavailable, match="`apt update` fetches them"):
        await read_updates(machine(**{"var/lib/dpkg/status": ""}), Program(APT), NOW)


async def test_an_error_of_the_package_manager_is_quoted(machine):
    with pytest.raises(FactUnavailable, match=r"dnf gave no list: Cache-only enabled but no cache"):
        await read_updates(
            machine(**{"etc/dnf/dnf.conf": ""}),
            Program(code=1, errors="Error: x\nCache-only enabled but no cache for 'fedora'\n"),
            NOW,
        )


async def test_exit_code_100_of_dnf_is_a_list(machine):
    facts = await read_updates(machine(**{"etc/dnf/dnf.conf": ""}), Program(DNF, code=100), NOW)
    assert facts["pending"] == 3
    assert "security" not in facts  # not told by this command, so not claimed to be none


async def test_an_unknown_system_has_unknown_updates(machine):
    with pytest.raises(FactUnavailable, match="not known"):
        await read_updates(machine(), Program(), NOW)


def test_every_package_manager_is_recognized_by_its_own_file():
    assert len({manager.marker for manager in MANAGERS}) == len(MANAGERS)


def test_reboot_required_of_debian_names_its_packages(machine):
    note = {
        "run/reboot-required": "",
        "run/reboot-required.pkgs": "linux-image-6.1\nlibc6\nlibc6\n",
    }
    assert describe_reboot(machine(**note)) == "needed, for libc6, linux-image-6.1"


@pytest.mark.parametrize(
    ("installed_kernels", "running_kernel", "expected_text"),
    [
        (
            ["6.1.0-26-amd64", "6.1.0-28-amd64"],
            "6.1.0-26-amd64",
            "needed: kernel 6.1.0-28-amd64 is installed",
        ),
        (["6.9.3-arch1-1"], "6.9.1-arch1-1", "needed: kernel 6.9.3-arch1-1"),
        (["6.1.0-9-amd64"], "6.1.0-26-amd64", "nothing asks for one"),
        (["6.1.0-28-amd64"], "6.18.44-fc-v669", "nothing asks for one"),
        ([], "6.1.0-26-amd64", "nothing asks for one"),
    ],
)
def test_a_newer_installed_kernel_requires_a_reboot(
    machine, installed_kernels, running_kernel, expected_text
):
    files = machine(**{f"lib/modules/{kernel}/modules.dep": "" for kernel in installed_kernels})
    assert describe_reboot(files, running_kernel).startswith(expected_text)


def test_a_container_ignores_the_kernel_of_its_host(machine):
    files = machine(**{"lib/modules/6.1.0-28-amd64/modules.dep": "", ".dockerenv": ""})
    assert in_container(files)
    assert describe_reboot(files, "6.1.0-26-amd64") == "nothing asks for one"
