"""A rule with `safe` lets a tainted run read the addresses that it names, and nothing else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.errors import ConfigError
from daemon.models import Effect
from daemon.policy.policy import Policy
from tests.policy.conftest import Write
from tests.properties import scaled_settings

PAGE = "https://example.org/releases.atom?tag=v1"
RULE = f'[[rule]]\ntool = "http_request"\neffect = "allow"\nsafe = true\nurls = ["{PAGE}"]\n'
HOSTS = '[[rule]]\ntool = "http_request"\neffect = "allow"\nhosts = ["example.org"]\n'


def judge(policy: Policy, *, tainted: bool = True, **call: object):
    return policy.judge("http_request", call, routine="releases", tainted=tainted)


@pytest.mark.parametrize("tainted", [False, True])
def test_a_plain_get_of_a_named_address_is_allowed_and_read_once(write_policy: Write, tainted):
    verdict = judge(write_policy(RULE), tainted=tainted, url=PAGE)
    assert (verdict.effect, verdict.once) == (Effect.ALLOW, PAGE)
    assert judge(write_policy(RULE), tainted=tainted, url=PAGE, method="GET", headers={}).allows


@pytest.mark.parametrize(
    "call",
    [
        {"url": PAGE, "method": "HEAD"},
        {"url": PAGE, "method": "POST"},
        {"url": PAGE, "method": "POST", "body": "words"},
        {"url": PAGE, "headers": {"Accept": "text/html"}},
        {"url": PAGE, "headers": {"X-Words": "secret"}},
        {"url": f"{PAGE}&more=secret"},
        {"url": PAGE.removesuffix("?tag=v1")},
        {"url": PAGE.replace("https", "http")},
        {"url": PAGE.replace("example.org", "example.org:444")},
        {"url": PAGE.replace("example.org", "secret.example.org")},
        {"url": PAGE.replace("releases", "%72eleases")},
        {"url": PAGE.replace("/releases", "//releases")},
        {"url": PAGE.replace("https://", "https://secret@")},
    ],
)
@pytest.mark.parametrize("rules", [RULE, RULE + HOSTS, HOSTS + RULE])
def test_a_request_with_parts_chosen_by_the_model_is_not_safe(write_policy: Write, rules, call):
    assert judge(write_policy(rules), **call).effect is not Effect.ALLOW


def test_the_fragment_of_a_url_is_ignored(write_policy: Write):
    assert judge(write_policy(RULE), url=f"{PAGE}#secret").once == PAGE


def test_a_wider_rule_beside_a_safe_rule_applies_only_to_untainted_runs(write_policy: Write):
    policy, other_page = write_policy(RULE + HOSTS), "https://example.org/other"
    assert judge(policy, tainted=False, url=other_page).allows
    assert judge(policy, tainted=True, url=other_page).rule == "taint"
    assert judge(policy, tainted=True, url=PAGE).allows


def test_a_deny_or_ask_rule_precedes_a_safe_rule(write_policy: Write):
    for effect in ("deny", "ask"):
        rules = RULE + HOSTS.replace('"allow"', f'"{effect}"')
        verdict = judge(write_policy(rules), url=PAGE)
        assert (verdict.effect.value, verdict.once) == (effect, "")


def test_a_safe_rule_respects_the_hosts_of_the_routine(write_policy: Write):
    policy = write_policy(f'{RULE}[routine.releases]\nhosts = ["api.example.net"]\n')
    assert not judge(policy, url=PAGE).allows


def test_a_rule_with_urls_alone_is_not_safe(write_policy: Write):
    plain = write_policy(RULE.replace("safe = true\n", ""))
    assert judge(plain, tainted=False, url=PAGE).allows
    assert judge(plain, tainted=True, url=PAGE).rule == "taint"
    assert not judge(plain, tainted=False, url=f"{PAGE}2").allows


def test_the_prompt_names_the_addresses(write_policy: Write):
    assert f"http_request: GET {PAGE}" in write_policy(RULE).summary("releases", ["http_request"])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            RULE.replace(f'urls = ["{PAGE}"]', 'hosts = ["example.org"]'),
            "rule[0].safe: needs urls: the model may choose no part of the address",
        ),
        (RULE.replace('"allow"', '"deny"'), "rule[0].safe: only a rule that allows can be safe"),
        (
            RULE.replace("http_request", "web_search").replace(f'urls = ["{PAGE}"]', ""),
            "rule[0].safe: only rules for the tool http_request have safe",
        ),
        (f'{RULE}methods = ["GET", "POST"]', "rule[0].methods: a safe rule allows GET only"),
        (f'{RULE}tainted = "ask"', "rule[0].tainted: a safe rule holds in tainted runs, too"),
        (RULE.replace("https://", "ftp://"), "rule[0].urls[0]: the URL begins with neither"),
        (RULE.replace("https://", "https://me:secret@"), "rule[0].urls[0]: a URL with a user"),
        (RULE.replace("http_request", "shell"), "only rules for the tool http_request have urls"),
        (RULE + RULE, "can never decide anything"),
    ],
)
def test_an_invalid_safe_rule_is_refused(write_policy: Write, text, fault):
    with pytest.raises(ConfigError) as error:
        write_policy(text)
    assert any(fault in str(finding) for finding in error.value.faults), error.value.faults


@scaled_settings(200)
@given(
    url=st.from_regex(r"https://example\.org/releases\.atom[!-~]{0,12}", fullmatch=True),
    method=st.sampled_from(["GET", "HEAD", "POST"]),
    headers=st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
    body=st.none() | st.text(max_size=4),
)
def test_only_the_address_itself_is_ever_requested(url, method, headers, body):
    rules = Policy.read(f"version = 1\n{RULE}", workspace=Path("/nowhere"))
    call = {"url": url, "method": method, "headers": headers, "body": body}
    verdict = rules.judge("http_request", call, routine="releases", tainted=True)
    if verdict.allows:
        assert url.partition("#")[0] == verdict.once == PAGE
        assert (method, headers or None, body or None) == ("GET", None, None)
