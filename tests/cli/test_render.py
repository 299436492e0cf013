from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.render import (
    RUN_SIGNS,
    SIGNS,
    OutputStream,
    definition_lines,
    display_width,
    format_bytes,
    format_instant,
    format_local_time,
    format_relative_time,
    remove_parentheses,
    sanitize,
    shorten_home,
    shrink_columns,
    truncate,
)
from daemon.models import Status
from tests.properties import scaled_settings
from tests.terminal_stream import Terminal

CET = timezone(timedelta(hours=1), "CET")
TODAY = datetime(2026, 11, 20, 9, 0, tzinfo=CET)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with Terminal() as stream:
        yield stream


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (TODAY, "09:00 CET"),
        (TODAY + timedelta(hours=5), "14:00 CET"),
        (TODAY + timedelta(days=3), "Mon 09:00 CET"),
        (TODAY - timedelta(days=6), "Sat 09:00 CET"),
        (TODAY + timedelta(days=7), "27 Nov 09:00 CET"),
        (TODAY + timedelta(days=70), "29 Jan 2027 09:00 CET"),
    ],
)
def test_a_local_time_has_its_zone_and_unless_today_its_day(at: datetime, text: str) -> None:
    assert format_local_time(at, TODAY) == text


def test_a_time_is_formatted_absolutely_and_relatively() -> None:
    assert format_relative_time(TODAY, TODAY) == "now"
    assert format_relative_time(TODAY + timedelta(minutes=5), TODAY) == "in 5 min"
    assert format_relative_time(TODAY - timedelta(hours=3), TODAY) == "3 h ago"
    assert format_relative_time(TODAY - timedelta(seconds=1.1), TODAY) == "1 s ago"
    assert format_relative_time(TODAY + timedelta(seconds=4.3), TODAY) == "in 4 s"
    assert format_relative_time(TODAY + timedelta(seconds=9.96), TODAY) == "in 10 s"
    assert format_instant(None, TODAY, never="never") == "never"
    assert format_instant("2026-11-20T08:00:00.000Z", TODAY + timedelta(hours=3)).endswith(
        " (3 h ago)"
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1200, "1.2 kB"), (159_744, "160 kB"), (3e12, "3.0 TB")],
)
def test_sizes_are_rounded(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("abc", 3),
        ("日报", 4),
        ("한글", 4),
        ("ｆｕｌｌ", 8),
        ("é", 1),
        ("e\N{COMBINING ACUTE ACCENT}", 1),
        ("✓…", 2),
    ],
)
def test_wide_and_combining_characters_are_counted_as_a_terminal_shows_them(
    text: str, width: int
) -> None:
    assert display_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "cut_text"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("日报日报", 8, "日报日报"),
        ("日报日报", 7, "日报日…"),
        ("日报日报", 6, "日报…"),
        ("/srv/reports/daily.md", 10, "…/daily.md"),
        ("/srv/日报", 4, "…报"),
        ("/srv/reports/", 1, "…"),
        ("/srv of mine", 6, "/srv …"),
    ],
)
def test_a_cut_never_splits_a_wide_character_or_passes_the_width(
    text: str, width: int, cut_text: str
) -> None:
    assert truncate(text, width) == cut_text
    assert display_width(cut_text) <= width


@pytest.mark.parametrize(
    ("sizes", "room", "expected"),
    [
        ([[10, 10], [20, 20], [30, 30]], 60, [10, 20, 30]),
        ([[10, 10], [20, 20], [30, 30]], 50, [10, 20, 20]),
        ([[10, 10], [20, 20], [30, 30]], 35, [10, 13, 12]),
        ([[10, 10], [20, 20], [30, 30]], 5, [10, 12, 12]),
        ([[10, 10], [20, 44], [30, 30]], 60, [10, 20, 30]),
        ([[40, 12], [20, 20], [30, 30]], 62, [12, 20, 30]),
    ],
)
def test_the_column_with_the_fewest_long_cells_shrinks_first_and_none_vanishes(
    sizes, room, expected
):
    widths = [max(column) for column in sizes]
    shrink_columns(widths, room, cell_widths=sizes, elastic=2)
    assert widths == expected


