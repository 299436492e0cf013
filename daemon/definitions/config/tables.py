"""The tables of config.toml, one model for each."""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from daemon.definitions.config.secret_files import read_secret, refuse_if_shared
from daemon.definitions.values import (
    Duration,
    InvalidValue,
    Items,
    JsonTable,
    PositiveDuration,
    Table,
)
from daemon.definitions.words import did_you_mean, nearest
from daemon.errors import ConfigError, Fault

# Files beside config.toml that are part of every prompt.
IDENTITY_FILES = ("USER.md", "SOUL.md", "AGENT.md")

PROVIDER_KINDS = (
    "openai",
    "claude",
    "minimax",
    "open_source",
    "command",
    "offline",
    "scripted",
)
# The group of entry points by which a package brings a kind of its own.
PROVIDER_ENTRY_POINTS = "agentd.providers"
KINDS_WITH_MODEL = ("openai", "claude", "minimax", "open_source")
_KINDS_WITH_KEY = ("openai", "claude", "minimax")

# Variables of agentd's that every program of kind command gets.
PROGRAM_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
)

# Keys that the tool `config` may write if the policy names them: how agentd speaks, when it reports
# and how hard it works, never what it may do, spend or reach.
_SETTABLE = (
    "provider",
    "timezone",
    "agent.name",
    "agent.user_name",
    "agent.persona",
    "agent.language",
    "ask.provider",
    "ask.model",
    "ask.skills",
    "ask.auto_route",
    "ask.timeout",
    "ask.max_iterations",
    "daemon.grace",
    "daemon.max_concurrent",
    "digest.every",
    "digest.at",
    "digest.day",
    "incidents.remind",
    "incidents.cool_down",
    "log.level",
    "memory.summarise",
    "providers.*.model",
    "providers.*.timeout",
    "providers.*.stall",
    "providers.*.max_concurrency",
    "providers.*.temperature",
    "providers.*.max_tokens",
)


def is_settable(key: str) -> bool:
    """Tell whether an agent may write this key at all, if the policy names it."""
    return any(
        len(key.split(".")) == len(pattern.split(".")) and fnmatchcase(key, pattern)
        for pattern in _SETTABLE
    )


# The usual environment variables of API keys: named in hints, but read only if api_key_env names
# them.
_USUAL_VARIABLE = {
    "openai": "OPENAI_API_KEY",
    "claude": "ANTHROPIC_API_KEY",
    "minimax": "MINIMAX_API_KEY",
}


def check_zone(name: Any) -> Any:
    """Return the name of a time zone, if there is such a zone."""
    if not isinstance(name, str):
        return name
    try:
        ZoneInfo(name)
    # KeyError: ZoneInfoNotFoundError; ValueError: "../x"; OSError: "Europe", which is a folder
    except (KeyError, ValueError, OSError):
        pass
    else:
        return name
    close_zone = _find_zone_meant(name)
    hint = f'did you mean "{close_zone}"?' if close_zone else 'zones look like "Europe/Berlin"'
    raise InvalidValue("unknown time zone", hint=hint)


# Cities that people look for under a name that no zone has.
_ZONES_OF_CITIES = {"beijing": "Asia/Shanghai", "peking": "Asia/Shanghai"}


def _find_zone_meant(name: str) -> str:
    """Return the zone that was probably meant; empty if none is close.

    None is proposed for an abbreviation or an offset: CEST resembles EST, which is another one, and
    Etc/GMT+1 lies west of Greenwich.
    """
    if name.upper() in ("UTC", "GMT"):
        return "UTC"
    if name == name.upper() or re.search(r"\d", name):
        return ""
    city = name.rpartition("/")[2].lower()
    if city in _ZONES_OF_CITIES:
        return _ZONES_OF_CITIES[city]
    zones = sorted(zone for zone in available_timezones() if re.match(r"(?!Etc/)\w+/", zone))
    if "/" in name:
        return nearest(name, zones, cutoff=0.8)
    zones_by_city = {zone.rpartition("/")[2]: zone for zone in zones}
    return zones_by_city.get(nearest(name, zones_by_city, cutoff=0.8), "")


