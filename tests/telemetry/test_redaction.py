from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.telemetry.redaction import MARK, Secrets, redact_json
from tests.properties import scaled_settings

CANARY = 'canary/7f3a+"\\ü key=='


@pytest.fixture
def secrets() -> Secrets:
    known_secrets = Secrets()
    known_secrets.add(CANARY)
    return known_secrets


@pytest.mark.parametrize(
    "form",
    [
        CANARY,
        json.dumps({"key": CANARY}),
        json.dumps({"key": CANARY}, ensure_ascii=False),
        repr({"key": CANARY}),
        f"https://example.org/?key={quote(CANARY, safe='')}",
        f"https://example.org/{quote(CANARY)}",
        f"key={quote_plus(CANARY)}",
        base64.b64encode(CANARY.encode()).decode(),
        base64.urlsafe_b64encode(CANARY.encode()).decode(),
    ],
)
def test_a_known_secret_is_redacted_in_each_encoding(secrets: Secrets, form: str) -> None:
    output = secrets.redact(f"before {form} after")
    assert MARK in output
    assert output.startswith("before ")
    assert output.endswith(" after")
    assert "canary" not in output


@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("after", ["", "x", "xy", "xyz"])
def test_a_known_secret_is_found_inside_longer_base64(
    secrets: Secrets, before: str, after: str
) -> None:
    text = base64.b64encode((before + CANARY + after).encode()).decode()
    redacted_text = secrets.redact(f"Basic {text}")
    assert MARK in redacted_text
    rest_of_secret = redacted_text.removeprefix("Basic ").replace(MARK, "")
    assert (
        len(rest_of_secret) <= 16
    )  # what is left encodes the neighbours and some bits at the edges


@scaled_settings(100)
@given(
    secret=st.text(alphabet=st.characters(codec="utf-8"), min_size=8, max_size=60),
    around=st.text(max_size=20),
)
def test_no_secret_survives_in_a_json_line(secret: str, around: str) -> None:
    known_secrets = Secrets()
    known_secrets.add(secret)
    line = known_secrets.redact(
        json.dumps({"message": f"{around}{secret}{around}"}, ensure_ascii=False)
    )
    assert secret not in json.loads(line)["message"].replace(MARK, "\0")


def test_a_too_short_secret_is_not_redacted(secrets: Secrets) -> None:
    secrets.add("daily")
    assert secrets.redact("the daily report") == "the daily report"


def test_longer_of_two_overlapping_secrets_is_redacted_whole(secrets: Secrets) -> None:
    secrets.add("abcdefgh")
    secrets.add("abcdefghijkl")
    assert secrets.redact("<abcdefghijkl>") == f"<{MARK}>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key sk-ant-api03-abcdefghij0123456789KLMNO end", f"key {MARK} end"),
        ("OPENAI: sk-proj-a1b2c3d4e5f6g7h8i9j0", f"OPENAI: {MARK}"),
        ("ghp_0123456789abcdefghij0123456789abcdef", MARK),
        ("github_pat_11ABCDEFG0123456789_abcdef", MARK),
        ("glpat-abcdefghij0123456789", MARK),
        ("xoxb-123456789012-abcdef", MARK),
        ("AKIAIOSFODNN7EXAMPLE", MARK),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            f"aws_secret_access_key = {MARK}",
        ),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123", MARK),
        ("Authorization: Bearer abc.def", f"Authorization: {MARK}"),
        ("authorization=Basic dXNlcjpwYXNz", f"authorization={MARK}"),
        ("Authorization: ApiKey XXX==", f"Authorization: {MARK}"),
        ("authorization: AWS4-HMAC-SHA256 abc/def", f"authorization: {MARK}"),
        ("Authorization: Bearer\n abc.def", f"Authorization: {MARK}"),
        ('{"Authorization": "token 12345"}', f'{{"Authorization": "{MARK}"}}'),
        ('{\\"authorization\\": \\"Bearer abc\\"}', f'{{\\"authorization\\": \\"{MARK}\\"}}'),
        ("curl -H 'x-api-key: 0123456789abcdef0123'", f"curl -H 'x-api-key: {MARK}'"),
        ("a bearer 0123456789abcdef0123 here", f"a bearer {MARK} here"),
        ("postgresql://agent:hunter2@db/x", f"postgresql://agent:{MARK}@db/x"),
        ("ftp://ada:hunter@2@host/x y@z", f"ftp://ada:{MARK}@host/x y@z"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nrest",
            f"{MARK}\nrest",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE and then the output was cut", MARK),
    ],
)
def test_text_that_looks_like_a_secret_is_redacted(text: str, expected: str) -> None:
    assert Secrets().redact(text) == expected


