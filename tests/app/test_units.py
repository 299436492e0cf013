"""The shipped units: accepted by systemd, hardened, and explained by comments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from daemon.api.listener import SOCKET_TITLES
from daemon.app.commands.init import shipped_folder
from daemon.app.main import EX_CONFIG
from daemon.definitions.config.tables import DaemonConfig
from daemon.definitions.paths import hooks_socket_for, socket_paths
from daemon.definitions.values import parse_duration
from daemon.sandbox.call_groups import SUBGROUP

UNITS = shipped_folder() / "systemd"
SYSTEM, USER = UNITS / "agentd.service", UNITS / "agentd-user.service"

systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="needs systemd-analyze: apt-get install systemd"
)


def analyze(folder: Path, unit: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on a copy of the unit whose command exists here."""
    copy = folder / unit.name
    copy.write_text(
        re.sub(
            r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text(), flags=re.MULTILINE
        )
    )
    env = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": str(folder),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    command = ["systemd-analyze", *arguments, str(copy)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def complaints(stderr: str) -> list[str]:
    """Return what systemd says of a unit; without the one key that is newer than this systemd."""
    process = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True)
    version = re.match(r"systemd (\d+)", process.stdout)
    assert version, process.stdout
    newer_key = "" if int(version[1]) >= 254 else r"Unknown key.* 'DelegateSubgroup' in section "
    return [line for line in stderr.splitlines() if not (newer_key and re.search(newer_key, line))]


@systemd
@pytest.mark.parametrize(
    ("unit", "manager"), [(SYSTEM, "--system"), (USER, "--user")], ids=["system", "user"]
)
def test_systemd_accepts_every_line_of_the_unit(tmp_path: Path, unit: Path, manager: str) -> None:
    # exit 0 is not enough: an unknown value is a warning, and the line is then left out
    process = analyze(tmp_path, unit, "verify", "--man=no", manager)
    assert (process.returncode, complaints(process.stderr)) == (0, [])


@systemd
def test_systemd_accepts_every_line_of_the_socket_units(tmp_path: Path) -> None:
    sockets = sorted(UNITS.glob("*.socket"))
    for unit in sockets:
        shutil.copy(unit, tmp_path)
    text = re.sub(
        r"^ExecStart=\S+", f"ExecStart={sys.executable}", SYSTEM.read_text(), flags=re.MULTILINE
    )
    (tmp_path / SYSTEM.name).write_text(text)
    command = [
        "systemd-analyze",
        "verify",
        "--man=no",
        *(str(tmp_path / unit.name) for unit in sockets),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, complaints(process.stderr)) == (0, [])


def test_socket_units_have_the_names_and_paths_of_daemon_and_client() -> None:
    for name, path in (
        ("control", Path("/run/agentd/agentd.sock")),
        ("hooks", hooks_socket_for(Path("/run/agentd/agentd.sock"))),
    ):
        unit = UNITS / ("agentd.socket" if name == "control" else "agentd-hooks.socket")
        settings = dict(
            line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"\w+=", line)
        )
        assert (settings["FileDescriptorName"], settings["ListenStream"]) == (name, str(path))
        assert name in SOCKET_TITLES
    assert Path("/run/agentd/agentd.sock") in socket_paths(None, {}, Path("/nobody"), uid=4711)


