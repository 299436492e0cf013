"""A fault of a key names the line of the file in which the key stands."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.commands.validate import examine
from daemon.definitions.config.loading import load_config
from daemon.definitions.key_lines import MAX_LENGTH, KeyLines, with_lines
from daemon.definitions.routines.folder import load_folder, load_routine
from daemon.definitions.shape import Loc, format_key_path
from daemon.errors import ConfigError, Fault
from daemon.policy.policy import Policy
from tests.properties import scaled_settings

TEXT = """\
top = 1
[trigger]
cron = "x"
[run]
prompt = \"\"\"
[gate]
cron = "in a text"
\"\"\"
"quoted key" = 1
retry.attempts = 3  # retry.wait = 4
[[gather]]
tool = "a"
[[gather]]
tool = "b"
args = { path = "x", "deep.er" = [
  1,
  { y = 2 },
] }
[gather.more]
z = 1979-05-27 07:32:00.5
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [("top", 1), ("trigger", 2), ("trigger.cron", 3), ("run.prompt", 5), ("run.timeout", 4),
     ('run."quoted key"', 9), ("run.retry.attempts", 10), ("run.retry.wait", 10),
     ("gather", 11), ("gather[0].tool", 12), ("gather[0].x", 11), ("gather[1].tool", 14),
     ("gather[1].args", 15), ('gather[1].args."deep.er"[0]', 16),
     ('gather[1].args."deep.er"[1].y', 17), ('gather[1].args."deep.er"[7]', 15),
     ("gather[1].more", 19), ("gather[1].more.z", 20),
     ("gather.tool", None), ("gate", None), ("gate.cron", None), ("nowhere.x", None), ("", None)],
)  # fmt: skip
def test_each_key_has_its_line_and_a_missing_one_that_of_its_table(
    key: str, line: int | None
) -> None:
    assert KeyLines(TEXT).line_of(key) == line


def test_list_of_one_table_is_named_like_a_table() -> None:
    lines = KeyLines("[[trigger]]\ncron = 'x'\nskip = ['a',\n'b']\n")
    assert lines.line_of("trigger.cron") == lines.line_of("trigger[0].cron") == 2
    assert lines.line_of("trigger.skip[1]") == 4
    assert lines.line_of("trigger.every") == 1


def test_lines_of_what_is_no_toml_or_too_long_are_not_known() -> None:
    assert KeyLines("a = 1\nb = = 2\n").line_of("a") is None
    assert KeyLines("a = 1\n" + "#" * MAX_LENGTH).line_of("a") is None
    assert KeyLines("a = 1\n" + "#" * 1000).line_of("a") == 1


names = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True),
    st.text(max_size=4).map(json.dumps),
    st.text('ab.#[]=" ', max_size=4).map(lambda name: f"'{name}'"),
)
keys = st.lists(names, min_size=1, max_size=3).map(".".join)
contents = st.text('ab "\n[]=#{},.', max_size=12)
comments = st.sampled_from(["", " # [x] = {", "\n\n"])


def _one_line(text: str) -> str:
    return text.replace("\n", "")


