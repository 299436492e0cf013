"""Try to break out of a sandbox, from within, and print a line for each attempt that succeeds.

Run as a script by detection.py, which also checks from outside whether something has happened.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


def make_attempts(
    outside: str, secret: str, port: int, victim: int, marker: str, memory: int
) -> dict[str, list[Callable[[], object]]]:
    """Return the attempts, by the name of what a sandbox must prevent (detection.ESCAPE_TESTS)."""
    return {
        "write outside": [
            lambda: Path(outside, "new").write_text("x"),
            lambda: Path(secret).open("a").close(),
            lambda: os.truncate(secret, 0),
            lambda: Path(secret).chmod(0o600),
            lambda: _set_old_time(secret),
            lambda: Path(secret).unlink(),
            lambda: Path("new").write_text("x"),  # the workspace, which this one may only read
        ],
        "read a secret": [lambda: Path(secret).read_text(), lambda: list(Path(outside).iterdir())],
        "reach a socket": [lambda: _connect(f"{outside}/socket"), lambda: _connect(f"\0{marker}")],
        "reach the network": [
            lambda: _connect_tcp(port),
            lambda: _send_udp(port),
            lambda: socket.create_server(("127.0.0.1", 0)),
        ],
        "reach other processes": [
            lambda: os.kill(victim, 15),
            lambda: _read_environment_with(marker),
        ],
        "exceed its limits": [lambda: bytearray(memory + (64 << 20)), _run_without_limits],
    }


def _set_old_time(path: str) -> None:
    os.utime(path, (1, 1))
    raise OSError  # success may have been pretended: detection.py looks at the file


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)


def _connect_tcp(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()


def _send_udp(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", port))
        if Path("/proc/net/dev").read_text().count(":") > 1:  # a loopback of its own leads nowhere
            return
    raise OSError


def _read_environment_with(marker: str) -> None:
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if marker in path.read_text(errors="replace"):
                return
    raise OSError


def _run_without_limits() -> None:
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CPU):
        if resource.getrlimit(limit)[1] == resource.RLIM_INFINITY:
            return
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        raise OSError


def _run_attempts(attempts: dict[str, list[Callable[[], object]]]) -> Iterator[str]:
    for name, functions in attempts.items():
        for number, attempt in enumerate(functions, 1):
            try:
                attempt()
            except (OSError, MemoryError):
                continue
            yield f"{name}\t{number}"


# The limit on processes counts those of the whole user, who may start many at the moment.
RETRY_SECONDS = 20.0


def _fork_with_retries() -> int:
    """Fork as soon as the limit on processes leaves room for one more."""
    end = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def hide() -> None:
    """Leave a process behind that no kill of our group or session reaches."""
    read_end, write_end = os.pipe()
    if _fork_with_retries():
        os.close(write_end)
        os.read(read_end, 1)  # waits until the process has hidden itself
        return
    os.setsid()
    if _fork_with_retries():
        os._exit(0)
    os.write(1, b"hidden\n")
    os.write(write_end, b".")
    while True:
        time.sleep(60)


if __name__ == "__main__":
    outside, secret, port, victim, marker, memory = sys.argv[1:]
    for line in _run_attempts(
        make_attempts(outside, secret, int(port), int(victim), marker, int(memory))
    ):
        print(line, flush=True)  # noqa: T201  # detection.py reads it
    print("tried", flush=True)  # noqa: T201
    hide()
