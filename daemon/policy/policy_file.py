"""The keys of policy.toml as models, the rules made of them, and the checks between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from daemon.definitions.config.tables import is_settable
from daemon.definitions.reading import Conflict, CrossFieldCheck
from daemon.definitions.values import InvalidValue, Items, Table
from daemon.definitions.words import did_you_mean
from daemon.models import Effect
from daemon.policy.globs import BadPattern, Glob
from daemon.policy.lexer import CallRejected
from daemon.policy.profiles import read_only_programs
from daemon.policy.tables import load_table, word_list
from daemon.policy.web import METHODS, SAFE_METHODS, HostPattern, Method, parse_target

Autonomy: TypeAlias = Literal["readonly", "supervised", "full"]
OnAsk: TypeAlias = Literal["park", "deny"]
AUTONOMY_LEVELS: tuple[Autonomy, ...] = ("readonly", "supervised", "full")  # strictest first
SECRET_FILES_LABEL = "[paths] secret"  # noqa: S105 - the name of a key
# Tools that change agentd itself: no pattern grants them, and no default but deny holds for them.
NAMED_ONLY_TOOLS = frozenset({"routine", "config"})


@dataclass(frozen=True, slots=True)
class Tool:
    """What a call of a tool acts upon, as far as rules can tell."""

    acts_on: Literal[
        "command", "git", "script", "action", "reading", "writing", "web", "nothing"
    ] = "nothing"
    argument: str = ""
    """The name of the argument that holds what the tool acts upon."""
    default: str = ""
    """What the tool acts upon when that argument is left out."""
    changes: bool = False
    """Whether a call may change something; whether a command or a request does depends on it."""
    sends: bool = False
    """Whether the arguments of a call may leave the machine."""
    looks: bool = False
    """Whether a call brings something that an agent cannot know by itself."""
    private: bool = False
    """Whether a call brings private data: files, repositories, memory, facts of this machine."""
    actions: Mapping[str, bool] = field(default_factory=dict)
    """The actions that the tool knows, each with whether it only reads."""
    object: str = ""
    """The name of the argument that holds what an action is done to."""


# Every tool that ships with us; those of users and servers are handed to Policy.load by name.
TOOLS: Mapping[str, Tool] = {
    "shell": Tool("command", "command", changes=True, looks=True, private=True),
    "file_read": Tool("reading", "path", looks=True, private=True),
    "file_list": Tool("reading", "path", default=".", looks=True, private=True),
    "file_write": Tool("writing", "path", changes=True),
    "git": Tool("git", "command", looks=True, private=True),
    "http_request": Tool("web", "url", changes=True, sends=True, looks=True),
    "script": Tool("script", "name", changes=True, private=True),
    "memory_store": Tool(changes=True),
    "memory_recall": Tool(private=True),
    "memory_expand": Tool(private=True),
    "memory_forget": Tool(changes=True),
    "sysinfo": Tool(looks=True, private=True),
    "self_info": Tool(),
    "finish": Tool(),
    "report_items": Tool(),
    "skill": Tool(),
    "web_search": Tool(sends=True, looks=True),
    "routine": Tool(
        "action",
        "action",
        changes=True,
        object="name",
        actions={
            "list": True,
            "show": True,
            **dict.fromkeys(("create", "remove", "pause", "resume", "run"), False),
        },
    ),
    "config": Tool(
        "action",
        "action",
        changes=True,
        object="key",
        actions={"show": True, "set": False, "reset": False},
    ),
    "subagent": Tool(),  # what it does is judged call by call, by the rules of whom it works for
}
# What a tool that is not listed above, of a user or an MCP server, has to be expected to do.
UNKNOWN_TOOL = Tool(changes=True, sends=True, private=True)
# Tools that do nothing but say how the run ends and what it found: no rule is needed for them.
RUN_END_TOOLS = frozenset({"finish", "report_items"})


def _check_pattern(pattern: str) -> str:
    try:
        Glob(pattern)
    except BadPattern as error:
        raise InvalidValue(str(error), hint='like "reports/**", "*.pem" or "/var/log/**"') from None
    return pattern


def _check_absolute(path: str) -> str:
    if not path.startswith(("/", "~/")):
        raise InvalidValue(
            "must begin with / or ~/", hint="what lies in the workspace needs no naming here"
        )
    return path


def _check_host(pattern: str) -> str:
    try:
        HostPattern.of(pattern)
    except CallRejected as error:
        raise InvalidValue(error.problem, hint=error.alternative) from None
    return pattern


def _check_url(url: str) -> str:
    try:
        return parse_target(url).url
    except CallRejected as error:
        raise InvalidValue(error.problem, hint=error.alternative) from None


def _check_has_offset(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidValue("has no offset from UTC", hint="like 2026-12-01T09:00:00+01:00")
    return moment


def _check_network(network: str) -> str:
    try:
        ip_network(network)
    except ValueError as error:
        raise InvalidValue(str(error), hint='like "192.168.1.0/24" or "fd00::1"') from None
    return network


Pattern: TypeAlias = Annotated[str, AfterValidator(_check_pattern)]
Token: TypeAlias = Annotated[str, Field(min_length=1)]


class RuleTable(Table):
    """One rule; of all that cover a call the strictest decides."""

    tool: Annotated[str, Field(min_length=1)]
    """Which tool, by name or with * (`files__*`)."""
    effect: Literal["allow", "ask", "deny"]
    """What becomes of a call that it covers; ask is denied where nobody can be asked."""
    argv: Items[Token | Annotated[Items[Token], Field(min_length=1)]] = ()
    """How the command begins, word by word; a list stands for any of its words.

    Tool shell: the program first; git: the sub-command; script: its name; routine and config: the
    action, then the routine or the key.
    """
    profile: Literal["read-only"] | None = None
    """Tool shell: only with options known to change nothing, and only on files that tools may read.
    """
    paths: Items[Pattern] = ()
    """Which files: relative to the workspace in the manner of .gitignore, or absolute. A rule
    that denies or asks covers what lies in a folder that is named whole (`private`); one that
    allows covers that by `private/**`.
    """
    hosts: Items[Annotated[str, AfterValidator(_check_host)]] = ()
    """Tool http_request: which hosts, like `api.example.org`, `*.example.org`, `host:8080`, or `*`
    for all; without a port: 80 and 443, in a rule that denies every port.
    """
    urls: Items[Annotated[str, AfterValidator(_check_url)]] = ()
    """Tool http_request: only these very addresses, each whole with its query."""
    safe: bool = False
    """Tool http_request with `urls`: a run may read each of them by a plain GET (neither headers
    nor a body) also after it has read what strangers may have written, once per run: later calls
    get the first answer. Whether and in which order it reads them is all that it can tell their
    servers.
    """
    methods: Items[Method] = ()
    """Tool http_request: which methods; left out, a rule that allows means GET, HEAD and OPTIONS,
    others mean all.
    """
    networks: Items[Annotated[str, AfterValidator(_check_network)]] = ()
    """Tool http_request: addresses that are not public and that these hosts may have, like
    `192.168.1.0/24`.
    """
    routines: Items[Token] = ()
    """Only for these routines, by name or with *."""
    tainted: Literal["ask", "deny"] | None = None
    """What becomes of a call that it allows once the run has read what strangers may have written:
    even of one that only looks, and whatever `tainted_tools` says.
    """
    reason: str = ""
    """Why; the model reads it when it is refused."""
    match: Items[str] = ()
    """Commands or paths that it must cover; checked whenever this file is loaded."""
    not_match: Items[str] = ()
    """Commands or paths that it must not cover; checked likewise."""


class PolicyLimits(Table):
    """How much one run may do."""

    tool_calls: int = Field(default=40, ge=0)
    """How many calls."""
    shell_seconds: int = Field(default=120, ge=1, le=3600)
    """How long the programs of a run may take together."""
    output_bytes: int = Field(default=200_000, ge=1000, le=10_000_000)
    """How much of a command's output is kept; the middle of a longer one is cut out. A model reads
    at most 99,000 bytes of it.
    """
    memory_mb: int = Field(default=2048, ge=64)
    """How much memory one process of a command may use; where control groups count it, all
    programs of a call together.
    """
    processes: int = Field(default=64, ge=4)
    """How many processes a command may start, about."""
    file_mb: int = Field(default=1024, ge=1)
    """How long one file that a command writes may get."""
    routines: int = Field(default=10, ge=0)
    """How many routines one routine may keep that it has made itself, where a rule lets it make
    any.
    """

    def within(self, routine_limits: RoutineLimits) -> PolicyLimits:
        """Return these limits, lowered to those of a routine."""
        new_limits = {
            key: min(getattr(self, key), value)
            for key, value in routine_limits
            if value is not None
        }
        return self.model_copy(update=new_limits)


class RoutineLimits(Table):
    """Lower limits for the runs of one routine."""

    tool_calls: int | None = Field(default=None, ge=0)
    """How many calls."""
    shell_seconds: int | None = Field(default=None, ge=1)
    """How long the programs of a run may take together."""
    output_bytes: int | None = Field(default=None, ge=1000)
    """How much of a command's output is kept."""
    routines: int | None = Field(default=None, ge=0)
    """How many routines of its own making it may keep."""


