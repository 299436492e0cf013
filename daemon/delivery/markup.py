"""Convert the Markdown of a report for its target: to plain text, to HTML for mail and for the web
page, and into parts of a limited size.

markdown-it-py parses it by the rules of CommonMark. Not here: links that must not be followed,
which sanitize.py breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode

_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_UNDERLINE = 78  # characters at most under a heading
_MAX_SENTENCE = 1_000  # characters: looking for its end takes the square of that
# Ends a sentence: a mark before a space and no small letter, or a mark of Chinese and Japanese. Not
# the point after a single letter or digit: `z. B.`, `1. May`.
_SENTENCE_END = re.compile(
    r"(?<!\b\w)[.!?…]+[\"'”’»)\]]*(?=\s+(?!\s)[^a-zà-öø-ÿ])|[。！？]+[”’」』）]*"
)
_MAX_ITEM_TITLE = 150  # characters of an item's title in a headline
# The first line of a report of new items, as the tool `report_items` makes it: below it, they are
# listed.
_NEW_ITEMS = re.compile(r"(?P<new>\d{1,9}) new(?:, \d+ seen before)?")
# What agentd puts before the result of a call that a person allowed (`approved` in agent/texts.py),
# alone on its line: some models repeat it.
_ECHOED_MARK = re.compile(
    r"^[ \t]*(?:[-*+][ \t]+)?"
    r"\[(?:a person allowed this |[^\]\n]{1,40}前有人批准了此调用)[^\]\n]{1,200}\]"
    r"[ \t]*$\n?",
    re.MULTILINE,
)
# A heading of these, of the name of its routine and of small words says nothing.
_GENERIC_WORDS = frozenset(
    {"report", "reports", "summary", "overview", "update", "updates", "result", "results", "status"}
    | {"报告", "总结", "摘要", "日报", "周报"}
)
_SMALL_WORDS = frozenset({"a", "and", "daily", "for", "hourly", "monthly", "of", "the", "weekly"})
_ALLOWED_LINKS = ("http://", "https://", "mailto:")


def fence(text: str) -> str:
    """Return a text as a block of code, which Markdown shows as it is."""
    mark = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{mark}\n{text}\n{mark}"


def render_text(markdown: str) -> str:
    """Return Markdown as plain text: headings underlined, links followed by their address, code
    indented.
    """
    from markdown_it.tree import SyntaxTreeNode

    try:
        return "\n".join(_block_lines(SyntaxTreeNode(_parser().parse(markdown)).children))
    except RecursionError:  # hundreds of nested quotes or lists: not written for a reader
        return markdown


def render_html(markdown: str, styles: Mapping[str, str] | None = None) -> str:
    """Return Markdown as HTML for mail, which loads and runs nothing; links that lead elsewhere
    than to the web or a mailbox lose their address.

    `styles` has the CSS of elements by their tag, as many mail programs ignore style sheets.
    """
    parser = _parser(for_mail=True)
    tokens = _parse_safely(parser, markdown)
    for token in tokens:
        if token.nesting >= 0 and (style := (styles or {}).get(token.tag)):
            token.attrSet("style", f"{style}; {token.attrGet('style') or ''}".rstrip("; "))
    return str(parser.renderer.render(tokens, parser.options, {}))


def render_section(markdown: str, top_level: int) -> str:
    """Return Markdown as HTML for a section of a web page, as safe as that for mail.

    Its headings begin at `top_level` (2 is `h2`) and skip no level. A wide table is in a `div` of
    the class `wide`; alignment is a class too, as the page allows no style attributes.
    """
    from markdown_it.token import Token

    parser = _parser(for_mail=True)
    tokens = _parse_safely(parser, markdown)
    page_tokens: list[Token] = []
    open_levels: list[str] = []  # the headings whose sections the present one is in
    for number, token in enumerate(tokens):
        match token.type:
            case "heading_open" if not tokens[number + 1].content:
                token.tag = tokens[number + 2].tag = "p"
            case "heading_open":
                while open_levels and open_levels[-1] >= token.tag:
                    open_levels.pop()
                open_levels.append(token.tag)
                tag = f"h{min(top_level + len(open_levels) - 1, 6)}"
                token.tag = tokens[number + 2].tag = tag
            case "table_open":
                page_tokens.append(Token("html_block", "", 0, content='<div class="wide">'))
            case "th_open" | "td_open":
                if not tokens[number + 1].content:  # a heading without words names nothing
                    token.tag = tokens[number + 2].tag = "td"
                if style := token.attrs.pop("style", None):
                    token.attrs["class"] = str(style).removeprefix("text-align:")
            case "inline":
                _set_link_relations(token.children or [])
        page_tokens.append(token)
        if token.type == "table_close":
            page_tokens.append(Token("html_block", "", 0, content="</div>\n"))
    return str(parser.renderer.render(page_tokens, parser.options, {}))


def _set_link_relations(tokens: Sequence[Token]) -> None:
    """Let links tell nobody where they were followed; those without a text lead nowhere."""
    for token, following_token in pairwise(tokens):
        if token.type == "link_open" and following_token.type == "link_close":
            token.attrs.clear()
        elif token.type == "link_open" and token.attrs:
            token.attrs["rel"] = "noopener noreferrer nofollow"


def _parse_safely(parser: MarkdownIt, markdown: str) -> list[Token]:
    """Return the tokens of Markdown; links that lead elsewhere than to the web or a mailbox have
    lost their address.
    """
    tokens = parser.parse(markdown)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open" and not str(child.attrs.get("href")).lower().startswith(
                _ALLOWED_LINKS
            ):
                child.attrs.clear()
    return tokens


def find_headline(markdown: str, routine: str = "") -> str:
    """Return the headline of a report as one line of plain text: the heading that it begins with,
    or else the first sentence of its first paragraph; empty if it begins with neither.

    A heading with others of its level is one of a section, so the paragraph behind it counts, and
    so does what follows a generic heading. A paragraph in italics is a note about the report. Of a
    list below the number of new items, or below a generic heading, the first item is the headline.
    The mark of agentd on a call that a person allowed is passed over.
    """
    from markdown_it.tree import SyntaxTreeNode

    markdown = _ECHOED_MARK.sub("", markdown)
    try:
        blocks = SyntaxTreeNode(_parser(for_mail=True).parse(markdown)).children
    except RecursionError:  # hundreds of nested emphases: not written for a reader
        return ""
    while blocks and blocks[0].type == "heading":
        heading = _join_line(blocks[0])
        is_generic = is_generic_heading(heading, routine)
        level = blocks[0].tag
        if (
            not is_generic
            and [block.tag for block in blocks if block.type == "heading"].count(level) == 1
        ):
            return heading
        blocks = blocks[1:]
        if blocks and is_generic and _is_list(blocks[0]):
            return _list_headline(blocks[0])
        if not is_generic:
            break
    if not blocks or blocks[0].type != "paragraph":
        return ""
    [paragraph] = blocks[0].children
    if [child.type for child in paragraph.children if child.content or child.children] == ["em"]:
        return ""
    line = _join_line(paragraph)
    if len(blocks) > 1 and _is_list(blocks[1]) and (count := _NEW_ITEMS.fullmatch(line)):
        return _list_headline(blocks[1], int(count["new"]))
    return first_sentence(line)


def is_generic_heading(heading: str, routine: str) -> bool:
    """Return whether a heading says no more than that this is a report of its routine."""
    words = _words(heading) - _SMALL_WORDS
    return bool(words) and words <= _GENERIC_WORDS | _words(routine)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


def _is_list(block: SyntaxTreeNode) -> bool:
    return block.type in ("bullet_list", "ordered_list")


def _list_headline(items: SyntaxTreeNode, count: int = 0) -> str:
    """Return the first line of the first item of a list, what is bold of it if it begins so, and
    how many more of `count` new items there are.
    """
    blocks = items.children[0].children
    if not blocks or blocks[0].type != "paragraph":
        return ""
    [paragraph] = blocks[0].children
    title = ""
    for part in paragraph.children:
        if part.type in ("softbreak", "hardbreak") or (title and part.type == "strong"):
            break
        title += _join_line(part) if part.children else part.content
        if part.type == "strong" and title:
            break
    title = " ".join(title.split())
    if len(title) > _MAX_ITEM_TITLE:
        title = f"{title[:_MAX_ITEM_TITLE].rpartition(' ')[0] or title[:_MAX_ITEM_TITLE]}…"
    return f"{title} (+{count - 1})" if title and count > 1 else title


def first_sentence(text: str) -> str:
    """Return the first sentence of one line of text, without its full stop or colon; at most
    _MAX_SENTENCE characters.
    """
    text = text[:_MAX_SENTENCE]
    end = _SENTENCE_END.search(text)
    sentence = text[: end.end()] if end else text
    return re.sub(r"(?<![.…])[.。:：]$", "", sentence.strip())


def _join_line(node: SyntaxTreeNode) -> str:
    """Return the text inside a heading or a paragraph as one line, without addresses of links."""
    texts = [
        " " if part.type in ("softbreak", "hardbreak") else part.content
        for part in node.walk()
        if part.type in ("text", "code_inline", "softbreak", "hardbreak")
    ]
    return " ".join("".join(texts).split())


@cache
def _parser(*, for_mail: bool = False) -> MarkdownIt:
    """Return a parser of CommonMark that treats raw HTML as text; for mail it reads tables, and no
    images.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    parser.inline.ruler.at("emphasis", _scan_emphasis)
    parser.inline.ruler.at("backticks", _scan_code)
    if for_mail:  # fetching an image would tell its server that the mail was read
        parser.enable("table").disable("image")
    return parser


