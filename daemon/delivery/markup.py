"""Convert the Markdown of a report for its target: to plain text, to HTML for mail, and into pieces
of a limited size.

markdown-it-py parses it by the rules of CommonMark. Not here: links that must not be followed,
which sanitize.py breaks.
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


def render_text(markdown: str) -> str:
    """Return Markdown as plain text: headings underlined, links followed by their address, code
    indented.
    """
    from markdown_it.tree import SyntaxTreeNode

    try:
        return "\n".join(_block_lines(SyntaxTreeNode(_parser().parse(markdown)).children))
    except RecursionError:  # hundreds of nested quotes or lists: not written for a reader
        return markdown


def render_html(markdown: str) -> str:
    """Return Markdown as HTML for mail, which loads and runs nothing; links that lead elsewhere
    than to the web or a mailbox lose their address.
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
    """Return a parser of CommonMark that treats raw HTML as text; for mail it reads tables, and no
    images.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    parser.inline.ruler.at("emphasis", _scan_emphasis)
    if for_mail:  # fetching an image would tell its server that the mail was read
        parser.enable("table").disable("image")
    return parser


def _scan_emphasis(state: StateInline, silent: bool) -> bool:
    """Parse `*` and `_`: the rule `emphasis` of markdown-it, with two departures from CommonMark.

    Inside a word of ASCII letters and digits a mark is text: `2*3*4` keeps its signs. And next to a
    character that is not ASCII a `*` may open and close regardless of the other side, as Chinese
    has no spaces: `**注意：**请`.
    """
    from markdown_it.rules_inline.state_inline import Delimiter

    mark = state.src[state.pos]
    if silent or mark not in "*_":
        return False
    run = state.scanDelims(state.pos, mark == "*")
    end = state.pos + run.length
    character_before = state.src[state.pos - 1] if state.pos else " "
    character_after = state.src[end] if end < state.posMax else " "
    can_open, can_close = run.can_open, run.can_close
    if mark == "*" and not (character_before.isascii() and character_after.isascii()):
        can_open, can_close = not character_after.isspace(), not character_before.isspace()
    can_open = can_open and not (character_before.isascii() and character_before.isalnum())
    can_close = can_close and not (character_after.isascii() and character_after.isalnum())
    for _ in range(run.length):
        state.push("text", "", 0).content = mark
        token = len(state.tokens) - 1
        state.delimiters.append(
            Delimiter(
                marker=ord(mark),
                length=run.length,
                token=token,
                end=-1,
                open=can_open,
                close=can_close,
            )
        )
    state.pos = end
    return True


def _block_lines(blocks: Sequence[SyntaxTreeNode]) -> list[str]:
    """Return blocks as lines of text, with an empty line between blocks except in a tight list."""
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
                marker = f"{block.info}{block.markup} "
                item_lines = _block_lines(block.children) or [""]
                lines += [
                    f"{marker}{item_lines[0]}",
                    *(f"{' ' * len(marker)}{line}".rstrip() for line in item_lines[1:]),
                ]
            case "hr":
                lines.append("---")
            case _:
                lines += _inline_text(block).split("\n")
    return lines


def _is_tight(block: SyntaxTreeNode) -> bool:
    """Return whether no empty line follows a block: list items and paragraphs of a tight list."""
    if block.type == "list_item":
        return not block.children or _is_tight(block.children[0])
    return block.type == "paragraph" and block.hidden


def _inline_text(node: SyntaxTreeNode) -> str:
    """Return the text inside a block, a link or an emphasis."""
    texts: list[str] = []
    for child in node.children:
        match child.type:
            case "link" | "image":
                text = _inline_text(child)
                address = str(child.attrs.get("href") or child.attrs.get("src") or "")
                if not address or child.info == "auto" or _parser().normalizeLink(text) == address:
                    texts.append(text)
                else:
                    texts.append(f"{text} ({address})" if text else address)
            case "softbreak" | "hardbreak":
                texts.append("\n")
            case _:
                texts.append(_inline_text(child) if child.children else child.content)
    return "".join(texts).strip()


def split_text(text: str, limit: int, size: Callable[[str], int] = len) -> list[str]:
    """Return the text in pieces that `size` measures as at most `limit`, cut where a reader would
    cut it.

    Between paragraphs if that fills half a piece, else between lines, else between words, else
    anywhere. A code block that is cut is closed, and opened again in the next piece. `size` must
    measure a text as at least half of its characters.
    """
    pieces, remainder = _split_first(text, limit, size, None)
    return [*pieces, remainder] if remainder or not pieces else pieces


def take_opening(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Return the first piece of a text, as split_text cuts it."""
    pieces, remainder = _split_first(text, limit, size, 1)
    return pieces[0] if pieces else remainder