class RoutineTable(Table):
    """What holds for the runs of one routine on top of the rules. It allows nothing that no rule
    allows. Three of its keys loosen something else: `tainted_tools`, `injection = "review"`, and
    `on_ask = "park"` where the file says "deny".
    """

    tools: Items[Token] | None = None
    """Only these tools, by name or with *; `finish` and `report_items` always."""
    commands: Items[Token] | None = None
    """Only these commands of the tools shell and git, by their first words: `df`, `git log`."""
    hosts: Items[Annotated[str, AfterValidator(_check_host)]] | None = None
    """Only these hosts of http_request."""
    write: Items[Pattern] | None = None
    """Only these files may be written."""
    limits: RoutineLimits = RoutineLimits()
    autonomy: Autonomy | None = None
    """A stricter level than that of the file."""
    on_ask: OnAsk | None = None
    """What becomes of a call that must be approved; left out: as in the file."""
    tainted_tools: Items[Token] = ()
    """Tools, by name or with *, that keep their rights when the run has read what strangers may
    have written.
    """
    injection: Literal["block", "review"] = "block"
    """What becomes of a result that gives orders: block = the model never sees it; review = it
    does, and the run is tainted; for routines that read about such attacks.
    """
    mode: Literal["enforce", "observe"] = "enforce"
    """observe = for a trial: nobody is asked and no run waits; what would be asked about is denied
    as well, and recorded, so that `agentctl policy suggest` can write rules for it.
    """
    observe_until: Annotated[datetime, AfterValidator(_check_has_offset)] | None = None
    """When the trial ends, like `2026-12-01T09:00:00+01:00`: from then on people are asked again.
    Left out: when `mode` is taken out.
    """