def _check_kind(value: Any) -> Any:
    """Return the value if it is a kind of provider: one of agentd, one of an installed package, or
    a class as `module:Class`.
    """
    if (
        not isinstance(value, str)
        or value in PROVIDER_KINDS
        or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value)
    ):
        return value
    # imported only here, as it reads a folder for each installed package
    from importlib.metadata import entry_points

    entry_point_names = entry_points(group=PROVIDER_ENTRY_POINTS).names
    if value in entry_point_names:
        return value
    *choices, last_choice = (f'"{kind}"' for kind in (*PROVIDER_KINDS, *sorted(entry_point_names)))
    raise InvalidValue(
        f"expected {', '.join(choices)} or {last_choice}",
        hint=did_you_mean(value, (*PROVIDER_KINDS, *entry_point_names)),
    )


def is_http_address(value: str) -> bool:
    """Tell whether a text is an address of http or https with a host, and a port if it has one."""
    authority = re.match(r"https?://([^/?#]*)", value)
    if authority is None or not authority[1] or re.search(r"[\s\0-\x1f\x7f]", authority[1]):
        return False
    try:
        parts = urlsplit(value)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are no IPv6 address, or a port that is no number
        return False


def _check_address(value: str) -> str:
    if not is_http_address(value):
        raise InvalidValue('expected an address, like "http://127.0.0.1:11434/v1"')
    return value


def _check_listen_address(value: str) -> str:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:]+)\]|([0-9.]+)):([0-9]{1,5})", value)
    try:
        is_address = match is not None and bool(ip_address(match[1] or match[2]))
    except ValueError:
        is_address = False
    if match is None or not is_address or int(match[3]) > 65_535:
        hint = 'write "127.0.0.1" for localhost' if value.startswith("localhost") else ""
        raise InvalidValue('expected an address and a port, like "127.0.0.1:9464"', hint=hint)
    return value


def _check_time(value: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value):
        raise InvalidValue('expected a time of the day, like "08:00"')
    return value


def _check_contact(value: str) -> str:
    if not re.fullmatch(r"[!-'*-~]{3,200}", value):  # a word of a header, between parentheses
        raise InvalidValue('expected a mail address or that of a page, like "ada@example.org"')
    return value


Zone: TypeAlias = Annotated[str, BeforeValidator(check_zone)]
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
    warn_at: (
        Annotated[Items[Annotated[int, Field(ge=1, le=100)]], Field(min_length=1, max_length=10)]
        | None
    ) = None
    """Per cent of a cap on a day or month, of a routine's too, such as [50, 75, 90]: each is told
    once in its day or month, to the target of `[incidents] to`, and to the log; by default none. A
    cap that is used up is told always.
    """


