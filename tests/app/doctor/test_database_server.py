"""What doctor says of the server that the journal is on."""

from pathlib import Path

import pytest

from daemon.app.doctor.database_server import check_server, find_server
from daemon.definitions.config.loading import load_config
from daemon.store.offline import DatabaseServer
from daemon.store.opening import open_database


def config(folder: Path, url: str):
    file = folder / "config.toml"
    file.write_text(f'[store]\nurl = "{url}"\n')
    file.chmod(0o600)
    return load_config(file)


def words(server):
    return [(check.name, check.state, check.found) for check in check_server(server)]


async def test_doctor_names_a_usable_database_server_and_its_schema(postgres, tmp_path):
    name = postgres.create()
    other_config = config(tmp_path, postgres.url(name))
    ((_, state, text),) = words(find_server(other_config, {}))
    assert state == "ok" and "no tables yet" in text
    await (await open_database(tmp_path / "x", postgres.url(name))).close()
    ((_, state, text),) = words(find_server(other_config, {}))
    assert state == "ok" and "PostgreSQL" in text and ", schema " in text
    postgres.drop(name)


def test_an_unreachable_database_server_is_a_fault(postgres, tmp_path, unused_address):
    other_config = config(tmp_path, f"postgresql://me@{unused_address}/agentd")
    ((_, state, text),) = words(find_server(other_config, {}))
    assert state == "fail" and text.startswith(f"postgresql://{unused_address}/agentd")


def test_a_journal_in_a_file_has_no_database_server(tmp_path):
    (tmp_path / "config.toml").write_text("")
    assert find_server(load_config(tmp_path / "config.toml"), {}) is None
    assert words(None) == []


@pytest.mark.parametrize(
    ("more", "expected_text"),
    [
        ({"schema": 99}, "of a newer agentd (schema 99, this one knows 10)"),
        ({"reads_only": True}, "which only reads"),
        ({"ahead": -42.0}, "42 s behind ours"),
    ],
)
def test_doctor_names_each_fault_of_the_database_server(more, expected_text):
    good = {
        "place": "p",
        "version": "15.1",
        "schema": 10,
        "newest": 10,
        "ahead": 0.0,
        "reads_only": False,
    }
    assert expected_text in " ".join(
        text for _, _, text in words(DatabaseServer(**{**good, **more}))
    )