def test_a_table_in_a_file_is_whole_and_plain() -> None:
    stream = io.StringIO()
    OutputStream(stream, {}).write_table(
        ["", "NAME", "TEXT"], [("failed", "a", "x" * 300), ("ok", "bb", "two\nlines")]
    )
    first, second, third = stream.getvalue().splitlines()
    assert first == "   NAME  TEXT"
    assert second == "x  a     " + "x" * 300  # a StringIO says nothing of UTF-8
    assert third == "+  bb    two lines"


def test_a_table_on_a_terminal_fits_and_wide_cells_line_up(terminal: Terminal) -> None:
    rows = [("ok", "日报", "长" * 100, "end."), ("ok", "abcd", "short", "end.")]
    OutputStream(terminal, {"NO_COLOR": "1"}).write_table(
        ["", "NAME", "TEXT", "LAST"], rows, elastic=2
    )
    lines = terminal.getvalue().splitlines()
    assert {display_width(line) for line in lines} == {80}
    assert {display_width(line.partition("end")[0]) for line in lines[1:]} == {76}


def test_control_characters_are_removed_for_terminals_and_files(
    terminal: Terminal,
) -> None:
    evil = "a\x1b[2Jb\n\tc\x9b"
    assert OutputStream(terminal, {}).sanitize(evil) == "a\ufffd[2Jb\n\tc\ufffd"
    assert OutputStream(io.StringIO(), {}).sanitize(evil) == "a\ufffd[2Jb\n\tc\ufffd"


def test_text_in_any_script_is_kept_by_sanitizing() -> None:
    for text in (
        "\u3000标题\u3000",
        "10\xa0000\u202fF",
        "می\u200cخواهم",
        "👩\u200d👧 👍🏽 ✔\ufe0f",
    ):
        assert sanitize(text) == text
    assert sanitize("one\r\ntwo") == "one\ntwo"
    assert sanitize("\u202egnp.exe \u2066x\U000e0041") == "\ufffdgnp.exe \ufffdx\ufffd"


def test_every_status_has_a_sign_and_no_sign_is_wide() -> None:
    assert set(RUN_SIGNS) == set(Status)
    assert {display_width(sign) for sign, _ in SIGNS.values()} == {1}


def test_a_definition_is_shown_as_dotted_keys() -> None:
    value = {
        "enabled": True,
        "trigger": {"cron": "30 8 * * *", "at": None},
        "gather": [{"name": "host"}],
        "tools": [],
    }
    assert definition_lines(value) == [
        "enabled = true",
        'trigger.cron = "30 8 * * *"',
        'gather[0].name = "host"',
    ]
    assert definition_lines({"prompt": "one\ntwo\n"}) == ['prompt = """one\ntwo"""']


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ("03:36 UTC (35 min ago)", "03:36 UTC"),
        ("03:36 UTC (35 min ago) to 04:13 UTC (1 s ago)", "03:36 UTC to 04:13 UTC"),
        ("skipped: gate (idle = 4h), run X", "skipped: gate, run X"),
        ("no (end", "no (end"),
        ("none", "none"),
        ("(alone)", "(alone)"),
    ],
)
def test_parentheses_are_left_out_in_narrow_tables(text, brief):
    assert remove_parentheses(text) == brief


def test_a_narrow_table_drops_parentheses_before_cutting_words():
    out = OutputStream(Terminal(), {"NO_COLOR": "1"})  # 80 columns
    row = (
        "daily-report",
        "succeeded 03:36 UTC (35 min ago)",
        "08:30 UTC",
        "at 08:30 on weekdays, UTC (Berlin)",
    )
    out.write_table(["ROUTINE", "LAST", "NEXT", "WHEN"], [row], signs=False)
    assert out.stream.getvalue().splitlines()[1] == (
        "daily-report  succeeded 03:36 UTC  08:30 UTC  at 08:30 on weekdays, UTC"
    )