@systemd
@pytest.mark.parametrize(("unit", "most"), [(SYSTEM, 22), (USER, 24)], ids=["system", "user"])
def test_a_unit_is_as_closed_as_a_sandbox_for_tools_allows(
    tmp_path: Path, unit: Path, most: int
) -> None:
    # lower needs PrivateUsers in the system unit: the control socket could tell no users apart
    process = analyze(
        tmp_path, unit, "security", "--offline=true", "--no-pager", f"--threshold={most}"
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr


# What systemd mounts for the lines of the unit over /proc; then a tool's own sandbox, as an
# ordinary user.
MASKS = """
mkdir -p {free} && chmod 700 {free}
{bind}
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
mount --bind /proc/sys/kernel/hostname /proc/sys/kernel/hostname
[ -z "{kmsg}" ] || mount --bind /dev/null /proc/kmsg
exec {drop} bwrap --unshare-user --unshare-pid --unshare-net --unshare-ipc --ro-bind / / --dev /dev --proc /proc true
"""  # noqa: E501
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"
SANDBOXES = {
    "system": (
        ["unshare", "-m"],
        {"bind": "mount --bind /proc {free}", "kmsg": "yes", "drop": NOBODY},
    ),
    "user": (
        [*NOBODY.split(), "unshare", "-Um", "--map-current-user", "--keep-caps"],
        {
            "bind": "mount --rbind /proc {free}",
            "kmsg": "",
            "drop": "setpriv --bounding-set -all --inh-caps -all --ambient-caps -all",
        },
    ),
}


@pytest.mark.root
@pytest.mark.skipif(
    not shutil.which("bwrap"), reason="root: needs bubblewrap: apt-get install bubblewrap"
)
@pytest.mark.skipif(not shutil.which("mount"), reason="root: needs mount: apt-get install mount")
@pytest.mark.parametrize("kind", SANDBOXES)
@pytest.mark.parametrize("is_unmasked", [True, False], ids=["as shipped", "without BindPaths"])
def test_the_sandbox_of_tools_works_under_the_hardening_of_the_unit(
    tmp_path: Path, kind: str, is_unmasked: bool
) -> None:
    around, message = SANDBOXES[kind]
    result = subprocess.run([*around, "true"], capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip(f"root: this machine makes no mount namespaces: {result.stderr.strip()}")
    free = Path(f"/tmp/agentd-proc-{os.getpid()}-{kind}-{is_unmasked}")
    free.mkdir()
    os.chown(free, 65534, 65534)
    bind = message["bind"].format(free=free) if is_unmasked else "true"
    script = MASKS.format(free=free, bind=bind, kmsg=message["kmsg"], drop=message["drop"])
    try:
        process = subprocess.run(
            [*around, "sh", "-ec", script], capture_output=True, text=True, check=False
        )
    finally:
        free.rmdir()
    assert (process.returncode == 0) is is_unmasked, process.stderr
    assert is_unmasked or "Can't mount proc" in process.stderr


@pytest.mark.parametrize("unit", [SYSTEM, USER], ids=["system", "user"])
def test_every_hardening_line_has_a_comment(unit: Path) -> None:
    lines = (
        unit.read_text().partition("# --- Hardening")[2].partition("[Install]")[0].splitlines()[1:]
    )
    settings = [
        (before, line) for before, line in pairwise(lines) if line and not line.startswith("#")
    ]
    assert len(settings) > 5
    assert [line for before, line in settings if not before.startswith("# ")] == []


@pytest.mark.parametrize("unit", [SYSTEM, USER], ids=["system", "user"])
def test_a_unit_lets_the_daemon_divide_its_control_group(unit: Path) -> None:
    settings = dict(
        line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"\w+=", line)
    )
    assert settings["Delegate"].split() == ["memory", "pids"]
    assert settings["DelegateSubgroup"] == SUBGROUP, "by which the daemon knows that it may"
    assert settings["OOMPolicy"] == "continue", "one call that is killed does not end the others"
    # all others stay read-only; the line is left out where the unit is in another slice
    assert settings["ProtectControlGroups"] == "yes"
    assert settings["ReadWritePaths"].startswith("-/sys/fs/cgroup/")
    assert settings["ReadWritePaths"].endswith(".slice/%n")


@pytest.mark.parametrize("unit", [SYSTEM, USER], ids=["system", "user"])
def test_a_unit_keeps_the_promises_of_the_daemon(unit: Path) -> None:
    text = unit.read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))
    assert settings["Type"] == "notify"
    assert settings["RestartPreventExitStatus"] == str(EX_CONFIG)
    # a server that is away for hours: each start that ended with 75 is followed by another one
    assert (settings["Restart"], settings["StartLimitIntervalSec"]) == ("on-failure", "0")
    assert settings["ExecReload"].endswith('"kill -HUP $MAINPID"')
    stop, grace = parse_duration(f"{settings['TimeoutStopSec']}s"), DaemonConfig().grace
    assert stop > grace, "a run that is suspended in time must not be killed"
    assert max(len(line) for line in text.splitlines()) <= 120


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.stem)
def test_a_unit_sets_nothing_that_it_says_it_leaves_out(unit: Path) -> None:
    lines = unit.read_text("utf-8").splitlines()
    begins = [index for index, line in enumerate(lines) if "Not here on purpose:" in line]
    settings = {line.partition("=")[0] for line in lines if re.match(r"[A-Z]\w+=", line)}
    for begin in begins:
        comment = []
        for line in lines[begin:]:
            if not line.startswith("#"):
                break
            comment.append(line)
        left_out = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", " ".join(comment)))
        assert left_out, "it names what it leaves out"
        assert left_out & settings == set()
