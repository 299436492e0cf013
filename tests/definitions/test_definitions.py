"""Faults of a TOML file as people read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, SecretStr, TypeAdapter

from daemon.definitions.reading import Conflict, CrossFieldCheck, load_toml, parse
from daemon.definitions.values import (
    Duration,
    InvalidValue,
    Items,
    JsonTable,
    Table,
    format_duration,
    parse_duration,
)
from daemon.definitions.words import did_you_mean
from daemon.errors import ConfigError, Fault
from tests.definitions import without_place
from tests.properties import scaled_settings


class Word(Table):
    text: str


class Pattern(Table):
    tool: Literal["shell"]
    argv: Items[str | Items[str]]


class Place(Table):
    tool: Literal["file"]
    paths: Items[str]
    tool_path: str = ""


class Door(Table):
    width: int = Field(default=1, ge=1)
    opened: bool = False
    ratio: float = 0.5
    api_key: SecretStr | None = None


class House(Table):
    name: str
    door: Door = Door()
    language: Literal["en", "zh"] = "en"
    wait: Duration = timedelta(0)
    words: Items[Word] = ()
    rooms: dict[str, Door] = Field(default_factory=dict)
    rules: Items[Annotated[Pattern | Place, Field(discriminator="tool")]] = ()
    either: int | Items[int] = 0
    args: JsonTable = Field(default_factory=dict)


def one_name_only(house: House) -> Iterator[Conflict]:
    if house.name in house.rooms:
        yield Conflict("name", "a room has this name", house.name)


CHECKS = (CrossFieldCheck[House](("name", "rooms.*"), one_name_only),)


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Write a file and load it."""

    def read(text: str | bytes) -> House:
        path = tmp_path / "house.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_toml(path, House, CHECKS)

    return read


def faults_of(read: Any, text: str | bytes) -> list[Fault]:
    with pytest.raises(ConfigError) as error:
        read(text)
    return list(error.value.faults)


def lines_of(read: Any, text: str | bytes) -> list[str]:
    return [without_place(fault) for fault in faults_of(read, text)]


def test_a_valid_file_becomes_a_value(read: Any) -> None:
    house = read('name = "a"\nwait = "1h30m"\n[[words]]\ntext = "x"\n[rooms.hall]\nwidth = 3\n')
    assert house == House(
        name="a", wait=timedelta(minutes=90), words=(Word(text="x"),), rooms={"hall": Door(width=3)}
    )


def test_byte_order_mark_and_windows_line_ends_are_accepted(read: Any) -> None:
    assert read(b'\xef\xbb\xbfname = "a"\r\nlanguage = "zh"\r\n').language == "zh"


