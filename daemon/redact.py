"""Take secrets out of text: exact values first, then what looks like one.

Standard library only, and cheap: a text is searched for the stem of a pattern (`in` costs some 50 ns) before the
pattern itself is tried, so a log line without a secret costs about two microseconds. No pattern crosses a quotation
mark, so that a rendered JSON line stays JSON after redaction.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import quote, quote_plus

MARK = "[redacted]"
# Shorter values are also ordinary words or numbers: taking them out would ruin text and protect nothing.
SHORTEST = 8
# Texts without secrets are remembered: what a tool brings is looked at on its way to the model, to the journal and to
# the memory. Shorter ones are looked at as soon as looked up; longer ones, and more of them, would take too much room.
_WORTH_KNOWING, _MOST_KNOWN = (500, 5_000), 256

# (stems, pattern, replacement): the pattern is tried only where one of its stems occurs. What a pattern runs over it
# cannot begin in the middle of: so a text made to be slow (`sk-sk-sk-…`) takes no longer than any other.
# `re` compiles a pattern when it is first tried, and keeps it.
_PATTERNS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("PRIVATE KEY-----",),
        r'-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[^"]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|(?=")|\Z)',
        MARK,
    ),
    # the whole value goes, whatever its scheme; the header's name stays, as it tells the reader what was there
    (
        ("uthorization", "UTHORIZATION"),
        r"""(?i)(authorization\\?["']?\s*[:=]\s*\\?["']?)(?:(?:bearer|basic|token|digest|negotiate)\s+)?[^\s"'\\,;]+""",
        rf"\1{MARK}",
    ),
    (
        ("api-key", "api_key", "Api-Key", "API-Key", "API_KEY"),
        r"""(?i)(api[-_]key\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\,;&]{16,}""",
        rf"\1{MARK}",
    ),
    (("earer ", "EARER "), r"(?i)\b(bearer +)[A-Za-z0-9._~+/=-]{16,}", rf"\1{MARK}"),
    # a digit is asked for: `sk-fading-circle-animation-delay` is a class name, not a key
    (("sk-",), r"(?<![A-Za-z0-9_-])sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}", MARK),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{22,})",
        MARK,
    ),
    (("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,}", MARK),
    (("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}", MARK),
    (("AIza",), r"\bAIza[A-Za-z0-9_-]{35}", MARK),
    (("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", MARK),
    (
        ("aws_secret", "AWS_SECRET", "SecretAccessKey"),
        r"""(?i)((?:aws_secret_access_key|SecretAccessKey)\\?["']?\s*[:=]\s*\\?["']?)[A-Za-z0-9/+=]{40}""",
        rf"\1{MARK}",
    ),
    (("eyJ",), r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", MARK),
    (("://",), r"""(://[^/\s:@"'\\]*:)[^@\s/"'\\]+(?=@)""", rf"\1{MARK}"),
)


# All in one line: most texts have none of them, and are looked through in half the time.
_STEMS = tuple(stem for stems, *_ in _PATTERNS for stem in stems)


def _without_patterns(text: str) -> str:
    for stems, pattern, replacement in _PATTERNS:
        if any(stem in text for stem in stems):
            text = re.sub(pattern, replacement, text)
    return text


class Secrets:
    """The secrets this process knows, and how to keep them out of everything it writes."""

    def __init__(self) -> None:
        self._known: tuple[tuple[str, ...], set[str]] = ((), set())
        """The forms of the secrets, and texts found to hold none of them; replaced together."""

    def add(self, value: str) -> None:
        """Know one more secret, in each form it may travel in; one of under 8 characters is left alone."""
        if len(value) < SHORTEST:
            return
        forms = {*self._known[0], *_forms_of(value)}
        # the longest first: a secret that contains another is replaced as one
        self._known = tuple(sorted(forms, key=lambda form: (-len(form), form))), set()

    def redact(self, text: str) -> str:
        """Return the text without secrets."""
        forms, innocent = self._known
        shortest, longest = _WORTH_KNOWING
        worth_knowing = shortest <= len(text) <= longest
        if worth_knowing and text in innocent:
            return text
        given = text
        for form in forms:
            if form in text:
                text = text.replace(form, MARK)
        for stem in _STEMS:
            if stem in text:
                text = _without_patterns(text)
                break
        if worth_knowing and text == given:
            if len(innocent) >= _MOST_KNOWN:
                innocent.clear()
            innocent.add(text)
        return text

    def redact_json(self, value: Any) -> Any:
        """Return the JSON value with its strings, keys included, redacted."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self.redact_json(key): self.redact_json(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_json(item) for item in value]
        return value


def _forms_of(value: str) -> set[str]:
    """Return the value as it looks inside JSON, `repr`, a URL and base64 (there at each of the three alignments)."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    forms |= {quote(value, safe=""), quote(value), quote_plus(value)}
    raw = value.encode()
    for before in range(3):
        # the characters at both ends also encode the neighbours' bits: only those in between are the secret's own
        first = (0, 2, 3)[before]
        last = (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            form = encode(b"\0" * before + raw).decode()[first:last]
            if len(form) >= SHORTEST:
                forms.add(form)
    return forms
