"""Text as the index knows it, in English and Chinese.

Deterministic, and versioned, because taking a row out of the index needs exactly the words it was
put in with.

SQLite's own tokenizer folds case, strips accents and stems regular English. What it cannot do
happens here, on both sides: width and compatibility forms become one (NFKC), irregular English
forms become their base, and a run of Chinese, Japanese or Korean becomes its overlapping pairs and
single characters (a dictionary finds less, and is 40 MB). Words that carry no content are dropped
from the query only; what they cost is time and precision, never recall.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

# Change it whenever a text gets other words in the index, here or in memory/index.py: the index is
# then rebuilt.
VERSION = 2

# A whole prompt may be the query; recall chooses the rarest of its terms.
MAX_TERMS = 400

_CJK = re.compile(
    (  # noqa: UP034
        "[\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
    )
)
_WORD = re.compile(r"[^\W_]+")
_LATIN = re.compile(r"([A-Za-z]{3,})")
# 37.5, 14:30, 1.2.3: both databases split them into their groups of digits.
_GROUPED_NUMBER = re.compile(r"(?<!\w)[0-9]{1,9}(?:[.,:][0-9]{1,9}){1,3}(?!\w)")

# Frequent irregular verbs and plurals. Forms that are another word as well (rose, ground, leaves)
# are left alone.
_FORMS = """
begin began begun|bite bit bitten|blow blew blown|break broke broken|bring brought|build built|burn burnt|buy bought
catch caught|choose chose chosen|come came|deal dealt|draw drew drawn|dream dreamt|drink drank drunk|drive drove driven
eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought|find found|fly flew flown|forget forgot forgotten
forgive forgave forgiven|freeze froze frozen|get got gotten|give gave given|go went gone goes|grow grew grown|hang hung
hear heard|hide hid hidden|hold held|keep kept|know knew known|lead led|learn learnt|leave left|lend lent|lose lost
make made|mean meant|meet met|pay paid|ride rode ridden|ring rang rung|rise risen|run ran|say said|see saw seen
seek sought|sell sold|send sent|shake shook shaken|shine shone|shoot shot|show shown|shrink shrank shrunk|sing sang sung
sink sank sunk|sit sat|sleep slept|speak spoke spoken|spend spent|stand stood|steal stole stolen|stick stuck
strike struck|swear swore sworn|sweep swept|swim swam swum|swing swung|take took taken|teach taught|tear tore torn
tell told|think thought|throw threw thrown|understand understood|wake woke woken|wear wore worn|weep wept|win won
write wrote written|child children|man men|woman women|person people|foot feet|tooth teeth|mouse mice|goose geese
wife wives|knife knives|shelf shelves|wolf wolves|half halves|good better best|bad worse worst
"""  # noqa: E501
_BASE = {
    form: base
    for base, *forms in (line.split() for line in re.split(r"[|\n]", _FORMS) if line)
    for form in forms
}

_STOP_WORDS = """
a about above after again against all also am an and any are aren as at be because been before being below between
both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further had hadn
has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just let ll
m me more most mustn my myself no nor not now o of off on once only or other ought our ours ourselves out over own re
s same shan she should shouldn so some such t than that the their theirs them themselves then there these they this
those through to too under until up ve very was wasn we were weren what when where which while who whom whose why will
with won would wouldn you your yours yourself yourselves
"""  # noqa: E501
# Not left out of a question: who asks about themselves is answered by what they said of themselves.
_FIRST_PERSON = frozenset(("i", "me", "my", "mine", "myself"))
_STOP_CHINESE = """
什么 么是 是什 有什 叫什 为什 么样 么时 么叫 哪些 哪个 哪里 哪儿 哪年 哪几 哪位 哪种 哪一 在哪 是哪 有哪 些是
怎么 怎样 如何 多少 是多 有多 少个 几个 几年 是谁 谁是 谁的 何时 何年 何地 为何 是否 请问 我们 你们 他们 她们 它们
这个 那个 这些 那些 这里 那里 这样 那样 一个 一些 一下 时候 的是 的时 的哪 的什 的人 了什 了哪 被称 称为
因为 所以 但是 如果 可以 没有 已经 还是 或者 以及 关于 告诉 诉我 知道
"""  # noqa: E501
_STOP = frozenset(_STOP_WORDS.split())
_STOP_PAIRS = frozenset(_STOP_CHINESE.split())
_STOP_CHARACTERS = frozenset(
    (  # noqa: UP034
        "的了是在有和与及或等之其这那哪什么吗呢吧啊呀谁何被把对从到于而也都就还又个们我你他她它多少几怎样如为以请问吗"
    )
)


class Query(NamedTuple):
    """A question as the index takes it."""

    terms: tuple[str, ...]
    """What to look for; empty for a question without words."""
    words: frozenset[str]
    """Every word of the question, stop words included: names of speakers are looked up in them."""
    characters: frozenset[str]
    """The single Chinese characters but for stop characters, by which hits are ranked."""


def index_text(text: str) -> str:
    """Return the words of a text as they go into the index, separated by blanks."""
    text = _normal(text)
    # most texts have none, and looking is cheap
    if not _BASE.keys().isdisjoint(_LATIN.findall(text.lower())):
        parts = _LATIN.split(text)  # cheaper than a function called at each word
        parts[1::2] = [_BASE.get(word.lower(), word) for word in parts[1::2]]
        text = "".join(parts)
    text = _GROUPED_NUMBER.sub(_add_joined, text)
    return text if text.isascii() else _CJK.sub(_pairs_and_characters, text)


@lru_cache(maxsize=64)  # a routine asks the same each time
def query(text: str) -> Query:
    """Return what to look for, given a question in anybody's words."""
    text = _GROUPED_NUMBER.sub(_add_joined, _normal(text)).lower()
    runs: list[str] = [] if text.isascii() else _CJK.findall(text)
    words = [_BASE.get(word, word) for word in _WORD.findall(_CJK.sub(" ", text) if runs else text)]
    pairs = [run[index : index + 2] for run in runs for index in range(len(run) - 1)]
    characters = [character for run in runs for character in run]
    terms = [word for word in words if word not in _STOP] + [
        pair for pair in pairs if pair not in _STOP_PAIRS
    ]
    if terms:
        terms += [word for word in words if word in _FIRST_PERSON]
    # Single characters stand in a fifth of all texts: they are asked for only where nothing longer
    # is.
    if not terms:
        terms = [character for character in characters if character not in _STOP_CHARACTERS]
    if not terms:
        terms = words + pairs + characters
    return Query(
        terms=tuple(term for term, _ in Counter(terms).most_common(MAX_TERMS)),
        words=frozenset((*words, *pairs, *characters)),
        characters=frozenset(characters) - _STOP_CHARACTERS,
    )


