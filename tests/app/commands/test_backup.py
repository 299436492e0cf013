"""Backup, restore, export and import: complete, paused afterwards, and harmless to existing
state.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta

import pytest

from daemon.app.commands.backup import backup, restore
from daemon.app.commands.transfer import export, import_file
from daemon.definitions.config.loading import load_config
from daemon.errors import ConfigError, Refused, StateBusy
from daemon.memory.markdown_mirror import FOLDER, NAME, Mirror
from daemon.memory.memory import Memory
from daemon.models import (
    ApprovalRequest,
    ApprovalStatus,
    DeliveryStatus,
    Status,
    Step,
    StepKind,
    WaitingNotice,
    new_id,
)
from daemon.store.database import MIGRATIONS, Database
from daemon.store.journal import Journal
from daemon.store.lock import lock_state
from daemon.testing import FakeClock
from tests.acceptance.story import InProcessHome
from tests.store.conftest import START, Ledger

MORNING = '[trigger]\ncron = "30 8 * * *"\n[run]\nprompt = "Say good morning."\n'
QUIET = lambda fraction: None  # noqa: E731


@pytest.fixture
def config(home):
    home.routine("morning", MORNING)
    return load_config(home.folder / "config.toml")


async def fill_state(state, *names):
    """Leave a state folder in which each routine has run once, one run is under way and one report
    is on its way.
    """
    state.mkdir(exist_ok=True)
    db = await Database.open(state / "agentd.db")
    ledger = Ledger(db, FakeClock(START))
    await ledger.journal.routines.set_baselines(dict.fromkeys(names, "key"))
    for name in names:
        run = await ledger.start_run(name)
        await ledger.journal.runs.end(run.to(Status.SUCCEEDED, report=f"{name} 中"), [("mail", {})])
    await ledger.start_run(names[0])
    await db.close()


async def open_journal(state):
    db = await Database.open(state / "agentd.db")
    return db, Journal(db, clock=FakeClock(START).now)


async def test_a_backup_is_one_private_database_with_all_definitions(home, config, tmp_path):
    await fill_state(home.state, "morning")
    file = tmp_path / "a.backup"
    assert backup(home.state, file, config, progress=QUIET) == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(file)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT count(*) FROM run").fetchone() == (2,)
        assert copy.execute("SELECT path FROM backup_file ORDER BY path").fetchall() == [
            ("config.toml",),
            ("policy.toml",),
            ("routines/morning.toml",),
        ]
    with pytest.raises(Refused, match="is there already"):
        backup(home.state, file, config, progress=QUIET)
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


async def test_files_that_an_editor_leaves_are_in_no_backup_and_no_export(home, config, tmp_path):
    await fill_state(home.state, "morning")
    # a lock of Emacs is a link to nothing
    (config.routines_path / ".#morning.toml").symlink_to("ada@box.77:1")
    backup(home.state, tmp_path / "a.backup", config, progress=QUIET)
    with closing(sqlite3.connect(tmp_path / "a.backup")) as copy:
        paths = copy.execute("SELECT path FROM backup_file WHERE path LIKE 'routines/%'").fetchall()
    assert paths == [("routines/morning.toml",)]
    assert export(home.state, tmp_path / "a.export", config, [], progress=QUIET) == 1


async def test_an_export_names_a_routine_that_is_no_text(home, config, tmp_path):
    await fill_state(home.state, "morning")
    (config.routines_path / "caf.toml").write_bytes(b'description = "caf\xe9"')
    with pytest.raises(Refused, match=r"caf\.toml cannot be read: it is not UTF-8 text"):
        export(home.state, tmp_path / "a.export", config, [], progress=QUIET)
    assert not (tmp_path / "a.export").exists()


async def test_definitions_are_restored_where_config_toml_looks_for_them(home, config, tmp_path):
    await fill_state(home.state, "morning")
    config.routines_path.rename(home.folder / "jobs")
    (home.folder / "rules").mkdir()
    config.policy_path.rename(home.folder / "rules/policy.toml")
    text = config.file.read_text()
    config.file.write_text(f'routines = "jobs"\npolicy = "./rules/policy.toml"\n{text}')
    new_config = load_config(config.file)
    backup(home.state, tmp_path / "a.backup", new_config, progress=QUIET)
    restore(tmp_path / "a.backup", tmp_path / "state", definitions=tmp_path / "new")
    restored_config = load_config(tmp_path / "new/config.toml")
    assert restored_config.policy_path.is_file()
    assert [path.name for path in restored_config.routines_path.iterdir()] == ["morning.toml"]


async def test_restored_routines_are_paused(home, config, tmp_path):
    await fill_state(home.state, "morning", "evening")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    other_path, definitions = tmp_path / "other", tmp_path / "definitions"
    lines = restore(tmp_path / "b", other_path, definitions=definitions)
    assert (definitions / "routines" / "morning.toml").read_text() == MORNING
    assert lines[0].startswith("restored what was backed up at ")
    db, journal = await open_journal(other_path)
    states = await journal.routines.set_baselines({"morning": "key", "new-here": "key"})
    assert (
        all(state.paused and "resume --all" in state.paused_why for state in states.values())
        and len(states) == 3
    )
    assert {run.status for run in await journal.runs.find()} == {
        Status.SUCCEEDED,
        Status.INTERRUPTED,
    }
    assert await journal.runs.recover("me") == []
    held_deliveries = await journal.outbox.find()
    assert {delivery.status for delivery in held_deliveries} == {DeliveryStatus.FAILED}
    assert "held by a restore" in held_deliveries[0].error
    await journal.routines.end_hold()
    assert not (await journal.routines.set_baselines({"later": "key"}))["later"].paused
    await db.close()


async def test_questions_of_restored_runs_are_asked_no_more(home, config, tmp_path):
    home.state.mkdir(exist_ok=True)
    db = await Database.open(home.state / "agentd.db")
    ledger = Ledger(db, FakeClock(START))
    approval_request = ApprovalRequest(
        call_id="1.0", tool="shell", request={}, digest="d", rule="rule 1"
    )
    questions = ((new_id(), "May it?"),)
    notice = WaitingNotice(title="t", head="h", questions=questions, targets=("mail",))
    await ledger.journal.approvals.park(
        await ledger.start_run("morning"),
        [approval_request],
        timeout=timedelta(hours=1),
        detail="waits",
        notice=notice,
    )
    await db.close()
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    restore(tmp_path / "b", tmp_path / "other")
    db, journal = await open_journal(tmp_path / "other")
    [approval] = await journal.approvals.find()
    assert approval.status is ApprovalStatus.VOID
    assert await journal.approvals.get_next_due() is None, "nobody hears that it has expired"
    assert await journal.incidents.get_open_subjects() == set()
    await db.close()


async def test_the_mirror_of_a_later_memory_is_not_read_into_a_restored_one(home, config, tmp_path):
    home.state.mkdir(exist_ok=True)

    async def sync_mirror(**items):
        db, journal = await open_journal(home.state)
        memory = Memory(db, clock=FakeClock(START).now)
        await memory.open()
        for key, text in items.items():
            await memory.store(key, text)
        folder = home.state / FOLDER
        await Mirror(memory, folder, journal.key_values, clock=FakeClock(START).now).sync()
        stored_items = {item.key: (item.content, item.category) for item in await memory.items()}
        await db.close()
        return stored_items

    await sync_mirror(plants="Twice a week.", bins="On Monday.")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    await sync_mirror(plants="What strangers said.")
    (home.state / FOLDER / NAME).write_text(
        (home.state / FOLDER / NAME).read_text().replace("## bins", "## bin")
    )
    await sync_mirror()
    lines = restore(tmp_path / "b", home.state)
    assert any(line.startswith("MEMORY.md is now ") for line in lines)
    assert await sync_mirror() == {
        "plants": ("Twice a week.", "core"),
        "bins": ("On Monday.", "core"),
    }


async def test_a_backup_restores_identity_skills_tools_and_scripts(home, config, tmp_path):
    await fill_state(home.state, "morning")
    files = {
        "SOUL.md": "Be brief.",
        "skills/alpha/SKILL.md": "---\nname: alpha\n---\n",
        "tools/mine.py": "def nap(): ...\n",
        "scripts/look": "#!/bin/sh\ndf\n",
    }
    for name, text in files.items():
        (home.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (home.folder / name).write_text(text)
    (home.folder / "tools/__pycache__").mkdir()
    (home.folder / "tools/__pycache__/mine.pyc").write_text("")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    definitions = tmp_path / "definitions"
    restore(tmp_path / "b", tmp_path / "other", definitions=definitions)
    for name, text in files.items():
        assert (definitions / name).read_text() == text
    assert (definitions / "scripts/look").stat().st_mode & 0o777 == 0o700
    assert not (definitions / "tools/__pycache__").exists()


async def test_restore_sets_the_old_state_aside_and_overwrites_no_definition(
    home, config, tmp_path
):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    home.routine("morning", "# mine\n")
    output = "\n".join(restore(tmp_path / "b", home.state, definitions=home.folder))
    [aside] = home.state.glob("agentd.db.before-restore-*")
    with closing(sqlite3.connect(aside)) as old:
        assert old.execute("SELECT count(*) FROM run").fetchone() == (2,)
    assert str(aside) in output and "left " in output
    assert (home.folder / "routines/morning.toml").read_text() == "# mine\n"


async def test_restore_is_refused_while_a_daemon_runs(home, config, tmp_path):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    with lock_state(home.state), pytest.raises(StateBusy):
        restore(tmp_path / "b", home.state)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense" * 1000, "a stranger's database", "a torn backup"]
)
async def test_restoring_an_invalid_backup_changes_nothing(home, config, tmp_path, content):
    await fill_state(home.state, "morning")
    file = tmp_path / "b"
    if content == "a torn backup":
        backup(home.state, file, config, progress=QUIET)
        with file.open("r+b") as copy_file:
            copy_file.seek(file.stat().st_size // 2)
            copy_file.write(os.urandom(file.stat().st_size // 3))
    elif content == "a stranger's database":
        with closing(sqlite3.connect(file)) as stranger:
            stranger.execute("CREATE TABLE migration (version)")
            stranger.commit()
    else:
        file.write_bytes(content)
    before = (home.state / "agentd.db").read_bytes()
    with pytest.raises(Refused):
        restore(file, home.state)
    assert (home.state / "agentd.db").read_bytes() == before
    assert [
        path.name for path in home.state.iterdir() if "part" in path.name or "before" in path.name
    ] == []


async def test_backup_without_a_database_is_refused(home, config, tmp_path):
    with pytest.raises(ConfigError, match="nothing to back up"):
        backup(tmp_path / "nowhere", tmp_path / "b", config, progress=QUIET)


async def test_an_exported_routine_is_imported_once_with_its_history(home, config, tmp_path):
    await fill_state(home.state, "morning", "evening")
    assert export(home.state, tmp_path / "x", config, ["morning"], progress=QUIET) == 1
    (tmp_path / "second").mkdir()
    second = InProcessHome(tmp_path / "second")
    second.state.mkdir()
    other_config = load_config(second.folder / "config.toml")
    lines = import_file(tmp_path / "x", second.state, other_config, progress=QUIET)
    assert any("took in 1 definition, 1 run" in line for line in lines), lines
    assert (second.folder / "routines/morning.toml").read_text() == MORNING
    assert "its history is here already" in import_file(
        tmp_path / "x", second.state, other_config, progress=QUIET
    )
    db, journal = await open_journal(second.state)
    [run] = await journal.runs.find()
    assert (run.routine, run.report) == ("morning", "morning 中")
    [delivery] = await journal.outbox.find()
    assert delivery.status is DeliveryStatus.FAILED and "held by an import" in delivery.error
    assert (await journal.routines.set_baselines({"morning": "key"}))["morning"].paused
    await db.close()


async def test_an_export_of_a_routine_contains_only_its_policies(config, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    db = await Database.open(first / "agentd.db")
    ledger = Ledger(db, FakeClock(START))
    await ledger.journal.routines.set_baselines({"morning": "key"})
    run = await ledger.start_run("morning")
    for name in ("mine", "another"):
        ledger.journal.audit.keep_policy(name, f"version = 1  # {name}")
    body = {"tool": "shell", "arguments": {}, "policy": "mine", "verdict": {"effect": "allow"}}
    await ledger.journal.runs.append(
        run, Step(kind=StepKind.CALL, iteration=1, body=body, call_id="c")
    )
    await ledger.journal.runs.append(
        run, Step(kind=StepKind.RESULT, iteration=1, body={"text": "harmed"}, call_id="c")
    )
    await ledger.journal.runs.end(run.to(Status.SUCCEEDED, report="done"))
    await db.close()
    with closing(sqlite3.connect(first / "agentd.db")) as hand:
        hand.execute("UPDATE step SET body = 'x no JSON' WHERE kind = 'result'")
        hand.commit()
    assert export(first, tmp_path / "x", config, ["morning"], progress=QUIET) == 1
    import_file(tmp_path / "x", second, config, progress=QUIET)
    db, journal = await open_journal(second)
    assert (await journal.audit.get_policy("mine"), await journal.audit.get_policy("another")) == (
        "version = 1  # mine",
        None,
    )
    await db.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        '{"agentd": "export", "schema": 999, "routines": []}\n',
        '{"agentd": "export", "schema": 1, "routines": []}\n{"table": "meta", "row": {}}\n',
        '{"agentd": "export", "schema": 1, "routines": []}\n{"routine": "../x", "toml": ""}\n',
        (
            '{"agentd": "export", "schema": 1, "routines": ["a"]}\n{"table": "run", "row": {"id": '
            '"a"}}\n{"cut'
        ),
        '{"agentd": "export", "schema": 1, "routines": []}\n[1]\n',
    ],
)
async def test_importing_an_invalid_export_changes_nothing(home, config, tmp_path, text):
    (tmp_path / "x").write_text(text)
    home.state.mkdir()
    with pytest.raises(Refused):
        import_file(tmp_path / "x", home.state, config, progress=QUIET)
    db, journal = await open_journal(home.state)
    assert await journal.runs.find() == [] and not (home.folder.parent / "x.toml").exists()
    await db.close()


async def test_a_backup_of_a_running_daemon_is_restored_and_resumed(home, tmp_path):
    home.routine("morning", MORNING)
    home.routine("noon", MORNING)
    await home.start()
    assert (await home.agentctl("run", "morning")).code == 0
    result = await home.agentctl("backup", tmp_path / "b")
    assert (result.code, result.err) == (0, "") and "puts it back" in result.out
    busy = await home.agentctl("restore", tmp_path / "b")
    assert busy.code == 75 and str(home.pid) in busy.err
    await home.stop()
    back = await home.agentd("restore", tmp_path / "b")
    assert back.code == 0 and "agentctl resume --all" in back.out
    await home.start()
    assert (await home.agentctl("status", "--json")).json["routines"]["paused"] == 2
    listing = (await home.agentctl("list")).out
    assert listing.count("it came from a backup") == 1, "one sentence for all"
    assert "morning, noon are paused: " in listing
    assert (await home.agentctl("resume", "--all")).out == "morning, noon go on\n"
    assert (await home.agentctl("status", "--json")).json["routines"]["on"] == 2
    assert len((await home.agentctl("runs", "--json")).json["items"]) == 1
    await home.stop()


async def test_a_backup_of_an_unreadable_source_names_the_source(home, config, tmp_path):
    await fill_state(home.state, "morning")
    log = home.state / "agentd.db-wal"
    log.mkdir()  # SQLite cannot make its file, as in a folder that is read-only
    with pytest.raises(Refused) as error:
        backup(home.state, tmp_path / "b", config, progress=QUIET)
    assert str(error.value) == (
        f"{home.state}/agentd.db cannot be read: unable to open database file; SQLite writes files "
        f"beside it to read it: run this as the user of agentd, with a {home.state} that can be "
        "written"
    )
    log.rmdir()
    (config.routines_path / "odd.toml").mkdir()
    with pytest.raises(Refused, match=r"routines/odd\.toml cannot be read: Is a directory"):
        backup(home.state, tmp_path / "b", config, progress=QUIET)
    assert not [path for path in tmp_path.iterdir() if path.name.strip(".").startswith("b")]


async def test_a_backup_to_a_folder_that_is_not_there_names_the_backup(home, config, tmp_path):
    await fill_state(home.state, "morning")
    file = tmp_path / "nowhere/b"
    with pytest.raises(Refused, match=f"{file} cannot be written: No such file or directory"):
        backup(home.state, file, config, progress=QUIET)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "CREATE TRIGGER go AFTER INSERT ON meta BEGIN DELETE FROM meta; END",
            "holds a trigger of SQLite",
        ),
        (
            "INSERT INTO backup_file VALUES ('state', 'workspace/routines.d/x.toml', x'00')",
            "holds workspace/routines.d/x.toml of a state folder",
        ),
        (
            "INSERT INTO backup_file VALUES ('state', 'memory/approvals.toml', x'00')",
            "holds memory/approvals.toml of a state folder",
        ),
    ],
)
async def test_a_forged_backup_neither_ends_the_pause_nor_writes_elsewhere(
    home, config, tmp_path, statement, problem
):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    with closing(sqlite3.connect(tmp_path / "b", isolation_level=None)) as copy:
        copy.execute(statement)
    state = tmp_path / "new"
    state.mkdir()
    with pytest.raises(Refused, match=problem):
        restore(tmp_path / "b", state)
    assert [path.name for path in state.iterdir()] == ["agentd.lock"]


async def test_a_table_that_cannot_be_paused_is_not_restored(home, config, tmp_path):
    await fill_state(home.state, "morning", "evening")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    with closing(sqlite3.connect(tmp_path / "b", isolation_level=None)) as copy:
        copy.executescript(
            "CREATE TABLE other AS SELECT name, paused FROM routine; DROP TABLE routine;"
            "CREATE TABLE routine (name TEXT, paused INTEGER, paused_until INTEGER,"
            " paused_why TEXT UNIQUE ON CONFLICT IGNORE);"
            "INSERT INTO routine SELECT name, paused, NULL, NULL FROM other; DROP TABLE other;"
        )
    before = (home.state / "agentd.db").read_bytes()
    with pytest.raises(Refused, match="cannot be paused"):
        restore(tmp_path / "b", home.state)
    assert (home.state / "agentd.db").read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("INSERT INTO migration VALUES (999, 'x', 0)", "by a newer version of agentd .schema 999"),
        ("DELETE FROM migration", "does not say of which version"),
        ("DELETE FROM backup", "does not say when"),
        ("UPDATE backup SET value = CAST(x'ff' AS TEXT)", "is no backup of agentd"),
        ("DROP TABLE backup_file", "is no backup of agentd"),
        ("DROP TABLE outbox", "is no backup of agentd"),
        ("PRAGMA application_id = 7", "is no backup of agentd"),
    ],
)
async def test_a_backup_that_this_version_cannot_use_changes_nothing(
    home, config, tmp_path, statement, problem
):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    with closing(sqlite3.connect(tmp_path / "b", isolation_level=None)) as copy:
        copy.execute(statement)
    before = (home.state / "agentd.db").read_bytes()
    with pytest.raises(Refused, match=problem):
        restore(tmp_path / "b", home.state)
    assert (home.state / "agentd.db").read_bytes() == before
    assert not list(home.state.glob("*before*"))


async def test_a_backup_that_is_cut_anywhere_changes_nothing(home, config, tmp_path):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    whole, before = (tmp_path / "b").read_bytes(), (home.state / "agentd.db").read_bytes()
    for size in (1, 99, 4_000, *range(4_096, len(whole), len(whole) // 20), len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(Refused):
            restore(tmp_path / "cut", home.state)
    assert (home.state / "agentd.db").read_bytes() == before
    assert not list(home.state.glob("*before*"))


@pytest.mark.parametrize(
    "version", [file.name[:3] for file in sorted(MIGRATIONS.glob("[0-9]*.sql"))]
)
async def test_a_backup_of_each_older_version_is_restored(tmp_path, version):
    older, state = tmp_path / "migrations", tmp_path / "state"
    older.mkdir()
    state.mkdir()
    for file in MIGRATIONS.glob("[0-9]*.sql"):
        if file.name[:3] <= version:
            shutil.copy(file, older)
    db = await Database.open(state / "agentd.db", migrations=older)
    await db.close()
    backup(state, tmp_path / "b", None, progress=QUIET)
    restore(tmp_path / "b", tmp_path / "new")
    db, journal = await open_journal(tmp_path / "new")
    assert (await journal.routines.set_baselines({"morning": "key"}))["morning"].paused
    await db.close()


async def test_two_restores_in_one_second_keep_both_databases(home, config, tmp_path):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    with closing(sqlite3.connect(home.state / "agentd.db")) as first:
        first.execute("INSERT INTO meta VALUES ('mine', 'kept')")
        first.commit()
    for _ in range(3):
        restore(tmp_path / "b", home.state, now=START)
    aside = sorted(home.state.glob("agentd.db.before-restore-*"))
    assert len(aside) == 3
    with closing(sqlite3.connect(aside[0])) as first:
        assert first.execute("SELECT value FROM meta WHERE key = 'mine'").fetchone() == ("kept",)


async def test_what_is_only_in_the_log_of_the_database_is_set_aside_with_it(home, config, tmp_path):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    with (
        closing(sqlite3.connect(home.state / "agentd.db", timeout=0)) as reader,
        closing(sqlite3.connect(home.state / "agentd.db")) as writer,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchall()
        writer.execute("INSERT INTO meta VALUES ('mine', 'kept')")
        writer.commit()
        restore(tmp_path / "b", home.state)
        (aside,) = home.state.glob("agentd.db.before-restore-*[0-9]")
        (tmp_path / "aside").write_bytes(aside.read_bytes())
        (tmp_path / "aside-wal").write_bytes(aside.with_name(f"{aside.name}-wal").read_bytes())
        with closing(sqlite3.connect(tmp_path / "aside")) as old:
            assert old.execute("SELECT value FROM meta WHERE key = 'mine'").fetchone() == ("kept",)


async def test_a_restore_without_room_says_so_and_changes_nothing(home, config, tmp_path):
    await fill_state(home.state, "morning")
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    before = (home.state / "agentd.db").read_bytes()
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from daemon.app.commands.backup import restore; from daemon.errors import Refused\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try: restore(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except Refused as error: print(error)"
    )
    arguments = [sys.executable, "-c", code, tmp_path / "b", home.state]
    result = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert f"or {home.state} not written: disk I/O error" in result.stdout
    assert (home.state / "agentd.db").read_bytes() == before
    assert not list(home.state.glob("*part*"))


@pytest.mark.parametrize("place", ["definitions", "state"])
async def test_no_file_is_written_through_a_link_that_leads_out(home, config, tmp_path, place):
    await fill_state(home.state, "morning")
    (home.state / "routines.d").mkdir()
    (home.state / "routines.d/made.toml").write_text(MORNING)
    backup(home.state, tmp_path / "b", config, progress=QUIET)
    (home.state / "routines.d/made.toml").unlink()
    (home.state / "routines.d").rmdir()
    outside, definitions = tmp_path / "outside", tmp_path / "definitions"
    outside.mkdir()
    definitions.mkdir()
    link = definitions / "routines" if place == "definitions" else home.state / "routines.d"
    link.symlink_to(outside)
    before = (home.state / "agentd.db").read_bytes()
    with pytest.raises(Refused, match=r"leads out of .* by a link"):
        restore(tmp_path / "b", home.state, definitions=definitions)
    assert list(outside.iterdir()) == []
    assert (home.state / "agentd.db").read_bytes() == before
    assert not (definitions / "config.toml").exists()
    link.unlink()
    (link.parent / "inside").mkdir()
    link.symlink_to("inside")
    (tmp_path / "other name").symlink_to(definitions)
    restore(tmp_path / "b", home.state, definitions=tmp_path / "other name")
    assert (definitions / "routines/morning.toml").read_text() == MORNING
    assert (home.state / "routines.d/made.toml").read_text() == MORNING


async def test_a_backup_is_not_put_beside_a_journal_in_postgres(home, tmp_path):
    home.routine("morning", MORNING)
    await fill_state(home.state, "morning")
    result = await home.agentd("backup", tmp_path / "b")
    assert result.code == 0
    config = home.folder / "config.toml"
    config.write_text(f'{config.read_text()}\n[store]\nurl = "postgresql://localhost/agentd"\n')
    refused = await home.agentctl("restore", tmp_path / "b")
    assert refused.code == 5
    assert "keeps the journal in PostgreSQL" in refused.err


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"status": "succeeded"', '"status": "queued"', "has not ended"),
        ('"routines": ["morning"]', '"routines": []', "does not name the routine 'morning'"),
    ],
)
async def test_a_forged_export_starts_nothing(home, config, tmp_path, old, new, problem):
    await fill_state(home.state, "morning")
    export(home.state, tmp_path / "x", config, ["morning"], progress=QUIET)
    text = (tmp_path / "x").read_text()
    assert old in text
    (tmp_path / "x").write_text(text.replace(old, new))
    (home.folder / "routines" / "morning.toml").unlink()
    second = tmp_path / "second"
    await fill_state(second, "evening")
    with pytest.raises(Refused, match=problem):
        import_file(tmp_path / "x", second, config, progress=QUIET)
    db, journal = await open_journal(second)
    assert {run.routine for run in await journal.runs.find()} == {"evening"}
    await db.close()
