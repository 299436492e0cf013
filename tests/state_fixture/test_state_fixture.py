"""A state folder of the first version is opened, worked on and explained by this one.

The fixture is never made again and never edited; make.py tells how it came about. Its daemon was
killed in the middle of its work on 4 March 2026 at 11:05. What it said of its history then is in
expected.json beside it: the same is said by each later version, which may say more. The only files
that a test here may rewrite are copies.

The folder is shown to the daemon at the place where it was made, as a parked call is the same call
only there; for that bubblewrap is needed, and libfaketime for the day.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from daemon.cli.client import Client
from tests.command_line import needs_process, run_command
from tests.postgres import Server, programs
from tests.preloaded import ForkedProcess
from tests.state_fixture.facts import QUESTIONS, differences, facts_of, pages, write
from tests.state_fixture.installation import (
    LIBFAKETIME,
    Ended,
    Installation,
    store_in,
    unpack,
    why_not_mounted,
)
from tests.state_fixture.servers import Hook, requests_of, vendor

HERE = Path(__file__).parent
SOON = "2026-03-04 11:25:00"
"""When the daemon is started again: before any slot, and after the moment that the run waits for
which was put off.
"""
LATER = "2026-04-05 11:25:00"
LARGEST = 1_000_000
# what a person asked comes before an answer that says nothing of it
REPLACED_HITS = {"memory search code of the garage": {"Remembered.": "how do I open the garage?"}}
SEARCHES = tuple(f"memory search {question}" for question in QUESTIONS)

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(LIBFAKETIME is None, reason="needs libfaketime: apt install faketime"),
]
mounted = pytest.mark.skipif(
    bool(why_not_mounted()), reason=why_not_mounted() or "bubblewrap works"
)

TURNS: dict[str, list[Any]] = {
    "clerk": ["The second entry is made.", "Nothing else to enter."],
    "builder": ["It may have been built."],
    "mason": ["It may have been built in blue."],
    "poet": ["A poem."],
    "courier": ["The letter is carried."],
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, for the sake of the control socket; tools of a daemon of root get
    through to it.
    """
    new_folder = Path(tempfile.mkdtemp(prefix="agentd-", dir="/tmp"))
    new_folder.chmod(0o711)
    yield new_folder
    shutil.rmtree(new_folder)


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """Where the journal is."""
    return str(request.param)


