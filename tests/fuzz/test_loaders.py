"""Whatever stands in a file, an answer or a request: its loader returns a value, or raises the one
error by which people learn where the fault is. Nothing else, and within bounded memory.

The same properties are a soak: `pytest -m soak --soak-seconds 600 tests/fuzz`.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from daemon.api.bodies import parse_json
from daemon.api.problems import InvalidRequest
from daemon.definitions.config.config import Config
from daemon.definitions.config.loading import load_config
from daemon.definitions.crontab_file import parse_crontab
from daemon.definitions.reading import read_toml
from daemon.definitions.routines.folder import load_folder
from daemon.definitions.routines.routine import RoutineDefinition
from daemon.definitions.skills import load_skills
from daemon.definitions.toml_text import parse_toml_text
from daemon.errors import ConfigError, Refused
from daemon.memory.transfer import FORMAT, parse_lines
from daemon.policy.policy import Policy
from daemon.policy.policy_file import TOOLS, PolicyFile
from daemon.scheduler.routine_times import schedule_of
from daemon.store.rows import from_microseconds
from daemon.testing import TestApp
from tests.fuzz.hostile import (
    HOSTILE_VALUES,
    Document,
    broken_documents,
    hostile_values,
    keys_of,
    to_json,
    to_toml,
    to_yaml,
)
from tests.properties import scaled_settings

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
MAX_MEMORY = 200 << 20
"""Bytes that a loader may take for a document of at most some 2 MB."""


@dataclass(frozen=True)
class Loader:
    """What reads one kind of document."""

    load: Callable[[bytes, Path], object]
    """Load a document, in an empty folder. Raises `error` only."""
    documents: st.SearchStrategy[bytes]
    error: type[Exception] | tuple[type[Exception], ...]
    place: str
    """What each error names: a part of its text."""

    def check(self, content: bytes) -> None:
        with TemporaryDirectory() as folder, bounded_memory():
            try:
                self.load(content, Path(folder))
            except self.error as error:
                text = str(error)
                assert self.place in text, text[:500]
                text.encode()  # it is logged, shown and sent
                assert len(text) < 20_000, "an error is read by people"


@contextmanager
def bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY
    finally:
        tracemalloc.stop()


def _toml_of(*paths: str) -> list[Document]:
    return [
        tomllib.loads((ROOT / pattern).read_text("utf-8"))
        for path in paths
        for pattern in sorted(str(file.relative_to(ROOT)) for file in ROOT.glob(path))
    ]


# --- files that people write

CONFIG: Document = {
    "timezone": "UTC",
    "provider": "a",
    "providers": {
        "a": {"kind": "open_source", "model": "m", "base_url": "http://127.0.0.1:1/v1"},
        "b": {"kind": "scripted"},
    },
    "targets": {"hook": {"kind": "webhook", "url": "https://h.example"}},
    "budget": {"day": 1.5},
    "log": {"level": "info"},
    "daemon": {"max_concurrent": 3},
}

OVERLAY: Document = {"log": {"level": "debug"}, "daemon": {"max_concurrent": 2}}


def load_config_file(content: bytes, folder: Path) -> object:
    path = folder / "config.toml"
    path.write_bytes(content)
    path.chmod(0o600)
    config = load_config(path, env={})
    return json.dumps(config.model_dump(mode="json", exclude_none=True)).encode()


def load_overlay(content: bytes, folder: Path) -> object:
    path, overlay = folder / "config.toml", folder / "overlay.toml"
    path.write_bytes(to_toml(CONFIG))
    path.chmod(0o600)
    overlay.write_bytes(content)
    config = load_config(path, overlay, env={})  # a bad overlay is left out and named
    if config.overlay_error is not None:
        raise config.overlay_error
    return config


def load_variable(content: bytes, folder: Path) -> object:
    path = folder / "config.toml"
    path.write_bytes(to_toml(CONFIG))
    path.chmod(0o600)
    text = content.decode("utf-8", "surrogateescape").replace("\0", "")
    return load_config(path, env={"AGENTD_DAEMON__MAX_CONCURRENT": text[:100_000]})


def load_policy(content: bytes, folder: Path) -> object:
    path = folder / "policy.toml"
    path.write_bytes(content)
    path.chmod(0o600)
    policy = Policy.load(path, workspace=folder)
    return [
        policy.judge(tool, {"command": "ls", "path": "a", "url": "https://a.example"}, routine="x")
        for tool in TOOLS
    ]


ROUTINES = [
    *_toml_of("examples/*.toml"),
    {"trigger": {"cron": "0 7 * * *"}, "run": {"prompt": "x"}},
]


def load_routines(content: bytes, folder: Path) -> object:
    """A bad routine is listed, and never keeps the others from being loaded."""
    (folder / "bad.toml").write_bytes(content)
    (folder / "good.toml").write_bytes(to_toml(ROUTINES[-1]))
    contents = load_folder(folder)
    assert "good" in contents.routines or "good" in str(content)
    for routine in contents.routines.values():
        schedule = schedule_of(routine, zone="UTC")
        times = schedule.next(NOW), schedule.prev(NOW), schedule.due(NOW), schedule.next_start(NOW)
        assert all(moment is None or moment.tzinfo for moment in times)
        schedule.words()
        json.dumps(routine.model_dump(mode="json")).encode()
    for fault in contents.faults.values():
        raise fault
    return contents


def load_skill(content: bytes, folder: Path) -> object:
    (folder / "notes").mkdir()
    (folder / "notes" / "SKILL.md").write_bytes(b"---\n" + content + b"\n---\nDo it.\n")
    catalog = load_skills(folder)
    assert catalog.skills or catalog.faults
    for fault in catalog.faults.values():
        raise ConfigError(fault)
    return catalog.guides(catalog.skills)


def load_crontab(content: bytes, folder: Path) -> object:
    file = parse_crontab(content.decode("utf-8", "replace"))
    for fault in file.faults:
        raise Refused(f"line {fault.line}: {fault.problem}")
    return file


CRON_WORDS = ("*", "*/0", "9" * 5000, "1-99999999999", "0", "MON#9", "L", "~", "@reboot")
cron_lines = st.builds(
    lambda fields, tail: " ".join([*fields, tail]),
    st.lists(st.sampled_from(CRON_WORDS) | st.text(max_size=5), max_size=7),
    st.sampled_from(["true", "x" * 100_000, "a%b%c", "MAILTO=x", "\0", "\x1b[2J", ""]),
)

# --- what other programs send

ITEM: Document = {
    "item": "key",
    "text": "words",
    "category": "fact",
    "run": None,
    "tainted": False,
    "pinned": True,
    "created": "2026-11-27T12:00:00+00:00",
    "updated": "2026-11-27T12:00:00+00:00",
}
ARCHIVED: Document = {
    "archived": "r1",
    "routine": "x",
    "goal": "g",
    "status": "succeeded",
    "started": "2026-11-27T12:00:00+00:00",
    "ended": "2026-11-27T12:00:01+00:00",
    "texts": [
        {
            "iteration": 1,
            "segment": 1,
            "part": 0,
            "type": "response",
            "at": "2026-11-27T12:00:00+00:00",
            "who": "x",
            "digest": "-12",
            "repeats": ["r0", 1, 1, 0],
            "tainted": True,
            "text": "words",
        }
    ],
}


def load_memory(content: bytes, folder: Path) -> object:
    rows = parse_lines([content.decode("utf-8", "surrogatepass")])
    for item in rows.items:
        _fits_database(*item)
        from_microseconds(item.created), from_microseconds(item.updated)
    for fields, parts, places in rows.runs:
        for place in places or ():
            _fits_database(*(place or ()))
        _fits_database(*fields.values())
        from_microseconds(fields["started"]), from_microseconds(fields["ended"])
        for part in parts:
            _fits_database(*part)
            from_microseconds(part.at)
    return rows


def _fits_database(*values: Any) -> None:
    for value in values:
        if isinstance(value, int):
            assert -(2**63) <= value < 2**63
        if isinstance(value, str):
            value.encode()


def load_webhook(content: bytes, folder: Path) -> object:
    value = parse_json(content[:1_000_000])
    return json.dumps(value)


LOADERS = {
    "config": Loader(
        load_config_file,
        broken_documents([CONFIG, *_toml_of("config.toml")], keys_of(Config)).map(to_toml),
        ConfigError,
        "config.toml",
    ),
    "overlay": Loader(
        load_overlay,
        broken_documents([OVERLAY], keys_of(Config)).map(to_toml),
        ConfigError,
        "overlay.toml",
    ),
    "variable": Loader(
        load_variable,
        hostile_values.map(to_toml) | st.binary(max_size=50),
        ConfigError,
        "AGENTD_DAEMON__MAX_CONCURRENT",
    ),
    "policy": Loader(
        load_policy,
        broken_documents(_toml_of("policy.toml"), keys_of(PolicyFile)).map(to_toml),
        ConfigError,
        "policy.toml",
    ),
    "routine": Loader(
        load_routines,
        broken_documents(ROUTINES, keys_of(RoutineDefinition)).map(to_toml),
        ConfigError,
        "bad.toml",
    ),
    "skill": Loader(
        load_skill,
        broken_documents(
            [{"name": "notes", "description": "d", "metadata": {"always": True}}],
            ["always", "license"],
        ).map(to_yaml),
        ConfigError,
        "SKILL.md",
    ),
    "crontab": Loader(
        load_crontab,
        st.lists(cron_lines, max_size=5)
        .map("\n".join)
        .map(lambda text: text.encode("utf-8", "replace")),
        Refused,
        "line",
    ),
    "memory": Loader(
        load_memory,
        broken_documents([ITEM, ARCHIVED, {"form": FORMAT}]).map(to_json),
        Refused,
        "line 1",
    ),
    "webhook": Loader(
        load_webhook,
        broken_documents([{"type": "x", "data": {"a": [1, 2.5, "x"]}}]).map(to_json)
        | st.binary(max_size=60),
        InvalidRequest,
        "body",
    ),
}
# Shrinking a document of 300,000 characters takes minutes, and most failures name their place.
FUZZ = settings(
    scaled_settings(400, fewest=60, suppress=[HealthCheck.data_too_large]),
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.parametrize("name", LOADERS)
@FUZZ
@given(data=st.data())
def test_a_loader_returns_a_value_or_names_the_place_of_the_fault(
    name: str, data: st.DataObject
) -> None:
    loader = LOADERS[name]
    loader.check(data.draw(loader.documents))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LOADERS)
def test_loaders_hold_out_for_as_long_as_they_are_tried(
    name: str, pytestconfig: pytest.Config
) -> None:
    end = time.monotonic() + pytestconfig.getoption("soak_seconds") / len(LOADERS)
    loader = LOADERS[name]

    @settings(
        scaled_settings(20),
        derandomize=False,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        loader.check(data.draw(loader.documents))

    while time.monotonic() < end:
        check()


# --- what was found by hand once


def deep_yaml(levels: int) -> bytes:
    """Aliases of aliases: 331 bytes that stand for ten to the power of `levels` words."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    for level in range(1, levels):
        members = ",".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{members}]")
    return "\n".join([*lines, f"name: *a{levels - 1}", "description: d"]).encode()


