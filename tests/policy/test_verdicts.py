"""Of all rules that cover a call the strictest decides; what none covers is denied."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.models import Effect
from daemon.policy.globs import Glob
from daemon.policy.lexer import CallRejected
from daemon.policy.policy_file import Rule, strictness
from daemon.policy.verdicts import CallPart, judge_part
from daemon.policy.web import HostPattern, parse_target
from tests.properties import scaled_settings

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY
MISMATCH = CallRejected("sort -o is not known here")


def rule(effect: Effect, tool: str = "shell", number: int = 1, **more: object) -> Rule:
    if "argv" in more:
        more["argv"] = tuple(frozenset(word.split("|")) for word in str(more["argv"]).split())
    if "paths" in more:
        more["paths"] = tuple(
            Glob(word, effect is not ALLOW) for word in str(more["paths"]).split()
        )
    return Rule(number, tool, effect, label=f"rule {number}", **more)  # type: ignore[arg-type]


def command(line: str, *paths: str, **more: object) -> CallPart:
    return CallPart(
        tool="shell", words=tuple(line.split()), paths=tuple((path,) for path in paths), **more
    )  # type: ignore[arg-type]


def effect(part: CallPart, *rules: Rule, routine: str = "daily") -> Effect:
    return judge_part(part, rules, routine=routine).effect


def test_call_without_a_matching_rule_is_denied() -> None:
    verdict = judge_part(command("ls"), [], routine="daily")
    assert (verdict.effect, verdict.rule) == (DENY, "default")
    assert judge_part(command("ls"), [], routine="daily", default=ASK).effect is ASK


@pytest.mark.parametrize(
    ("effects", "strictest"),
    [
        ([ALLOW], ALLOW),
        ([ALLOW, ASK], ASK),
        ([ASK, ALLOW], ASK),
        ([ALLOW, DENY, ASK], DENY),
        ([DENY, ALLOW], DENY),
    ],
)
def test_strictest_rule_decides_at_any_position(effects: list[Effect], strictest: Effect) -> None:
    rules = [rule(effect, number=number) for number, effect in enumerate(effects, 1)]
    verdict = judge_part(command("ls"), rules, routine="daily")
    assert (verdict.effect, verdict.rule) == (strictest, f"rule {effects.index(strictest) + 1}")


def test_first_of_equally_strict_rules_decides() -> None:
    rules = [rule(ALLOW, number=1), rule(ASK, number=2), rule(ASK, number=3, reason="later")]
    for given_rules in (rules, rules[::-1]):
        verdict = judge_part(command("ls"), given_rules, routine="daily")
        assert (verdict.rule, verdict.reason) == ("rule 2", "")


def test_a_verdict_made_stricter_by_taint_gives_taint_as_the_reason() -> None:
    part = CallPart(tool="file_write", paths=(("x",),))
    silent = rule(ALLOW, "file_write", tainted=ASK)
    rule_with_reason = rule(ALLOW, "file_write", tainted=ASK, reason="it is kept")
    strangers = "this run has read text that strangers may have written"
    for rules, tainted, expected in (
        ([silent], True, (ASK, strangers)),
        ([silent], False, (ALLOW, "")),
        ([rule_with_reason], True, (ASK, "it is kept")),
        ([rule_with_reason], False, (ALLOW, "it is kept")),
    ):
        verdict = judge_part(part, rules, routine="daily", tainted=tainted)
        assert (verdict.effect, verdict.reason) == expected
    assert effect(part, silent) is ALLOW, "a run is not tainted unless the caller says so"


def test_a_denied_call_is_named_by_the_parts_a_rule_could_allow() -> None:
    allow = rule(ALLOW, "file_write", paths="reports/**")
    ask = rule(ASK, "file_write", paths="reports/**")
    write = CallPart(tool="file_write", paths=(("notes.md",),))
    shell = rule(ALLOW, argv="git|hg log")
    for part, rules, expected in (
        (write, [allow], "no rule allows file_write on notes.md"),
        (write, [], "no rule allows file_write"),
        (CallPart(tool="file_write"), [ask], "no rule allows file_write"),
        (command("rm x"), [shell], "no rule allows the program rm"),
        (command("hg push"), [shell], "no rule allows hg push"),
        (
            CallPart(tool="routine", words=("run", "daily", "x")),
            [],
            "no rule allows routine run daily",
        ),
        (CallPart(tool="git", words=("log", "-5")), [], "no rule allows git log"),
    ):
        assert judge_part(part, rules, routine="daily").reason == expected


@pytest.mark.parametrize(
    ("line", "spoken_of"),
    [
        ("git log", True),
        ("git log -5", True),
        ("git show HEAD", True),
        ("git", False),
        ("git push", False),
        ("git -c x log", False),
        ("gitx log", False),
    ],
)
def test_argv_of_a_rule_is_compared_word_by_word_from_the_first(line: str, spoken_of: bool) -> None:
    assert (effect(command(line), rule(ALLOW, argv="git log|show")) is ALLOW) == spoken_of


def test_a_rule_with_a_profile_denies_calls_outside_the_profile() -> None:
    mismatch = command("sort -o x", mismatch=MISMATCH)
    rule_with_profile = rule(ALLOW, argv="sort", profile=True)
    assert effect(command("sort x"), rule_with_profile) is ALLOW
    assert effect(mismatch, rule_with_profile) is DENY
    assert effect(mismatch, rule_with_profile, rule(ALLOW, argv="sort -o")) is ALLOW
    any_program = rule(ALLOW, profile=True)
    for rules in ([rule_with_profile], [any_program]):
        assert judge_part(mismatch, rules, routine="daily").reason == MISMATCH.problem


def test_an_allow_rule_must_match_every_path_and_a_deny_rule_any_path() -> None:
    allow = rule(ALLOW, argv="cat", profile=True, paths="reports/**")
    assert effect(command("cat", "reports/a"), allow) is ALLOW
    assert effect(command("cat", "reports/a", "notes.md"), allow) is DENY
    deny = rule(DENY, "*", paths=".env")
    anything = rule(ALLOW, argv="cat")
    assert effect(command("cat", "a", "b"), anything, deny) is ALLOW
    assert effect(command("cat", "a", "b/.env"), anything, deny) is DENY


def test_denied_path_is_denied_under_each_of_its_names() -> None:
    part = CallPart(tool="file_read", paths=(("secret", "link"),))
    free = rule(ALLOW, "file_read")
    assert effect(part, free, rule(DENY, "*", paths="secret")) is DENY
    assert effect(part, free, rule(DENY, "*", paths="link")) is DENY
    assert effect(part, rule(ALLOW, "file_read", paths="link")) is DENY


def test_a_search_of_a_tree_with_denied_paths_is_denied_unless_they_are_excluded() -> None:
    free = rule(ALLOW, argv="grep", profile=True)
    tree = command("grep -r x src", "src", trees=(("src",),))
    excluded_globs = tuple(
        Glob(pattern, ignore_case=True) for pattern in (".env*", "*.pem", "**/.ssh/**")
    )
    passing = command("grep -r x src", "src", trees=(("src",),), excluded_globs=excluded_globs)
    for pattern in (".env*", "*.pem", "**/.ssh/**"):
        assert effect(tree, free, rule(DENY, "*", paths=pattern)) is DENY
        assert effect(passing, free, rule(DENY, "*", paths=pattern)) is ALLOW
        within = replace(passing, trees=((".",), ("src/.ssh", "link")))
        assert effect(within, free, rule(DENY, "*", paths=pattern)) is (
            DENY if "ssh" in pattern else ALLOW
        )
    assert (
        effect(
            replace(passing, trees=(("src", ".ssh"),)), free, rule(DENY, "*", paths="**/.ssh/**")
        )
        is DENY
    )
    assert effect(passing, free, rule(DENY, "*", paths="src/private/**")) is DENY
    assert effect(passing, free, rule(DENY, "*", paths="other/private/**")) is ALLOW
    assert effect(passing, free, rule(ASK, "*", paths=".env*")) is ASK
    assert effect(tree, rule(ALLOW, argv="grep", profile=True, paths="src src/**")) is ALLOW
    assert effect(tree, rule(ALLOW, argv="grep", profile=True, paths="src src/*")) is DENY


def test_a_rule_applies_only_to_its_routines_and_tools() -> None:
    daily_rule = rule(ALLOW, routines=("daily*",))
    assert effect(command("ls"), daily_rule, routine="daily-report") is ALLOW
    assert effect(command("ls"), daily_rule, routine="weekly") is DENY
    assert effect(CallPart(tool="time__now"), rule(ALLOW, "time__*")) is ALLOW
    assert effect(CallPart(tool="mail__send"), rule(ALLOW, "time__*")) is DENY


def test_unreachable_path_is_denied_by_any_rules() -> None:
    part = command(
        "cat /etc/shadow", refusal=CallRejected("/etc/shadow lies outside", "name another")
    )
    verdict = judge_part(part, [rule(ALLOW)], routine="daily")
    assert (verdict.effect, verdict.rule, verdict.alternative) == (DENY, "built in", "name another")


@pytest.mark.parametrize(("method", "expected"), [("GET", ALLOW), ("POST", DENY)])
def test_a_deny_rule_without_hosts_denies_its_methods_on_every_host(
    method: str, expected: Effect
) -> None:
    request = CallPart(
        tool="http_request", target=parse_target("https://api.example.org/x", method)
    )
    allow = rule(
        ALLOW,
        "http_request",
        methods=frozenset({"GET", "POST"}),
        hosts=(HostPattern.of("*.example.org"),),
    )
    deny = rule(DENY, "http_request", methods=frozenset({"POST"}))
    assert effect(request, allow, deny) is expected


_RULES = st.lists(
    st.builds(
        rule,
        st.sampled_from([ALLOW, ASK, DENY]),
        st.sampled_from(["shell", "*", "file_read", "s*"]),
        argv=st.sampled_from(["", "ls", "ls|cat", "cat -n"]),
        profile=st.booleans(),
    ),
    max_size=5,
)
_PARTS = st.sampled_from(
    [
        command("ls", "."),
        command("cat -n", "a"),
        command("cat", mismatch=MISMATCH),
        command("rm a"),
        CallPart(tool="file_read"),
    ]
)


@scaled_settings(300)
@given(rules=_RULES, more=_RULES, part=_PARTS)
def test_added_ask_or_deny_rules_never_allow_more_and_order_never_matters(
    rules: list[Rule], more: list[Rule], part: CallPart
) -> None:
    before = effect(part, *rules)
    stricter = [rule for rule in more if rule.effect is not ALLOW]
    if before is ALLOW:
        assert strictness(effect(part, *rules, *stricter)) >= strictness(before)
    assert effect(part, *rules, *more) is effect(part, *reversed([*rules, *more]))
    if effect(part, *rules) is ALLOW:
        assert any(rule.effect is ALLOW for rule in rules)