def _scan_code(state: StateInline, silent: bool) -> bool:
    """Parse code in backticks: the rule `backticks` of markdown-it, but the spaces inside stay.

    CommonMark drops one at each end, and ``evil.c` om `` would become an address.
    """
    from markdown_it.rules_inline import backtick

    start, count = state.pos, len(state.tokens)
    if not backtick(state, silent):
        return False
    token = state.tokens[-1] if state.tokens else None
    if token and len(state.tokens) > count and token.type == "code_inline":
        length = len(token.markup)
        token.content = state.src[start + length : state.pos - length].replace("\n", " ")
    return True


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


def take_opening(
    text: str,
    limit: int,
    size: Callable[[str], int] = len,
    *,
    sanitize: Callable[[str], str] = str,
) -> str:
    """Return the first part of a text, as `split_first_parts` cuts it."""
    parts, remainder = split_first_parts(text, limit, size=size, max_parts=1, sanitize=sanitize)
    return parts[0] if parts else remainder


# A chat that gets more messages than this at a time is no longer readable.
MAX_PARTS = 10
# Characters of a report in the message itself, if the whole report is attached.
OPENING_CHARACTERS = 2_000


def split_up_to_max_parts(
    text: str,
    limit: int,
    *,
    size: Callable[[str], int] = len,
    run: str = "",
    sanitize: Callable[[str], str] = str,
) -> list[str]:
    """Return the parts of a text, or the first nine of very many and a note on the remainder."""
    parts, remainder = split_first_parts(
        text, limit, size=size, max_parts=MAX_PARTS, sanitize=sanitize
    )
    if not remainder or (len(parts) < MAX_PARTS and size(remainder) <= limit):
        return [*parts, remainder] if remainder or not parts else parts
    left_out = len(remainder) + sum(map(len, parts[MAX_PARTS - 1 :]))
    note = f"(Another {left_out} characters do not fit here."
    note += f" `agentctl inspect {run}` shows them.)" if run else ")"
    return [*parts[: MAX_PARTS - 1], note]


