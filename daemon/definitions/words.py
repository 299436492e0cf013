"""Describe values of files in faults, and find the name that was probably meant."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from daemon.definitions.values import format_duration

# Our names of what vendors, services and other programs call by names of their own.
_OUR_NAMES = {
    "anthropic": "claude",
    "chatgpt": "openai",
    **dict.fromkeys(("ollama", "llamacpp", "lmstudio", "vllm", "openrouter"), "open_source"),
    **dict.fromkeys(("openai-compatible", "openai_compatible", "compatible"), "open_source"),
    **dict.fromkeys(("deepseek", "gemini", "glm", "kimi", "mistral", "xai"), "open_source"),
    **dict.fromkeys(("smtp", "sendmail", "gmail"), "mail"),
    **dict.fromkeys(("telegram", "slack", "ntfy", "discord", "matrix"), "apprise"),
    **dict.fromkeys(("bash", "sh", "terminal", "exec", "execute"), "shell"),
    **dict.fromkeys(("read", "read_file", "cat"), "file_read"),
    **dict.fromkeys(("write", "write_file", "edit"), "file_write"),
    **dict.fromkeys(("ls", "list_files", "list_dir"), "file_list"),
    **dict.fromkeys(("fetch", "web_fetch", "curl", "wget", "browser"), "http_request"),
}


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the candidate that was probably meant; empty if none is close."""
    by_lower_case = {name.lower(): name for name in candidates}
    if (our_name := _OUR_NAMES.get(word.lower(), "")) in by_lower_case:
        return our_name
    close = difflib.get_close_matches(word.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[close[0]] if close else ""


def did_you_mean(word: str, candidates: Collection[str]) -> str:
    """Return a hint for an unknown word: the candidate that was probably meant, else all of
    them.
    """
    if close := nearest(word, candidates):
        return f'did you mean "{close}"?'
    return "known: " + ", ".join(sorted(candidates)) if candidates else ""


_SECRET_NAMES = ("key", "api_key", "apikey", "token", "secret", "password", "passwd", "credential")
_SECRET_ENDS = re.compile(
    r"(?:key|secret|password|passwd|token|credentials?)(?:_file|_env)?$", re.IGNORECASE
)
_SECRET_LOOKS = re.compile(
    r"\b(?:sk|pk|rk|gh[opsu]|github_pat|glpat|xox[abp]|AKIA|AIza|eyJ)[-_\w]{8,}"
)


def may_be_secret(value: Any, key: str) -> bool:
    """Tell whether a text could be a key that was put into the wrong place, or under a mistyped
    name.
    """
    if isinstance(value, list | tuple):
        return any(may_be_secret(item, key) for item in value)
    if not isinstance(value, str) or not value:
        return False
    names = [name.strip("\"' ").replace("-", "_") for name in key.split(".")]
    return bool(
        _SECRET_LOOKS.search(value)
        or any(
            _SECRET_ENDS.search(name) or nearest(name, _SECRET_NAMES, cutoff=0.8) for name in names
        )
    )


def show_value(value: Any, key: str = "") -> str:
    """Return a value as text for a fault, shortened; what may be a secret is left out."""
    if may_be_secret(value, key):
        return "a text that is not shown here"
    match value:
        case bool():
            return str(value).lower()
        case str():
            return shorten(json.dumps(value, ensure_ascii=False))
        case dict():
            return "a table" if value else "an empty table"
        case list() | tuple():
            simple = all(isinstance(item, str | int | float) for item in value)
            return (
                shorten(json.dumps(value, ensure_ascii=False))
                if simple
                else f"a list of {len(value)}"
            )
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return f'"{format_duration(value)}"'
        case _:
            return shorten(str(value))


def shorten(text: str, width: int = 60) -> str:
    """Return a printable text of at most `width` characters."""
    text = display(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def display(text: str | Path) -> str:
    """Return a text with unprintable characters replaced: file names may contain any."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "�" for char in text)
