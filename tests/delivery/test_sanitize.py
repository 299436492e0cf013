"""Sanitized reports contain no usable address and no markup that acts by itself."""

import html
import re

import pytest
from bleach.linkifier import TLDS, build_url_re
from hypothesis import example, given
from hypothesis import strategies as st
from linkify_it import LinkifyIt
from linkify_it.tlds import TLDS as ALL_TLDS

from daemon.chat.telegram_html import render_telegram_html
from daemon.delivery.markup import render_html, render_text, split_up_to_max_parts
from daemon.delivery.sanitize import neutralize, strip_controls
from daemon.web.rendering import report_html
from tests.properties import scaled_settings

ADDRESSES = [
    "![x](https://evil.example/a.png?d=SECRET)",
    "[click](http://evil.example/x)",
    "[click][1]\n\n[1]: http://evil.example/x",
    "> [1]: <http://evil.example/x>",
    "<https://evil.example/x>",
    "<img src=https://evil.example/x>",
    "<a href='//evil.example/x'>y</a>",
    "&lt;img src=https://evil.example/x&gt;",
    "&amp;lt;img src=https://evil.example/x&amp;gt;",
    "[x](https&#58;//evil.example/x)",
    "[x](https&colon;//evil.example/x)",
    "[x](https\\://evil.example/x)",
    "ht\u00adtps://evil.example/x",
    "https:\u200b//evil.example/x",
    "HTTPS://EVIL.EXAMPLE/x",
    "http：//evil.example/x",
    "evil.example/steal?x=1",
    "evil。example/steal",
    "secret.data.evil.example",
    "www.evil.example",
    "//evil.example/x",
    "\\\\evil.example\\share",
    "ftp://evil.example/x",
    "1.2.3.4/x?d=1",
    "1.2.3.4/24?d=1",
    "1.2.3.4/8/secret",
    "hxxps:\\\\secret.evil.example/x",
    "secret.evil.sh/x?d=1",
    "secret.evil.example:8080",
    "webcal:evil.example/x",
    "steam:run",
    "search:query=x",
    "http://[2001:db8::1]/x",
    "1https://16909060/x",
    f"{'a' * 40}https://16909060/x",
    "\u00e91http`:`//16909060/x",
    "javascript:alert(1)",
    "data:text/html,x",
    "\x1b]8;;http://evil.example/x\x07click\x1b]8;;\x07",
]
LIVE = re.compile(
    r"(?i)https?`?:|\bftp:|(?<![\w:\[])//\w|\\\\\w|\bwww\.|\bjavascript:|\bdata:|\]\(|^[ "
    r">]*\[[^\]]+\]:|<[a-z/!]"
    r"|evil\.example[/?]|\.evil\.example|1\.2\.3\.4|[\x00-\x08\x0b-\x1f\x7f-\x9f]",
    re.MULTILINE,
)


@pytest.mark.parametrize("text", ADDRESSES)
def test_sanitized_text_contains_no_usable_address(text):
    assert not LIVE.search(neutralize(text))


@pytest.mark.parametrize(
    "text",
    [
        "# Morning\n\n- **Load**: 0.1/0.2/0.3\n- 3 < 4 and a & b",
        "systemd-journald.service failed; see notes.md, src/main.py:12 and foo.tar.gz",
        "Version 3.11.2 on 10.0.0.0/8, 192.168.1.1, C:\\dir, key: value, a/b/c.txt, e.g. this",
        "| a | b |\n| --- | --- |\n| `x` | **y** |",
        "备份完成。磁盘 71%。",
        "1.备份完成\n2.磁盘71%，内存3.2GB。版本v2.0.1。时间：12:30。搜索:无。文件config.toml。完成",
        "/boot is at 30 %, /home/anna at 5, /backup; `GET`/`POST` to a/b, 100 km/h, root@server",
        "GET /v1/runs; 5 @ 3 GHz; /var/run/x",
        "**Data:** 5 GB, __Search:__ 3, `tel:` none\n- **News:**\n| **Market:** | 7 |",
    ],
)
def test_ordinary_reports_are_not_changed_by_sanitizing(text):
    assert neutralize(text) == text


