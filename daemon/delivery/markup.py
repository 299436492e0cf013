"""Markdown for targets that show something else: as plain text, and cut to a size.

Not here: HTML, which apprise.py makes with a library; links that are not to be followed, which neutral.py breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_HEADING = re.compile(r"^ {0,3}(?P<level>#{1,6})[ \t]+(?P<text>.*?)[ \t]*#*$")
_CODE = re.compile(r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)")
# [text](address "title"), with an ! before it an image; one level of brackets or parentheses may be inside
_LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]"
    r"\(\s*<?(?P<address>(?:[^\s()<>]|\([^\s()]*\))*)>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
)
_AUTOLINK = re.compile(r"<(?P<address>[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*)>")
# Not within words of Latin letters and digits: snake_case, 2*3*4. Chinese writes no spaces around its bold.
_STRONG = re.compile(
    r"(?<![A-Za-z0-9*_\\])(\*{1,3}|_{1,3})(?=\S)(?P<text>(?:(?!\1).)+?)(?<=[^\s\\])\1(?![A-Za-z0-9*_])"
)
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def plain(markdown: str) -> str:
    """Return the text without its marks: headings underlined, links followed by their address, code as it is."""
    return "\n".join(_plain_lines(markdown))


def _plain_lines(markdown: str) -> Iterator[str]:
    for line, in_code in _lines(markdown):
        if in_code is None:
            continue  # the fence itself
        if in_code:
            yield f"    {line}"
        elif heading := _HEADING.match(line):
            text = _spans(heading["text"])
            yield text
            yield ("=" if len(heading["level"]) == 1 else "-") * min(len(text), 78)
        else:
            yield _spans(line)


def _lines(markdown: str) -> Iterator[tuple[str, bool | None]]:
    """Yield each line and whether it is code; None for the fence around it."""
    fence = ""
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if fence:
            closes = found and not found["info"].strip() and found["mark"].startswith(fence)
            yield line, None if closes else True
            fence = "" if closes else fence
        elif found:
            fence = found["mark"]
            yield line, None
        else:
            yield line, False


def _spans(line: str) -> str:
    """Return a line without the marks inside it; code spans keep every character."""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(found["code"].strip())
        return f"\0{len(kept) - 1}\0"

    text = _CODE.sub(keep, line.replace("\0", ""))
    text = _LINK.sub(_link_in_words, text)
    text = _AUTOLINK.sub(lambda found: found["address"], text)
    for _ in range(3):  # ***bold and italic***, *one **in** another*
        text = _STRONG.sub(lambda found: found["text"], text)
    text = _ESCAPE.sub(r"\1", text)
    return re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], text)


def _link_in_words(found: re.Match[str]) -> str:
    text, address = found["text"].strip(), found["address"]
    return text if not address or text == address else f"{text} ({address})" if text else address


def parts(text: str, limit: int, size: Callable[[str], int] = len) -> list[str]:
    """Return the text in pieces that `size` measures as at most `limit`, cut where a reader would cut it.

    Between paragraphs if that fills half a piece, else between lines, else between words, else anywhere. Code that is
    cut is closed and opened again.
    """
    found, rest = _first_parts(text, limit, size, None)
    return [*found, rest] if rest or not found else found


def beginning(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Return the first part."""
    found, rest = _first_parts(text, limit, size, 1)
    return found[0] if found else rest


def _first_parts(text: str, limit: int, size: Callable[[str], int], most: int | None) -> tuple[list[str], str]:
    """Return the first parts of a text that is too long, and the rest: to measure what nobody gets may take long."""
    found: list[str] = []
    rest = text.strip("\n")
    # nothing is measured as less than half of what it is, so much of a long text need not be measured at all
    while rest and (len(rest) > 2 * limit + 100 or size(rest) > limit) and (most is None or len(found) < most):
        piece, rest = _cut(rest, limit, size)
        found.append(piece)
    return found, rest


# A chat that gets more messages than that at a time is no place to read in.
MOST_PARTS = 10


def some_parts(text: str, limit: int, *, size: Callable[[str], int] = len, run: str = "") -> list[str]:
    """Return the parts of a text, or the first ones of very many with a word on the rest."""
    found, rest = _first_parts(text, limit, size, MOST_PARTS)
    if not rest or (len(found) < MOST_PARTS and size(rest) <= limit):
        return [*found, rest] if rest or not found else found
    left = len(rest) + sum(map(len, found[MOST_PARTS - 1 :]))
    told = f"(Another {left} characters do not fit here." + (f" `agentctl inspect {run}` shows them.)" if run else ")")
    return [*found[: MOST_PARTS - 1], told]


_PLACES = ("\n\n", "\n", " ")


def _cut(text: str, limit: int, size: Callable[[str], int]) -> tuple[str, str]:
    """Return the first piece and what is left, which is always less than before."""
    most = _fits(text, limit, size)
    end = next((at for mark in _PLACES if (at := text.rfind(mark, most // 2, most + 1)) > 0), most)
    piece, fence = _closed(text[:end])
    rest = text[end:].lstrip("\n ") if end < most or not fence else text[end:]
    if fence and len(fence) + 1 + len(rest) < len(text) and size(piece) <= limit:
        return piece, f"{fence}\n{rest.lstrip(chr(10))}"
    return text[:end].rstrip("\n") or text[:most], rest if text[:end].rstrip("\n") else text[most:]


def _fits(text: str, limit: int, size: Callable[[str], int]) -> int:
    """Return how many characters at most fit with the code in them closed, and at least one."""
    low, high = 1, min(len(text), 2 * limit + 100)  # nothing is measured as less than half of what it is
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(_closed(text[:middle])[0]) <= limit else (low, middle - 1)
    return low


def _closed(text: str) -> tuple[str, str]:
    """Return a piece with its code closed, and the mark it was closed with."""
    piece = text.rstrip("\n")
    fence = _open_fence(piece)
    return (f"{piece}\n{fence}" if fence else piece), fence


def _open_fence(text: str) -> str:
    """Return the mark of the code block that is open at the end of a text; empty if none is."""
    mark = ""
    for line in text.splitlines():
        if found := _FENCE.match(line):
            if not mark:
                mark = found["mark"]
            elif not found["info"].strip() and found["mark"].startswith(mark):
                mark = ""
    return mark
