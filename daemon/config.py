"""The daemon's own settings: one model per table of config.toml, and the keys of the providers."""

from __future__ import annotations

import base64
import copy
import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr

from daemon.definitions import (
    Conflict,
    Items,
    JsonTable,
    Rule,
    SomeDuration,
    Table,
    Wrong,
    as_fault,
    did_you_mean,
    display,
    dotted,
    parse,
    read_toml,
    shown,
)
from daemon.errors import ConfigError, Fault
from daemon.models import Json

# Beside config.toml, and put into every prompt.
IDENTITY_FILES = ("USER.md", "SOUL.md", "AGENT.md")
KINDS = ("openai", "claude", "minimax", "open_source", "offline", "scripted")
# The group of entry points by which a package brings a kind of its own.
KINDS_OF_OTHERS = "agentd.providers"
_NEED_MODEL = ("openai", "claude", "minimax", "open_source")
_NEED_KEY = ("openai", "claude", "minimax")
# What the tool `config` may write where the policy names it: how agentd speaks, when it reports and how hard it works,
# never what it may do, spend or reach.
_SETTABLE = (
    *("provider", "timezone", "agent.name", "agent.user_name", "agent.persona", "agent.language"),
    *("ask.provider", "ask.model", "ask.skills", "ask.auto_route", "ask.timeout", "ask.max_iterations"),
    *("daemon.grace", "daemon.max_concurrent", "digest.every", "digest.at", "digest.day"),
    *("incidents.remind", "incidents.cool_down", "log.level", "memory.summarise"),
    *(f"providers.*.{key}" for key in ("model", "timeout", "stall", "max_concurrency", "temperature", "max_tokens")),
)


def is_settable(key: str) -> bool:
    """Tell whether an agent may write this key at all, if the policy names it."""
    return any(len(key.split(".")) == len(each.split(".")) and fnmatchcase(key, each) for each in _SETTABLE)


# What people usually call the variable: named in a hint, never read unless api_key_env says so.
_USUAL_VARIABLE = {"openai": "OPENAI_API_KEY", "claude": "ANTHROPIC_API_KEY", "minimax": "MINIMAX_API_KEY"}


def known_zone(name: Any) -> Any:
    """Return the name of a time zone, if there is such a zone."""
    if not isinstance(name, str):
        return name
    try:
        ZoneInfo(name)
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError; ValueError and OSError: "../x", "Europe"
        pass
    except KeyError:
        pass
    else:
        return name
    zones = available_timezones()
    last = {zone.rpartition("/")[2]: zone for zone in sorted(zones)}
    hint = did_you_mean(name, zones) if "/" in name else did_you_mean(name, last)
    for city, zone in last.items():
        hint = hint.replace(f'"{city}"', f'"{zone}"')
    raise Wrong("unknown time zone", hint=hint if len(hint) < 100 else 'zones look like "Europe/Berlin"')


def _known_kind(value: Any) -> Any:
    """Return the name of a kind of providers: ours, that of an installed package, or a class as `module:Class`."""
    if not isinstance(value, str) or value in KINDS or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        return value
    from importlib.metadata import entry_points  # reads a folder per installed package: only where it is asked for

    others = entry_points(group=KINDS_OF_OTHERS).names
    if value in others:
        return value
    *most, last = (f'"{kind}"' for kind in (*KINDS, *sorted(others)))
    raise Wrong(f"expected {', '.join(most)} or {last}", hint=did_you_mean(value, (*KINDS, *others)))


def _address(value: str) -> str:
    if not re.match(r"https?://[^\s/]+", value):
        raise Wrong('expected an address, like "http://127.0.0.1:11434/v1"')
    return value


Zone: TypeAlias = Annotated[str, BeforeValidator(known_zone)]
Name = Annotated[str, Field(min_length=1)]


class AgentConfig(Table):
    """Who the agent is."""

    name: Name = "agentd"
    """What the agent calls itself."""
    user_name: str = ""
    """Whom it works for."""
    persona: str = ""
    """How it should sound, in a sentence or two."""
    language: Literal["en", "zh"] = "en"
    """The language of its prompts and reports."""


Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class PriceConfig(Table):
    """What a model costs, in US dollars per million tokens."""

    input: Dollars
    """What is sent."""
    output: Dollars
    """What is answered, thinking included."""
    cache_read: Dollars | None = None
    """What the vendor finds in its cache; by default as any input."""
    cache_write: Dollars | None = None
    """What it puts there; likewise."""


class BudgetConfig(Table):
    """What all runs together may use; looked at before each call."""

    day: Dollars | None = None
    """US dollars in a day, in the zone of `timezone`."""
    month: Dollars | None = None
    """US dollars in a month."""
    day_tokens: int | None = Field(default=None, ge=1)
    """Tokens in a day, input and output together."""
    month_tokens: int | None = Field(default=None, ge=1)
    """Tokens in a month."""


