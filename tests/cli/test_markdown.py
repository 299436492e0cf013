"""Reports as formatted text on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.cli.markdown import format_report
from daemon.cli.render import OutputStream, display_width, sanitize
from tests.api.harness import ApiHarness
from tests.cli.agentctl import agentctl, on_terminal


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError  # no width: 80 columns


class AsciiTerminal(Terminal):
    encoding = "ascii"  # type: ignore[assignment]


TERMINAL = OutputStream(Terminal(), {"TERM": "xterm"})
PLAIN_TERMINAL = OutputStream(Terminal(), {"NO_COLOR": "1"})
REPORT = """# Morning

All is **well**, `df` says *so*.

- one
  - [inner](https://example.org/a)
3. three

| Mount | Used |
|---|---|
| / | 45 % |

> quoted

```
if x <  y:
```
"""


def test_a_report_is_formatted_text_on_a_terminal() -> None:
    assert format_report(REPORT, TERMINAL).split("\n") == [
        "\x1b[1;4mMorning\x1b[0m",
        "",
        "All is \x1b[1mwell\x1b[0m, \x1b[36mdf\x1b[0m says \x1b[3mso\x1b[0m.",
        "",
        "• one",
        "  • \x1b[4minner\x1b[0m\x1b[2m (https://example.org/a)\x1b[0m",
        "",
        "3. three",
        "",
        "\x1b[1mMount\x1b[0m  \x1b[1mUsed\x1b[0m",
        "/      45 %",
        "",
        "\x1b[2m│\x1b[0m quoted",
        "",
        "    \x1b[36mif x <  y:\x1b[0m",
    ]
    assert "\x1b" not in format_report(REPORT, PLAIN_TERMINAL)


@pytest.mark.parametrize("stream", [io.StringIO(), AsciiTerminal()])
def test_pipes_and_terminals_outside_of_utf_8_get_the_markdown(stream: io.StringIO) -> None:
    assert format_report(REPORT, OutputStream(stream, {})) == REPORT.rstrip("\n")


def test_raw_html_is_text_and_control_characters_are_replaced() -> None:
    text = format_report(
        "<script>a</script> list<int>\n\n<div>\nb\n</div>\n\n\x1b[2Jx", PLAIN_TERMINAL
    )
    assert "<script>a</script> list<int>" in text and "<div>" in text and "\x1b" not in text


def test_long_lines_are_broken_between_words_and_chinese_between_characters() -> None:
    address = "https://example.org/" + "a" * 90
    lines = format_report(f"- {'word ' * 40}\n- {'字' * 60}\n- {address}", PLAIN_TERMINAL).split(
        "\n"
    )
    assert address in lines[-1] or address in "".join(lines)
    text_lines = [line for line in lines if "example" not in line]
    assert max(map(display_width, text_lines)) <= 80
    assert sum(line.count("字") for line in lines) == 60
    assert all(line.startswith(("• ", "  ")) for line in lines)


def test_a_table_that_is_too_wide_becomes_texts() -> None:
    wide = "word " * 20
    text = format_report(f"| a | b |\n|---|---|\n| {wide} | c |", PLAIN_TERMINAL)
    assert text.split("\n")[0] == "a | b" and max(map(len, text.split("\n"))) <= 80


@example("&#13;a&#x202e;")
@example("<https://example.org/%0d%1b[2J>")
@given(st.text(alphabet=st.sampled_from(list("ab*_`#->|[]()!~\\\n\t 字\x1b\u202e0.1<&;38x%:"))))
def test_no_text_fails_or_steers_the_terminal(text: str) -> None:
    output = format_report(text, PLAIN_TERMINAL)
    assert sanitize(output) == output


@given(st.lists(st.text(alphabet="abc字 ", min_size=1)))
def test_no_letter_of_a_text_is_lost(words: list[str]) -> None:
    text = "\n\n".join(words)
    output = format_report(text, PLAIN_TERMINAL)
    assert re.sub(r"\s", "", output) == re.sub(r"\s", "", text)


async def test_run_and_inspect_format_a_report_on_a_terminal_only(harness: ApiHarness) -> None:
    run = await harness.complete_run()
    piped_result = await agentctl(harness.path, "inspect", run.id)
    terminal_result = await on_terminal(harness.path, "inspect", run.id)
    assert piped_result.code == terminal_result.code == 0
    assert "  # All is well\n" in piped_result.out and "\x1b" not in piped_result.out
    assert (
        "  \x1b[1;4mAll is well\x1b[0m\n" in terminal_result.out
        and "# All is well" not in terminal_result.out
    )


def test_the_output_of_a_script_is_shown_as_it_is():
    text = "  PID *USER*\n# 1 root"
    assert format_report(text, TERMINAL, verbatim=True) == text