# `@` becomes a number that only this value has.
scalars = st.one_of(
    st.just("@"),
    st.just("@.5"),
    contents.map(lambda text: json.dumps(f"@ {text}")),
    contents.map(lambda text: f"'@ {_one_line(text)}'"),
    contents.map(lambda text: '"""@ ' + re.sub('"+', '"', text).strip('"') + 'x"""'),
    st.integers(0, 2).map(lambda count: '"""@\n[x]\ny = 1\n' + '"' * count + '"""'),
    st.integers(0, 2).map(lambda count: "'''@\n# '\ny = 1\n" + "'" * count + "'''"),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(st.tuples(inner, comments), max_size=3).map(
            lambda items: "[" + "".join(f"\n{item},{comment}\n" for item, comment in items) + "]"
        ),
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(st.tuples(keys, inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key} = {value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=5,
)
statements = st.one_of(
    st.tuples(keys, values, comments).map(lambda parts: f"{parts[0]} = {parts[1]}{parts[2]}"),
    keys.map(lambda key: f"[{key}]"),
    keys.map(lambda key: f"[[ {key} ]]"),
    st.sampled_from(["[[list]]", "[list.table]", "[[list.inner]]", "[ table . inner ] # x = 1"]),
)


def _leaves(value: Any, path: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves(entry, (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _leaves(entry, (*path, index))
    else:
        yield path, value


@scaled_settings(300)
@given(st.lists(statements, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_the_line_of_a_key_is_the_one_in_which_its_value_begins(
    parts: list[str], line_end: str
) -> None:
    text = ""
    for part in parts:  # a statement that does not fit to those before it is left out
        try:
            tomllib.loads(f"{text}{part}\n".replace("@", "1"))
        except tomllib.TOMLDecodeError:
            continue
        text += f"{part}\n"
    pieces = text.split("@")
    text = pieces[0] + "".join(f"{900 + index}{piece}" for index, piece in enumerate(pieces[1:]))
    text = text.replace("\n", line_end)
    lines = KeyLines(text)
    for path, value in _leaves(tomllib.loads(text)):
        number = re.match(r"9\d\d", str(value))
        assert number is not None
        assert (
            lines.line_of(format_key_path(*path)) == text[: text.index(number[0])].count("\n") + 1
        )


@scaled_settings(100)
@given(st.integers(0, len(TEXT)), st.integers(0, 20), st.text(max_size=5))
def test_whatever_stands_in_a_text_a_line_is_one_of_its_lines(
    begin: int, length: int, inserted: str
) -> None:
    text = TEXT[:begin] + inserted + TEXT[begin + length :]
    lines = KeyLines(text)
    for key in ("run.prompt", "gather[1].args.path", inserted):
        line = lines.line_of(key)
        assert line is None or 1 <= line <= text.count("\n") + 1


def places_of(error: ConfigError) -> list[str]:
    """Return file, line and key of each fault, as people read them."""
    texts = (str(fault).partition(f": {fault.problem}")[0] for fault in error.faults)
    return [text.rpartition("/")[2] for text in texts]


def test_faults_of_a_routine_name_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "news.toml"
    path.write_text("""\
[trigger]
cron = "99 * * * *"
[run]
prompt = "x"
tools = [
  "shell",
  7,
]
[[deliver]]
path = "a.md"
""")
    with pytest.raises(ConfigError) as caught:
        load_routine(path)
    assert places_of(caught.value) == [
        "news.toml:2: trigger.cron",
        "news.toml:7: run.tools[1]",
        "news.toml:9: deliver[0].to",
    ]
    assert [fault.line for fault in caught.value.faults] == [2, 7, 9]


def test_fault_of_a_key_missing_at_the_top_of_a_file_names_no_line(tmp_path: Path) -> None:
    path = tmp_path / "news.toml"
    path.write_text('[trigger]\ncron = "@daily"\n')
    with pytest.raises(ConfigError) as caught:
        load_routine(path)
    assert places_of(caught.value) == ["news.toml: run.prompt"]


def test_faults_of_what_routines_name_have_lines_too(tmp_path: Path) -> None:
    folder = tmp_path / "routines"
    folder.mkdir()
    (folder / "a.toml").write_text('[run]\nprompt = "x"\n[trigger]\nafter = [\n"b",\n"nobody"]\n')
    (folder / "b.toml").write_text('[run]\nprompt = "x"\n[trigger]\nafter = ["a"]\n')
    (folder / "c.toml").write_text(
        '[run]\nprompt = "x"\n[trigger]\ncron = "@daily"\nskip = ["gone.ics"]\n'
    )
    (folder / "d.toml").write_text(
        '[run]\nprompt = "x"\n[[trigger]]\ncron = "@daily"\n'
        '[[trigger]]\ncron = "@hourly"\nskip = ["gone.ics"]\n'
    )
    faults = load_folder(folder, workspace=tmp_path).faults
    assert {name: places_of(error) for name, error in faults.items()} == {
        "a": ["a.toml:4: trigger.after", "a.toml:6: trigger.after[1]"],
        "b": ["b.toml:4: trigger.after"],
        "c": ["c.toml:5: trigger.skip"],
        "d": ["d.toml:7: trigger[1].skip"],
    }


def test_faults_of_the_config_name_their_lines_and_those_of_the_environment_their_variable(
    tmp_path: Path,
) -> None:
    path, overlay = tmp_path / "config.toml", tmp_path / "overlay.toml"
    path.write_text('timezone = "Mars/Olympus"\n\n[log]\nlevel = "info"\n[budget]\nday = -1\n')
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={"AGENTD_LOG__LEVEL": "loud"})
    assert places_of(caught.value) == [
        "config.toml:1: timezone",
        "the environment: AGENTD_LOG__LEVEL",
        "config.toml:6: budget.day",
    ]
    path.write_text("[budget]\nday = 5\n")
    overlay.write_text("\n\n[budget]\nday = -1\n")
    error = load_config(path, overlay, env={}).overlay_error
    assert error is not None
    assert places_of(error) == ["overlay.toml: budget.day"]


def test_faults_of_the_policy_name_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('version = 1\n\n[[rule]]\ntool = "shell"\neffect = "perhaps"\n')
    path.chmod(0o600)
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError) as caught:
        Policy.load(path, workspace=tmp_path / "workspace")
    assert places_of(caught.value) == ["policy.toml:5: rule[0].effect"]


def test_call_that_the_policy_denies_every_run_is_a_fault_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('provider = "offline"\n')
    (tmp_path / "policy.toml").write_text("version = 1\n")
    (tmp_path / "routines").mkdir()
    (tmp_path / "routines" / "gated.toml").write_text(
        '[gate]\n\ncommand = ["rm", "x"]\n[run]\nprompt = "x"\n'
    )
    for file in (tmp_path, *tmp_path.rglob("*")):
        file.chmod(file.stat().st_mode & ~0o022)
    faults = examine(tmp_path / "config.toml", env={}, state=tmp_path / "state").faults
    assert places_of(ConfigError(*faults)) == ["gated.toml:3: gate.command"]


def test_faults_stand_in_the_order_of_their_lines() -> None:
    keys = ["gather[1].tool", "", "top", "gather[0].tool", "run.prompt"]
    faults = [Fault(file="x.toml", key=key, found="", problem="is wrong") for key in keys]
    lines = [(fault.key, fault.line) for fault in with_lines(faults, TEXT)]
    assert lines == [
        ("", None),
        ("top", 1),
        ("run.prompt", 5),
        ("gather[0].tool", 12),
        ("gather[1].tool", 14),
    ]