def split_first_parts(
    text: str,
    limit: int,
    *,
    max_parts: int,
    size: Callable[[str], int] = len,
    sanitize: Callable[[str], str] = str,
) -> tuple[list[str], str]:
    """Return up to `max_parts` parts of a text, each with a size of at most `limit`, and the
    remainder, which needs no cut unless there are already so many parts.

    The text is cut where a reader would cut it: between paragraphs if that fills half a part, else
    between lines, else between words, else anywhere. A code block that is cut is closed, and opened
    again in the next part. `size` must measure a text as at least half of its characters. Each part
    goes through `sanitize`, as half of a long word may mean something by itself, and so does a
    remainder that needs no cut.
    """

    def sanitized_size(part: str) -> int:
        return size(sanitize(part))

    parts: list[str] = []
    remainder = text.strip("\n")
    while (
        remainder
        and (len(remainder) > _longest_part(limit) or sanitized_size(remainder) > limit)
        and len(parts) < max_parts
    ):
        part, remainder = _cut_part(remainder, limit, sanitized_size)
        parts.append(sanitize(part))
    if len(parts) < max_parts:
        remainder = sanitize(remainder)
    return parts, remainder


def _longest_part(limit: int) -> int:
    """Return a number of characters that no part exceeds, so that longer texts need no measuring:
    `size` counts at least half of them, and closing a code block adds some.
    """
    return 2 * limit + 100


