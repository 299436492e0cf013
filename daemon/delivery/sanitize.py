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
from functools import cache
from importlib.resources import files

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
# References to characters that are none, or are written with many zeros: Python refuses to read
# thousands of digits, and programs differ in what they make of them.
_LONG_REFERENCE = re.compile(r"&(?=#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,}))")

_SCHEME = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30}?)(\\?[:：]\\?)(?=[\\/／]{2})")
# Schemes that act without two slashes: those of IANA's registry that address something
# (https://www.iana.org/assignments/uri-schemes), and those of programs that many have.
_BARE_SCHEMES = (
    "javascript vbscript data mailto tel sms smsto mms facetime facetime-audio file blob "
    "magnet ms-[a-z-]{1,40} callto skype whatsapp tg slack vscode vscode-insiders xmpp sips? "
    "webcals? steam zoommtg zoomus intent search search-ms msteams bitcoin ethereum geo maps "
    "market itms itms-apps itms-services news nntp irc ircs irc6 ldaps? sftp ssh telnet rtsp "
    "rtmp ed2k view-source about chrome edge microsoft-edge onenote openpgp4fpr otpauth "
    "spotify discord signal sgnl viber weixin alipays? fb-messenger obsidian notion shortcuts "
    "x-apple[a-z.-]{0,40} cid mid dav git svn smb nfs afp vnc rdp feed aim ymsgr teamspeak "
    "ts3server mumble ventrilo lync matrix acct urn wtai jar unreal"
)
_BARE_SCHEME = re.compile(rf"(?i)\b({_BARE_SCHEMES.replace(' ', '|')})([:：])(?=\S)")
# `//host/path` and `\\server\share` are addresses as well: one uses the scheme of its page, the
# other is a network share, which is sent the user's name.
_SLASHES = re.compile(r"(?<![:\w/\\])(?:[\\/]{2})(?=[\w\[])|(?<=:)(?:\\{2}|/\\|\\/)(?=[\w\[])")
_LABEL = r"[^\W_](?:[\w-]{0,62}[^\W_])?"
# A name of a host that a chat or a mail client would turn into a link; `in_path` is the slash of a
# path that it stands in.
_HOST = re.compile(
    rf"(?P<in_path>(?<=[\w.~])/)?(?<![^\W_])(?:{_LABEL}[.。．｡]){{1,10}}"
    r"(?P<top>xn--[\w-]{1,59}|[^\W\d_]{2,24})(?P<port>:\d{1,5})?(?P<rest>[/?#]|(?!\w|[.][^\W_]))"
)
# An IP address with a path or a query; `10.0.0.0/8` is a network and stays.
_IP_ADDRESS = re.compile(
    r"(?<![\w.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?=(?::\d{1,5})?[/?#])"
    r"(?!/\d{1,2}(?:[.,;:!)\]}]?(?:\s|$)|[^\w/?#:.\\-]))"
)
_MENTIONS = re.compile(r"@(?=(?:everyone|here|channel|all)\b)")
_WWW = re.compile(r"(?i)\bwww(?=[.。．｡])")
# Endings of names of files and units. Some are top-level domains, too (`md`, `py`, `sh`, `zip`).
_FILE_ENDINGS = (
    "service socket timer target mount slice scope path device conf cfg toml yaml yml json "
    "log gz xz zst bz tar zip md txt py pyc pyi js ts css html htm h c cc cpp hpp rs go rb sh "
    "bash sql db sqlite csv tsv xml ini env lock pem key crt deb rpm whl so ko exe dll bak "
    "tmp swp orig rej patch diff pid sock out err jpg jpeg png gif svg pdf odt docx"
)
_FILE_ENDING_WORDS = frozenset(_FILE_ENDINGS.split())


def strip_controls(text: str) -> str:
    """Return text without control sequences and invisible characters."""
    return _CONTROLS.sub("", _INVISIBLE.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n"))))


def neutralize(text: str) -> str:
    """Return a report in which nothing acts by itself and no address works."""
    from html import unescape  # loads 2,231 entities, which an idle daemon does not need

    text = _LONG_REFERENCE.sub("＆", strip_controls(text))
    for _ in range(_MAX_DECODINGS):
        decoded_text = _LONG_REFERENCE.sub("＆", strip_controls(unescape(text)))
        if decoded_text == text:
            break
        text = decoded_text
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
    top_level, port, suffix = match["top"].lower(), match["port"] or "", match["rest"]
    slash = match["in_path"] or ""
    name = match[0][len(slash) : len(match[0]) - len(suffix) - len(port)]
    labels = re.split(r"[.。．｡]", name)
    is_file_ending, is_domain = top_level in _FILE_ENDING_WORDS, _is_top_level_domain(top_level)
    if not is_domain and (is_file_ending or slash):
        return match[0]
    if len(labels) == 2 and not suffix:
        # `main.py`, `src/main.py:12` and `done.The` are read as such, `evil.com` is not
        is_file = is_file_ending and (not port or slash)
        has_other_dot = name[len(labels[0])] != "."
        if is_file or not is_domain or has_other_dot:
            return match[0]
    return slash + "[.]".join(labels) + port + suffix


def _is_top_level_domain(name: str) -> bool:
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            return False
    return name.startswith("xn--") or name in _top_level_domains()


@cache
def _top_level_domains() -> frozenset[str]:
    lines = files("daemon.delivery").joinpath("top_level_domains.txt").read_text("ascii")
    return frozenset(
        name for line in lines.splitlines() if not line.startswith("#") for name in line.split()
    )
