"""Targets of reports: the built-in ones (`file`, `log`, `desktop`), and those of `[targets]` in
config.toml.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import (
    BUILT_IN_TARGETS,
    KINDS_WITH_WEB_ADDRESS,
    TargetConfig,
    is_http_address,
)
from daemon.definitions.words import display
from daemon.delivery.channels.base import Channel
from daemon.errors import ConfigError, DeliveryFailed, Fault
from daemon.models import Delivery, Receipt, Run

if TYPE_CHECKING:
    from daemon.telemetry.redaction import Secrets


class Targets:
    """Make the channel of each target, the first time that a report goes there.

    The targets' URLs and secrets are added to `secrets` in the constructor, so that no log shows
    them.
    """

    def __init__(
        self, config: Config, *, workspace: Path, env: Mapping[str, str], secrets: Secrets
    ) -> None:
        """Raise ConfigError if a target's URL or secret is missing, or the extra that its kind
        needs is not installed.
        """
        self._workspace, self._env, self._secrets = workspace, env, secrets
        self._tables: dict[str, TargetConfig] = dict(config.targets)
        self._chats = frozenset(config.chat)
        """The chats of the config, whose channels are not made here."""
        self._urls: dict[str, str] = {}
        self._signing_secrets: dict[str, str] = {}
        self._channels: dict[str, Channel] = {}
        for name, table in self._tables.items():
            if url := config.target_url(name, env):
                self._urls[name] = url.get_secret_value()
                secrets.add_address(self._urls[name], whole=True)
            if problem := find_missing_extra(table.kind, self._urls.get(name, "")):
                key = f"targets.{name}.kind"
                raise ConfigError(
                    Fault(file=display(config.file), key=key, found=table.kind, problem=problem)
                )
            if table.kind == "webhook" and (secret := config.target_secret(name, env)):
                self._signing_secrets[name] = secret.get_secret_value()
                secrets.add(self._signing_secrets[name])

    @property
    def addresses(self) -> Mapping[str, str]:
        """The addresses of the targets that have one, by name; they may hold passwords."""
        return self._urls

    @property
    def signing_secrets(self) -> Mapping[str, str]:
        """The secrets that sign messages to the targets that have one, by name."""
        return self._signing_secrets

    def channel(self, name: str) -> Channel:
        """Return the channel of a target. Raises DeliveryFailed if no target has this name."""
        if name in self._chats:
            raise DeliveryFailed(f"the chat {name} is connected when agentd starts again")
        if name not in self._channels:
            table = self._tables.get(name)
            kind = table.kind if table else name
            # only a kind without keys is a target by itself
            if kind not in KINDS or (table is None and kind not in BUILT_IN_TARGETS):
                names = ", ".join(sorted({*self._tables, *BUILT_IN_TARGETS}))
                raise DeliveryFailed(f"there is no target {name!r}; known are {names}")
            self._channels[name] = KINDS[kind](self, name)
        return self._channels[name]

    async def ping_started(self, name: str, run: Run) -> None:
        """Ping a dead man's switch at the start of a run. A failure is ignored: only the ping of
        the end is retried.
        """
        from daemon.delivery.channels.ping import PingChannel

        with suppress(DeliveryFailed):
            channel = self.channel(name)
            if isinstance(channel, PingChannel):
                await channel.ping("start", run.id)

    def _make_file_channel(self, name: str) -> Channel:
        from daemon.delivery.channels.file import FileChannel

        table = self._tables.get(name)
        channel = FileChannel(self._workspace)
        return _FileChannelWithPath(channel, table.path) if table and table.path else channel

    def _make_log_channel(self, name: str) -> Channel:
        from daemon.delivery.channels.log import LogChannel

        return LogChannel()

    def _make_desktop_channel(self, name: str) -> Channel:
        from daemon.delivery.channels.desktop import DesktopChannel

        return DesktopChannel(self._env)

    def _make_webhook_channel(self, name: str) -> Channel:
        from daemon.delivery.channels.webhook import WebhookChannel

        table = self._tables[name]
        return WebhookChannel(
            self._urls[name],
            secret=self._signing_secrets.get(name),
            timeout=table.timeout.total_seconds(),
            limit=table.limit,
        )

    def _make_mail_channel(self, name: str) -> Channel:
        from daemon.delivery.channels.mail_url import is_sendmail

        if is_sendmail(self._urls[name]):
            from daemon.delivery.channels.sendmail import SendmailChannel

            return SendmailChannel(self._urls[name], env=self._env)
        from daemon.delivery.channels.mail import MailChannel

        return MailChannel(self._urls[name], secrets=self._secrets)

    def _make_apprise_channel(self, name: str) -> Channel:
        from daemon.delivery.channels.apprise import AppriseChannel
        from daemon.delivery.channels.mail_url import is_mail

        if is_mail(self._urls[name]):
            return self._make_mail_channel(name)
        return AppriseChannel(self._urls[name], secrets=self._secrets)

    def _make_ping_channel(self, name: str) -> Channel:
        from daemon.delivery.channels.ping import PingChannel

        return PingChannel(self._urls[name])


KINDS: Mapping[str, Callable[[Targets, str], Channel]] = {
    "file": Targets._make_file_channel,
    "log": Targets._make_log_channel,
    "desktop": Targets._make_desktop_channel,
    "webhook": Targets._make_webhook_channel,
    "mail": Targets._make_mail_channel,
    "apprise": Targets._make_apprise_channel,
    "ping": Targets._make_ping_channel,
}
"""By the kind of a target, the function that makes its channel."""


def find_missing_extra(kind: str, url: str = "") -> str:
    """Return which extra is missing for a target of this kind and URL, as a sentence; empty if
    none is.
    """
    if kind == "apprise":
        from daemon.delivery.channels.mail_url import is_mail

        if not is_mail(url) and util.find_spec("apprise") is None:
            return "this address needs the extra notify: pip install 'agentd-routines[notify]'"
    if kind == "desktop" and sys.platform != "darwin" and util.find_spec("dbus_fast") is None:
        return "notifications need the extra desktop: pip install 'agentd-routines[desktop]'"
    return ""


def find_address_fault(kind: str, url: str) -> str:
    """Return what is wrong with the address of a target, as far as that can be seen without sending
    anything; empty if nothing is.
    """
    if kind in KINDS_WITH_WEB_ADDRESS:
        problem = "its address is none of http or https with a host"
        return "" if is_http_address(url) else problem
    from daemon.delivery.channels.mail_url import is_mail

    if kind == "mail" or (kind == "apprise" and is_mail(url)):
        return find_mail_fault(url)
    if kind != "apprise":
        return ""
    from daemon.delivery.channels.apprise import load_plugin

    try:
        load_plugin(url)
    except DeliveryFailed as error:
        return str(error)
    return ""


def describe_mail_way(url: str) -> str:
    """Return by which server or program the mails of a valid address leave this machine."""
    from daemon.delivery.channels.mail_url import is_sendmail, parse_sendmail_url, parse_smtp_url

    if is_sendmail(url):
        return parse_sendmail_url(url).program
    settings = parse_smtp_url(url)
    server = f"[{settings.server}]" if ":" in settings.server else settings.server
    return f"{server}:{settings.port}"


def find_mail_fault(url: str) -> str:
    """Return why no mail can be sent to a URL of a mail target from this machine, as far as that
    can be seen without sending one; empty if nothing is in the way.
    """
    from daemon.delivery.channels.mail_url import (
        is_sendmail,
        parse_sendmail_url,
        parse_smtp_url,
    )

    try:
        if is_sendmail(url):
            from daemon.delivery.channels.sendmail import find_program_fault

            return find_program_fault(parse_sendmail_url(url).program)
        parse_smtp_url(url)
    except DeliveryFailed as error:
        return str(error)
    return ""


class _FileChannelWithPath:
    """A file channel with a default path, for deliveries that have none."""

    def __init__(self, channel: Channel, path: str) -> None:
        self._channel, self._path = channel, path

    async def send(self, delivery: Delivery) -> Receipt:
        if not delivery.options.get("path"):
            delivery = replace(delivery, options={**delivery.options, "path": self._path})
        return await self._channel.send(delivery)