_SEPARATORS = ("\n\n", "\n", " ")


def _cut_part(text: str, limit: int, size: Callable[[str], int]) -> tuple[str, str]:
    """Return the first part and the remainder, which is always shorter than `text`."""
    longest = _fitting_length(text, limit, size)
    end = longest
    for separator in _SEPARATORS:
        position = text.rfind(separator, longest // 2, longest + 1)
        if position > 0:
            end = position
            break
    part, fence = _close_code(text[:end])
    is_inside_code = bool(fence) and end == longest
    remainder = text[end:] if is_inside_code else text[end:].lstrip("\n ")
    if fence and len(fence) + 1 + len(remainder) < len(text) and size(part) <= limit:
        return part, f"{fence}\n{remainder.lstrip(chr(10))}"
    if part_as_is := text[:end].rstrip("\n"):
        return part_as_is, remainder
    return text[:longest], text[longest:]


def _fitting_length(text: str, limit: int, size: Callable[[str], int]) -> int:
    """Return a number of characters that fits with its code blocks closed: at least 1, and at most
    a 25th smaller than the largest that fits.

    `size` renders the text, which takes milliseconds a page, so few lengths are measured. The first
    is the limit itself. A report is rendered nearly in proportion to its length, so that size tells
    which length about fits: the next two are just below and just above it. Where that is not
    enough, the range that is left is halved.
    """
    low, high = 1, min(len(text), _longest_part(limit))
    guesses = [limit]
    while low < high - high // 25:
        guesses = [guess for guess in guesses if low < guess <= high]
        length = guesses.pop(0) if guesses else (low + high + 1) // 2
        part_size = size(_close_code(text[:length])[0])
        if part_size <= limit:
            low = length
        else:
            high = length - 1
        if length == limit:
            estimate = limit * length / max(part_size, 1)
            guesses = [int(0.98 * estimate), int(1.02 * estimate)]
    return low


def _close_code(text: str) -> tuple[str, str]:
    """Return a part with its last code block closed, and the fence that closes it; the fence is
    empty if no block is open.
    """
    part = text.rstrip("\n")
    fence = ""
    for line in part.splitlines():
        if match := _FENCE.match(line):
            if not fence:
                fence = match["mark"]
            elif not match["info"].strip() and match["mark"].startswith(fence):
                fence = ""
    return (f"{part}\n{fence}" if fence else part), fence