class ProviderConfig(Table):
    """One model and the way to it."""

    kind: Annotated[str, BeforeValidator(_check_kind)] = Field(examples=list(PROVIDER_KINDS))
    """Which family of providers: openai, claude, minimax, open_source, command, offline, scripted,
    one that a package brings (entry point `agentd.providers`), or a class of yours as
    "module:Class".
    """
    model: Name | None = None
    """The model's name, as its vendor writes it."""
    base_url: Annotated[str, AfterValidator(_check_address)] | None = None
    """Another server that speaks the same language."""
    api: Literal["responses", "chat"] | None = None
    """Kind openai: which of its two interfaces; by default Responses on its vendor's own host, else
    Chat.
    """
    region: Literal["cn", "intl"] | None = None
    """Kind minimax: which of its two sites holds the account."""
    api_key: SecretStr | None = Field(default=None, min_length=1)
    """The key itself, if this file is yours alone (0600)."""
    api_key_file: Name | None = None
    """A file that holds the key (yours, 0600)."""
    api_key_env: Name | None = None
    """An environment variable that holds the key."""
    timeout: PositiveDuration = timedelta(minutes=5)
    """How long one answer may take; one that is streamed: until it begins."""
    stall: PositiveDuration = timedelta(minutes=1)
    """How long a streamed answer may stand still."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """How many runs and requests at a time; no limit by default."""
    capabilities: JsonTable = Field(default_factory=dict)
    """Corrections to what we know of the model."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sent only where the model takes it."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer, in tokens."""
    max_answer_mb: int = Field(default=16, ge=1, le=1000)
    """Megabytes that are read of one answer, unpacked (of a stream four times as many); a larger
    one fails for good.
    """
    command: Items[str] = ()
    """Kind command: a program and its words, which takes the prompt on standard input and answers
    on standard output, such as ["llm", "-m", "{model}"]; it runs with your rights, outside of the
    sandbox.
    """
    env: dict[str, str] = Field(default_factory=dict)
    """Kind command: more of its environment than PATH, HOME and the language."""
    pass_env: Items[Name] = ()
    """Kind command: variables of agentd's own environment that it gets too, such as a key."""
    price: PriceConfig | None = None
    """What the model costs, where that is not known or you pay another price; 0 for one of your
    own. Another model that a routine names costs so only if its own price is not known.
    """
    replies: Items[str | JsonTable] = ()
    """Kind scripted: what it answers, in order: texts, or like
    `{ text = "", tool_calls = [{ name = "shell", arguments = { command = "uptime" } }] }`.
    """
    options: JsonTable = Field(default_factory=dict)
    """A kind that is not ours: what else its class takes."""

    def settings(self) -> dict[str, Any]:
        """Return the settings for `create_provider`, which gets kind and key as other arguments."""
        other_keys = {"kind", "api_key", "api_key_file", "api_key_env", "price", "env", "pass_env"}
        # not model_dump: to build its serializer takes longer than all else that makes a provider
        return {
            **{name: getattr(self, name) for name in self.model_fields_set - other_keys},
            "timeout": self.timeout.total_seconds(),
            "stall": self.stall.total_seconds(),
        }

    def program_environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return all variables of the program of kind command; `env` are those of agentd."""
        passed_variables = {
            name: env[name] for name in (*PROGRAM_VARIABLES, *self.pass_env) if name in env
        }
        return passed_variables | self.env

    def secret(
        self, name: str, *, env: Mapping[str, str], folder: Path = Path(), file: str = "config.toml"
    ) -> SecretStr | None:
        """Return the key of the provider called `name`, None if it needs none; ConfigError if it is
        missing.

        The first of these that is set wins: a credential of systemd, `api_key_file`, `api_key_env`,
        `api_key`.
        """
        key = f"providers.{name}"
        if (credentials := env.get("CREDENTIALS_DIRECTORY")) and (
            path := Path(credentials) / name
        ).is_file():
            return read_secret(path, file, key)
        if self.api_key_file:
            path = folder / Path(self.api_key_file).expanduser()
            refuse_if_shared(path, file, f"{key}.api_key_file")
            return read_secret(path, file, f"{key}.api_key_file")
        if self.api_key_env and (value := env.get(self.api_key_env, "").strip()):
            return SecretStr(value)
        if self.api_key is not None:
            return self.api_key
        if self.api_key_env:
            # what is no name of a variable may be the key itself, which must not be shown
            is_name = re.fullmatch(r"[A-Z][A-Z0-9_]*", self.api_key_env)
            variable = self.api_key_env if is_name else "it names"
            raise ConfigError(
                Fault(
                    file=file,
                    key=f"{key}.api_key_env",
                    found="",
                    problem=f"the environment variable {variable} is not set",
                    hint="export it where agentd starts",
                )
            )
        if self.kind not in _KINDS_WITH_KEY or self.base_url:
            return None
        usual_variable = _USUAL_VARIABLE[self.kind]
        hint = 'add api_key_file = "…" (a file of yours with mode 0600)'
        hint += f', or api_key_env = "{usual_variable}"' + (
            " (it is set)" if env.get(usual_variable) else ""
        )
        hint += f", or with systemd LoadCredential={name}:…"
        raise ConfigError(Fault(file=file, key=key, found="", problem="has no API key", hint=hint))


# Targets that every config has, without a table of [targets].
BUILT_IN_TARGETS = ("file", "log", "desktop")
# How the address of a mail target begins. That of the program `sendmail` holds no password.
SENDMAIL_SCHEME = "sendmail://"
MAIL_SCHEMES = ("mailto://", "mailtos://", SENDMAIL_SCHEME)
# Kinds whose address is that of a web server, and kinds whose address may hold a password.
KINDS_WITH_WEB_ADDRESS = ("webhook", "ping")
KINDS_WITH_PASSWORD = ("mail", "apprise")
# Keys of [targets.NAME] that belong to some kinds only.
KINDS_BY_KEY = {
    "url": ("mail", "apprise", "webhook", "ping"),
    "url_file": ("mail", "apprise", "webhook", "ping"),
    "url_env": ("mail", "apprise", "webhook", "ping"),
    "secret_file": ("webhook",),
    "secret_env": ("webhook",),
    "limit": ("webhook",),
    "timeout": ("webhook",),
    "path": ("file",),
}

# Whether what is sent to a target of this kind reaches a person by itself, as an alert has to.
CALLS_A_PERSON = {
    "mail": True,
    "apprise": True,
    "webhook": True,
    "desktop": True,
    "ping": False,
    "file": False,
    "log": False,
}


class TargetConfig(Table):
    """One place that reports go to by its name: `to = "mail"` in a routine."""

    kind: Literal["mail", "apprise", "webhook", "ping", "desktop", "file", "log"]
    """How it is reached."""
    url: SecretStr | None = Field(default=None, min_length=1)
    """Kinds mail, apprise, webhook, ping: its address; of mail and apprise only if this file is
    yours alone (0600), unless it begins with sendmail://.
    """
    url_file: Name | None = None
    """A file that holds the address (yours, 0600)."""
    url_env: Name | None = None
    """An environment variable that holds the address."""
    secret_file: Name | None = None
    """Kind webhook: a file (yours, 0600) with the secret that signs, as whsec_… of Standard
    Webhooks.
    """
    secret_env: Name | None = None
    """Kind webhook: an environment variable that holds that secret."""
    path: Name | None = None
    """Kind file: where, for routines that name no path of their own."""
    limit: int | None = Field(default=None, ge=1000)
    """Kind webhook: how many bytes one message may have; a longer report comes in parts."""
    timeout: PositiveDuration = timedelta(seconds=30)
    """Kind webhook: how long it may take to answer."""


class ChatConfig(Table):
    """A chat in which people read reports, answer them and approve calls; also a target by its
    name. A new one, and a change of `kind`, `token_file` or `base_url`, takes a restart.
    """

    kind: Literal["telegram"]
    """Which service."""
    token_file: Name
    """A file (yours, 0600) with the token of the bot."""
    allow: Items[int | Name]
    """The ids of the people who may write to it, and of groups in which they may; nobody else gets
    an answer.
    """
    to: int | Name | None = None
    """Which of these gets reports; by default the first."""
    base_url: Annotated[str, AfterValidator(_check_address)] = "https://api.telegram.org"
    """The server of the Bot API."""

    @property
    def report_conversation(self) -> str:
        """The conversation that reports go to."""
        return str(self.to if self.to is not None else self.allow[0])

    @property
    def allowed_ids(self) -> frozenset[str]:
        """The ids of `allow`, as adapters write them."""
        return frozenset(map(str, self.allow))


class DigestConfig(Table):
    """What happened, in a line, by day or by week."""

    every: Literal["day", "week"] | None = None
    """How often; by default never."""
    at: Annotated[str, AfterValidator(_check_time)] = "08:00"
    """When, in the zone of `timezone`."""
    day: Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"] = "mon"
    """On which day, if by week."""
    to: Items[Name] = ("log",)
    """Targets that get it."""


class IncidentsConfig(Table):
    """How often people hear of the same trouble."""

    remind: PositiveDuration = timedelta(hours=24)
    """How long after an alert the next one of the same cause may come, while it lasts and nobody
    said `ack`.
    """
    cool_down: PositiveDuration = timedelta(hours=1)
    """A failure so soon after its recovery is the same incident: no new alert, no second word of
    recovery.
    """
    to: Items[Name] = ()
    """Targets, in order, for alerts of routines that name none, and instead of a target that takes
    nothing. All of them are told of each run that waits for an approval, beside the routine's own.
    """


class DaemonConfig(Table):
    """How many runs the daemon executes at a time, and how long it waits for them when it stops."""

    grace: PositiveDuration = timedelta(seconds=20)
    """How long runs may go on after SIGTERM before they are suspended, to be resumed at the next
    start. For more than 40s, raise `TimeoutStopSec=60` in the systemd unit, too.
    """
    max_concurrent: int = Field(default=4, ge=1)
    """How many runs at a time; the others wait.

    Runs that ask no model have as many places of their own.
    """


def _uid_of(value: Any) -> Any:
    """Return the uid of a user who is named, or given as a number."""
    if isinstance(value, str):
        try:
            return int(value) if value.isdecimal() else pwd.getpwnam(value).pw_uid
        except KeyError:
            raise InvalidValue("there is no such user") from None
    return value


def _gid_of(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return int(value) if value.isdecimal() else grp.getgrnam(value).gr_gid
        except KeyError:
            raise InvalidValue(
                "there is no such group", hint=f"groupadd --system {value}"
            ) from None
    return value


User: TypeAlias = Annotated[int, BeforeValidator(_uid_of), Field(ge=0)]
Group: TypeAlias = Annotated[int, BeforeValidator(_gid_of), Field(ge=0)]


class McpConfig(Table):
    """One MCP server, whose tools are called `NAME__tool`: a command that is started, or an
    address. A new one, and a change of any key but `machines`, takes a restart.
    """

    command: Items[Name] = ()
    """The program and its words; it runs with your rights, with PATH and HOME and what is given
    here.
    """
    env: dict[str, str] = Field(default_factory=dict)
    """More of its environment."""
    pass_env: Items[Name] = ()
    """Variables of agentd's own environment that it gets too, such as a key."""
    cwd: Name | None = None
    """The folder it runs in; by default that of agentd."""
    url: Annotated[str, AfterValidator(_check_address)] | None = None
    """Where it answers by streamable HTTP."""
    api_key_file: Name | None = None
    """With `url`: a file (yours, 0600) with the token that is sent along."""
    api_key_env: Name | None = None
    """Likewise an environment variable."""
    timeout: PositiveDuration = timedelta(minutes=1)
    """For one call."""
    trusted: bool = False
    """Whether its descriptions of its tools are taken as your own words, as long as they are the
    accepted ones (`agentctl mcp`). Of a server that is not trusted they are strangers' words: a run
    that is offered one of its tools is tainted from its start. What its tools answer is strangers'
    words in any case.
    """
    machines: Items[Name] = ()
    """With workers: the hosts that have it, as globs; only they execute runs of routines that name
    its tools.
    """


