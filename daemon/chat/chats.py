"""The chats of the config, and how an adapter is made for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from daemon.chat.channel import ChatChannel
from daemon.chat.inbound import ChatInbound, InboundServices
from daemon.chat.live_answers import LiveAnswers
from daemon.chat.telegram import TelegramChat

if TYPE_CHECKING:
    from daemon.chat.base import Chat
    from daemon.definitions.config.config import Config
    from daemon.definitions.config.tables import ChatConfig
    from daemon.runs.events import EventBus
    from daemon.runs.settings import LiveSettings
    from daemon.store.journal import Journal
    from daemon.telemetry.redaction import Secrets


def _make_telegram_chat(table: ChatConfig, token: str) -> Chat:
    return TelegramChat(token, base_url=table.base_url)


KINDS: Mapping[str, Callable[[ChatConfig, str], Chat]] = {"telegram": _make_telegram_chat}
"""By the `kind` of a chat, the function that makes its adapter from its table and its token."""


def open_chat(config: Config, name: str, secrets: Secrets) -> Chat:
    """Return the adapter of the chat `[chat.NAME]`. Raises ConfigError for an unreadable token."""
    table, token = config.chat[name], config.chat_token(name).get_secret_value()
    secrets.add(token)
    return KINDS[table.kind](table, token)


class Chats:
    """The chats of this process."""

    def __init__(
        self, settings: LiveSettings, *, secrets: Secrets, journal: Journal, events: EventBus
    ) -> None:
        """Raise ConfigError if a token cannot be read."""
        config = settings.config

        def table_of(name: str) -> ChatConfig:
            # a chat that the config no longer names is there until the next start
            return settings.config.chat.get(name, config.chat[name])

        self._chats = {name: open_chat(config, name, secrets) for name in config.chat}
        self._live_answers = {
            name: LiveAnswers(
                chat, journal, events, table=partial(table_of, name), redact=secrets.redact
            )
            for name, chat in self._chats.items()
        }
        self._channels = {
            name: ChatChannel(
                name,
                chat,
                table=partial(table_of, name),
                journal=journal,
                live_answers=self._live_answers[name],
            )
            for name, chat in self._chats.items()
        }

    @property
    def channels(self) -> Mapping[str, ChatChannel]:
        """The channel of each chat, by its name: a chat is a target as well."""
        return self._channels

    def make_inbound(self, services: InboundServices) -> list[ChatInbound]:
        """Return a reader for each chat."""
        return [
            ChatInbound(
                name,
                chat,
                channel=self._channels[name],
                live_answers=self._live_answers[name],
                services=services,
            )
            for name, chat in self._chats.items()
        ]

    async def close(self) -> None:
        """Stop showing answers, and close all connections."""
        for live_answers in self._live_answers.values():
            await live_answers.close()
        for chat in self._chats.values():
            await chat.close()
