"""The chats of the config, and how an adapter is made for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from daemon.chat.channel import ChatChannel
from daemon.chat.inbound import ChatInbound, InboundServices
from daemon.chat.live_answers import LiveAnswers
from daemon.chat.telegram import TelegramChat

if TYPE_CHECKING:
    from daemon.chat.port import Chat
    from daemon.definitions.config.config import Config
    from daemon.definitions.config.tables import ChatConfig
    from daemon.runs.events import EventBus
    from daemon.store.journal import Journal
    from daemon.telemetry.redaction import Secrets


def _telegram(table: ChatConfig, token: str) -> Chat:
    return TelegramChat(token, base_url=table.base_url)


KINDS: Mapping[str, Callable[[ChatConfig, str], Chat]] = {"telegram": _telegram}
"""Makes the adapter of a chat from its table and its token, by kind."""


def open_chat(config: Config, name: str, secrets: Secrets) -> Chat:
    """Return the adapter of a chat; ConfigError if its token cannot be read."""
    table, token = config.chat[name], config.chat_token(name).get_secret_value()
    secrets.add(token)
    return KINDS[table.kind](table, token)


class Chats:
    """The chats of this process."""

    def __init__(
        self, config: Config, *, secrets: Secrets, journal: Journal, events: EventBus
    ) -> None:
        """Raise ConfigError if a token cannot be read."""
        self._chats = {name: open_chat(config, name, secrets) for name in config.chat}
        self._live = {
            name: LiveAnswers(chat, journal, events, redact=secrets.redact)
            for name, chat in self._chats.items()
        }
        self._channels = {
            name: ChatChannel(
                name,
                chat,
                conversation=config.chat[name].report_conversation,
                journal=journal,
                live=self._live[name],
            )
            for name, chat in self._chats.items()
        }

    @property
    def channels(self) -> Mapping[str, ChatChannel]:
        """The channels of the chats, which are targets, by name."""
        return self._channels

    def inbound(self, services: InboundServices) -> list[ChatInbound]:
        """Return what reads each chat."""
        return [
            ChatInbound(
                name,
                chat,
                channel=self._channels[name],
                live=self._live[name],
                services=services,
            )
            for name, chat in self._chats.items()
        ]

    async def close(self) -> None:
        """Close all connections."""
        for live in self._live.values():
            await live.close()
        for chat in self._chats.values():
            await chat.close()
