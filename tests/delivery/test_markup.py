"""Reports in words, in pieces, and without a way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.delivery.markup import (
    MAX_PARTS,
    render_html,
    render_text,
    split_text,
    split_up_to_max_parts,
)
from tests.properties import scaled_settings

REPORT = """# Morning

**Two** disks are *nearly* full: `/var` and `/home`.

- see [the graph](https://example.org/g_1 "today")
- ![load](https://example.org/load.png)

```sh
df -h  # **not bold**
```
"""


def test_words_keep_everything_but_the_marks():
    assert render_text(REPORT) == (
        "Morning\n=======\n\nTwo disks are nearly full: /var and /home.\n\n"
        "- see the graph (https://example.org/g_1)\n- load (https://example.org/load.png)\n\n"
        "    df -h  # **not bold**"
    )


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("snake_case_name and 2*3*4", "snake_case_name and 2*3*4"),
        ("***all*** __of__ _it_", "all of it"),
        (r"\*literal\*", "*literal*"),
        ("<https://example.org>", "https://example.org"),
        ("``a ` b``", "a ` b"),
        ("[https://example.org](https://example.org)", "https://example.org"),
        ("中文**粗体**。", "中文粗体。"),
        ("**注意：**请看**“这里”**。", "注意：请看“这里”。"),
        ("**un**believable", "**un**believable"),
        ("`**code**` and **bold `code`**", "**code** and bold code"),
        ("[see **this**][1]\n\n[1]: https://example.org", "see this (https://example.org)"),
        ("a &amp; b", "a & b"),
    ],
)
def test_marks_are_told_from_characters(markdown, words):
    assert render_text(markdown) == words


def test_lists_quotes_and_tables_keep_their_shape():
    markdown = (
        "1. one\n   - a\n   - b\n2. two\n\n> they\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    assert render_text(markdown) == markdown.strip()


def test_code_inside_a_list_is_code():
    assert (
        render_text("- run this:\n\n  ```sh\n  rm *a* *b*\n  ```\n")
        == "- run this:\n\n      rm *a* *b*"
    )


def test_mail_is_html_that_loads_and_runs_nothing():
    told = render_html(
        REPORT
        + "\n<script>alert(1)</script><img src=x onerror=alert(1)>\n\n[x](javascript:alert(1))\n"
    )
    assert (
        "<h1>Morning</h1>" in told
        and "<strong>Two</strong>" in told
        and 'href="https://example.org/g_1"' in told
    )
    assert "<img" not in told and "<script" not in told and 'href="javascript' not in told
    assert "<a>files</a>" in render_html("[files](file+ssh://somewhere)")
    assert "&lt;script&gt;" in told


def test_a_table_is_one_in_mail():
    assert "<td>97 %</td>" in render_html("| disk | full |\n|---|---|\n| /var | 97 % |")


def test_a_text_is_cut_between_paragraphs():
    text = "\n\n".join(["word " * 18] * 4)
    assert [len(piece) < 200 for piece in split_text(text, 200)] == [True] * 2
    assert all(piece.startswith("word") for piece in split_text(text, 200))


def test_code_that_is_cut_is_closed_and_opened_again():
    code = "```sh\n" + "\n".join(f"line {number}" for number in range(40)) + "\n```"
    pieces = split_text(code, 120)
    assert all(len(piece) <= 120 for piece in pieces) and all(
        piece.count("```") == 2 for piece in pieces
    )
    assert [line for piece in pieces for line in piece.splitlines() if line.startswith("line")] == [
        f"line {number}" for number in range(40)
    ]


@scaled_settings(300)
@given(st.text(alphabet="ab \n`~中🙂*", max_size=600), st.integers(20, 90))
def test_no_piece_is_too_long_and_no_word_gets_lost(text, limit):
    pieces = split_text(text, limit)
    assert all(len(piece) <= limit for piece in pieces)
    letters = [char for char in text if char in "ab中🙂*"]
    assert [char for piece in pieces for char in piece if char in "ab中🙂*"] == letters


@scaled_settings(200)
@given(st.text(alphabet="中a\n", max_size=300), st.integers(8, 60))
def test_pieces_may_be_measured_in_bytes(text, limit):
    assert all(
        len(piece.encode()) <= limit
        for piece in split_text(text, limit, size=lambda piece: len(piece.encode()))
    )


def test_a_chat_is_not_flooded():
    pieces = split_up_to_max_parts("word " * 5000, 100, run="01J")
    assert len(pieces) == MAX_PARTS
    assert pieces[-1].startswith("(Another ") and "agentctl inspect 01J" in pieces[-1]