class ProviderConfig(Table):
    """One model and the way to it."""

    kind: Annotated[str, BeforeValidator(_known_kind)]
    """Which family of providers: openai, claude, minimax, open_source, offline, scripted, one that a package brings
    (entry point `agentd.providers`), or a class of yours as "module:Class"."""
    model: Name | None = None
    """The model's name, as its vendor writes it."""
    base_url: Annotated[str, AfterValidator(_address)] | None = None
    """Another server that speaks the same language."""
    api: Literal["responses", "chat"] | None = None
    """Kind openai: which of its two interfaces; by default Responses on its vendor's own host, else Chat."""
    region: Literal["cn", "intl"] | None = None
    """Kind minimax: which of its two sites holds the account."""
    api_key: SecretStr | None = Field(default=None, min_length=1)
    """The key itself, if this file is yours alone (0600)."""
    api_key_file: Name | None = None
    """A file that holds the key (yours, 0600)."""
    api_key_env: Name | None = None
    """An environment variable that holds the key."""
    timeout: SomeDuration = timedelta(minutes=5)
    """How long one answer may take; one that is streamed: until it begins."""
    stall: SomeDuration = timedelta(minutes=1)
    """How long a streamed answer may stand still."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """How many runs and requests at a time; no limit by default."""
    capabilities: JsonTable = Field(default_factory=dict)
    """Corrections to what we know of the model."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sent only where the model takes it."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer, in tokens."""
    price: PriceConfig | None = None
    """What the model costs, where that is not known or you pay another price; 0 for one of your own."""
    replies: Items[str | JsonTable] = ()
    """Kind scripted: what it answers, in order."""
    options: JsonTable = Field(default_factory=dict)
    """A kind that is not ours: what else its class takes."""

    def settings(self) -> dict[str, Any]:
        """Return what `create_provider` takes of this table; kind and key go their own ways."""
        ours = {"kind", "api_key", "api_key_file", "api_key_env", "price"}
        taken = self.model_dump(exclude=ours, exclude_defaults=True)
        return {**taken, "timeout": self.timeout.total_seconds(), "stall": self.stall.total_seconds()}

    def secret(
        self, name: str, *, env: Mapping[str, str], folder: Path = Path(), file: str = "config.toml"
    ) -> SecretStr | None:
        """Return the key of the provider called `name`, None if it needs none; ConfigError if it is missing.

        The strongest place first: systemd's credential, a file of its own, a variable, the config file.
        """
        key = f"providers.{name}"
        if (credentials := env.get("CREDENTIALS_DIRECTORY")) and (path := Path(credentials) / name).is_file():
            return _key_in(path, file, key)
        if self.api_key_file:
            path = folder / Path(self.api_key_file).expanduser()
            _refuse_if_open(path, file, f"{key}.api_key_file")
            return _key_in(path, file, f"{key}.api_key_file")
        if self.api_key_env and (value := env.get(self.api_key_env, "").strip()):
            return SecretStr(value)
        if self.api_key is not None:
            return self.api_key
        if self.api_key_env:
            shown = self.api_key_env if re.fullmatch(r"[A-Z][A-Z0-9_]*", self.api_key_env) else "it names"
            problem, hint = f"the environment variable {shown} is not set", "export it where agentd starts"
            raise ConfigError(Fault(file=file, key=f"{key}.api_key_env", found="", problem=problem, hint=hint))
        if self.kind not in _NEED_KEY or self.base_url:
            return None
        usual = _USUAL_VARIABLE[self.kind]
        hint = 'add api_key_file = "…" (a file of yours with mode 0600)'
        hint += f', or api_key_env = "{usual}"' + (" (it is set)" if env.get(usual) else "")
        hint += f", or with systemd LoadCredential={name}:…"
        raise ConfigError(Fault(file=file, key=key, found="", problem="has no API key", hint=hint))


class TargetConfig(Table):
    """One place that reports go to by its name: `to = "mail"` in a routine."""

    kind: Literal["apprise", "webhook", "ping", "desktop", "file", "log"]
    """How it is reached."""
    url: SecretStr | None = Field(default=None, min_length=1)
    """Kinds apprise, webhook and ping: its address; of kind apprise only if this file is yours alone (0600)."""
    url_file: Name | None = None
    """A file that holds the address (yours, 0600)."""
    url_env: Name | None = None
    """An environment variable that holds the address."""
    secret_file: Name | None = None
    """Kind webhook: a file (yours, 0600) with the secret that signs, as whsec_… of Standard Webhooks."""
    secret_env: Name | None = None
    """Kind webhook: an environment variable that holds that secret."""
    path: Name | None = None
    """Kind file: where, for routines that name no path of their own."""
    limit: int | None = Field(default=None, ge=1000)
    """Kind webhook: how many bytes one message may have; a longer report comes in parts."""
    timeout: SomeDuration = timedelta(seconds=30)
    """Kind webhook: how long it may take to answer."""


class DigestConfig(Table):
    """What happened, in a line, by day or by week."""

    every: Literal["day", "week"] | None = None
    """How often; by default never."""
    at: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = "08:00"
    """When, in the zone of `timezone`."""
    day: Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"] = "mon"
    """On which day, if by week."""
    to: Items[Name] = ("log",)
    """Targets that get it."""


class IncidentsConfig(Table):
    """How often people hear of the same trouble."""

    remind: SomeDuration = timedelta(hours=24)
    """How long after an alert the next one of the same cause may come, while it lasts and nobody said `ack`."""
    cool_down: SomeDuration = timedelta(hours=1)
    """A failure so soon after its recovery is the same incident: no new alert, no second word of recovery."""
    to: Items[Name] = ()
    """Targets, in order, for alerts of routines that name none, and instead of a target that takes nothing."""


class DaemonConfig(Table):
    """How the daemon lives."""

    grace: SomeDuration = timedelta(seconds=20)
    """How long runs may go on after SIGTERM before they are suspended, to be resumed at the next start."""
    max_concurrent: int = Field(default=4, ge=1)
    """How many runs at a time; the others wait. Runs that ask no model have as many places of their own."""


def _user(value: Any) -> Any:
    """Return the uid of a user who is named, or given as a number."""
    if isinstance(value, str):
        try:
            return int(value) if value.isdecimal() else pwd.getpwnam(value).pw_uid
        except KeyError:
            raise Wrong("there is no such user") from None
    return value


def _group(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return int(value) if value.isdecimal() else grp.getgrnam(value).gr_gid
        except KeyError:
            raise Wrong("there is no such group", hint=f"groupadd --system {value}") from None
    return value


User: TypeAlias = Annotated[int, BeforeValidator(_user), Field(ge=0)]
Group: TypeAlias = Annotated[int, BeforeValidator(_group), Field(ge=0)]


class McpConfig(Table):
    """One MCP server, whose tools are called `NAME__tool`: a command that is started, or an address."""

    command: Items[Name] = ()
    """The program and its words; it runs with your rights, with PATH and HOME and what is given here."""
    env: dict[str, str] = Field(default_factory=dict)
    """More of its environment."""
    pass_env: Items[Name] = ()
    """Variables of agentd's own environment that it gets too, such as a key."""
    cwd: Name | None = None
    """The folder it runs in; by default that of agentd."""
    url: Annotated[str, AfterValidator(_address)] | None = None
    """Where it answers by streamable HTTP."""
    api_key_file: Name | None = None
    """With `url`: a file (yours, 0600) with the token that is sent along."""
    api_key_env: Name | None = None
    """Likewise an environment variable."""
    timeout: SomeDuration = timedelta(minutes=1)
    """For one call."""


