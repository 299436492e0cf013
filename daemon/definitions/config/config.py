"""config.toml as one value; secrets are read when they are asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, Self, TypeVar

from pydantic import Field, PrivateAttr, SecretStr

from daemon.definitions.config.environment import Override
from daemon.definitions.config.secret_files import (
    HOOKS_KEY,
    check_shared_secret,
    check_signing_secret,
    raise_no_address,
    read_secret,
    read_variable,
    refuse_if_shared,
)
from daemon.definitions.config.tables import (
    BUILT_IN_TARGETS,
    IDENTITY_FILES,
    KINDS_BY_KEY,
    AgentConfig,
    AskConfig,
    BudgetConfig,
    ChatConfig,
    ControlConfig,
    DaemonConfig,
    DigestConfig,
    ExecutorConfig,
    HooksConfig,
    IncidentsConfig,
    KeepConfig,
    ListenConfig,
    LogConfig,
    McpConfig,
    MemoryConfig,
    Name,
    OtelConfig,
    ProviderConfig,
    SearchConfig,
    StoreConfig,
    TargetConfig,
    ToolsConfig,
    UiConfig,
    Zone,
    check_postgres_address,
)
from daemon.definitions.reading import with_lines_of_file
from daemon.definitions.values import InvalidValue, Table
from daemon.definitions.words import display, show_value
from daemon.errors import ConfigError, Fault

P = ParamSpec("P")
T = TypeVar("T")


def _with_lines(
    method: Callable[Concatenate[Config, P], T],
) -> Callable[Concatenate[Config, P], T]:
    """Give the faults that a method of Config raises the lines of their keys."""

    @wraps(method)
    def wrapper(config: Config, /, *arguments: P.args, **options: P.kwargs) -> T:
        try:
            return method(config, *arguments, **options)
        except ConfigError as error:
            raise ConfigError(*config.with_lines(error.faults)) from None

    return wrapper


class Config(Table):
    """All keys of config.toml."""

    provider: Name = "offline"
    """Which [providers.NAME] answers, unless a routine names its own; "offline" asks no model."""
    timezone: Zone | None = None
    """The zone of schedules without one; by default the host's."""
    workspace: Name | None = None
    """The folder agents work in; by default `workspace` in the state folder. Takes a restart: until
    then no change of config.toml, policy.toml or a routine comes into force.
    """
    routines: Name = "routines"
    """The folder of routine files, relative to this file."""
    policy: Name = "policy.toml"
    """What agents may do, relative to this file."""
    scripts: Name = "scripts"
    """The folder of scripts that the tool script may run, relative to this file."""
    agent: AgentConfig = AgentConfig()
    providers: dict[str, ProviderConfig] = Field(default_factory=dict)
    targets: dict[str, TargetConfig] = Field(default_factory=dict)
    chat: dict[str, ChatConfig] = Field(default_factory=dict)
    budget: BudgetConfig = BudgetConfig()
    daemon: DaemonConfig = DaemonConfig()
    ask: AskConfig = AskConfig()
    tools: ToolsConfig = ToolsConfig()
    search: SearchConfig = SearchConfig()
    mcp: dict[str, McpConfig] = Field(default_factory=dict)
    control: ControlConfig = ControlConfig()
    ui: UiConfig = UiConfig()
    incidents: IncidentsConfig = IncidentsConfig()
    digest: DigestConfig = DigestConfig()
    hooks: HooksConfig = HooksConfig()
    listen: ListenConfig = ListenConfig()
    log: LogConfig = LogConfig()
    executor: ExecutorConfig = ExecutorConfig()
    otel: OtelConfig = OtelConfig()
    store: StoreConfig = StoreConfig()
    keep: KeepConfig = KeepConfig()
    memory: MemoryConfig = MemoryConfig()

    _file: Path = PrivateAttr(default=Path("config.toml"))
    _overlay_error: ConfigError | None = PrivateAttr(default=None)
    _overrides: tuple[Override, ...] = PrivateAttr(default=())

    def at(self, file: Path) -> Self:
        """Set the file that this config was read from, to whose folder its paths are relative;
        return this config.
        """
        self._file = file.absolute()
        return self

    @property
    def file(self) -> Path:
        return self._file

    @property
    def overlay_error(self) -> ConfigError | None:
        """What is wrong with the settings that agents wrote, if they are ignored for it."""
        return self._overlay_error

    def without_overlay(self, error: ConfigError) -> Self:
        """Set why the settings of agents are not in this config; return this config."""
        self._overlay_error = error
        return self

    @property
    def overrides(self) -> tuple[Override, ...]:
        """The settings that environment variables gave, by the names of the variables."""
        return self._overrides

    def with_lines(self, faults: Sequence[Fault]) -> tuple[Fault, ...]:
        """Return faults of keys of this config with the lines of its file in which they stand.

        What a variable of the environment sets has none: the file may say something else.
        """
        prefixes = tuple(f"{override.key}{end}" for override in self.overrides for end in ".[")
        overridden = tuple(fault for fault in faults if f"{fault.key}.".startswith(prefixes))
        others = [fault for fault in faults if fault not in overridden]
        return overridden + with_lines_of_file(others, self.file)

    def overridden_by(self, overrides: tuple[Override, ...]) -> Self:
        """Set which settings of this config the environment gave; return this config."""
        self._overrides = overrides
        return self

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        return self._file.parent

    @cached_property
    def identity_paths(self) -> Sequence[Path]:
        """The files with the owner's own words on who the agent is; each run reads those that
        exist.
        """
        return [self.folder / name for name in IDENTITY_FILES]

    @property
    def routines_path(self) -> Path:
        return self.folder / Path(self.routines).expanduser()

    @property
    def policy_path(self) -> Path:
        return self.folder / Path(self.policy).expanduser()

    @property
    def scripts_path(self) -> Path:
        return self.folder / Path(self.scripts).expanduser()

    def workspace_path(self, state: Path) -> Path:
        """Return the folder that agents work in; `state` is the state folder."""
        return (
            self.folder / Path(self.workspace).expanduser()
            if self.workspace
            else state / "workspace"
        )

    def provider_config(self, name: str) -> ProviderConfig:
        """Return a declared provider, or `offline`, which need not be declared. Raises KeyError."""
        if name == "offline" and name not in self.providers:
            return ProviderConfig(kind="offline")
        return self.providers[name]

    @_with_lines
    def memory_secret(self, env: Mapping[str, str]) -> SecretStr | None:
        """Return the API key of the embedder; None if it needs none. Raises ConfigError if
        missing.
        """
        memory = self.memory
        embedder = ProviderConfig(
            kind="open_source",
            api_key=memory.api_key,
            api_key_file=memory.api_key_file,
            api_key_env=memory.api_key_env,
        )
        try:
            return embedder.secret("memory", env=env, folder=self.folder, file=display(self.file))
        except ConfigError as error:
            raise ConfigError(
                *(
                    replace(fault, key=fault.key.removeprefix("providers."))
                    for fault in error.faults
                )
            ) from None

    @property
    def target_names(self) -> frozenset[str]:
        """The names that `to` of a delivery may have."""
        return frozenset({*self.targets, *self.chat, *BUILT_IN_TARGETS})

    @property
    def providers_in_use(self) -> set[str]:
        """The providers that this file names for runs and for `agentctl ask`."""
        return {self.provider, *filter(None, (self.ask.provider, *self.ask.fallback))}

    @property
    def provider_names(self) -> frozenset[str]:
        """The names that `provider` may have."""
        return frozenset({*self.providers, "offline"})

    @_with_lines
    def secret(self, name: str, env: Mapping[str, str]) -> SecretStr | None:
        """Return the API key of a provider; None if it needs none. Raises ConfigError if
        missing.
        """
        return self.provider_config(name).secret(
            name, env=env, folder=self.folder, file=display(self.file)
        )

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of vendors and servers as configured; each may contain a password or
        a token.
        """
        urls = [provider.base_url for provider in self.providers.values()]
        urls += [server.url for server in self.mcp.values()]
        return tuple(
            url
            for url in (*urls, self.search.base_url, self.memory.base_url, self.otel.endpoint)
            if url
        )

    def kind_of_target(self, name: str) -> str:
        """Return the kind of a target, or of a chat; a target without a table is of the kind that
        it is called.
        """
        if name in self.targets:
            return self.targets[name].kind
        return self.chat[name].kind if name in self.chat else name

    @_with_lines
    def target_url(self, name: str, env: Mapping[str, str]) -> SecretStr | None:
        """Return the address of a target; None if its kind needs none. Raises ConfigError if
        missing.
        """
        target = self.targets[name]
        if target.kind not in KINDS_BY_KEY["url"]:
            return None
        return self._secret_of(name, "url", env) or raise_no_address(
            display(self.file), f"targets.{name}.url_file"
        )

    @_with_lines
    def target_secret(self, name: str, env: Mapping[str, str]) -> SecretStr | None:
        """Return the secret that signs messages to a target; None if none does. Raises
        ConfigError.
        """
        secret = self._secret_of(name, "secret", env)
        if secret is not None:
            key = (
                f"targets.{name}.secret_file"
                if self.targets[name].secret_file
                else f"targets.{name}.secret_env"
            )
            check_signing_secret(secret, file=display(self.file), key=key, found="")
        return secret

    def _secret_of(
        self, name: str, kind: Literal["url", "secret"], env: Mapping[str, str]
    ) -> SecretStr | None:
        """Return a target's address or signing secret: from systemd's credentials, a file, an
        environment variable or config.toml, in this order.
        """
        target, file, key = self.targets[name], display(self.file), f"targets.{name}.{kind}"
        credentials = env.get("CREDENTIALS_DIRECTORY")
        credential = Path(credentials or "/") / (name if kind == "url" else f"{name}.secret")
        if credentials and credential.is_file():
            return read_secret(credential, file, key)
        file_name: str | None = getattr(target, f"{kind}_file")
        if file_name:
            path = self.folder / Path(file_name).expanduser()
            refuse_if_shared(path, file, f"{key}_file")
            return read_secret(path, file, f"{key}_file")
        variable_name: str | None = getattr(target, f"{kind}_env")
        if variable_name:
            return SecretStr(read_variable(env, variable_name, file, f"{key}_env"))
        return target.url if kind == "url" else None

    @_with_lines
    def key_of(
        self, key: str, table: McpConfig | SearchConfig, env: Mapping[str, str]
    ) -> str | None:
        """Return the API key that a table names by a file or an environment variable; None if it
        names none. Raises ConfigError.
        """
        file = display(self.file)
        if table.api_key_file:
            path = self.folder / Path(table.api_key_file).expanduser()
            refuse_if_shared(path, file, f"{key}.api_key_file")
            return read_secret(path, file, f"{key}.api_key_file").get_secret_value()
        if table.api_key_env:
            return read_variable(env, table.api_key_env, file, f"{key}.api_key_env")
        return None

    @_with_lines
    def chat_token(self, name: str) -> SecretStr:
        """Return the token of a chat. Raises ConfigError if its file cannot be used."""
        path = self.folder / Path(self.chat[name].token_file).expanduser()
        file, key = display(self.file), f"chat.{name}.token_file"
        refuse_if_shared(path, file, key)
        return read_secret(path, file, key)

    @_with_lines
    def store_url(self, env: Mapping[str, str]) -> str:
        """Return the URL of the database; empty for the file in the state folder. Raises
        ConfigError.
        """
        store, file = self.store, display(self.file)
        if store.url_file:
            path = self.folder / Path(store.url_file).expanduser()
            refuse_if_shared(path, file, "store.url_file")
            url = read_secret(path, file, "store.url_file").get_secret_value()
        elif store.url_env:
            url = read_variable(env, store.url_env, file, "store.url_env")
        else:
            url = store.url.get_secret_value() if store.url else ""
            if re.match(r"[a-z]+://[^/@]*:[^/@]+@|.*[?&]password=", url):
                refuse_if_shared(self.file, file, "store.url")
        try:
            check_postgres_address(url or "postgresql://-")
        except InvalidValue as error:
            key = "store.url_file" if store.url_file else "store.url_env"
            raise ConfigError(
                Fault(file=file, key=key, found="", problem=str(error), hint=error.hint)
            ) from None
        return url

    @_with_lines
    def hooks_secret(self) -> SecretStr | None:
        """Return the secret that webhooks are signed with; None if they need no signature.

        Raises ConfigError.
        """
        if self.hooks.secret_file is None:
            return None
        path, file, key = (
            self.folder / Path(self.hooks.secret_file).expanduser(),
            display(self.file),
            HOOKS_KEY,
        )
        refuse_if_shared(path, file, key)
        secret = read_secret(path, file, key)
        check_signing_secret(
            secret, file=file, key=key, found=show_value(str(path)), where=display(path)
        )
        return secret

    @_with_lines
    def sender_secrets(self) -> dict[str, SecretStr]:
        """Return the secret of each [hooks.senders.NAME], by its name. Raises ConfigError."""
        secrets, file = {}, display(self.file)
        for name, sender in self.hooks.senders.items():
            path = self.folder / Path(sender.secret_file).expanduser()
            key = f"hooks.senders.{name}.secret_file"
            refuse_if_shared(path, file, key)
            secrets[name] = secret = read_secret(path, file, key)
            found, where = show_value(str(path)), display(path)
            if sender.kind == "standard":
                check_signing_secret(secret, file=file, key=key, found=found, where=where)
            else:
                check_shared_secret(secret, file=file, key=key, found=found, where=where)
        return secrets
