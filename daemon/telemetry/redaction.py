"""Take secrets out of text: exact values first, then what looks like one.

Standard library only, and cheap: a text is searched for the stem of a pattern (`in` costs some 50
ns) before the pattern itself is tried, so a log line without a secret costs about two microseconds.
No pattern crosses a quotation mark, so that a rendered JSON line stays JSON after redaction.

What is secret in an address (`parts_of_address`):

- the password of its account;
- the values of its query whose names are those of secrets (`token`, `key`, `sig` …);
- what looks like a token in its path or query, and for services such as Telegram or Slack also in
  place of host and user.

Names of hosts and users, mail addresses and ordinary words are no secrets, and stay in every text.

A key is taken out wherever it stands. A password or token from an address that is all letters, or
shorter than 12 characters, is taken out where it stands as a word, so that `staging1` does not
spoil `staging12`. A password that is an ordinary word (`monitoring`) is left in sentences and taken
out where it stands as a password, `user:monitoring`. Otherwise reports would be full of marks, and
the sentences around the marks would tell the word. Doctor and validate say so.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, quote_plus, unquote

MARK = "[redacted]"
# Shorter values are also ordinary words or numbers: taking them out would ruin text and protect
# nothing.
SHORTEST_LENGTH = 8
# Of the patterns below, `://:x@` is the shortest text that one of them changes.
_SHORTEST_MATCH = 6
# Of an environment variable, a byte that is not UTF-8 is a lone surrogate.
_ERRORS = "surrogateescape"
# From this length on, and with a digit or a sign in it, a password is no part of any other word.
DISTINCT_LENGTH = 12
# Texts without secrets are cached, as the result of a tool is redacted on its way to the model, to
# the journal and to the memory. To redact a shorter text costs no more than to find it in the
# cache; longer texts, and more of them, would take too much memory.
_CACHED_LENGTHS, _MAX_CACHED_TEXTS = (500, 5_000), 256

# What may stand before a secret in JSON, `repr` or an address: its last character is no letter of
# the word behind it.
_ESCAPES = (r"\\[bfnrt]", r"\\u[0-9a-fA-F]{4}", r"\\x[0-9a-fA-F]{2}", "%[0-9a-fA-F]{2}")


def _begin(start: str, *, before: str = r"\w") -> str:
    """Return a pattern of `start` (a pattern of a fixed width) where no character `before` stands
    before it, unless it ends an escape such as `\\n`.

    The boundary is looked at behind `start`, as `re` finds letters faster than a boundary.
    """
    escapes = "".join(f"|(?<={escape}{start})" for escape in _ESCAPES)
    return f"{start}(?:(?<!{before}{start}){escapes})"


# (stems, pattern, replacement): the pattern is tried only where one of its stems occurs. No pattern
# can begin inside of what it runs over, so a text made to be slow (`sk-sk-sk-…`) takes no longer
# than any other. `re` compiles a pattern when it is first tried, and keeps it.
_PATTERNS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("PRIVATE KEY-----",),
        (
            r'-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[^"]*?(?:-----END [A-Z0-9 ]*PRIVATE '
            r'KEY-----|(?=")|\Z)'
        ),
        MARK,
    ),
    # the whole value goes, whatever its scheme; the header's name stays, as it tells the reader
    # what was there
    (
        ("uthorization", "UTHORIZATION"),
        (
            r"""(?i)(authorization\\?["']?\s*[:=]\s*\\?["']?)"""
            r"(?:(?:bearer|basic|token|digest|negotiate)\s+|[a-z][a-z0-9_-]{1,20}[ \t]+)?"
            r"""[^\s"'\\,;]+"""
        ),
        rf"\1{MARK}",
    ),
    (
        # each of api, Api, API before each of key, Key, KEY, joined by -, _ or nothing
        tuple(
            f"{end}{joint}{key}"
            for end in ("pi", "PI")
            for joint in ("-", "_", "")
            for key in ("key", "Key", "KEY")
        ),
        r"""(?i)(api[-_]?key\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\,;&]{16,}""",
        rf"\1{MARK}",
    ),
    (
        ("earer ", "EARER "),
        rf"(?i)({_begin('bearer')} +)[A-Za-z0-9._~+/=-]{{16,}}",
        rf"\1{MARK}",
    ),
    # a digit is asked for: `sk-fading-circle-animation-delay` is a class name, not a key
    (
        ("sk-",),
        _begin("sk-", before="[A-Za-z0-9_-]") + r"(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}",
        MARK,
    ),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        _begin("gh[pousr]_") + r"[A-Za-z0-9]{20,}",
        MARK,
    ),
    (("github_pat_",), _begin("github_pat_") + r"[A-Za-z0-9_]{22,}", MARK),
    (("glpat-",), _begin("glpat-") + r"[A-Za-z0-9_-]{20,}", MARK),
    (("xox",), _begin("xox[abeoprs]-") + r"[A-Za-z0-9-]{10,}", MARK),
    (("AIza",), _begin("AIza") + r"[A-Za-z0-9_-]{35}", MARK),
    (("AKIA", "ASIA"), _begin("A[KS]IA") + r"[A-Z0-9]{16}\b", MARK),
    # further forms of which the vendors say that they are secrets; gitleaks lists them, too
    (("npm_",), _begin("npm_") + r"[A-Za-z0-9]{36}\b", MARK),
    (("hf_",), _begin("hf_") + r"[A-Za-z]{34}\b", MARK),
    (
        ("glsa_", "glc_"),
        _begin("gl") + r"(?:sa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|c_[A-Za-z0-9+/]{32,400}={0,3})",
        MARK,
    ),
    (("glptt-", "gldt-", "glrt-"), _begin("gl") + r"(?:ptt|dt|rt)-[A-Za-z0-9_-]{20,}", MARK),
    (("dop_v1_", "doo_v1_", "dor_v1_"), _begin("do[opr]_v1_") + r"[a-f0-9]{64}\b", MARK),
    (("SG.",), _begin(r"SG\.") + r"[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}", MARK),
    (("k_live_", "k_prod_"), _begin("[rs]k_(?:live|prod)_") + r"[A-Za-z0-9]{16,}", MARK),
    (("pypi-AgE",), _begin("pypi-AgE") + r"[A-Za-z0-9_-]{50,}", MARK),
    (("AGE-SECRET-KEY-1",), _begin("AGE-SECRET-KEY-1") + r"[A-Z0-9]{58}", MARK),
    (("xapp-",), _begin("xapp-") + r"\d-[A-Z0-9]+-\d+-[A-Za-z0-9]{16,}", MARK),
    (("ya29.",), _begin(r"ya29\.") + r"[A-Za-z0-9_-]{20,}", MARK),
    (("GOCSPX-",), _begin("GOCSPX-") + r"[A-Za-z0-9_-]{28}", MARK),
    (
        ("shpat_", "shpca_", "shppa_", "shpss_"),
        _begin("shp(?:at|ca|pa|ss)_") + r"[A-Fa-f0-9]{32}\b",
        MARK,
    ),
    (("hvs.", "hvb."), _begin(r"hv[bs]\.") + r"[A-Za-z0-9_-]{80,}", MARK),
    (("dapi",), _begin("dapi") + r"[a-f0-9]{32}(?:-\d)?\b", MARK),
    (("lin_api_",), _begin("lin_api_") + r"[A-Za-z0-9]{40}\b", MARK),
    (
        ("sq0csp-", "sq0atp-"),
        _begin("sq0") + r"(?:csp-[A-Za-z0-9_-]{43}|atp-[A-Za-z0-9_-]{22})",
        MARK,
    ),
    # a bot of Telegram: its number and 35 characters
    ((":AA",), _begin(r"\d{8}") + r"\d{0,2}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", MARK),
    (
        ("hooks.slack.com/",),
        r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[A-Z0-9]{8,}/[A-Za-z0-9/]{20,}",
        rf"\1{MARK}",
    ),
    (("AccountKey=",), r"(AccountKey=)[A-Za-z0-9+/]{86}==", rf"\1{MARK}"),
    (
        ("aws_secret", "AWS_SECRET", "SecretAccessKey"),
        r"""(?i)((?:aws_secret_access_key|SecretAccessKey)\\?["']?\s*[:=]\s*\\?["']?)[A-Za-z0-9/+=]{40}""",
        rf"\1{MARK}",
    ),
    (
        ("eyJ",),
        _begin("eyJ", before="[A-Za-z0-9_-]")
        + r"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        MARK,
    ),
    (("://",), r"""(://[^/\s:@"'\\]*:)[^\s/"'\\]+(?=@)""", rf"\1{MARK}"),
)