# One of each kind that is known by how it begins.
TOKENS = [
    "sk-ant-api03-abcdefghij0123456789KLMNO",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "github_pat_11ABCDEFG0123456789_abcdef",
    "glpat-abcdefghij0123456789",
    "xoxb-123456789012-abcdef",
    "AIza" + "Ab1" * 11 + "cd",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    "npm_" + "Ab1" * 12,
    "hf_" + "Ab" * 17,
    "glsa_" + "Ab12" * 8 + "_0123abcd",
    "glc_" + "Ab12" * 8,
    "glptt-abcdefghij0123456789",
    "dop_v1_" + "0a" * 32,
    "SG." + "Ab" * 11 + "." + "Ab1" * 14,
    "sk_live_0123456789abcdef",
    "rk_prod_0123456789abcdef",
    "pypi-AgE" + "Ab" * 25,
    "AGE-SECRET-KEY-1" + "A1" * 29,
    "xapp-1-A0123-45678-0123456789abcdef",
    "ya29.abcdefghij0123456789",
    "GOCSPX-" + "Ab12" * 7,
    "shpat_" + "0a" * 16,
    "hvs." + "Ab" * 40,
    "dapi" + "0a" * 16,
    "lin_api_" + "Ab" * 20,
    "sq0atp-" + "Ab" * 11,
    "sq0csp-" + "Ab" * 21 + "c",
    "0123456789:AA" + "Ab1" * 11,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123",
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("before", ["", "x ", "x\n", "\t", "x\r\n", "\x1b", "\u3002"])
def test_a_token_behind_an_escape_is_redacted(before: str, token: str) -> None:
    text = f"{before}{token}\n"
    for line, rest in (
        (text, f"{before}{MARK}\n"),
        (json.dumps(text), json.dumps(f"{before}{MARK}\n")),
        (json.dumps(json.dumps(text)), json.dumps(json.dumps(f"{before}{MARK}\n"))),
        (repr(text), repr(f"{before}{MARK}\n")),
        (quote(before) + token, quote(before) + MARK),
    ):
        assert Secrets().redact(line) == rest


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_inside_of_a_word_is_left_alone(token: str) -> None:
    assert Secrets().redact(f"word{token}") == f"word{token}"


@pytest.mark.parametrize("dump", [json.dumps, repr])
def test_a_bearer_token_at_the_start_of_a_line_is_redacted_in_json(
    dump: Callable[[str], str],
) -> None:
    text = "GET /\nBearer 0123456789abcdef0123\n"
    assert Secrets().redact(dump(text)) == dump(f"GET /\nBearer {MARK}\n")


@pytest.mark.parametrize("joint", ["-", "_", ""])
@pytest.mark.parametrize("api", ["api", "Api", "API"])
@pytest.mark.parametrize("key", ["key", "Key", "KEY"])
def test_a_key_of_an_api_is_redacted_however_its_name_is_written(
    api: str, joint: str, key: str
) -> None:
    name = f"x-{api}{joint}{key}"
    assert Secrets().redact(f"{name}: 0123456789abcdef0123") == f"{name}: {MARK}"


@pytest.mark.parametrize(
    "text",
    [
        "the disk-usage-and-everything-around-it-in-2026",
        "sk-fading-circle-animation-delay",
        "https://example.org:8080/a@b",
        "docs at https://example.org/path, mail a@b.org",
        "the authorization was refused",
        "task-0123456789012345678901234567890",
        "an api-key is missing",
        "eyJ is how base64 of JSON begins",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Secrets().redact(text) == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "sk-", "eyJ-", "eyJaaaaaaaa.", "eyJ", "ghp_", "github_pat_", "glpat-", "xoxb-", "AKIA", "bearer ", (  # noqa: E501
            "://"
        ), (
            "://a:"
        ),
        "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "PRIVATE KEY-----", "authorization ", (
            "authorization: "
        ),
        "authorization:bearer ", "api-key: ", "aws_secret_access_key ", r"\nghp_", "%20sk-", ":AA0",
    ],
)  # fmt: skip
def test_no_text_is_slow_to_search(piece: str) -> None:
    secrets = Secrets()
    # a pattern that looks at each rest of the text again would take minutes
    for count in (
        1,
        100_000,
    ):
        secrets.redact(piece * count)
        secrets.redact("x" + piece * count + " " * count)


