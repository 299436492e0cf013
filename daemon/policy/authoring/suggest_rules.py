"""Write the smallest rules that allow what a routine was denied, or one call.

A rule is for the one routine, and names what was asked for: the words of a command, whole
addresses, paths. Only where several files of one folder were asked for, it names the folder. What a
rule or a section denies or asks about on purpose stays so, as the strictest rule decides; such
calls are left out, with the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from pathlib import PurePosixPath
from typing import Any

from daemon.errors import ConfigError, Refused
from daemon.models import Json
from daemon.policy.authoring.policy_text import add_rules, format_rules
from daemon.policy.authoring.recorded_calls import RecordedCall
from daemon.policy.globs import BadPattern, Glob
from daemon.policy.lexer import CallRejected
from daemon.policy.policy import Policy
from daemon.policy.policy_file import (
    NAMED_ONLY_TOOLS,
    SECRET_FILES_LABEL,
    TOOLS,
    UNKNOWN_TOOL,
    Rule,
    RuleTable,
)
from daemon.policy.requests import analyze_call
from daemon.policy.tables import word_list
from daemon.policy.verdicts import CallPart, judge_part
from daemon.telemetry.redaction import MARK

# From so many files of one folder on, a rule names the folder instead of them.
SEVERAL = 3
_MAX_SHOWN = 300  # characters of a call that is left out
_TAINTED = "the run had read what strangers wrote, who may have chosen these very words"
# What a rule allows besides the calls that it was made for, and of whom those may come.
_ANY_ARGUMENTS = "every call of this tool, whatever it is given"
_MORE_WORDS = "also with more words behind these"
_MAY_CHANGE = 'it may change or delete files unasked; effect = "ask" asks a person first'
_ANY_FOLDER = "a name without / stands for the files of that name in every folder"
_STRANGERS = (
    "a run asked for some of it that had read what strangers wrote: they may have chosen it"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleDraft:
    """A rule that allows a part of some calls."""

    tool: str
    argv: tuple[str | tuple[str, ...], ...] = ()
    is_read_only: bool = False
    """It has the profile read-only."""
    paths: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    is_safe: bool = False
    """It has the key `safe`."""
    networks: tuple[str, ...] = ()
    match: tuple[str, ...] = ()
    """Calls that it allows, as examples of rules are written."""
    is_from_tainted_run: bool = False

    def table(self, routine: str) -> dict[str, Any]:
        """Return it as the table of a rule for one routine, or for all by an empty name; without
        what is empty.
        """
        table = {
            "tool": self.tool,
            "effect": "allow",
            "routines": [routine] if routine else [],
            "argv": [list(word) if isinstance(word, tuple) else word for word in self.argv],
            "profile": "read-only" if self.is_read_only else "",
            "paths": list(self.paths),
            "methods": list(self.methods),
            "urls": list(self.urls),
            "safe": self.is_safe,
            "networks": list(self.networks),
            "match": list(self.match),
        }
        return {key: value for key, value in table.items() if value}

    @property
    def comment(self) -> str:
        """Say, in lines, what the rule allows besides the calls that it was made for."""
        lines = []
        if not (self.argv or self.paths or self.urls):
            lines.append(_ANY_ARGUMENTS)
        if self.argv and not self.is_read_only:
            lines.append(_MORE_WORDS)
            if self.tool == "shell":
                lines.append(_MAY_CHANGE)
        if any("/" not in path for path in self.paths):
            lines.append(_ANY_FOLDER)
        if self.is_from_tainted_run:
            lines.append(_STRANGERS)
        return "\n".join(lines)

    def rule(self, routine: str, number: int) -> Rule:
        return Rule.of(number, RuleTable.model_validate(self.table(routine)))


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOutCall:
    """A denied call for which no rule is suggested."""

    call: str
    """Its tool and what it was about."""
    count: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleSuggestion:
    """Rules for policy.toml, and the denied calls that they were made from."""

    text: str
    """The text of policy.toml with the rules."""
    rules: tuple[dict[str, Any], ...]
    runs: int
    calls: int
    """How many calls were denied, and would be today."""
    is_of_trial: bool
    """The routine was observed when they were."""
    allowed: int
    """How many of them the rules allow, judged as tainted as their runs were."""
    allowed_untainted: int
    """How many more they allow in runs that have read nothing of strangers."""
    left_out: tuple[LeftOutCall, ...]

    @property
    def digest(self) -> str:
        """What confirms that exactly this text is to be written."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def suggest_rules(
    calls: Sequence[RecordedCall],
    policy: Policy,
    read_policy: Callable[[str], Policy],
    *,
    routine: str,
    with_tainted: bool = False,
    only_of_trial: bool = True,
) -> RuleSuggestion:
    """Return the smallest rules that allow what a routine was denied while it was observed, or
    without `only_of_trial` also what it was denied at other times, as no rule covered it.

    `calls` are all that are recorded of the routine, and `policy` is the one in force.
    `read_policy` loads the text of a policy with all its checks, or raises ConfigError. Every
    suggested rule was loaded by it, and every call that counts as allowed was judged by what it
    returned. Calls of runs that had read what strangers wrote are left out unless `with_tainted`,
    or a person chose their words.
    """
    denied_calls = [
        call
        for call in calls
        if (call.is_observed or (call.is_default_denial and not only_of_trial))
        and not call.was_run
        and not _is_allowed(call, policy)
    ]
    drafts: dict[str, list[RuleDraft]] = {}  # by call
    reasons: dict[str, str] = {}
    kinds = {_kind(call): call for call in sorted(denied_calls, key=lambda call: not call.tainted)}
    for kind, call in kinds.items():  # of calls alike, one of an untainted run if there is any
        if call.tainted and not (with_tainted or call.is_by_person):
            reasons[kind] = f"{_TAINTED}; --with-tainted takes such calls in"
            continue
        try:
            drafts[kind] = _draft_rules(call, policy)
        except _NoRuleError as error:
            reasons[kind] = str(error)
            continue
        trial = _with_drafts(policy, drafts[kind], routine)
        if not _is_allowed(replace(call, tainted=False), trial):
            verdict = trial.judge(call.tool, call.arguments, routine=call.routine)
            reasons[kind] = f"{verdict.rule}: {verdict.reason}" if verdict.reason else verdict.rule
            del drafts[kind]
    tables, new_policy = _fit(drafts, reasons, policy, read_policy, routine)
    allowed_calls = [call for call in denied_calls if _is_allowed(call, new_policy)]
    only_if_untainted = [
        call
        for call in denied_calls
        if call.tainted
        and not _is_allowed(call, new_policy)
        and _kind(call) in drafts
        and _is_allowed(replace(call, tainted=False), new_policy)
    ]
    counts = Counter(_kind(call) for call in denied_calls)
    left_out = [
        LeftOutCall(call=_describe(kinds[kind]), count=counts[kind], reason=reason)
        for kind, reason in reasons.items()
        if not _is_allowed(kinds[kind], new_policy)
    ]
    return RuleSuggestion(
        text=new_policy.text,
        rules=tuple(tables),
        runs=len({call.run for call in denied_calls}),
        calls=len(denied_calls),
        is_of_trial=all(call.is_observed for call in denied_calls),
        allowed=len(allowed_calls),
        allowed_untainted=len(only_if_untainted),
        left_out=tuple(sorted(left_out, key=lambda call: (-call.count, call.call))),
    )


