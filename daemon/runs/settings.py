"""What a reload replaces: the config, and what was made of it and of the files that it names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from daemon.definitions.config.config import Config
    from daemon.delivery.channels.base import Channel
    from daemon.delivery.targets import Targets
    from daemon.policy.policy import Policy
    from daemon.providers.pool import Providers
    from daemon.runs.tracing import RunTracer


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookSender:
    """Someone who signs webhooks in a way of their own, and the secret that is shared with them."""

    kind: Literal["standard", "github", "gitlab", "stripe"]
    secret: str
    tolerance: float = 300.0
    """Kind stripe: seconds that the time of the signature may be off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """One reading of the config and of the files that it names."""

    config: Config
    zone: ZoneInfo
    policy: Policy
    targets: Targets
    providers: Providers
    webhook_secret: str | None = None
    """What webhooks must be signed with; None if they need no signature."""
    senders: Mapping[str, WebhookSender] = field(default_factory=dict)
    """Those of [hooks.senders], by name."""


class LiveSettings:
    """The settings in force. Hold this object and read it at each use: a reload replaces them all
    at once while runs are under way.
    """

    def __init__(self, settings: Settings) -> None:
        self.current = settings
        self._folders_in_use: tuple[str, ...] = ()
        self.tracer: RunTracer | None = None
        """Exports the spans of runs, where the config asks for that."""
        self._replaced_providers: list[Providers] = []

    @property
    def config(self) -> Config:
        return self.current.config

    @property
    def zone(self) -> ZoneInfo:
        return self.current.zone

    @property
    def policy(self) -> Policy:
        return self.current.policy

    @property
    def targets(self) -> Targets:
        return self.current.targets

    @property
    def providers(self) -> Providers:
        return self.current.providers

    @property
    def webhook_secret(self) -> str | None:
        return self.current.webhook_secret

    @property
    def senders(self) -> Mapping[str, WebhookSender]:
        return self.current.senders

    def channel(self, target: str) -> Channel:
        """Return the way to a target of the config; DeliveryFailed if there is none."""
        return self.targets.channel(target)

    def replace(self, settings: Settings) -> None:
        """Put other settings in force. Runs under way may still ask the replaced providers, so
        these stay open until `close`.
        """
        if settings.providers is not self.current.providers:
            self._replaced_providers.append(self.current.providers)
        self.current = settings
        self.set_folders_in_use(self._folders_in_use)

    def set_folders_in_use(self, folders: tuple[str, ...]) -> None:
        """Tell the policy in force, and those after it, which folders of the workspace the daemon
        looks at by itself or delivers to.
        """
        self._folders_in_use = folders
        if self.policy.folders_in_use != folders:
            policy = dataclasses.replace(self.policy, folders_in_use=folders)
            self.current = dataclasses.replace(self.current, policy=policy)

    async def close(self) -> None:
        """Close all providers that were in force, and export what is left of the spans."""
        if self.tracer:
            await self.tracer.close()
        for providers in (self.providers, *self._replaced_providers):
            await providers.close()
