"""Web pages that a routine reads: the addresses in its prompt, the steps that gather them, and the
rule that lets it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from daemon.app.policy import explain_private_host
from daemon.definitions.routines.routine import Routine
from daemon.errors import ConfigError, Refused
from daemon.policy.authoring.policy_text import add_rules
from daemon.policy.policy import Policy
from daemon.policy.web import parse_target
from daemon.runs.approvals.own_calls import find_obstructed_calls

_TOOL = "http_request"
_URL = re.compile(r"https?://[^\s<>\"'`\\{}|^]+", re.IGNORECASE)
# Signs behind an address in a sentence, which are none of it.
_PUNCTUATION = ".,;:!?)]。，"


def find_urls(text: str) -> list[str]:
    """Return the web addresses in a text, each once."""
    urls = (match.group().rstrip(_PUNCTUATION) for match in _URL.finditer(text))
    return list(dict.fromkeys(urls))


def is_url(text: str) -> bool:
    """Tell whether a text is a web address and nothing else."""
    return bool(_URL.fullmatch(text))


def find_unread_urls(routine: Routine) -> list[str]:
    """Return the addresses in the prompt that no run reads: no step gathers them, and no tool is
    offered.
    """
    if routine.run.tools:
        return []
    gathered = {step.args.get("url") for step in routine.gather}
    return [url for url in find_urls(routine.run.prompt) if url not in gathered]


def name_pages(urls: Iterable[str]) -> dict[str, str]:
    """Return a name for each address, as a gather step bears it, with the address."""
    pages: dict[str, str] = {}
    for url in urls:
        host = urlsplit(url).hostname or ""
        labels = [label for label in host.split(".") if label != "www"]
        # the domain, such as `curl`; an address in digits has none
        is_address = not labels or ":" in host or labels[-1].isdecimal()
        domain = "page" if is_address else labels[-2] if len(labels) > 1 else labels[0]
        base = re.sub(r"[^A-Za-z0-9_-]", "-", domain) or "page"
        number, name = 1, base
        while name in pages:
            number += 1
            name = f"{base}-{number}"
        pages[name] = url
    return pages


def find_missing_rule(policy: Policy, routine: Routine, read: Callable[[str], Policy]) -> str:
    """Return the rule, as text for policy.toml, with which a routine may gather the pages that the
    policy denies it by its default; empty if there are none, or if a rule would not be enough.

    `read` loads the text of a policy, or raises ConfigError.
    """
    urls: list[str] = []
    for call in find_obstructed_calls(policy, [routine]):
        if call.tool != _TOOL or set(call.args) != {"url"} or call.verdict.rule != "default":
            return ""
        urls.append(str(call.args["url"]))
    if not urls:
        return ""
    table: dict[str, Any] = {
        "tool": _TOOL,
        "effect": "allow",
        "safe": True,  # also after another of these pages has been read
        "routines": [routine.name],
        "urls": list(dict.fromkeys(urls)),
    }
    try:
        if networks := _find_private_networks(read(add_rules(policy.text, [table])), urls):
            table["networks"] = networks
        new_policy = read(add_rules(policy.text, [table]))
    except (ConfigError, Refused):
        return ""
    if any(find_obstructed_calls(new_policy, [routine])):
        return ""
    return add_rules("", [table]).strip()


def _find_private_networks(policy: Policy, urls: Sequence[str]) -> list[str]:
    """Return the addresses of these pages that are refused for being in one's own network."""
    networks: list[str] = []
    for url in urls:
        target = parse_target(url, "GET")
        if not explain_private_host(policy, target):
            continue
        is_name = target.host == "localhost" or target.host.endswith(".localhost")
        hosts = ["127.0.0.1", "::1"] if is_name else [target.host]
        networks += [str(ip_network(host)) for host in hosts]
    return list(dict.fromkeys(networks))
