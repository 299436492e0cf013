"""policy.toml is changed line by line, and says the same but for the change."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import Refused
from daemon.policy.authoring.policy_text import add_rules, remove_trial, set_trial

END = datetime(2026, 12, 1, 9, tzinfo=UTC)
TRIAL = 'mode = "observe"\nobserve_until = 2026-12-01T09:00:00Z\n'
RULE = {"tool": "shell", "effect": "allow", "argv": ["df"]}


@pytest.mark.parametrize(
    ("text", "new_text"),
    [
        ("version = 1\n", f"version = 1\n\n[routine.daily]\n{TRIAL}"),
        ("version = 1", f"version = 1\n\n[routine.daily]\n{TRIAL}"),
        (
            "[routine.daily]  # little\ntools = []\n\n[routine.x]\nmode = 'observe'\n",
            f"[routine.daily]  # little\n{TRIAL}tools = []\n\n[routine.x]\nmode = 'observe'\n",
        ),
        (
            '[routine."daily"]\nmode = "enforce"\ntools = []\n[limits]\n',
            f'[routine."daily"]\n{TRIAL}tools = []\n[limits]\n',
        ),
        ("[routine.daily]", f"[routine.daily]\n{TRIAL}"),
        ("\ufeffversion = 1\n", f"\ufeffversion = 1\n\n[routine.daily]\n{TRIAL}"),
    ],
)
def test_a_trial_stands_in_the_section_of_its_routine(text: str, new_text: str) -> None:
    assert set_trial(text, "daily", END) == new_text
    assert set_trial(new_text, "daily", END) == new_text, "a second time replaces the first"
    without = tomllib.loads(remove_trial(new_text, "daily").removeprefix("\ufeff"))
    section = without.get("routine", {}).get("daily", {})
    assert "mode" not in section and "observe_until" not in section


def test_the_end_of_a_trial_leaves_the_file_as_it_was_before() -> None:
    for text in ("version = 1\n", 'version = 1\n[routine.daily]\ntools = ["shell"]\n# end\n'):
        assert remove_trial(set_trial(text, "daily", END), "daily") == text
    assert remove_trial("version = 1\n", "daily") == "version = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "routine.daily.tools = []\n",
        "routine = { daily = { tools = [] } }\n",
        "[routine]\ndaily = { tools = [] }\n",
        'x = """\n[routine.daily]\n"""\n',
    ],
)
def test_what_is_written_in_another_way_is_left_to_a_person(text: str) -> None:
    with pytest.raises(Refused, match=r"nothing was written. It should say:\n\[routine.daily\]"):
        set_trial(text, "daily", END)


def test_rules_are_added_at_the_end_with_their_comments() -> None:
    assert add_rules("version = 1", [RULE], ["for df"]) == (
        'version = 1\n\n# for df\n[[rule]]\ntool = "shell"\neffect = "allow"\nargv = ["df"]\n'
    )
    long_list = [f"/a/long/path/to/file-{number}.md" for number in range(5)]
    text = add_rules("", [RULE | {"paths": long_list}])
    assert '\npaths = [\n    "/a/long/path/to/file-0.md",\n' in text
    with pytest.raises(Refused):
        add_rules("rule = [{ tool = 'shell', effect = 'deny' }]\n", [RULE])
    assert add_rules("version = 1", []) == "version = 1"


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(NAMES, st.lists(st.one_of(NAMES, st.lists(NAMES, max_size=3)), max_size=4))
KEYS = st.sampled_from(["tool", "argv", "paths", "urls", "match", "reason"])


@given(tables=st.lists(st.dictionaries(KEYS, VALUES, min_size=1), max_size=4))
def test_whatever_a_rule_says_its_text_is_toml_that_says_the_same(
    tables: list[dict[str, object]],
) -> None:
    text = add_rules("version = 1\n[[rule]]\ntool = 'x'\n", tables)
    assert tomllib.loads(text) == {"version": 1, "rule": [{"tool": "x"}, *tables]}


def test_what_a_terminal_would_not_show_is_shown_as_an_escape() -> None:
    text = add_rules("", [{"tool": "x", "match": ["a\u202eb\x9bc\x7f\u00a0é"]}])
    assert 'match = ["a\\U0000202Eb\\U0000009Bc\\u007f\\U000000A0é"]\n' in text


def test_the_shipped_policy_takes_a_trial_and_loses_it_again() -> None:
    text = (Path(__file__).parents[2] / "policy.toml").read_text()
    assert remove_trial(set_trial(text, "daily-report", END), "daily-report") == text
