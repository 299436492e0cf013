"""Whatever part of a daemon fails, the process ends with an honest exit code, or the part is mended
and the log says so: no daemon goes on without one of its parts.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.errors import ConfigError
from tests.acceptance.failing_parts import MAY_GO_ON, POLICY, THREADS
from tests.acceptance.story import Home
from tests.delivery.receivers import Receiver

ROOT = Path(__file__).parents[2]
# What the log says of a failure.
ENDED = {"daemon.failed"}
MENDED = {"watch.ended", "watch.restarted", "maintenance.failed", "memory.maintenance_failed"}
# The same of an error at one await, where what was to be done is tried again.
TRIED_AGAIN = {
    *(*MENDED, "watch.failed", "queue.failed", "definitions.kept"),
    *("cluster.queue_away", "cluster.search_failed"),
    "library.logged",  # of a task that nobody awaits: asyncio logs its error
}


async def break_parts(
    folder: Path, module: str = "failing_parts", *options: str
) -> list[dict[str, Any]]:
    """Start a daemon for each failure; return how each of them ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"tests.acceptance.{module}", str(folder), *options),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cluster", [False, True], ids=["alone", "cluster"])
async def test_an_error_at_any_await_of_a_task_ends_the_daemon_or_is_mended(
    tmp_path: Path, request: pytest.FixtureRequest, cluster: bool
) -> None:
    parts = {"Task-1", "control socket", "outbox", "lateness"}
    if cluster:
        request.getfixturevalue("postgres")  # skips where there is none
        parts |= {"heartbeat", "notification listener", "queue any"}
    lives = await break_parts(tmp_path, "failing_awaits", *(["--cluster"] if cluster else []))
    assert parts <= {life["task"] for life in lives}
    broken_lives = [life for life in lives if life["broken"]]
    # what a task waits for once in a while, it may not wait for in each life
    assert len(broken_lives) >= 0.8 * len(lives) > 50
    for life in lives:
        assert not life["locked"], life
        events = set(life["log"])
        if life["broken_before_stop"] and life["code"] == 0:
            # procrastinate mends some of what happens where it waits without a word
            assert events & TRIED_AGAIN or life["task"] == "queue any", life
            assert life["runs_after"], life
        elif life["broken_before_stop"]:
            assert life["code"] == 1, life
            # before there is a log, and after it, Python itself says what was raised
            assert events & ENDED or "MemoryError: injected" in life["stderr"], life
        elif life["broken"]:  # while it was being stopped
            assert life["code"] in (0, 1), life
        else:
            assert life["code"] == 0, life


@pytest.mark.timeout(600)
async def test_a_daemon_whose_part_fails_ends_or_mends_it_and_says_so(tmp_path: Path) -> None:
    lives = await break_parts(tmp_path)
    assert {"Task-1", "control socket", "outbox", *THREADS} <= {life["part"] for life in lives}
    for life in lives:
        events = set(life["log"])
        if (life["part"], life["way"]) in MAY_GO_ON and life["code"] is None:
            assert life["stop"] == 0, life
            assert events & MENDED, life
        elif life["part"] in THREADS and life["code"] is None:
            # the error came in the middle of one work, which has failed; the thread goes on
            assert life["stop"] == 0, life
            assert life["runs_after"], life
        else:
            assert life["code"] == 1, life
            # the daemon itself is cancelled by nothing that could be logged
            assert events & ENDED or (life["part"], life["way"]) == ("Task-1", "is cancelled"), life


@pytest.mark.process
async def test_a_daemon_whose_database_is_replaced_acknowledges_nothing_more(home: Home) -> None:
    home.write("policy.toml", POLICY)
    home.routine("work", '[trigger]\ncron = "0 0 1 1 *"\n[run]\nmode = "script"\n' + GATHER)
    await home.start()
    assert (await home.agentctl("run", "work")).code == 0
    for file in home.state.glob("agentd.db*"):
        file.unlink()
    result = await home.agentctl("run", "work", "--detach")
    assert result.code != 0, "it was acknowledged, and is lost"
    assert await home.process.wait() == 75
    (line,) = await home.wait_for_log("state.lost")
    assert line["level"] == "error"