def test_all_faults_of_a_file_are_reported_together(read: Any) -> None:
    faults = faults_of(
        read,
        'nam = "x"\nlanguage = "fr"\nwait = 5\n[door]\nwidth = "3"\nopened = "yes"\nratio = true\n',
    )
    assert {fault.key for fault in faults} == {
        *("name", "nam", "language", "wait"),
        *("door.width", "door.opened", "door.ratio"),
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "name: is missing"),
        (
            'name = "a"\nlangage = "en"',
            'langage: unknown key (found "en"); did you mean "language"?',
        ),
        (
            'name = "a"\nwidth = 2',
            "width: unknown key (found 2); it belongs in [door] or [rooms.NAME]",
        ),
        (
            'name = "a"\n[door]\nq = 1',
            "door.q: unknown key (found 1); known here: api_key, opened, ratio, width",
        ),
        (
            'name = "a"\nlanguage = "eng"',
            'language: expected "en" or "zh" (found "eng"); did you mean "en"?',
        ),
        ("name = 5", 'name: expected text in quotes (found 5); write "5"'),
        ("name = true", "name: expected text in quotes (found true)"),
        (
            'name = "a"\n[door]\nwidth = "10"',
            'door.width: expected a whole number, like 10 (found "10"); leave out the quotes',
        ),
        (
            'name = "a"\n[door]\nwidth = 1.5',
            "door.width: expected a whole number, like 10 (found 1.5)",
        ),
        ('name = "a"\n[door]\nwidth = 0', "door.width: must be at least 1 (found 0)"),
        ('name = "a"\n[door]\nratio = "x"', 'door.ratio: expected a number, like 10 (found "x")'),
        (
            'name = "a"\n[door]\nopened = 1',
            "door.opened: expected true or false, without quotes (found 1)",
        ),
        (
            'name = "a"\ndoor = "red"',
            (
                'door: expected a table of keys and values (found "red"); write [door], and its '
                "keys below"
            ),
        ),
        (
            'name = "a"\nwords = "x"',
            (
                'words: expected a list, like ["a", "b"] (found "x"); write [[words]] with two '
                "brackets, and its keys below"
            ),
        ),
        (
            'name = "a"\n[words]\ntext = "x"',
            (
                'words: expected a list, like ["a", "b"] (found a table); write [[words]] with two '
                "brackets"
            ),
        ),
        ('name = "a"\n[[words]]\ntext = "x"\n[[words]]', "words[1].text: is missing"),
        ('name = "a"\n[rooms.hall]\nwidth = -1', "rooms.hall.width: must be at least 1 (found -1)"),
        (
            'name = "a"\n[rooms."my hall"]\nwidht = 1',
            'rooms."my hall".widht: unknown key (found 1); did you mean "width"?',
        ),
        (
            'name = "a"\n[[rules]]\ntool = "shell"\nargv = ["git", ["log", 3]]',
            'rules[0].argv[1][1]: expected text in quotes (found 3); write "3"',
        ),
        (
            'name = "a"\n[[rules]]\ntool = "file"\npath = ["x"]\npaths = []',
            'rules[0].path: unknown key (found ["x"]); did you mean "paths"?',
        ),
        (
            'name = "a"\n[[rules]]\ntool = "shel"\nargv = []',
            'rules[0].tool: expected "shell" or "file" (found "shel"); did you mean "shell"?',
        ),
        ('name = "a"\n[[rules]]\nargv = []', "rules[0].tool: is missing"),
        (
            'name = "a"\neither = "x"',
            (
                'either: expected a whole number, like 10 or a list, like ["a", "b"] (found "x"); '
                'write ["x"]'
            ),
        ),
        (
            'name = "a"\neither = [1, "x"]',
            'either[1]: expected a whole number, like 10 (found "x")',
        ),
        ('name = "a"\n[args]\nx = nan', "args: nan and inf cannot be passed on (found a table)"),
        (
            'name = "a"\nwait = 90',
            (
                'wait: expected a duration in quotes, like "10m" (found 90); write "90s" for 90 '
                "seconds"
            ),
        ),
        (
            'name = "a"\nwait = "soon"',
            'wait: expected a duration, like "90s", "10m", "2h", "1d" or "1h30m" (found "soon")',
        ),
        ('name = "hall"\n[rooms.hall]', 'name: a room has this name (found "hall")'),
    ],
)
def test_fault_is_reported_with_its_correction(read: Any, text: str, line: str) -> None:
    assert lines_of(read, text) == [line]


def test_cross_field_checks_speak_beside_broken_keys_they_do_not_read(read: Any) -> None:
    keys = {
        fault.key
        for fault in faults_of(read, 'name = "hall"\nwait = 3\n[rooms.hall]\nwidth = "x"\n')
    }
    assert keys == {"wait", "rooms.hall.width", "name"}