class ToolsConfig(Table):
    """Tools of your own: Python functions, which run inside agentd with all its rights."""

    files: Items[Name] = ()
    """Files of the folder `tools` beside this file; the public functions of each are tools."""
    packages: Items[Name] = ()
    """Entry points of the group agentd.tools, by name, of packages that are installed."""


class SearchConfig(Table):
    """What the tool web_search asks."""

    kind: Literal["tavily", "searxng"] | None = None
    """Tavily, or a SearXNG of your own; without it there is no such tool."""
    base_url: Annotated[str, AfterValidator(_address)] | None = None
    """Kind searxng: where it answers; it has to have the format json enabled."""
    api_key_file: Name | None = None
    """Kind tavily: a file (yours, 0600) with the key."""
    api_key_env: Name | None = None
    """Likewise an environment variable."""


class AskConfig(Table):
    """What answers `agentctl ask`."""

    provider: Name | None = None
    """A [providers.NAME]; by default the one named at the top."""
    model: Name | None = None
    """Another model of that provider."""
    fallback: Items[Name] = ()
    """Providers to go on with when the first one fails."""
    tools: Items[Name] = (
        "sysinfo",
        "self_info",
        "file_read",
        "file_list",
        "git",
        "memory_recall",
        "memory_expand",
        "skill",
        "shell",
    )
    """What it may look with; the policy judges each call."""
    skills: bool = True
    """Let the model say first which skills a message needs, where there are any."""
    auto_route: bool = True
    """Ask the model whether a message belongs to a run under way."""
    timeout: SomeDuration = timedelta(minutes=10)
    """Active time of one answer."""
    max_iterations: Annotated[int, Field(ge=1)] = 10
    """Model calls for one answer."""
    tokens: int | None = Field(default=None, ge=1)
    """What one answer may use, input and output together."""
    usd: Dollars | None = None
    """Likewise in US dollars."""


class ControlConfig(Table):
    """Who besides its own user and root may speak to the daemon."""

    group: Group | None = None
    """Whose members reach the control socket: it becomes 0660 and its folder 0710. Takes a restart."""
    operators: Items[User] = ()
    """Users who may do everything with agentctl that its owner may."""
    readers: Items[User] = ()
    """Users who may look and change nothing."""


