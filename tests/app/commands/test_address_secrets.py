"""Of an address only passwords and tokens are redacted: no host, no user, no ordinary word."""

from __future__ import annotations

import re
import string
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.commands.validate import examine
from daemon.delivery.channels.mail_url import parse_smtp_url
from daemon.telemetry.redaction import (
    MARK,
    Secrets,
    count_secrets,
    has_ordinary_password,
    parts_of_address,
)
from tests.properties import scaled_settings

UUID = "550e8400-e29b-41d4-a716-446655440000"


def redact(address: str, text: str) -> str:
    secrets = Secrets()
    secrets.add_address(address, whole=True)
    return secrets.redact(text)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (
            "mailto://mailhub.lan:25?to=root@mailhub.lan",
            "root@mailhub.lan says that mailhub.lan is up",
        ),
        (
            "mailto://127.0.0.1:2525?to=ann@example.org",
            "no connection to 127.0.0.1:18099: ('127.0.0.1', 18099)",
        ),
        ("mailto://HOST:25?from=a@x&to=b@y", "http://HOST/page"),
        (
            "mailto://monitoring:password@smtp.example.org",
            "monitoring is up, the monitoring database needs a password",
        ),
        (
            "https://hooks.example.org/services/monitoring/updates",
            "microservices, services and monitoring updates",
        ),
        (
            (
                "mailtos://ada:Sup3rS3cretPw@example.org?"
                "smtp=smtp-relay.example.org&to=ada.lovelace@example.org"
            ),
            "ada and ada.lovelace@example.org, by smtp-relay.example.org of example.org",
        ),
        (
            "ntfys://bot:Sup3rS3cretPw@ntfy.example.org:8443/backups",
            "bot sends backups to ntfy.example.org:8443",
        ),
        (
            "gotify://hostname-of-mine.lan:8080/updates/Abcdefghi123456",
            "hostname-of-mine.lan:8080/updates",
        ),
        (
            "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general-talk",
            "general-talk, #general-talk",
        ),
        (
            "matrix://bot:Sup3rS3cretPw@matrix.example.org/#operations",
            "bot in #operations of matrix.example.org",
        ),
        (
            "json://localhost:8080/path/to/monitoring2026",
            "localhost:8080 has path, to and monitoring2026",
        ),
        (
            "https://staging:staging1@hooks.example.org/",
            "staging12 is not staging, and Xstaging1 neither",
        ),
    ],
)
def test_hosts_users_and_ordinary_words_of_an_address_are_kept(address: str, text: str) -> None:
    assert redact(address, text) == text


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        (
            "mailtos://ada:Sup3rS3cretPw@example.org?smtp=x.example.org&to=ada@example.org",
            ["Sup3rS3cretPw"],
        ),
        (
            "mailtos://ada:p%40ss%2Fw0rd%21x@example.org?to=ada@example.org",
            ["p@ss/w0rd!x", "p%40ss%2Fw0rd%21x"],
        ),
        ("mailtos://ada:pa[ss]w0rd1234@example.org?to=ada@example.org", ["pa[ss]w0rd1234"]),
        ("mailtos://ada:pa/ssw0rd1234@example.org?to=ada@example.org", ["pa/ssw0rd1234"]),
        ("mailtos://ada:Sup3r#S3cretPw9@example.org?to=ada@example.org", ["Sup3r#S3cretPw9"]),
        ("MAILTO://ada:#Sup3r@S3cret#9@example.org/ann@example.org", ["#Sup3r@S3cret#9"]),
        ("mailto://ada:Sup3r#S3cret/Pw9@example.org", ["Sup3r#S3cret/Pw9"]),
        (
            "mailto://monitoring:password@smtp.example.org",
            ["monitoring:password", "bW9uaXRvcmluZzpwYXNzd29yZ"],
        ),
        ("mailto://ada:staging1@smtp.example.org", ["staging1"]),
        ("https://example.org/hook?token=abcdefghijkl", ["abcdefghijkl"]),
        (
            "https://example.org/hook?v=1&sig=ab%2Bcd%2Fefgh1234",
            ["ab+cd/efgh1234", "ab%2Bcd%2Fefgh1234"],
        ),
        ("https://example.org/hook?api_key=Monday-morning", ["Monday-morning"]),
        (f"https://hc-ping.com/{UUID}", [UUID]),
        ("https://ghp_a1b2c3d4e5f6g7h8i9j0@git.example.org/x", ["ghp_a1b2c3d4e5f6g7h8i9j0"]),
        ("tgram://123456789:AAEabcdefghijklmnopqrstuvw01/12345", ["AAEabcdefghijklmnopqrstuvw01"]),
        (
            "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
            ["T1JJ3T3L2", "A1BRTD4JD", "TIiajkdnlazkcOXrIdevi7FQ"],
        ),
        (
            "discord://735264827364827364/abcDEF-_ghiJKL123",
            ["735264827364827364", "abcDEF-_ghiJKL123"],
        ),
        (
            "pover://uQiRzpo4DXghDmr9QzzfQu27c@azGDORePK8gMaC0Q",
            ["uQiRzpo4DXghDmr9QzzfQu27c", "azGDORePK8gMaC0Q"],
        ),
        ("matrix://bot:Sup3rS3cretPw@matrix.example.org/#operations", ["Sup3rS3cretPw"]),
        ("gotify://hostname.lan/Abcdefghi123456", ["Abcdefghi123456"]),
    ],
)
def test_passwords_and_tokens_of_an_address_are_redacted(address: str, secrets: list[str]) -> None:
    for secret in secrets:
        assert redact(address, f"It is {secret}, they say") == f"It is {MARK}, they say"
    assert redact(address, f"send to {address} now") == f"send to {MARK} now"


