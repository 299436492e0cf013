"""Take disguises off a text: look-alike letters, invisible characters, spaced or encoded words.

Every reading is cheap to rule out: most texts are ASCII and hold neither escapes nor long runs without a blank.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

# --- characters ----------------------------------------------------------------------------------------

# Letters drawn like Latin ones that NFKC leaves as they are: Cyrillic, Greek, small capitals, a few others.
_LOOKS = {
    "a": "аαɑᴀꓮ", "b": "вьʙβꓐ", "c": "сᴄϲꓚ", "d": "ԁᴅđꓓ", "e": "еёєεᴇɛꓰ", "f": "ғꜰƒꓝ", "g": "ɡɢցꓖ", "h": "һнʜհꓧ",
    "i": "іїιɪıɩӏꓲ", "j": "јᴊꓙ", "k": "кκᴋꓗ", "l": "ʟłɭꓡ", "m": "мᴍꓟ", "n": "пиηɴոꓠ", "o": "оοσᴏøօꓳ", "p": "рρᴘꓑ",
    "q": "ԛզꞯ", "r": "гяʀꓤ", "s": "ѕꜱʂꓢ", "t": "тτᴛŧꓔ", "u": "цυᴜսꓴ", "v": "ѵνᴠꓦ", "w": "ԝшωᴡꓪ", "x": "хχꓫ",
    "y": "уүγʏꓬ", "z": "зᴢꓜ",
}  # fmt: skip
_LOOKALIKES = {ord(other): latin for latin, others in _LOOKS.items() for other in others}
# Enclosed letters that have no decomposition: negative circled, negative squared, regional indicators.
_ENCLOSED = {first + at: chr(ord("a") + at) for first in (0x1F150, 0x1F170, 0x1F1E6) for at in range(26)}
_TAGS = re.compile("[\U000e0020-\U000e007e]+")
# Format characters, variation selectors and marks over letters, none of which changes what is said.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]")
_ODD = re.compile("[^\x00-\u024f\u2010-\u2027\u3000-\u303f\u4e00-\u9fff\uff00-\uff0f\uff1a-\uff1f]")
_FULL = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\u2460-\u24ff]")
_MIXED = re.compile(r"[a-z][^\x00-\x7f\W]|[^\x00-\x7f\W][a-z]")


def smuggled(text: str) -> str:
    """Return what stands in Unicode tag characters: text that a model reads and nobody sees."""
    if text.isascii():
        return ""
    return " ".join("".join(chr(ord(char) - 0xE0000) for char in run) for run in _TAGS.findall(text))


def folded(text: str) -> str:
    """Return the text in small letters, without what is invisible; full-width and styled letters as plain ones."""
    if text.isascii():
        return text.lower()
    text = _INVISIBLE.sub("", text)
    if _ODD.search(text) or _FULL.search(text):
        text = unicodedata.normalize("NFKC", text).translate(_ENCLOSED)
    bare = unicodedata.normalize("NFD", text)
    return (text if bare == text else unicodedata.normalize("NFC", _MARKS.sub("", bare))).lower()


def unmixed(text: str) -> str:
    """Return folded text with look-alikes as Latin letters, if it holds any beside Latin letters."""
    if text.isascii() or not (_ODD.search(text) or _MIXED.search(text)):
        return text
    return text.translate(_LOOKALIKES)


# --- words -----------------------------------------------------------------------------------------------

_LETTERS_AND_DIGITS = {code: " " for code in range(128) if not chr(code).isalnum()}
_PROSE = _LETTERS_AND_DIGITS | {ord(char): char for char in ".!?:;"} | {ord("'"): None}
_NO_WORD = re.compile(r"[\W_]+")
_NO_PROSE = re.compile(r"(?:[^\w.!?:;]|_)+")


def words_of(text: str) -> list[str]:
    """Return the words of a text; str.translate is many times as fast as a pattern, and most texts are ASCII."""
    return (text.translate(_LETTERS_AND_DIGITS) if text.isascii() else _NO_WORD.sub(" ", text)).split()


def prose_of(text: str) -> str:
    """Return a text with its words apart by single blanks, and of its punctuation only what ends a clause."""
    if text.isascii():
        return " ".join(text.translate(_PROSE).split())
    return _NO_PROSE.sub(" ", text.replace("'", "").replace("\u2019", "")).strip()


# --- escapes -------------------------------------------------------------------------------------------

_ESCAPES = re.compile(r"\\(?:u\{?([0-9a-f]{4,5})\}?|x([0-9a-f]{2})|([nrt]))", re.IGNORECASE)
_PERCENT = re.compile(r"(?:%[0-9a-f]{2}[\w+.~-]{0,30}){3}", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#x?[0-9a-f]{1,6}|[a-z]{2,8});", re.IGNORECASE)
_SOFT_BREAK = re.compile(r"=\r?\n|=(?=[0-9A-F]{2})")


def unescaped(text: str) -> str:
    """Return the text with the escapes of JSON, HTML and URLs read."""
    if "\\" in text:
        text = _ESCAPES.sub(_character, text)
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if "%" in text and _PERCENT.search(text):
        text = unquote(text.replace("+", " "), errors="replace")
    return text


def _character(match: re.Match[str]) -> str:
    if match[3]:
        return "\n" if match[3] in "nr" else " "
    return chr(int(match[1] or match[2], 16))


# --- whole texts in another writing --------------------------------------------------------------------

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,4000}={0,2}")
_BASE32 = re.compile(r"\b[A-Z2-7]{32,4000}={0,6}")
_HEX = re.compile(r"(?:(?:\\x|0x)?[0-9A-Fa-f]{2}[ :,]?){16,2000}")
_MOST = 24  # encoded runs looked at in one text
_LONG = 20
_PAIRS = frozenset(f"{byte:02x}" for byte in range(256)) | frozenset(f"{byte:02X}" for byte in range(256))


def decoded(text: str) -> Iterator[str]:
    """Yield what stands in base64, base32 or hexadecimal, where that is text."""
    pieces = text.split()
    longest = max(map(len, pieces), default=0)  # most texts hold no long piece, and this is soon told
    long = [piece for piece in pieces if len(piece) >= _LONG] if longest >= _LONG else []
    runs = [match[0] for piece in long for match in _BASE64.finditer(piece)]
    for run in [run for run in runs if not run.islower() and (not run.isupper() or _BASE32.fullmatch(run))][:_MOST]:
        if said := _from_base64(run) or _from_base32(run):
            yield said
    sources = [*long, text] if len(_PAIRS.intersection(pieces)) >= 6 or text.count("0x") >= 16 else long
    for match in [match for source in sources for match in _HEX.finditer(source)][:_MOST]:
        digits = re.sub(r"\\x|0x|[^0-9A-Fa-f]", "", match[0])
        if said := _as_text(bytes.fromhex(digits[: len(digits) & ~1])):
            yield said


def _from_base64(run: str) -> str:
    bare = run.rstrip("=").replace("-", "+").replace("_", "/")
    for start in range(min(4, len(bare))):  # a word glued to its front shifts it
        body = bare[start:]
        body = body[: len(body) - 1] if len(body) % 4 == 1 else body
        try:
            if said := _as_text(base64.b64decode(body + "=" * (-len(body) % 4), validate=True)):
                return said
        except (binascii.Error, ValueError):
            continue
    return ""


def _from_base32(run: str) -> str:
    body = run.rstrip("=")
    if not _BASE32.fullmatch(body):
        return ""
    try:
        return _as_text(base64.b32decode(body + "=" * (-len(body) % 8)))
    except (binascii.Error, ValueError):
        return ""


def _as_text(raw: bytes) -> str:
    """Return bytes as text if that is what they are."""
    try:
        said = raw.decode()
    except UnicodeDecodeError as error:
        if error.start < len(raw) - 3 or not error.start:
            return ""
        said = raw[: error.start].decode()
    return said if sum(char.isprintable() or char in "\n\t\r" for char in said) >= 0.95 * len(said) > 0 else ""


# --- words in another writing --------------------------------------------------------------------------

_LEET = (str.maketrans("01345789@$!|+", "oleastbgasilt"), str.maketrans("01345789@$!|+", "oieastbgasiit"))
_LEET_WORD = re.compile(r"(?=[a-z0-9@$!|+]*[0-9@$!|+])(?=[a-z0-9@$!|+]*[a-z])[a-z0-9@$!|+]{3,30}")
_LETTER_ROW = re.compile(r"(?:(?<![^\W_])[^\W\d_][\W_]{1,5}){7,400}[^\W\d_](?![^\W_])")
_GAP = re.compile(r"[\W_]+")


def unleeted(word: str) -> tuple[str, ...]:
    """Return what a word may be with its digits and signs read as letters; nothing if it holds none, or only those."""
    return tuple(word.translate(table) for table in _LEET) if _LEET_WORD.fullmatch(word) else ()


def rows_of_letters(text: str) -> Iterator[str]:
    """Yield words that are written letter by letter: i g n o r e, i.g.n.o.r.e; what is seldom between is a blank."""
    for match in _LETTER_ROW.finditer(text):
        gaps = _GAP.findall(match[0])
        usual = max(set(gaps), key=gaps.count)
        letters = _GAP.split(match[0])
        yield letters[0] + "".join(
            letter if gap == usual else f" {letter}" for gap, letter in zip(gaps, letters[1:], strict=True)
        )


_TAGGED = re.compile(r"\w<[!/a-z]")
_TAG = re.compile(r"<!--.{0,40}?-->|</?[a-z][^<>]{0,80}>")


def untagged(text: str) -> str:
    """Return text without the tags of HTML that stand in its words or around them; itself if there are none."""
    return _TAG.sub("", text) if "<" in text and _TAGGED.search(text) else text


def rotated(text: str, by: int) -> str:
    """Return text whose letters are moved on in the alphabet; 13 undoes rot13."""
    small = "abcdefghijklmnopqrstuvwxyz"
    return text.translate(str.maketrans(small, small[by:] + small[:by]))


def mirrored(text: str) -> str:
    """Return text whose letters are counted from the other end of the alphabet."""
    small = "abcdefghijklmnopqrstuvwxyz"
    return text.translate(str.maketrans(small, small[::-1]))
