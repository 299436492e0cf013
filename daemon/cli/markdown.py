"""Show the Markdown of a report as formatted text on a terminal.

Only there: pipes and files get the Markdown as it is. A terminal that is not in UTF-8 gets it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from daemon.cli.render import (
    BOLD,
    DIM,
    SPACES,
    OutputStream,
    display_width,
    pad,
    sanitize,
    stdout_stream,
)

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

# A part of a line: its text, and the SGR parameters it is painted with.
Piece: TypeAlias = tuple[str, str]

_ITALIC, _CYAN, _UNDERLINE = "3", "36", "4"
_STYLES = {"strong": BOLD, "em": _ITALIC, "link": _UNDERLINE, "image": _UNDERLINE}
# Longer lines are hard to read, however wide the terminal is.
MAX_WIDTH = 100
# Narrower than this nothing is indented any further.
MIN_WIDTH = 20
_LINE_BREAK: Piece = ("\n", "")


def format_report(text: str, out: OutputStream, *, indent: int = 0, verbatim: bool = False) -> str:
    """Return a report as this stream shows it, without an empty line at its end; its lines leave
    room for `indent` columns before them.

    With `verbatim` the report is the output of a script, which no model wrote, and no Markdown.
    """
    text = sanitize(text.rstrip("\n"))
    if verbatim or out.width is None or not out.has_unicode:
        return text
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

    width = max(MIN_WIDTH, min(out.width - indent, MAX_WIDTH))
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    try:
        root = SyntaxTreeNode(parser.parse(text))
        return "\n".join(_block_lines(root.children, width, out))
    except RecursionError:  # hundreds of nested quotes or lists: not written for a reader
        return text


def render_for_terminal(text: str) -> str:
    """Return a report as stdout shows it."""
    return format_report(text, stdout_stream())


def _block_lines(blocks: Sequence[SyntaxTreeNode], width: int, out: OutputStream) -> list[str]:
    """Return blocks as lines, with an empty line between blocks except in a tight list."""
    lines: list[str] = []
    for number, block in enumerate(blocks):
        if number and not _is_tight(blocks[number - 1]):
            lines.append("")
        match block.type:
            case "heading":
                style = f"{BOLD};{_UNDERLINE}" if block.tag == "h1" else BOLD
                lines += _wrap(list(_pieces(block, style)), width, out)
            case "fence" | "code_block":
                code = block.content.rstrip("\n").split("\n")
                lines += [f"    {out.paint(line, _CYAN)}".rstrip() for line in code]
            case "blockquote":
                bar = out.paint("│", DIM)
                inner = _block_lines(block.children, max(MIN_WIDTH, width - 2), out)
                lines += [f"{bar} {line}".rstrip() for line in inner]
            case "bullet_list" | "ordered_list":
                lines += _block_lines(block.children, width, out)
            case "list_item":
                marker = f"{block.info}{block.markup} " if block.info else "• "
                inner = _block_lines(block.children, max(MIN_WIDTH, width - len(marker)), out)
                first, *more_lines = inner or [""]
                lines.append(f"{marker}{first}".rstrip())
                lines += [f"{' ' * len(marker)}{line}".rstrip() for line in more_lines]
            case "hr":
                lines.append(out.paint("─" * width, DIM))
            case "table":
                lines += _table_lines(block, width, out)
            case _:
                lines += _wrap(list(_pieces(block, "")), width, out)
    return lines


def _is_tight(block: SyntaxTreeNode) -> bool:
    """Return whether no empty line follows a block: list items and paragraphs of a tight list."""
    if block.type == "list_item":
        return not block.children or _is_tight(block.children[0])
    return block.type == "paragraph" and block.hidden


def _table_lines(table: SyntaxTreeNode, width: int, out: OutputStream) -> list[str]:
    """Return a table in columns; where these do not fit, each row as a text of its own."""
    rows = [row for section in table.children for row in section.children]
    cells = [[list(_pieces(cell, "")) for cell in row.children] for row in rows]
    texts = [["".join(text for text, _ in cell) for cell in row] for row in cells]
    widths = [max(map(display_width, column)) for column in zip(*texts, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    lines: list[str] = []
    for number, row in enumerate(cells):
        style = BOLD if number == 0 else ""
        pieces = [[(text, piece_style or style) for text, piece_style in cell] for cell in row]
        if fits:
            columns = zip(pieces, texts[number], widths, strict=True)
            line = "  ".join(_paint(cell, out) + pad("", size - display_width(text))
                             for cell, text, size in columns)  # fmt: skip
            lines.append(line.rstrip())
        else:
            row_pieces = [
                piece
                for index, cell in enumerate(pieces)
                for piece in ([(" | ", DIM)] if index else []) + cell
            ]
            lines += _wrap(row_pieces, width, out)
    return lines


def _pieces(node: SyntaxTreeNode, style: str) -> Iterator[Piece]:
    """Yield the pieces of the text inside a block, a link or an emphasis."""
    for child in node.children:
        match child.type:
            case "softbreak" | "hardbreak":
                yield _LINE_BREAK
            case "code_inline":
                yield child.content, _CYAN
            case "image":
                yield from _link_pieces(
                    child, child.content, str(child.attrs.get("src") or ""), style
                )
            case "link":
                text = "".join(text for text, _ in _pieces(child, ""))
                yield from _link_pieces(child, text, str(child.attrs.get("href") or ""), style)
            case "s":
                yield "~~", DIM
                yield from _pieces(child, style)
                yield "~~", DIM
            case _ if child.children:
                child_style = _STYLES.get(child.type, "")
                yield from _pieces(child, ";".join(filter(None, (style, child_style))))
            case _:
                # sanitized again: `&#13;` and, in `<https://…>`, `%0d` are characters only now
                yield sanitize(child.content), style


def _link_pieces(node: SyntaxTreeNode, text: str, address: str, style: str) -> Iterator[Piece]:
    """Yield the text of a link or image, and its address if the text is another."""
    yield text, ";".join(filter(None, (style, _STYLES[node.type])))
    if address and address not in (text, f"mailto:{text}"):
        yield f" ({address})" if text else address, DIM


def _paint(pieces: Sequence[Piece], out: OutputStream) -> str:
    return "".join(out.paint(text, style) for text, style in pieces)


def _wrap(pieces: Sequence[Piece], width: int, out: OutputStream) -> list[str]:
    """Return pieces as painted lines, broken between words; a word that is wider than a line is
    broken only if it is not ASCII, as Chinese has no spaces and an address must stay whole.
    """
    lines: list[list[Piece]] = [[]]
    width_used = 0
    for word in _words(pieces):
        text = "".join(part for part, _ in word)
        size = display_width(text)
        if text == "\n":
            lines.append([])
            width_used = 0
        elif width_used + size <= width:
            lines[-1] += word
            width_used += size
        elif text.isspace():
            continue  # the next word begins a line
        elif size > width and not text.isascii():
            for part, style in word:
                for char in part:
                    if width_used + display_width(char) > width:
                        lines.append([])
                        width_used = 0
                    lines[-1].append((char, style))
                    width_used += display_width(char)
        else:
            if lines[-1]:
                lines.append([])
            lines[-1] += word
            width_used = size
    return [_paint(_join_styles(line), out).rstrip() for line in lines]


def _words(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield words, the spaces between words, and line breaks; a word may have several styles."""
    word: list[Piece] = []
    for text, style in pieces:
        part = ""
        for char in text:
            if char in " \n\t" or (char in SPACES and char != "\xa0"):
                if part:
                    word.append((part, style))
                    part = ""
                if word:
                    yield word
                    word = []
                yield [("\n" if char == "\n" else " " if char == "\t" else char, style)]
            else:
                part += char
        if part:
            word.append((part, style))
    if word:
        yield word


def _join_styles(line: Sequence[Piece]) -> list[Piece]:
    """Return a line with neighbours of one style joined, and without spaces at its end."""
    pieces: list[Piece] = []
    for text, style in line:
        if pieces and pieces[-1][1] == style:
            pieces[-1] = pieces[-1][0] + text, style
        else:
            pieces.append((text, style))
    while pieces and not pieces[-1][0].rstrip():
        pieces.pop()
    if pieces:
        pieces[-1] = pieces[-1][0].rstrip(), pieces[-1][1]
    return pieces