class ToolsConfig(Table):
    """Tools of your own: Python functions, which run inside agentd with all its rights."""

    files: Items[Name] = ()
    """Files of the folder `tools` beside this file; the public functions of each are tools."""
    packages: Items[Name] = ()
    """Entry points of the group agentd.tools, by name, of packages that are installed."""
    machines: dict[str, Items[Name]] = Field(default_factory=dict)
    """With workers: hosts that have what a file or package needs, as globs; only they execute runs
    that name its tools.
    """


class SearchConfig(Table):
    """What the tool web_search asks. Takes a restart."""

    kind: Literal["tavily", "searxng", "wikipedia"] | None = None
    """Tavily, a SearXNG of your own, or Wikipedia; without it there is no such tool."""
    base_url: Annotated[str, AfterValidator(_check_address)] | None = None
    """Kind searxng: where it answers; it has to have the format json enabled. Kind wikipedia: which
    one, by default https://en.wikipedia.org.
    """
    contact: Annotated[str, AfterValidator(_check_contact)] | None = None
    """Kind wikipedia: your mail address, or that of a page about you. Its operators ask programs to
    say how they are reached.
    """
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
    timeout: PositiveDuration = timedelta(minutes=10)
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
    """Whose members reach the control socket: it becomes 0660 and its folder 0710.

    Takes a restart.
    """
    operators: Items[User] = ()
    """Users who may do everything with agentctl that its owner may."""
    readers: Items[User] = ()
    """Users who may look and change nothing."""