class PathsTable(Table):
    """What tools can reach besides the workspace."""

    read: Items[Annotated[str, AfterValidator(_check_absolute)]] = ()
    """Folders and files that may be read; absolute, or from the home folder with ~/."""
    secret: Literal["deny", "rules"] = "rules"  # noqa: S105 - what becomes of them
    """What becomes of files whose names are those of keys, passwords and tokens: deny = no tool
    reads or writes them, in the workspace or elsewhere; rules = what the rules say of them. The
    names are listed in `daemon/policy/tables/secret_files.toml`.
    """


class InjectionTable(Table):
    """How results from outside are checked for orders to the agent."""

    detector: Annotated[str, Field(pattern=r"^$|^[\w.]+:[\w.]+$")] = ""
    """A check of your own, asked besides ours: `module:function`, given the tool and its result."""
    trust: Items[Pattern] = ()
    """Files that may speak of such orders: what would be blocked in them is reviewed."""


class PolicyFile(Table):
    """Everything policy.toml may say."""

    version: Literal[1]
    """Of this language."""
    default: Literal["deny", "ask"] = "deny"
    """What becomes of a call that no rule covers."""
    autonomy: Autonomy = "full"
    """How much of what the rules allow happens unseen: readonly = nothing that changes anything;
    supervised = what changes something is asked about first; full = all of it. Never more than the
    rules.
    """
    on_ask: OnAsk = "park"
    """What becomes of a call that must be approved: park = the run waits for a person; deny = it
    goes on without.
    """
    sandbox: Literal["require", "prefer", "off"] = "prefer"
    """Programs run in the best sandbox that this machine has.

    Where it has none: require = no program runs; prefer = only those that fit a profile. off = none
    is used, and what rules allow runs. No script ever runs without one.
    """
    limits: PolicyLimits = PolicyLimits()
    injection: InjectionTable = InjectionTable()
    paths: PathsTable = PathsTable()
    rule: Items[RuleTable] = ()
    routine: dict[str, RoutineTable] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, its patterns parsed."""

    number: int
    """The position of the rule in the file, from 1."""
    tool: str
    effect: Effect
    argv: tuple[frozenset[str], ...] = ()
    profile: bool = False
    paths: tuple[Glob, ...] = ()
    hosts: tuple[HostPattern, ...] = ()
    urls: frozenset[str] = frozenset()
    safe: bool = False
    methods: frozenset[str] = METHODS
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    routines: tuple[str, ...] = ()
    reason: str = ""
    label: str = ""
    tainted: Effect | None = None

    def effect_on(self, *, tainted: bool) -> Effect:
        """Return the effect of the rule in a run that is tainted, or is not."""
        if tainted and self.tainted:
            return max(self.effect, self.tainted, key=strictness)
        return self.effect

    @classmethod
    def of_secret_files(cls, number: int) -> Rule:
        """Return the rule that `[paths] secret = "deny"` stands for: the last one of the file."""
        patterns = [pattern for group in load_table("secret_files").values() for pattern in group]
        return cls(
            number,
            "*",
            Effect.DENY,
            paths=tuple(Glob(pattern, ignore_case=True) for pattern in patterns),
            reason="files of such names hold keys, passwords or tokens",
            label=SECRET_FILES_LABEL,
        )

    @classmethod
    def of(cls, number: int, table: RuleTable) -> Rule:
        """Return the rule of a `[[rule]]` table, whose patterns were checked when it was read."""
        effect = Effect(table.effect)
        if table.safe:
            methods = frozenset({"GET"})
        else:
            default_methods = SAFE_METHODS if effect is Effect.ALLOW else METHODS
            methods = frozenset(table.methods) or default_methods
        # what is forbidden as private is forbidden as PRIVATE, and so is what lies in it
        forbids = effect is not Effect.ALLOW
        return cls(
            number=number,
            tool=table.tool,
            effect=effect,
            argv=tuple(
                frozenset([token] if isinstance(token, str) else token) for token in table.argv
            ),
            profile=table.profile is not None,
            paths=tuple(
                Glob(
                    pattern,
                    ignore_case=forbids,
                    with_content=forbids and not {"*", "?"} & {*pattern.rpartition("/")[2]},
                )
                for pattern in table.paths
            ),
            hosts=tuple(
                HostPattern.of(host, any_port=effect is Effect.DENY) for host in table.hosts
            ),
            urls=frozenset(table.urls),
            safe=table.safe,
            methods=methods,
            networks=tuple(map(ip_network, table.networks)),
            routines=table.routines,
            reason=table.reason,
            label=f"rule {number} ({_describe_subject(table)})",
            tainted=Effect(table.tainted) if table.tainted else None,
        )

    def is_for(self, tool: str, routine: str) -> bool:
        """Tell whether the rule covers this tool in this routine at all.

        `maker/name` is a routine that an agent made: a rule that allows must name both, and a rule
        that forbids one of them forbids the other.
        """
        if tool != self.tool and not ("*" in self.tool and self._matches_tool(tool)):
            return False
        if not self.routines:
            return True
        matches = [
            any(fnmatchcase(name, pattern) for pattern in self.routines)
            for name in routine.split("/")
        ]
        return all(matches) if self.effect is Effect.ALLOW else any(matches)

    def _matches_tool(self, tool: str) -> bool:
        """Tell whether the rule's pattern of tools stands for a tool."""
        return fnmatchcase(tool, self.tool) and (
            tool not in NAMED_ONLY_TOOLS or self.effect is Effect.DENY
        )

    @property
    def argv_text(self) -> str:
        """The words of `argv`, with the choices of each."""
        return " ".join("|".join(sorted(words)) for words in self.argv)

    def matches_words(self, words: Sequence[str]) -> bool:
        """Tell whether a command begins with the words of the rule."""
        if not self.argv:
            return True
        return len(self.argv) <= len(words) and all(
            word in tokens for word, tokens in zip(words, self.argv, strict=False)
        )

    def covers(self, other_rule: Rule) -> bool:
        """Tell whether this rule covers everything that another rule covers.

        True is always right; False may be wrong.
        """
        if self.tool != other_rule.tool:
            is_wider_pattern = self.tool == "*" or "*" not in other_rule.tool
            if not (is_wider_pattern and self._matches_tool(other_rule.tool)):
                return False
        if self.routines and not (
            other_rule.routines and set(other_rule.routines) <= set(self.routines)
        ):
            return False
        if len(self.argv) > len(other_rule.argv) or not all(
            other_words <= own_words
            for own_words, other_words in zip(self.argv, other_rule.argv, strict=False)
        ):
            return False
        if self.profile and not other_rule.profile:
            return False
        if self.paths and not _covers_all(other_rule.paths, self.paths):
            return False
        if not other_rule.methods <= self.methods:
            return False
        if self.safe and not other_rule.safe:
            return False
        # unless the request is denied, the networks of all rules that cover it count
        if self.effect is not Effect.DENY and not {*other_rule.networks} <= {*self.networks}:
            return False
        if self.urls and not (other_rule.urls and other_rule.urls <= self.urls):
            return False
        return not self.hosts or (
            bool(other_rule.hosts) and all(map(self._matches_all_hosts_of, other_rule.hosts))
        )

    def _matches_all_hosts_of(self, host: HostPattern) -> bool:
        return any(host.is_within(pattern) for pattern in self.hosts)


