"""Which provider setup sets up: the one of a flag, or one that a person chooses at the menu."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from urllib.parse import urlsplit

from daemon.app.setup.questions import MissingAnswerError, Questions, say
from daemon.app.setup.vendors import VENDORS, Vendor, find_keys, find_servers
from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import ProviderConfig
from daemon.errors import DaemonError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_URL = re.compile(r"https?://[^\s/@]+\S*")
_KINDS = frozenset(vendor.kind for vendor in VENDORS.values())
# What a server of one's own is called in config.toml, as in the README.
_OWN_SERVER = "local"
_NO_MODEL = ("q", "none")


class UnusableAnswerError(DaemonError):
    """A flag has a value that cannot be used."""


class NoModelWantedError(DaemonError):
    """The person chose to go on without a model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderChoice:
    """A provider, and what is known of it."""

    vendor: Vendor
    is_configured: bool = False
    """Whether the address and the key of its table in config.toml stay as they are."""
    may_have_key: bool = False
    """Whether a person is asked for a key that may not be needed."""


def choose_provider(
    options: argparse.Namespace, questions: Questions, config: Config, env: Mapping[str, str]
) -> ProviderChoice:
    """Return the provider that a flag names, or that the person chooses.

    Raises NoModelWantedError if the person wants none, MissingAnswerError if nobody can be asked.
    """
    if options.base_url and not re.match(r"https?://[^\s/@]+", options.base_url):
        raise UnusableAnswerError("--base-url is no address such as http://127.0.0.1:8080/v1")
    if options.provider is not None:
        return _choose_by_flag(options, config)
    if not questions.is_interactive and not questions.assume_yes:
        raise MissingAnswerError(
            f"--provider is missing, and there is no terminal to ask at: one of "
            f"{', '.join(VENDORS)}, or a name of your own with --base-url; or --yes for the first "
            "that is found"
        )
    candidates = [(vendor.name, f"${vendor.key_variable} is set") for vendor in find_keys(env)]
    servers = asyncio.run(find_servers())
    for server, count in servers:
        models = "1 model" if count == 1 else f"{count} models"
        note = models if count or server.name != "ollama" else "no model yet: ollama pull qwen3:8b"
        candidates.append((server.name, f"answers at {server.base_url}, {note}"))
    if questions.assume_yes:
        empty_servers = {server.name for server, count in servers if not count}
        usable_names = [name for name, _ in candidates if name not in empty_servers]
        if not usable_names:
            raise MissingAnswerError(
                "--provider is missing, and neither a key nor a server is here"
            )
        return ProviderChoice(vendor=VENDORS[usable_names[0]])
    return _choose_at_menu(options, questions, config, candidates)


def _choose_by_flag(options: argparse.Namespace, config: Config) -> ProviderChoice:
    name = options.provider
    if name in VENDORS:
        return ProviderChoice(vendor=VENDORS[name])
    if not _NAME.fullmatch(name) or name == "offline":
        raise UnusableAnswerError(f"--provider {name!r} is no name: use a-z, 0-9, - and _")
    if options.base_url:
        return ProviderChoice(vendor=_own_server(name, options.base_url))
    if name in _find_configured(config) and not (options.key_file or options.key_stdin):
        return _choose_configured(name, config)
    similar_names = get_close_matches(name, VENDORS, 1)
    hint = f"did you mean {similar_names[0]}? " if similar_names else ""
    raise UnusableAnswerError(
        f"--provider {name}: {hint}known are {', '.join(VENDORS)}; any other takes --base-url"
    )


