"""Remove from a report what acts by itself where it is shown: links and images, markup, control
sequences.

Mail clients, chats and browsers fetch images and previews of links before anybody clicks, and the
request carries the path and host name of the address, with any data put there, to the author of the
link. So in a tainted report (its run has read text of strangers) no address works: a person can
read it, but no program follows it. No list could tell good addresses from bad ones, so there is
none.

Theory of operation: text is brought to one form first (entities decoded, invisible characters
removed), so that a construct cannot be spelt in another way. Then each construct that Markdown,
HTML, chats or terminals interpret is broken at its beginning, also where signs of Markdown that
disappear when it is rendered stand inside. Doing it twice changes nothing more.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import accumulate, pairwise

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

# Signs of Markdown that are gone where it is rendered: escapes, emphasis, code, strikethrough. They
# may stand anywhere in an address: `evil\.com`, ``evil`.`com``. Which of them disappear depends on
# the program, so all are taken as possibly absent. `_` inside a word never disappears.
_MARK = r"[*`~\\]"
# At the edge of a word `_` may disappear, too.
_EDGE_MARK = r"[*_`~\\]"
# Chinese and Japanese put no space before an address: `详见https://…`.
_NO_WORD_BEFORE = "(?<![0-9A-Za-z])"
# A character of a name: no white space and no punctuation. Letters are too few: a name may end in a
# combining character, an emoji or a joiner.
_NO_NAME = (
    r"\s!-/:-@\[-`{-~\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u2010-\u2027\u2030-\u205e"
    r"\u3001-\u3003\u3008-\u3011\u3014-\u301f\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
_NAME = f"[^{_NO_NAME}]"

_SCHEME = re.compile(
    rf"{_NO_WORD_BEFORE}(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{{0,30}}?)(?P<before>{_EDGE_MARK}*+)"
    rf"(?P<colon>[:：])(?={_EDGE_MARK}*[\\/／]{_EDGE_MARK}*[\\/／])"
)
# The same behind anything else: chats that look for `https://` anywhere make a link of
# `1https://…`, too.
_COLON_AND_SLASHES = re.compile(
    rf"(?<=[0-9A-Za-z])(?P<before>{_EDGE_MARK}*+)(?P<colon>[:：])"
    rf"(?={_EDGE_MARK}*[\\/／]{_EDGE_MARK}*[\\/／])"
)
_BROKEN_SCHEME = re.compile(rf"(?i){_NO_WORD_BEFORE}hxxps?\Z")
_MAX_BROKEN_SCHEME = 6  # characters of it, with the one before
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
_BARE_SCHEME = re.compile(rf"(?i){_NO_WORD_BEFORE}(?:{_BARE_SCHEMES.replace(' ', '|')})\Z")
# What may be one of them: a word before a colon.
_WORD_AND_COLON = re.compile(
    rf"{_NO_WORD_BEFORE}(?P<word>[A-Za-z](?:{_MARK}*+[A-Za-z0-9+.-]){{0,60}}+)"
    rf"(?P<before>{_EDGE_MARK}*+)(?P<colon>[:：])(?={_EDGE_MARK}*+\S)"
)
# `//host/path` and `\\server\share` are addresses as well: one uses the scheme of its page, the
# other is a network share, which is sent the user's name.
_SLASHES = re.compile(
    rf"(?<![:/\\]|[^\W_])(?:\\?/{_EDGE_MARK}*+/|[\\/]{{2}})"
    rf"(?=[-.*_`~\\|$+=^@]*{_NAME}|\[(?![.:]))"
    r"|(?<=:)(?:\\{2}|/\\|\\/)(?=\w|\[(?![.:]))"
)
_FULL_STOPS = "[。．｡]"  # a program may read these as dots of a name, or as the end of a sentence
_DOTS = "[.。．｡]"
_LABEL = rf"[*`~\\]*+(?:{_NAME}|[-_])(?:{_NAME}|[-*_`~\\])*+"
_LAST_LABEL = rf"[-*_`~\\]*+{_NAME}(?:{_NAME}|[-*_`~\\])*+"
# A name of a host that a chat or a mail client would turn into a link; `in_path` is the slash of a
# path that it stands in. Some take a symbol before the dot for a letter of the name (`evil|.com`).
_HOST = re.compile(
    rf"(?P<in_path>(?<=[\w.~])/)?"
    rf"(?P<name>(?:(?<!{_NAME})(?<![-*_`~\\]){_LABEL}|[$+=^|~]{_EDGE_MARK}{{0,9}}+){_DOTS}"
    rf"(?:{_LABEL}{_DOTS}){{0,9}}{_LAST_LABEL})"
    rf"(?P<port>:{_EDGE_MARK}*+\d{{1,5}}{_EDGE_MARK}*+(?!{_NAME}|-))?"
    rf"(?P<suffix>[/?#]|(?![.][-*_`~\\]*+{_NAME}))"
)
# The part of a name up to which a program may read it as the top-level domain. Some programs end it
# before the first letter that is not of ASCII: `evil.com详见`.
_PIECE = re.compile(r"[0-9A-Za-z_]+|(?:(?![0-9A-Za-z_])\w)+|[^\w*`~\\]")
_MAX_PIECES = 70  # more characters than a label of a host has
_MAX_LABEL = 63
_TOP_LEVEL = re.compile(r"xn--[\w-]*|[^\W\d_]{2,24}")
# An IP address with a path or a query; `10.0.0.0/8` is a network and stays.
_NUMBER = rf"\d(?:{_MARK}*+\d){{0,2}}+{_EDGE_MARK}*+"
_IP_ADDRESS = re.compile(
    rf"(?<![.]|[^\W_])(?:{_NUMBER}\.{_EDGE_MARK}*+){{3}}{_NUMBER}"
    rf"(?=(?::{_EDGE_MARK}*\d{{1,5}}{_EDGE_MARK}*)?[/?#])"
    rf"(?!/\d{{1,2}}{_EDGE_MARK}*(?:[.,;:!)\]}}]?{_EDGE_MARK}*(?:\s|$)|[^\w/?#:.\\*`~-]))"
)
# What notifies in a chat: `@name`, unless it stands behind a word, and `@everyone` and its like,
# which do so behind a word, too.
_EVERYBODY = "|".join(f"{_MARK}*".join(word) for word in ("everyone", "here", "channel", "all"))
_MENTIONS = re.compile(rf"(?i)(?<![^\W_])@(?={_EDGE_MARK}*+\w)|@(?={_EDGE_MARK}*+(?:{_EVERYBODY}))")
# A tap on `/name` in Telegram sends it to the bot that wrote it, and on `/name@bot` to that bot.
_COMMAND = re.compile(
    rf"(?<![*_`~\\])(?P<before>{_EDGE_MARK}*+)/(?=(?P<between>{_EDGE_MARK}*+)"
    rf"(?P<name>[A-Za-z0-9_]++)(?![\w/<>])(?P<goes_on>{_EDGE_MARK}*+[\w@])?)"
)
_CHAT_COMMANDS = frozenset({"start", "help", "new", "status", "run", "pause", "resume"})
_WWW = re.compile(rf"(?i){_NO_WORD_BEFORE}(w{_MARK}*w{_MARK}*w{_EDGE_MARK}*){_DOTS}")
# `[name]: address`, whose name may have several lines; it may stand in a quote or a list.
_DEFINITION = re.compile(r"(?m)^([ \t>*+\-\d.)]*\[(?:\\[^\n]|[^\\\[\]]){1,999}+\])(?=:)")
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
    # HTML, and Markdown's <address>
    text = re.sub(r"<(?=[\s/]*[A-Za-z!?/]|[^\s<>‹]*@)", "‹", text)
    text = _DEFINITION.sub(r"\1 ", text)
    text = _SCHEME.sub(_break_scheme, text)
    text = _COLON_AND_SLASHES.sub(_break_colon, text)
    text = _WORD_AND_COLON.sub(_break_bare_scheme, text)
    text = _SLASHES.sub("[//]", text)
    text = _WWW.sub(r"\1[.]", text)
    text = _MENTIONS.sub("@ ", text)
    text = _COMMAND.sub(_break_command, text)
    text = _IP_ADDRESS.sub(lambda match: match[0].replace(".", "[.]"), text)
    text = _HOST.sub(_break_host, text)
    return re.sub(r"\](?=\()", "] ", text)  # [text](address), ![picture](address)


def _break_scheme(match: re.Match[str]) -> str:
    scheme = match["scheme"]
    if scheme.lower() in ("hxxp", "hxxps"):
        return match[0]
    if scheme.lower() in ("http", "https"):
        return f"{scheme[0]}xx{scheme[3:]}{match['before']}{match['colon']}"
    return f"{scheme}{match['before']}[{match['colon']}]"


def _break_colon(match: re.Match[str]) -> str:
    start = max(0, match.start() - _MAX_BROKEN_SCHEME)
    if _BROKEN_SCHEME.search(match.string[start : match.start()]):
        return match[0]
    return f"{match['before']}[{match['colon']}]"


def _break_bare_scheme(match: re.Match[str]) -> str:
    pieces = re.split(f"{_MARK}+", match["word"])
    # a program may read the word from any sign on
    if any(_BARE_SCHEME.search("".join(pieces[first:])) for first in range(len(pieces))):
        return f"{match['word']}{match['before']}[{match['colon']}]"
    return match[0]


def _break_command(match: re.Match[str]) -> str:
    character_before = match.string[match.start() - 1] if match.start() else " "
    # A slash of a path stands behind a name or a slash, also where each part is code. Other marks
    # in between may be shown as they are: then the slash begins a command.
    is_in_path = (character_before == "/" or character_before.isalnum()) and (
        not match["before"] or set(match["before"]) == set(match["between"]) == {"`"}
    )
    is_command = match["name"].lower() in _CHAT_COMMANDS or match["goes_on"]
    if is_in_path or not is_command:
        return match[0]
    return f"{match['before']}[/]"


def _break_host(match: re.Match[str]) -> str:
    name, port, suffix = match["name"], match["port"] or "", match["suffix"]
    slash = match["in_path"] or ""
    # Chinese and Japanese put no space after a full stop, so each sentence is read alone:
    # `3.2GB。详见`
    parts = re.split(f"({_FULL_STOPS})", name)
    last = len(parts) - 1
    for index, part in enumerate(parts):
        if index % 2:  # a full stop, which stands for a dot only before a top-level domain
            next_part = re.sub(_EDGE_MARK, "", parts[index + 1]).lower()
            labels_before = len(re.findall(_DOTS, "".join(parts[:index]))) + 1
            if (labels_before > 1 or (suffix and index + 1 == last)) and _is_top_level_domain(
                next_part
            ):
                parts[index] = "[.]"
        elif _is_host(
            part,
            port=port if index == last else "",
            suffix=suffix if index == last else "",
            in_path=bool(slash) and index == 0,
        ):
            parts[index] = part.replace(".", "[.]")
    return slash + "".join(parts) + port + suffix


def _is_host(name: str, *, port: str, suffix: str, in_path: bool) -> bool:
    """Return whether a program may read a name as that of a host.

    `port` and `suffix` follow the name, each may be empty; `in_path`: a slash of a path is before
    it.
    """
    labels = name.split(".")
    if len(labels) == 1:
        return False
    if any(
        re.search(r"[^\w-]", label + next_label)
        and _top_level_domains_in(label) - _FILE_ENDING_WORDS
        for label, next_label in pairwise(labels[1:])
    ):
        return True  # a sign may end the address before the last label
    endings = _endings_of(labels[-1])
    domains = _top_level_domains_in(labels[-1])
    if not any(map(_TOP_LEVEL.fullmatch, endings)) and not domains:
        return False
    is_file_ending = (
        domains <= _FILE_ENDING_WORDS if domains else not _FILE_ENDING_WORDS.isdisjoint(endings)
    )
    if not domains and (is_file_ending or in_path):
        return False
    if len(labels) == 2 and not suffix:
        # `main.py`, `src/main.py:12` and `done.The` are read as such, `evil.com` is not
        return bool(domains) and not (is_file_ending and (not port or in_path))
    return True


def _endings_of(label: str) -> list[str]:
    """Return what a program may read as the label: all of it, or up to a sign inside."""
    pieces = _PIECE.findall(label)[:_MAX_PIECES]
    return [ending.strip("_").lower() for ending in accumulate(pieces)]


def _top_level_domains_in(label: str) -> set[str]:
    return {ending for ending in _endings_of(label) if ending and _is_top_level_domain(ending)}


def _is_top_level_domain(name: str) -> bool:
    if len(name) > _MAX_LABEL:
        return False
    if name.isascii():
        return name.startswith("xn--") or name in _top_level_domains()
    try:
        return name.encode("idna").decode() in _top_level_domains()
    except UnicodeError:
        return False


@cache
def _top_level_domains() -> frozenset[str]:
    lines = files("daemon.delivery").joinpath("top_level_domains.txt").read_text("ascii")
    return frozenset(
        name for line in lines.splitlines() if not line.startswith("#") for name in line.split()
    )
