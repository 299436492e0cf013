"""The pages of this folder as a site: `sphinx-build -n -W docs build/site` makes it, with the extra
`docs`. tests/test_docs.py holds that index.md links each page.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = author = "agentd"
extensions = ["myst_parser"]
exclude_patterns = ["man"]
myst_heading_anchors = 4  # named as a forge names them, so that one link serves both
html_theme = "alabaster"
html_theme_options = {"page_width": "1240px", "body_max_width": "none", "fixed_sidebar": True}
highlight_language = "text"  # of a block that names no language
html_title = "agentd"
html_show_copyright = html_show_sourcelink = False


def prepare_page(_app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to pages outside of this folder, such as README.md, to a copy of the file; and
    give index.md what Sphinx makes its sidebar of: the pages that are linked there, by heading.
    """
    text = re.sub(r"\]\((\.\./[\w/.-]+\.md)(?:#[\w-]+)?\)", r"](path:\1)", source[0])
    for group in re.split(r"^## ", text, flags=re.MULTILINE)[1:] if page == "index" else ():
        pages = "\n".join(re.findall(r"\]\(([\w-]+)\.md\)", group))
        caption = group.partition("\n")[0]
        text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"
    source[0] = text


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare_page)
    app.add_lexer("mermaid", TextLexer)  # shown as its source; a forge draws it