WORDS = st.text(alphabet=string.ascii_lowercase, min_size=2, max_size=12)
HOSTS = st.lists(WORDS, min_size=1, max_size=3).map(".".join)
PASSWORDS = st.text(
    alphabet=string.ascii_letters + string.digits + "!$%&@/:?#[]+ ü", min_size=12, max_size=30
).filter(lambda text: re.search("[0-9]", text) is not None)
TOKENS = st.one_of(
    st.uuids().map(str),
    st.text(alphabet="0123456789abcdef", min_size=32, max_size=32).filter(
        lambda text: not text.isdigit()
    ),
    st.text(alphabet=string.ascii_letters + string.digits, min_size=24, max_size=40),
)


@scaled_settings(200)
@given(password=PASSWORDS.filter(lambda text: not set(text) & set("%/?:[]@ ü")))
def test_a_password_written_plainly_in_a_mail_address_is_redacted(password: str) -> None:
    address = f"mailtos://ada:{password}@gmail.com?to=ann@example.org"
    assert parse_smtp_url(address).password == password
    assert redact(address, f"x {password} x") == f"x {MARK} x"


@scaled_settings(200)
@given(
    scheme=st.sampled_from(["https", "mailtos", "ntfys", "gotify", "slack"]),
    user=WORDS,
    password=PASSWORDS,
    host=HOSTS,
    path=st.lists(WORDS, max_size=3),
    token=TOKENS,
)
def test_of_any_address_only_the_secrets_are_redacted(
    scheme: str, user: str, password: str, host: str, path: list[str], token: str
) -> None:
    words = " ".join([user, host, *path])
    address = (
        f"{scheme}://{user}:{quote(password, safe='')}@{host}/{'/'.join([*path, token])}?"
        f"to={user}@{host}"
    )
    secrets = Secrets()
    secrets.add_address(address, whole=True)
    assert secrets.redact(words) == words
    for secret in (password, token, quote(password, safe="")):
        assert secrets.redact(f"x{secret}x") == f"x{MARK}x"


def test_a_plain_password_is_redacted_as_a_word_even_in_json() -> None:
    secrets = Secrets()
    secrets.add_address("mailto://ada:staging1@smtp.example.org")
    assert (
        secrets.redact('{"text": "one\\nstaging1\\u3002staging1"}')
        == f'{{"text": "one\\n{MARK}\\u3002{MARK}"}}'
    )


def test_headers_and_variables_named_like_a_secret_are_redacted() -> None:
    secrets = Secrets()
    secrets.add_headers("x-tenant=operations,authorization=Bearer%20Sup3rS3cretToken")
    secrets.add_environment(
        {"WEATHER_TOKEN": "abcdefgh1234", "TZ": "Europe/Berlin", "KEY_FILE": "/run/secrets/key"}
    )
    text = "operations, Europe/Berlin, /run/secrets/key"
    assert secrets.redact(text) == text
    assert secrets.redact("Sup3rS3cretToken abcdefgh1234") == f"{MARK} {MARK}"


def test_a_key_that_begins_with_a_slash_and_an_address_with_a_password_are_redacted(
    tmp_path: Path,
) -> None:
    file = tmp_path / "x7Qz81Rk93"
    file.touch()
    key, address = "/9j4AAQSkZJRgABAQEAYABgAAD+Q==", "postgres://ada:Sup3rS3cretPw@db/x"
    secrets = Secrets()
    secrets.add_environment({"API_KEY": key, "DATABASE_URL": address, "KEY_FILE": str(file)})
    text = f"{key}, {address}, {file}"
    assert secrets.redact(text) == f"{MARK}, postgres://{MARK}@db/x, {file}"
    assert secrets.redact("Sup3rS3cretPw") == MARK


