"""What is done to the daemons, one function for each part."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from tests.acceptance.cluster.test_chaos import Chaos, check, slots_in_chaos
from tests.acceptance.story import ProcessHome
from tests.acceptance.test_endless_answers import peak_memory
from tests.acceptance.test_faketime import Clock
from tests.chaos.storm import SECOND, TICK, TICK_ROUTINE, Broken, Storm
from tests.definitions.cron_reference import find_slots
from tests.fakes.flood import MEGABYTE, Flood
from tests.fakes.vendor import FakeVendor
from tests.postgres import Server

__all__ = ["PARTS", "Chaos", "check"]
# Several of FLOODS are read at once, each up to its bound of 16 MB. One that is read without a
# bound would be 250 MB more.
MEMORY = 200 * MEGABYTE
YEAR = 365 * 86_400.0  # seconds


async def kills(folder: Path, seconds: float) -> Broken:
    """kill -9, SIGTERM, a pause of the process, a second daemon on the same folder."""
    async with Storm(folder) as storm:
        home = storm.home
        await home.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await storm.calm(1.0)
            act = storm.lot.choices(
                ["kill -9", "SIGTERM", "pause", "second daemon"], weights=[6, 1, 1, 1]
            )[0]
            storm.note(act)
            if act == "kill -9":
                await home.kill()
                await home.start()
            elif act == "SIGTERM":
                code = await home.stop()
                storm.breaches.add("silent", code != 0, f"SIGTERM ended with {code}")
                await home.start()
            elif act == "pause":
                home.process.send_signal(signal.SIGSTOP)
                await storm.calm(2.0)
                home.process.send_signal(signal.SIGCONT)
            else:
                second = await home.agentd()
                storm.breaches.add("silent", second.code != 75, f"a second daemon: {second.code}")
        return await storm.settle()


async def clocks(folder: Path, seconds: float) -> Broken:
    """The clock is set forward and back, by minutes to days, running and stopped (libfaketime)."""
    async with Storm(folder) as storm:
        home = storm.home
        clock = Clock(home, folder)
        storm.is_clock_right = False
        await home.start()
        end = time.monotonic() + seconds
        offset = 0.0
        while time.monotonic() < end:
            await storm.calm(2.0)
            is_down = storm.lot.random() < 0.3
            if is_down:
                await home.stop()
            # back to where the clock is right, or off by up to three days
            offset = 0.0 if offset else storm.lot.choice([-1, 1]) * 10 ** storm.lot.uniform(1, 5.4)
            clock._write(f"{offset:+.3f}")
            storm.note("set right" if not offset else "set ahead" if offset > 0 else "set back")
            if is_down:
                await home.start()
        clock._write("+0")
        await storm.calm(2.0)
        return await storm.settle()


# Lines whose hours do not exist, or come twice, where summer time begins and ends.
WALK = {
    "berlin": ("30 2 * * *", "Europe/Berlin"),
    "new-york": ("15 1,2 * * *", "America/New_York"),
    "lord-howe": ("*/30 * * * *", "Australia/Lord_Howe"),
    "leap": ("0 0 29,31 * *", "UTC"),
}


async def walk(folder: Path, seconds: float) -> Broken:
    """A year passes in steps, over summer time and the ends of months, with kill -9 on the way
    (libfaketime); the slots of crontab lines are compared with a reference.
    """
    async with Storm(folder) as storm:
        home = storm.home
        clock = Clock(home, folder)
        storm.is_clock_right = False
        # the steps of runs are compared with what the vendor was asked
        keep = '[keep]\nsteps = "2000d"\n'
        home.write("config.toml", f"{(home.folder / 'config.toml').read_text()}\n{keep}")
        for name, (line, zone) in WALK.items():
            trigger = f'cron = "{line}"\ntimezone = "{zone}"'
            home.routine(f"walk-{name}", TICK_ROUTINE.replace(f'every = "{TICK}s"', trigger))
        await home.start()
        start = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        began, offset = time.monotonic(), 0.0
        while offset < YEAR:
            await storm.calm(1.0)
            is_down = storm.lot.random() < 0.2
            if is_down:
                storm.note("kill -9")
                await home.kill()
            offset = min((time.monotonic() - began) / seconds, 1.0) * YEAR
            clock._write(f"{offset:+.3f}")
            storm.note("step")
            if is_down:
                await home.start()
        await storm.calm(2.0)
        end = datetime.now(UTC) + timedelta(seconds=offset)
        breaches = await storm.settle()
        for name, (line, zone) in WALK.items():
            rows = storm.rows(
                f"SELECT first, last, count FROM slot WHERE routine = 'walk-{name}'"
                f" AND event IS NULL AND first >= {start.timestamp() * SECOND:.0f} ORDER BY first"
            )
            # slots that came after `end` and before the pause are in the ledger, too
            until = max([int(end.timestamp() * SECOND), *(last for _, last, _ in rows)])
            minutes = until // SECOND // 60 - int(start.timestamp()) // 60 + 1
            slots_of_line = find_slots(line, ZoneInfo(zone), start, minutes)
            expected = [int(slot.timestamp() * SECOND) for slot in slots_of_line]
            covered = Counter[int]()
            for first, last, count in rows:
                slots = [slot for slot in expected if first <= slot <= last]
                breaches.add("lost", len(slots) - count, f"walk-{name} from {first} to {last}")
                breaches.add("twice", count - len(slots), f"walk-{name} from {first} to {last}")
                covered.update(slots)
                breaches.slots += count
            breaches.add("twice", covered.total() - len(covered), f"walk-{name}")
            breaches.add("lost", len(expected) - len(covered), f"walk-{name}")
        return breaches


def build_disk_library(folder: Path) -> Path:
    """Compile disk_faults.c; raises FileNotFoundError without a C compiler."""
    library = folder / "disk_faults.so"
    source = Path(__file__).with_name("disk_faults.c")
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise FileNotFoundError("the part disk needs a C compiler: apt install gcc libc6-dev")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


DISK_FAULTS = {"f": "full", "i": "no inodes", "w": "EIO of writes", "s": "EIO of syncs"}


async def disk(folder: Path, seconds: float) -> Broken:
    """The disk is full, has no inodes, or reports errors; and kill -9 in the middle of it."""
    async with Storm(folder) as storm:
        home = storm.home
        control = folder / "disk"
        control.write_text("0")
        home.env |= {
            "LD_PRELOAD": str(build_disk_library(folder)),
            "AGENTD_CHAOS_DISK": str(control),
            "AGENTD_CHAOS_BELOW": str(home.state),
        }

        def turn(fault: str) -> None:
            with control.open("r+") as file:  # the same file: it is mapped
                file.write(fault)

        await home.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await storm.calm(1.5)
            fault = storm.lot.choice(list(DISK_FAULTS))
            storm.note(DISK_FAULTS[fault])
            turn(fault)
            await storm.calm(2.0)
            if storm.lot.random() < 0.2:
                storm.note("kill -9")
                await home.kill()
            turn("0")
            if not home.is_running:
                await home.start()
        return await storm.settle()


async def flips(folder: Path, seconds: float) -> Broken:
    """Bytes, bits, pages and the tail of the database change while no daemon runs."""
    breaches = Broken()
    lot = random.Random()
    async with Storm(folder / "source") as storm:
        await storm.home.start()
        await asyncio.sleep(8)
        breaches += await storm.settle()
    source = storm.home.state
    home = ProcessHome(folder)
    home.folder = storm.home.folder
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end or number < 3:
        number += 1
        home.state = folder / f"damaged-{number}"
        shutil.copytree(source, home.state, ignore=shutil.ignore_patterns("*.sock", "logs"))
        database = home.state / "agentd.db"
        breaches.faults[_damage(database, lot)] += 1
        damage = _integrity(database)
        process = await home.spawn("agentd", *home.places)
        read_task = asyncio.create_task(process.stderr.read())
        ready = asyncio.create_task(process.stdout.readuntil(b"In another terminal"))
        await asyncio.wait([ready, read_task], return_when=asyncio.FIRST_COMPLETED, timeout=120)
        words = b""
        if ready.done() and ready.exception() is None:
            # the examination of the database begins with the tasks after READY
            for _ in range(100):
                await asyncio.sleep(0.1)
                events = {line["event"] for line in home.log_lines()}
                if events & {"database.damaged", "database.index_renewed", "daemon.failed"}:
                    break
                if not damage and "engine.started" in events:
                    break
            process.terminate()
            words = await read_task
            await process.wait()
            events = {line["event"] for line in home.log_lines()}
            is_told = any(event.startswith(("database.", "memory.")) for event in events)
            is_told = is_told or "damaged" in words.decode()
            breaches.add("silent", bool(damage) and not is_told, f"damage {damage[:1]}")
        else:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)
            process.kill() if process.returncode is None and not read_task.done() else None
            words = await read_task
            code = await process.wait()
            is_sentence = code in (1, 75, 78) and b"damaged" in words
            breaches.add("silent", not is_sentence, f"{code}: {words[-300:]!r}")
        shutil.rmtree(home.state)
    return breaches


def _damage(database: Path, lot: random.Random) -> str:
    size = database.stat().st_size
    kind = lot.choice(["bytes", "zeroed page", "tail cut", "page copied"])
    with database.open("r+b") as file:
        pages = size // 4096
        if kind == "bytes":
            for _ in range(lot.choice([1, 8, 64])):
                file.seek(lot.randrange(size))
                file.write(bytes([lot.randrange(256)]))
        elif kind == "zeroed page":
            file.seek(lot.randrange(pages) * 4096)
            file.write(bytes(4096))
        elif kind == "tail cut":
            file.truncate(size - lot.randrange(1, size // 2))
        else:
            file.seek(lot.randrange(pages) * 4096)
            page = file.read(4096)
            file.seek(lot.randrange(pages) * 4096)
            file.write(page)
    return kind


def _integrity(database: Path) -> list[str]:
    """Return what SQLite finds wrong."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            rows = [str(row) for (row,) in connection.execute("PRAGMA integrity_check(5)")]
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a damaged name in it
        return [str(error)]
    return [row for row in rows if row != "ok"]