def suggest_rule_for(call: RecordedCall, policy: Policy, read: Callable[[str], Policy]) -> str:
    """Return the smallest rules that allow one call, as TOML; empty where none does or should.

    `policy` and `read` are as for `suggest_rules`.
    """
    try:
        drafts = _draft_rules(call, policy)
    except _NoRuleError:
        return ""
    tables = [draft.table(call.routine) for draft in drafts]
    comments = [draft.comment for draft in drafts]
    try:
        new_policy = read(add_rules(policy.text, tables, comments))
    except (ConfigError, Refused):
        return ""
    if not _is_allowed(replace(call, tainted=False), new_policy):
        return ""
    return format_rules(tables, comments) if tables else ""


class _NoRuleError(Exception):
    """No rule is suggested for a call; the text says why."""


def _kind(call: RecordedCall) -> str:
    """Return what calls that are alike have in common."""
    return json.dumps([call.tool, call.arguments], sort_keys=True)


def _describe(call: RecordedCall) -> str:
    text = f"{call.tool} {call.subject}".strip()
    if len(text) > _MAX_SHOWN:
        text = f"{text[:_MAX_SHOWN]}…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _is_allowed(call: RecordedCall, policy: Policy) -> bool:
    return policy.judge(
        call.tool, call.arguments, routine=call.routine, tainted=call.tainted
    ).allows