# All in one line: most texts have none of them, and are looked through in half the time.
_STEMS = tuple(stem for stems, *_ in _PATTERNS for stem in stems)


def _redact_patterns(text: str) -> str:
    for stems, pattern, replacement in _PATTERNS:
        if any(stem in text for stem in stems):
            text = re.sub(pattern, replacement, text)
    return text


class Secrets:
    """The secrets that this process knows; replace them in everything it writes."""

    def __init__(self) -> None:
        self._forms_and_clean_texts: tuple[tuple[str, ...], set[str]] = ((), set())
        """The forms of all secrets, and a cache of texts without any; always replaced together."""
        self._words: dict[str, re.Pattern[str]] = {}
        """The patterns of forms that are replaced as whole words only."""

    def add(self, value: str) -> None:
        """Add a secret, in each form that it may be written in; one of under 8 characters is
        ignored.
        """
        if len(value) < SHORTEST_LENGTH:
            return
        new_forms = _forms_of(value)
        for form in new_forms:
            # A part of an address until now, replaced as a word only; from now on everywhere.
            self._words.pop(form, None)
        forms = {*self._forms_and_clean_texts[0], *new_forms}
        # the longest first: a secret that contains another is replaced as one
        self._forms_and_clean_texts = (
            tuple(sorted(forms, key=lambda form: (-len(form), form))),
            set(),
        )

    def add_word(self, value: str) -> None:
        """Add a password or token that may look like a part of an ordinary word: see the module."""
        if len(value) < SHORTEST_LENGTH:
            return
        if not may_be_part_of_word(value):
            self.add(value)
            return
        forms_replaced_everywhere = set(self._forms_and_clean_texts[0]) - self._words.keys()
        forms_of_word = {
            value,
            quote(value, safe="", errors=_ERRORS),
            quote_plus(value, errors=_ERRORS),
            json.dumps(value)[1:-1],
        }
        for form in forms_of_word - forms_replaced_everywhere:
            begin = _begin(re.escape(form), before=r"[^\W_]")
            self._words[form] = re.compile(rf"{begin}(?![^\W_])")
        # its base64 is no word of any language
        forms = {*self._forms_and_clean_texts[0], *self._words, *_base64_forms_of(value)}
        self._forms_and_clean_texts = (
            tuple(sorted(forms, key=lambda form: (-len(form), form))),
            set(),
        )

    def add_address(self, url: str, *, whole: bool = False) -> None:
        """Add the secrets in an address; with `whole` the address itself is secret, as whoever has
        it can send there.
        """
        match = _match_address(url)
        if whole and (
            match is None or any((match["path"].strip("/"), match["query"], match["account"]))
        ):
            self.add(url)
        for part in parts_of_address(url):
            # `?key=monitoring&code=production` is about a name; a long word may be a token all the
            # same
            is_word = is_ordinary_word(part.value) and (
                part.kind == "password" or len(part.value) < DISTINCT_LENGTH
            )
            if part.kind == "pair" or not is_word:
                self.add_word(part.value)

    def add_headers(self, text: str) -> None:
        """Add the secrets in headers as OpenTelemetry writes them: `name=value,name=value`."""
        self.add(text)
        for header in text.split(","):
            name, _, value = header.partition("=")
            value = unquote(value.strip())
            if is_secret_name(name) or looks_random(value):
                self.add(value)
                self.add(value.rpartition(" ")[2])  # without `Bearer `

    def add_environment(self, env: Mapping[str, str]) -> None:
        """Add the values of variables whose names are those of secrets, paths of files excepted,
        and what is secret in an address.
        """
        for name, value in env.items():
            if is_secret_name(name) and not _is_path(value):
                if not is_ordinary_word(value):
                    self.add_word(value)
            elif "://" in value:
                self.add_address(value)

    def redact(self, text: str) -> str:
        """Return the text without secrets."""
        if len(text) < _SHORTEST_MATCH:
            return text
        forms, clean_texts = self._forms_and_clean_texts
        shortest, longest = _CACHED_LENGTHS
        is_cacheable = shortest <= len(text) <= longest
        if is_cacheable and text in clean_texts:
            return text
        original = text
        for form in forms:
            if form in text:
                word = self._words.get(form)
                text = text.replace(form, MARK) if word is None else word.sub(MARK, text)
        for stem in _STEMS:
            if stem in text:
                text = _redact_patterns(text)
                break
        if is_cacheable and text == original:
            if len(clean_texts) >= _MAX_CACHED_TEXTS:
                clean_texts.clear()
            clean_texts.add(text)
        return text

    def redact_json(self, value: Any) -> Any:
        """Return the JSON value with its strings, keys included, redacted."""
        return redact_json(value, self.redact)


