"""What doctor says of the server that the journal is on."""

from pathlib import Path

import pytest

from daemon.app.doctor.server import look, rows
from daemon.definitions.config.loading import load_config
from daemon.store.offline import DatabaseServer
from daemon.store.opening import open_database


def config(folder: Path, url: str):
    file = folder / "config.toml"
    file.write_text(f'[store]\nurl = "{url}"\n')
    file.chmod(0o600)
    return load_config(file)


def words(found):
    return [(name, state, text) for name, state, text, _ in rows(found)]


async def test_a_server_that_can_be_used_is_named_with_its_schema(postgres, tmp_path):
    name = postgres.create()
    there = config(tmp_path, postgres.url(name))
    ((_, state, text),) = words(look(there, {}))
    assert state == "ok" and "no tables yet" in text
    await (await open_database(tmp_path / "x", postgres.url(name))).close()
    ((_, state, text),) = words(look(there, {}))
    assert state == "ok" and "PostgreSQL" in text and ", schema " in text
    postgres.drop(name)


def test_a_server_that_does_not_answer_is_a_fault(postgres, tmp_path):
    ((_, state, text),) = words(look(config(tmp_path, "postgresql://me@127.0.0.1:1/agentd"), {}))
    assert state == "fail" and text.startswith("postgresql://127.0.0.1:1/agentd")


def test_a_journal_in_a_file_has_no_server(tmp_path):
    (tmp_path / "config.toml").write_text("")
    assert look(load_config(tmp_path / "config.toml"), {}) is None
    assert words(None) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"schema": 99}, "of a newer agentd (schema 99, this one knows 10)"),
        ({"reads_only": True}, "which only reads"),
        ({"ahead": -42.0}, "42 s behind ours"),
    ],
)
def test_what_is_wrong_with_it_is_said(more, said):
    good = {
        "place": "p",
        "version": "15.1",
        "schema": 10,
        "newest": 10,
        "ahead": 0.0,
        "reads_only": False,
    }
    assert said in " ".join(text for _, _, text in words(DatabaseServer(**{**good, **more})))
