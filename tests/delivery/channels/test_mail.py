"""Mail by SMTP, against a real mail server."""

import asyncio
import inspect
import shutil
import smtplib
import ssl
import subprocess
from typing import ClassVar

import pytest

from daemon.delivery.channels.mail import MailChannel, is_mail, parse_mail_address
from daemon.errors import DeliveryFailed
from daemon.system.http_client import trusted_context
from daemon.telemetry.redaction import Secrets
from tests.delivery.receivers import Mailbox
from tests.delivery.wire import Wire


def channel(url):
    return MailChannel(url, secrets=Secrets())


async def test_a_report_comes_as_mail_in_html_and_in_words(delivery):
    async with Mailbox().open() as box:
        receipt = await channel(box.url).send(
            delivery("# Morning\n\n**All** is well: <b>&</b> 中\n\n- one\n- two")
        )
    [mail] = box.mails
    assert mail["subject"] == "Morning" and mail["to"] == "ada@example.org"
    page = mail.get_body(("html",)).get_content()
    assert (
        "<strong>All</strong>" in page
        and "<li>one</li>" in page
        and "&lt;b&gt;" in page
        and "中" in page
    )
    words = mail.get_body(("plain",)).get_content()
    assert (
        "All is well" in words
        and "**" not in words
        and "scheduled for 2026-11-20 08:30 CET" in words
    )
    assert receipt.detail == "E-Mail took it"


async def test_mail_in_words_only_if_the_url_says_so(delivery):
    async with Mailbox().open() as box:
        await channel(f"{box.url}&format=text").send(
            delivery("## Disks\n\n**All** is [well](https://example.org).")
        )
    words = box.mails[0].get_content().replace("\r\n", "\n")
    assert words.startswith(
        "Run 01JAAAAAAAAAAAAAAAAAAAAAAA, scheduled for 2026-11-20 08:30 CET\n\nDisks\n-----\n\n"
    )
    assert words.endswith("All is well (https://example.org).\n")


@pytest.mark.parametrize(
    ("answer", "is_tried_again"), [("451 try again later", True), ("554 no such thing", False)]
)
async def test_later_is_tried_again_and_never_is_not_and_the_reason_is_told(
    delivery, answer, is_tried_again
):
    async with Mailbox(answer).open() as box:
        with pytest.raises(DeliveryFailed, match=answer) as caught:
            await channel(box.url).send(delivery())
    assert caught.value.retry is is_tried_again and not box.mails


async def test_a_report_too_long_for_a_mail_is_attached_whole(delivery):
    text = "\n\n".join(f"Paragraph {number} " + "word " * 100 for number in range(100))
    async with Mailbox().open() as box:
        await channel(box.url).send(delivery(text))
    [mail] = box.mails
    [attached] = list(mail.iter_attachments())
    assert attached.get_filename() == "daily-report.md"
    assert text.split() == attached.get_content().split()[-len(text.split()) :]
    assert "The whole report is attached." in mail.get_body(("html",)).get_content()
    assert len(mail.get_body(("html",)).get_content()) < 5000


async def test_each_recipient_gets_one_mail_and_nobody_gets_a_second_one_when_it_is_sent_again(
    delivery,
):
    async with Mailbox("250 taken", "451 later").open() as box:
        url = box.url.replace("to=", "to=bob%40example.org,")
        mails = channel(f"{url}&cc=Cleo%20<cleo@example.org>&bcc=dan@example.org&reply=ops@x.org")
        with pytest.raises(DeliveryFailed):
            await mails.send(delivery())
        receipt = await mails.send(delivery())
    assert [recipients for recipients, _ in box.taken] == [
        [f"{name}@example.org"] for name in ("bob", "cleo", "dan", "ada")
    ]
    assert [mail["to"] for mail in box.mails] == ["bob@example.org"] * 3 + ["ada@example.org"]
    assert {mail["cc"] for mail in box.mails} == {
        "Cleo <cleo@example.org>"
    } and "bcc" not in box.mails[0]
    assert (
        box.mails[0]["reply-to"] == "ops@x.org"
        and receipt.detail == "E-Mail took it for 4 recipients"
    )


async def test_a_mail_that_is_sent_again_has_the_same_id(delivery):
    async with Mailbox().open() as box:
        for _ in range(2):
            await channel(box.url).send(delivery())
    first, second = box.mails
    assert (
        first["message-id"]
        == second["message-id"]
        == "<01JAAAAAAAAAAAAAAAAAAAAAAA.1.0@example.org>"
    )