# A chat that gets more messages than this at a time is no longer readable.
MAX_PARTS = 10


def split_up_to_max_parts(
    text: str, limit: int, *, size: Callable[[str], int] = len, run: str = ""
) -> list[str]:
    """Return the pieces of a text, or the first nine of very many and a note on the remainder."""
    pieces, remainder = _split_first(text, limit, size, MAX_PARTS)
    if not remainder or (len(pieces) < MAX_PARTS and size(remainder) <= limit):
        return [*pieces, remainder] if remainder or not pieces else pieces
    left_out = len(remainder) + sum(map(len, pieces[MAX_PARTS - 1 :]))
    note = f"(Another {left_out} characters do not fit here."
    note += f" `agentctl inspect {run}` shows them.)" if run else ")"
    return [*pieces[: MAX_PARTS - 1], note]


def _split_first(
    text: str, limit: int, size: Callable[[str], int], max_pieces: int | None
) -> tuple[list[str], str]:
    """Return up to `max_pieces` pieces of a text that is too long, and the remainder."""
    pieces: list[str] = []
    remainder = text.strip("\n")
    while (
        remainder
        and (len(remainder) > _longest_piece(limit) or size(remainder) > limit)
        and (max_pieces is None or len(pieces) < max_pieces)
    ):
        piece, remainder = _cut_piece(remainder, limit, size)
        pieces.append(piece)
    return pieces, remainder


def _longest_piece(limit: int) -> int:
    """Return a number of characters that no piece exceeds, so that longer texts need no measuring:
    `size` counts at least half of them, and closing a code block adds some.
    """
    return 2 * limit + 100


_SEPARATORS = ("\n\n", "\n", " ")


def _cut_piece(text: str, limit: int, size: Callable[[str], int]) -> tuple[str, str]:
    """Return the first piece and the remainder, which is always shorter than `text`."""
    longest = _fitting_length(text, limit, size)
    end = longest
    for separator in _SEPARATORS:
        position = text.rfind(separator, longest // 2, longest + 1)
        if position > 0:
            end = position
            break
    piece, fence = _close_code(text[:end])
    is_inside_code = bool(fence) and end == longest
    remainder = text[end:] if is_inside_code else text[end:].lstrip("\n ")
    if fence and len(fence) + 1 + len(remainder) < len(text) and size(piece) <= limit:
        return piece, f"{fence}\n{remainder.lstrip(chr(10))}"
    if piece_as_is := text[:end].rstrip("\n"):
        return piece_as_is, remainder
    return text[:longest], text[longest:]


def _fitting_length(text: str, limit: int, size: Callable[[str], int]) -> int:
    """Return how many characters fit with their code blocks closed; at least 1."""
    low, high = 1, min(len(text), _longest_piece(limit))
    while low < high:
        middle = (low + high + 1) // 2
        if size(_close_code(text[:middle])[0]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _close_code(text: str) -> tuple[str, str]:
    """Return a piece with its last code block closed, and the fence that closes it; the fence is
    empty if no block is open.
    """
    piece = text.rstrip("\n")
    fence = ""
    for line in piece.splitlines():
        if match := _FENCE.match(line):
            if not fence:
                fence = match["mark"]
            elif not match["info"].strip() and match["mark"].startswith(fence):
                fence = ""
    return (f"{piece}\n{fence}" if fence else piece), fence
