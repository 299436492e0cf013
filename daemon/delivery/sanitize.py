"""Remove from a report what acts by itself where it is shown: links and images, markup, control
sequences.

Mail clients, chats and browsers fetch images and previews of links before anybody clicks, and the
request carries the path and host name of the address, with any data put there, to the author of the
link. So in a tainted report (its run has read text of strangers) no address works: a person can
read it, but no program follows it. No list could tell good addresses from bad ones, so there is
none.

Theory of operation: text is brought to one form first (entities decoded, invisible characters
removed), so that a construct cannot be spelt in another way. Then each construct that Markdown,
HTML, chats or terminals interpret is broken at its beginning. Doing it twice changes nothing more.
"""

from __future__ import annotations

import re

# ECMA-48 escape sequences with their content (CSI; OSC, DCS and the like up to their terminator),
# then any other control character. A sequence without terminator ends with its line, or it would
# swallow the remaining report.
_SEQUENCES = re.compile(
    r"(?m)(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\n]*?(?:\x1b\\|[\x07\x9c]|$)|\x1b[^\n]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Characters that a model reads but a person does not see, or that change how text is shown: tags,
# direction overrides, soft hyphens, zero width spaces and marks. Zero width joiners stay, as the
# spelling of joined scripts needs them.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_MAX_DECODINGS = 8  # entities within entities: &amp;lt; is &lt; is <

_SCHEME = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30}?)(\\?[:：]\\?)(?=[\\/／]{2})")
# Schemes that act without two slashes.
_BARE_SCHEME = re.compile(
    r"(?i)\b(javascript|vbscript|data|mailto|tel|sms|facetime|file|blob|magnet|ms-[a-z-]+|callto|skype|whatsapp|tg"
    r"|slack|vscode|xmpp|sips?)([:：])(?=\S)"
)
# `//host/path` and `\\server\share` are addresses as well: one uses the scheme of its page, the
# other is a network share, which is sent the user's name.
_SLASHES = re.compile(r"(?<![:\w/\\])(?:[\\/]{2})(?=[\w\[])")
_LABEL = r"[^\W_](?:[\w-]{0,62}[^\W_])?"
# A host name that a chat would turn into a link: followed by a path or a query, or of three labels.
_HOST = re.compile(
    rf"(?<![\w@.\\-])(?<![\w.~\s]/)(?<!^/)(?:{_LABEL}[.。．｡]){{1,10}}(?P<top>[^\W\d_]{{2,24}}|xn--[\w-]{{1,59}})"
    r"(?P<port>:\d{1,5})?(?P<rest>[/?#]|(?![\w.]))"
)
# An IP address with a path or a query; `10.0.0.0/8` is a network and stays.
_IP_ADDRESS = re.compile(
    r"(?<![\w.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?=(?::\d{1,5})?[/?#](?!\d{1,2}(?!\w)))"
)
_MENTIONS = re.compile(r"@(?=(?:everyone|here|channel|all)\b)")
_WWW = re.compile(r"(?i)\bwww(?=[.。．｡])")
# Endings of file names: `notes.md/` and the like are not hosts.
_FILE_ENDINGS = (
    "service socket timer target mount slice scope path device conf cfg toml yaml yml json log gz "
    "xz zst bz tar zip md"
    " txt py pyc pyi js ts css html htm h c cc cpp hpp rs go rb sh bash sql db sqlite csv tsv xml "
    "ini env lock pem key"
    " crt deb rpm whl so ko exe dll bak tmp swp orig rej patch diff pid sock out err jpg jpeg png "
    "gif svg pdf odt docx"
)
_NOT_TOP_LEVEL = frozenset(_FILE_ENDINGS.split(" "))


def strip_controls(text: str) -> str:
    """Return text without control sequences and invisible characters."""
    return _CONTROLS.sub("", _INVISIBLE.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n"))))


def neutralize(text: str) -> str:
    """Return a report in which nothing acts by itself and no address works."""
    from html import unescape  # loads 2,231 entities, which an idle daemon does not need

    text = strip_controls(text)
    for _ in range(_MAX_DECODINGS):
        decoded = strip_controls(unescape(text))
        if decoded == text:
            break
        text = decoded
    else:
        text = text.replace("&", "＆")
    text = re.sub(r"<(?=[\s/]*[A-Za-z!?/])", "‹", text)  # HTML, and Markdown's <address>
    text = re.sub(r"\](?=\()", "] ", text)  # [text](address), ![picture](address)
    text = re.sub(r"(?m)^([ \t>]*\[[^\]\n]{1,999}\])(?=:)", r"\1 ", text)  # [name]: address
    text = _SCHEME.sub(_break_scheme, text)
    text = _BARE_SCHEME.sub(r"\1[\2]", text)
    text = _SLASHES.sub("[//]", text)
    text = _WWW.sub("www[.]", text).replace("www[.].", "www[.]")
    text = _IP_ADDRESS.sub(r"\1[.]\2[.]\3[.]\4", _MENTIONS.sub("@ ", text))
    return _HOST.sub(_break_host, text)


def _break_scheme(match: re.Match[str]) -> str:
    scheme = match[1]
    if scheme.lower() in ("hxxp", "hxxps"):
        return match[0]
    if scheme.lower() in ("http", "https"):
        return f"{scheme[0]}xx{scheme[3:]}{match[2]}"
    return f"{scheme}[{match[2]}]"


def _break_host(match: re.Match[str]) -> str:
    top_level, suffix = match["top"].lower(), match["rest"]
    labels = re.split(
        r"[.。．｡]", match[0][: len(match[0]) - len(suffix) - len(match["port"] or "")]
    )
    if top_level in _NOT_TOP_LEVEL or (len(labels) < 3 and suffix not in ("/", "?", "#")):
        return match[0]
    return "[.]".join(labels) + (match["port"] or "") + suffix