TOML_FAULTS = {
    b"a = " + b"9" * 5_000: "x.toml:1: is a number with more digits than can be read",
    b"a = 0x" + b"f" * 100_000: "a: is a whole number that does not fit into 64 bits",
    b"[t]\nat = 9999-12-31T23:59:59-23:59": "t.at: is no date of the years 1900 to 2999",
    b"a" + b".a" * 200 + b" = 1": "x.toml:1: has a key of more than 64 parts",
    b"a = " + b"[" * 100 + b"]" * 100: "lies more than 64 levels deep",
    b"a = " + b"[" * 5_000 + b"]" * 5_000: "nested too deeply",
    b"a = 2026-02-30": "Invalid date or datetime",
    b"x" * (5 << 20): "is longer than",
    b"a = 'x'" + bytes([0]): "is not TOML",
    b"\xff": "is not UTF-8 text",
}


@pytest.mark.parametrize("content", TOML_FAULTS, ids=range(len(TOML_FAULTS)))
def test_a_value_beyond_all_bounds_is_named_with_its_place(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_toml(path)
    assert TOML_FAULTS[content] in str(error.value) and "x.toml" in str(error.value)


def test_dots_in_texts_and_comments_are_no_keys() -> None:
    dots = "e.g. this. " * 200
    text = f'a = """\n{dots}\n"""\nb = "{dots}" # {dots}\n"c.c" = \'{dots}\'\n'
    assert set(parse_toml_text(text)) == {"a", "b", "c.c"}


def test_aliases_of_a_skill_are_not_followed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="aliases"):
        load_skill(deep_yaml(30), tmp_path)