def test_terminal_sequences_are_removed_and_an_unfinished_sequence_loses_at_most_one_line():
    assert (
        strip_controls("\x1b[31mred\x1b[0m \x1b]0;title\nthe rest\u202e\u2066") == "red \nthe rest"
    )


bits = ["&#58;", "&amp;", "\\", "<", "]", "(", "](", "://", ":", "/", "//", ".", "a", " ", "\n"]
pieces = st.sampled_from([*ADDRESSES, *bits])


@scaled_settings(300)
@example("secret.evil.example:8080secret.evil.example:8080")
@given(st.lists(pieces, max_size=12).map("".join))
def test_sanitizing_is_idempotent(text):
    once = neutralize(text)
    assert neutralize(once) == once
    assert not re.search(r"(?i)\bhttps?:\\?//|\]\(|<[a-z/!?]", once)


# --- what other programs make of it

# The linkifiers of markdown-it (many web mailers and chats) and of bleach. Both link bare names of
# files whose ending is a top-level domain (`main.rs`), which a report may hold.
LINKIFY = LinkifyIt({}, {"fuzzy_ip": False}).tlds(list(ALL_TLDS))
URLS = build_url_re(tlds=[*TLDS, "rs", "sh", "zip", "example"])
# What previews in chats follow: a name with a known ending, with or without a scheme.
_TOPS = "|".join(sorted(map(str.lower, ALL_TLDS), key=len, reverse=True))
CHAT = re.compile(
    rf"(?i)(?<![\w@.-])(?:[a-z0-9-]+\.)+(?:{_TOPS}|example)(?::\d+)?(?:[/?#]\S*|(?![\w.-]))"
)
FILE_NAME = re.compile(
    r"(?i)(?:src/|d=)?[\w-]+\.(?:md|py|rs|sh|zip|so|cc|target|map)(?::\d+)?[\s.,;:!?)]*"
)
SCHEMES = ["https:", "HTTP:", "ftp:", "hxxps:", "mailto:", "webcal:", "steam:", "", "", ""]
HOSTS = ["evil.com", "KEY.evil.sh", "a.b.co", "evil.рф", "xn--e1afmkfd.xn--p1ai", "203.0.113.9"]
HOSTS += ["evil.zip", "e.io", ".".join("abcdefghijklmnop") + ".com"]
TAILS = ["", "/", "/x?d=KEY", "?d=KEY", "#KEY", ":8080", ":8080/x", "/24?x", "/8/x", ".", ",", ")"]
SLASHES = ["", "//", "\\\\", "/", "/\\"]
addresses = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(SCHEMES),
    st.sampled_from(SLASHES),
    st.sampled_from(["", "", "user@", "user:word@", "www.", "_dmarc.", "-"]),
    st.sampled_from(HOSTS),
    st.sampled_from(TAILS),
)
words = st.sampled_from(
    [
        "see",
        "main.rs",
        "&#x2e;",
        "，",
        "。",
        "详见",
        "3.2GB。",
        "\n",
        *"()[]<>*`_=:|&/\\'\"@#~-.",
        "src/main.py:12",
    ]
)


def links_in(text):
    """Return what a program would make links of, but for names of files."""
    links = [match.raw for match in LINKIFY.match(text) or ()]
    links += [match[0] for match in URLS.finditer(text)]
    links += [match[0] for match in CHAT.finditer(text)]
    return [link for link in links if not FILE_NAME.fullmatch(link)]


@scaled_settings(500)
@given(st.lists(st.tuples(st.one_of(addresses, words), st.sampled_from(["", " "])), max_size=6))
def test_no_linkifier_finds_an_address_in_a_sanitized_report(pieces):
    text = neutralize("".join(piece + blank for piece, blank in pieces))
    assert links_in(text) == []


