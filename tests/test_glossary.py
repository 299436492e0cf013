"""The terms of the glossary exist in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.test_architecture import modules

ROOT = Path(__file__).parents[1]


def test_each_class_of_the_glossary_exists():
    classes = {
        node.name for module in modules() for node in module.nodes if isinstance(node, ast.ClassDef)
    }
    text = (ROOT / "docs" / "glossary.md").read_text()
    class_names = set(re.findall(r"`([A-Z]\w+)`", text))
    assert class_names
    assert class_names <= classes


def test_each_word_of_the_glossary_is_explained_once_and_in_the_order_of_its_part():
    text = (ROOT / "docs" / "glossary.md").read_text()
    parts = [
        re.findall(r"^\| \*\*(.+?)\*\* \|", part, re.MULTILINE) for part in text.split("\n## ")[1:]
    ]
    assert all(parts)
    assert parts == [sorted(words) for words in parts]
    words = [word for part in parts for word in part]
    assert len(words) == len(set(words))


def test_class_names_are_unique():
    places: dict[str, list[str]] = {}
    for module in modules():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{module.name}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