@pytest.mark.parametrize(
    "text", ["name = 3\n[rooms.x]", 'name = "hall"\nrooms.hall = 3', "[rooms.x]"]
)
def test_a_cross_field_check_ignores_broken_keys(read: Any, text: str) -> None:
    assert len(faults_of(read, text)) == 1


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        (
            'name = "a"\nlanguage = en\n',
            2,
            'text needs quotes: key = "text"; true, false and numbers go without',
        ),
        ("name = 'a'\nname = 'b'\n", 2, "this key stands in the table twice; keep one"),
        ("[door]\nwidth = 1\n[door]\n", 3, "put its keys together"),
        (
            'name = "a\nwait = "1s"\n',
            1,
            'close the quotes in this line, or use """ for several lines',
        ),
        ('name = "C:\\data"\n', 1, "double the backslash, or use single quotes"),
        ('name = "C:\\\nwait = "1s"\n', 1, "double the backslash"),
        ('name = "C:\\\n', 1, "double the backslash"),
        ("name\n", 1, "a line is key = value, [table] or a # comment"),
        ("words = [1, 2\nname = 'x'\n", 2, "a ] or a comma between the items is missing"),
        ('name = """a\nb\n', 2, "the closing quotes are missing"),
        ('name = "a" b\n', 1, "one key = value a line"),
        ("name = True\n", 1, "text needs quotes"),
        ("[door\nwidth = 1\n", 1, "a table's name stands in [ ]"),
        ("x = {a = 1\n", 1, "an inline table ends in the line it began in"),
    ],
)
def test_invalid_toml_is_reported_with_its_line_and_a_hint(
    read: Any, text: str, line: int, hint: str
) -> None:
    (fault,) = faults_of(read, text)
    assert (fault.key, fault.line) == ("", line)
    assert str(fault).startswith(f"{fault.file}:{line}: is not TOML: ")
    assert fault.problem.startswith("is not TOML: ")
    assert hint in fault.hint


def test_a_line_separator_in_a_text_does_not_shift_the_line_of_a_fault(read: Any) -> None:
    (fault,) = faults_of(read, 'name = "one\u2028two"\nlanguage = "en"\nwait = oops\n')
    assert (fault.line, fault.found) == (3, "wait = oops")


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("[a]\n[b]\nx=1\n[b]\n", "the table [b] stands in the file twice, first in line 2", ""),
        ("door.x = 1\n[door]\n", "the table [door] stands in the file twice", ""),
        ('provider = "a"\n[provider.b]\n', "a key of this name stands above", "[providers.b]"),
        ('name = "a"\n[name]\n', "a key of this name stands above", ""),
    ],
)
def test_a_table_that_cannot_be_one_is_reported_in_words_of_toml(
    read: Any, text: str, problem: str, hint: str
) -> None:
    (fault,) = faults_of(read, text)
    assert fault.problem.startswith(f"is not TOML: {problem}")
    assert hint in fault.hint


def test_a_table_that_stands_twice_is_named_without_the_secret_in_its_name(read: Any) -> None:
    header = '["api_key=sk-0123456789abcdefghij"]'
    (fault,) = faults_of(read, f"{header}\n{header}\n")
    assert (fault.line, "first in line 1" in fault.problem) == (2, True)
    assert "sk-0123" not in str(fault)


def test_a_file_that_is_not_utf_8_is_one_fault_with_its_line(read: Any) -> None:
    assert lines_of(read, b'name = "a"\nlanguage = "\xe9"\n') == [
        "is not UTF-8 text (byte 0xe9 in line 2); save it with the encoding UTF-8"
    ]


def test_a_missing_file_a_folder_and_endless_nesting_are_one_fault_each(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000)
    for name, problem in (
        ("none.toml", "no such file"),
        (".", "is a folder"),
        ("deep.toml", "nested too deeply"),
    ):
        with pytest.raises(ConfigError) as error:
            load_toml(tmp_path / name, House)
        (fault,) = error.value.faults
        assert problem in fault.problem
        assert fault.hint


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may read everything: run the tests as an ordinary user"
)
def test_a_file_without_permission_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "house.toml"
    path.write_text("")
    path.chmod(0)
    with pytest.raises(ConfigError, match="may not be read by this user"):
        load_toml(path, House)