class ListenConfig(Table):
    """What may be reached over the network. Control never is. Takes a restart."""

    address: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:]+\]|[0-9.]+):\d{1,5}$")] | None = None
    """Where to listen, such as "127.0.0.1:9464"; by default nowhere."""
    metrics: bool = True
    """Answer /metrics there, for Prometheus."""
    hooks: bool = False
    """Take webhooks there, at /v1/hooks/NAME; only signed ones, so [hooks] secret_file must be set."""


class HooksConfig(Table):
    """How webhooks prove who sent them, and who may bring them."""

    group: Group | None = None
    """Whose members reach the webhook socket, such as that of a web server. Takes a restart."""

    secret_file: Name | None = None
    """A file (yours, 0600) with the secret shared with the senders, as whsec_… of Standard Webhooks; then every request
    must be signed."""


class LogConfig(Table):
    """What is written down of the daemon's doings."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on."""
    max_mb: int = Field(default=10, ge=1)
    """At how many megabytes the file is set aside and a new one begun."""
    keep: int = Field(default=5, ge=1)
    """How many of those set aside stay."""


class OtelConfig(Table):
    """Traces of runs for OpenTelemetry, over HTTP; needs the extra otel."""

    endpoint: Annotated[str, Field(pattern=r"^https?://.+")] | None = None
    """Where they go, like "http://127.0.0.1:4318"; by default where $OTEL_EXPORTER_OTLP_ENDPOINT says, else nowhere."""
    content: bool = False
    """Whether prompts, answers, arguments and results go along."""


def _database(value: Any) -> Any:
    if isinstance(value, str) and not re.match(r"postgres(ql)?://\S", value):
        raise Wrong('expected the address of a PostgreSQL database, like "postgresql://agentd@db.example/agentd"')
    return value


class StoreConfig(Table):
    """Where the journal and memory are: by default in agentd.db in the state folder. Takes a restart."""

    url: Annotated[SecretStr, BeforeValidator(_database)] | None = None
    """A PostgreSQL database (13 or later), which several daemons may share; as libpq reads it. With a password in it
    only if this file is yours alone (0600); libpq finds one in ~/.pgpass and PGPASSWORD too."""
    url_file: Name | None = None
    """A file that holds the URL (yours, 0600)."""
    url_env: Name | None = None
    """An environment variable that holds the URL."""


class ExecutorConfig(Table):
    """Who lives the runs, where daemons share a database. Takes a restart."""

    kind: Literal["local", "procrastinate"] = "local"
    """local: whoever starts a run lives it; procrastinate: any daemon or worker (`agentd worker`) on the database that
    `[store]` names."""
    here: bool = True
    """Whether this daemon lives runs itself; false: it leaves them to others."""
    lease: SomeDuration = timedelta(seconds=60)
    """After how long a process that is not heard of is taken for dead, and its runs are taken over."""


class KeepConfig(Table):
    """How long history stays; the last ten runs of a routine stay whatever their age."""

    steps: SomeDuration | None = timedelta(days=180)
    """How long what runs asked, did and were told stays in full."""
    runs: SomeDuration | None = None
    """How long runs stay at all, with their reports and deliveries; by default for ever."""
    reports: SomeDuration | None = None
    """How long report files of the workspace stay whose path has {slot} or {run}; by default for ever."""
    max_mb: int | None = Field(default=None, ge=50)
    """How big the database may grow: beyond that the oldest go first, whatever their age."""


class MemoryConfig(Table):
    """What is remembered of runs, for how long, and what helps to find it again."""

    keep_tools: SomeDuration = timedelta(days=90)
    """How long calls and outputs of tools stay whole; then their beginnings stay (the journal has the rest)."""
    keep_reasoning: SomeDuration = timedelta(days=30)
    """Likewise for what a model thought."""
    keep_runs: SomeDuration | None = None
    """How long archived runs stay at all; by default for ever."""
    keep_daily: SomeDuration | None = None
    """How long items of the category daily stay after their last change; by default for ever. Pinned ones stay."""
    keep_conversation: SomeDuration | None = None
    """Likewise for items of the category conversation: one line per archived run."""
    summarise: bool = False
    """Ask the routine's model, once per archived run, for a summary and the facts in it; costs tokens of its budget."""
    mirror: bool = False
    """Keep MEMORY.md in the workspace: pinned and core items, to be read and edited. Takes a restart."""
    embedder: Literal["none", "openai_compatible", "onnx"] = "none"
    """What finds texts by their meaning besides their words. Takes a restart, like the keys below."""
    model: Name | None = None
    """Embedder openai_compatible: the model's name."""
    base_url: Annotated[str, AfterValidator(_address)] | None = None
    """Embedder openai_compatible: the server's address."""
    model_file: Name | None = None
    """Embedder onnx: the model, a file of yours, relative to this one."""
    tokenizer_file: Name | None = None
    """Embedder onnx: its tokenizer; by default tokenizer.json beside the model."""
    api_key: SecretStr | None = Field(default=None, min_length=1)
    """Embedder openai_compatible: the key itself, if this file is yours alone (0600)."""
    api_key_file: Name | None = None
    """A file that holds the key (yours, 0600)."""
    api_key_env: Name | None = None
    """An environment variable that holds the key."""


