"""`agentd target test`: a message through the real channel of each kind of target, and what to do
where it is not taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from pathlib import Path

import pytest

from daemon.app.commands.target import TargetTest, send_test_message
from daemon.definitions.config.loading import load_config
from daemon.errors import ConfigError, NotFound
from tests.delivery.receivers import Mailbox, Receiver


async def message(folder: Path, config: str, name: str, **env: str) -> TargetTest:
    """Send a test message to a target of this config; the state is the folder `state`."""
    file = folder / "config.toml"
    file.write_text(config)
    file.chmod(0o600)
    return await asyncio.to_thread(
        send_test_message, load_config(file), name, state=folder / "state", env=env
    )


def secret_file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    (folder / name).chmod(0o600)
    return name


async def test_a_mailbox_gets_a_test_mail(tmp_path: Path) -> None:
    async with Mailbox().open() as box:
        secret_file(tmp_path, "mail.url", box.url)
        # an address that another target lacks is no reason to say nothing of this one
        config = """
            [targets.mail]
            kind = "mail"
            url_file = "mail.url"
            [targets.other]
            kind = "webhook"
            url_file = "nowhere.url"
        """
        result = await message(tmp_path, config, "mail")
    assert (result.receipt, result.error) == ("127.0.0.1 took it", "")
    [mail] = box.mails
    assert mail["subject"] == f"[{os.uname().nodename}] A test of the target mail"
    assert 'to = "mail"' in mail.get_body(("plain",)).get_content()


async def test_a_refused_password_names_app_passwords_and_hides_the_password(
    tmp_path: Path,
) -> None:
    async with Mailbox().open(user="ada", password="right-9fK2xQ7v") as box:
        url = box.url.replace("//", "//ada:wrong-9fK2xQ7v@", 1).replace("ada:right-9fK2xQ7v@", "")
        secret_file(tmp_path, "mail.url", url)
        config = '[targets.mail]\nkind = "mail"\nurl_file = "mail.url"\n'
        result = await message(tmp_path, config, "mail")
    assert " 535 " in result.error
    assert "app password" in result.advice and str(tmp_path / "mail.url") in result.advice
    assert "9fK2xQ7v" not in result.text
    assert not box.mails


@pytest.mark.parametrize("kind", ["webhook", "ping"])
async def test_a_server_is_posted_a_test_message(tmp_path: Path, kind: str) -> None:
    async with Receiver().open() as server:
        config = f'[targets.ops]\nkind = "{kind}"\nurl = "{server.url}"\n'
        result = await message(tmp_path, config, "ops")
    assert result.receipt.startswith("204")
    [post] = server.posts
    assert b"A test of the target ops" in post.body


async def test_a_chat_is_sent_a_test_message(tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    async with Receiver(200).open() as server:
        config = f'[targets.chat]\nkind = "apprise"\nurl = "json://127.0.0.1:{server.port}/x"\n'
        result = await message(tmp_path, config, "chat")
    assert "took it" in result.receipt
    assert json.loads(server.posts[0].body)["title"] == "A test of the target chat"


async def test_the_test_of_a_file_replaces_no_report(tmp_path: Path) -> None:
    report = tmp_path / "state/workspace/reports/latest.md"
    report.parent.mkdir(parents=True)
    report.write_text("yesterday")
    config = '[targets.latest]\nkind = "file"\npath = "reports/latest.md"\n'
    for _ in range(2):
        result = await message(tmp_path, config, "latest")
        assert result.receipt == str(report.with_name("target-test.md"))
    assert report.read_text() == "yesterday"
    assert "A test of the target latest" in report.with_name("target-test.md").read_text()
    assert (await message(tmp_path, "", "file")).receipt == result.receipt


async def test_the_log_of_the_daemon_gets_a_line_and_is_not_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "state/logs/agentd.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(f'{{"event":"{"x" * 1_200_000}"}}\n')
    result = await message(tmp_path, "[log]\nmax_mb = 1\n", "log")
    assert result.receipt == "the daemon's log"
    line = json.loads(log.read_text().splitlines()[1])
    assert (line["event"], line["title"]) == ("report.written", "A test of the target log")
    assert [path.name for path in log.parent.iterdir()] == ["agentd.jsonl"]
    result = await message(tmp_path, '[log]\nlevel = "error"\n', "log")
    assert "keeps reports of successful runs out of the log" in result.error


async def test_a_desktop_without_a_session_says_so(tmp_path: Path) -> None:
    pytest.importorskip("dbus_fast")
    nowhere = f"unix:path={tmp_path}/no-bus"
    result = await message(tmp_path, "", "desktop", DBUS_SESSION_BUS_ADDRESS=nowhere)
    assert result.error and "desktop session" in result.advice


@pytest.mark.parametrize("kind", ["mail", "webhook"])
async def test_a_closed_port_is_named(tmp_path: Path, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = {
        "mail": f"mailto://127.0.0.1:{port}?from=a@example.org&to=b@example.org",
        "webhook": f"http://127.0.0.1:{port}/x",
    }[kind]
    result = await message(tmp_path, f'[targets.ops]\nkind = "{kind}"\nurl = "{url}"\n', "ops")
    assert "nothing listens there" in result.advice


@pytest.mark.parametrize(
    ("kind", "url", "advice"),
    [
        ("webhook", "HOOK", "the service does not take it there"),
        ("ping", "HOOK", "the service does not take it there"),
        ("webhook", "TLS", "the server's certificate is not trusted here"),
        ("mail", "TLS-MAIL", "the server's certificate is not trusted here"),
        ("mail", "PLAIN-MAIL", "look at the port and mode="),
    ],
)
async def test_the_cause_of_a_failure_decides_the_advice(
    tmp_path: Path, certificate: tuple[Path, Path], kind: str, url: str, advice: str
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with (
        Receiver(404).open() as hook,
        Mailbox().open() as box,
        Mailbox().open(tls=context, mode="ssl") as tls_box,
    ):
        urls = {
            "HOOK": hook.url,
            "TLS": f"https://127.0.0.1:{tls_box.port}/x",
            "TLS-MAIL": tls_box.url.replace("mode=insecure", "mode=ssl"),
            "PLAIN-MAIL": box.url.replace("mode=insecure", "mode=starttls"),
        }
        address = urls.get(url, url)
        config = f'[targets.ops]\nkind = "{kind}"\nurl = "{address}"\n'
        result = await message(tmp_path, config, "ops")
    assert result.advice.startswith(advice), result.text


async def test_an_unknown_target_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no target 'fil'; did you mean file\?; known are desktop"):
        await message(tmp_path, "", "fil")


async def test_a_missing_address_is_a_fault_of_the_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"targets\.mail\.url_file: no such file"):
        await message(tmp_path, '[targets.mail]\nkind = "mail"\nurl_file = "no.url"\n', "mail")


async def test_agentctl_tests_a_target_with_and_without_a_daemon(home) -> None:  # type: ignore[no-untyped-def]
    async with Receiver(500, 204).open() as server:
        home.write("config.toml", f'[targets.ops]\nkind = "webhook"\nurl = "{server.url}"\n')
        test_result = await home.agentd("target", "test", "ops")
        assert test_result.code == 1 and "took no test message: " in test_result.out
        await home.start()
        result = await home.agentctl("target", "test", "ops", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["receipt"].startswith("204")
    unknown = await home.agentctl("target", "test", "nobody")
    assert unknown.code == 4 and "known are desktop, file, log, ops" in unknown.err
    assert (await home.agentctl("target", "tset", "ops")).code == 2
