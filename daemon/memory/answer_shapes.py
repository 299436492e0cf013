"""Test whether a text has the shape of an answer to a question: a time, a number, a place.

A text without any time hardly answers "when". The test only raises texts, and excludes none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_NUMBER_WORD = r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|couple|once|twice|several|few|half"  # noqa: E501
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|since|recently|just|(?:19|20)\d\d|\d\d?(?"
    r"::\d\d|am|pm)"
    r"|(?:week(?:end)?|month|year|day|morning|afternoon|evening|night|hour|minute)s?"
    rf"|{_MONTHS}|{_DAYS})\b"
    "|[年月日天周]|星期|礼拜|昨|今|明|刚|上午|下午|晚上|早上|点钟?|小时|分钟",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    rf"\d|\b(?:{_NUMBER_WORD})\b|[零一二两三四五六七八九十百千万亿几半]", re.IGNORECASE
)
_LOCATION = re.compile(
    r"\b(?:in|at|to|from|near|around|outside|inside) (?:the |a |my |our |his |her |their "
    r")?[A-Z]\w+|[/~]\w"
    "|[在到去从往][^，。！？ ]|[省市县区镇村路街国里]"
)

# The form of a question, and the pattern of its answers; the first match decides.
_KINDS = tuple(
    (re.compile(form, re.IGNORECASE), answer_pattern)
    for form, answer_pattern in (
        (r"^when\b|\bwhen (?:did|was|is|does|will|has)\b", _TIME),
        (r"\b(?:what|which) (?:date|day|month|year|time)\b", _TIME),
        ("什么时候|什么时间|何时|哪[天年月周]|几[点号月]", _TIME),
        (r"\bhow (?:long|old|often|soon|late|many|much|far|big|tall|heavy)\b", _NUMBER),
        (r"\bwhat (?:number|percentage|share|amount)\b", _NUMBER),
        ("多久|多长时间|多少|几[个次位名台家]", _NUMBER),
        (r"^where\b|\bwhere (?:did|was|is|does|has|do|are)\b", _LOCATION),
        (
            r"\b(?:what|which) (?:country|city|town|place|state|street|folder|file|host)\b",
            _LOCATION,
        ),
        ("哪里|哪儿|在哪|何处|什么地方", _LOCATION),
    )
)


@lru_cache(maxsize=64)  # runs of one routine have the same question
def looks_like_answer(question: str) -> Callable[[str], bool] | None:
    """Return a predicate on texts for a question; None if the question has no such form."""
    for pattern, answer_pattern in _KINDS:
        if pattern.search(question):
            return lambda text: answer_pattern.search(text) is not None
    return None