def _choose_at_menu(
    options: argparse.Namespace,
    questions: Questions,
    config: Config,
    candidates: list[tuple[str, str]],
) -> ProviderChoice:
    """Ask which provider it is: one of the list, another name of a vendor, or a server's URL."""
    # with --base-url or --replace a table of config.toml does not stay as it is
    is_kept = not (options.base_url or options.replace)
    configured = _find_configured(config) if is_kept else {}
    own_server = _free_name(_OWN_SERVER, config.providers)
    choices = [(name, _describe_configured(table)) for name, table in configured.items()]
    choices += [(name, note) for name, note in candidates if name not in configured]
    has_found = bool(choices)
    names = {name for name, _ in choices}
    choices += [
        (vendor.name, f"{vendor.title}, with a key of yours")
        for vendor in VENDORS.values()
        if vendor.name not in names and not vendor.is_local
    ]
    choices.append((own_server, "another server that speaks the OpenAI API: asks for its URL"))
    known_names = {*VENDORS, *configured, *(name for name, _ in choices)}
    say("Which model shall write the reports?")
    answer = questions.choose(
        "A number, a name or the URL of a server; "
        + ("q for no model; Enter for 1:" if has_found else "Enter for no model:"),
        choices,
        flag="--provider",
        default="" if has_found else _NO_MODEL[0],
        others=lambda text: _refuse(text, known_names, len(choices)),
    )
    if answer in _NO_MODEL:
        raise NoModelWantedError
    if answer in configured:
        return _choose_configured(answer, config)
    if answer in VENDORS:
        return ProviderChoice(vendor=VENDORS[answer])
    if _URL.fullmatch(answer):
        return choose_by_url(answer, config, configured)
    url = options.base_url
    while not url:
        text = questions.ask(
            "Its URL, such as http://127.0.0.1:8080/v1:",
            flag="--base-url",
            example="http://127.0.0.1:8080/v1",
        )
        url = _with_path(text) if _URL.fullmatch(text) else ""
        if not url:
            say(f"{text!r} is no URL such as http://127.0.0.1:8080/v1.")
    return ProviderChoice(vendor=_own_server(answer, url), may_have_key=True)


def _refuse(answer: str, known_names: Collection[str], count: int) -> str:
    """Return what is wrong with an answer that is none of the list; empty if it can be used."""
    if answer in known_names or answer in _NO_MODEL or _URL.fullmatch(answer):
        return ""
    if not _NAME.fullmatch(answer) or answer.isdecimal() or answer == "offline":
        return f"A number from 1 to {count}, a name or a URL like http://127.0.0.1:8080/v1, please."
    if similar_names := get_close_matches(answer, known_names, 1):
        return f"There is no {answer}; did you mean {similar_names[0]}?"
    return ""  # the name of a server of one's own


def choose_by_url(
    url: str, config: Config, configured: Mapping[str, ProviderConfig]
) -> ProviderChoice:
    """Return the provider behind a URL: one that is known, or a server of one's own."""
    url = _with_path(url)
    for name, table in configured.items():
        if (table.base_url or "").rstrip("/") == url:
            return _choose_configured(name, config)
    for vendor in VENDORS.values():
        if vendor.base_url == url:
            return ProviderChoice(vendor=vendor)
    name = _free_name(_name_of_host(urlsplit(url).hostname or ""), {*config.providers, *VENDORS})
    return ProviderChoice(vendor=_own_server(name, url), may_have_key=True)


def _with_path(url: str) -> str:
    """Return a URL as config.toml has it; one that is a host alone gets the usual path."""
    url = url.rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"


def _name_of_host(host: str) -> str:
    """Return a name for a server: that of its domain, or `local` for one in one's own network."""
    try:
        ip_address(host)
    except ValueError:
        labels = host.split(".")
        if len(labels) > 1 and _NAME.fullmatch(labels[-2]):
            return labels[-2]
    return _OWN_SERVER


def _free_name(name: str, taken_names: Collection[str]) -> str:
    number, free_name = 1, name
    while free_name in taken_names:
        number += 1
        free_name = f"{name}{number}"
    return free_name


def _own_server(name: str, url: str) -> Vendor:
    return Vendor(name=name, title=name, kind="open_source", base_url=url)


def _find_configured(config: Config) -> dict[str, ProviderConfig]:
    """Return the providers of config.toml that setup could have written, by name; the one that
    answers stands first.
    """
    return {
        name: table
        for name, table in sorted(
            config.providers.items(), key=lambda item: item[0] != config.provider
        )
        if table.kind in _KINDS and table.model and not (table.region or table.api)
    }


def _describe_configured(table: ProviderConfig) -> str:
    # of the address the host alone: the rest may hold a token
    host = urlsplit(table.base_url or "").netloc.rpartition("@")[2]
    return f"in config.toml: {table.model}{f' at {host}' if host else ''}"


def _choose_configured(name: str, config: Config) -> ProviderChoice:
    table = config.providers[name]
    key_variable = VENDORS[name].key_variable if name in VENDORS else ""
    vendor = Vendor(
        name=name,
        title=VENDORS[name].title if name in VENDORS else name,
        kind=table.kind,
        key_variable=key_variable,
        base_url=table.base_url or "",
    )
    return ProviderChoice(vendor=vendor, is_configured=True)