def _with_drafts(policy: Policy, drafts: Iterable[RuleDraft], routine: str) -> Policy:
    number = sum(rule.label != SECRET_FILES_LABEL for rule in policy.rules)
    new_rules = (draft.rule(routine, number + index) for index, draft in enumerate(drafts, 1))
    return replace(policy, rules=(*policy.rules, *new_rules))


# --- from a call to the rules that allow it


def _draft_rules(call: RecordedCall, policy: Policy) -> list[RuleDraft]:
    """Return a rule for each part of a call that no rule covers. Raises _NoRuleError."""
    if call.tool in NAMED_ONLY_TOOLS:
        raise _NoRuleError(f"{call.tool} changes agentd itself; write a rule for it by hand")
    text = json.dumps(call.arguments, ensure_ascii=False)
    if MARK in text:
        raise _NoRuleError("the journal keeps no secret, so its very words are not known")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _NoRuleError("it holds half a character, which no file can") from None
    rules = [rule for rule in policy.rules if rule.is_for(call.tool, call.routine)]
    try:
        parts = analyze_call(call.tool, call.arguments, policy.reach, rules).parts
        plain_parts = analyze_call(
            call.tool, call.arguments, policy.without_disk().reach, rules
        ).parts
    except CallRejected as error:
        raise _NoRuleError(f"built in: {error.problem}") from None
    drafts = []
    for part, plain_part in zip(parts, plain_parts, strict=True):
        verdict = judge_part(part, policy.rules, routine=call.routine, default=policy.default)
        if verdict.allows:
            continue
        if verdict.rule != "default":
            raise _NoRuleError(
                f"{verdict.rule}: {verdict.reason}" if verdict.reason else verdict.rule
            )
        if part.words != plain_part.words:
            raise _NoRuleError("which words * and ? stand for depends on the files that are there")
        drafts.append(_draft_rule(part, call))
    return drafts


def _draft_rule(part: CallPart, call: RecordedCall) -> RuleDraft:
    """Return the smallest rule that covers a part of a call. Raises _NoRuleError."""
    tool = TOOLS.get(call.tool, UNKNOWN_TOOL)
    draft = RuleDraft(
        tool=call.tool,
        match=_examples(call),
        is_from_tainted_run=call.tainted and not call.is_by_person,
    )
    if part.target is not None:
        target = part.target
        networks = _private_networks(target.host)
        if networks and not call.is_by_person:
            raise _NoRuleError(
                f"{target.host} is no public address; a rule for it needs networks, so write it by "
                "hand"
            )
        draft = replace(draft, urls=(target.url,), networks=networks)
        if call.is_by_person and target.is_plain and target.method == "GET":
            return replace(draft, is_safe=True)  # the rule allows GET only
        return replace(draft, methods=(target.method,))
    if part.words:
        if not all(part.words):
            raise _NoRuleError("an empty word cannot be named in a rule")
        is_read_only = call.tool == "shell" and part.mismatch is None
        if call.tool == "shell" and not is_read_only:
            _refuse_interpreter(part.words[0])
        paths = _paths_of(part) if is_read_only or call.tool == "git" else ()
        return replace(draft, argv=part.words, is_read_only=is_read_only, paths=paths)
    if tool.acts_on in ("reading", "writing"):
        return replace(draft, paths=tuple(_literal(names[0]) for names in part.paths))
    return draft