class Config(Table):
    """Everything config.toml may say."""

    provider: Name = "offline"
    """Which [providers.NAME] answers, unless a routine names its own; "offline" asks no model."""
    timezone: Zone | None = None
    """The zone of schedules without one; by default the host's."""
    workspace: Name | None = None
    """The folder agents work in; by default `workspace` in the state folder."""
    routines: Name = "routines"
    """The folder of routine files, relative to this file."""
    policy: Name = "policy.toml"
    """What agents may do, relative to this file."""
    scripts: Name = "scripts"
    """The folder of scripts that the tool script may run, relative to this file."""
    agent: AgentConfig = AgentConfig()
    providers: dict[str, ProviderConfig] = Field(default_factory=dict)
    targets: dict[str, TargetConfig] = Field(default_factory=dict)
    budget: BudgetConfig = BudgetConfig()
    daemon: DaemonConfig = DaemonConfig()
    ask: AskConfig = AskConfig()
    tools: ToolsConfig = ToolsConfig()
    search: SearchConfig = SearchConfig()
    mcp: dict[str, McpConfig] = Field(default_factory=dict)
    control: ControlConfig = ControlConfig()
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
    _overlay_fault: ConfigError | None = PrivateAttr(default=None)
    _identity: Sequence[Path] = PrivateAttr(default=tuple(map(Path, IDENTITY_FILES)))

    def at(self, file: Path) -> Self:
        """Return this config as read from `file`, to whose folder its paths are relative."""
        self._file = file.absolute()
        self._identity = [self.folder / name for name in IDENTITY_FILES]
        return self

    @property
    def file(self) -> Path:
        return self._file

    @property
    def overlay_fault(self) -> ConfigError | None:
        """Why what agents wrote does not count."""
        return self._overlay_fault

    def without_overlay(self, fault: ConfigError) -> Self:
        """Return this config, with the reason why what agents wrote is not in it."""
        self._overlay_fault = fault
        return self

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        return self._file.parent

    @property
    def identity_paths(self) -> Sequence[Path]:
        """Where the owner's own words on who the agent is may stand; each run looks there."""
        return self._identity

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
        return self.folder / Path(self.workspace).expanduser() if self.workspace else state / "workspace"

    def provider_config(self, name: str) -> ProviderConfig:
        """Return a declared provider, or `offline`, which exists without being declared; KeyError otherwise."""
        if name == "offline" and name not in self.providers:
            return ProviderConfig(kind="offline")
        return self.providers[name]

    def memory_secret(self, env: Mapping[str, str]) -> SecretStr | None:
        """Return the key of the embedder; None if it needs none; ConfigError if it is missing."""
        memory = self.memory
        way = ProviderConfig(
            kind="open_source",
            api_key=memory.api_key,
            api_key_file=memory.api_key_file,
            api_key_env=memory.api_key_env,
        )
        try:
            return way.secret("memory", env=env, folder=self.folder, file=display(self.file))
        except ConfigError as error:
            raise ConfigError(
                *(replace(fault, key=fault.key.removeprefix("providers.")) for fault in error.faults)
            ) from None

    @property
    def target_names(self) -> frozenset[str]:
        """What `to` may name."""
        return frozenset({*self.targets, *CHANNELS})

    @property
    def provider_names(self) -> frozenset[str]:
        return frozenset({*self.providers, "offline"})

    def secret(self, name: str, env: Mapping[str, str]) -> SecretStr | None:
        """Return the key of a provider; None if it needs none; ConfigError if it is missing."""
        return self.provider_config(name).secret(name, env=env, folder=self.folder, file=display(self.file))

    def target_url(self, name: str, env: Mapping[str, str]) -> SecretStr | None:
        """Return the address of a target; None if its kind needs none; ConfigError if it is missing."""
        target = self.targets[name]
        if target.kind not in _OF_KIND["url"]:
            return None
        return self._secret_of(name, "url", env) or _nothing(display(self.file), f"targets.{name}.url_file")

    def target_secret(self, name: str, env: Mapping[str, str]) -> SecretStr | None:
        """Return what signs the messages to a target; None if nothing does; ConfigError."""
        secret = self._secret_of(name, "secret", env)
        if secret is not None:
            key = f"targets.{name}.secret_file" if self.targets[name].secret_file else f"targets.{name}.secret_env"
            _check_signing(secret, file=display(self.file), key=key, found="")
        return secret

    def _secret_of(self, name: str, what: Literal["url", "secret"], env: Mapping[str, str]) -> SecretStr | None:
        """Look for a target's address or secret: systemd's credential (of the address), a file, a variable, here."""
        target, file, key = self.targets[name], display(self.file), f"targets.{name}.{what}"
        credentials = env.get("CREDENTIALS_DIRECTORY")
        credential = Path(credentials or "/") / (name if what == "url" else f"{name}.secret")
        if credentials and credential.is_file():
            return _key_in(credential, file, key)
        named: str | None = getattr(target, f"{what}_file")
        if named:
            path = self.folder / Path(named).expanduser()
            _refuse_if_open(path, file, f"{key}_file")
            return _key_in(path, file, f"{key}_file")
        variable: str | None = getattr(target, f"{what}_env")
        if variable and (value := env.get(variable, "").strip()):
            return SecretStr(value)
        if variable:
            problem, hint = "the environment variable it names is not set", "export it where agentd starts"
            raise ConfigError(Fault(file=file, key=f"{key}_env", found="", problem=problem, hint=hint))
        return target.url if what == "url" else None

    def key_of(self, key: str, table: McpConfig | SearchConfig, env: Mapping[str, str]) -> str | None:
        """Return the key that a table names by a file or a variable; None if it names none; ConfigError."""
        file = display(self.file)
        if table.api_key_file:
            path = self.folder / Path(table.api_key_file).expanduser()
            _refuse_if_open(path, file, f"{key}.api_key_file")
            return _key_in(path, file, f"{key}.api_key_file").get_secret_value()
        if table.api_key_env:
            if value := env.get(table.api_key_env, "").strip():
                return value
            problem, hint = "the environment variable it names is not set", "export it where agentd starts"
            raise ConfigError(Fault(file=file, key=f"{key}.api_key_env", found="", problem=problem, hint=hint))
        return None

    def store_url(self, env: Mapping[str, str]) -> str:
        """Return the URL of the database; "" for the file in the state folder; ConfigError if it cannot be had."""
        store, file = self.store, display(self.file)
        if store.url_file:
            path = self.folder / Path(store.url_file).expanduser()
            _refuse_if_open(path, file, "store.url_file")
            url = _key_in(path, file, "store.url_file").get_secret_value()
        elif store.url_env:
            url = env.get(store.url_env, "").strip()
            if not url:
                problem, hint = "the environment variable it names is not set", "export it where agentd starts"
                raise ConfigError(Fault(file=file, key="store.url_env", found="", problem=problem, hint=hint))
        else:
            url = store.url.get_secret_value() if store.url else ""
            if re.match(r"[a-z]+://[^/@]*:[^/@]+@|.*[?&]password=", url):
                _refuse_if_open(self.file, file, "store.url")
        try:
            _database(url or "postgresql://-")
        except Wrong as wrong:
            key = "store.url_file" if store.url_file else "store.url_env"
            raise ConfigError(Fault(file=file, key=key, found="", problem=str(wrong), hint=wrong.hint)) from None
        return url

    def hooks_secret(self) -> SecretStr | None:
        """Return the secret that webhooks are signed with; None if they need no signature; ConfigError."""
        if self.hooks.secret_file is None:
            return None
        path, file, key = self.folder / Path(self.hooks.secret_file).expanduser(), display(self.file), _HOOKS_KEY
        _refuse_if_open(path, file, key)
        secret = _key_in(path, file, key)
        _check_signing(secret, file=file, key=key, found=shown(str(path)), where=display(path))
        return secret


