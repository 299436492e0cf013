"""Presets, taint and `on_ask` take back what rules allow, and never give anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import ConfigError
from daemon.models import Effect, Verdict
from daemon.policy.policy import Policy
from daemon.policy.restrictions import PRESETS, CallTraits, Restriction
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


def which(found: dict[str, str], effect: str) -> set[str]:
    return {name for name, each in found.items() if each == effect}


def test_without_a_preset_the_rules_stand_as_written(policy: Write) -> None:
    assert which(effects(policy(RULES)), "allow") == set(CALLS)


def test_readonly_denies_whatever_may_change_something(policy: Write) -> None:
    found = effects(policy(f'autonomy = "readonly"\n{RULES}'))
    assert which(found, "allow") == {"looks", "knows", "fetches"}
    assert which(found, "deny") == {"makes", "writes", "foreign"}


def test_supervised_asks_before_anything_is_changed(policy: Write) -> None:
    found = effects(policy(f'autonomy = "supervised"\n{RULES}'))
    assert which(found, "ask") == {"makes", "writes", "foreign"}


def test_a_routine_may_be_more_careful_than_the_file_and_never_less(policy: Write) -> None:
    careful = policy(f'{RULES}[routine.x]\nautonomy = "readonly"\n')
    assert which(effects(careful), "deny") == {"makes", "writes", "foreign"}
    assert which(effects(careful, "other"), "allow") == set(CALLS)
    with pytest.raises(
        ConfigError, match='can only be narrower than the file, which says "supervised"'
    ):
        policy(f'autonomy = "supervised"\n{RULES}[routine.x]\nautonomy = "full"\n')


def test_a_run_that_read_untrusted_text_asks_before_it_changes_or_sends_anything(
    policy: Write,
) -> None:
    judged = policy(f'{RULES}[routine.x]\ntainted_tools = ["file_write", "notes__*"]\n')
    assert which(effects(judged, "other", tainted=True), "ask") == {
        "makes",
        "writes",
        "fetches",
        "foreign",
    }
    assert which(effects(judged, tainted=True), "ask") == {"makes", "fetches"}
    verdict = judged.judge(
        "http_request", {"url": "https://example.org/"}, routine="other", tainted=True
    )
    assert (verdict.rule, "tainted_tools" in verdict.alternative) == ("taint", True)


def test_where_nobody_is_asked_what_would_be_asked_is_denied(policy: Write) -> None:
    judged = policy(f'on_ask = "deny"\n{RULES}[routine.patient]\non_ask = "park"\n')
    verdict = judged.judge("file_write", {"path": "x"}, routine="x", tainted=True)
    assert verdict.effect is Effect.DENY
    assert "nobody is asked here" in verdict.reason
    assert (
        judged.judge("file_write", {"path": "x"}, routine="patient", tainted=True).effect
        is Effect.ASK
    )


def test_results_that_give_orders_are_shown_only_where_the_policy_says_so(policy: Write) -> None:
    judged = policy(
        (  # noqa: UP034
            f'{RULES}[injection]\ntrust = ["docs/security/**"]\n[routine.research]\ninjection = '
            '"review"\n'
        )
    )
    assert not judged.shows_injected_result("file_read", {"path": "notes.md"}, routine="x")
    assert judged.shows_injected_result(
        "file_read", {"path": "docs/security/attacks.md"}, routine="x"
    )
    assert not judged.shows_injected_result(
        "file_read", {"path": "docs/security/../../notes.md"}, routine="x"
    )
    assert not judged.shows_injected_result(
        "shell", {"command": "cat docs/security/attacks.md"}, routine="x"
    )
    assert judged.shows_injected_result("shell", {"command": "cat notes.md"}, routine="research")


ORDER = [Effect.ALLOW, Effect.ASK, Effect.DENY]


@given(
    effect=st.sampled_from(ORDER),
    restriction=st.builds(
        Restriction,
        routine=st.just("x"),
        autonomy=st.sampled_from(PRESETS),
        on_ask=st.sampled_from(["park", "deny"]),
        tainted_tools=st.lists(st.sampled_from(["*", "shell", "x"])).map(tuple),
    ),
    looks=st.booleans(),
    sends=st.booleans(),
    tainted=st.booleans(),
)
def test_no_restriction_ever_makes_a_verdict_milder(
    effect: Effect, restriction: Restriction, looks: bool, sends: bool, tainted: bool
) -> None:
    verdict = Verdict(effect=effect, rule="rule 1")
    lowered = restriction.lower(
        verdict, CallTraits(tool="shell", is_read_only=looks, sends=sends), tainted=tainted
    )
    assert ORDER.index(lowered.effect) >= ORDER.index(effect)
    if not restriction.may_lower(verdict, tainted=tainted):
        assert lowered == verdict


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


def test_a_rule_may_be_stricter_once_strangers_have_been_read_whatever_else_is_trusted(
    policy: Write,
) -> None:
    made = policy(TAINTED)

    def says(tool: str, *, tainted: bool, **arguments: str) -> Verdict:
        return made.judge(tool, arguments, routine="x", tainted=tainted)

    assert says("shell", command="ls", tainted=False).allows
    asked = says("shell", command="ls", tainted=True)
    assert (
        asked.effect is Effect.ASK
        and asked.rule == "rule 1 (shell: ls)"
        and "strangers" in asked.reason
    )
    assert says("file_read", path="private/a", tainted=False).allows
    denied = says("file_read", path="private/a", tainted=True)
    assert denied.effect is Effect.DENY and denied.reason == "keys and strangers' words do not meet"
    assert says("file_read", path="notes", tainted=True).allows


@pytest.mark.parametrize("effect", ["ask", "deny"])
def test_tainted_effect_equal_to_the_effect_is_a_fault(policy: Write, effect: str) -> None:
    with pytest.raises(ConfigError, match="changes nothing beside effect"):
        policy(f'[[rule]]\ntool = "file_read"\neffect = "{effect}"\ntainted = "ask"\n')