def _describe_subject(table: RuleTable) -> str:
    words = [
        token if isinstance(token, str) else token[0] + ("…" if len(token) > 1 else "")
        for token in table.argv
    ]
    patterns = table.paths or table.hosts or table.urls
    subject = " ".join(words) or ", ".join(patterns[:2]) + ("…" if len(patterns) > 2 else "")
    return f"{table.tool}: {subject}" if subject else table.tool


def _covers_all(globs: tuple[Glob, ...], wider_globs: tuple[Glob, ...]) -> bool:
    """Tell whether each of the globs has a wider one; False without globs."""
    return bool(globs) and all(
        any(_is_wider(wider_glob.pattern, glob.pattern) for wider_glob in wider_globs)
        for glob in globs
    )


def _is_wider(wider: str, narrower: str) -> bool:
    return wider in (narrower, "**") or (wider.endswith("/**") and narrower.startswith(wider[:-2]))


# --- checks of several keys


def file_checks(tool_names: frozenset[str]) -> tuple[CrossFieldCheck[PolicyFile], ...]:
    """Return the checks across the keys of a policy file; `tool_names` are the tools there are."""

    def tools_exist(file: PolicyFile) -> Iterator[Conflict]:
        references = [(f"rule[{index}].tool", [rule.tool]) for index, rule in enumerate(file.rule)]
        references += [
            (f"routine.{name}.tools", list(table.tools or ()))
            for name, table in file.routine.items()
        ]
        references += [
            (f"routine.{name}.tainted_tools", list(table.tainted_tools))
            for name, table in file.routine.items()
        ]
        for key, patterns in references:
            for pattern in patterns:
                # the tools of an MCP server are known only once it answers
                if "__" not in pattern and not any(
                    fnmatchcase(tool, pattern) for tool in tool_names
                ):
                    yield Conflict(key, "no such tool", pattern, did_you_mean(pattern, tool_names))

    return (
        CrossFieldCheck(("rule.tool", "routine.*.tools", "routine.*.tainted_tools"), tools_exist),
        CrossFieldCheck(("autonomy", "routine.*.autonomy"), _autonomy_is_narrower),
        CrossFieldCheck(("routine.*.mode", "routine.*.observe_until"), _only_trials_end),
        CrossFieldCheck(
            ("rule.tool", "rule.argv", "rule.profile", "rule.effect", "rule.paths"), _rule_keys_fit
        ),
        CrossFieldCheck(
            (
                "rule.tool",
                "rule.hosts",
                "rule.urls",
                "rule.safe",
                "rule.methods",
                "rule.networks",
                "rule.effect",
                "rule.tainted",
            ),
            _web_keys_fit,
        ),
        CrossFieldCheck(("rule.tool", "rule.argv", "rule.effect"), _actions_exist),
        CrossFieldCheck(
            ("rule.argv", "rule.profile", "rule.effect", "rule.tool"), _programs_are_known
        ),
        CrossFieldCheck(("rule",), _no_rule_is_shadowed, compares="rule"),
    )


