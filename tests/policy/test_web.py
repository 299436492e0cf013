"""A URL is read in one way only, and rules say which hosts and methods may be asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.policy.lexer import CallRejected
from daemon.policy.policy import Policy
from daemon.policy.web import HostPattern, parse_target
from tests.policy.conftest import Write
from tests.properties import scaled_settings

WEB = '[[rule]]\ntool = "http_request"\neffect = "allow"\n'


@pytest.mark.parametrize(
    ("url", "rebuilt_url"),
    [
        ("https://api.example.org", "https://api.example.org/"),
        ("HTTPS://API.Example.ORG:443/a?b=ü#c", "https://api.example.org/a?b=%C3%BC"),
        ("http://example.org.:8080?x", "http://example.org:8080/?x"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://①②⑦.0.0.1/", "http://127.0.0.1/"),  # which the vetting of addresses then sees
        ("http://[0:0:0::1]:80/", "http://[::1]/"),
        ("https://example.org/%41%zz/../x", "https://example.org/%41%zz/../x"),
    ],
)
def test_a_url_is_rebuilt_from_its_parsed_parts(url: str, rebuilt_url: str) -> None:
    assert parse_target(url).url == rebuilt_url


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "example.org",
            "//example.org/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "http:///x",
            "http:example.org",
        ),
        *(
            "http://user@example.org/",
            "http://example.org@evil.example/",
            "http://example.org\\@evil.example/",
        ),
        *(
            "http://example.org /",
            "http://exa\nmple.org/",
            "http://example.org/\0",
            "http://example.org\u3000/",
        ),
        *(
            "http://127.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://127.0.0.1.5/",
        ),
        *(
            "http://a..b/",
            "http://-a.b/",
            "http://a%2eb/",
            "http://[::1/",
            "http://::1/",
            "http://[fe80::1%25eth0]/",
        ),
        *(
            "http://example.org:0/",
            "http://example.org:65536/",
            "http://example.org:80:80/",
            "http://a,b/",
        ),
        "https://example.org/" + "x" * 9000,
    ],
)
def test_an_ambiguous_url_is_refused(url: str) -> None:
    with pytest.raises(CallRejected):
        parse_target(url)


@scaled_settings(300)
@given(
    st.text(st.sampled_from("htps:/@.#?[]\\%0127xabÀ①。 \t\u200b-_&="), max_size=30).map(
        "http://".__add__
    )
)
def test_parsing_a_parsed_url_is_idempotent(url: str) -> None:
    try:
        target = parse_target(url)
    except CallRejected:
        return
    assert parse_target(target.url) == target
    assert target.url.isascii() and "@" not in target.origin and " " not in target.url


@pytest.mark.parametrize(
    ("pattern", "matches", "other_urls"),
    [
        (
            "example.org",
            ["https://example.org", "http://EXAMPLE.org"],
            ["https://a.example.org", "https://example.org:8443"],
        ),
        (
            "*.example.org",
            ["https://a.example.org", "https://a.b.example.org"],
            ["https://example.org", "https://aexample.org"],
        ),
        ("example.org:8443", ["https://example.org:8443"], ["https://example.org"]),
        ("*", ["https://example.org", "http://127.0.0.1"], ["https://example.org:22"]),
        ("*:22", ["https://example.org:22"], ["https://example.org"]),
        ("[::1]:8080", ["http://[0::1]:8080"], ["http://[::1]", "http://[::2]:8080"]),
        ("Bücher.example", ["http://xn--bcher-kva.example"], ["http://bucher.example"]),
    ],
)
def test_host_pattern_of_a_rule_matches_these_hosts(
    pattern: str, matches: list[str], other_urls: list[str]
) -> None:
    host = HostPattern.of(pattern)
    assert [url for url in matches if not host.matches(parse_target(url))] == []
    assert [url for url in other_urls if host.matches(parse_target(url))] == []


@pytest.mark.parametrize(
    "pattern",
    ["", "http://a.b", "a.b/x", "*a.b", "a.*.b", "*.", "127.1", "a b", "a@b", "[::1", "a:b"],
)
def test_an_invalid_host_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(CallRejected):
        HostPattern.of(pattern)


def is_allowed(policy: Policy, url: str, method: str = "GET") -> bool:
    return policy.judge("http_request", {"url": url, "method": method}, routine="x").allows


def test_a_host_rule_allows_only_its_hosts_and_read_only_methods_by_default(
    write_policy: Write,
) -> None:
    policy = write_policy(
        f'{WEB}hosts = ["*.example.org"]\nmatch = ["https://a.example.org/x", "HEAD '
        'https://a.example.org"]\n'
        'not_match = ["POST https://a.example.org", "https://example.org"]\n'
        f'{WEB}hosts = ["hooks.example.net"]\nmethods = ["POST"]\n'
        f'{WEB}hosts = ["*:8443"]\n'
        '[[rule]]\ntool = "http_request"\neffect = "deny"\nhosts = ["secret.example.org"]\n'
        '[[rule]]\ntool = "http_request"\neffect = "deny"\nhosts = ["old.example.org:8443"]\n'
    )
    assert is_allowed(policy, "https://a.example.org/") and not is_allowed(
        policy, "https://a.example.org/", "DELETE"
    )
    assert is_allowed(policy, "https://hooks.example.net/", "POST") and not is_allowed(
        policy, "https://hooks.example.net/"
    )
    assert not is_allowed(policy, "https://secret.example.org/")
    # a rule that denies a host means all of its ports
    assert is_allowed(policy, "https://b.example.org:8443/")
    assert not is_allowed(policy, "https://secret.example.org:8443/")
    assert not is_allowed(policy, "https://old.example.org:8443/")
    assert is_allowed(policy, "https://old.example.org/")
    assert not is_allowed(policy, "https://elsewhere.example/")
    assert policy.is_read_only("http_request", {"url": "https://a.example.org/"})
    assert not policy.is_read_only(
        "http_request", {"url": "https://a.example.org/", "method": "POST"}
    )


def test_a_denied_http_request_names_the_host_and_the_allowed_hosts(write_policy: Write) -> None:
    policy = write_policy(f'{WEB}hosts = ["api.example.org"]\nmethods = ["GET"]')
    verdict = policy.judge("http_request", {"url": "https://evil.example/?q=secret"}, routine="x")
    assert verdict.reason == "no rule allows GET https://evil.example"
    assert verdict.alternative == "http_request may use GET api.example.org"
    assert "http_request: GET api.example.org" in policy.summary("x", ["http_request"])


def test_private_networks_belong_only_to_the_rule_that_names_them(write_policy: Write) -> None:
    policy = write_policy(
        (  # noqa: UP034
            f'{WEB}hosts = ["nas.example:8080"]\nnetworks = ["192.168.1.0/24"]\n{WEB}hosts = '
            '["a.example"]'
        )
    )
    assert [
        str(network) for network in policy.networks(parse_target("http://nas.example:8080/"), "x")
    ] == ["192.168.1.0/24"]
    assert policy.networks(parse_target("http://a.example/"), "x") == ()


def test_only_read_only_git_commands_are_allowed(write_policy: Write) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "git"\neffect = "allow"\nmatch = ["log --oneline -5"]\nnot_match = ["log '
        '--output=x"]\n'
        '[[rule]]\ntool = "git"\neffect = "deny"\nargv = ["remote"]\n'
        '[[rule]]\ntool = "*"\neffect = "deny"\npaths = [".env"]\n'
    )

    def may(command: str, repository: str = ".") -> bool:
        return policy.judge(
            "git", {"command": command, "repository": repository}, routine="x"
        ).allows

    assert may("status --short") and may("log -p -- notes.md") and may("log", "src")
    assert may("git status --short") and not may("git push") and not may("git remote -v")
    for command in (
        "remote -v",
        "--no-pager remote -v",
        "push",
        "-c core.pager=x log",
        "log | head",
        "log > x",
        "log; ls",
        "remote -v",
        "show HEAD:.env",
        "",
    ):
        assert not may(command), command
    assert (
        not may("show HEAD:../notes.md", "src")
        and not may("log", "/etc")
        and not may("log", "link_etc")
    )


def test_a_repository_denied_to_the_words_of_a_call_is_denied(write_policy: Write) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "git"\neffect = "allow"\n'
        '[[rule]]\ntool = "git"\neffect = "deny"\nargv = ["--no-pager"]\npaths = ["src"]\n'
    )
    for command, repository, allows in (
        ("--no-pager log", "src", False),
        ("--no-pager log", ".", True),
        ("log", "src", True),
    ):
        call = {"command": command, "repository": repository}
        verdict = policy.judge("git", call, routine="x")
        assert verdict.allows is allows, call


def test_scripts_are_judged_by_name_and_arguments(write_policy: Write) -> None:
    policy = write_policy(
        '[[rule]]\ntool = "script"\neffect = "allow"\nargv = ["backup", ["daily", "weekly"]]\n'
    )

    def may(name: str, *arguments: str) -> bool:
        return policy.judge(
            "script", {"name": name, "arguments": list(arguments)}, routine="x"
        ).allows

    assert may("backup", "daily") and may("backup", "weekly", "x")
    assert not may("backup") and not may("backup", "--force") and not may("other", "daily")
    assert (
        policy.judge("script", {"name": "other"}, routine="x").alternative
        == "script may use backup daily|weekly"
    )
