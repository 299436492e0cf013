"""A reload names what takes a restart, and the page on the config says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daemon.definitions.config.loading import load_config
from daemon.definitions.config.restart import (
    KEYS,
    KEYS_OF_NAMED_TABLES,
    TABLES,
    find_restart_keys,
)
from daemon.definitions.config.tables import McpConfig

PAGE = Path(__file__).parents[2] / "docs/configuration.md"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ('[listen]\naddress = "127.0.0.1:9464"\n', ["listen"]),
        ('[control]\ngroup = "root"\nreaders = ["root"]\n', ["control.group"]),
        ('[hooks]\ngroup = "root"\n', ["hooks.group"]),
        ('[memory]\nmirror = true\nkeep_runs = "1d"\n', ["memory.mirror"]),
        ('[executor]\nlease = "90s"\n', ["executor"]),
        ('[store]\nwait = "1s"\n', ["store"]),
        ('[search]\nkind = "wikipedia"\n', ["search"]),
        ('[mcp.time]\ncommand = ["mcp-time"]\n', ["mcp.time"]),
        ('[log]\nlevel = "debug"\n[keep]\nruns = "90d"\n', []),
    ],
)
def test_what_takes_a_restart_is_found(tmp_path: Path, edit: str, expected: list[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    in_force = load_config(file)
    file.write_text(edit)
    assert list(find_restart_keys(in_force, load_config(file))) == expected


def test_the_machines_of_a_server_count_at_once_and_what_it_is_takes_a_restart(
    tmp_path: Path,
) -> None:
    file, server = tmp_path / "config.toml", '[mcp.time]\ncommand = ["mcp-time"]\n'
    file.write_text(server)
    in_force = load_config(file)
    file.write_text(f'{server}machines = ["box"]\n')
    assert list(find_restart_keys(in_force, load_config(file))) == []
    file.write_text(f"{server}trusted = true\n")
    assert list(find_restart_keys(in_force, load_config(file))) == ["mcp.time"]
    assert {*McpConfig.model_fields} == {*KEYS_OF_NAMED_TABLES["mcp"], "machines"}


def test_the_page_on_the_config_marks_the_same_tables_and_keys() -> None:
    table, marked = "", set()
    for line in PAGE.read_text().split("\n"):
        if heading := re.fullmatch(r"#+ \[(\S+)\]", line):
            table = heading[1]
        elif (
            "akes a restart" in line
            and table
            and table.partition(".")[0] not in KEYS_OF_NAMED_TABLES
        ):
            key = re.match(r"\| `(\w+)` ", line)
            marked.add(f"{table}.{key[1]}" if key else table)
    named = {*TABLES, *(f"{table}.{key}" for table, keys in KEYS.items() for key in keys)}
    # "Takes a restart, like the keys below"
    below = {f"memory.{key}" for key in KEYS["memory"][2:]}
    assert marked == named - below


def test_page_and_config_say_that_another_workspace_takes_a_restart() -> None:
    """A reload is refused because of it, and all else in the file with it."""
    shipped_config = PAGE.parents[1] / "config.toml"
    (row,) = re.findall(r"^\| `workspace` .*$", PAGE.read_text(), re.MULTILINE)
    (line,) = re.findall(r"^# workspace = .*$", shipped_config.read_text(), re.MULTILINE)
    assert "Takes a restart" in row
    assert "Takes a restart" in line
