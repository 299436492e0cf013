"""SECURITY.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")


def test_each_promise_is_held_by_a_test_that_exists() -> None:
    promises = PAGE.partition("## Promises")[2].partition("\n## ")[0]
    rows = [line for line in promises.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        test_match = re.search(r"`(tests/[\w/]+\.py)::(test_\w+)` \|$", row)
        assert test_match is not None, f"no test holds: {row}"
        tree = ast.parse((ROOT / test_match[1]).read_text("utf-8"))
        functions = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert test_match[2] in functions, f"{test_match[1]} has no {test_match[2]}"


def test_files_named_in_docs_security_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    files = set(re.findall(r"`((?:tests|daemon)/[\w/.-]+\.\w+)`", text))
    assert len(files) > 10
    assert [file for file in sorted(files) if not (ROOT / file).is_file()] == []


def test_links_of_the_page_lead_somewhere() -> None:
    for target, anchor in re.findall(r"\]\(([\w/.-]+)(?:#([\w-]+))?\)", PAGE):
        headings = re.findall(r"^#+ (.*)$", (ROOT / target).read_text("utf-8"), re.MULTILINE)
        anchors = {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings
        }
        assert not anchor or anchor in anchors, (target, anchor)
