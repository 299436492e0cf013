"""Turn what a server sent into what a model reads: text, without the machinery of a web page.

This reader goes through a page once: 200 kB that are made to be slow take it a second. Of what is
installed anyway only `html.parser` reads HTML, and 50 kB of `<a ` keep it busy for minutes before
Python 3.11.14, 3.12.12 and 3.13.6 (CVE-2025-6069), which we run on, as Debian 12 has 3.11.2.
"""

from __future__ import annotations

import codecs
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from daemon.sandbox.output import decode_readable
from daemon.system.character_references import decode_references

PAGE_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_INVISIBLE_ELEMENTS = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"}
)
_BLOCK_ELEMENTS = frozenset(
    {
        "p",
        "div",
        "br",
        "li",
        "ul",
        "ol",
        "dl",
        "dt",
        "dd",
        "tr",
        "table",
        "section",
        "article",
        "header",
        "footer",
        "nav",
        "main",
        "aside",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "pre",
        "blockquote",
        "hr",
        "title",
        "form",
        "option",
    }
)
_TAG = re.compile(r"/?([A-Za-z][A-Za-z0-9]{0,20})")
_HREF = re.compile(
    r"""\bhref\s{0,9}=\s{0,9}["']?((?:https?://|/)[^\s"'<>]{1,500})""", re.IGNORECASE
)
_MAX_TAG_CHARACTERS = 2000


@cache
def web_charsets() -> Mapping[str, str]:
    """Return the codec of Python by each name that a charset has on the web, in lower case; UTF-8
    is not among them.
    """
    with Path(__file__).with_name("charsets.toml").open("rb") as file:
        labels = tomllib.load(file)["labels"]
    return {label: codec for codec, words in labels.items() for label in words.split()}


def extract_text(body: bytes, media_type: str, charset: str) -> str:
    """Return a body as text; empty for one that is none.

    `charset` is what the server says, in lower case. One that is not of the web counts as UTF-8;
    bytes that are no UTF-8 are shown as \\xNN.
    """
    is_text = media_type.startswith("text/") or media_type.endswith(("json", "xml"))
    if is_text and body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # the mark says more than the server, as for a browser
        body = body.decode("utf-16", errors="replace").encode(errors="replace")
    elif codec := web_charsets().get(charset):
        body = body.decode(codec, errors="replace").encode(errors="replace")
    elif b"\0" in body[:8192]:
        return ""
    text = decode_readable(body)
    if media_type not in PAGE_TYPES:
        return text
    lines = (
        re.sub(r"[ \t\xa0]+", " ", line).strip()
        for line in "".join(_visible_texts(text)).splitlines()
    )
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _visible_texts(page: str) -> Iterator[str]:
    """Yield what a reader of a page sees, and where its links lead."""
    position = 0
    links: list[str] = []
    while (start := page.find("<", position)) >= 0:
        yield decode_references(page[position:start])
        if page.startswith("<!--", start):
            end = page.find("-->", start)
            if end < 0:
                return  # it never ends, so nothing behind it is seen
            position = end + 3
        elif page.startswith(("<!", "<?"), start) or _TAG.match(page, start + 1):
            end = page.find(">", start)
            if end < 0:
                return
            position = end + 1
            yield from _render_tag(page[start + 1 : min(end, start + _MAX_TAG_CHARACTERS)], links)
            name = _opened_element(page, start)
            if name in _INVISIBLE_ELEMENTS and page[end - 1] != "/":
                closing = re.compile(f"</{name}", re.IGNORECASE).search(page, position)
                if closing is None:
                    return
                position = closing.start()
        else:
            yield "<"
            position = start + 1
    yield decode_references(page[position:])


def _opened_element(page: str, start: int) -> str:
    """Return the name of the element that opens here; empty for an end."""
    match = _TAG.match(page, start + 1)
    return match[1].lower() if match and page[start + 1] != "/" else ""


def _render_tag(tag: str, links: list[str]) -> Iterator[str]:
    """Yield what stands for a tag in plain text."""
    match = _TAG.match(tag)
    name, closes = match[1].lower() if match else "", tag.startswith("/")
    if name in _BLOCK_ELEMENTS:
        yield "\n- " if name == "li" and not closes else "\n"
    elif name in ("td", "th") and not closes:
        yield " | "
    elif name == "a" and not closes:
        href = _HREF.search(tag)
        links.append(decode_references(href[1]) if href else "")
    elif name == "a" and links and (link := links.pop()):
        yield f" ({link})"