def _autonomy_is_narrower(file: PolicyFile) -> Iterator[Conflict]:
    for name, table in file.routine.items():
        if table.autonomy is not None and AUTONOMY_LEVELS.index(
            table.autonomy
        ) > AUTONOMY_LEVELS.index(file.autonomy):
            problem = f'a routine can only be narrower than the file, which says "{file.autonomy}"'
            yield Conflict(f"routine.{name}.autonomy", problem, table.autonomy)


def _only_trials_end(file: PolicyFile) -> Iterator[Conflict]:
    for name, table in file.routine.items():
        if table.observe_until is not None and table.mode != "observe":
            yield Conflict(
                f"routine.{name}.observe_until",
                "ends no trial, as this routine is not observed",
                table.observe_until.isoformat(),
                hint='add mode = "observe", or leave it out',
            )


def _rule_keys_fit(file: PolicyFile) -> Iterator[Conflict]:
    for index, rule in enumerate(file.rule):
        if rule.tainted and strictness(Effect(rule.tainted)) <= strictness(Effect(rule.effect)):
            problem = f'changes nothing beside effect = "{rule.effect}"'
            yield Conflict(f"rule[{index}].tainted", problem, rule.tainted, hint="leave it out")
        key, is_shell = f"rule[{index}]", rule.tool == "shell"
        acts_on = TOOLS.get(rule.tool, Tool()).acts_on
        if rule.argv and acts_on not in ("command", "git", "script", "action"):
            problem = "only rules for the tools shell, git, script, routine and config have argv"
            yield Conflict(f"{key}.argv", problem, list(map(str, rule.argv)))
        if rule.profile and not is_shell:
            yield Conflict(
                f"{key}.profile", "only rules for the tool shell have a profile", rule.profile
            )
        if rule.profile and rule.effect == "deny":
            yield Conflict(
                f"{key}.profile",
                "would deny harmless forms and leave the others",
                rule.profile,
                "leave it out",
            )
        if rule.paths and acts_on in ("nothing", "web", "script") and "*" not in rule.tool:
            yield Conflict(f"{key}.paths", f"{rule.tool} acts on no file", list(rule.paths))
        if rule.effect != "allow" and "." in rule.paths:
            problem = "covers the workspace itself, and nothing in it"
            yield Conflict(f"{key}.paths", problem, ".", 'write "**" for all that is in it')
        if rule.paths and is_shell and rule.effect == "allow" and not rule.profile:
            hint = 'add profile = "read-only"'
            yield Conflict(
                f"{key}.paths",
                "which words of a command are paths is known only with a profile",
                hint=hint,
            )
        if rule.effect == "allow" and rule.tool == "*":
            yield Conflict(
                f"{key}.tool", "would allow every tool there is and will be", "*", "name the tools"
            )
        if rule.effect == "allow" and is_shell and not rule.argv and not rule.profile:
            yield Conflict(
                key,
                "would allow every program",
                hint='add argv = ["PROGRAM"] or profile = "read-only"',
            )
        if (rule.match or rule.not_match) and acts_on == "nothing" and "*" not in rule.tool:
            yield Conflict(
                f"{key}.match", f"{rule.tool} takes no command and no path to give an example of"
            )