async def test_odd_characters_and_more_headers_arrive(delivery):
    async with Mailbox().open() as box:
        await channel(f"{box.url}&name=Täglich&%2BX-Team=Ops").send(
            delivery("# A\tb \ud800 — 中\n\n\ud800 and \x07")
        )
    [mail] = box.mails
    assert (
        mail["subject"] == "A b ? — 中"
        and mail["x-team"] == "Ops"
        and mail["auto-submitted"] == "auto-generated"
    )
    assert mail["from"].addresses[0].display_name == "Täglich"


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl: apt-get install openssl")
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=box"]
    names = [
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        tmp_path / "key.pem",
        "-out",
        tmp_path / "cert.pem",
    ]
    subprocess.run(["openssl", *made, *names], check=True, capture_output=True)
    return tmp_path / "cert.pem", tmp_path / "key.pem"


@pytest.mark.parametrize("mode", ["ssl", "starttls"])
async def test_by_tls_only_to_a_server_whose_certificate_is_sound(
    delivery, certificate, monkeypatch, mode
):
    file, key = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, key)
    async with Mailbox().open(
        tls=context, mode=mode, user="ada@x.org", password="s3cret/password"
    ) as box:
        account = "ada%40x.org:s3cret%2Fpassword"
        url = f"mailtos://{account}@127.0.0.1:{box.port}?from=agentd@example.org&to=ada@example.org&mode={mode}"
        with pytest.raises(DeliveryFailed, match="certificate verify failed") as caught:
            await channel(url).send(delivery())
        assert caught.value.retry and not box.mails
        await channel(f"{url}&verify=no").send(delivery())
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        trusted_context.cache_clear()
        await channel(url).send(delivery())
        with pytest.raises(DeliveryFailed, match="535") as caught:
            await channel(url.replace("s3cret", "wrong")).send(delivery())
        assert caught.value.retry, "somebody may put the password right"
    assert len(box.mails) == 2
    trusted_context.cache_clear()


async def test_a_server_without_tls_is_not_sent_the_password(delivery):
    async with Mailbox().open() as box:
        with pytest.raises(DeliveryFailed, match=r"STARTTLS.*mode=insecure"):
            await channel(box.url.replace("insecure", "starttls")).send(delivery())
    assert not box.mails


async def test_a_server_that_says_nothing_is_given_up_and_tried_again(delivery):
    async with Mailbox().open() as box, Wire(box.port).laid() as wire:
        wire.mode = "frozen"
        with pytest.raises(DeliveryFailed, match="timed out") as caught:
            await channel(box.url.replace(str(box.port), str(wire.port)) + "&cto=0.2").send(
                delivery()
            )
    assert caught.value.retry


@pytest.mark.parametrize(
    ("mode", "greeting"), [("insecure", b"220 hello\r\n"), ("insecure", b"220 hel"), ("ssl", b"")]
)
async def test_who_gives_up_a_mail_does_not_leave_its_thread_behind(delivery, mode, greeting):
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def say_hello_and_no_more(reader, writer):
        writer.write(greeting)
        if greeting.endswith(b"\n"):
            await reader.readline()
        arrived.set()
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(say_hello_and_no_more, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"mailto://127.0.0.1:{port}?from=agentd@example.org&cto=60&mode={mode}"
    sending = asyncio.create_task(channel(url).send(delivery()))
    await asyncio.wait_for(arrived.wait(), 30)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await asyncio.wait_for(gone.wait(), 30)
    server.close()


def test_smtplib_makes_its_socket_where_mail_py_looks_for_it():
    for connection in (smtplib.SMTP, smtplib.SMTP_SSL):
        parameters = list(inspect.signature(connection._get_socket).parameters)
        assert parameters == ["self", "host", "port", "timeout"], (
            f"{connection.__name__}._get_socket of this Python takes {parameters}: mail.py relies "
            "on it to end a"
            " connection whose server never finishes its greeting"
        )


async def test_a_refused_recipient_does_not_keep_the_others_from_their_mail(delivery):
    class Choosy(Mailbox):
        refusals: ClassVar[dict[str, list[str]]] = {
            "gone@example.org": ["550 no such user"],
            "full@example.org": ["452 full"],
        }

        async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802 - its name is aiosmtpd's
            if answers := self.refusals.get(address):
                return answers.pop(0)
            envelope.rcpt_tos.append(address)
            return "250 OK"

    async with Choosy().open() as box:
        others = "to=gone%40example.org,full%40example.org,"
        mails, report = channel(box.url.replace("to=", others)), delivery()
        with pytest.raises(DeliveryFailed, match="452 full") as caught:
            await mails.send(report)
        assert caught.value.retry
        assert [recipients for recipients, _ in box.taken] == [["ada@example.org"]]
        with pytest.raises(DeliveryFailed, match="550 no such user") as caught:
            await mails.send(report)
        assert not caught.value.retry
    assert [recipients for recipients, _ in box.taken] == [
        ["ada@example.org"],
        ["full@example.org"],
    ]


async def test_a_report_with_hundreds_of_marks_inside_each_other_is_sent(delivery):
    report = "*(a " * 400 + " b)*" * 400
    async with Mailbox().open() as box:
        await channel(box.url).send(delivery(report))
    assert box.mails[0].get_body(("plain",)).get_content().count("(a") == 400


async def test_a_secret_in_the_url_is_in_no_error(delivery):
    secrets = Secrets()
    async with Mailbox("535 no: hunter2hunter2").open() as box:
        url = box.url.replace("//", "//ada:hunter2hunter2@") + "&user="
        with pytest.raises(DeliveryFailed) as caught:
            await MailChannel(url, secrets=secrets).send(delivery())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mailto://example.org", "lacks a sender"),
        ("mailto://?to=ada@example.org", "names no server"),
        ("mailto://ada:hunter2@example.org:port", "its port"),
        ("mailto://ada:hunter2/x@example.org", "its port"),
        ("mailtos://ada:hunter2@example.org?mode=tls", "mode=tls is none of"),
        ("mailtos://ada:hunter2@example.org?to=ada", "to= has what is no mail address"),
        ("mailtos://ada:hunter2@example.org?cto=soon", "cto="),
        ("mailtos://ada:hunter2ä@example.org", "only of ASCII"),
        ("https://ada:hunter2@example.org", "begins neither with"),
        ("mailtos://ada:hunter2@example.org?+Subject=x", "no header that may be added"),
        ("mailtos://ada:hunter2@example.org?+X%20Y=x", "no header that may be added"),
    ],
)
def test_an_address_that_cannot_be_used_says_why_and_is_not_shown(url, problem):
    with pytest.raises(DeliveryFailed, match=problem) as caught:
        parse_mail_address(url)
    assert not caught.value.retry and "hunter2" not in str(caught.value)