def test_a_redacted_json_line_stays_json() -> None:
    body = {"pem": "-----BEGIN PRIVATE KEY-----\nMIIE", "header": "Authorization: Bearer x", "n": 1}
    assert json.loads(Secrets().redact(json.dumps(body)))["n"] == 1


def test_texts_in_json_values_are_redacted(secrets: Secrets) -> None:
    value = {"a": [CANARY, 1, None, {CANARY: True}], "b": (CANARY,)}
    assert secrets.redact_json(value) == {"a": [MARK, 1, None, {MARK: True}], "b": [MARK]}


def test_values_under_two_secret_keys_are_both_kept() -> None:
    secrets = Secrets()
    for secret in ("first-canary-11", "second-canary-22", "third-canary-33"):
        secrets.add(secret)
    value = {"first-canary-11": 1, "second-canary-22": 2, "third-canary-33": 3, "plain": 4}
    assert secrets.redact_json(value) == {
        MARK: 1,
        f"{MARK} (2)": 2,
        f"{MARK} (3)": 3,
        "plain": 4,
    }


class CountedText(str):
    """A text that counts how often it is put into another."""

    formatted = 0

    def __format__(self, spec: str) -> str:
        CountedText.formatted += 1
        return super().__format__(spec)


def test_each_of_many_secret_keys_is_numbered_once() -> None:
    mark = CountedText(MARK)
    before = CountedText.formatted
    value = redact_json({f"key {number}": number for number in range(1000)}, lambda text: mark)
    assert len(value) == 1000 and value[f"{MARK} (1000)"] == 999
    assert CountedText.formatted - before == 999


@pytest.mark.parametrize("raw", [b"gr\xfcner-hund-17", b"gr\xfcnerhund"])
def test_a_secret_that_is_not_utf_8_is_redacted_in_each_encoding(raw: bytes) -> None:
    secrets = Secrets()
    secrets.add_environment({"DATABASE_PASSWORD": raw.decode(errors="surrogateescape")})
    for form in (
        raw.decode(errors="surrogateescape"),
        quote(raw, safe=""),
        base64.b64encode(raw).decode(),
    ):
        output = secrets.redact(f"before {form} after")
        assert MARK in output and "hund" not in output and form not in output


def test_a_secret_that_is_not_utf_8_is_redacted_in_the_output_of_a_program() -> None:
    secrets, raw = Secrets(), b"gr\xfcner-hund-17"
    secrets.add(raw.decode(errors="surrogateescape"))
    assert secrets.redact(raw.decode(errors="replace")) == MARK


def test_a_cached_text_is_searched_again_after_a_new_secret() -> None:
    known_secrets, text = Secrets(), f"{'harmless ' * 100}{CANARY}"
    assert known_secrets.redact(text) == text
    known_secrets.add(CANARY)
    assert CANARY not in known_secrets.redact(text)


def test_many_texts_are_redacted_independently(secrets: Secrets) -> None:
    for number in range(1000):
        text = f"{number} {'word ' * 200}"
        assert secrets.redact(text) == text
        assert secrets.redact(text + CANARY) == text + MARK