class UiConfig(Table):
    """The page that `agentctl ui` serves."""

    edit: bool = False
    """Whether it may edit and create routines (PUT /v1/routines/NAME/source): whoever has its link
    can then give an agent whatever the policy allows."""


class ListenConfig(Table):
    """What may be reached over the network. Control never is. Takes a restart."""

    address: Annotated[str, AfterValidator(_check_listen_address)] | None = None
    """Where to listen, such as "127.0.0.1:9464"; by default nowhere."""
    metrics: bool = True
    """Answer /metrics there, for Prometheus."""
    hooks: bool = False
    """Take webhooks there, at /v1/hooks/NAME; only signed ones, so [hooks] secret_file must be set.
    """


class SenderConfig(Table):
    """Who signs webhooks in a way of their own: `sender = "NAME"` in a routine."""

    kind: Literal["standard", "github", "gitlab", "stripe"]
    """How they sign: as Standard Webhooks says, or by X-Hub-Signature-256, X-Gitlab-Token or
    Stripe-Signature.
    """
    secret_file: Name
    """A file (yours, 0600) with the secret that is shared with them."""
    tolerance: PositiveDuration = timedelta(minutes=5)
    """Kind stripe: how far the time of a signature may be from now."""


class HooksConfig(Table):
    """How webhooks prove who sent them, and who may bring them."""

    group: Group | None = None
    """Whose members reach the webhook socket, such as that of a web server. Takes a restart."""

    secret_file: Name | None = None
    """A file (yours, 0600) with the secret shared with the senders, as whsec_… of Standard
    Webhooks; then every request must be signed.
    """
    senders: dict[str, SenderConfig] = Field(default_factory=dict)