ADDRESSES = [
    "mailto://127.0.0.1:2525/?from=agentd@example.org&to=ada@example.org&mode=insecure",
    "mailtos://ada:s3cret@gmail.com",
    "mailtos://ada%40gmail.com:s3cret@gmail.com?to=a+b@example.org",
    "mailtos://ada:s3cret@yandex.ru?to=bob@example.org",
    "mailtos://ada%40yandex.ru:s3cret@yandex.ru",
    "mailto://ada:s3cret@yahoo.com?mode=starttls",
    "mailtos://ada:s3cret@qq.com:465?mode=ssl",
    "mailtos://ada:s3cret@fastmail.com",
    "mailtos://ada:p%40ss%2Fw0rd@example.org?to=ada@example.org,bob@example.org",
    "mailtos://you:s3cret@example.org?smtp=smtp.example.org&to=you@example.org",
    "mailtos://ada%40example.org:s3cret@smtp.example.org?to=ada@example.org&mode=ssl",
    "mailto://localhost",
    "mailto://localhost:2525/ada@example.org/bob@example.org",
    "mailtos://mail.example.org?from=Reports%20<agentd@example.org>&to=ada@example.org&cc=b@x.org&bcc=c@x.org,d@x.org",
    "mailtos://mail.example.org:2465?user=ada&pass=s3cret&from=a@example.org&mode=ssl&cto=3&verify=no",
    "mailto://[::1]:25?from=a@example.org&format=text",
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_addresses_mean_what_they_mean_to_apprise(url):
    apprise = pytest.importorskip(
        "apprise", reason="needs apprise: pip install 'agentd-routines[notify]'"
    )
    ours, theirs = (
        parse_mail_address(url),
        apprise.Apprise.instantiate(url, suppress_exceptions=False),
    )
    assert is_mail(url)
    assert (ours.server, ours.port, ours.mode) == (
        theirs.smtp_host.strip("[]"),
        theirs.port,
        theirs.secure_mode,
    )
    assert (ours.user, ours.password) == (theirs.user or "", theirs.password or "")
    assert ours.sender.addr_spec == theirs.from_addr[1]
    assert [each.addr_spec for each in ours.recipients] == [
        address for _, address in theirs.targets
    ]
    assert {each.addr_spec for each in ours.cc} == theirs.cc and {
        each.addr_spec for each in ours.bcc
    } == theirs.bcc
    assert (ours.verifies, ours.timeout) == (
        theirs.verify_certificate,
        theirs.socket_connect_timeout,
    )


def test_mail_that_is_to_be_encrypted_is_left_to_apprise():
    assert not is_mail("mailtos://ada:s3cret@example.org?pgp=encrypt") and not is_mail(
        "slack://a/b/c"
    )