# Signs that Markdown takes away, alone and with the spaces that it takes out of code.
SIGNS = ["", "", "", "", "\\", "*", "**", "_", "__", "`", "``", "~~", "` ", " `", "&#42;", "&bsol;"]
DOTS = [".", ".", "\\.", "&#46;", "&period;", "\\&#46;", "`.`", "**.**", "*\\.*", "。"]
COLONS = [":", "\\:", "&colon;", "**:**", "`:`"]
LABELS = [
    "evil",
    "KEY",
    "cafe\u0301",
    "हिन्दी",
    "\U0001f600",
    "a\u200d",
    "e",
    "*ev*il",
    "e`vi`l",
    "_x_",
]
TOPS = ["com", "ws", "c`o`m", "c` om `", "**com**", "com*x*", "com`x`", "com_", "co.uk", "рф"]
SCHEMES_WITH_SIGNS = ["https", "_https", "h`ttp`s", "*http*", "mailto", "mail`to`", "javascript"]


@st.composite
def disguised_addresses(draw):
    """Return an address whose parts Markdown puts together."""
    parts = []
    if draw(st.booleans()):
        parts += [draw(st.sampled_from(SCHEMES_WITH_SIGNS)), draw(st.sampled_from(COLONS))]
        parts += draw(st.sampled_from([["/", "/"], ["\\/", "\\/"], ["**/**", "/"], []]))
    parts += draw(st.sampled_from([[], ["x", "@"], ["www", draw(st.sampled_from(DOTS))]]))
    for label in draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=2)):
        parts += [label, draw(st.sampled_from(DOTS))]
    parts += [
        draw(st.sampled_from(TOPS)),
        *draw(st.sampled_from([[], ["/", "?d=KEY"], ["\\?d=KEY"]])),
    ]
    return "".join(part + draw(st.sampled_from(SIGNS)) for part in parts)


def shown_texts(report):
    """Return a sanitized report as a desktop, a mail, Telegram and the web page show it."""
    sanitized = neutralize(report)
    pages = [
        render_html(sanitized),
        render_telegram_html(sanitized),
        report_html(report, "low", top_level=2),
    ]
    return [render_text(sanitized), *(html.unescape(re.sub("<[^>]+>", "", page)) for page in pages)]


@scaled_settings(500)
@example("evil.café&bsol;\\.com")
@example("www\\.evil\\.com/?d=KEY")
@example("https:**/**/evil\\.com/?d=KEY")
@example("https&colon;**/**/localhost\\&#46;com")
@example("mailto\\:x@evil\\.com")
@example("evil`.`com")
@example("evil.c` om `")
@example("evil&#92;&#46;com*x*")
@example("see cafe\u0301.com/?d=KEY")
@example("हिन्दी.com/?d=KEY")
@example("\U0001f600.ws/?d=KEY")
@example("a\u200d.com/?d=KEY")
@example("_evil.com_")
@example("[evil][a\\]b].com\n\n- [a\\]b]: x")
@given(
    st.lists(
        st.one_of(disguised_addresses(), words, st.sampled_from(["*", "`", "**", "\n- ", "\n\n"])),
        max_size=5,
    ).map(" ".join)
)
def test_no_linkifier_finds_an_address_in_what_is_shown_of_a_sanitized_report(report):
    assert [links_in(text) for text in shown_texts(report)] == [[], [], [], []]
    assert neutralize(neutralize(report)) == neutralize(report)


# What Telegram makes of a text outside of code: commands, which a tap sends, and mentions.
COMMAND = re.compile(
    r"(?<![\w/<>])/(?:(?i:start|help|new|status|run|pause|resume)|[A-Za-z0-9_]{1,64}@\w+)(?![\w/<>])"
)
MENTION = re.compile(r"(?<!\w)@_*[A-Za-z0-9]\w{1,31}(?!\w)|(?i:@(?:everyone|here|channel|all)\b)")
HARMLESS_COMMAND = re.compile(
    r"(?<![\w/<>])/(?:(?i:start|help|new|status|run|pause|resume)|[A-Za-z0-9_]{1,64}@\w+)(?![\w/<>])"
)
CALLS = ["/resume", "/run@agentd_bot", "/New", "/boot", "@everyone", "@Here", "@evil_bot"]
AROUND = ["", " ", "\n", "\n- ", "(", ")", ".", ":", "]", "[", "x", "/", "|", ">"]


