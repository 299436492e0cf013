"""What users see is as it was recorded, but for what renames.toml and changes.toml say."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.golden.compare import (
    CHANGES,
    DIGESTS,
    RECORDED,
    RENAMES,
    Change,
    Rename,
    difference,
    digests_of,
    expect,
    golden_texts,
    in_order,
    read_changes,
    read_renames,
    stale_entries,
)
from tests.golden.driver import FAKETIME
from tests.golden.normalise import Normaliser
from tests.golden.record import surfaces_of, write
from tests.golden.scenarios import SCENARIOS, Scenario

WHAT_TO_DO = (
    "If this is meant, say so in tests/golden/renames.toml (a word has changed) or "
    "tests/golden/changes.toml (lines "
    "have changed), with the issue that says so; golden files are never edited. The actual texts "
    "are in {folder}"
)


@pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime: apt install faketime")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_what_users_see_is_what_was_recorded(scenario: Scenario) -> None:
    name = scenario.__name__
    actual = {
        file: in_order(f"{name}/{file}", text) for file, text in surfaces_of(scenario).items()
    }
    renames, changes = (
        read_renames(RENAMES.read_text("utf-8")),
        read_changes(CHANGES.read_text("utf-8")),
    )
    golden = {path.name: path.read_text("utf-8") for path in (RECORDED / name).glob("*.txt")}
    assert golden, f"nothing is recorded of {name}: python -m tests.golden.record {name}"
    differences = []
    for file in sorted(golden | actual):
        place = f"{name}/{file}"
        expected = expect(place, golden.get(file, ""), renames, changes)
        if expected != actual.get(file, ""):
            differences.append(difference(place, expected, actual.get(file, "")))
    if differences:
        folder = Path(tempfile.mkdtemp(prefix=f"golden-actual-{name}-"))
        write(folder, actual)
        pytest.fail("\n".join([*differences, "", WHAT_TO_DO.format(folder=folder)]), pytrace=False)


def test_no_golden_file_was_edited() -> None:
    expected, actual = DIGESTS.read_text().splitlines(), digests_of(golden_texts()).splitlines()
    edited = sorted(line.partition("  ")[2] for line in set(expected) ^ set(actual))
    assert not edited, "golden files are never edited: put it into renames.toml or changes.toml"


def test_every_rename_and_change_still_applies() -> None:
    renames, changes = (
        read_renames(RENAMES.read_text("utf-8")),
        read_changes(CHANGES.read_text("utf-8")),
    )
    stale = stale_entries(golden_texts(), renames, changes)
    assert not stale, "these apply nowhere any more, take them out or mend them:\n" + "\n".join(
        map(str, stale)
    )


# --- the tables themselves

LOG = '2031-03-03T08:00:00.000Z info run.started {"run": "<id 1>", "slot": "x"}\n'


def test_a_rename_replaces_whole_words_and_puts_fields_in_order_again() -> None:
    renames = read_renames(
        (  # noqa: UP034
            '[[rename]]\nold = "run"\nnew = "work"\nissue = 1\n[[rename]]\nold = '
            '"work.started"\nnew = "a.b"\nissue = 1'
        )
    )
    assert (
        expect("x/log.txt", LOG, renames, [])
        == '2031-03-03T08:00:00.000Z info a.b {"slot": "x", "work": "<id 1>"}\n'
    )
    assert expect("x/cli.txt", "runs run rerun run_id", renames, []) == "runs work rerun run_id"


def test_a_rename_stays_where_it_is_meant() -> None:
    rename = Rename(old="run", new="work", issue=1, where="*/log.txt")
    assert expect("x/cli.txt", "run", [rename], []) == "run"
    assert expect("x/log.txt", "run\n", [rename], []) == "work\n"


def test_keys_of_json_are_put_in_order_again() -> None:
    text = 'GET /v1/x\n200 application/json\n{\n "b": 1,\n "c": {\n  "z": []\n }\n}\n'
    assert expect("x/api.txt", text, [Rename(old='"c"', new='"a"', issue=1)], []) == (
        'GET /v1/x\n200 application/json\n{\n "a": {\n  "z": []\n },\n "b": 1\n}\n'
    )


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        ('old = """\nb\nc"""\nnew = """\nB"""', "a\nB\nd\nb\n"),
        ('old = """\nb\nc\n"""\nnew = """\nB\n"""', "a\nB\nd\nb\n"),
        ('old = "c"', "a\nb\nd\nb\n"),
        ('after = """\na\nb"""\nnew = """\nx\ny"""', "a\nb\nx\ny\nc\nd\nb\n"),
        ('old = "b"\nnew = "B"', "a\nB\nc\nd\nB\n"),
        ('old = "bc"\nnew = "B"', "a\nb\nc\nd\nb\n"),
    ],
)
def test_a_change_replaces_removes_or_puts_in_whole_lines(entry: str, result: str) -> None:
    changes = read_changes(f'[[change]]\nissue = 1\nfile = "x/*"\n{entry}')
    assert expect("x/cli.txt", "a\nb\nc\nd\nb\n", [], changes) == result
    assert expect("y/cli.txt", "a\nb\nc\nd\nb\n", [], changes) == "a\nb\nc\nd\nb\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[change]]\nfile = "x"\nold = "a"', "'issue' is missing"),
        ('[[change]]\nissue = 1\nfile = "x"\nnew = "a"', "either `old`, or `after`"),
        ('[[change]]\nissue = 1\nfile = "x"\nold = "a"\nafter = "b"', "either `old`, or `after`"),
        ('[[change]]\nissue = 1\nfiles = "x"\nold = "a"', "unknown key 'files'"),
        ("[[changes]]\nissue = 1", "unknown table 'changes'"),
    ],
)
def test_a_faulty_entry_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_changes(text)


def test_entries_that_apply_nowhere_are_named() -> None:
    renames = [Rename(old="a", new="b", issue=1), Rename(old="zebra", new="b", issue=2)]
    changes = [
        Change(file="x/*", old="b", new="c", issue=3),
        Change(file="y/*", old="b", new="c", issue=4),
        Change(file="x/*", after="nothing", new="c", issue=5),
        Change(file="x/*", old="c", issue=6),
    ]
    stale = stale_entries({"x/cli.txt": "a\n"}, renames, changes)
    assert [entry.issue for entry in stale] == [2, 4, 5]
    assert "zebra" in str(stale[0]) and "y/*" in str(stale[1]) and "nothing" in str(stale[2])


def test_ids_are_numbered_as_they_appear_whole_or_by_their_end(tmp_path: Path) -> None:
    first, second = "01R5Q54G000000MS6W0TTDJSTY", "01R5Q54G000000V1E8X5RDDRYH"
    texts = {
        "cli.txt": f"run {second[-8:]}\nrun {first}\n",
        "api.txt": f'"id": "{first}", "{second}": "{second[-6:]}"',
    }
    normaliser = Normaliser("x", folder=tmp_path, texts=texts.values())
    assert normaliser.normalise("cli.txt", texts["cli.txt"]) == "run <id 1>\nrun <id 2>\n"
    assert normaliser.normalise("api.txt", texts["api.txt"]) == '"id": "<id 2>", "<id 1>": "<id 1>"'


def test_a_file_that_is_recorded_is_left_alone(tmp_path: Path) -> None:
    assert write(tmp_path, {"cli.txt": "old"}) == []
    assert write(tmp_path, {"cli.txt": "new", "log.txt": "new"}) == [tmp_path / "cli.txt"]
    assert (tmp_path / "cli.txt").read_text() == "old"
