"""Reports as plain text, as HTML, and split into parts."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.delivery.markup import (
    MAX_PARTS,
    find_headline,
    first_sentence,
    render_html,
    render_section,
    render_text,
    split_first_parts,
    split_up_to_max_parts,
)
from tests.properties import scaled_settings

REPORT = """# Morning

**Two** disks are *nearly* full: `/var` and `/home`.

- see [the graph](https://example.org/g_1 "today")
- ![load](https://example.org/load.png)

```sh
df -h  # **not bold**
```
"""


def test_plain_text_keeps_all_words_of_a_report():
    assert render_text(REPORT) == (
        "Morning\n=======\n\nTwo disks are nearly full: /var and /home.\n\n"
        "- see the graph (https://example.org/g_1)\n- load (https://example.org/load.png)\n\n"
        "    df -h  # **not bold**"
    )


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("snake_case_name and 2*3*4", "snake_case_name and 2*3*4"),
        ("***all*** __of__ _it_", "all of it"),
        (r"\*literal\*", "*literal*"),
        ("<https://example.org>", "https://example.org"),
        ("``a ` b``", "a ` b"),
        ("[https://example.org](https://example.org)", "https://example.org"),
        ("中文**粗体**。", "中文粗体。"),
        ("**注意：**请看**“这里”**。", "注意：请看“这里”。"),
        ("**un**believable", "**un**believable"),
        ("`**code**` and **bold `code`**", "**code** and bold code"),
        ("[see **this**][1]\n\n[1]: https://example.org", "see this (https://example.org)"),
        ("a &amp; b", "a & b"),
    ],
)
def test_markup_is_distinguished_from_literal_characters(markdown, words):
    assert render_text(markdown) == words


def test_lists_quotes_and_tables_keep_their_shape_in_plain_text():
    markdown = (
        "1. one\n   - a\n   - b\n2. two\n\n> they\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    assert render_text(markdown) == markdown.strip()


def test_code_inside_a_list_stays_literal():
    assert (
        render_text("- run this:\n\n  ```sh\n  rm *a* *b*\n  ```\n")
        == "- run this:\n\n      rm *a* *b*"
    )


def test_mail_is_html_that_loads_and_runs_nothing():
    html = render_html(
        REPORT
        + "\n<script>alert(1)</script><img src=x onerror=alert(1)>\n\n[x](javascript:alert(1))\n"
    )
    assert (
        "<h1>Morning</h1>" in html
        and "<strong>Two</strong>" in html
        and 'href="https://example.org/g_1"' in html
    )
    assert "<img" not in html and "<script" not in html and 'href="javascript' not in html
    assert "<a>files</a>" in render_html("[files](file+ssh://somewhere)")
    assert "&lt;script&gt;" in html


def test_a_table_is_an_html_table_in_mail():
    assert "<td>97 %</td>" in render_html("| disk | full |\n|---|---|\n| /var | 97 % |")


class Elements(HTMLParser):
    """The elements of a text as HTML: each tag with its attributes, in order."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def test_headings_of_a_section_begin_at_its_level_and_skip_none():
    html = render_section("# One\n\n#### Deep\n\n## Two\n\n#\n\n###### Three", 3)
    headings = [tag for tag, _ in Elements(html).elements if tag != "p"]
    assert headings == ["h3", "h4", "h4", "h5"]
    assert "<h4>Deep</h4>" in html


def test_a_table_of_a_section_is_aligned_without_a_style_and_scrolled_by_itself():
    html = render_section("| | full |\n|---|---:|\n| /var | 97 % |", 2)
    assert '<div class="wide"><table>' in html and "</table>\n</div>" in html
    assert '<td class="right">97 %</td>' in html and "<td></td>" in html and "style" not in html


def test_links_of_a_section_tell_nobody_where_they_were_followed():
    html = render_section("[wiki](https://example.org) [](https://example.org/2) [f](file:///x)", 2)
    links = [attributes for tag, attributes in Elements(html).elements if tag == "a"]
    assert [link.get("href") for link in links] == ["https://example.org", None]
    assert links[0]["rel"] == "noopener noreferrer nofollow"


# fmt: off
_PIECES = st.sampled_from([
    "# ", "#### ", "- ", "1. ", "> ", "| a | b |\n|:-:|---|\n| c |", "```x\n", "\n", "\n\n", "    ",
    "![p](http://a.b/c)", "[t](http://a.b)", "[t](javascript:x)", "[](data:x)", "<http://a.b>",
    "<img src=x onerror=y>", "<style>", "<a href=//x>", "**b**", "*", "`", "&lt;b&gt;", '"', "'",
    "&#60;script&#62;", "[r]", "[r]: http://a.b 'x'", "===", "---", "word",
])
_TAGS = {
    "p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em",
    "strong", "a", "br", "hr", "div", "table", "thead", "tbody", "tr", "th", "td",
}
# fmt: on


@scaled_settings(200)
@given(st.lists(_PIECES, max_size=12).map("".join))
def test_a_section_has_only_elements_that_load_and_run_nothing(markdown):
    levels = [1]
    for tag, attributes in Elements(render_section(markdown, 2)).elements:
        assert tag in _TAGS
        assert set(attributes) <= {"class", "href", "rel", "title", "start"}
        assert attributes.get("href", "http://").startswith(("http://", "https://", "mailto:"))
        if tag[0] == "h" and tag != "hr":
            assert int(tag[1]) <= levels[-1] + 1
            levels.append(int(tag[1]))


def split_whole(text, limit, size=len):
    parts, remainder = split_first_parts(text, limit, max_parts=len(text) + 1, size=size)
    return [*parts, remainder] if remainder or not parts else parts


def test_a_report_is_split_between_paragraphs():
    text = "\n\n".join(["word " * 18] * 4)
    assert [len(piece) < 200 for piece in split_whole(text, 200)] == [True] * 2
    assert all(piece.startswith("word") for piece in split_whole(text, 200))


def test_a_split_code_block_is_closed_and_reopened():
    code = "```sh\n" + "\n".join(f"line {number}" for number in range(40)) + "\n```"
    pieces = split_whole(code, 120)
    assert all(len(piece) <= 120 for piece in pieces) and all(
        piece.count("```") == 2 for piece in pieces
    )
    assert [line for piece in pieces for line in piece.splitlines() if line.startswith("line")] == [
        f"line {number}" for number in range(40)
    ]


@scaled_settings(300)
@given(st.text(alphabet="ab \n`~中🙂*", max_size=600), st.integers(20, 90))
def test_a_split_report_has_no_part_over_the_limit_and_loses_no_character(text, limit):
    pieces = split_whole(text, limit)
    assert all(len(piece) <= limit for piece in pieces)
    letters = [char for char in text if char in "ab中🙂*"]
    assert [char for piece in pieces for char in piece if char in "ab中🙂*"] == letters


@scaled_settings(200)
@given(st.text(alphabet="中a\n", max_size=300), st.integers(8, 60))
def test_the_limit_of_a_part_may_count_bytes(text, limit):
    assert all(
        len(piece.encode()) <= limit
        for piece in split_whole(text, limit, size=lambda piece: len(piece.encode()))
    )


def test_the_number_of_parts_of_a_report_is_limited():
    pieces = split_up_to_max_parts("word " * 5000, 100, run="01J")
    assert len(pieces) == MAX_PARTS
    assert pieces[-1].startswith("(Another ") and "agentctl inspect 01J" in pieces[-1]


LONG_REPORT = "\n\n".join(
    [
        *(
            f"Disk {n} is **{n} %** full, see [its graph](https://example.org/g/{n})."
            for n in range(60)
        ),
        *(f"- item {n} & {'word ' * (n % 7)}" for n in range(90)),
        "```\n" + "\n".join(f"    line <{n}>" for n in range(120)) + "\n```",
        *(f"{'今天天气很好。' * (n % 30)}" for n in range(60)),
    ]
)


@pytest.mark.parametrize("render", [render_html, render_text, str])
def test_a_long_report_is_rendered_a_few_times_to_be_split(render):
    lengths = []

    def size(text):
        lengths.append(len(text))
        return len(render(text))

    parts = split_whole(LONG_REPORT, 2_000, size=size)
    assert len(parts) >= 8
    assert len(lengths) <= 5 * len(parts)
    assert sum(lengths) <= 6 * len(LONG_REPORT)  # halving takes eleven


@pytest.mark.parametrize("render", [render_html, render_text, str])
def test_a_part_of_a_report_is_nearly_as_long_as_can_be(render):
    remainder = LONG_REPORT[:6_000].rsplit("\n\n", 1)[0]  # without code, which is closed and opened
    limit = 2_000
    parts = split_whole(remainder, limit, size=lambda text: len(render(text)))
    for part in parts[:-1]:
        low, high = 1, len(remainder)
        while low < high:
            middle = (low + high + 1) // 2
            if len(render(remainder[:middle])) <= limit:
                low = middle
            else:
                high = middle - 1
        longest_paragraph = max(map(len, remainder.split("\n\n")))
        assert remainder.startswith(part)
        assert 0.96 * low - longest_paragraph - 2 <= len(part) <= low
        remainder = remainder[len(part) :].lstrip("\n ")
    assert remainder == parts[-1]


@pytest.mark.parametrize(
    ("markdown", "headline"),
    [
        ("# All is **well**\n\ntext", "All is well"),
        ("All is well. Nothing to do.", "All is well"),
        ("**All is well.**\n\n- a", "All is well"),
        ("Is it? Yes.", "Is it?"),
        ("One disk\nis full! Clean it.", "One disk is full!"),
        (
            "See [the graph](https://example.org/g) of `/var`: it grows.",
            "See the graph of /var: it grows",
        ),
        ("Three things need you:\n\n1. a", "Three things need you"),
        ("On 1. May and z. B. Ann at e.g. noon. Next.", "On 1. May and z. B. Ann at e.g. noon"),
        ("Version 1.2.3 is out. Read on.", "Version 1.2.3 is out"),
        ("一切正常。没有问题。", "一切正常"),
        ("It goes on…", "It goes on…"),
        ("## Morning report\n\nAll is well.", "Morning report"),
        ("## Disks\n\nOne is full. Clean it.\n\n## Mail\n\nNone.", "One is full"),
        ("### Host\n\n- **Name**: vm\n\n### Load\n\n- **Cores**: 2", ""),
        ("*No model was asked: these are the facts.*\n\n## Machine", ""),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\nText.", ""),
        ("- one\n- two", ""),
        ("```\ncode\n```", ""),
        ("", ""),
        ("*(a " * 400 + " b)*" * 400, ""),
    ],
)
def test_headline_is_the_first_heading_or_sentence_of_a_report(markdown, headline):
    assert find_headline(markdown) == headline


MARK = "[a person allowed this 6 ms ago, 59 s after you asked; things may have changed since]"


@pytest.mark.parametrize(
    ("markdown", "headline"),
    [
        (
            "2 new, 3 seen before\n\n- **Version 2.0 is out**, 2026-11-20\n  Text.\n- **B**",
            "Version 2.0 is out (+1)",
        ),
        ("1 new\n\n- **Version 2.0 of `x` is out**\n  http://a/", "Version 2.0 of x is out"),
        ("40 new\n\n- **A**\n- **B** (cut)", "A (+39)"),
        ("2 new\n\n- **" + "long " * 60 + "end**\n- b", "long " * 29 + "long… (+1)"),
        ("2 new ideas\n\n- a\n- b", "2 new ideas"),
        ("2 new\n\nText.", "2 new"),
        ("# Report\n\nOne disk is full. Clean it.", "One disk is full"),
        ("# The pages report\n\n## Releases\n\nText.", "Releases"),
        ("# Summary\n\n## Pages\n\nNone.\n\n## Disks\n\nOne is full.", "None"),
        ("# Pages\n\n- Version 2.0 is out:\n  read\n- b\n- c", "Version 2.0 is out:"),
        ("# 报告\n\n一切正常。没有问题。", "一切正常"),
        ("# Pages of today\n\nText.", "Pages of today"),
        (f"# Report\n\n- {MARK}\n- All is well", "All is well"),
        (f"{MARK}\n\nAll is well.", "All is well"),
        ("[6 毫秒前有人批准了此调用,距你提出 59 秒;情况可能已有变化]\n一切正常。", "一切正常"),
        ("[a person allowed this] was said.", "[a person allowed this] was said"),
        ("# Report", ""),
        ("# Report\n\n-\n- b", ""),
    ],
)
def test_a_headline_says_more_than_a_number_or_a_generic_word(markdown, headline):
    assert find_headline(markdown, "pages") == headline


@scaled_settings()
@given(st.text("ab #*_`[]()<>&;.!?:。\n\\-|>1\u2028\u0085\ud800") | st.text())
def test_a_headline_is_one_line_of_the_words_of_its_report(markdown):
    headline = find_headline(markdown)
    assert len(headline.splitlines()) <= 1 and headline == headline.strip()


@scaled_settings()
@given(st.text())
def test_a_first_sentence_begins_its_text(text):
    assert text.strip().startswith(first_sentence(text))


@pytest.mark.parametrize("text", ["." * 300_000, ")" * 300_000, ".)" * 300_000 + " A"])
def test_a_first_sentence_without_an_end_is_cut(text):
    assert len(first_sentence(text)) <= 1000