@st.composite
def disguised_calls(draw):
    """Return commands and mentions, with signs in them that are gone where Markdown is rendered."""
    text = ""
    for call in draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3)):
        for _ in range(draw(st.integers(0, 3))):
            place = draw(st.integers(0, len(call)))
            sign = draw(st.sampled_from([*SIGNS, "&#x200b;"]))
            call = f"{call[:place]}{sign}{call[place:]}"
        text += draw(st.sampled_from(AROUND)) + call
    return text


@scaled_settings(500)
@example("All is well. If reports stop, tap /resume once.")
@example("/resume@agentd_bot")
@example("**/**resume")
@example("/boot@evil_bot")
@example("x*/resume")
@example("/r\\esume/resume")
@example("/re*su*me, /\\resume or &#47;resume")
@example("@every*one* and @evil_help_bot")
@example("x@everyone")
@example("x*@evil_bot*")
@given(disguised_calls())
def test_nothing_in_a_sanitized_report_is_a_command_or_a_mention_in_a_chat(report):
    sanitized = neutralize(report)
    message = re.sub(
        "<code>.*?</code>|<pre>.*?</pre>", " ", render_telegram_html(sanitized), flags=re.DOTALL
    )
    for text in (html.unescape(re.sub("<[^>]+>", "", message)), render_text(sanitized)):
        assert not COMMAND.search(text)
        assert not MENTION.search(text)
    assert neutralize(sanitized) == sanitized


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "live"),
    [
        ("/resume", r"\A/resume\b"),
        ("@name", r"\A@name"),
        ("mailto:a", r"\Amailto:"),
        (f",evil.com.{'1' * 200}", r"\bevil\.com\Z"),
    ],
)
def test_no_cut_through_a_word_makes_it_live(word, live):
    for length in range(3_900, 4_100):  # around the end of a message
        text = neutralize("x" * length + word + " and more words" * 20)
        parts = split_up_to_max_parts(text, 4_096, sanitize=neutralize)
        assert not [part for part in parts if re.search(live, part)]
        assert all(len(part) <= 4_096 for part in parts)


def test_a_mailbox_without_a_domain_is_no_link():
    assert "href" not in render_html(neutralize("<1@localhost>"))


@pytest.mark.parametrize(
    "text",
    [
        "Changed: `main.py`, **src/main.rs**, `a.md`—`b.md`, _notes.md_ and ~~old.sh~~.",
        "文件`main.py`、test.py，foo.md。\n完成",
        "See `foo`. `bar` calls `str.is_valid`; the `.com` and `.env` files, C:\\dir\\main.py",
        "**Load**: 0.1/0.2/0.3, **10.0.0.0/8**, `10.0.0.0/8`, version **3.11.2**",
    ],
)
def test_names_of_files_and_code_are_not_changed_by_sanitizing(text):
    assert neutralize(text) == text


@scaled_settings(300)
@example("&#" + "1" * 5000 + ";")
@example("&#x" + "f" * 5000 + ";")
@example("&#0000000000065; \ud800 &amp;#" + "9" * 4301)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=20),
            st.from_regex(r"&#x?[0-9a-f]{1,9};?"),
            st.sampled_from(["\ud800", "\x00", "&" * 30, "&#" + "7" * 4400]),
        ),
        max_size=8,
    ).map("".join)
)
def test_sanitizing_never_fails_and_never_needs_to_be_done_twice(text):
    once = neutralize(text)
    assert neutralize(once) == once
