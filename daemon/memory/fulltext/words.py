"""The words by which texts stand in the full-text index and questions are looked up there, in
English and Chinese.

Deterministic, and versioned, because taking a row out of the index needs exactly the words it was
put in with.

SQLite's own tokenizer folds case, strips accents and stems regular English. What it cannot do
happens here, for texts and questions alike: width and compatibility forms become one (NFKC),
irregular English forms become their base, and a stretch of Chinese, Japanese or Korean (CJK)
becomes its overlapping pairs and single characters (a dictionary finds less, and is 40 MB). Words
that carry no content are dropped from questions only: in the index they cost time and precision,
never a hit.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

# Change it whenever a text gets other words in the index, here or in index.py: the index is
# then rebuilt.
WORDS_VERSION = 2

# A whole prompt may be the query; recall chooses the rarest of its terms.
MAX_TERMS = 400

_CJK = re.compile(
    "[\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_WORD = re.compile(r"[^\W_]+")
_LATIN_WORD = re.compile(r"([A-Za-z]{3,})")
# 37.5, 14:30, 1.2.3: both databases split them into their groups of digits.
_GROUPED_NUMBER = re.compile(r"(?<!\w)[0-9]{1,9}(?:[.,:][0-9]{1,9}){1,3}(?!\w)")
# Such a number as one word; its groups are words of their own.
JOINED_NUMBER = re.compile(r"[0-9]{1,9}(?:d[0-9]{1,9}){1,3}")

# Frequent irregular verbs and plurals. Forms that are another word as well (rose, ground, leaves)
# are left alone.
_IRREGULAR_FORMS = """
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
_BASE_FORMS = {
    form: base
    for base, *forms in (line.split() for line in re.split(r"[|\n]", _IRREGULAR_FORMS) if line)
    for form in forms
}

_STOP_WORD_LIST = """
a about above after again against all also am an and any are aren as at be because been before being below between
both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further had hadn
has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just let ll
m me more most mustn my myself no nor not now o of off on once only or other ought our ours ourselves out over own re
s same shan she should shouldn so some such t than that the their theirs them themselves then there these they this
those through to too under until up ve very was wasn we were weren what when where which while who whom whose why will
with won would wouldn you your yours yourself yourselves
"""  # noqa: E501
# Stop words that a question keeps: who asks about themselves is answered by what they said of
# themselves.
_FIRST_PERSON = frozenset(("i", "me", "my", "mine", "myself"))
_STOP_PAIR_LIST = """
什么 么是 是什 有什 叫什 为什 么样 么时 么叫 哪些 哪个 哪里 哪儿 哪年 哪几 哪位 哪种 哪一 在哪 是哪 有哪 些是
怎么 怎样 如何 多少 是多 有多 少个 几个 几年 是谁 谁是 谁的 何时 何年 何地 为何 是否 请问 我们 你们 他们 她们 它们
这个 那个 这些 那些 这里 那里 这样 那样 一个 一些 一下 时候 的是 的时 的哪 的什 的人 了什 了哪 被称 称为
因为 所以 但是 如果 可以 没有 已经 还是 或者 以及 关于 告诉 诉我 知道
"""  # noqa: E501
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
_STOP_PAIRS = frozenset(_STOP_PAIR_LIST.split())
_STOP_CHARACTERS = frozenset(
    "的了是在有和与及或等之其这那哪什么吗呢吧啊呀谁何被把对从到于而也都就还又个们我你他她它多少几怎样如为以请问吗"
)


class Query(NamedTuple):
    """A question as the index takes it."""

    terms: tuple[str, ...]
    """What to look for, the most frequent in the question first, at most MAX_TERMS; empty for a
    question without words.
    """
    words: frozenset[str]
    """Every word of the question, stop words included: names of speakers are looked up in them."""
    characters: frozenset[str]
    """The single Chinese characters but for stop characters, by which hits are ranked."""


def irregular_forms_of(word: str) -> set[str]:
    """Return the irregular forms that stand in the index as this word."""
    return {form for form, base in _BASE_FORMS.items() if base == word}


def text_for_index(text: str) -> str:
    """Return the words of a text as they go into the index, separated by blanks."""
    text = _normalize(text)
    # most texts have no irregular form, and to look for one is cheap
    if not _BASE_FORMS.keys().isdisjoint(_LATIN_WORD.findall(text.lower())):
        parts = _LATIN_WORD.split(text)  # cheaper than a function called at each word
        parts[1::2] = [_BASE_FORMS.get(word.lower(), word) for word in parts[1::2]]
        text = "".join(parts)
    text = _GROUPED_NUMBER.sub(_join_groups, text)
    return text if text.isascii() else _CJK.sub(_expand_cjk, text)


@lru_cache(maxsize=64)  # a routine asks the same each time
def query_of(question: str) -> Query:
    """Return what to look for, given a question in natural language."""
    text = _GROUPED_NUMBER.sub(_join_groups, _normalize(question)).lower()
    words, cjk_texts = _split_scripts(text)
    pairs = [pair for cjk in cjk_texts if len(cjk) > 1 for pair in _pairs_of(cjk)]
    characters = [character for cjk in cjk_texts for character in cjk]
    terms = [word for word in words if word not in _STOP_WORDS] + [
        pair for pair in pairs if pair not in _STOP_PAIRS
    ]
    if terms:
        terms += [word for word in words if word in _FIRST_PERSON]
    else:
        # Single characters stand in a fifth of all texts: they are looked for only where there is
        # nothing longer.
        terms = [character for character in characters if character not in _STOP_CHARACTERS]
    if not terms:
        terms = words + pairs + characters
    return Query(
        terms=tuple(term for term, _ in Counter(terms).most_common(MAX_TERMS)),
        words=frozenset((*words, *pairs, *characters)),
        characters=frozenset(characters) - _STOP_CHARACTERS,
    )


@lru_cache(maxsize=64)  # there are few names, and each is looked up often
def words_of(name: str) -> frozenset[str]:
    """Return the words of a name, comparable with `Query.words` of a question."""
    words, cjk_texts = _split_scripts(_normalize(name).lower())
    return frozenset(words).union(*map(_pairs_of, cjk_texts))


def _normalize(text: str) -> str:
    if text.isascii():
        return text.replace("\0", " ")
    return unicodedata.normalize("NFKC", text).replace("\0", " ").encode(errors="replace").decode()


def _split_scripts(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a text in lower case, irregular forms as their base, and its stretches of
    CJK characters.
    """
    if text.isascii():
        cjk_texts: list[str] = []
    else:
        cjk_texts = _CJK.findall(text)
        text = _CJK.sub(" ", text)
    return [_BASE_FORMS.get(word, word) for word in _WORD.findall(text)], cjk_texts


def _pairs_of(cjk: str) -> list[str]:
    """Return the overlapping pairs of characters; of a single character, itself."""
    return [cjk[index : index + 2] for index in range(len(cjk) - 1)] or [cjk]


def _join_groups(number: re.Match[str]) -> str:
    """Return a number of several groups of digits, and the same as one word."""
    one_word = re.sub("[.,:]", "d", number[0])
    return f"{number[0]} {one_word}"


def _expand_cjk(match: re.Match[str]) -> str:
    """Return the pairs and then the single characters of a stretch of CJK text, between blanks."""
    cjk = match[0]
    pairs = _pairs_of(cjk) if len(cjk) > 1 else []
    return f" {' '.join([*pairs, *cjk])} "
