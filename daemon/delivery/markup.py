"""Markdown for targets that show something else: as plain text, as HTML for mail, and cut to a
size.

markdown-it-py reads it by the rules of CommonMark. Not here: links that must not be followed, which
sanitize.py breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.tree import SyntaxTreeNode

_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_UNDERLINE = 78  # characters at most under a heading
_MAIL_LINKS = ("http://", "https://", "mailto:")


def plain(markdown: str) -> str:
    """Return the text without its marks: headings underlined, links followed by their address, code
    indented.
    """
    from markdown_it.tree import SyntaxTreeNode

    try:
        return "\n".join(_block_lines(SyntaxTreeNode(_parser().parse(markdown)).children))
    except RecursionError:  # hundreds of marks inside each other: nobody writes that to be read
        return markdown


def html(markdown: str) -> str:
    """Return Markdown as HTML for mail: it loads and runs nothing, and its links lead to the web or
    to a mailbox.
    """
    parser = _parser(for_mail=True)
    tokens = parser.parse(markdown)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open" and not str(child.attrs.get("href")).lower().startswith(
                _MAIL_LINKS
            ):
                child.attrs.clear()
    return str(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser(*, for_mail: bool = False) -> MarkdownIt:
    """Return a parser of CommonMark to which raw HTML is text; for mail it reads tables, and images
    as links.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    parser.inline.ruler.at("emphasis", _scan_emphasis)
    if for_mail:  # a mail program would fetch an image, and tell a stranger that the mail was read
        parser.enable("table").disable("image")
    return parser


def _scan_emphasis(state: StateInline, silent: bool) -> bool:
    """Read marks of emphasis, the rule `emphasis` of markdown-it, with two departures from
    CommonMark.

    Inside a word of ASCII letters and digits nothing is marked: `2*3*4` keeps its signs. And beside
    a character that is not ASCII a mark opens or closes whatever stands on its other side, as
    Chinese has no spaces: `**注意：**请`.
    """
    from markdown_it.rules_inline.state_inline import Delimiter

    mark = state.src[state.pos]
    if silent or mark not in "*_":
        return False
    scanned = state.scanDelims(state.pos, mark == "*")
    end = state.pos + scanned.length
    before = state.src[state.pos - 1] if state.pos else " "
    after = state.src[end] if end < state.posMax else " "
    can_open, can_close = scanned.can_open, scanned.can_close
    if mark == "*" and not (before.isascii() and after.isascii()):
        can_open, can_close = not after.isspace(), not before.isspace()
    can_open = can_open and not (before.isascii() and before.isalnum())
    can_close = can_close and not (after.isascii() and after.isalnum())
    for _ in range(scanned.length):
        state.push("text", "", 0).content = mark
        token = len(state.tokens) - 1
        state.delimiters.append(
            Delimiter(
                marker=ord(mark),
                length=scanned.length,
                token=token,
                end=-1,
                open=can_open,
                close=can_close,
            )
        )
    state.pos = end
    return True


def _block_lines(blocks: Sequence[SyntaxTreeNode]) -> list[str]:
    """Return blocks as lines of text, with an empty line between two of them except in a tight
    list.
    """
    lines: list[str] = []
    for number, block in enumerate(blocks):
        if number and not _is_tight(blocks[number - 1]):
            lines.append("")
        match block.type:
            case "heading":
                text = _inline_text(block)
                lines += [text, ("=" if block.tag == "h1" else "-") * min(len(text), _UNDERLINE)]
            case "fence" | "code_block":
                lines += [f"    {line}" for line in block.content.splitlines()]
            case "blockquote":
                lines += [f"> {line}".rstrip() for line in _block_lines(block.children)]
            case "bullet_list" | "ordered_list":
                lines += _block_lines(block.children)
            case "list_item":
                mark = f"{block.info}{block.markup} "
                inside = _block_lines(block.children) or [""]
                lines += [
                    f"{mark}{inside[0]}",
                    *(f"{' ' * len(mark)}{line}".rstrip() for line in inside[1:]),
                ]
            case "hr":
                lines.append("---")
            case _:
                lines += _inline_text(block).split("\n")
    return lines


def _is_tight(block: SyntaxTreeNode) -> bool:
    """Return whether what follows a block stands on the very next line."""
    if block.type == "list_item":
        return not block.children or _is_tight(block.children[0])
    return block.type == "paragraph" and block.hidden


def _inline_text(node: SyntaxTreeNode) -> str:
    """Return the text inside a block, a link or an emphasis."""
    parts: list[str] = []
    for child in node.children:
        match child.type:
            case "link" | "image":
                text = _inline_text(child)
                address = str(child.attrs.get("href") or child.attrs.get("src") or "")
                is_same = (
                    not address or child.info == "auto" or _parser().normalizeLink(text) == address
                )
                parts.append(text if is_same else f"{text} ({address})" if text else address)
            case "softbreak" | "hardbreak":
                parts.append("\n")
            case _:
                parts.append(_inline_text(child) if child.children else child.content)
    return "".join(parts).strip()


def parts(text: str, limit: int, size: Callable[[str], int] = len) -> list[str]:
    """Return the text in pieces that `size` measures as at most `limit`, cut where a reader would
    cut it.

    Between paragraphs if that fills half a piece, else between lines, else between words, else
    anywhere. Code that is cut is closed and opened again.
    """
    found, rest = _first_parts(text, limit, size, None)
    return [*found, rest] if rest or not found else found


def beginning(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Return the first part."""
    found, rest = _first_parts(text, limit, size, 1)
    return found[0] if found else rest


def _first_parts(
    text: str, limit: int, size: Callable[[str], int], most: int | None
) -> tuple[list[str], str]:
    """Return the first parts of a text that is too long, and the rest: to measure what nobody gets
    may take long.
    """
    found: list[str] = []
    rest = text.strip("\n")
    # nothing is measured as less than half of what it is, so much of a long text need not be
    # measured at all
    while (
        rest
        and (len(rest) > 2 * limit + 100 or size(rest) > limit)
        and (most is None or len(found) < most)
    ):
        piece, rest = _cut(rest, limit, size)
        found.append(piece)
    return found, rest


# A chat that gets more messages than that at a time is no place to read in.
MOST_PARTS = 10


def some_parts(
    text: str, limit: int, *, size: Callable[[str], int] = len, run: str = ""
) -> list[str]:
    """Return the parts of a text, or the first ones of very many with a word on the rest."""
    found, rest = _first_parts(text, limit, size, MOST_PARTS)
    if not rest or (len(found) < MOST_PARTS and size(rest) <= limit):
        return [*found, rest] if rest or not found else found
    left = len(rest) + sum(map(len, found[MOST_PARTS - 1 :]))
    told = f"(Another {left} characters do not fit here." + (
        f" `agentctl inspect {run}` shows them.)" if run else ")"
    )
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
    low, high = (
        1,
        min(len(text), 2 * limit + 100),
    )  # nothing is measured as less than half of what it is
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if size(_closed(text[:middle])[0]) <= limit else (low, middle - 1)
        )
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