def any_of(terms: Iterable[str]) -> str:
    """Return the FTS5 expression for any of the terms: quoted, so that nothing in them is
    syntax.
    """
    return " OR ".join(f'"{term}"' for term in terms)


@lru_cache(maxsize=64)  # there are few names, and each is looked up often
def words(text: str) -> frozenset[str]:
    """Return the words of a name, comparable with those of a question."""
    text = _normal(text).lower()
    runs: list[str] = [] if text.isascii() else _CJK.findall(text)
    names = {_BASE.get(word, word) for word in _WORD.findall(_CJK.sub(" ", text) if runs else text)}
    return frozenset(names.union(*map(_split, runs)))


def estimate(text: str) -> int:
    """Return about how many tokens a text has: 4 characters each in ASCII, else one character each,
    which is more than models count for Chinese.
    """
    if text.isascii():
        return len(text) // 4 + 1
    other_characters = len(text) - len(text.encode("ascii", "ignore"))
    return (len(text) - other_characters) // 4 + other_characters + 1


def _normal(text: str) -> str:
    if text.isascii():
        return text.replace("\0", " ")
    return unicodedata.normalize("NFKC", text).replace("\0", " ").encode(errors="replace").decode()


def _split(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(len(run) - 1)] or [run]


def _add_joined(number: re.Match[str]) -> str:
    """Return a number of several groups of digits, and the same as one word."""
    return f"{number[0]} {re.sub('[.,:]', 'd', number[0])}"


def _pairs_and_characters(run: re.Match[str]) -> str:
    text = run[0]
    return f" {' '.join([*(text[index : index + 2] for index in range(len(text) - 1)), *text])} "
