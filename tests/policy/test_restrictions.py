"""Presets, taint and `on_ask` take back what rules allow, and never give anything."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import ConfigError
from daemon.models import Effect, Verdict
from daemon.policy.policy import Policy
from daemon.policy.policy_file import AUTONOMY_LEVELS
from daemon.policy.verdicts import CallTraits, Restriction
from tests.policy.conftest import Write

RULES = """
[[rule]]
tool = "shell"
effect = "allow"
argv = [["ls", "cargo"]]
[[rule]]
tool = "file_write"
effect = "allow"
[[rule]]
tool = "sysinfo"
effect = "allow"
[[rule]]
tool = "http_request"
effect = "allow"
hosts = ["example.org"]
[[rule]]
tool = "notes__*"
effect = "allow"
"""
CALLS = {
    "looks": ("shell", {"command": "ls"}),
    "makes": ("shell", {"command": "cargo build"}),
    "writes": ("file_write", {"path": "x"}),
    "knows": ("sysinfo", {}),
    "fetches": ("http_request", {"url": "https://example.org/"}),
    "foreign": ("notes__list", {}),
}


def effects(policy: Policy, routine: str = "x", *, tainted: bool = False) -> dict[str, str]:
    return {
        name: policy.judge(tool, arguments, routine=routine, tainted=tainted).effect.value  # type: ignore[arg-type]
        for name, (tool, arguments) in CALLS.items()
    }


def which(effects_by_call: dict[str, str], effect: str) -> set[str]:
    return {name for name, call_effect in effects_by_call.items() if call_effect == effect}


def test_without_a_preset_rules_apply_as_written(write_policy: Write) -> None:
    assert which(effects(write_policy(RULES)), "allow") == set(CALLS)


def test_readonly_denies_all_changing_calls(write_policy: Write) -> None:
    effects_by_call = effects(write_policy(f'autonomy = "readonly"\n{RULES}'))
    assert which(effects_by_call, "allow") == {"looks", "knows", "fetches"}
    assert which(effects_by_call, "deny") == {"makes", "writes", "foreign"}


def test_supervised_asks_before_changing_calls(write_policy: Write) -> None:
    effects_by_call = effects(write_policy(f'autonomy = "supervised"\n{RULES}'))
    assert which(effects_by_call, "ask") == {"makes", "writes", "foreign"}


def test_autonomy_of_a_routine_may_only_be_stricter_than_of_the_file(write_policy: Write) -> None:
    careful = write_policy(f'{RULES}[routine.x]\nautonomy = "readonly"\n')
    assert which(effects(careful), "deny") == {"makes", "writes", "foreign"}
    assert which(effects(careful, "other"), "allow") == set(CALLS)
    with pytest.raises(
        ConfigError, match='can only be narrower than the file, which says "supervised"'
    ):
        write_policy(f'autonomy = "supervised"\n{RULES}[routine.x]\nautonomy = "full"\n')


def test_a_tainted_run_asks_before_changing_or_sending_calls(
    write_policy: Write,
) -> None:
    policy = write_policy(f'{RULES}[routine.x]\ntainted_tools = ["file_write", "notes__*"]\n')
    assert which(effects(policy, "other", tainted=True), "ask") == {
        "makes",
        "writes",
        "fetches",
        "foreign",
    }
    assert which(effects(policy, tainted=True), "ask") == {"makes", "fetches"}
    verdict = policy.judge(
        "http_request", {"url": "https://example.org/"}, routine="other", tainted=True
    )
    assert (verdict.rule, "tainted_tools" in verdict.alternative) == ("taint", True)


@pytest.mark.parametrize(
    ("rule", "tool", "held"),
    [
        ('tool = "shell"\nprofile = "read-only"', "shell", False),
        ('tool = "shell"\nargv = [["cargo"]]', "shell", True),
        (
            (
                'tool = "shell"\nprofile = "read-only"\n'
                '[[rule]]\ntool = "shell"\neffect = "allow"\nargv = [["cargo"]]'
            ),
            "shell",
            True,
        ),
        ('tool = "http_request"\nhosts = ["example.org"]', "http_request", True),
        (
            'tool = "http_request"\nurls = ["https://example.org/"]\nsafe = true',
            "http_request",
            False,
        ),
        ('tool = "file_write"', "file_write", True),
        ('tool = "file_write"\npaths = ["out/x/**"]', "file_write", False),
        ('tool = "file_read"', "file_read", False),
        ('tool = "web_search"', "web_search", True),
        ('tool = "notes__*"', "notes__list", True),
        ('tool = "file_read"\ntainted = "ask"', "file_read", True),
    ],
)
def test_what_taint_holds_of_a_tool_is_known_before_a_run(
    write_policy: Write, rule: str, tool: str, held: bool
) -> None:
    rules = f'[[rule]]\neffect = "allow"\n{rule}\n'
    released = f'{rules}[routine.x]\ntainted_tools = ["{tool}"]\n'
    assert bool(write_policy(rules).tools_held_by_taint("x", [tool])) is held
    # `tainted_tools` lifts everything but what a rule says of tainted runs
    assert bool(write_policy(released).tools_held_by_taint("x", [tool])) is ("tainted" in rule)


def test_a_rule_that_forbids_or_is_for_another_routine_names_no_tool(write_policy: Write) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "routine"\neffect = "ask"\nroutines = ["maker"]\n'
        '[[rule]]\ntool = "config"\neffect = "deny"\n'
    )
    names = [
        (tool, routine)
        for tool in ("config", "routine", "shell")
        for routine in ("a", "maker", "z")
        if policy.has_rule_naming(tool, routine)
    ]
    assert names == [("routine", "maker")]


def test_on_ask_deny_turns_ask_into_deny(write_policy: Write) -> None:
    policy = write_policy(f'on_ask = "deny"\n{RULES}[routine.patient]\non_ask = "park"\n')
    verdict = policy.judge("file_write", {"path": "x"}, routine="x", tainted=True)
    assert verdict.effect is Effect.DENY
    assert "nobody is asked here" in verdict.reason
    assert (
        policy.judge("file_write", {"path": "x"}, routine="patient", tainted=True).effect
        is Effect.ASK
    )


def test_injected_results_are_shown_only_where_the_policy_trusts_them(write_policy: Write) -> None:
    policy = write_policy(
        (  # noqa: UP034
            f'{RULES}[injection]\ntrust = ["docs/security/**"]\n[routine.research]\ninjection = '
            '"review"\n'
        )
    )
    assert not policy.shows_injected_result("file_read", {"path": "notes.md"}, routine="x")
    assert policy.shows_injected_result(
        "file_read", {"path": "docs/security/attacks.md"}, routine="x"
    )
    assert not policy.shows_injected_result(
        "file_read", {"path": "docs/security/../../notes.md"}, routine="x"
    )
    assert not policy.shows_injected_result(
        "shell", {"command": "cat docs/security/attacks.md"}, routine="x"
    )
    for tool in ("file_write", "file_edit", "file_delete"):
        path = {"path": "docs/security/attacks.md"}
        assert not policy.shows_injected_result(tool, path, routine="x")
    assert policy.shows_injected_result("shell", {"command": "cat notes.md"}, routine="research")


ORDER = [Effect.ALLOW, Effect.ASK, Effect.DENY]


@given(
    effect=st.sampled_from(ORDER),
    restriction=st.builds(
        Restriction,
        routine=st.just("x"),
        autonomy=st.sampled_from(AUTONOMY_LEVELS),
        on_ask=st.sampled_from(["park", "deny"]),
        tainted_tools=st.lists(st.sampled_from(["*", "shell", "x"])).map(tuple),
    ),
    looks=st.booleans(),
    sends=st.booleans(),
    tainted=st.booleans(),
)
def test_no_restriction_makes_a_verdict_milder(
    effect: Effect, restriction: Restriction, looks: bool, sends: bool, tainted: bool
) -> None:
    verdict = Verdict(effect=effect, rule="rule 1")
    lower_verdict = restriction.restrict(
        verdict, CallTraits(tool="shell", is_read_only=looks, sends=sends), tainted=tainted
    )
    assert ORDER.index(lower_verdict.effect) >= ORDER.index(effect)
    if not restriction.may_restrict(verdict, tainted=tainted):
        assert lower_verdict == verdict


TAINTED = """
[[rule]]
tool = "shell"
effect = "allow"
argv = ["ls"]
tainted = "ask"
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "file_read"
effect = "allow"
paths = ["private/**"]
tainted = "deny"
reason = "keys and strangers' words do not meet"
[routine.x]
tainted_tools = ["shell"]
"""


def test_a_tainted_effect_of_a_rule_applies_despite_tainted_tools(
    write_policy: Write,
) -> None:
    tainted_policy = write_policy(TAINTED)

    def says(tool: str, *, tainted: bool, **arguments: str) -> Verdict:
        return tainted_policy.judge(tool, arguments, routine="x", tainted=tainted)

    assert says("shell", command="ls", tainted=False).allows
    verdict = says("shell", command="ls", tainted=True)
    assert (
        verdict.effect is Effect.ASK
        and verdict.rule == "rule 1 (shell: ls)"
        and "strangers" in verdict.reason
    )
    assert says("file_read", path="private/a", tainted=False).allows
    denial = says("file_read", path="private/a", tainted=True)
    assert denial.effect is Effect.DENY and denial.reason == "keys and strangers' words do not meet"
    assert says("file_read", path="notes", tainted=True).allows


@pytest.mark.parametrize("effect", ["ask", "deny"])
def test_tainted_effect_equal_to_the_effect_is_a_fault(write_policy: Write, effect: str) -> None:
    with pytest.raises(ConfigError, match="changes nothing beside effect"):
        write_policy(f'[[rule]]\ntool = "file_read"\neffect = "{effect}"\ntainted = "ask"\n')


NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)


def test_a_routine_is_observed_until_its_trial_ends_and_so_is_what_it_made(write_policy):
    judge = write_policy(
        '[routine.daily]\nmode = "observe"\nobserve_until = 2026-11-27T09:00:00+01:00\n'
        '[routine.forever]\nmode = "observe"\n'
    )
    assert judge.is_observed("daily", NOW) and judge.is_observed("daily/child", NOW)
    assert judge.is_observed("maker/forever", NOW + timedelta(days=900))
    assert not judge.is_observed("daily", NOW + timedelta(days=7))
    assert not judge.is_observed("other", NOW)
    assert judge.observation_of("other") is None
    trial = judge.observation_of("daily")
    assert trial.describe(NOW).startswith("daily: observe until 2026-11-27 08:00: nobody is asked")
    assert trial.describe(NOW + timedelta(days=7)) == (
        "daily: observe ended on 2026-11-27 08:00, and people are asked again; "
        "run `agentctl policy suggest daily`, which shows rules for what was denied"
    )
    assert "as long as mode" in judge.observation_of("forever").describe(NOW)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('mode = "watch"', "mode"),
        ('mode = "observe"\nobserve_until = 2026-11-27T09:00:00', "has no offset from UTC"),
        ('mode = "observe"\nobserve_until = "friday"', "observe_until"),
        ("observe_until = 2026-11-27T09:00:00Z", "ends no trial, as this routine is not observed"),
    ],
)
def test_a_faulty_trial_is_refused_with_its_key(write_policy, text, problem):
    with pytest.raises(ConfigError, match=problem):
        write_policy(f"[routine.daily]\n{text}\n")