VENDOR_FAULTS = (
    {"reset": True},
    {"hang": True},
    {"empty": True},
    {"truncate": 40},
    {"error": 429, "message": "slow down", "retry_after": 1},
    {"error": 500, "message": "oops"},
    {"error": 400, "message": "no"},
    {"error": 401, "message": "who are you?"},
    {"raw": "<html>it works</html>", "content_type": "text/html"},
    {"raw": "[" * 100_000},
    {"raw": '{"choices": 1e999}'},
    {"raw": '{"choices": [{"message": {"role": "assistant", "content": "\\ud800"}}]}'},
    {"text": "well", "usage": {"prompt_tokens": None, "completion_tokens": -5}},
    {"tool_calls": [{"name": "shell", "arguments": '{"command": '}]},
    {"text": "x", "finish": "length"},
    {"text": "well", "usage": {"prompt_tokens": -100_000, "completion_tokens": 10}},
    {"error": 429, "message": "come tomorrow", "retry_after": 3600},
    {"error": 503, "message": "loading"},
    {"raw": ""},
    {"raw": "null"},
    {"raw": f'{{"choices": {"9" * 10_000}}}'},
    {"raw": "{}", "status": 302, "headers": {"location": "/v1/chat/completions"}},
)
FLOODS = ("chunks", "to the end of the connection", "a huge length", "packed", "one line")
FAULTY_PROVIDER = """
[providers.{name}]
kind = "open_source"
base_url = "{url}/v1"
model = "m"
timeout = "5s"
"""
FAULTY_ROUTINE = """
[trigger]
cron = "0 0 1 1 *"
[run]
provider = "{name}"
prompt = "Say good morning."
timeout = "20s"
[run.retry]
attempts = 1
backoff = "1s"
pause_after = 0
"""


