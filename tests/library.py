"""The examples of docs/library.md, as tests run and check them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "library.md"


def examples() -> dict[str, str]:
    """Return the text of each example by the heading that it stands under."""
    blocks: dict[str, str] = {}
    heading = ""
    for part in re.split(r"^(?=#+ )", PAGE.read_text("utf-8"), flags=re.MULTILINE):
        heading = part.partition("\n")[0].lstrip("# ")
        code_blocks = re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
        for number, block in enumerate(code_blocks, 1):
            blocks[f"{heading} {number}"] = block
    return blocks


def printed(example: str) -> list[str]:
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