def _web_keys_fit(file: PolicyFile) -> Iterator[Conflict]:
    for index, rule in enumerate(file.rule):
        key, is_web = f"rule[{index}]", rule.tool == "http_request"
        for name in ("hosts", "urls", "methods", "networks"):
            if getattr(rule, name) and not is_web:
                problem = f"only rules for the tool http_request have {name}"
                yield Conflict(f"{key}.{name}", problem, list(getattr(rule, name)))
        if rule.safe and not is_web:
            yield Conflict(f"{key}.safe", "only rules for the tool http_request have safe", True)
        elif rule.safe:
            yield from _safe_rule_conflicts(key, rule)
        if is_web and rule.effect != "deny" and not rule.hosts and not rule.urls:
            hint = 'add hosts = ["api.example.org"], or ["*"] if you mean it'
            yield Conflict(key, "would allow every host there is", hint=hint)
        if rule.networks and rule.effect == "deny":
            yield Conflict(
                f"{key}.networks",
                "says what may be reached besides, and this rule forbids",
                hint="leave it out",
            )


def _safe_rule_conflicts(key: str, rule: RuleTable) -> Iterator[Conflict]:
    """Yield the keys that a rule with `safe` cannot have: it allows a plain GET of named
    addresses.
    """
    if rule.effect != "allow":
        yield Conflict(f"{key}.safe", "only a rule that allows can be safe", True)
    if not rule.urls:
        yield Conflict(
            f"{key}.safe",
            "needs urls: the model may choose no part of the address",
            True,
            hint='add urls = ["https://example.org/releases.atom"]',
        )
    if set(rule.methods) - {"GET"}:
        yield Conflict(f"{key}.methods", "a safe rule allows GET only", list(rule.methods))
    if rule.tainted:
        yield Conflict(f"{key}.tainted", "a safe rule holds in tainted runs, too", rule.tainted)


