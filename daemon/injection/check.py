# ruff: noqa: E501 - a phrase is read as one line
"""Say whether a tool's result tries to give orders.

Signs add up within a window, each kind once, so that a long page is not condemned for what stands far apart. The text
is read as it stands and, where there is reason to, with its disguises taken off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, TypeAlias

from daemon.injection import plain
from daemon.injection.chinese import CHINESE, simplified
from daemon.injection.english import BLOCK, ENGLISH, REVIEW, WARN, Sign
from daemon.injection.marks import marked
from daemon.injection.others import JOINED, OTHERS

# What the tools that ship with us bring in from outside. Those of users and servers are outside altogether.
_OUTSIDE = frozenset(["shell", "git", "file_read", "file_write", "http_request", "web_search", "script", "subagent"])
_OURS = frozenset(
    [
        "memory_store",
        "memory_recall",
        "memory_forget",
        "memory_expand",
        "skill",
        "self_info",
        "config",
        "routine",
        "sysinfo",
        "file_list",
        "finish",
    ]
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found in a text, and what should become of it."""

    reason: str = ""
    """Which signs, for a person."""
    excerpt: str = ""
    """The words around them, as they were read."""
    level: ClassVar[str]


class Block(Finding):
    """Orders to an agent: the model must not see it."""

    level = "block"


class Review(Finding):
    """Suspicious: the model sees it, and nothing that it does afterwards is trusted."""

    level = "review"


class Warn(Finding):
    """Worth a line in the log."""

    level = "warn"


class Pass(Finding):
    """Nothing."""

    level = "pass"


Detector: TypeAlias = Callable[[str, str], "Finding | str | None"]
"""One of the user's own: given the tool and its result, the level it would give (or its name)."""
_LEVELS: tuple[type[Finding], ...] = (Pass, Warn, Review, Block)


def needs_injection_check(tool: str) -> bool:
    """Tell whether a tool's results come from outside; those of our own memory and clock do not."""
    return tool in _OUTSIDE or tool not in _OURS


def check_tool_result(tool: str, text: str, detector: Detector | None = None) -> Finding:
    """Return Block, Review, Warn or Pass for one result; the stricter of our own opinion and the detector's."""
    if not needs_injection_check(tool):
        return Pass()
    found = examine(text)
    if detector is not None:
        found = max(found, _opinion(detector(tool, text)), key=lambda each: _LEVELS.index(type(each)))
    return found


def _opinion(said: Finding | str | None) -> Finding:
    if isinstance(said, Finding):
        return said
    for kind in _LEVELS:
        if said == kind.level:
            return kind("your own detector says so") if kind is not Pass else Pass()
    return Pass()


def examine(text: str) -> Finding:
    """Return what a text from outside deserves, whatever tool brought it."""
    best: Finding = Pass()
    points = 0
    for how, reading in _readings(text):
        score, finding = _judged(reading, how)
        if score > points:
            best, points = finding, score
        if points >= BLOCK:
            break
    return best


# --- readings ------------------------------------------------------------------------------------------

_STEMS = (
    "ignore disregard forget override bypass instructions instruction previous prompt prompts directives guidelines system"
    " prior unrestricted reveal password developer commands restrictions assistant everything above earlier rules forward"
)
_VOCABULARY = frozenset(word for word in _STEMS.split() if len(word) >= 5)


@cache
def _ciphered() -> dict[str, str]:
    """Return our vocabulary in every simple cipher, each word with the way back."""
    {f"rot{by}": (lambda text, by=by: plain.rotated(text, by)) for by in range(1, 26)}
    return (
        {plain.rotated(word, by): f"{26 - by}" for word in _VOCABULARY for by in range(1, 26)}
        | {plain.mirrored(word): "mirrored" for word in _VOCABULARY}
        | {word[::-1]: "reversed" for word in _VOCABULARY}
    )


