"""What the daemon costs while nothing is due: wake-ups and CPU of all its threads, and memory."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.bench import installation
from tests.bench.measure import Bench, Effort, Row
from tests.bench.vendor import Vendor
from tests.fakes.telegram import ADA, FakeTelegram

# They listen, and nothing comes.
_ASLEEP = {
    "files": 'watch = ["inbox/**/*.csv", "*.txt"]',
    "door": "webhook = true",
    "chained": 'after = ["bench-0"]',
}


def _switches(pid: int) -> int:
    """Return how often its threads have gone to sleep and so will have been woken."""
    statuses = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(
        int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)[1])
        for status in statuses
    )  # type: ignore[index]


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU its threads have used, to the nanosecond."""
    return (
        sum(
            int(path.read_text().split()[0])
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )
        / 1e9
    )


def _resident(pid: int) -> float:
    """Return its resident memory in MiB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]


def await_the_end_of_the_start(config: Path) -> None:
    """Wait until the daemon has looked at its installation: that is the last thing it does of
    itself.

    By its log, as a question would wake it.
    """
    file, until = config.parent / "state" / "logs" / "agentd.jsonl", time.monotonic() + 120
    while '"doctor.looked"' not in file.read_text():
        if time.monotonic() > until:
            raise RuntimeError(
                f"two minutes after its start the daemon has not looked at its installation: {file}"
            )
        time.sleep(0.2)
    time.sleep(1.0)  # the thread that waited for the look goes


def _idle(effort: Effort) -> Iterable[Row]:
    watch_seconds = effort.scaled(60)
    with tempfile.TemporaryDirectory() as folder, Vendor() as vendor:
        config = installation.build(Path(folder) / "h", vendor.url)
        for name, trigger in _ASLEEP.items():
            (config.parent / "routines" / f"{name}.toml").write_text(
                f'[trigger]\n{trigger}\n[run]\nprompt = "x"\n'
            )
        with installation.Daemon(config) as daemon:
            daemon.command(installation.agentctl("list"))
            daemon.command(installation.agentctl("status"))
            await_the_end_of_the_start(config)
            switches, cpu = _switches(daemon.pid), cpu_of(daemon.pid)
            time.sleep(watch_seconds)
            wakeups = (_switches(daemon.pid) - switches) / watch_seconds
            cpu_ms = (cpu_of(daemon.pid) - cpu) * 1000 * 60 / watch_seconds
            resident = _resident(daemon.pid)
            threads = len(list(Path(f"/proc/{daemon.pid}/task").iterdir()))
            daemon.command(installation.agentctl("run", "bench-0"))
            after = _resident(daemon.pid)
    note = f"{threads} threads, {watch_seconds} s"
    yield Row(
        name="idle: wake-ups a second", ours=f"{wakeups:.2f}", value=wakeups, bar=1.5, note=note
    )
    yield Row(name="idle: CPU a minute", ours=f"{cpu_ms:.2f} ms", value=cpu_ms, bar=15, note="ms")
    note = "MiB, after list and status"
    yield Row(name="idle: resident", ours=f"{resident:.1f} MiB", value=resident, bar=75, note=note)
    yield Row(
        name="resident after a run", ours=f"{after:.1f} MiB", note="of an open_source provider"
    )


_CHAT = """
[chat.phone]
kind = "telegram"
token_file = "telegram.token"
allow = [{person}]
base_url = "{url}"
"""


@contextmanager
def _telegram() -> Iterator[FakeTelegram]:
    """Serve a stand-in for Telegram in a thread of its own."""
    server = FakeTelegram()
    loops: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()
    end = asyncio.Event()

    async def serve() -> None:
        async with server:
            loops.put(asyncio.get_running_loop())
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop = loops.get(timeout=30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


def _idle_with_chat(effort: Effort) -> Iterable[Row]:
    """Count what wakes the event loop of an idle daemon that reads a chat.

    The numbers do not depend on how busy the machine is.
    """
    minutes = effort.scaled(4)
    with tempfile.TemporaryDirectory() as folder, Vendor() as vendor, _telegram() as telegram:
        config = installation.build(Path(folder) / "h", vendor.url)
        for name, trigger in _ASLEEP.items():
            (config.parent / "routines" / f"{name}.toml").write_text(
                f'[trigger]\n{trigger}\n[run]\nprompt = "x"\n'
            )
        token = config.parent / "telegram.token"
        token.write_text(telegram.TOKEN)
        token.chmod(0o600)
        with config.open("a") as file:
            file.write(_CHAT.format(person=ADA, url=telegram.url))
        wakeups = Path(folder) / "wakeups"  # the folder of the config is watched
        program = (sys.executable, "-m", "tests.bench.wakeups", str(wakeups))
        with installation.Daemon(config, program):
            await_the_end_of_the_start(config)
            time.sleep(5)  # files that the start wrote are looked at
            wakeups_before = len(wakeups.read_text().splitlines())
            polls_before = telegram.polls
            time.sleep(60 * minutes)
            counts = Counter(wakeups.read_text().splitlines()[wakeups_before:])
            polls = telegram.polls - polls_before
    # An idle daemon has one connection, that to the chat, and one thread at work, which looks at
    # the watched folders.
    others = counts.total() - counts["network"] - counts["thread"]
    note = (
        f"{minutes} min; besides {counts['network']} for {polls} polls and {counts['thread']} for "
        "looks at folders"
    )
    yield Row(
        name="idle, chat: wake-ups a minute",
        ours=f"{others / minutes:.2f}",
        value=others / minutes,
        bar=2,
        note=note,
    )


_SDKS = """
[providers.sdk-{kind}]
kind = "{kind}"
model = "{model}"
base_url = "{url}"
api_key = "key-of-the-bench"
"""


def _with_sdks(effort: Effort) -> Iterable[Row]:
    """Measure what stays in memory after a run through each of the two SDKs, and after a query by
    SQLModel.
    """
    with tempfile.TemporaryDirectory() as folder, Vendor() as vendor:
        config = installation.build(Path(folder) / "h", vendor.url)
        routine = (config.parent / "routines" / "bench-0.toml").read_text()
        for kind in ("openai", "claude"):
            _, model, path, _, _ = installation.WAYS["responses" if kind == "openai" else kind]
            with config.open("a") as file:
                file.write(_SDKS.format(kind=kind, model=model, url=vendor.url + path))
            routine_text = routine.replace("[run]\n", f'[run]\nprovider = "sdk-{kind}"\n')
            (config.parent / "routines" / f"by-{kind}.toml").write_text(routine_text)
        with installation.Daemon(config) as daemon:
            daemon.command(installation.agentctl("run", "by-openai"))
            with_openai = _resident(daemon.pid)
            daemon.command(installation.agentctl("run", "by-claude"))
            memory = _resident(daemon.pid)
            daemon.command(installation.agentctl("runs"))
            all_loaded = _resident(daemon.pid)
    yield Row(
        name="resident after a run by one SDK",
        ours=f"{with_openai:.1f} MiB",
        value=with_openai,
        bar=100,
        note="MiB; openai",
    )
    yield Row(
        name="resident after runs by both SDKs",
        ours=f"{memory:.1f} MiB",
        value=memory,
        bar=140,
        note="MiB",
    )
    yield Row(
        name="resident after both SDKs and a list of runs",
        ours=f"{all_loaded:.1f} MiB",
        value=all_loaded,
        bar=140,
        note="MiB; SQLModel",
    )


ROWS: dict[str, Bench] = {
    "idle": _idle,
    "idle-chat": _idle_with_chat,
    "resident-sdks": _with_sdks,
}