def _actions_exist(file: PolicyFile) -> Iterator[Conflict]:
    for index, rule in enumerate(file.rule):
        tool, key = TOOLS.get(rule.tool, Tool()), f"rule[{index}].argv"
        if tool.acts_on != "action":
            continue
        first, *further_words = (
            (token,) if isinstance(token, str) else token for token in rule.argv or [()]
        )
        for action in first:
            if action not in tool.actions:
                hint = did_you_mean(action, tool.actions) or f"there are {', '.join(tool.actions)}"
                yield Conflict(key, f"the tool {rule.tool} knows no such action", action, hint)
        if rule.tool != "config" or rule.effect == "deny":
            continue
        if not further_words and not (
            first and all(tool.actions.get(action, True) for action in first)
        ):
            hint = 'like argv = ["set", ["agent.language", "digest.at"]], or argv = ["show"]'
            yield Conflict(key, "names no key, so agents might write any", hint=hint)
        for name in further_words[0] if further_words else ():
            if not is_settable(name) and not all(
                tool.actions.get(action, True) for action in first
            ):
                yield Conflict(
                    key,
                    "no agent may write this key",
                    name,
                    hint="docs/routines.md lists those that may be",
                )


def _programs_are_known(file: PolicyFile) -> Iterator[Conflict]:
    for index, rule in enumerate(file.rule):
        if not rule.argv or rule.tool != "shell":
            continue
        first, key = rule.argv[0], f"rule[{index}].argv"
        for program in [first] if isinstance(first, str) else first:
            if "/" in program:
                yield Conflict(
                    key,
                    "programs go by their plain names",
                    program,
                    f'write "{program.rsplit("/", 1)[1]}"',
                )
            elif rule.profile and program not in read_only_programs():
                hint = did_you_mean(program, sorted(read_only_programs()))
                yield Conflict(
                    key, "the profile read-only does not know this program", program, hint
                )
            elif (
                rule.effect == "allow"
                and not rule.profile
                and len(rule.argv) == 1
                and program in word_list("programs", "run_anything")
            ):
                yield Conflict(
                    key,
                    "runs whatever it is told to",
                    program,
                    "name the words that follow it, too",
                )


def _no_rule_is_shadowed(file: PolicyFile) -> Iterator[Conflict]:
    rules = [Rule.of(number, table) for number, table in enumerate(file.rule, 1)]
    for rule in rules:
        for other_rule in rules:
            if other_rule is rule or not other_rule.covers(rule):
                continue
            if strictness(other_rule.effect) < strictness(rule.effect):
                continue
            if strictness(other_rule.effect_on(tainted=True)) < strictness(
                rule.effect_on(tainted=True)
            ):
                continue
            if rule.safe and not other_rule.safe and other_rule.effect is Effect.ALLOW:
                continue  # it allows more in a tainted run
            is_equivalent = other_rule.effect is rule.effect and rule.covers(other_rule)
            if is_equivalent and rule.number < other_rule.number:
                continue  # reported once, at the second of the two
            yield Conflict(
                f"rule[{rule.number - 1}]",
                (
                    f"{rule.label} can never decide anything: {other_rule.label} covers it, as strict or "  # noqa: E501
                    "stricter"
                ),
                hint="take one of the two out, or narrow the other",
            )
            break


def strictness(effect: Effect) -> int:
    """Return how strict an effect is: deny > ask > allow."""
    return (Effect.ALLOW, Effect.ASK, Effect.DENY).index(effect)
