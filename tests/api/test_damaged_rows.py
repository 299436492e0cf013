"""A damaged row fails no list: it is left out, shown as it is, or named, never a fault of ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from daemon.testing import TestApp

LISTS = (
    *("status", "routines", "next", "slots", "days", "runs", "deliveries", "incidents", "usage"),
    *("usage/days", "approvals", "remembered", "quarantine", "audit", "audit/proof"),
    *("memory/items", "memory/stats", "memory/check", "memory/export"),
)
TABLES = ("run", "slot", "outbox", "audit", "memory_item", "memory_segment")
ROUTINE = """
[run]
prompt = "Say how busy it is."
memory = "recall+store"
[[gather]]
name = "load"
tool = "sysinfo"
args = { parts = ["load"] }
[[deliver]]
to = "log"
"""


async def test_no_list_answers_500_whatever_column_of_a_row_is_damaged(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write("policy.toml", 'version = 1\n[[rule]]\ntool = "sysinfo"\neffect = "allow"\n')
    app.write_routine("daily", ROUTINE)
    async with app:
        for _ in range(2):
            app.model.enqueue("It is not busy at all, as so often on a Sunday.")
            await app.run("daily")
        await app.deliver()
        await app.daemon.store.memory.store("birthday", "Ada's is on 10 December.")
        faults = []
        path = app.daemon.store.database.path
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            for table in TABLES:
                ((row,),) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchall()
                assert row is not None, f"{table} is empty"
                columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
                for _, name, kind, _, _, in_key in columns:
                    if in_key and kind == "INTEGER":  # the number of the row itself
                        continue
                    get_value = f'SELECT "{name}" FROM {table} WHERE rowid = ?'
                    set_value = f'UPDATE {table} SET "{name}" = ? WHERE rowid = ?'
                    ((value,),) = connection.execute(get_value, (row,)).fetchall()
                    # what a changed bit of the head of a record leaves, or a changed byte
                    for damage in (b"\xff\xfe", *(() if kind == "TEXT" else ("x",))):
                        connection.execute(set_value, (damage, row))
                        for path_of_list in LISTS:
                            response = await app.request("GET", f"/v1/{path_of_list}")
                            if response.status not in (200, 507):
                                faults.append((path_of_list, table, name, damage, response.status))
                    connection.execute(set_value, (value, row))
        assert not faults