@pytest.fixture
def waiting(kind: str) -> dict[str, Any]:
    """The ids of all that waits in this fixture."""
    table: dict[str, Any] = json.loads((HERE / kind / "waiting.json").read_text())
    return table


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Server]:
    """A server for all tests of this file that ask for one; a port, as a daemon's config has it."""
    server = Server(tcp=True)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database with the fixture in it; empty where the journal is a file."""
    if kind == "sqlite":
        yield ""
        return
    server: Server = request.getfixturevalue("postgres_server")
    try:
        server.sql("CREATE DATABASE agentd")
        url = server.url("agentd", port=server.port)
        postgres_programs = programs()
        assert postgres_programs
        words = [
            str(postgres_programs / "psql"),
            "--quiet",
            "--no-psqlrc",
            "-v",
            "ON_ERROR_STOP=1",
            "-o",
            os.devnull,
            url,
        ]
        dump = lzma.decompress((HERE / kind / "dump.sql.xz").read_bytes())
        process = subprocess.run(words, input=dump, capture_output=True, check=False)
        assert process.returncode == 0, process.stderr.decode()
        yield url
    finally:
        server.drop("agentd")


class OpenedInstallation(Installation):
    """An installation whose programs are imported once for all tests.

    Answers in JSON, which no clock and no place of ours has a part in, are asked for without a
    process. Where no folder has to be mounted, other programs are forked.
    """

    async def agentctl(self, *arguments: object, input_: str | None = None) -> Ended:
        """Run `agentctl` to its end."""
        words = ("--socket", str(self.state / "agentd.sock"), *map(str, arguments))
        if input_ is not None:
            return await super().agentctl(*arguments, input_=input_)
        if "--json" in words and not needs_process("agentctl", words):
            result = await run_command("agentctl", *words, env=self.env, cwd=self.folder)
            return Ended(result.code, result.out, result.err)
        if self.mounted:
            return await super().agentctl(*arguments)
        return await self._fork("agentctl", *words)

    async def agentd(self, *arguments: object) -> Ended:
        """Run a verb of `agentd` to its end."""
        if self.mounted:
            return await super().agentd(*arguments)
        return await self._fork("agentd", *map(str, arguments), *self.places())

    async def _fork(self, program: str, *words: str) -> Ended:
        env = self.env | self.faketime
        process = await ForkedProcess.start(program, *words, env=env, cwd=self.folder)
        out, err = await process.communicate()
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())

    async def _start_daemon(self, output: IO[bytes]) -> asyncio.subprocess.Process | ForkedProcess:
        if self.mounted:
            return await super()._start_daemon(output)
        return await ForkedProcess.start(
            "agentd",
            *self.places(),
            env=self.env | self.faketime,
            cwd=self.folder,
            stdout=output,
            stderr=output,
        )


def open_fixture(kind: str, folder: Path, database: str, *, mounted: bool) -> Installation:
    """Unpack a fixture into a folder."""
    shutil.copytree(HERE / "home", folder / "home")
    for path in (folder / "home", *(folder / "home").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    unpack(HERE / kind / "state.tar.xz", folder)
    if database:
        store_in(folder / "home", database)
    return OpenedInstallation(folder, mounted=mounted)


@asynccontextmanager
async def working(
    box: Installation, turns: dict[str, list[Any]], moment: str
) -> AsyncIterator[tuple[Any, Hook]]:
    """Start the daemon at a moment, with its vendor and the receiver of its reports."""
    server, hook = vendor({name: list(answers) for name, answers in turns.items()}), Hook()
    async with server, hook.open():
        box.replace_in_config(vendor=f"{server.url}/v1", hook=hook.url)
        box.set_clock(moment)
        try:
            await box.start()
            yield server, hook
        finally:
            await box.close()


async def wait_for_end(box: Installation, run: str) -> Any:
    """Wait until a run has ended and return what is said of it."""

    async def look() -> Any:
        run_view = await box.json("inspect", run)
        return run_view if run_view["ended"] else None

    return await box.until(f"run {run} ends", look)


async def arrived(box: Installation, delivery: int) -> Any:
    """Wait until a delivery has arrived and return its row."""

    async def look() -> Any:
        rows = [row for row in await pages(box, "deliveries") if row["id"] == delivery]
        return rows[0] if rows[0]["status"] == "delivered" else None

    return await box.until(f"delivery {delivery} arrives", look)


def told_of(requests: list[dict[str, Any]]) -> str:
    """Return what the model was told in the last request."""
    return "\n".join(str(message["content"]) for message in requests[-1]["messages"])


async def all_goes_on(box: Installation, server: Any, hook: Hook, waiting: dict[str, Any]) -> None:
    """Check that what was interrupted, put off or not delivered goes on by itself."""
    for name, report in (("mason", "by hand"), ("poet", "in a model call"), ("courier", "retry")):
        run_view = await wait_for_end(box, waiting[report])
        assert (run_view["status"], run_view["report"]) == ("succeeded", TURNS[name][0])
    assert (box.state / "workspace" / "mason.txt").read_text() == "built\n", (
        "its tool was started again"
    )
    requests = told_of(requests_of(server, "mason"))
    assert "interrupted" in requests and "unknown" in requests
    assert "use the blue ink" in requests
    row = await arrived(box, waiting["delivery"])
    reports = [
        body["data"]["report"]
        for name, body in hook.received
        if name == f"{row['run']}-{row['id']}"
    ]
    assert reports == ["The third day begins."], hook.received


async def check_facts(box: Installation, kind: str, waiting: dict[str, Any], *but: str) -> None:
    """Check that all that was over is told as the first version told it, except for some verbs."""
    path = HERE / kind / "expected.json"
    actual = await facts_of(box, waiting)
    # once, by the commit that made the fixture
    if not path.exists() and "RECORD_STATE_FIXTURE" in os.environ:
        path.write_text(write(actual))
    expected = json.loads(path.read_text())
    for search, replaced in REPLACED_HITS.items():
        for facts, texts in ((expected, replaced.keys()), (actual, replaced.values())):
            facts[search] = [hit for hit in facts[search] if hit["text"] not in texts]
    wrong = differences(
        {verb: answer for verb, answer in expected.items() if verb not in but}, actual
    )
    assert not wrong, "\n".join([f"{len(wrong)} facts are told otherwise:", *wrong[:40]])


async def check_audit(box: Installation) -> None:
    """Check that the chain of hashes is whole."""
    proof = await box.agentctl("audit", "--verify", "--json")
    assert (proof.code, proof.json["ok"]) == (0, True), proof.out


@mounted
async def test_waiting_runs_of_the_old_state_continue_and_its_history_is_unchanged(
    kind: str, folder: Path, database: str, waiting: dict[str, Any]
) -> None:
    box = open_fixture(kind, folder, database, mounted=True)
    ledger = box.state / "workspace" / "ledger" / "second.txt"
    async with working(box, TURNS, SOON) as (server, hook):
        await all_goes_on(box, server, hook, waiting)
        assert (await wait_for_end(box, waiting["in its slot"]))["report"] == TURNS["builder"][0]
        assert (box.state / "workspace" / "builder.txt").read_text() == "built\n", (
            "its tool was started again"
        )

        # the parked run: the same call, and nothing else, is what is approved
        assert (await box.json("inspect", waiting["approval"]))["status"] == "waiting"
        assert (await box.json("inspect", waiting["queued"]))["status"] == "queued"
        assert not ledger.exists()
        (approval,) = (await box.json("approvals"))["items"]
        assert (approval["run"], approval["tool"], approval["status"]) == (
            waiting["approval"],
            "file_write",
            "pending",
        )
        approved = await box.agentctl("approve", approval["id"])
        assert approved.code == 0, approved.err
        run_view = await wait_for_end(box, waiting["approval"])
        assert (run_view["status"], run_view["report"]) == (
            "succeeded",
            "The second entry is made.",
        )
        assert ledger.read_text() == "second\n"
        assert "and the good paper" in told_of(requests_of(server, "clerk")[:1])
        run_view = await wait_for_end(box, waiting["queued"])
        assert (run_view["status"], run_view["report"]) == ("succeeded", "Nothing else to enter.")
        rows = (await box.json("approvals", "--all"))["items"]
        assert [row["status"] for row in rows if row["run"] == waiting["approval"]] == ["used"]
        assert len(server.requests) == 6, "a model was asked what nobody had to ask it"

        await check_facts(box, kind, waiting)
        await check_audit(box)
        runs = await pages(box, "runs")
        first, *later_runs = [run["id"] for run in runs if run["id"] not in forgotten(kind)]
        played = [await box.json("replay", first), *await replay_by_api(box, later_runs)]
        parted = [replay["run"] for replay in played if not replay["identical"]]
        assert not parted, f"these runs come out otherwise when they are replayed: {parted}"
        assert (await box.json("memory", "search", "parcel-note"))["items"][0]["tainted"]
        assert await box.stop() == 0


async def replay_by_api(box: Installation, runs: list[str]) -> list[Any]:
    """Have the daemon replay runs and return its answers, which `agentctl replay` prints."""
    client = Client(str(box.state / "agentd.sock"), is_trusted=True)
    return [
        await asyncio.to_thread(client.request, "GET", f"/v1/runs/{run}/replay") for run in runs
    ]


def forgotten(kind: str) -> list[str]:
    """Return the runs of which `memory forget` has left nothing to be replayed."""
    expected = json.loads((HERE / kind / "expected.json").read_text())
    return [id_ for id_, run in expected["runs"].items() if run["routine"] == "single"]


@mounted
async def test_the_old_state_opened_a_month_later_loses_no_slot(
    kind: str, folder: Path, database: str, waiting: dict[str, Any]
) -> None:
    """The approval has expired, `catch_up` says which interrupted run is resumed, the slots of the
    month are missed.
    """
    box = open_fixture(kind, folder, database, mounted=True)
    turns = TURNS | {
        "morning": ["A month later."],
        "clerk": ["Nobody has answered.", "Nothing to enter."],
    }
    async with working(box, turns, LATER) as (server, hook):
        await all_goes_on(box, server, hook, waiting)
        run_view = await wait_for_end(box, waiting["in its slot"])
        assert run_view["status"] == "interrupted"
        assert (box.state / "workspace" / "builder.txt").read_text() == "built\n", (
            "its tool was started again"
        )
        waiting_run, queued = (
            await wait_for_end(box, waiting["approval"]),
            await wait_for_end(box, waiting["queued"]),
        )
        assert waiting_run["status"] == "succeeded"
        # which of the two goes first is not promised
        assert {waiting_run["report"], queued["report"]} == {
            "Nobody has answered.",
            "Nothing to enter.",
        }
        assert len(requests_of(server, "clerk")) == 2, "a run was started twice"
        assert not (box.state / "workspace" / "ledger" / "second.txt").exists()
        rows = (await box.json("approvals", "--all"))["items"]
        assert [row["status"] for row in rows if row["run"] == waiting["approval"]] == ["expired"]
        # a run was made
        since = (
            "list",
            "why",
            "slots",
            "incidents",
            "usage by routine",
            "usage by model",
            *SEARCHES,
        )
        await check_facts(box, kind, waiting, *since)
        await check_audit(box)
        for slot, outcome, reason in (
            ("2026-03-20 09:00", "missed", "down"),
            ("2026-03-04 09:00", "late", None),
            ("2026-03-03 09:00", "caught_up", None),
        ):
            why = await box.json("why", "morning", "--at", slot)
            assert (why["outcome"], why["reason"]) == (outcome, reason), why
        assert await box.stop() == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
async def test_the_old_state_in_another_folder_asks_again_for_its_waiting_call(
    kind: str, folder: Path, database: str, waiting: dict[str, Any]
) -> None:
    box = open_fixture(kind, folder, database, mounted=False)
    async with working(box, TURNS, SOON) as (server, hook):
        await all_goes_on(box, server, hook, waiting)
        (approval,) = (await box.json("approvals"))["items"]
        assert (await box.agentctl("approve", approval["id"])).code == 5, (
            "it was approved for another folder"
        )

        async def asked_anew() -> Any:
            return [
                row for row in (await box.json("approvals"))["items"] if row["id"] != approval["id"]
            ]

        (again,) = await box.until("the call is asked about anew", asked_anew)
        assert (again["run"], again["what"]) == (waiting["approval"], approval["what"])
        assert (await box.agentctl("approve", again["id"])).code == 0
        assert (await wait_for_end(box, waiting["approval"]))[
            "report"
        ] == "The second entry is made."
        assert (box.state / "workspace" / "ledger" / "second.txt").read_text() == "second\n"
        assert (await wait_for_end(box, waiting["queued"]))["status"] == "succeeded"
        assert (await wait_for_end(box, waiting["in its slot"]))["status"] == "succeeded"
        await check_facts(box, kind, waiting)
        await check_audit(box)
        assert await box.stop() == 0


async def test_a_backup_of_the_old_state_is_restored_in_another_folder(folder: Path) -> None:
    waiting = json.loads((HERE / "sqlite" / "waiting.json").read_text())
    box = open_fixture("sqlite", folder, "", mounted=False)
    other_path = folder / "other"
    other_path.mkdir(mode=0o711)
    hangs = [{"text": "never", "hang": True}]
    async with working(
        box, dict.fromkeys(("mason", "builder", "poet", "courier"), hangs), SOON
    ) as (server, _):
        await box.until("what goes on by itself is under way", lambda: len(server.requests) == 4)
        copied = await box.agentctl("backup", folder / "copy.db")
        assert copied.code == 0, copied.err
    again = OpenedInstallation(other_path, mounted=False)
    again.set_clock(SOON)
    restored = await again.agentd(
        "restore", folder / "copy.db", "--definitions", other_path / "home"
    )
    assert restored.code == 0, restored.err
    async with working(again, {}, SOON):
        routines = (await again.json("list"))["items"]
        assert {row["state"] for row in routines} <= {"paused", "disabled", "elsewhere"}, routines
        for name in ("by hand", "in its slot", "in a model call", "retry", "approval", "queued"):
            assert (await again.json("inspect", waiting[name]))["status"] == "interrupted", name
        await check_facts(again, "sqlite", waiting, "list", "incidents", "why")
        await check_audit(again)
        assert (await again.agentctl("resume", "--all")).code == 0
        assert await again.stop() == 0


def test_the_state_fixture_is_unchanged_and_small() -> None:
    listed = dict(
        line.split("  ", 1)[::-1] for line in (HERE / "SHA256SUMS").read_text().splitlines()
    )
    files = [
        path
        for folder in ("home", "sqlite", "postgres")
        for path in sorted((HERE / folder).rglob("*"))
    ]
    actual = {
        str(path.relative_to(HERE)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file()
    }
    assert actual == listed, "the fixture is never edited: what changed is how the code reads it"
    assert sum(path.stat().st_size for path in files if path.is_file()) <= LARGEST
