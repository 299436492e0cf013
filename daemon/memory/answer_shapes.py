"""Test whether a text has the shape of an answer to a question: a time, a number, a place.

The shapes and the patterns of questions are in answer_shapes.toml. The test only moves a text up in
the hits of a search; it excludes none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path


@cache
def _load_questions() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    """Return the patterns of questions, each with the pattern of its answers."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    shapes: dict[str, re.Pattern[str]] = {}
    for name, pattern in data["shapes"].items():
        for list_name, words in data["words"].items():
            pattern = pattern.replace(f"<{list_name}>", "|".join(words.split()))
        # a name of a place begins with a capital
        flags = 0 if name == "place" else re.IGNORECASE
        shapes[name] = re.compile(pattern.replace("\n", ""), flags)
    return tuple(
        (re.compile(question["pattern"], re.IGNORECASE), shapes[question["shape"]])
        for question in data["question"]
    )


@lru_cache(maxsize=64)  # runs of one routine have the same question
def make_answer_test(question: str) -> Callable[[str], bool] | None:
    """Return a function that tells whether a text has the shape of an answer to this question; None
    if the question asks for none of the shapes.
    """
    for question_pattern, answer_pattern in _load_questions():
        if question_pattern.search(question):
            return lambda text: answer_pattern.search(text) is not None
    return None