async def test_a_start_that_fails_by_a_damaged_row_names_the_damage(home: Home) -> None:
    home.write("policy.toml", POLICY)
    home.routine("work", '[trigger]\nevery = "1h"\n[run]\nmode = "script"\n' + GATHER)
    await home.start()
    for _ in range(2):
        await home.agentctl("run", "work")
    await home.stop()
    with closing(sqlite3.connect(home.state / "agentd.db")) as connection:
        # as a byte that was flipped may leave it: nothing else lets a NULL in
        connection.execute("PRAGMA writable_schema = ON")
        (schema,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'run'"
        ).fetchone()
        lenient = re.sub(r"created (\w+) NOT NULL", r"created \1", schema)
        assert lenient != schema
        change = "UPDATE sqlite_master SET sql = ? WHERE name = 'run'"
        connection.execute(change, (lenient,))
        connection.execute("PRAGMA schema_version = 999")
        connection.commit()
    with closing(sqlite3.connect(home.state / "agentd.db")) as connection:
        connection.execute("UPDATE run SET created = NULL, status = 'failed'")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(change, (schema,))
        connection.execute("PRAGMA schema_version = 1000")
        connection.commit()
    with pytest.raises(ConfigError, match=r"agentd\.db.*is damaged \(NULL value in run\.created\)"):
        await home.start()


async def test_requests_at_any_moment_of_a_start_are_answered(home: Home) -> None:
    for number in range(300):
        home.routine(f"r{number}", '[trigger]\nevery = "1h"\n[run]\nprompt = "x"\n')
    starting = asyncio.create_task(home.start())
    answers = []
    while not starting.done():
        answers.append(await home.agentctl("why", "r299"))
        await asyncio.sleep(0)
    await starting
    assert {answer.err for answer in answers if "no daemon answers" not in answer.err} <= {""}


async def test_a_start_that_finds_its_history_gone_goes_on_and_says_so(home: Home) -> None:
    async with Receiver().open() as phone:
        home.write(
            "config.toml",
            '[incidents]\nto = ["phone"]\n'
            f'[targets.phone]\nkind = "webhook"\nurl = "{phone.url}"\n',
        )
        home.write("policy.toml", "version = 2\n")
        with pytest.raises(ConfigError):  # it wrote a log, and had no database
            await home.start()
        home.write("policy.toml", POLICY)
        await home.start()
        await home.stop()
        await home.start()
        events = {line["event"] for line in home.log_lines()}
        assert "database.history_missing" not in events, "nothing is gone"
        await home.stop()
        for file in home.state.glob("agentd.db*"):
            file.unlink()
        modified_at = (home.state / "logs" / "agentd.jsonl").stat().st_mtime
        await home.start()
        (line,) = await home.wait_for_log("database.history_missing")
        assert line["written"] == datetime.fromtimestamp(modified_at, UTC).isoformat()
        assert line["trace"] == str(home.state / "logs" / "agentd.jsonl")
        await home.wait_for_log("delivery.arrived", target="phone")
    (notice,) = [json.loads(post.body)["data"] for post in phone.posts]
    assert "restore a backup with agentd restore" in notice["report"]


@pytest.mark.process
async def test_a_hang_up_at_any_moment_of_a_start_does_not_end_the_daemon(home: Home) -> None:
    home.env = {**home.env, "PYTHONUNBUFFERED": "1"}  # so it is a fresh Python
    starting = asyncio.create_task(home.start())
    while home.process is None:
        await asyncio.sleep(0)
    # the interpreter itself must have begun with agentd: nobody can ignore a signal before that
    while not home.state.exists():
        await asyncio.sleep(0)
    while not starting.done():
        home.process.send_signal(1)
        await asyncio.sleep(0.005)
    await starting
    assert (await home.agentctl("status")).code == 0


GATHER = '[[gather]]\nname = "now"\ntool = "sysinfo"\nargs = { parts = ["load"] }\n'
