"""The examples of docs/library.md, as tests run and check them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "library.md"


def examples() -> dict[str, str]:
    """Return the text of each example by the heading that it stands under."""
    blocks: dict[str, str] = {}
    heading, number = "", 0
    # a line that begins with # is a heading outside of code, and a comment within
    for match in re.finditer(
        r"^```(?P<kind>\w*)\n(?P<code>.*?)^```|^#+ (?P<heading>[^\n]*)",
        PAGE.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    ):
        if match["heading"] is not None:
            heading, number = match["heading"], 0
        elif match["kind"] == "python":
            number += 1
            blocks[f"{heading} {number}"] = match["code"]
    return blocks


def find_printed_lines(example: str) -> list[str]:
    """Return the lines that an example says it prints: what stands behind a `print(…)` or, where
    it prints several lines, in comments below it.
    """
    lines: list[str] = []
    for line in example.splitlines():
        if line.startswith("print(") and "  # " in line:
            lines.append(line.partition("  # ")[2])
        elif line.startswith("# "):
            lines.append(line.removeprefix("# "))
    return lines