@pytest.mark.parametrize(
    "text",
    [
        'name = "a"\napi_kye = "sk-canary-123456"',
        (
            'name = "a"\n[door]\napi_key = ["sk-canary-123456"]\n[rooms.x]\napi-key = '
            '"sk-canary-123456"'
        ),
        'name = "a"\n[door]\napi_key = sk-canary-123456',
        'name = "a"\n[door]\napi_key_env = "sk-canary-123456"',
        'name = "a"\nlanguage = "ghp_canary12345678"',
        'name = "a"\npassword = "sk-canary-123456',
    ],
)
def test_a_secret_in_a_faulty_file_is_not_repeated(read: Any, text: str) -> None:
    assert "canary" not in "\n".join(lines_of(read, text))


def test_terminal_sequences_in_a_file_do_not_reach_the_terminal(read: Any) -> None:
    assert "\x1b" not in "".join(lines_of(read, 'name = "a"\nlanguage = "\\u001b[2J"\n'))


def test_a_long_value_is_shortened(read: Any) -> None:
    (fault,) = faults_of(read, f'name = "a"\nlanguage = "{"x" * 5000}"\n')
    assert len(fault.found) == 60


def test_unknown_value_is_reported_with_the_known_values() -> None:
    assert did_you_mean("opnai", ["openai", "claude"]) == 'did you mean "openai"?'
    assert did_you_mean("zzz", ["openai", "claude"]) == "known: claude, openai"
    assert did_you_mean("zzz", []) == ""
    assert did_you_mean("ollama", ["openai", "open_source"]) == 'did you mean "open_source"?'
    assert did_you_mean("bash", ["shell", "git"]) == 'did you mean "shell"?'
    assert did_you_mean("bash", ["git"]) == "known: git"


# --- durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("0s", 0),
        ("1.5s", 1.5),
        ("1h 5m", 3900),
        ("20 minutes", 1200),
        ("90 min", 5400),
        ("1 Minute", 60),
        ("2 hours", 7200),
        ("1 hour and 30 minutes", 5400),
        ("1 hr 5 mins 3 secs", 3903),
        ("1 day, and 2.5 seconds", 86402.5),
        ("2w", 1_209_600),
        ("1 week and 1 day", 691_200),
    ],
)
def test_a_duration_reads_as_it_is_written(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "10",
        "10 moments",
        "minutes",
        "and 5m",
        "5m and",
        "-5m",
        "30m1h",
        "1h30",
        10,
        1.5,
        True,
        None,
        "٣s" * 9,
    ],
)
def test_invalid_durations_are_refused(value: Any) -> None:
    with pytest.raises(InvalidValue):
        parse_duration(value)


def test_a_duration_over_ten_years_is_refused() -> None:
    with pytest.raises(InvalidValue, match="ten years"):
        parse_duration("999999999999999999999999d")


@scaled_settings(100)
@given(st.integers(min_value=0, max_value=86_400_000 * 3000))
def test_a_duration_survives_being_written_and_read(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    adapter = TypeAdapter(Duration)
    assert adapter.validate_json(adapter.dump_json(duration)) == duration
    assert parse_duration(format_duration(duration)) == duration


# --- whatever a file may hold

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.datetimes()
    | st.dates()
)
KEYS = st.sampled_from(
    [*House.model_fields, *Door.model_fields, "argv", "paths", "shell", "file"]
) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=4), max_leaves=12
)


@scaled_settings(100)
@example({"words": "\x7f"})
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_file_becomes_a_value_or_faults_with_places(
    data: dict[str, Any],
) -> None:
    faults: tuple[Fault, ...] = ()
    try:
        parse(data, House, file="x.toml", checks=CHECKS)
    except ConfigError as error:
        faults = error.faults or pytest.fail("a ConfigError without a fault")
    for fault in faults:
        assert fault.key
        assert fault.problem
        assert str(fault).isprintable()
