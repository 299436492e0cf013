"""Loading the policy, for the daemon and for commands without one: both refuse the same faults."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.models import Effect
from daemon.policy.output_files import folders_in_use
from daemon.policy.policy import Policy
from daemon.policy.policy_file import Rule
from daemon.policy.verdicts import CallPart, applies_to
from daemon.policy.web import Target, parse_target

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.routines.routine import Routine


def load_policy(
    config: Config,
    *,
    state: Path,
    socket: Path,
    own_tools: Collection[str],
    file: Path | None = None,
) -> Policy:
    """Read `file`, by default the policy of `config`, for a daemon with this state folder.

    `own_tools` are the names of the tools of `[tools]`. Raises ConfigError, also for a policy that
    opens what is the daemon's own.
    """
    return Policy.load(
        file or config.policy_path,
        workspace=config.workspace_path(state),
        private=(
            config.file,
            config.scripts_path,
            state / "agentd.db",
            state / "approvals.toml",
            state / "memory",
            state / "logs",
            socket,
        ),
        tools=own_tools,
    )


def with_folders_in_use(
    policy: Policy, config: Config, routines: Iterable[Routine], *, state: Path
) -> Policy:
    """Return a policy that knows what the daemon of this state folder watches or delivers to, as
    the policy in force knows it.
    """
    folders = folders_in_use(config, routines, config.workspace_path(state))
    return replace(policy, folders_in_use=folders)


def private_host_notes(policy: Policy) -> Iterator[str]:
    """Yield a note for each host of a rule that is known to have no public address and is in no
    `networks`: whatever the rule says, each request to it is refused when it is made.
    """
    for rule in policy.rules:
        if rule.effect is Effect.DENY:
            continue
        refusals = [explain_private_host(policy, target) for target in _named_targets(rule)]
        for refusal in dict.fromkeys(filter(None, refusals)):  # several pages of a host are one
            yield f"{rule.label}: {refusal}"


def explain_private_host(policy: Policy, target: Target) -> str:
    """Return why a request that rules allow is refused when it is made: its host is known to have
    no public address, and is in no `networks` of a rule that covers it. Empty if it is not, or
    the host is a name, which is looked up when it is asked.
    """
    # it stands on httpcore, which a start can do without
    from daemon.tools.builtin.http_request.addresses import explain_refusal

    host = target.host
    is_local = host == "localhost" or host.endswith(".localhost")
    try:
        addresses = ["127.0.0.1", "::1"] if is_local else [str(ip_address(host))]
    except ValueError:
        return ""
    part = CallPart(tool="http_request", target=target)
    networks = [
        network
        for rule in policy.rules
        if rule.networks and applies_to(rule, part)
        for network in rule.networks
    ]
    reasons = [explain_refusal(ip_address(address), networks) for address in addresses]
    if not all(reasons):
        return ""
    networks_text = ", ".join(f'"{ip_network(address)}"' for address in addresses)
    return (
        f"no request to {host} is made, as that is {reasons[0]}; if you mean it, add "
        f"networks = [{networks_text}] to the rule"
    )


def _named_targets(rule: Rule) -> Iterator[Target]:
    """Yield a request that the rule covers to each host that it names in full."""
    method = min(rule.methods)
    for pattern in rule.hosts:
        if not pattern.subdomains:
            yield Target(method, "http", pattern.name, pattern.port or 80, "/")
    for url in sorted(rule.urls):
        yield parse_target(url, method)
