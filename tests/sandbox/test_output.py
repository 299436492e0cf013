"""Of long output both ends are kept as readable text in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.sandbox.output import BoundedOutput, decode_readable
from tests.properties import scaled_settings


def collect(data: bytes, limit: int, piece: int = 7) -> BoundedOutput:
    output = BoundedOutput(limit)
    for at in range(0, len(data), piece):
        output.add(data[at : at + piece])
    return output


@scaled_settings(100)
@given(st.text(alphabet="ab\n日é", max_size=60), st.integers(1, 80), st.integers(1, 9))
def test_output_within_the_limit_is_unchanged(text: str, limit: int, piece: int) -> None:
    data = text.encode()
    output = collect(data, limit, piece)
    assert output.size == len(data)
    if len(data) <= limit // 2 * 2:
        assert output.text() == text


@scaled_settings(100)
@given(st.binary(min_size=50, max_size=400), st.integers(2, 40), st.integers(1, 500))
def test_output_over_the_limit_keeps_both_ends_and_counts_the_cut_bytes(
    data: bytes, limit: int, piece: int
) -> None:
    output = collect(data, limit, piece)
    text = output.text()
    assert "bytes cut from the middle" in text
    assert len(output._head) + len(output._tail) <= limit // 2 + max(2 * limit, piece) + 2


def test_output_is_cut_between_lines_and_between_characters() -> None:
    data = b"".join(b"line %d\n" % number for number in range(100))
    head, _, tail = collect(data, 100).text().partition("[…")
    assert head == "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\n"
    assert tail.endswith("line 98\nline 99\n")
    wide = collect("日本語".encode() * 100, 50).text()
    assert "\\x" not in wide


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        ("日报 é".encode(), "日报 é"),
        (b"caf\xe9", "caf\\xe9"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"10%\r20%", "10%\n20%"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"a\x1bPq#0;2;0\x1b\\b", "ab"),
        (b"a\x1b_Gf=24\x1b\\b", "ab"),
        (b"a\0b\x07", "a\\x00b\\x07"),
        (b"\xc2\x9b31m", "\\x9b31m"),
    ],
)
def test_output_bytes_become_text_without_terminal_sequences(data: bytes, text: str) -> None:
    assert decode_readable(data) == text


@pytest.mark.parametrize("kind", "]PX^_")
def test_a_terminal_sequence_without_end_hides_no_output_behind_it(kind: str) -> None:
    data = f"\x1b{kind}0;title\nimportant line\n\x1b[1msecond\x07\n".encode()
    assert decode_readable(data) == "0;title\nimportant line\nsecond\\x07\n"