CELLS = st.text(
    st.sampled_from("ab 磁盘満杯é👩\u200d\u0301\ufe0f(…)") | st.characters(codec="utf-8"),
    max_size=60,
)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(sorted(SIGNS)), CELLS, CELLS, CELLS, CELLS), max_size=6
    ),
    width=st.integers(12, 120),
)
@scaled_settings()
def test_no_line_of_a_table_is_wider_than_the_terminal(
    rows: list[tuple[str, ...]], width: int
) -> None:
    class Narrow(OutputStream):
        @property
        def width(self) -> int:
            return given_width

    given_width = width
    with Terminal() as stream:
        out = Narrow(stream, {"NO_COLOR": "1"})
        out.write_table(["", "ROUTINE", "WHEN", "LAST", "ABOUT"], rows)
        # as a terminal breaks lines
        assert [line for line in stream.getvalue().split("\n") if display_width(line) > width] == []


def test_sentences_of_a_table_go_on_in_the_next_line_and_paths_stay_whole(
    terminal: Terminal,
) -> None:
    out = OutputStream(terminal, {"NO_COLOR": "1"})  # 80 columns
    path = f"/srv/{'a' * 80}/mail.url"
    rows = [
        ("fail", "target mail", f"mail: no such file: {path} " + "word " * 20),
        ("ok", "x", "y"),
    ]
    out.write_table(["", "CHECK", "FOUND"], rows, wraps=True)
    assert terminal.getvalue().splitlines() == [
        "   CHECK        FOUND",
        "✗  target mail  mail: no such file:",
        f"{' ' * 16}{path}",
        f"{' ' * 16}{'word ' * 12}word",
        f"{' ' * 16}{'word ' * 6}word",
        "✓  x            y",
    ]


def test_prose_is_broken_between_words_at_a_terminal_and_nowhere_else(terminal: Terminal) -> None:
    command = f"(umask 077; cat > /srv/{'a' * 30}/mail.url)"
    text = f"{'word ' * 18}no such file; create it: {command}, one line, then Ctrl-D\nthe next"
    out = OutputStream(terminal, {"NO_COLOR": "1"})  # 80 columns
    out.write_prose(text, begin="✗ ")
    assert terminal.getvalue().splitlines() == [
        f"✗ {'word ' * 14}word",
        "  word word word no such file; create it:",
        f"  {command}, one line,",
        "  then Ctrl-D",
        "  the next",
    ]
    pipe = io.StringIO()
    OutputStream(pipe, {}).write_prose(text, begin="✗ ")
    assert pipe.getvalue() == f"✗ {text}\n"


def test_in_very_narrow_tables_cells_stand_below_each_other(
    terminal: Terminal,
) -> None:
    class Narrow(OutputStream):
        @property
        def width(self) -> int:
            return 20

    out = Narrow(terminal, {"NO_COLOR": "1"})
    out.write_table(
        ["", "ROUTINE", "NEXT", "LAST"],
        [("ok", "daily-report", "08:30 CET (in 5 h)", "磁盘空间已经快要满了")],
    )
    assert terminal.getvalue().split("\n") == [
        "✓ daily-report",
        "  next: 08:30 CET",
        "  last: 磁盘空间已…",
        "",
    ]


def test_combining_marks_and_joiners_have_no_width() -> None:
    assert (
        display_width("e\u0301"),
        display_width("❤\ufe0f"),
        display_width("a\u200db"),
        display_width("磁盘"),
    ) == (
        1,
        1,
        2,
        4,
    )


def test_only_paths_within_the_home_folder_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada/")
    short_paths = {
        "/home/ada/a b.md": "~/a b.md",
        "/home/ada": "~",
        "/home/adam/a.md": "/home/adam/a.md",
        "/srv/home/ada/a.md": "/srv/home/ada/a.md",
        "250 OK": "250 OK",
    }
    assert {path: shorten_home(path) for path in short_paths} == short_paths
    for home in ("", "/"):
        monkeypatch.setenv("HOME", home)
        assert shorten_home("/srv/a.md") == "/srv/a.md"