def test_private_values_of_an_apprise_plugin_are_secrets() -> None:
    apprise = pytest.importorskip("apprise")
    from daemon.delivery.channels.apprise import private_values

    plugin = apprise.Apprise.instantiate(
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general"
    )
    assert set(private_values(plugin)) == {"T1JJ3T3L2", "A1BRTD4JD", "TIiajkdnlazkcOXrIdevi7FQ"}
    plugin = apprise.Apprise.instantiate(
        "mailtos://ada:Sup3r%21S3cret@example.org?to=ada.lovelace@example.org"
    )
    assert private_values(plugin) == ["Sup3r!S3cret"]


def test_secrets_are_counted_and_passwords_that_are_words_are_named(tmp_path: Path) -> None:
    urls = [
        "mailtos://ada:Sup3rS3cretPw@example.org?token=abcdefgh1",
        f"https://hc-ping.com/{UUID}",
    ]
    assert count_secrets(urls) == {"password": 1, "token": 2}
    namings = [
        has_ordinary_password(f"mailto://ada:{word}@x")
        for word in ("monitoring", "hunter2", "hunter2hunter2")
    ]
    assert namings == [True, True, False]
    assert parts_of_address("no address") == []
    config = tmp_path / "config.toml"
    config.write_text(
        '[targets.mail]\nkind = "apprise"\nurl = "mailto://ada:monitoring@example.org"\n'
    )
    config.chmod(0o600)
    (tmp_path / "routines").mkdir()
    (tmp_path / "policy.toml").write_text("version = 1\n")
    notes = examine(config, env={}, state=tmp_path / "state").notes
    assert any("targets.mail: its password is an ordinary word" in note for note in notes), notes


CONFIG = """
[targets.mail]
kind = "apprise"
url = "mailtos://ada:Sup3rS3cretPw@mailhub.lan?smtp=smtp.mailhub.lan&to=ada.lovelace@mailhub.lan"
[providers.s]
kind = "scripted"
replies = ["mailhub.lan is up, ada wrote to ada.lovelace@mailhub.lan; the password is Sup3rS3cretPw, they say."]
"""  # noqa: E501


@pytest.mark.slow
async def test_a_report_names_host_and_user_of_a_mail_address_and_not_its_password(home):  # type: ignore[no-untyped-def]
    home.write("config.toml", CONFIG)
    home.routine(
        "post",
        '[run]\nprovider = "s"\nprompt = "x"\n[[deliver]]\nto = "file"\npath = "report.md"\n',
    )
    await home.start()
    ran = await home.agentctl("run", "post", "--json")
    await home.wait_for_log("delivery.arrived")
    sentence = (
        f"mailhub.lan is up, ada wrote to ada.lovelace@mailhub.lan; the password is {MARK}, they "
        "say."
    )
    assert ran.json["report"] == sentence
    assert sentence in (home.workspace / "report.md").read_text()
    doctor = await home.agentctl("doctor")
    assert "kept out of reports, from addresses: 1 password" in " ".join(doctor.out.split())


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("postgresql://u@h/db?require_auth=password", "no password was found"),
        (
            "https://hooks.example.org/x?key=monitoring&code=production",
            "monitoring of production is up",
        ),
    ],
)
def test_an_ordinary_word_in_a_query_stays_in_reports(address: str, text: str) -> None:
    assert redact(address, text) == text


def test_an_ordinary_word_in_the_environment_of_a_server_stays_in_reports() -> None:
    secrets = Secrets()
    secrets.add_environment(
        {"AUTH_MODE": "disabled", "API_KEY_HEADER": "Authorization", "API_KEY": "sk-4f9x27Qz81"}
    )
    text = "3 services are disabled; the Authorization header is standard"
    assert secrets.redact(f"{text} sk-4f9x27Qz81") == f"{text} {MARK}"


@pytest.mark.parametrize("first", ["key", "word"])
def test_a_key_that_is_also_part_of_an_address_is_redacted_everywhere(first: str) -> None:
    secrets = Secrets()
    for add in (
        (secrets.add, secrets.add_word) if first == "key" else (secrets.add_word, secrets.add)
    ):
        add("staging1234")
    assert secrets.redact("xstaging1234y") == f"x{MARK}y"