_HOOKS_KEY = "hooks.secret_file"
_SHORTEST_SECRET = 24


def _check_signing(secret: SecretStr, *, file: str, key: str, found: str, where: str = "FILE") -> None:
    """Raise ConfigError unless it is a secret of Standard Webhooks."""
    text = secret.get_secret_value().removeprefix("whsec_")
    try:
        size = len(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except ValueError:
        size = 0
    if size < _SHORTEST_SECRET:  # of the specification, as its size in bytes is
        problem = f"holds no secret of {_SHORTEST_SECRET} bytes or more in base64"
        hint = f"make one: (printf whsec_; head -c 32 /dev/urandom | base64) > {where}"
        raise ConfigError(Fault(file=file, key=key, found=found, problem=problem, hint=hint))


def _nothing(file: str, key: str) -> SecretStr:
    hint = 'url_file = "…" (a file of yours with mode 0600), url_env or url; or with systemd a credential of its name'
    raise ConfigError(Fault(file=file, key=key, found="", problem="names no address", hint=hint))


def load_config(path: Path, overlay: Path | None = None) -> Config:
    """Return the config of this file; ConfigError with all its faults.

    What agents wrote into `overlay` stands above it, as long as the two go together: else the file counts alone.
    """
    data = read_toml(path)
    config = parse(data, Config, file=path, rules=RULES).at(path)
    if overlay is not None and overlay.exists():
        try:
            config = _overlaid(data, overlay).at(path)
        except ConfigError as fault:
            config = config.without_overlay(fault)
    for name, provider in config.providers.items():
        if provider.api_key is not None:
            _refuse_if_open(path, display(path), f"providers.{name}.api_key")
    if config.memory.api_key is not None:
        _refuse_if_open(path, display(path), "memory.api_key")
    for name, target in config.targets.items():
        if target.kind == "apprise" and target.url is not None:
            _refuse_if_open(path, display(path), f"targets.{name}.url")
    return config


def _shared_database(config: Config) -> Iterator[Conflict]:
    store = config.store
    if config.executor.kind == "procrastinate" and not (store.url or store.url_file or store.url_env):
        problem = "procrastinate hands runs on by a database that daemons share"
        yield Conflict("executor.kind", problem, hint='name one: [store] url = "postgresql://…"')


def _overlaid(data: Json, overlay: Path) -> Config:
    """Return the config with what agents wrote; ConfigError if that cannot be, or is not theirs to write."""
    written = dict(_leaves(read_toml(overlay)))
    if strange := [key for key in written if not is_settable(".".join(key))]:
        fault = Conflict(dotted(*strange[0]), "is no setting that agents may write")
        raise ConfigError(as_fault(fault, display(overlay)))
    merged = copy.deepcopy(data)
    for (*tables, last), value in written.items():
        table = merged
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = value
    return parse(merged, Config, file=overlay, rules=RULES)


def _leaves(table: Json, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _one_database(config: Config) -> Iterator[Conflict]:
    store = config.store
    if sum(given is not None for given in (store.url, store.url_file, store.url_env)) > 1:
        yield Conflict("store", "url, url_file and url_env exclude each other", hint="keep one of them")


def _known_provider(config: Config) -> Iterator[Conflict]:
    wanted = [("provider", config.provider), ("ask.provider", config.ask.provider)]
    wanted += [(f"ask.fallback[{place}]", name) for place, name in enumerate(config.ask.fallback)]
    for key, name in wanted:
        if name is not None and name not in config.provider_names:
            hint = did_you_mean(name, config.provider_names)
            yield Conflict(key, "no such provider in [providers]", name, hint)


def _sound_names(config: Config) -> Iterator[Conflict]:
    for name in config.providers:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
            yield Conflict(dotted("providers", name), "a provider's name is made of a-z, 0-9, - and _", name)


def _model_where_needed(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        if provider.kind in _NEED_MODEL and provider.model is None:
            problem = f"is missing; kind {provider.kind} needs the name of a model"
            yield Conflict(dotted("providers", name, "model"), problem)


def _address_where_needed(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        if provider.kind == "open_source" and provider.base_url is None:
            hint = 'Ollama: base_url = "http://127.0.0.1:11434/v1"'
            problem = "is missing; kind open_source needs the server's address"
            yield Conflict(dotted("providers", name, "base_url"), problem, hint=hint)


def _keys_of_one_kind(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        for key, kind in (("api", "openai"), ("region", "minimax"), ("replies", "scripted")):
            value = getattr(provider, key)
            if value and provider.kind != kind:
                yield Conflict(dotted("providers", name, key), f"only kind {kind} takes it", value)


# What every routine may name without a [targets.NAME] of its own; of each kind there is only one then.
CHANNELS = ("file", "log", "desktop")
_OF_KIND = {
    "url": ("apprise", "webhook", "ping"),
    "url_file": ("apprise", "webhook", "ping"),
    "url_env": ("apprise", "webhook", "ping"),
    "secret_file": ("webhook",),
    "secret_env": ("webhook",),
    "limit": ("webhook",),
    "timeout": ("webhook",),
    "path": ("file",),
}


def _sound_targets(config: Config) -> Iterator[Conflict]:
    for name, target in config.targets.items():
        key = dotted("targets", name)
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
            yield Conflict(key, "a target's name is made of a-z, 0-9, - and _", name)
        elif name in CHANNELS:
            yield Conflict(key, "is there without being declared", name, hint="take another name")
        for given in sorted(target.model_fields_set & _OF_KIND.keys()):
            if target.kind not in _OF_KIND[given]:
                kinds = " and ".join(_OF_KIND[given])
                yield Conflict(f"{key}.{given}", f"only kind {kinds} takes it")
        if target.kind in _OF_KIND["url"] and sum(map(bool, (target.url, target.url_file, target.url_env))) > 1:
            yield Conflict(key, "url, url_file and url_env exclude one another", hint="keep one")
        if (
            target.kind == "webhook"
            and target.url
            and not target.url.get_secret_value().startswith(("http://", "https://"))
        ):
            yield Conflict(f"{key}.url", "expected an address", hint='like "https://example.org/hooks/agentd"')


def _digests_go_somewhere(config: Config) -> Iterator[Conflict]:
    for index, name in enumerate(config.digest.to):
        if name not in config.target_names or name == "file":
            hint = did_you_mean(name, config.target_names) or f"add [targets.{name}]"
            yield Conflict(f"digest.to[{index}]", "no such target, or one that takes a path", name, hint)


def _sound_servers(config: Config) -> Iterator[Conflict]:
    for name, server in config.mcp.items():
        key = dotted("mcp", name)
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,29}", name):
            yield Conflict(key, "a server's name is made of a-z, 0-9 and -, at most 30 of them", name)
        if bool(server.command) == bool(server.url):
            yield Conflict(key, "needs either a command or a url", hint='like command = ["uvx", "mcp-server-time"]')
        if server.command and (server.api_key_file or server.api_key_env):
            yield Conflict(key, "a key is sent only to a url", hint="pass_env gives a command a variable of agentd's")


def _search_complete(config: Config) -> Iterator[Conflict]:
    search = config.search
    if search.kind == "searxng" and search.base_url is None:
        yield Conflict("search.base_url", "is missing", hint='like "http://127.0.0.1:8888"')
    if search.kind == "tavily" and not (search.api_key_file or search.api_key_env):
        yield Conflict("search.api_key_file", "is missing", hint="tavily needs a key: api_key_file or api_key_env")


def _only_signed_from_afar(config: Config) -> Iterator[Conflict]:
    if config.listen.hooks and not config.hooks.secret_file:
        hint = "set hooks.secret_file"
        yield Conflict("listen.hooks", "anybody on the network could start runs: webhooks must be signed", hint=hint)


def _alerts_go_somewhere(config: Config) -> Iterator[Conflict]:
    for index, name in enumerate(config.incidents.to):
        if name not in config.target_names:
            hint = did_you_mean(name, config.target_names) or f"add [targets.{name}]"
            yield Conflict(f"incidents.to[{index}]", "no such target", name, hint)
        elif name == "file" or (name in config.targets and config.targets[name].kind == "file"):
            yield Conflict(f"incidents.to[{index}]", "a file calls nobody", name, hint="the log has every alert anyway")


def _options_of_others(config: Config) -> Iterator[Conflict]:
    for name, provider in config.providers.items():
        if provider.options and provider.kind in KINDS:
            problem = "is for kinds that are not ours"
            yield Conflict(dotted("providers", name, "options"), problem, hint="see the keys of this one")


def _embedder_complete(config: Config) -> Iterator[Conflict]:
    memory = config.memory
    needs = {"openai_compatible": ("model", "base_url"), "onnx": ("model_file",)}.get(memory.embedder, ())
    for key in needs:
        if getattr(memory, key) is None:
            yield Conflict(dotted("memory", key), f"is missing; embedder {memory.embedder} needs it")


RULES = (
    Rule(("provider", "providers.*", "ask.provider", "ask.fallback"), _known_provider),
    Rule(("providers.*",), _sound_names),
    Rule(("providers.*.kind", "providers.*.model"), _model_where_needed),
    Rule(("providers.*.kind", "providers.*.base_url"), _address_where_needed),
    Rule(("providers.*.kind", "providers.*.api", "providers.*.region", "providers.*.replies"), _keys_of_one_kind),
    Rule(("targets.*",), _sound_targets),
    Rule(("digest.to", "targets.*"), _digests_go_somewhere),
    Rule(("listen.hooks", "hooks.secret_file"), _only_signed_from_afar),
    Rule(("mcp.*",), _sound_servers),
    Rule(("search.kind", "search.base_url"), _search_complete),
    Rule(("incidents.to", "targets.*"), _alerts_go_somewhere),
    Rule(("providers.*.kind", "providers.*.options"), _options_of_others),
    Rule(("store.url", "store.url_file", "store.url_env"), _one_database),
    Rule(("executor.kind", "store.url"), _shared_database),
    Rule(("memory.embedder", "memory.model", "memory.base_url", "memory.model_file"), _embedder_complete),
)


def _key_in(path: Path, file: str, key: str) -> SecretStr:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the key cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        raise ConfigError(Fault(file=file, key=key, found=shown(str(path)), problem=problem)) from None
    if not text or "\n" in text:
        problem = "holds no key" if not text else "holds more than one line"
        hint = "the key alone, on one line"
        raise ConfigError(Fault(file=file, key=key, found=shown(str(path)), problem=f"the file {problem}", hint=hint))
    return SecretStr(text)


def _refuse_if_open(path: Path, file: str, key: str) -> None:
    """Raise ConfigError when others could read (or could have planted) the key, as ssh does."""
    try:
        about = path.stat()
    except OSError as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise ConfigError(Fault(file=file, key=key, found=shown(str(path)), problem=problem)) from None
    mode = stat.S_IMODE(about.st_mode)
    if about.st_uid not in (os.geteuid(), 0):
        problem, hint = f"belongs to another user (uid {about.st_uid})", f"chown it to uid {os.geteuid()}"
    elif mode & 0o077:
        problem, hint = f"others may read or write the key (mode {mode:04o})", f"chmod 600 {display(path)}"
    else:
        return
    raise ConfigError(Fault(file=file, key=key, found=shown(str(path)), problem=problem, hint=hint))
