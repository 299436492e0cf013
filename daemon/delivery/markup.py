"""Markdown for targets that show something else: as plain text, cut to a size, and with its links taken out of reach.

Reports are Markdown. What a run read from strangers may be in them: `neutral` leaves every word and no way to click on
it, and no image that a reader's program would fetch by itself. Not here: HTML, which mail.py makes with a library.
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
_REFERENCE = re.compile(r"^ {0,3}\[(?P<name>[^\]]+)\]:\s*<?(?P<address>\S+?)>?(?:\s+[\"'(].*)?$")
_AUTOLINK = re.compile(r"<(?P<address>[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*)>")
# What mail and chat programs make clickable by themselves.
_BARE = re.compile(r"(?i)\b(?P<scheme>https?|ftp|mailto|tel|file|smb|javascript|data)(?P<colon>:)(?=\S)|\bwww\.(?=\S)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
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


def neutral(markdown: str) -> str:
    """Return the text with every link and image as words that no program follows, and no HTML.

    Addresses stay readable, as `hxxps://…`: a person may want to know where it pointed. Code is left as it is, but for
    addresses: some programs make those clickable even there.
    """
    return "\n".join(_disarmed(line) for line, _ in _lines(markdown)) + ("\n" if markdown.endswith("\n") else "")


def _disarmed(line: str) -> str:
    if reference := _REFERENCE.match(line):
        return f"({_tame(reference['name'])}: {_tame(reference['address'])})"
    while (told := _LINK.sub(_link_disarmed, line)) != line:  # an image inside a link
        line = told
    line = _AUTOLINK.sub(lambda found: _tame(found["address"]), line)
    return _TAG.sub("‹", _tame(line))


def _link_disarmed(found: re.Match[str]) -> str:
    text, address = found["text"].strip(), _tame(found["address"])
    kind = "image" if found["image"] else "link"
    return f"{text} ({kind} to {address})" if address else text


def _tame(text: str) -> str:
    return _BARE.sub(_unclickable, text)


def _unclickable(found: re.Match[str]) -> str:
    if not found["scheme"]:
        return "www[.]"
    scheme = found["scheme"].replace("tt", "xx").replace("TT", "XX")
    return f"{scheme}[:]" if scheme == found["scheme"] else f"{scheme}:"


def parts(text: str, limit: int, size: Callable[[str], int] = len) -> list[str]:
    """Return the text in pieces that `size` measures as at most `limit`, cut where a reader would cut it.

    Between paragraphs if that fills half a piece, else between lines, else between words, else anywhere. Code that is
    cut is closed and opened again.
    """
    found: list[str] = []
    rest = text.strip("\n")
    while rest and size(rest) > limit:
        piece, rest = _cut(rest, limit, size)
        found.append(piece)
    return [*found, rest] if rest or not found else found


# A chat that gets more messages than that at a time is no place to read in.
MOST_PARTS = 10


def some_parts(text: str, limit: int, *, size: Callable[[str], int] = len, run: str = "") -> list[str]:
    """Return the parts of a text, or the first ones of very many with a word on the rest."""
    found = parts(text, limit, size)
    if len(found) <= MOST_PARTS:
        return found
    left = sum(map(len, found[MOST_PARTS - 1 :]))
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