def redact_json(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a JSON value with its strings, keys included, redacted.

    Of keys that become the same, each but the first gets a number.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        redacted_items: dict[Any, Any] = {}
        numbers: dict[Any, int] = {}
        for key, item in value.items():
            redacted_key = clean_key = redact_json(key, redact)
            while redacted_key in redacted_items:  # of two secrets
                numbers[clean_key] = number = numbers.get(clean_key, 1) + 1
                redacted_key = f"{clean_key} ({number})"
            redacted_items[redacted_key] = redact_json(item, redact)
        return redacted_items
    if isinstance(value, list | tuple):
        return [redact_json(item, redact) for item in value]
    return value


def _forms_of(value: str) -> set[str]:
    """Return the value itself, and as it is written in JSON, `repr`, a URL and base64 (at each of
    the three alignments).
    """
    # as the output of a program is read: with signs in place of bytes that are not UTF-8
    decoded = value.encode(errors=_ERRORS).decode(errors="replace")
    forms: set[str] = set()
    for text in (value, decoded):
        if len(text) < SHORTEST_LENGTH:  # one sign for several bytes
            continue
        forms |= {
            text,
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            repr(text)[1:-1],
        }
    forms |= {
        quote(value, safe="", errors=_ERRORS),
        quote(value, errors=_ERRORS),
        quote_plus(value, errors=_ERRORS),
    }
    return forms | _base64_forms_of(value)


def _base64_forms_of(value: str) -> set[str]:
    forms: set[str] = set()
    raw = value.encode(errors=_ERRORS)
    for offset in range(3):
        # the characters at both ends also encode the neighbours' bits: only those in between are
        # the secret's own
        first = (0, 2, 3)[offset]
        last = (offset + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(b"\0" * offset + raw).decode()[first:last]
            if len(form) >= SHORTEST_LENGTH:
                forms.add(form)
    return forms


# As RFC 3986 has it in its appendix B. `urlsplit` refuses brackets and some letters that passwords
# may have.
_URL = re.compile(
    r"^(?P<scheme>[^:/?#]+)://(?:(?P<account>[^/?#]*)@)?(?P<host>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?"
    r"(?:#(?P<fragment>.*))?$",
    re.DOTALL,
)
# As `delivery/channels/mail_url.py` reads an account: a `#` begins no fragment there, and all up to
# the last `@` before the path is the account.
_MAIL_URL = re.compile(
    r"^(?P<scheme>(?i:mailtos?))://(?:(?P<account>[^/?]*)@)?(?P<host>[^/?@]*)(?P<path>[^?]*)"
    r"(?:\?(?P<query>.*))?$",
    re.DOTALL,
)
# Where these schemes lead is a host, and who has an account there is a user; with others either may
# be a token.
_SCHEMES_WITH_HOST = re.compile(
    r"(?:https?|mailtos?|jsons?|xmls?|forms?|postgres(?:ql)?|socks\w*|wss?)", re.IGNORECASE
)
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|api[-_]?key|signature|authorization|credential", re.IGNORECASE
)
_SECRET_WORDS = frozenset(
    {"key", "pass", "pwd", "pw", "sig", "auth", "hmac", "pat", "apikey", "hash", "code", "sas"}
)
# Keys of a query whose values are names, however random they look.
_KEYS_OF_NAMES = frozenset(
    "smtp host from to cc bcc reply name user format mode program".split()  # noqa: SIM905
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# A word, also a long one or one with a number behind it: `Updates`, `eu-west-1`, `v2`,
# `monitoring2026`, `myChannel`.
_ORDINARY_WORD = re.compile(
    r"(?:[A-Za-z]?[a-z]{0,14}|[A-Z]{0,15})\d{0,4}|[A-Z]?[a-z]{2,}(?:[A-Z][a-z]{2,}){1,3}|[a-z]{1,23}|\d{1,15}"
)


class AddressPart(NamedTuple):
    """One part of an address that is secret."""

    kind: str
    """`password`, `token`, or `pair`: an account with its password, as it is sent to the server."""
    value: str


def parts_of_address(url: str) -> list[AddressPart]:
    """Return the secret parts of an address, as they are written and with escapes decoded."""
    parts = list(_parts_as_written(url.strip()))
    decoded_parts = [AddressPart(part.kind, unquote(part.value)) for part in parts]
    return list(dict.fromkeys([*parts, *decoded_parts]))


def count_secrets(urls: list[str]) -> Counter[str]:
    """Return how many passwords and tokens some addresses hold, by kind."""
    values = {
        (part.kind, unquote(part.value))
        for url in urls
        for part in parts_of_address(url)
        if part.kind != "pair"
    }
    return Counter(kind for kind, _ in values)


def has_ordinary_password(url: str) -> bool:
    """Tell whether an address holds a password that cannot be taken out of sentences: a word, or a
    very short one.
    """
    passwords = [unquote(part.value) for part in parts_of_address(url) if part.kind == "password"]
    return any(
        is_ordinary_word(password) or len(password) < SHORTEST_LENGTH for password in passwords
    )


def _match_address(url: str) -> re.Match[str] | None:
    """Return the parts of an address; None if it is none."""
    return _MAIL_URL.match(url) or _URL.match(url)


def _parts_as_written(url: str) -> Iterator[AddressPart]:
    match = _match_address(url)
    if match is None:
        return
    account, host, path = match["account"], match["host"], match["path"]
    port = host.rpartition("]")[2].partition(":")[2]
    if account is None and port and not port.isdigit():
        # `tgram://123:token`, or a `/` in a password that should have been written %2F
        before_at, at, _ = f"{host}{path}".partition("@")
        user, _, password = (before_at if at else host).partition(":")
        if at and "/" in before_at:
            yield AddressPart("password", password)
            yield AddressPart("pair", f"{user}:{password}")
            path = ""
        else:
            yield AddressPart("token", host)
            yield AddressPart("token", port)
    elif account is not None:
        user, colon, password = account.partition(":")
        if password:
            yield AddressPart("password", password)
            yield AddressPart("pair", f"{user}:{password}")
        if looks_random(user) and (not colon or not _SCHEMES_WITH_HOST.fullmatch(match["scheme"])):
            yield AddressPart("token", user)
    if (
        not _SCHEMES_WITH_HOST.fullmatch(match["scheme"])
        and "." not in host
        and not port
        and looks_random(host)
    ):
        yield AddressPart("token", host)
    for segment in (*path.split("/"), match.groupdict().get("fragment") or ""):
        if "." in segment.rpartition("@")[2] and "@" in segment:
            continue  # a mail address
        for word in segment.split("@"):
            if looks_random(unquote(word)):
                yield AddressPart("token", word)
    for pair in re.split("[&;]", match["query"] or ""):
        # as services read it `+` is a space, or itself: both are kept
        name, _, raw = pair.partition("=")
        for value in dict.fromkeys((raw, *(value for _, value in parse_qsl(pair)))):
            name = name.lower().strip("+-: ")
            if value and is_secret_name(name):
                yield AddressPart(
                    "password" if "pass" in name or name in ("pw", "pwd") else "token", value
                )
            elif name not in _KEYS_OF_NAMES and "@" not in value and looks_random(value):
                yield AddressPart("token", value)


def is_secret_name(name: str) -> bool:
    """Tell whether a name is that of a secret, as `access_token`, `X-Api-Key` and `sig` are."""
    return bool(_SECRET_NAME.search(name)) or not _SECRET_WORDS.isdisjoint(
        re.split(r"[^a-z]+", name.lower())
    )


def looks_random(word: str) -> bool:
    """Tell whether a word looks like a token, and not like a name or a number that people chose."""
    if _UUID.fullmatch(word):
        return True
    pieces = re.split(r"[^A-Za-z0-9]+", word)
    random_pieces = [piece for piece in pieces if not _ORDINARY_WORD.fullmatch(piece)]
    return (
        any(len(piece) >= SHORTEST_LENGTH for piece in random_pieces)
        or sum(map(len, random_pieces)) >= 2 * SHORTEST_LENGTH
    )


def may_be_part_of_word(value: str) -> bool:
    """Tell whether a secret may be a part of an ordinary word."""
    return len(value) < DISTINCT_LENGTH or value.isalpha()


def _is_path(value: str) -> bool:
    """Tell whether a value is the path of a file, and not base64 that begins with a slash."""
    pieces = re.split(r"[^A-Za-z0-9]+", value)
    has_words_only = all(_ORDINARY_WORD.fullmatch(piece) for piece in pieces)
    return value.startswith("/") and (has_words_only or os.path.lexists(value))


def is_ordinary_word(value: str) -> bool:
    """Tell whether a secret is a word as it stands in sentences: `monitoring`, `Password`."""
    return bool(re.fullmatch(r"[A-Za-z]?[a-z]{0,14}|[A-Z]{1,15}", value))