async def vendors(folder: Path, seconds: float) -> Broken:
    """Vendors hang, reset, answer nonsense and without end, all at once."""
    async with contextlib.AsyncExitStack() as stack:
        storm = await stack.enter_async_context(Storm(folder))
        faulty = {}
        for number, fault in enumerate(VENDOR_FAULTS):
            turns = [{**fault, "repeat": 10_000}]
            vendor = await stack.enter_async_context(FakeVendor(turns, strict=False))
            faulty[f"fault-{number}"] = vendor.url
        for number, kind in enumerate(FLOODS):
            flood = await stack.enter_async_context(Flood(kind, most=250 * MEGABYTE))
            faulty[f"flood-{number}"] = flood.url
        text = (storm.home.folder / "config.toml").read_text()
        text += "".join(FAULTY_PROVIDER.format(name=name, url=url) for name, url in faulty.items())
        storm.home.write("config.toml", text)
        for name in faulty:
            storm.home.routine(name, FAULTY_ROUTINE.format(name=name))
        storm.home.env["PYTHONUNBUFFERED"] = "1"  # a fresh Python, with its own memory alone
        await storm.home.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name in faulty:
                result = await storm.home.agentctl("run", name, "--detach")
                # 5: an earlier one is under way
                storm.breaches.faults["faulty run"] += result.code == 0
                storm.breaches.add("silent", result.code not in (0, 5), f"{name}: {result.err}")
            await storm.calm(3.0)
        peak = peak_memory(storm.home.pid)
        storm.breaches.faults["MB of memory at most"] = peak // MEGABYTE
        storm.breaches.add("silent", peak > MEMORY, f"{peak // MEGABYTE} MB of memory")
        return await storm.settle()


