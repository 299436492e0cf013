"""A whole installation moves from a file to a server, and back, with all its history and memory."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.app.commands.transfer import export, import_file
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.errors import DaemonError, Refused
from daemon.memory.memory import Memory
from daemon.memory.segments import Segment
from daemon.models import (
    ApprovalRequest,
    ReportedItem,
    SegmentType,
    Status,
    Step,
    StepKind,
    Usage,
)
from daemon.store.journal import Journal
from daemon.store.opening import open_database
from daemon.store.records import CallOutcome, ModelCall
from daemon.store.seen_items import ReportedItemRecord
from daemon.testing import FakeClock, TestApp, tool_call
from tests.store.conftest import START, Ledger, prompt, step

SAID = (
    "The walrus weighs 900 kg and swims well",
    "Backups run every night at three and are kept for a month",
    "海象重达九百公斤，擅长游泳",
    "The quick brown fox jumps over lazy dogs",
    "Der Köter läuft über die Straße",
)
ASKED = (
    "how heavy is the walrus?",
    "海象有多重",
    "when do backups run",
    "jumping foxes",
    "koter strasse",
)


def config(folder: Path, url: str = "") -> Config:
    folder.mkdir(exist_ok=True)
    file = folder / "config.toml"
    file.write_text(f'[store]\nurl = "{url}"\n' if url else "")
    file.chmod(0o600)
    (folder / "routines").mkdir(exist_ok=True)
    return load_config(file)


async def fill_state(state: Path) -> None:
    """Fill a file with one of everything."""
    state.mkdir(exist_ok=True)
    db, clock = await open_database(state / "agentd.db"), FakeClock(START)
    ledger, memory = Ledger(db, clock), Memory(db, clock=clock.now)
    await memory.open()
    journal = ledger.journal
    for number, prompt_text in enumerate(SAID):
        run = await ledger.start_run(input={"path": f"in/{number}"}, event=f"file:{number}")
        call = Step(kind=StepKind.CALL, iteration=1, body={"tool": "shell"}, call_id="c")
        await journal.runs.append(run, prompt(f"{number}" * 32), step(number=number), call)
        usage = Usage(input=10, output=5)
        await journal.spending.record(
            ModelCall(at=clock.now(), run=run.id, routine="daily", provider="p", model="m", outcome=CallOutcome.ANSWERED,  # noqa: E501
                  usage=usage, cost=7)
        )  # fmt: skip
        await journal.runs.send_message(run.id, "hurry", event=f"e{number}")
        item = ReportedItem(digest=f"{number}" * 32, key=f"item {number}", title="new")
        await journal.runs.end(
            run.to(Status.SUCCEEDED, report=prompt_text, usage=usage),
            [("file", {"path": "a.md"})],
            reported_items=ReportedItemRecord(items=[item], keep=timedelta(days=365)),
        )
        segments = [
            Segment(
                iteration=0,
                segment=0,
                type=SegmentType.USER_MESSAGE,
                timestamp=clock.now(),
                text=f"tell {number}",
            ),
            Segment(
                iteration=1,
                segment=0,
                type=SegmentType.RESPONSE,
                timestamp=clock.now(),
                text=prompt_text,
            ),
        ]
        await memory.archive(
            run=run.id, routine="daily", goal="go", status="succeeded", segments=segments, started=clock.now(),  # noqa: E501
            ended=clock.now(), run_line=f"run {number} was fine",
        )  # fmt: skip
    failed_run = await ledger.start_run("broken")
    await journal.runs.end(failed_run.to(Status.FAILED, detail="no disk"), [("mail", {})])
    waiting_run = await ledger.start_run("asking")
    approval_request = ApprovalRequest(
        call_id="c",
        tool="shell",
        request={"a": 1},
        digest="d",
        rule="r",
        reason="",
        taint=waiting_run.taint,
    )
    parked_run = await journal.approvals.park(
        waiting_run, [approval_request], timeout=timedelta(hours=1), detail="waits"
    )
    await journal.runs.request_cancel(parked_run.id)
    await journal.audit.quarantine(
        run=run.id, routine="daily", call_id="c", tool="t", reason="r", text="evil"
    )
    await journal.key_values.put("session:s", '{"summary": "we spoke"}')
    await memory.store("colour", "The colour of the shed is green", tainted=True)
    await db.close()


async def contents_of(state: Path, url: str = "") -> dict[str, Any]:
    """Return all that a store knows, as far as it is to be the same elsewhere."""
    db, clock = await open_database(state / "agentd.db", url), FakeClock(START)
    journal, memory = Journal(db, clock=clock.now), Memory(db, clock=clock.now)
    await memory.open()
    runs = await journal.runs.find(limit=100)
    facts = {
        "runs": runs,
        "steps": [await journal.runs.get_steps(run.id) for run in runs],
        "inputs": [await journal.runs.get_input(run.id) for run in runs],
        "slots": [
            (row.routine, row.first, row.outcome, row.event, row.run)
            for row in await journal.slots.find(limit=100)
        ],
        "deliveries": sorted(
            (delivery.run, delivery.target, str(delivery.options))
            for delivery in await journal.outbox.find(limit=100)
        ),
        "approvals": await journal.approvals.find(),
        "quarantine": await journal.audit.find_quarantined(),
        "audit": await journal.audit.verify(),
        "spent": [await journal.spending.get_cost_of_run(run.id) for run in runs],
        "seen": await journal.seen_items.find("daily"),
        "told": [
            [message.text for message in await journal.runs.find_messages(run.id)] for run in runs
        ],
        "incidents": [
            (incident.subject, incident.detail, incident.run)
            for incident in await journal.incidents.find(closed=True)
        ],
        "session": await journal.key_values.get("session:s"),
        "items": sorted(await memory.items()),
        "found": [
            [(hit.text.text, hit.text.source) for hit in await memory.search(question, 3)]
            for question in ASKED
        ],
    }
    await db.close()
    return facts


async def test_an_installation_moves_to_a_server_and_back(
    tmp_path: Path, postgres_url: str
) -> None:
    first, second, third = (tmp_path / name for name in ("one", "two", "three"))
    for folder in (first, second, third):
        folder.mkdir()
    await fill_state(first / "state")
    before = await contents_of(first / "state")
    assert before["audit"].rows > 5
    assert all(before["found"])
    other_config = config(second, postgres_url)

    def move(here: Config, state: Path, file: Path, target_config: Config, to: Path) -> list[str]:
        assert export(state, file, here, [], progress=lambda part: None) == 7
        return import_file(file, to, target_config, progress=lambda part: None)

    await asyncio.to_thread(
        move, config(first), first / "state", tmp_path / "x", other_config, second / "state"
    )
    assert await contents_of(second / "state", postgres_url) == before
    again = await asyncio.to_thread(
        import_file, tmp_path / "x", second / "state", other_config, progress=lambda part: None
    )
    assert "its history is here already" in again
    assert await contents_of(second / "state", postgres_url) == before

    (third / "state").mkdir()
    await asyncio.to_thread(
        move, other_config, second / "state", tmp_path / "y", config(third), third / "state"
    )
    assert await contents_of(third / "state") == before


async def run_and_be_told(folder: Path, routine: str) -> TestApp:
    """Run a routine to which a person sends a message, which it reads; return its daemon."""
    folder.mkdir()
    app = TestApp(folder)
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "other__look"\neffect = "allow"\n')
    app.write_routine(routine, '[run]\nprompt = "Report."\nmode = "agent"\ntools = ["other__*"]\n')
    async with app:
        runs, conversations = app.daemon.store.journal.runs, app.daemon.runs.conversations

        async def look() -> str:
            """Look."""
            (run,) = await runs.find_active()
            assert await conversations.tell_active(run, "And the disks?", event="e")
            return "looked"

        app.daemon.tools.registry.register("other__look", None, look, read_only=True)
        app.model.enqueue(tool_call("other__look"), "The disks are fine.")
        await app.run(routine)
        assert app.model.calls[-1].messages[-1].content == "And the disks?"
    return app


async def test_a_message_that_a_run_has_read_is_not_answered_where_the_run_is_imported(
    tmp_path: Path,
) -> None:
    here = await run_and_be_told(tmp_path / "here", "mine")
    there = await run_and_be_told(tmp_path / "there", "yours")

    def move() -> None:
        file, source = tmp_path / "x", load_config(here.folder / "config.toml")
        export(here.state, file, source, [], progress=lambda part: None)
        target = load_config(there.folder / "config.toml")
        import_file(file, there.state, target, progress=lambda part: None)

    await asyncio.to_thread(move)
    async with there:
        runs = there.daemon.store.journal.runs
        assert [run.report for run in await runs.find("mine")] == ["The disks are fine."]
        await there.daemon.runs.conversations.answer_messages_left()
        assert await runs.find("ask") == []


async def test_an_exported_routine_has_its_shared_texts_without_damaged_texts(
    tmp_path: Path,
) -> None:
    await fill_state(tmp_path / "state")
    before = await contents_of(tmp_path / "state")

    def move(names: list[str], to: str) -> int:
        export(
            tmp_path / "state",
            tmp_path / f"{to}.jsonl",
            config(tmp_path / "one"),
            names,
            progress=lambda part: None,
        )
        import_file(
            tmp_path / f"{to}.jsonl",
            tmp_path / to,
            config(tmp_path / f"{to}.d"),
            progress=lambda part: None,
        )
        with closing(sqlite3.connect(tmp_path / to / "agentd.db")) as connection:
            (count,) = connection.execute("SELECT count(*) FROM text").fetchone()
        return int(count)

    assert await asyncio.to_thread(move, ["broken"], "few") == 0
    assert await asyncio.to_thread(move, ["daily"], "all") == 3
    assert [steps for steps in (await contents_of(tmp_path / "all"))["steps"] if steps] == [
        steps for steps in before["steps"] if steps
    ]
    with closing(sqlite3.connect(tmp_path / "state" / "agentd.db")) as here, here:
        here.execute("UPDATE text SET body = digest WHERE digest = (SELECT min(digest) FROM text)")
    assert await asyncio.to_thread(move, ["daily"], "some") == 2
    with pytest.raises(DaemonError, match=r"step 0 \(prompt\) of the run is damaged .* is missing"):
        await contents_of(tmp_path / "some")


async def test_an_import_refused_by_the_server_leaves_nothing_behind(
    tmp_path: Path, postgres_url: str
) -> None:
    file = tmp_path / "x"
    file.write_text(
        '{"agentd": "export", "schema": 1, "routines": []}\n'
        '{"table": "definition", "row": {"hash": "h", "body": "{}"}}\n'
        '{"table": "run", "row": {"id": "a", "routine": null}}\n'
    )
    with pytest.raises(Refused, match="did not take it: null value in column"):
        import_file(
            file,
            tmp_path / "state",
            config(tmp_path / "c", postgres_url),
            progress=lambda part: None,
        )
    db = await open_database(tmp_path / "y", postgres_url)
    assert await db.read(
        lambda connection: connection.execute("SELECT count(*) FROM definition").fetchone()
    ) == (0,)
    await db.close()
