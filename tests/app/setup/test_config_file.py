"""A table is added to config.toml, and everything else in it stays as it was."""

from __future__ import annotations

import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.setup.config_file import (
    check_secret,
    check_table,
    lock_config,
    with_table,
    write_config,
    write_secret,
)
from daemon.definitions.config.loading import load_config
from daemon.errors import ConfigError, Refused

SHIPPED = Path(__file__).parents[3] / "config.toml"
TABLE = {"kind": "claude", "model": 'a "model"', "api_key_file": "claude.key"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but a comment",
        'provider = "offline"',
        'provider = \'offline\'   # for now\ntimezone = "UTC"\n[agent]\nname = "x"\n',
        'timezone = "UTC"\n\n[providers.local]\nkind = "scripted"\nreplies = ["x"]\n',
        '[agent]\nname = "x"\nprovider-like = 1',
    ],
)
def test_a_new_table_keeps_the_other_lines(text: str) -> None:
    new = with_table(text, "providers", "claude", TABLE, default=True)
    old = tomllib.loads(text)
    assert tomllib.loads(new) == {
        **old,
        "provider": "claude",
        "providers": {**old.get("providers", {}), "claude": TABLE},
    }
    old_lines = [
        line for line in text.splitlines() if line.strip() and not line.startswith("provider =")
    ]
    assert [line for line in new.splitlines() if line in old_lines] == old_lines


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ('[providers.claude]\nkind = "claude"\nmodel = "m"', "has a"),
        ('"provider" = "offline"', "lines"),
        ('workspace = """\n[x]\n"""\nprovider = "offline"', "lines"),
        ('providers = { local = { kind = "scripted" } }', "lines"),
    ],
)
def test_a_config_of_another_form_is_not_edited(text: str, saying: str) -> None:
    with pytest.raises(ValueError, match=saying):
        with_table(text, "providers", "claude", TABLE, default=True)


def test_a_replaced_table_goes_with_its_own_tables_and_no_comment_of_others() -> None:
    text = (
        "# top\n\n[providers.claude]   # mine\nkind = 'claude'\nmodel = 'old'\n\n"
        "[providers.claude.price]\ninput = 1\noutput = 2\n\n# about b\n[providers.b]\n"
        "kind = 'scripted'\nreplies = ['x']\n"
    )
    with pytest.raises(ValueError, match="has a"):
        with_table(text, "providers", "claude", TABLE)
    new = with_table(text, "providers", "claude", TABLE, replace=True)
    assert new.startswith("# top\n\n")
    assert "# about b\n[providers.b]" in new
    assert "old" not in new and "price" not in new
    assert tomllib.loads(new)["providers"]["claude"] == TABLE
    assert with_table(new, "providers", "claude", TABLE, replace=True) == new


NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True)
VALUES = st.one_of(st.text(max_size=20), st.integers(0, 99), st.lists(st.text(max_size=5)))
TABLES = st.dictionaries(NAMES, VALUES, max_size=3)


@given(st.dictionaries(NAMES, TABLES, max_size=4), NAMES, TABLES, st.booleans())
def test_any_table_can_be_added_or_replaced_or_is_refused(
    tables: dict[str, dict[str, Any]], name: str, table: dict[str, Any], default: bool
) -> None:
    text = "# first\n" + tomli_w.dumps({"provider": "offline", "providers": tables})
    try:
        new = with_table(text, "providers", name, table, default=default, replace=True)
    except ValueError:  # a text that looks like a table's head
        return
    assert tomllib.loads(new) == {
        "provider": name if default else "offline",
        "providers": {**tables, name: table},
    }
    assert new.startswith("# first\n")


def test_a_written_config_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "config.toml"
    real.write_text(SHIPPED.read_text("utf-8"))
    real.chmod(0o640)
    link.symlink_to(real)
    table = {**TABLE, "model": "m"}
    write_config(link, with_table(link.read_text(), "providers", "claude", table, default=True))
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert load_config(link).provider == "claude"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "real.toml"]


def test_a_config_that_the_daemon_would_refuse_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    with pytest.raises(ConfigError, match="kind"):
        write_config(file, with_table("", "providers", "x", {"kind": "nothing"}))
    assert file.read_text() == ""


def test_a_secret_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "claude.key"
    file.write_text("other")
    file.chmod(0o644)
    with pytest.raises(Refused, match="holds another secret; --replace"):
        check_secret(file, "key", replace=False)
    check_secret(file, "other", replace=False)
    check_secret(file, "key", replace=True)
    write_secret(file, "key")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("key\n", 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["claude.key"]


def test_a_table_of_the_same_name_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[targets.mail]\nkind = "log"\n')
    with pytest.raises(Refused, match=r"has a \[targets\.mail\] already; --replace"):
        check_table(file, "targets", "mail", replace=False, has_file=True)
    check_table(file, "targets", "mail", replace=True, has_file=True)
    check_table(file, "targets", "other", replace=False, has_file=True)
    check_table(tmp_path / "none", "targets", "mail", replace=False, has_file=False)


def test_no_change_is_lost_of_several_at_once(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    names = [f"target{number}" for number in range(8)]
    barrier = threading.Barrier(len(names), timeout=60)

    def add(name: str) -> None:
        barrier.wait()
        with lock_config(file):
            text = with_table(file.read_text(), "targets", name, {"kind": "file", "path": name})
            write_config(file, text)

    with ThreadPoolExecutor(len(names)) as executor:
        list(executor.map(add, names))
    assert sorted(tomllib.loads(file.read_text())["targets"]) == names
