"""A backup or an export that was changed, cut off or made up is restored or taken in, or refused by
its name; and what is there already stays.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from daemon.app.commands.backup import backup, restore
from daemon.app.commands.transfer import export, import_file
from daemon.definitions.config.loading import load_config
from daemon.errors import Refused
from tests.app.commands.test_backup import fill_state
from tests.fuzz.hostile import HOSTILE_VALUES, LONG, broken_documents, to_json
from tests.properties import scaled_settings

FUZZ = settings(
    scaled_settings(200, fewest=30, suppress=[HealthCheck.data_too_large]),
    phases=(Phase.explicit, Phase.generate),
)
# What a column of a database may hold though its type says another thing.
VALUES = [
    *(value for value in HOSTILE_VALUES if isinstance(value, str | int | float | None)),
    b"",
    b"\xff\0",
    "config.toml\0",
    "routines/" + "x" * 300,
    "a/" * 3_000 + "b",
    "agentd.db",
    LONG,
]
storable = st.sampled_from([value for value in VALUES if value != "\ud800"])
QUIET = lambda fraction: None  # noqa: E731


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a backup and an export of the same state, and an empty state."""
    folder = tmp_path_factory.mktemp("archives")
    (folder / "routines").mkdir()
    (folder / "routines" / "morning.toml").write_text('[run]\nprompt = "Say good morning."\n')
    (folder / "config.toml").write_text("")
    (folder / "config.toml").chmod(0o600)
    config = load_config(folder / "config.toml", env={})
    asyncio.run(fill_state(folder / "full", "morning"))
    asyncio.run(fill_state(folder / "other", "evening"))
    backup(folder / "full", folder / "backup", config, progress=QUIET)
    export(folder / "full", folder / "export", config, [], progress=QUIET)
    return folder


@FUZZ
@given(
    column=st.sampled_from(["place", "path", "body"]),
    value=storable,
    change=st.sampled_from(["file", "taken", "no taken", "cut", "bytes", "table"]),
    position=st.floats(0, 1),
    data=st.binary(min_size=1, max_size=40),
)
def test_a_changed_backup_is_restored_or_refused(
    archives: Path, column: str, value: Any, change: str, position: float, data: bytes
) -> None:
    with TemporaryDirectory() as folder:
        file, state = Path(folder, "backup"), Path(folder, "state")
        shutil.copy(archives / "backup", file)
        state.mkdir()
        (state / "agentd.db").write_bytes(b"earlier")
        if change in ("cut", "bytes"):
            content = bytearray(file.read_bytes())
            at = int(position * len(content))
            content[at : len(content) if change == "cut" else at + len(data)] = data
            file.write_bytes(content)
        else:
            with closing(sqlite3.connect(file, isolation_level=None)) as database:
                statement = {
                    "file": f"UPDATE OR IGNORE backup_file SET {column} = ?",
                    "taken": "UPDATE OR IGNORE backup SET value = ?",
                    "no taken": "DELETE FROM backup WHERE value <> ? OR 1",
                    "table": "INSERT OR IGNORE INTO meta (key, value) VALUES ('hold', ?)",
                }[change]
                try:
                    database.execute(statement, (value,))
                except sqlite3.Error:
                    return  # the table does not take it
        refusal = ""
        try:
            restore(file, state, definitions=Path(folder, "definitions"))
        except Refused as error:
            refusal = str(error)
        assert not refusal or folder in refusal
        refusal.encode()
        outside = {path.name for path in Path(folder).iterdir()}
        assert outside <= {"backup", "state", "definitions"}
        old_files = [path for path in state.glob("agentd.db*") if path.read_bytes() == b"earlier"]
        assert len(old_files) == 1, "the earlier database is neither lost nor overwritten"


@FUZZ
@given(data=st.data())
def test_a_changed_export_is_taken_in_whole_or_refused_whole(
    archives: Path, data: st.DataObject
) -> None:
    lines = (archives / "export").read_text("utf-8").splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    line = data.draw(
        broken_documents([json.loads(lines[number])], ["base64", "table", "row"]).map(to_json)
    )
    content = "\n".join(lines).encode().split(b"\n")
    content[number] = line.replace(b"\n", b" ")
    with TemporaryDirectory() as folder:
        file, state = Path(folder, "export"), Path(folder, "state")
        shutil.copytree(archives / "other", state)
        shutil.copytree(archives / "routines", Path(folder, "routines"))
        file.write_bytes(b"\n".join(content))
        config_file = Path(folder, "config.toml")
        config_file.write_text("")
        config_file.chmod(0o600)
        refusal = ""
        try:
            import_file(file, state, load_config(config_file, env={}), progress=QUIET)
        except Refused as error:
            refusal = str(error)
        refusal.encode()
        assert len(refusal) < 2_000
        if refusal:
            assert str(file) in refusal
            with closing(sqlite3.connect(state / "agentd.db")) as database:
                names = {name for (name,) in database.execute("SELECT routine FROM run")}
            assert names == {"evening"}
