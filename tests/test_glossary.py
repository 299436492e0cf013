"""The glossary names what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_each_class_of_the_glossary_exists():
    classes = {
        node.name
        for path in (ROOT / "daemon").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    text = (ROOT / "docs" / "glossary.md").read_text()
    named = set(re.findall(r"`([A-Z]\w+)`", text))
    assert named
    assert named <= classes


def test_each_word_of_the_glossary_is_explained_once_and_in_order():
    words = re.findall(
        r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    assert words
    assert words == sorted(set(words))


def test_no_two_classes_have_one_name():
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "daemon").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