async def floods(folder: Path, seconds: float) -> Broken:
    """Hundreds of connections: that send nothing, a half request, or ask for status at once."""
    async with Storm(folder) as storm:
        home = storm.home
        await home.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            results = await asyncio.gather(
                *(_connect(home.socket, number % 3) for number in range(300)),
                return_exceptions=True,
            )
            storm.breaches.faults["connection"] += len(results)
            answers = [result for result in results if isinstance(result, bytes) and result]
            wrong = [answer for answer in answers if not answer.startswith((b"200", b"503"))]
            storm.breaches.add("silent", len(wrong), f"an answer {wrong[:1]}")
            status = await home.agentctl("status")
            storm.breaches.add("silent", status.code != 0, f"status: {status.err}")
        return await storm.settle()


async def _connect(socket: Path, kind: int) -> bytes:
    """Send nothing, a half request or a whole one; return the status of the answer."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        if kind == 0:
            await asyncio.sleep(1)
            return b""
        request = b"GET /v1/status HTTP/1.1\r\nHost: agentd\r\nConnection: close\r\n"
        writer.write(request if kind == 1 else request + b"\r\n")
        if kind == 1:
            await asyncio.sleep(1)
            return b""
        async with asyncio.timeout(60):
            line = await reader.readline()
        return line.split(b" ", 1)[1] if b" " in line else b""
    finally:
        writer.close()


BROKEN_ROUTINES = (
    "[trigger]\nevery = ",
    '[trigger]\nevery = "-3s"\n[run]\nprompt = "x"\n',
    "[run]\nprompt = 7\n",
    "\xff\x00",
    '[trigger]\ncron = "99 * * * *"\n[run]\nprompt = "x"\n',
    "",
)


async def edits(folder: Path, seconds: float) -> Broken:
    """Routines are edited, half of the files are broken, SIGHUP comes at any moment."""
    async with Storm(folder) as storm:
        home = storm.home
        await home.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            name = f"edited-{storm.lot.randrange(5)}"
            act = storm.lot.choices(
                ["good edit", "broken edit", "removal", "SIGHUP", "kill -9"], [4, 4, 3, 3, 1]
            )[0]
            storm.note(act)
            if act == "good edit":
                home.routine(name, TICK_ROUTINE.replace('"2s"', f'"{storm.lot.randrange(2, 9)}s"'))
            elif act == "broken edit":
                home.routine(name, storm.lot.choice(BROKEN_ROUTINES))
            elif act == "removal":
                (home.folder / "routines" / f"{name}.toml").unlink(missing_ok=True)
            elif act == "SIGHUP":
                for _ in range(5):
                    home.process.send_signal(signal.SIGHUP)
            else:
                await home.kill()
                await home.start()
            await storm.calm(0.5)
        return await storm.settle()


async def fleet(folder: Path, seconds: float) -> Broken:
    """Three daemons and three workers on PostgreSQL: kill -9, pauses, partitions, crashes of it."""
    folder.mkdir(parents=True)
    breaches = Broken()
    server = await asyncio.to_thread(Server, durable=True, tcp=True)
    try:
        slots = max(20, int(seconds))
        try:
            counts = await slots_in_chaos(folder, server, lead=15, seconds=seconds, slots=slots)
        except AssertionError as error:
            # the check names which promise does not hold
            text = str(error)
            column = "twice" if "twice" in text else "stuck" if "left" in text else "lost"
            breaches.add(column, 1, text[:200] + " … " + text[-1500:])
        else:
            breaches.slots = breaches.runs = slots
            names = {"kill": "kill -9", "sleep": "pause", "cut_off": "partition"}
            for act in ("kill", "sleep", "cut_off", "crash"):
                breaches.faults[names.get(act, "crash of PostgreSQL")] = counts.get(act, 0)
    finally:
        server.remove()
    return breaches


Part = Callable[[Path, float], Awaitable[Broken]]
PARTS: dict[str, Part] = {
    part.__name__: part
    for part in (kills, clocks, walk, disk, flips, vendors, floods, edits, fleet)
}
