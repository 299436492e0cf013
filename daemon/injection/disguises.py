"""Take single disguises off a text: look-alike letters, invisible characters, spaced or encoded
words.

Each disguise is cheap to rule out: most texts are ASCII and hold neither escapes nor long runs
without a blank. Which disguises are tried, and in which order, is in readings.py.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from urllib.parse import unquote

from daemon.system.character_references import decode_references

# --- characters

# Letters drawn like Latin ones that NFKC leaves as they are: Cyrillic, Greek, small capitals, a few
# others.
_LOOKALIKES_OF = {
    "a": "аαɑᴀꓮ", "b": "вьʙβꓐ", "c": "сᴄϲꓚ", "d": "ԁᴅđꓓ", "e": "еёєεᴇɛꓰ", "f": "ғꜰƒꓝ", "g": "ɡɢցꓖ", "h": "һнʜհꓧ",  # noqa: E501
    "i": "іїιɪıɩӏꓲ", "j": "јᴊꓙ", "k": "кκᴋꓗ", "l": "ʟłɭꓡ", "m": "мᴍꓟ", "n": "пиηɴոꓠ", "o": "оοσᴏøօꓳ", "p": "рρᴘꓑ",  # noqa: E501
    "q": "ԛզꞯ", "r": "гяʀꓤ", "s": "ѕꜱʂꓢ", "t": "тτᴛŧꓔ", "u": "цυᴜսꓴ", "v": "ѵνᴠꓦ", "w": "ԝшωᴡꓪ", "x": "хχꓫ",  # noqa: E501
    "y": "уүγʏꓬ", "z": "зᴢꓜ",
}  # fmt: skip
_LOOKALIKES = {
    ord(lookalike): latin
    for latin, lookalikes in _LOOKALIKES_OF.items()
    for lookalike in lookalikes
}
# Enclosed letters that have no decomposition: negative circled, negative squared, regional
# indicators.
_ENCLOSED = {
    first + index: chr(ord("a") + index)
    for first in (0x1F150, 0x1F170, 0x1F1E6)
    for index in range(26)
}
_TAG_CHARACTERS = re.compile("[\U000e0020-\U000e007e]+")
# The flags of England, Scotland and Wales: a black flag with the name of the country in tag
# characters.
_FLAGS = re.compile(
    "\U0001f3f4(?:"
    + "|".join(
        "".join(chr(0xE0000 + ord(char)) for char in country)
        for country in ("gbeng", "gbsct", "gbwls")
    )
    + ")\U000e007f"
)
_TAG_CHARACTER_PREFIX = "\U000e0020".encode()[:2]
# Format characters, variation selectors and marks over letters, none of which changes the meaning.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]")
# Anything but Latin letters, the usual punctuation, and the characters and signs of Chinese.
_UNCOMMON = re.compile(
    "[^\x00-\u024f\u2010-\u2027\u3000-\u303f\u4e00-\u9fff\uff00-\uff0f\uff1a-\uff1f]"
)
_FULL_WIDTH = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\u2460-\u24ff]")
_FOREIGN_LETTER = re.compile(r"[^\x00-\x7f\W]")
_MIXED_WORD = re.compile(rf"[a-z]{_FOREIGN_LETTER.pattern}|{_FOREIGN_LETTER.pattern}[a-z]")
_ASCII = bytes(range(128))


# OSC (titles, links), DCS, SOS, PM and APC of ECMA-48, with the text within. One without its end on
# the same line is none: it would hide all text behind it.
_CONTROL_STRINGS = re.compile(r"\x1b[\]PX^_]([^\x07\x1b\n]*)(?:\x07|\x1b\\)")
# CSI (colours, cursor), those above, and the other sequences of ECMA-48.
_ESCAPE_SEQUENCES = re.compile(
    rf"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|{_CONTROL_STRINGS.pattern}|\x1b[ -/]*[0-~]"
)


def without_escape_sequences(text: str) -> list[str]:
    """Return a text as terminals show it: where it has escape sequences with nothing in their
    place, and with a blank, as either may join or part words. If terminals do not show the text
    within a sequence, return the whole text, too: a model reads it.
    """
    if "\x1b" not in text and "\x9b" not in text:
        return [text]
    texts = [_ESCAPE_SEQUENCES.sub("", text), _ESCAPE_SEQUENCES.sub(" ", text)]
    if _CONTROL_STRINGS.search(text):
        texts.append(_ESCAPE_SEQUENCES.sub(" ", _CONTROL_STRINGS.sub(r" \1 ", text)))
    return texts


def drop_ascii(text: str) -> str:
    """Return the characters of a text that are not ASCII; far fewer to search than it all, in most
    texts.
    """
    return (
        text.encode(errors="surrogatepass").translate(None, _ASCII).decode(errors="surrogatepass")
    )


def read_tag_characters(text: str) -> str:
    """Return what stands in Unicode tag characters: text that a model reads and nobody sees.

    Flags of countries, which are written in them, too, are left out.
    """
    runs = (
        _TAG_CHARACTERS.findall(_FLAGS.sub("", text))
        if _TAG_CHARACTER_PREFIX in text.encode(errors="surrogatepass")
        else []
    )
    return " ".join("".join(chr(ord(char) - 0xE0000) for char in run) for run in runs)


def fold(text: str) -> str:
    """Return the text in small letters, without what is invisible; full-width and styled letters as
    plain ones.
    """
    if text.isascii():
        return text.lower()
    non_ascii = drop_ascii(text)
    if _INVISIBLE.search(non_ascii):
        text = _INVISIBLE.sub("", text)
        non_ascii = drop_ascii(text)
    if _UNCOMMON.search(non_ascii) or _FULL_WIDTH.search(non_ascii):
        text = unicodedata.normalize("NFKC", text).translate(_ENCLOSED)
        non_ascii = drop_ascii(text)
    if unicodedata.normalize("NFD", non_ascii) != non_ascii or _MARKS.search(non_ascii):
        text = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))
    return text.lower()


def replace_lookalikes(text: str) -> str:
    """Return folded text with look-alikes as Latin letters, if it holds any beside Latin
    letters.
    """
    if text.isascii():
        return text
    non_ascii = drop_ascii(text)
    if _UNCOMMON.search(non_ascii) or (
        _FOREIGN_LETTER.search(non_ascii) and _MIXED_WORD.search(text)
    ):
        return text.translate(_LOOKALIKES)
    return text


# --- words

# Bytes of UTF-8 beyond ASCII stay. A table of bytes takes a quarter of the time of one of
# characters.
_WORD_BYTES = bytes(code if code > 127 or chr(code).isalnum() else ord(" ") for code in range(256))
_PROSE_BYTES = bytes(code if chr(code) in ".!?:;" else _WORD_BYTES[code] for code in range(256))
_FOREIGN_GAPS = re.compile(r"[^\x00-\x7f\w]+")
# different characters, beyond which one pattern takes less time than looking for each
_MAX_SEPARATE_GAPS = 16


def split_words(text: str) -> list[str]:
    """Return the words of a text."""
    return _split(text, _WORD_BYTES)


def extract_prose(text: str) -> str:
    """Return a text with its words apart by single blanks, and of its punctuation only what ends a
    clause.
    """
    return " ".join(_split(drop_apostrophes(text), _PROSE_BYTES))


def drop_apostrophes(text: str) -> str:
    """Return a text without its apostrophes: what is read as prose has none."""
    text = text.replace("'", "")
    return text if text.isascii() else text.replace("\u2019", "")


def _split(text: str, table: bytes) -> list[str]:
    raw = text.encode(errors="surrogatepass")
    if len(raw) > len(text):
        mostly_foreign = len(raw) > 1.5 * len(text)
        gaps = (
            frozenset[str]()
            if mostly_foreign
            else frozenset("".join(_FOREIGN_GAPS.findall(drop_ascii(text))))
        )
        if mostly_foreign or len(gaps) > _MAX_SEPARATE_GAPS:
            text = _FOREIGN_GAPS.sub(" ", text)
        else:
            for gap in gaps:
                text = text.replace(gap, " ")
        raw = text.encode(errors="surrogatepass")
    return raw.translate(table).decode(errors="surrogatepass").split()


# --- escapes

_ESCAPES = re.compile(
    r"\\u(?P<high>d[89ab][0-9a-f]{2})\\u(?P<low>d[c-f][0-9a-f]{2})"
    r"|\\(?:u(?P<four>[0-9a-f]{4})|u\{(?P<braced>[0-9a-f]{1,6})\}|x(?P<two>[0-9a-f]{2})|(?P<blank>[nrt]))",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"(?:%[0-9a-f]{2}[\w+.~-]{0,30}){3}", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#x?[0-9a-f]+|[a-z]{2,8});", re.IGNORECASE)


def unescape(text: str) -> str:
    """Return the text with the escapes of JSON, HTML and URLs read."""
    if "\\" in text:
        text = _ESCAPES.sub(_character, text)
    for _ in range(2):  # a feed may hold the escaped text of a page that has escapes itself
        if "&" in text and _ENTITY.search(text):
            text = decode_references(text)
    if "%" in text and _PERCENT.search(text):
        text = unquote(text.replace("+", " "), errors="replace")
    return text


def _character(match: re.Match[str]) -> str:
    if blank := match["blank"]:
        return "\n" if blank in "nr" else " "
    if match["high"]:  # a character beyond U+FFFF, written as two surrogates
        return bytes.fromhex(match["high"] + match["low"]).decode("utf-16-be")
    code = int(match["four"] or match["braced"] or match["two"], 16)
    return chr(code) if code <= sys.maxunicode else match[0]


# --- whole texts in another writing

# Three escapes with capitals, as mails have them. One more with small letters: addresses and logs
# have something like them.
_QUOTED_PRINTABLE = re.compile(
    "|".join(
        rf"=[{digits}]{{2}}[^=\n]{{0,60}}(?:=?\n)?" * count
        for digits, count in (("0-9A-F", 3), ("0-9A-Fa-f", 4))
    )
)


def decode_quoted_printable(text: str) -> str:
    """Return the text with the escapes of mails read (=20); itself if there are none."""
    if "=" not in text or not _QUOTED_PRINTABLE.search(text):
        return text
    raw = text.encode(errors="replace")
    return binascii.a2b_qp(raw).decode(errors="replace")


_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,4000}={0,2}")
_BASE32 = re.compile(r"\b[A-Z2-7]{32,4000}={0,6}")
_HEX = re.compile(r"(?:(?:\\x|0x)?[0-9A-Fa-f]{2}[ :,]?){16,2000}")
_MAX_RUNS = 200  # texts that are decoded of one text, of each kind of code
# A line of base64 or hexadecimal, as mails and programs break it: quoted or indented at most.
_ENCODED_LINE = re.compile(r"[ \t>|#*]*([A-Za-z0-9+/_-]{4,4000}={0,2})[ \t\r]*")
_MIN_RUN = 20
_LOWER_PAIRS = frozenset(f"{byte:02x}" for byte in range(256))
_PAIRS = _LOWER_PAIRS | {pair.upper() for pair in _LOWER_PAIRS}
_MIN_PAIRS = 6  # pairs that are pieces of their own
_NON_BLANK_BYTES = bytes(
    code if code < 128 and chr(code).isspace() else ord("x") for code in range(256)
)


def decode_runs(text: str, words: Set[str]) -> Iterator[str]:
    """Yield what stands in base64, base32 or hexadecimal, where that is text; `words` are its
    words, folded.
    """
    if not _may_be_encoded(text, words):
        return
    chunks = text.split()
    # before its lines, a broken run as a whole
    long_chunks = [*_join_encoded_lines(text), *(run for run in chunks if len(run) >= _MIN_RUN)]
    runs = [match[0] for chunk in long_chunks for match in _BASE64.finditer(chunk)]
    runs = [
        run for run in runs if not run.islower() and (not run.isupper() or _BASE32.fullmatch(run))
    ]
    # most runs are names and checksums, which are no text
    decoded_texts = (_from_base64(run) or _from_base32(run) for run in runs)
    yield from islice(filter(None, decoded_texts), _MAX_RUNS)
    sources = long_chunks
    if len(_PAIRS.intersection(chunks)) >= _MIN_PAIRS or text.count("0x") >= 16:
        sources = [*long_chunks, text]
    hex_runs = (match[0] for source in sources for match in _HEX.finditer(source))
    yield from islice(filter(None, map(_from_hexadecimal, hex_runs)), _MAX_RUNS)


def _join_encoded_lines(text: str) -> Iterator[str]:
    """Yield each run of code that is broken into lines, without the breaks.

    A last line that is shorter may be a word of the text behind: the run is yielded without it,
    too.
    """
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        match = _ENCODED_LINE.fullmatch(line)
        if match and (lines or len(match[1]) >= _MIN_RUN):
            lines.append(match[1])
        if len(lines) > 1 and (not match or match[1].endswith("=")):
            yield "".join(lines)
            if len(lines) > 2 and len(lines[-1]) < len(lines[-2]):
                yield "".join(lines[:-1])
        if not match or match[1].endswith("="):
            lines = []


def _may_be_encoded(text: str, words: Set[str]) -> bool:
    """Tell whether a text holds a long piece or many pairs of digits: few do, and this is told
    sooner than by a split.

    A pair may stand there in capitals and in small letters, so half as many words may be enough.
    """
    if not text.isascii() or b"x" * _MIN_RUN in text.encode().translate(_NON_BLANK_BYTES):
        return True
    return len(_LOWER_PAIRS & words) * 2 >= _MIN_PAIRS or text.count("0x") >= 16


def _from_base64(run: str) -> str:
    encoded_text = run.rstrip("=").replace("-", "+").replace("_", "/")
    for start in range(min(4, len(encoded_text))):  # a word glued to its front shifts it
        body = encoded_text[start:]
        body = body[: len(body) - 1] if len(body) % 4 == 1 else body
        try:
            if text := _as_text(base64.b64decode(body + "=" * (-len(body) % 4), validate=True)):
                return text
        except (binascii.Error, ValueError):
            continue
    return ""


def _from_hexadecimal(run: str) -> str:
    digits = re.sub(r"\\x|0x|[^0-9A-Fa-f]", "", run)
    return _as_text(bytes.fromhex(digits[: len(digits) & ~1]))


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
        text = raw.decode()
    except UnicodeDecodeError as error:
        if error.start < len(raw) - 3 or not error.start:
            return ""
        text = raw[: error.start].decode()
    readable = sum(character.isprintable() or character in "\n\t\r" for character in text)
    return text if readable >= 0.95 * len(text) else ""


# --- words in another writing

_LEET = (
    bytes.maketrans(b"01345789@$!|+", b"oleastbgasilt"),
    bytes.maketrans(b"01345789@$!|+", b"oieastbgasiit"),
)
_LEET_WORD = re.compile(r"(?=[a-z0-9@$!|+]*[0-9@$!|+])(?=[a-z0-9@$!|+]*[a-z])[a-z0-9@$!|+]{3,30}")
_LETTER_ROW = re.compile(r"(?:(?<![^\W_])[^\W\d_][\W_]{1,5}){7,400}[^\W\d_](?![^\W_])")
_GAP = re.compile(r"[\W_]+")
_SEVEN_LETTERS = re.compile(r"(?: [^\W\d_]){7}")
_SHAPE_BYTES = bytes(ord("x") if chr(code).isalpha() else code for code in range(128)) + bytes(
    range(128, 256)
)


def has_row_of_letters(words: Sequence[str]) -> bool:
    """Tell whether six letters stand alone one after the other, and a seventh begins the next
    word.
    """
    text = f" {' '.join(words)}"
    if text.isascii():
        return b" x x x x x x x" in text.encode().translate(_SHAPE_BYTES)
    return _SEVEN_LETTERS.search(text) is not None


def read_leet_word(word: str) -> tuple[str, ...]:
    """Return what a word may be with its digits and signs read as letters; nothing if it holds
    none, or only those.
    """
    return (
        tuple(word.encode().translate(table).decode() for table in _LEET)
        if _LEET_WORD.fullmatch(word)
        else ()
    )


def read_leet_words(words: Iterable[str]) -> list[str]:
    """Return what these words, none of which holds a blank, may be: more than `read_leet_word`
    returns for each, in much less time.
    """
    raw = " ".join(words).encode(errors="surrogatepass")
    return [
        word
        for table in _LEET
        for word in raw.translate(table).decode(errors="surrogatepass").split()
    ]


# Each word a sentence: "Ignore. All. Previous. Instructions", with or without the blanks.
_STOPPED_WORDS = re.compile(r"(?:\b[^\W\d_]{1,20}[.!?:;\u2026]{1,5}\s{0,5}){3,}(?:[^\W\d_]{1,20})?")
_STOPS = re.compile(r"[.!?:;\u2026]+")
# The stop behind the first word of a row, and its next two words: to search for these takes a tenth
# of the time, and few texts have them.
_ROW_BEGIN = re.compile(r"[.!?:;\u2026](?:\s{0,5}[^\W\d_]{1,20}[.!?:;\u2026]{1,5}){2}")


def join_stopped_words(text: str) -> str:
    """Return the rows of words of a text that have a full stop behind each of them, without these
    stops; empty if there are none.
    """
    if not _ROW_BEGIN.search(text):
        return ""
    return "\n".join(_STOPS.sub(" ", match[0]) for match in _STOPPED_WORDS.finditer(text))


def join_letter_rows(text: str) -> Iterator[str]:
    """Yield words that are written letter by letter: i g n o r e, i.g.n.o.r.e. A gap that is not
    the usual one, or not the first of several that are as usual, separates words.
    """
    for match in _LETTER_ROW.finditer(text):
        gaps = _GAP.findall(match[0])
        usual_gap = max(gaps, key=gaps.count)
        letters = _GAP.split(match[0])
        yield letters[0] + "".join(
            letter if gap == usual_gap else f" {letter}"
            for gap, letter in zip(gaps, letters[1:], strict=True)
        )


_HTML_TAG_IN_WORD = re.compile(r"\w<[!/a-z]|<!--")
_HTML_TAG = re.compile(r"<!--(?s:.{0,400}?)-->|</?[a-z][^<>]{0,80}>")


def strip_tags(text: str) -> str:
    """Return text without its tags of HTML, where some stand in words or around them or are
    comments; itself if there are none.
    """
    return _HTML_TAG.sub("", text) if "<" in text and _HTML_TAG_IN_WORD.search(text) else text


def rotate(text: str, shift: int) -> str:
    """Return text whose letters are moved on in the alphabet by `shift`; 13 undoes rot13."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return text.translate(str.maketrans(alphabet, alphabet[shift:] + alphabet[:shift]))


def decode_atbash(text: str) -> str:
    """Return text whose letters are counted from the other end of the alphabet (Atbash)."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return text.translate(str.maketrans(alphabet, alphabet[::-1]))