@pytest.mark.parametrize("form", ["[", "{a: "])
def test_a_front_matter_of_thousands_of_levels_is_a_fault(form: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_skill(f"name: notes\ndescription: {form * 5_000}".encode(), tmp_path)


def test_a_skill_without_an_end_or_a_reader_is_a_fault_of_that_skill(tmp_path: Path) -> None:
    for name in ("endless", "pipe", "good"):
        (tmp_path / name).mkdir()
    (tmp_path / "endless" / "SKILL.md").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe" / "SKILL.md")
    (tmp_path / "good" / "SKILL.md").write_text("---\nname: good\ndescription: d\n---\nDo it.\n")
    (tmp_path / "loop").symlink_to("loop")
    catalog = load_skills(tmp_path)
    assert set(catalog.skills) == {"good"} and set(catalog.faults) == {"endless", "pipe"}
    assert "not a regular file" in str(catalog.faults["pipe"])


async def test_a_start_lists_bad_routines_and_has_the_others(tmp_path: Path) -> None:
    app = TestApp(tmp_path)
    app.write_routine("good", '[trigger]\ncron = "0 7 * * *"\n[run]\nprompt = "x"\n')
    bad = {
        f"bad-{number}": to_toml({"trigger": {key: value}, "run": {"prompt": "x"}})
        for number, (key, value) in enumerate(
            (key, value)
            for key in ("at", "cron", "every", "catch_up", "spread", "x")
            for value in HOSTILE_VALUES
        )
    }
    for name, content in bad.items():
        app.write(f"routines/{name}.toml", "").write_bytes(content)
    (tmp_path / "routines" / "a\udcff.toml").write_text("")
    async with app:
        names = set(app.daemon.scheduling.engine.routines)
        assert "good" in names
        assert names | {name for name in app.faults if name.startswith("bad-")} == {"good", *bad}
        assert len(app.faults) > len(bad) - 30
        for fault in app.faults.values():
            str(fault).encode()