def _refuse_interpreter(program: str) -> None:
    """Refuse what runs whatever it is told to: words that follow those of the rule would count."""
    runs_anything = word_list("programs", "run_anything")
    if (
        program in runs_anything | word_list("programs", "obey_files")
        or program.rstrip("0123456789.") in runs_anything
    ):
        raise _NoRuleError(f"{program} runs whatever it is told to; write a rule for it by hand")


def _private_networks(host: str) -> tuple[str, ...]:
    """Return the `networks` that a rule needs for a host that is known to have no public address;
    empty for others. Raises _NoRuleError for an address that no rule should open.
    """
    try:
        address = ip_address(host)
    except ValueError:
        is_local = host == "localhost" or host.endswith(".localhost")
        return ("127.0.0.1/32", "::1/128") if is_local else ()
    if address.is_global:
        return ()
    if address.is_link_local or address.is_unspecified or address.is_multicast:
        raise _NoRuleError(f"{host} is no address of a server; write a rule for it by hand")
    return (str(ip_network(address)),)


def _paths_of(part: CallPart) -> tuple[str, ...]:
    """Return the files and folders that a command reads as patterns; none where it reads the
    workspace itself.
    """
    names = [names[0] for names in part.paths]
    trees = [names[0] for names in part.trees]
    if "." in names or "." in trees:
        return ()
    return tuple(
        dict.fromkeys([*map(_literal, names), *(f"{_literal(name)}/**" for name in trees)])
    )


def _literal(path: str) -> str:
    """Return a path as a pattern that covers nothing else. Raises _NoRuleError."""
    try:
        covers_itself = Glob(path).covers(path)
    except BadPattern as error:
        raise _NoRuleError(f"no pattern of a rule can name {path!r:.80}: it {error}") from None
    if "*" in path or "?" in path or not covers_itself:
        raise _NoRuleError(f"no pattern of a rule can name {path!r:.80} alone")
    return path


def _examples(call: RecordedCall) -> tuple[str, ...]:
    """Return a call as an example of a rule; none where examples cannot say it."""
    tool = TOOLS.get(call.tool, UNKNOWN_TOOL)
    if tool.acts_on == "nothing" or call.arguments.get("repository", ".") != ".":
        return ()
    subject = str(call.arguments.get(tool.argument, tool.default))
    if tool.acts_on == "web":
        return (f"{call.arguments.get('method', 'GET')} {subject}",)
    if tool.acts_on == "script":
        words = [subject, *map(str, call.arguments.get("arguments") or ())]
        return () if any(word.split() != [word] for word in words) else (" ".join(words),)
    return (subject,)


# --- from many rules to few


def _fit(
    drafts: dict[str, list[RuleDraft]],
    reasons: dict[str, str],
    policy: Policy,
    read_policy: Callable[[str], Policy],
    routine: str,
) -> tuple[list[dict[str, Any]], Policy]:
    """Return the rules and the policy that has them, as `read_policy` loads it.

    Calls whose rules it does not load are taken out of `drafts`, with a reason.
    """
    if not drafts:
        return [], policy

    def load(
        groups: Iterable[list[RuleDraft]], *, several: int | None
    ) -> tuple[list[dict[str, Any]], Policy]:
        merged_drafts = _merge(
            (draft for group in groups for draft in group), routine, several=several
        )
        tables = [draft.table(routine) for draft in merged_drafts]
        comments = [draft.comment for draft in merged_drafts]
        return tables, read_policy(add_rules(policy.text, tables, comments))

    for several in (SEVERAL, None):
        try:
            return load(drafts.values(), several=several)
        except ConfigError:
            continue  # a rule for a folder may stand for another one; an example may not hold
    accepted_groups: list[list[RuleDraft]] = []
    tables_and_policy: tuple[list[dict[str, Any]], Policy] = [], policy
    for kind, group in list(drafts.items()):
        try:
            tables_and_policy = load([*accepted_groups, group], several=None)
        except ConfigError as error:
            fault = error.faults[0]
            reasons[kind] = f"its rule does not load: {fault.key}: {fault.problem}"
            del drafts[kind]
        else:
            accepted_groups.append(group)
    return tables_and_policy


