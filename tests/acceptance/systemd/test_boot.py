"""systemd as process 1 in a container runs the shipped units."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import structlog

ROOT = Path(__file__).parents[3]
# a virtual environment may have its packages from another one
SITE = Path(structlog.__file__).parents[1]
NEEDED = ("mmdebstrap", "systemd-nspawn")
# root's own programs, wherever this was called from
ENV = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
missing_programs = [name for name in NEEDED if not shutil.which(name, path=ENV["PATH"])]
pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(
        300, func_only=True
    ),  # of a test alone; what it takes to get there has limits of its own
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to boot a container"),
    pytest.mark.skipif(
        bool(missing_programs),
        reason="root: needs mmdebstrap and systemd-nspawn: apt-get install systemd-container",
    ),
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11),
        reason="root: the container has Python 3.11, and our packages",
    ),
]
# Seconds. Both are minutes on a quiet machine; most of the first is spent on downloads and
# unpacking.
LONGEST_INSTALLATION, LONGEST_LIFE = 3600, 3600
PACKAGES = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,bubblewrap,python3"
COMMAND = "/usr/bin/python3 -m daemon.app.main"
MORE = """
[Service]
Environment=PYTHONPATH=/opt/agentd:/opt/site
WatchdogSec=20
TimeoutStartSec=900
RestartSec=1
LoadCredential=claude:/etc/agentd/claude.key
"""


def put(root, path, text, mode=0o644):
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def unit(name):
    text = (ROOT / "systemd" / name).read_text()
    return re.sub(r"^ExecStart=\S+", f"ExecStart={COMMAND}", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """Boot the container once; return what was told in it."""
    folder = tmp_path_factory.mktemp("container")
    root, out = folder / "root", folder / "out"
    out.mkdir()
    bootstrap = subprocess.run(
        ["mmdebstrap", "-q", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root, *_sources()],  # noqa: E501
        capture_output=True, text=True, timeout=LONGEST_INSTALLATION, env=ENV,
    )  # fmt: skip
    if bootstrap.returncode:
        pytest.skip(f"root: no packages for a container here: {bootstrap.stderr.strip()[-200:]}")
    furnish(root)
    container = subprocess.Popen(
        ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "-D", root, "--bind", (
            f"{out}:/out"
        ),
         "--bind-ro", f"{ROOT}:/opt/agentd", "--bind-ro", f"{SITE}:/opt/site",
         "--private-network", "--link-journal=no", "-b"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENV,
    )  # fmt: skip
    try:
        container.wait(LONGEST_LIFE)
        lines = (out / "told").read_text().splitlines()
        print(
            (out / "stderr").read_text()[-6000:],
            (out / "journal").read_text()[-6000:] if (out / "journal").exists() else "",
        )
        return dict(line.split("=", 1) for line in lines)
    finally:
        stop(container)
        remove(root)


def stop(container):
    """Power the container off if it still runs, and wait for its end."""
    if container.poll() is None:
        container.terminate()
        try:
            container.wait(300)
        except subprocess.TimeoutExpired:
            container.kill()
            container.wait()


def remove(root):
    """Remove the container's folder; after a kill its processes may write there for another
    moment.
    """
    for pause in (1, 5, 25):
        shutil.rmtree(root, ignore_errors=True)
        if not root.exists():
            return
        time.sleep(pause)
    shutil.rmtree(root)


def _sources():
    return [str(path) for path in Path("/etc/apt/sources.list.d").glob("debian.sources")] or [
        "/etc/apt/sources.list"
    ]


def furnish(root):
    put(root, "/etc/systemd/system/agentd.service", unit("agentd.service"))
    put(root, "/etc/systemd/system/agentd.service.d/test.conf", MORE)
    config = 'provider = "claude"\n[providers.claude]\nkind = "claude"\nmodel = "m"\n'
    put(root, "/etc/agentd/config.toml", config)
    put(root, "/etc/agentd/policy.toml", "version = 1\n")
    put(
        root,
        "/etc/agentd/routines/first.toml",
        '[trigger]\ncron = "30 8 * * *"\n[run]\nprompt = "x"\n',
    )
    put(root, "/etc/agentd/claude.key", "sk-not-a-key-at-all-0123456789\n", 0o600)
    put(root, "/check.sh", (ROOT / "tests/acceptance/systemd/inside.sh").read_text(), 0o755)
    put(
        root,
        "/etc/systemd/system/check.service",
        (
            "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/check.sh\n[Install]\nWantedBy=default.target\n"
        ),
    )
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "check.service").symlink_to("/etc/systemd/system/check.service")
    subprocess.run(["chroot", root, "useradd", "-m", "-s", "/bin/sh", "ada"], check=True, env=ENV)
    home = "/home/ada/.config"
    more = MORE.replace("LoadCredential=claude:/etc/agentd/claude.key\n", "")
    put(root, f"{home}/systemd/user/agentd.service", unit("agentd-user.service"))
    put(root, f"{home}/systemd/user/agentd.service.d/test.conf", more)
    put(root, f"{home}/agentd/config.toml", "")
    put(root, f"{home}/agentd/policy.toml", "version = 1\n")
    put(root, f"{home}/agentd/routines/first.toml", '[run]\nprompt = "x"\n')
    (root / "home/ada/.local/state/agentd").mkdir(parents=True)
    subprocess.run(["chroot", root, "chown", "-R", "ada:ada", "/home/ada"], check=True, env=ENV)


def test_the_system_unit_is_ready_once_the_daemon_notifies_systemd(facts):
    assert (facts["start"], facts["active"], facts["refused"], facts["code"]) == (
        "0",
        "active",
        "0",
        "78",
    )
    assert facts["status"].startswith("1 routine"), "and its status is told"
    assert '"agentd": "' in facts["answers"]


def test_the_system_unit_has_private_folders_and_reads_the_key_from_a_credential(facts):
    assert facts["owner"].endswith(" 700")
    assert facts["start"] == "0", "provider claude has its key from nowhere else"


def test_reload_takes_up_a_new_routine(facts):
    assert (facts["reload"], facts["reloaded"]) == ("0", "0")


def test_journald_has_each_log_event_once_with_routine_and_event_fields(facts):
    assert facts["ran"] == "0" and facts["found"].startswith("run.finished routine=second run=")
    expected_fields = {"AGENTD_STATUS": "succeeded", "PRIORITY": "6", "SYSLOG_IDENTIFIER": "agentd"}
    assert expected_fields.items() <= json.loads(facts["fields"]).items()
    assert facts["lines"] == "1", "not by stderr as well"


def test_the_watchdog_restarts_a_stuck_daemon(facts):
    assert (facts["watchdog"], facts["again"]) == ("0", "new")


def test_the_user_unit_runs_while_nobody_is_logged_in(facts):
    assert (facts["linger"], facts["manager"], facts["user_start"], facts["user_active"]) == (
        "0",
        "0",
        "0",
        "active",
    )
    assert "agentd.db" in facts["user_state"] and facts["user_answers"] == "0"


def test_in_the_user_unit_the_home_is_read_only(facts):
    assert "Read-only file system" in facts["user_home"]
