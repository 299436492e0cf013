"""The target step of `agentd setup`: the address it makes, the test message, what is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.setup.targets import check_answer, make_address
from daemon.definitions.config.loading import load_config
from daemon.delivery.channels.mail import parse_smtp_url
from tests.acceptance.story import Home
from tests.app.setup.terminal import terminal
from tests.app.setup.test_setup import contents, setup
from tests.delivery.receivers import Mailbox, Receiver

SHIPPED = Path(__file__).parents[3] / "config.toml"
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
USER = st.from_regex(r"[a-z0-9+_-]{1,12}(@[a-z]{1,8}\.org)?", fullmatch=True)


@pytest.fixture
def site(tmp_path: Path) -> Home:
    """A home with the shipped config.toml, and no daemon."""
    home = Home(tmp_path)
    shutil.copy(SHIPPED, home.folder / "config.toml")
    return home


@given(USER, PRINTABLE, st.sampled_from(["", ":587", ":465", ":2525"]))
def test_any_account_and_password_come_back_from_the_address(
    user: str, secret: str, port: str
) -> None:
    answers = {"to": "ada+x@example.org", "server": f"smtp.example.org{port}", "user": user}
    assert check_answer("smtp", **answers, secret=secret) == ""
    address = parse_smtp_url(make_address("smtp", hostname="box", **answers, secret=secret))
    assert (address.user, address.password) == (user, secret)
    assert address.server == "smtp.example.org"
    assert (address.mode, address.port) == (
        "ssl" if port == ":465" else "starttls",
        int(port[1:] or 587),
    )
    assert [str(recipient) for recipient in address.recipients] == ["ada+x@example.org"]


def test_gmail_takes_an_app_password_as_google_shows_it() -> None:
    answers = {"to": "ada@example.org", "user": "ada@gmail.com", "secret": "abcd efgh ijkl mnop"}
    assert check_answer("gmail", **answers) == ""
    address = parse_smtp_url(make_address("gmail", hostname="box", **answers))
    assert (address.server, address.port, address.mode) == ("smtp.gmail.com", 587, "starttls")
    assert (address.user, address.password) == ("ada@gmail.com", "abcdefghijklmnop")


@pytest.mark.parametrize(
    ("kind", "answers", "saying"),
    [
        ("relay", {"to": "ada"}, "no mail address"),
        ("relay", {"to": "a@b.org,c@d.org"}, "no mail address"),
        ("relay", {"to": "a@b.org&bcc=c@d.org"}, "no mail address"),
        ("relay", {"to": "a@b.org", "server": "host:99999"}, "no server"),
        ("relay", {"to": "a@b.org", "server": "host/x@y"}, "no server"),
        ("smtp", {"to": "a@b.org", "server": "h", "user": "a b"}, "no account"),
        ("smtp", {"to": "a@b.org", "server": "h", "user": "a", "secret": "pä"}, "a character"),
        ("gmail", {"to": "a@b.org", "user": "ada", "secret": "x"}, "no mail address"),
        ("ntfy", {"to": "a/b"}, "no topic"),
        ("telegram", {"to": "x", "secret": "1:a"}, "no chat"),
        ("telegram", {"to": "1", "secret": "a"}, "the token of a bot"),
        ("webhook", {"to": "example.org"}, "no URL"),
    ],
)
def test_an_answer_that_cannot_be_used_is_named(
    kind: str, answers: dict[str, str], saying: str
) -> None:
    problem = check_answer(kind, **answers)
    assert saying in problem and "\n" not in problem


async def test_a_relay_gets_a_test_mail_and_its_address_a_file(site: Home) -> None:
    before = (site.folder / "config.toml").read_text()
    async with Mailbox().open() as box:
        server = box.url.partition("//")[2].partition("?")[0].rpartition("@")[2].strip("/")
        flags = ("--target", "relay", "--to", "ada@example.org", "--smtp", server)
        result = await setup(site, *flags)
        again = await setup(site, *flags)
    assert result.code == 0, result.err
    assert "mail (mail) took a test message" in result.out
    [mail] = box.mails
    assert mail["to"] == "ada@example.org"
    assert again.code == 5 and "[targets.mail] already; --replace overwrites it" in again.err
    file = site.folder / "mail.url"
    assert file.stat().st_mode & 0o777 == 0o600
    config = load_config(site.folder / "config.toml")
    assert (config.targets["mail"].url_file, config.provider) == ("mail.url", "offline")
    after = (site.folder / "config.toml").read_text()
    assert after.startswith(before.rstrip())
    test_result = await site.agentd("target", "test", "mail")
    assert test_result.code == 1, "the mailbox is closed by now"


async def test_a_target_that_takes_nothing_is_not_written(site: Home) -> None:
    before = contents(site)
    async with Receiver(500, 500).open() as server:
        result = await setup(site, "--target", "webhook", "--to", server.url)
        assert result.code == 1
        assert "took no test message" in result.err and "nothing was changed" in result.err
        assert contents(site) == before
        flags = ("--target", "webhook", "--to", server.url, "--target-name", "box", "--no-test")
        result = await setup(site, *flags)
    assert result.code == 0, result.err
    assert load_config(site.folder / "config.toml").targets["box"].url_file == "box.url"
    assert len(server.posts) == 1


@pytest.mark.parametrize(
    ("flags", "saying"),
    [
        (("--target", "relay"), "--to is missing"),
        (("--target", "relay", "--to", "a@b.org"), "--smtp is missing"),
        (("--target", "gmail", "--to", "a@b.org"), "--user is missing"),
        (("--target", "telegram", "--to", "1"), "--secret-file FILE or --secret-stdin is missing"),
        (("--target", "webhook", "--to", "http://x/", "--target-name", "file"), "is no name"),
        (("--routine", "morning"), "--when is missing"),
    ],
)
async def test_a_missing_answer_of_a_target_names_its_flag(
    site: Home, flags: tuple[str, ...], saying: str
) -> None:
    before = contents(site)
    result = await setup(site, *flags)
    assert result.code == 2 and saying in result.err
    assert contents(site) == before


async def test_a_failed_test_message_names_what_was_said_and_no_table_that_is_not_there(
    site: Home, unused_address: str
) -> None:
    flags = ("--target", "relay", "--to", "ada@example.org", "--smtp", unused_address)
    result = await setup(site, *flags, "--target-name", "mail2")
    assert (result.code, result.err.count("\n")) == (1, 1)
    fault = f"; nothing listens there: look at --smtp {unused_address}; --no-test writes it"
    assert fault in result.err
    assert "[targets." not in result.err
    url = f"http://{unused_address}/hook-of-ada"
    result = await setup(site, "--target", "webhook", "--to", url)
    assert "nothing listens there: look at --to; --no-test" in result.err
    assert "hook-of-ada" not in result.err


async def test_a_password_is_never_shown(site: Home) -> None:
    secret = "canary-9fK2xQ7vLm"
    site.write("password", secret)
    async with Mailbox().open() as box:
        server = box.url.partition("//")[2].partition("?")[0].rpartition("@")[2].strip("/")
        flags = ("--target", "smtp", "--to", "ada@example.org", "--smtp", server)
        result = await setup(site, *flags, "--user", "ada", "--secret-file", "password")
    assert result.code == 1, "the mailbox has no STARTTLS"
    assert f"look at --smtp {server}: port 465 begins encrypted" in result.err
    assert secret not in result.out + result.err


async def test_a_target_and_a_routine_are_written_by_flags(site: Home) -> None:
    flags = ("--routine", "morning", "--when", "weekdays at 9am", "--prompt", "Say hello.")
    async with Receiver().open() as server:
        result = await setup(site, "--target", "webhook", "--to", server.url, *flags)
    assert result.code == 0, result.err
    text = (site.folder / "routines/morning.toml").read_text()
    assert "Say hello." in text and 'to = "ops"' in text and 'to = "file"' in text


async def test_a_target_is_written_into_a_config_that_begins_with_a_mark_of_windows(
    site: Home,
) -> None:
    config = site.folder / "config.toml"
    config.write_text("\ufeff" + config.read_text("utf-8"), "utf-8")
    flags = ("--target", "webhook", "--to", "http://127.0.0.1/", "--no-test")
    result = await setup(site, *flags)
    assert result.code == 0, result.err
    assert "ops" in load_config(config).targets


async def test_a_target_is_set_up_by_questions(site: Home) -> None:
    async with Receiver().open() as server:
        flags = ("setup", "--target", "webhook", *site.places)
        async with terminal(*flags, env=site.env, cwd=site.folder) as screen:
            await screen.shows("The URL:")
            screen.type(f"{server.url}\n")
            await screen.shows("ops (webhook) took a test message: 204")
            assert await screen.end() == 0
    assert "ops" in load_config(site.folder / "config.toml").targets


async def test_leaving_a_question_of_the_target_changes_nothing(site: Home) -> None:
    before = contents(site)
    for kind, questions in {"gmail": 3, "telegram": 2}.items():
        for question in range(questions):
            flags = ("setup", "--target", kind, *site.places)
            async with terminal(*flags, env=site.env, cwd=site.folder) as screen:
                for _ in range(question):
                    await screen.shows(": ")
                    screen.type("ada@gmail.com\n")
                    await screen.shows("\n")
                await screen.shows(": ")
                screen.type("\x03")
                await screen.shows("stopped: nothing was changed")
                assert await screen.end() == 130
    assert contents(site) == before