def _merge(drafts: Iterable[RuleDraft], routine: str, *, several: int | None) -> list[RuleDraft]:
    """Return fewer rules that allow the same, and with `several` folders in place of so many files
    of them.
    """
    groups: dict[tuple[object, ...], list[RuleDraft]] = defaultdict(list)
    for draft in drafts:
        if draft.argv:
            beginning = draft.argv[:-1] or draft.argv
            key: tuple[object, ...] = (draft.tool, beginning, len(draft.argv), draft.is_read_only)
            groups[(*key, draft.paths)].append(draft)
        else:
            groups[draft.tool, draft.methods, draft.is_safe, draft.networks].append(draft)
    merged_drafts = [_join(group, several) for group in groups.values()]
    return list(_without_covered(merged_drafts, routine))


def _join(group: Sequence[RuleDraft], several: int | None) -> RuleDraft:
    """Return one rule that allows what those of a group allow."""
    first = group[0]
    argv = first.argv
    last_words = tuple(dict.fromkeys(draft.argv[-1] for draft in group if draft.argv))
    if len(last_words) > 1:
        argv = (*argv[:-1], tuple(map(str, last_words)))
    paths = tuple(dict.fromkeys(path for draft in group for path in draft.paths))
    if several is not None and not argv:
        paths = tuple(_fold_folders(paths, several))
    return replace(
        first,
        argv=argv,
        paths=paths,
        urls=tuple(dict.fromkeys(url for draft in group for url in draft.urls)),
        match=tuple(dict.fromkeys(text for draft in group for text in draft.match)),
        is_from_tainted_run=any(draft.is_from_tainted_run for draft in group),
    )


def _fold_folders(paths: Sequence[str], several: int) -> Iterator[str]:
    """Yield paths, and of folders in the workspace with so many of them `folder/*` instead."""
    folders = Counter(str(PurePosixPath(path).parent) for path in paths)
    folded_folders: set[str] = set()
    for path in paths:
        folder = str(PurePosixPath(path).parent)
        if folder == "." or folder.startswith("/") or folders[folder] < several:
            yield path
        elif folder not in folded_folders:
            folded_folders.add(folder)
            yield f"{folder}/*"


def _without_covered(drafts: Sequence[RuleDraft], routine: str) -> Iterator[RuleDraft]:
    """Yield the rules that no other one of them makes needless; their examples go to that one."""
    rules = [draft.rule(routine, number) for number, draft in enumerate(drafts, 1)]
    covering_indexes: dict[int, int] = {}
    for index, rule in enumerate(rules):
        for other_index, other_rule in enumerate(rules):
            is_first_of_equals = rule.covers(other_rule) and index < other_index
            if other_index != index and other_rule.covers(rule) and not is_first_of_equals:
                covering_indexes[index] = other_index
                break
    for index, draft in enumerate(drafts):
        if index in covering_indexes:
            continue
        covered_drafts = [
            drafts[other_index]
            for other_index in covering_indexes
            if _find_last_covering(other_index, covering_indexes) == index
        ]
        examples = [text for source in (draft, *covered_drafts) for text in source.match]
        is_tainted = any(source.is_from_tainted_run for source in (draft, *covered_drafts))
        yield replace(draft, match=tuple(dict.fromkeys(examples)), is_from_tainted_run=is_tainted)


def _find_last_covering(index: int, covering_indexes: dict[int, int]) -> int:
    """Return the rule that covers a rule and is covered by none, by their indexes."""
    while index in covering_indexes:
        index = covering_indexes[index]
    return index


def as_json(suggestion: RuleSuggestion) -> Json:
    """Return a suggestion as JSON, without the text of the file."""
    return {
        "runs": suggestion.runs,
        "calls": suggestion.calls,
        "allowed": suggestion.allowed,
        "allowed_untainted": suggestion.allowed_untainted,
        "rules": list(suggestion.rules),
        "left_out": [
            {"call": call.call, "count": call.count, "reason": call.reason}
            for call in suggestion.left_out
        ],
    }
