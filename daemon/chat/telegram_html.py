"""Render Markdown as the little HTML that messages of Telegram may have
(https://core.telegram.org/bots/api#html-style).
"""

from __future__ import annotations

import html
from html.parser import HTMLParser

from daemon.delivery.markup import render_html

# How an element is shown: the tag that Telegram has for it.
_TAGS = {
    "strong": "b",
    "em": "i",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
    "s": "s",
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6", "th"), "b"),
}
# Elements that begin on a line of their own, and those with an empty line before.
_LINES = frozenset({"li", "tr", "ul", "ol"})
_BLOCKS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "table", "hr"})


def render_telegram_html(markdown: str) -> str:
    """Return Markdown as HTML of Telegram: headings in bold, lists with bullets, cells of tables
    behind one another.
    """
    writer = _TelegramWriter()
    writer.feed(render_html(markdown))
    writer.close()
    return "".join(writer.pieces).strip()


def utf16_length(text: str) -> int:
    """Return the length of a text as Telegram counts it."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def visible_length(markup: str) -> int:
    """Return the length of what is seen of HTML, as Telegram counts it."""
    reader = _TextReader()
    reader.feed(markup)
    reader.close()
    return utf16_length("".join(reader.texts))


class _TextReader(HTMLParser):
    """Collects the text of HTML."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


class _TelegramWriter(HTMLParser):
    """Turns the HTML of `render_html`, whose elements are all closed, into that of Telegram."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._lists: list[int | None] = []
        """The number of the next item of each list that is open; None where it has bullets."""
        self._links: list[bool] = []
        """Of each link that is open, whether it leads somewhere."""
        self._is_preformatted = False
        self._is_item_empty = False
        """Whether the bullet of an item was written, and nothing of the item yet."""
        self._is_first_cell = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        match tag:
            case "br":
                self.pieces.append("\n")
                return
            case "hr":
                self._begin_line(1)
                self.pieces.append("———")
                return
            case "a":
                address = dict(attrs).get("href")
                self._links.append(bool(address))
                if address:
                    self.pieces.append(f'<a href="{html.escape(address)}">')
                return
            case "ul":
                self._lists.append(None)
            case "ol":
                start = dict(attrs).get("start") or "1"
                self._lists.append(int(start) if start.isdecimal() else 1)
        if tag in _BLOCKS and not self._is_item_empty:
            # paragraphs of a list stand close
            self._begin_line(1 if self._lists else 2)
        elif tag in _LINES:
            self._begin_line(1 if len(self._lists) != 1 or tag == "li" else 2)
        if tag == "li":
            self._begin_item()
        elif tag == "tr":
            self._is_first_cell = True
        elif tag in ("td", "th"):
            if not self._is_first_cell:
                self.pieces.append(" | ")
            self._is_first_cell = False
        if tag == "pre":
            self._is_preformatted = True
        if self._is_preformatted and tag == "code":
            return
        if html_tag := _TAGS.get(tag):
            self.pieces.append(f"<{html_tag}>")

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._links.pop():
            self.pieces.append("</a>")
        if tag in ("ul", "ol"):
            self._lists.pop()
        if self._is_preformatted and tag == "code":
            return
        if tag == "pre":
            self._is_preformatted = False
            self._strip_newlines()
        if tag == "blockquote":
            self._strip_newlines()
        if html_tag := _TAGS.get(tag):
            self.pieces.append(f"</{html_tag}>")

    def handle_data(self, data: str) -> None:
        if not self._is_preformatted:
            if not data.strip("\n"):
                return  # between two elements
            if self.pieces and self.pieces[-1].endswith("\n"):
                data = data.lstrip("\n")  # behind <br />
        self._is_item_empty = False
        self.pieces.append(html.escape(data, quote=False))

    def _begin_item(self) -> None:
        indent = "  " * (len(self._lists) - 1)
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        self.pieces.append(f"{indent}• " if number is None else f"{indent}{number}. ")
        self._is_item_empty = True

    def _begin_line(self, newlines: int) -> None:
        """Let what follows begin after so many line breaks, unless it is at the very beginning."""
        self._is_item_empty = False
        end = "".join(self.pieces[-3:])
        if not end or end.endswith("<blockquote>"):
            return
        newlines_present = len(end) - len(end.rstrip("\n"))
        self.pieces.append("\n" * max(0, newlines - newlines_present))

    def _strip_newlines(self) -> None:
        while self.pieces and not self.pieces[-1].rstrip("\n"):
            self.pieces.pop()
        if self.pieces:
            self.pieces[-1] = self.pieces[-1].rstrip("\n")
