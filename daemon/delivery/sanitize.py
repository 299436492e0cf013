"""Take out of a report what acts by itself where it is read: links and images, mark-up, control
sequences.

A mail client, a chat and a browser fetch pictures and show previews of links before anybody clicks;
an address with something in its path or its name has then been told to whoever wrote it. So in a
report whose run has read what strangers wrote no address stays one: each can still be read, and
none is followed. Nothing here knows which addresses are good, and no list could.

Theory of operation: text is brought to one form first (entities undone, invisible characters out),
so that what is looked for cannot be spelt another way. Then each construct by which Markdown, HTML,
chats or terminals make something of text is broken where it begins. Doing it twice changes nothing
more.
"""

from __future__ import annotations

import re

# ECMA-48 sequences with what they carry (CSI; OSC, DCS and the like up to their end), then any
# other control character. An open one ends with its line: it must not swallow the rest of the
# report.
_SEQUENCES = re.compile(
    r"(?m)(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\n]*?(?:\x1b\\|[\x07\x9c]|$)|\x1b[^\n]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What no reader sees but a model does, and what makes text read otherwise than it is written: tags,
# direction overrides, soft hyphens and zero width (between letters of joined scripts they are
# spelling, in addresses they hide).
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_UNDO_AT_MOST = 8

_SCHEME = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30}?)(\\?[:：]\\?)(?=[\\/／]{2})")
# Schemes that act without two slashes.
_BARE_SCHEME = re.compile(
    r"(?i)\b(javascript|vbscript|data|mailto|tel|sms|facetime|file|blob|magnet|ms-[a-z-]+|callto|skype|whatsapp|tg"
    r"|slack|vscode|xmpp|sips?)([:：])(?=\S)"
)
# `//host/path` and `\\server\share` are addresses, too: of the same scheme, and of a share that is
# told who asks.
_SCHEMELESS = re.compile(r"(?<![:\w/\\])(?:[\\/]{2})(?=[\w\[])")
_LABEL = r"[^\W_](?:[\w-]{0,62}[^\W_])?"
# A name of a host that a chat would take for an address: with a path or a question behind it, or in
# three parts.
_HOST = re.compile(
    rf"(?<![\w@.\\-])(?<![\w.~\s]/)(?<!^/)(?:{_LABEL}[.。．｡]){{1,10}}(?P<top>[^\W\d_]{{2,24}}|xn--[\w-]{{1,59}})"
    r"(?P<port>:\d{1,5})?(?P<rest>[/?#]|(?![\w.]))"
)
# A number instead of a name, asked for something; `10.0.0.0/8` is a network.
_NUMBER = re.compile(
    r"(?<![\w.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?=(?::\d{1,5})?[/?#](?!\d{1,2}(?!\w)))"
)
_CALLS = re.compile(r"@(?=(?:everyone|here|channel|all)\b)")
_WWW = re.compile(r"(?i)\bwww(?=[.。．｡])")
# Endings of files, which are not asked for over a network.
_FILES = (
    "service socket timer target mount slice scope path device conf cfg toml yaml yml json log gz "
    "xz zst bz tar zip md"
    " txt py pyc pyi js ts css html htm h c cc cpp hpp rs go rb sh bash sql db sqlite csv tsv xml "
    "ini env lock pem key"
    " crt deb rpm whl so ko exe dll bak tmp swp orig rej patch diff pid sock out err jpg jpeg png "
    "gif svg pdf odt docx"
)
_NO_TOPS = frozenset(_FILES.split(" "))


def printable(text: str) -> str:
    """Return text without anything that does something to a terminal or hides in the text."""
    return _CONTROLS.sub("", _UNSEEN.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n"))))


def neutral(text: str) -> str:
    """Return a report in which nothing acts by itself and no address is one any more."""
    from html import unescape  # the names of 2,231 characters, which an idle daemon can do without

    text = printable(text)
    for _ in range(_UNDO_AT_MOST):
        undone = printable(unescape(text))
        if undone == text:
            break
        text = undone
    else:
        text = text.replace("&", "＆")
    text = re.sub(r"<(?=[\s/]*[A-Za-z!?/])", "‹", text)  # HTML, and Markdown's <address>
    text = re.sub(r"\](?=\()", "] ", text)  # [text](address), ![picture](address)
    text = re.sub(r"(?m)^([ \t>]*\[[^\]\n]{1,999}\])(?=:)", r"\1 ", text)  # [name]: address
    text = _SCHEME.sub(_no_scheme, text)
    text = _BARE_SCHEME.sub(r"\1[\2]", text)
    text = _SCHEMELESS.sub("[//]", text)
    text = _WWW.sub("www[.]", text).replace("www[.].", "www[.]")
    text = _NUMBER.sub(r"\1[.]\2[.]\3[.]\4", _CALLS.sub("@ ", text))
    return _HOST.sub(_no_host, text)


def _no_scheme(found: re.Match[str]) -> str:
    scheme = found[1]
    if scheme.lower() in ("hxxp", "hxxps"):
        return found[0]
    if scheme.lower() in ("http", "https"):
        return f"{scheme[0]}xx{scheme[3:]}{found[2]}"
    return f"{scheme}[{found[2]}]"


def _no_host(found: re.Match[str]) -> str:
    top, asked = found["top"].lower(), found["rest"]
    parts = re.split(r"[.。．｡]", found[0][: len(found[0]) - len(asked) - len(found["port"] or "")])
    if top in _NO_TOPS or (len(parts) < 3 and asked not in ("/", "?", "#")):
        return found[0]
    return "[.]".join(parts) + (found["port"] or "") + asked