class LogConfig(Table):
    """What the daemon writes into its log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on."""
    max_mb: int = Field(default=10, ge=1)
    """At how many megabytes the file is set aside and a new one begun."""
    keep: int = Field(default=5, ge=1)
    """How many of those set aside stay."""
    format: Literal["auto", "short", "full"] = "auto"
    """What stderr shows: one short line per event that concerns a person, or all events with their
    fields; by default short at a terminal and full elsewhere. The file always has them all.
    """


class OtelConfig(Table):
    """Traces of runs for OpenTelemetry, over HTTP; needs the extra otel."""

    endpoint: Annotated[str, Field(pattern=r"^https?://.+")] | None = None
    """Where they go, like "http://127.0.0.1:4318"; by default where $OTEL_EXPORTER_OTLP_ENDPOINT
    says, else nowhere.
    """
    content: bool = False
    """Whether prompts, answers, arguments and results go along."""


def check_postgres_address(value: Any) -> Any:
    """Return the value unless it is a text that is no address of PostgreSQL."""
    if isinstance(value, str) and not re.match(r"postgres(ql)?://\S", value):
        raise InvalidValue(
            "expected the address of a PostgreSQL database, like "
            '"postgresql://agentd@db.example/agentd"'
        )
    return value


class StoreConfig(Table):
    """Where the journal and memory are: by default in agentd.db in the state folder.

    Takes a restart.
    """

    url: Annotated[SecretStr, BeforeValidator(check_postgres_address)] | None = None
    """A PostgreSQL database (13 or later), which several daemons may share; as libpq reads it.

    With a password in it only if this file is yours alone (0600); libpq finds one in ~/.pgpass and
    PGPASSWORD too.
    """
    url_file: Name | None = None
    """A file that holds the URL (yours, 0600)."""
    url_env: Name | None = None
    """An environment variable that holds the URL."""
    wait: Duration = timedelta(seconds=15)
    """How long a start waits for a server that is away; then it ends with exit code 75, and a
    service manager starts agentd again.
    """


class ExecutorConfig(Table):
    """Who executes the runs, where daemons share a database. Takes a restart."""

    kind: Literal["local", "procrastinate"] = "local"
    """local: whoever starts a run executes it; procrastinate: any daemon or worker (`agentd
    worker`) on the database that `[store]` names.
    """
    here: bool = True
    """Whether this daemon executes runs itself; false: it leaves them to others."""
    lease: PositiveDuration = timedelta(seconds=60)
    """After how long a process that is not heard of is taken for dead, and its runs are taken over.
    """


class KeepConfig(Table):
    """How long history stays; a routine's last ten runs, and its last that succeeded, always do."""

    steps: PositiveDuration | None = timedelta(days=180)
    """How long what runs asked, did and were told stays in full."""
    runs: PositiveDuration | None = None
    """How long runs stay at all, with their reports and deliveries; by default for ever."""
    reports: PositiveDuration | None = None
    """How long report files of the workspace stay whose path has {slot} or {run}; by default for
    ever.
    """
    max_mb: int | None = Field(default=None, ge=50)
    """How big the database may grow: beyond that the oldest go first, whatever their age."""


class MemoryConfig(Table):
    """What is remembered of runs, for how long, and what helps to find it again."""

    keep_tools: PositiveDuration = timedelta(days=90)
    """How long calls and outputs of tools stay whole; then their beginnings stay (the journal has
    the rest).
    """
    keep_reasoning: PositiveDuration = timedelta(days=30)
    """Likewise for what a model thought."""
    keep_runs: PositiveDuration | None = None
    """How long archived runs stay at all; by default for ever."""
    keep_daily: PositiveDuration | None = None
    """How long items of the category daily stay after their last change; by default for ever.

    Pinned ones stay.
    """
    keep_conversation: PositiveDuration | None = None
    """Likewise for items of the category conversation: one line per archived run."""
    summarise: bool = False
    """Ask the routine's model, once per archived run, for a summary and the facts in it; costs
    tokens of its budget.
    """
    mirror: bool = False
    """Keep `memory/MEMORY.md` in the state folder: pinned and core items, to be read and edited.

    Takes a restart.
    """
    embedder: Literal["none", "openai_compatible", "onnx"] = "none"
    """What finds texts by their meaning besides their words.

    Takes a restart, like the keys below.
    """
    model: Name | None = None
    """Embedder openai_compatible: the model's name."""
    base_url: Annotated[str, AfterValidator(_check_address)] | None = None
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
