"""Checks between the keys of config.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator

from daemon.definitions.config.config import Config
from daemon.definitions.config.scripted_replies import find_reply_fault
from daemon.definitions.config.tables import (
    BUILT_IN_TARGETS,
    KINDS_BY_KEY,
    KINDS_WITH_MODEL,
    KINDS_WITH_WEB_ADDRESS,
    MAIL_SCHEMES,
    PROVIDER_KINDS,
    is_http_address,
)
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.shape import format_key_path
from daemon.definitions.words import did_you_mean


def _cluster_has_a_database(config: Config) -> Iterator[Conflict]:
    store = config.store
    if config.executor.kind == "procrastinate" and not (
        store.url or store.url_file or store.url_env
    ):
        problem = "procrastinate keeps its queue in a database that daemons share"
        yield Conflict("executor.kind", problem, hint='name one: [store] url = "postgresql://…"')


def _one_database_address(config: Config) -> Iterator[Conflict]:
    store = config.store
    if sum(address is not None for address in (store.url, store.url_file, store.url_env)) > 1:
        yield Conflict(
            "store", "url, url_file and url_env exclude each other", hint="keep one of them"
        )


def _provider_exists(config: Config) -> Iterator[Conflict]:
    references = [("provider", config.provider), ("ask.provider", config.ask.provider)]
    references += [
        (f"ask.fallback[{index}]", name) for index, name in enumerate(config.ask.fallback)
    ]
    for key, name in references:
        if name is not None and name not in config.provider_names:
            hint = did_you_mean(name, config.provider_names)
            yield Conflict(key, "no such provider in [providers]", name, hint)


def _provider_names_are_valid(config: Config) -> Iterator[Conflict]:
    for name in config.providers:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
            yield Conflict(
                format_key_path("providers", name),
                "a provider's name is made of a-z, 0-9, - and _",
                name,
            )


def _model_is_named(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        if provider.kind in KINDS_WITH_MODEL and provider.model is None:
            problem = f"is missing; kind {provider.kind} needs the name of a model"
            yield Conflict(format_key_path("providers", name, "model"), problem)
        elif provider.model == "…":
            problem = "still has the … of the example"
            hint = "name a model as the vendor writes it; `agentctl setup` proposes some"
            yield Conflict(format_key_path("providers", name, "model"), problem, hint=hint)


def _address_is_named(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        if provider.kind == "open_source" and provider.base_url is None:
            hint = 'Ollama: base_url = "http://127.0.0.1:11434/v1"'
            problem = "is missing; kind open_source needs the server's address"
            yield Conflict(format_key_path("providers", name, "base_url"), problem, hint=hint)


def _command_is_named(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        if provider.kind == "command" and not provider.command:
            yield Conflict(
                format_key_path("providers", name, "command"),
                "is missing; kind command needs a program and its words",
                hint='like command = ["llm", "-m", "gpt-5.5"]',
            )


def _keys_fit_their_kind(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        for key, kind in (
            ("api", "openai"),
            ("region", "minimax"),
            ("replies", "scripted"),
            ("command", "command"),
            ("env", "command"),
            ("pass_env", "command"),
        ):
            value = getattr(provider, key)
            if value and provider.kind != kind:
                yield Conflict(
                    format_key_path("providers", name, key), f"only kind {kind} takes it", value
                )


def _replies_are_valid(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        for index, reply in enumerate(provider.replies):
            if fault := find_reply_fault(reply):
                path, problem, value = fault
                key = format_key_path("providers", name, "replies", index, *path)
                yield Conflict(key, problem, value)


def _targets_are_valid(config: Config) -> Iterator[Conflict]:
    for name, target in config.targets.items():
        key = format_key_path("targets", name)
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
            yield Conflict(key, "a target's name is made of a-z, 0-9, - and _", name)
        elif name in BUILT_IN_TARGETS:
            yield Conflict(key, "is there without being declared", name, hint="take another name")
        for field in sorted(target.model_fields_set & KINDS_BY_KEY.keys()):
            if target.kind not in KINDS_BY_KEY[field]:
                kinds = " and ".join(KINDS_BY_KEY[field])
                yield Conflict(f"{key}.{field}", f"only kind {kinds} takes it")
        if (
            target.kind in KINDS_BY_KEY["url"]
            and sum(map(bool, (target.url, target.url_file, target.url_env))) > 1
        ):
            yield Conflict(key, "url, url_file and url_env exclude one another", hint="keep one")
        if (
            target.kind in KINDS_WITH_WEB_ADDRESS
            and target.url
            and not is_http_address(target.url.get_secret_value())
        ):
            yield Conflict(
                f"{key}.url", "expected an address", hint='like "https://example.org/hooks/agentd"'
            )
        if (
            target.kind == "mail"
            and target.url
            and not target.url.get_secret_value().startswith(MAIL_SCHEMES)
        ):
            hint = (
                'like "mailtos://USER:PASSWORD@example.org?to=ada@example.org", or '
                '"sendmail://?to=ada@example.org"'
            )
            yield Conflict(f"{key}.url", "expected the address of a mailbox", hint=hint)


def _chats_are_valid(config: Config) -> Iterator[Conflict]:
    for name, chat in config.chat.items():
        key = format_key_path("chat", name)
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,29}", name):
            yield Conflict(
                key, "a chat's name is made of a-z, 0-9, - and _, at most 30 of them", name
            )
        elif name in config.targets or name in BUILT_IN_TARGETS:
            yield Conflict(
                key, "there is a target of this name, and a chat is one", name, hint="take another"
            )
        if not chat.allow:
            hint = "the id of your account: docs/chat.md says how to find it"
            yield Conflict(f"{key}.allow", "must not be empty", [], hint)
        for index, id_ in enumerate(chat.allow):
            if chat.kind == "telegram" and not isinstance(id_, int):
                hint = "no @name: docs/chat.md says how to find it"
                yield Conflict(f"{key}.allow[{index}]", "an id of Telegram is a number", id_, hint)
        if chat.to is not None and chat.to not in chat.allow:
            yield Conflict(f"{key}.to", "is not on the list allow", chat.to, hint="add it there")


def _digest_targets_exist(config: Config) -> Iterator[Conflict]:
    for index, name in enumerate(config.digest.to):
        if name not in config.target_names or name == "file":
            hint = did_you_mean(name, config.target_names) or f"add [targets.{name}]"
            yield Conflict(
                f"digest.to[{index}]", "no such target, or one that takes a path", name, hint
            )


def _mcp_servers_are_valid(config: Config) -> Iterator[Conflict]:
    for name in config.mcp:
        key = format_key_path("mcp", name)
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,29}", name):
            yield Conflict(
                key, "a server's name is made of a-z, 0-9 and -, at most 30 of them", name
            )


def _mcp_servers_have_one_transport(config: Config) -> Iterator[Conflict]:
    for name, server in config.mcp.items():
        key = format_key_path("mcp", name)
        if bool(server.command) == bool(server.url):
            yield Conflict(
                key,
                "needs either a command or a url",
                hint='like command = ["uvx", "mcp-server-time"]',
            )
        if server.command and (server.api_key_file or server.api_key_env):
            yield Conflict(
                key,
                "a key is sent only to a url",
                hint="pass_env gives a command a variable of agentd's",
            )


def _search_is_complete(config: Config) -> Iterator[Conflict]:
    search = config.search
    if search.kind == "searxng" and search.base_url is None:
        yield Conflict("search.base_url", "is missing", hint='like "http://127.0.0.1:8888"')
    if search.kind == "tavily" and not (search.api_key_file or search.api_key_env):
        yield Conflict(
            "search.api_key_file",
            "is missing",
            hint="tavily needs a key: api_key_file or api_key_env",
        )


def _network_webhooks_are_signed(config: Config) -> Iterator[Conflict]:
    if config.listen.hooks and not config.hooks.secret_file:
        hint = "set hooks.secret_file"
        yield Conflict(
            "listen.hooks",
            "anybody on the network could start runs: webhooks must be signed",
            hint=hint,
        )


def _sender_keys_fit(config: Config) -> Iterator[Conflict]:
    for name, sender in config.hooks.senders.items():
        key = format_key_path("hooks", "senders", name)
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
            yield Conflict(key, "a sender's name is made of a-z, 0-9, - and _", name)
        if "tolerance" in sender.model_fields_set and sender.kind != "stripe":
            yield Conflict(f"{key}.tolerance", "only kind stripe takes it")


def _incident_targets_exist(config: Config) -> Iterator[Conflict]:
    for index, name in enumerate(config.incidents.to):
        if name not in config.target_names:
            hint = did_you_mean(name, config.target_names) or f"add [targets.{name}]"
            yield Conflict(f"incidents.to[{index}]", "no such target", name, hint)
        elif config.kind_of_target(name) in KINDS_BY_KEY["path"]:
            yield Conflict(
                f"incidents.to[{index}]",
                "a file calls nobody",
                name,
                hint="the log has every alert anyway",
            )


def _options_only_for_foreign_kinds(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        if provider.options and provider.kind in PROVIDER_KINDS:
            problem = "is for kinds that are not ours"
            yield Conflict(
                format_key_path("providers", name, "options"),
                problem,
                hint="see the keys of this one",
            )


def _embedder_is_complete(config: Config) -> Iterator[Conflict]:
    memory = config.memory
    needs = {"openai_compatible": ("model", "base_url"), "onnx": ("model_file",)}.get(
        memory.embedder, ()
    )
    for key in needs:
        if getattr(memory, key) is None:
            yield Conflict(
                format_key_path("memory", key), f"is missing; embedder {memory.embedder} needs it"
            )


CONFIG_CHECKS = (
    CrossFieldCheck(("provider", "providers.*", "ask.provider", "ask.fallback"), _provider_exists),
    CrossFieldCheck(("providers.*",), _provider_names_are_valid),
    CrossFieldCheck(("providers.*.kind", "providers.*.model"), _model_is_named),
    CrossFieldCheck(("providers.*.kind", "providers.*.base_url"), _address_is_named),
    CrossFieldCheck(("providers.*.kind", "providers.*.command"), _command_is_named),
    CrossFieldCheck(
        tuple(
            f"providers.*.{key}"
            for key in ("kind", "api", "region", "replies", "command", "env", "pass_env")
        ),
        _keys_fit_their_kind,
    ),
    CrossFieldCheck(("providers.*.replies",), _replies_are_valid),
    CrossFieldCheck(("targets.*", "targets.*.kind", "targets.*.url"), _targets_are_valid),
    CrossFieldCheck(("chat.*", "targets.*"), _chats_are_valid),
    CrossFieldCheck(("digest.to", "targets.*", "chat.*"), _digest_targets_exist),
    CrossFieldCheck(("listen.hooks", "hooks.secret_file"), _network_webhooks_are_signed),
    CrossFieldCheck(("hooks.senders.*", "hooks.senders.*.kind"), _sender_keys_fit),
    CrossFieldCheck(("mcp.*",), _mcp_servers_are_valid),
    CrossFieldCheck(
        ("mcp.*.command", "mcp.*.url", "mcp.*.api_key_file", "mcp.*.api_key_env"),
        _mcp_servers_have_one_transport,
    ),
    CrossFieldCheck(
        ("search.kind", "search.base_url", "search.api_key_file", "search.api_key_env"),
        _search_is_complete,
    ),
    CrossFieldCheck(("incidents.to", "targets.*", "chat.*"), _incident_targets_exist),
    CrossFieldCheck(("providers.*.kind", "providers.*.options"), _options_only_for_foreign_kinds),
    CrossFieldCheck(("store.url", "store.url_file", "store.url_env"), _one_database_address),
    CrossFieldCheck(
        ("executor.kind", "store.url", "store.url_file", "store.url_env"), _cluster_has_a_database
    ),
    CrossFieldCheck(
        ("memory.embedder", "memory.model", "memory.base_url", "memory.model_file"),
        _embedder_is_complete,
    ),
)