def _readings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the text with ever more of its disguises taken off, each with how it was read."""
    if hidden := plain.smuggled(text):
        yield "hidden in Unicode tags", f"zqchat {hidden.lower()} ignore your instructions"
    open_text = plain.unescaped(text)
    folded = plain.folded(open_text)
    yield "", folded
    if (latin := plain.unmixed(folded)) != folded:
        yield "in look-alike letters", latin
    for said in plain.decoded(open_text):
        yield "encoded", plain.folded(plain.unescaped(said))
    words = re.findall(r"[^\W_]+", latin)
    yield from _rewritten(latin, words)


def _rewritten(text: str, words: list[str]) -> Iterator[tuple[str, str]]:
    if sum(len(word) == 1 for word in words) >= 8:
        rows = " ".join(plain.rows_of_letters(text))
        if rows:
            yield "letter by letter", f"zqrow {rows}"
    present = frozenset(words)
    ways = _ciphered()
    hits: dict[str, int] = {}
    for word in present & ways.keys():
        hits[ways[word]] = hits.get(ways[word], 0) + 1
    for way, count in hits.items():
        if count >= 2:
            yield "in a cipher", _deciphered(text, way)
    if any(char in text for char in "0134579@$"):
        for read in plain.unleeted(text):
            if len(_VOCABULARY & set(re.findall(r"[a-z]+", read))) >= 1 + len(_VOCABULARY & present):
                yield "in digits for letters", read


def _deciphered(text: str, way: str) -> str:
    if way == "reversed":
        return "\n".join(line[::-1] for line in reversed(text.split("\n")))
    return plain.mirrored(text) if way == "mirrored" else plain.rotated(text, int(way))


# --- points --------------------------------------------------------------------------------------------

_WINDOW = 700  # characters within which signs belong together
_BETWEEN = re.compile(r"(?:[^\w.!?:;]|_)+")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_ROW = re.compile(
    r"(?:ignor|disregard|forget|overrid|bypass)e?(?:all|any|the|every|everything|my|your|these|of|safety)*"
    r"(?:previous|prior|above|earlier|preceding|former|system|your|existing|original|initial|safety|all|the)*"
    r"(?:instruction|prompt|directive|guideline|rule|command|order|restriction|everything|above)"
    r"|(?:reveal|print|show|leak)(?:me|us)?(?:your|the)(?:system|hidden|secret|initial)*(?:prompt|instructions)|youarenow(?:dan|an?unrestricted|in)"
    r"|(?:忽略|无视|忘记|忘掉)(?:之前|以上|此前|先前|上面|前面|你|的|所有|一切|全部)*(?:指令|指示|提示|命令|规则|设定)"
)


def _judged(text: str, how: str) -> tuple[int, Finding]:
    """Return the points of the worst window of a reading, and what they mean."""
    hits = sorted(_hits(text))
    worst, kinds, at = 0, {}, 0
    for first, (begin, _, _) in enumerate(hits):
        best: dict[str, int] = {}
        for place, name, points in hits[first:]:
            if place - begin > _WINDOW:
                break
            best[name] = max(best.get(name, 0), points)
        if sum(best.values()) > worst:
            worst, kinds, at = sum(best.values()), best, begin
    if how and worst >= WARN:
        worst += 4  # nobody disguises what is harmless
    level = Block if worst >= BLOCK else Review if worst >= REVIEW else Warn if worst >= WARN else Pass
    if level is Pass:
        return worst, Pass()
    names = ", ".join(sorted(kinds, key=lambda name: -kinds[name]))
    prose = _prose(text)
    return worst, level(f"{names}{f' ({how})' if how else ''}", prose[max(0, at - 20) : at + 200].strip())


def _prose(text: str) -> str:
    return _BETWEEN.sub(" ", marked(text).replace("'", "").replace("\u2019", ""))


def _hits(text: str) -> Iterator[tuple[int, str, int]]:
    prose = _prose(text)
    words = frozenset(re.findall(r"[^\W_]+", prose))
    for sign in (*ENGLISH, *OTHERS):
        if not sign.words.isdisjoint(words):
            yield from _of(sign, prose)
    if "zqrow" in words or "ignore" in prose.replace(" ", ""):
        for match in _ROW.finditer(prose if "zqrow" in words else ""):
            yield match.start(), "override", 10
    if prose.isascii():
        return
    for stems, sign in JOINED:
        if any(stem in prose for stem in stems):
            yield from _of(sign, prose)
    if _CHINESE.search(prose):
        dense = simplified(marked(text))
        for sign in CHINESE:
            yield from _of(sign, dense)


def _of(sign: Sign, prose: str) -> Iterator[tuple[int, str, int]]:
    for match in sign.pattern.finditer(prose):
        if points := sign.weigh(match) if sign.weigh else sign.points:
            yield match.start(), sign.name, points
