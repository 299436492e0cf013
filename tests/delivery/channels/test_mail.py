"""Mail by SMTP, against a real mail server."""

import asyncio
import email
import re
import smtplib
import socket
import ssl
from dataclasses import replace
from datetime import timedelta
from email import policy
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from daemon.delivery.channels.mail import MailChannel
from daemon.delivery.channels.mail_message import make_mails
from daemon.delivery.channels.mail_url import is_mail, parse_smtp_url
from daemon.delivery.sanitize import strip_controls
from daemon.errors import DeliveryFailed
from daemon.models import Status, Taint
from daemon.system.http_client import shared_tls_context
from daemon.telemetry.redaction import Secrets
from tests.delivery.conftest import SLOT
from tests.delivery.receivers import Mailbox
from tests.delivery.wire import Wire
from tests.properties import scaled_settings


def channel(url):
    return MailChannel(url, secrets=Secrets(), host="box")


async def test_a_report_is_mailed_as_html_and_plain_text(delivery):
    async with Mailbox().open() as box:
        receipt = await channel(box.url).send(
            delivery("# Morning\n\n**All** is well: <b>&</b> 中\n\n- one\n- two")
        )
    [mail] = box.mails
    assert mail["subject"] == "[box] daily-report: Morning" and mail["to"] == "ada@example.org"
    page = mail.get_body(("html",)).get_content()
    assert (
        "<strong>All</strong>" in page
        and "<li>one</li>" in page
        and "&lt;b&gt;" in page
        and "中" in page
    )
    assert mail.get_body(("plain",)).get_content().replace("\r\n", "\n") == (
        "# Morning\n\n**All** is well: <b>&</b> 中\n\n- one\n- two\n\n-- \n"
        "Run 01JAAAAAAAAAAAAAAAAAAAAAAA, scheduled for 2026-11-20 08:30 CET\n"
    )
    assert receipt.detail == "127.0.0.1 took it"


@pytest.fixture
def notice(delivery):
    """Make a message of the daemon's own."""

    def make(title, text="Text.", *, kind="digest"):
        options = {"notice": kind, "title": title, "text": text}
        return replace(delivery(), run="", routine="", options=options, content=kind)

    return make


async def mail_of(report, url=""):
    """Send a delivery to a mailbox, and return the mail that arrives."""
    async with Mailbox().open() as box:
        await channel(box.url + url).send(report)
    return box.mails[0]


@pytest.mark.parametrize(
    ("text", "options", "subject"),
    [
        ("# Morning\n\nText.", {}, "daily-report: Morning"),
        ("## Morning\n\nText.", {}, "daily-report: Morning"),
        ("All is well. No updates.", {}, "daily-report: All is well"),
        ("- one", {}, "daily-report: 2026-11-20 08:30 CET"),
        ("", {}, "daily-report: (The report is empty.)"),
        ("# A\r\n\r\nBcc: x", {}, "daily-report: A"),
        ("A&#10;Bcc: eve@example.org. B", {}, "daily-report: A Bcc: eve@example.org"),
        ("# x", {"status": Status.TIMED_OUT}, "daily-report timed out: 2026-11-20 08:30 CET"),
        (
            "# x",
            {"status": Status.FAILED, "detail": "step 1 failed: no key. Name one.\nMore."},
            "daily-report failed: step 1 failed: no key",
        ),
        ("# Report\n\nOne disk is full. Clean it.", {}, "daily-report: One disk is full"),
        ("2 new, 1 seen before\n\n- **A is out**\n- **B**", {}, "daily-report: A is out (+1)"),
        ("# " + "w" * 300, {}, "daily-report: " + "w" * 229 + "…"),
    ],
)
async def test_the_subject_names_the_host_the_routine_and_the_headline(
    delivery, text, options, subject
):
    mail = await mail_of(delivery(text, **options))
    assert mail["subject"] == f"[box] {subject}"
    assert mail["bcc"] is None and len(mail["subject"]) <= 250


@scaled_settings(suppress=[HealthCheck.function_scoped_fixture])
@given(
    st.text('aé中=?_ .,:;—🙂("[]') | st.text(),
    st.sampled_from(["", "w" * 80 + " ", "é" * 80, "word " * 40]),
)
def test_a_subject_of_any_length_is_read_as_it_was_written(notice, text, beginning):
    title = f"{beginning}{text}"
    address = parse_smtp_url("mailto://example.org?from=agentd@example.org&to=a@example.org")
    [(_, mail)] = make_mails(address, notice(title), "box")
    data = mail.as_bytes()
    [header] = re.findall(rb"^Subject:.*\r\n(?:[ \t].*\r\n)*", data, re.MULTILINE)
    assert re.match(rb"Subject: \S", header) and max(map(len, header.splitlines())) <= 998
    assert email.message_from_bytes(data, policy=policy.default)["subject"] == mail["subject"]


@pytest.mark.parametrize(
    ("title", "subject"),
    [
        ("daily-report on box waits for you", "[box] daily-report waits for you"),
        ("daily-report on vault waits for you", "[box] daily-report on vault waits for you"),
        ("3 checks\nBcc: eve@example.org", "[box] 3 checks Bcc: eve@example[.]org"),
    ],
)
async def test_the_subject_of_a_notice_is_its_title(notice, title, subject):
    mail = await mail_of(notice(title))
    assert mail["subject"] == subject and mail["bcc"] is None


async def test_a_heading_that_the_subject_cuts_is_in_the_html(delivery):
    heading, short_heading = "w" * 300, "k" * 30
    cut, whole = (
        await mail_of(delivery(f"# {heading}\n\na")),
        await mail_of(delivery(f"# {short_heading}")),
    )
    assert heading in cut.get_body(("html",)).get_content()
    assert cut.get_body(("plain",)).get_content().startswith(f"# {heading}")
    assert short_heading in whole.get_body(("html",)).get_content()


async def test_a_heading_that_the_subject_leaves_out_is_in_the_html(delivery):
    mail = await mail_of(delivery("# Report\n\nAll is well."))
    assert mail["subject"] == "[box] daily-report: All is well"
    assert re.search(r"<h1[^>]*>Report</h1>", mail.get_body(("html",)).get_content())


async def test_the_title_of_a_strangers_item_leads_nowhere_where_it_is_cut(delivery):
    title = "!" * 142 + "evil.com" + "x" * 40
    report = delivery(f"2 new\n\n- **{title}**\n- **b**")
    mail = await mail_of(replace(report, report=replace(report.report, taint=Taint.TAINTED)))
    assert mail["subject"].endswith("!evil[.]com… (+1)")


async def test_the_line_about_the_run_ends_the_mail(delivery):
    mail = await mail_of(delivery("# Morning\n\nAll is well.", trigger="manual"))
    text, page = (mail.get_body((kind,)).get_content() for kind in ("plain", "html"))
    about = "Run 01JAAAAAAAAAAAAAAAAAAAAAAA, started by hand 2026-11-20 08:30 CET"
    assert text.replace("\r\n", "\n").endswith(f"\n\n-- \n{about}\n")
    assert re.sub(r"<[^>]*>", "", page).split()[:3] == ["All", "is", "well."]
    assert page.index("All is well.") < page.index("started by hand")


async def test_a_notice_has_no_line_about_a_run(notice):
    mail = await mail_of(notice("3 checks", "- a: 1 run"))
    assert mail.get_body(("plain",)).get_content().strip() == "- a: 1 run"
    assert "Run" not in mail.get_body(("html",)).get_content()


async def test_text_is_wrapped_nowhere(delivery):
    line = "word " * 300 + "https://example.org/" + "x" * 200
    mail = await mail_of(delivery(f"Well.\n\n{line}\n\n| a | b |\n|---|---|\n| 1 | 2 |"))
    text = mail.get_body(("plain",)).get_content().replace("\r\n", "\n")
    assert f"\n\n{line}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n" in text


async def test_the_output_of_a_script_is_mailed_as_it_is(delivery):
    table = "  PID USER\n# 1  *root*  <b>"
    mail = await mail_of(delivery(table, verbatim=True))
    text, page = (
        mail.get_body((kind,)).get_content().replace("\r\n", "\n") for kind in ("plain", "html")
    )
    assert text.startswith(f"{table}\n\n-- \n")
    assert "  PID USER\n# 1  *root*  &lt;b&gt;" in page
    assert "<pre" in page


async def test_html_loads_nothing(delivery):
    text = (
        "![x](https://example.org/x.png)\n\n<img src='https://example.org/y.png'>\n\n"
        "[a](javascript:b) [c](https://example.org/d)\n\n```sh\ncode\n```\n\n"
        "| a | b |\n|---|--:|\n| 1 | 2 |"
    )
    page = (await mail_of(delivery(text))).get_body(("html",)).get_content()
    assert not re.search(r"<(?:img|link|script|style|iframe|object)\b|url\(|\bsrc=[^&]*>", page)
    assert re.findall(r'href="([^"]*)"', page) == [
        "https://example.org/x.png",
        "https://example.org/d",
    ]


async def test_mails_of_one_routine_are_one_thread(delivery):
    first, second = await mail_of(delivery()), await mail_of(delivery(id_=2, run="01JB"))
    failure_mail = await mail_of(delivery(id_=3, status=Status.FAILED))
    of_heartbeat = await mail_of(replace(delivery(id_=4), routine="heartbeat"))
    root = "<routine.daily-report.box@example.org>"
    for mail in (first, second, failure_mail):
        assert mail["references"] == mail["in-reply-to"] == root
    assert of_heartbeat["references"] == "<routine.heartbeat.box@example.org>"
    assert len({mail["message-id"] for mail in (first, second, failure_mail, of_heartbeat)}) == 4


async def test_notices_of_one_kind_are_one_thread(notice):
    opening = notice("target chat takes nothing", kind="incident.opened")
    recovery = notice("target chat works again", kind="incident.recovered")
    references = {(await mail_of(mail))["references"] for mail in (opening, recovery)}
    assert references == {"<notice.incident.box@example.org>"}


async def test_long_names_leave_the_ids_of_a_thread_readable(delivery):
    async with Mailbox().open() as box:
        url = box.url.replace("agentd@example.org", f"agentd@{'d' * 60}.example.org")
        await channel(url).send(replace(delivery(), routine="r" * 64))
    _, raw = box.envelopes[0]
    thread = f"<routine.{'r' * 64}.box@{'d' * 60}.example.org>".encode()
    assert b"References: " + thread in raw and b"In-Reply-To: " + thread in raw


async def test_thread_headers_of_the_url_replace_our_own(delivery):
    mail = await mail_of(delivery(), "&%2BReferences=<a@x.org>%20<b@x.org>")
    assert mail.get_all("references") == ["<a@x.org> <b@x.org>"] and mail["in-reply-to"] is None


HEADERS = {
    *("Subject", "From", "To", "Date", "Auto-Submitted", "Message-ID", "References"),
    *("In-Reply-To", "MIME-Version", "Content-Type"),
}


@scaled_settings(suppress=[HealthCheck.function_scoped_fixture])
@given(
    st.text("aA .:\n\r#*_-=?@<>&;0\u2028\x85\ud800中ü") | st.text(),
    st.sampled_from([Status.SUCCEEDED, Status.FAILED]),
)
def test_any_report_is_the_text_of_a_mail_with_our_headers_only(delivery, text, status):
    address = parse_smtp_url("mailto://example.org?from=agentd@example.org&to=a@example.org")
    [(_, mail)] = make_mails(address, delivery(text, status=status, detail=text), "box")
    parsed_mail = email.message_from_bytes(mail.as_bytes(), policy=policy.default)
    assert set(parsed_mail.keys()) == HEADERS and len(parsed_mail.keys()) == len(HEADERS)
    subject = parsed_mail["subject"].strip()
    assert subject.startswith("[box] daily-report") and len(subject) <= 250
    assert "\n" not in subject and "\r" not in subject
    body_text = strip_controls(text).strip().encode(errors="replace").decode()
    body = parsed_mail.get_body(("plain",)).get_content().replace("\r\n", "\n")
    assert body_text in body


async def test_mail_is_plain_text_only_if_the_url_requests_it(delivery):
    async with Mailbox().open() as box:
        await channel(f"{box.url}&format=text").send(
            delivery("## Disks\n\n**All** is [well](https://example.org).")
        )
    words = box.mails[0].get_content().replace("\r\n", "\n")
    assert words == (
        "## Disks\n\n**All** is [well](https://example.org).\n\n-- \n"
        "Run 01JAAAAAAAAAAAAAAAAAAAAAAA, scheduled for 2026-11-20 08:30 CET\n"
    )


@pytest.mark.parametrize(
    ("answer", "is_tried_again"), [("451 try again later", True), ("554 no such thing", False)]
)
async def test_a_temporary_refusal_of_mail_is_retried_and_a_permanent_refusal_is_not(
    delivery, answer, is_tried_again
):
    async with Mailbox(answer).open() as box:
        with pytest.raises(DeliveryFailed, match=answer) as error:
            await channel(box.url).send(delivery())
    assert error.value.retry is is_tried_again and not box.mails


async def test_a_report_too_long_for_a_mail_is_attached(delivery):
    text = "\n\n".join(f"Paragraph {number} " + "word " * 100 for number in range(100))
    async with Mailbox().open() as box:
        await channel(box.url).send(delivery(text))
    [mail] = box.mails
    [attachment] = list(mail.iter_attachments())
    assert attachment.get_filename() == "daily-report.md"
    assert text.split() == attachment.get_content().split()[-len(text.split()) :]
    assert "The whole report is attached." in mail.get_body(("html",)).get_content()
    assert len(mail.get_body(("html",)).get_content()) < 5000


async def test_a_server_that_is_not_there_is_told_in_words(delivery):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(DeliveryFailed, match="nothing listens there") as error:
        await channel(f"mailto://127.0.0.1:{port}?to=a@b.example&from=c@d.example").send(delivery())
    assert "Errno" not in str(error.value)


async def test_a_retry_sends_mail_only_to_recipients_without_it(
    delivery,
):
    async with Mailbox("250 taken", "451 later").open() as box:
        url = box.url.replace("to=", "to=bob%40example.org,")
        mails = channel(f"{url}&cc=Cleo%20<cleo@example.org>&bcc=dan@example.org&reply=ops@x.org")
        with pytest.raises(DeliveryFailed):
            await mails.send(delivery())
        receipt = await mails.send(delivery())
    assert [recipients for recipients, _ in box.envelopes] == [
        [f"{name}@example.org"] for name in ("bob", "dan", "ada", "cleo")
    ]
    assert [mail["to"] for mail in box.mails] == [
        f"{name}@example.org" for name in ("bob", "bob", "ada", "bob")
    ]
    assert {mail["cc"] for mail in box.mails} == {
        "Cleo <cleo@example.org>"
    } and "bcc" not in box.mails[0]
    assert (
        box.mails[0]["reply-to"] == "ops@x.org"
        and receipt.detail == "127.0.0.1 took it for 4 recipients"
    )


@pytest.mark.parametrize(
    ("answer", "is_tried_again"), [("451 greylisted", True), ("554 no such thing", False)]
)
async def test_a_mail_that_is_refused_after_its_text_holds_up_no_other_recipient(
    delivery, answer, is_tried_again
):
    async with Mailbox(answer, "250 taken", answer).open() as box:
        mails = channel(box.url.replace("to=", "to=bob%40example.org,"))
        with pytest.raises(DeliveryFailed, match=answer) as error:
            await mails.send(delivery())
        assert error.value.retry is is_tried_again
        assert [mail["to"] for mail in box.mails] == ["ada@example.org"]
        if is_tried_again:
            with pytest.raises(DeliveryFailed, match=answer):
                await mails.send(delivery())
    assert [mail["to"] for mail in box.mails] == ["ada@example.org"]


async def test_a_server_that_closes_its_service_is_told_in_its_words(delivery):
    async with Mailbox("421 going down").open() as box:
        with pytest.raises(DeliveryFailed, match="421 going down") as error:
            await channel(box.url.replace("to=", "to=bob%40example.org,")).send(delivery())
    assert error.value.retry and not box.mails


async def test_a_repeated_mail_has_the_same_message_id(delivery):
    async with Mailbox().open() as box:
        for _ in range(2):
            await channel(box.url).send(delivery())
    first, second = box.mails
    assert (
        first["message-id"]
        == second["message-id"]
        == "<01JAAAAAAAAAAAAAAAAAAAAAAA.1.0@example.org>"
    )


async def test_a_notice_of_another_machine_has_another_message_id(notice):
    """Both count their deliveries from 1, and both may send a digest at eight o'clock."""
    own = replace(notice("3 checks"), created=SLOT)
    other = replace(own, created=SLOT + timedelta(microseconds=1))
    ids = [(await mail_of(mail))["message-id"] for mail in (own, own, other)]
    assert ids == [
        *["<notice.1795159800.000000.1.0@example.org>"] * 2,
        "<notice.1795159800.000001.1.0@example.org>",
    ]


async def test_unusual_characters_and_extra_headers_arrive_in_the_mail(delivery):
    async with Mailbox().open() as box:
        await channel(f"{box.url}&name=Täglich&%2BX-Team=Ops").send(
            delivery("# A\tb \ud800 — 中\n\n\ud800 and \x07")
        )
    [mail] = box.mails
    assert (
        mail["subject"] == "[box] daily-report: A b ? — 中"
        and mail["x-team"] == "Ops"
        and mail["auto-submitted"] == "auto-generated"
    )
    assert mail["from"].addresses[0].display_name == "Täglich"


@pytest.mark.parametrize("mode", ["ssl", "starttls"])
async def test_mail_by_tls_goes_only_to_a_server_with_a_valid_certificate(
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
        with pytest.raises(DeliveryFailed, match="certificate verify failed") as error:
            await channel(url).send(delivery())
        assert error.value.retry and not box.mails
        await channel(f"{url}&verify=no").send(delivery())
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        shared_tls_context.cache_clear()
        await channel(url).send(delivery())
        with pytest.raises(DeliveryFailed, match="535") as error:
            await channel(url.replace("s3cret", "wrong")).send(delivery())
        assert error.value.retry, "somebody may put the password right"
    assert len(box.mails) == 2
    shared_tls_context.cache_clear()


async def test_what_a_mail_server_offers_before_tls_counts_for_nothing(delivery, certificate):
    class Odd(Mailbox):
        async def handle_EHLO(self, server, session, envelope, hostname, responses):  # noqa: N802 - its name is aiosmtpd's
            session.host_name = hostname
            return ["454 busy"] if session.ssl else responses

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with Odd().open(tls=context, mode="starttls", user="ada", password="s3cret") as box:
        url = f"mailto://ada:s3cret@127.0.0.1:{box.port}?from=agentd@example.org&mode=starttls&verify=no"
        with pytest.raises(DeliveryFailed, match="454 busy") as error:
            await channel(url).send(delivery())
    assert error.value.retry and not box.mails


async def test_a_mail_server_without_tls_never_receives_the_password(delivery):
    async with Mailbox().open() as box:
        with pytest.raises(DeliveryFailed, match=r"STARTTLS.*mode=insecure"):
            await channel(box.url.replace("insecure", "starttls")).send(delivery())
    assert not box.mails


async def test_a_mail_server_without_logins_is_no_reason_to_change_the_mode(delivery, certificate):
    class NoLogin(Mailbox):
        async def handle_EHLO(self, server, session, envelope, hostname, responses):  # noqa: N802 - its name is aiosmtpd's
            session.host_name = hostname
            return [line for line in responses if "AUTH" not in line]

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with NoLogin().open(tls=context, mode="starttls") as box:
        url = f"mailto://ada:s3cret@127.0.0.1:{box.port}?from=agentd@example.org&mode=starttls&verify=no"
        with pytest.raises(DeliveryFailed, match="SMTP AUTH") as error:
            await channel(url).send(delivery())
    assert "mode=" not in str(error.value)


async def test_a_silent_mail_server_times_out_and_the_mail_is_retried(delivery):
    async with Mailbox().open() as box, Wire(box.port).open() as wire:
        wire.mode = "frozen"
        with pytest.raises(DeliveryFailed, match="timed out") as error:
            await channel(box.url.replace(str(box.port), str(wire.port)) + "&cto=0.2").send(
                delivery()
            )
    assert error.value.retry


@pytest.mark.parametrize(
    ("mode", "greeting"), [("insecure", b"220 hello\r\n"), ("insecure", b"220 hel"), ("ssl", b"")]
)
async def test_a_cancelled_mail_leaves_no_thread_behind(delivery, mode, greeting):
    has_arrived, is_gone = asyncio.Event(), asyncio.Event()

    async def say_hello_and_no_more(reader, writer):
        writer.write(greeting)
        if greeting.endswith(b"\n"):
            await reader.readline()
        has_arrived.set()
        await reader.read()
        is_gone.set()
        writer.close()

    server = await asyncio.start_server(say_hello_and_no_more, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"mailto://127.0.0.1:{port}?from=agentd@example.org&cto=60&mode={mode}"
    sending = asyncio.create_task(channel(url).send(delivery()))
    await asyncio.wait_for(has_arrived.wait(), 30)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await asyncio.wait_for(is_gone.wait(), 30)
    server.close()


def test_smtplib_connects_by_the_method_that_mail_overrides():
    connections = []

    class Connection(smtplib.SMTP):
        def connect(self, host="localhost", port=0, source_address=None):
            connections.append((host, port))
            self.sock, self.file = client_end, None
            return self.getreply()

    client_end, servers = socket.socketpair()
    with client_end, servers:
        servers.sendall(b"220 ready\r\n250 still here\r\n")
        connection = Connection("mail.example.org", 25, timeout=30)
        assert connections == [("mail.example.org", 25)]
        assert connection.noop() == (250, b"still here")
        assert servers.recv(100) == b"noop\r\n"


async def test_a_refused_recipient_does_not_prevent_mail_to_other_recipients(delivery):
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
        more_recipients = "to=gone%40example.org,full%40example.org,"
        mails, report = channel(box.url.replace("to=", more_recipients)), delivery()
        with pytest.raises(DeliveryFailed, match="452 full") as error:
            await mails.send(report)
        assert error.value.retry
        assert [recipients for recipients, _ in box.envelopes] == [["ada@example.org"]]
        with pytest.raises(DeliveryFailed, match="550 no such user") as error:
            await mails.send(report)
        assert not error.value.retry
    assert [recipients for recipients, _ in box.envelopes] == [
        ["ada@example.org"],
        ["full@example.org"],
    ]


async def test_a_report_with_deeply_nested_markup_is_mailed(delivery):
    report = "*(a " * 400 + " b)*" * 400
    async with Mailbox().open() as box:
        await channel(box.url).send(delivery(report))
    assert box.mails[0].get_body(("plain",)).get_content().count("(a") == 400


async def test_a_secret_in_the_url_appears_in_no_error(delivery):
    secrets = Secrets()
    async with Mailbox("535 no: hunter2hunter2").open() as box:
        url = box.url.replace("//", "//ada:hunter2hunter2@") + "&user="
        with pytest.raises(DeliveryFailed) as error:
            await MailChannel(url, secrets=secrets).send(delivery())
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mailto://example.org", "lacks a sender"),
        ("mailto://?to=ada@example.org", "names no server"),
        ("mailto://ada:hunter2@example.org:port", "its port"),
        ("mailto://ada:hunter2/x@example.org", "its port"),
        ("mailtos://ada:hunter2@example.org?mode=tls", "mode=tls is none of"),
        ("mailtos://ada:hunter2@example.org?to=ada", "to= has what is no mail address"),
        # of such a list Python 3.13 reads nothing at all
        ("mailtos://ada:hunter2@example.org?to=bob@x.org,c@@y", "to= has what is no mail address"),
        ("mailtos://ada:hunter2@example.org?cc=bob@x.org,<>", "cc= has what is no mail address"),
        ("mailtos://ada:hunter2@example.org?cto=soon", "cto="),
        ("mailtos://ada:hunter2ä@example.org", "only of ASCII"),
        ("https://ada:hunter2@example.org", "begins neither with"),
        ("mailtos://ada:hunter2@example.org?pgp=encrypt", 'pgp= takes kind = "apprise"'),
        ("mailtos://ada:hunter2@example.org?+Subject=x", "no header that may be added"),
        ("mailtos://ada:hunter2@example.org?+X%20Y=x", "no header that may be added"),
    ],
)
def test_an_invalid_mail_url_is_refused_with_the_reason_and_without_its_secret(url, problem):
    with pytest.raises(DeliveryFailed, match=problem) as error:
        parse_smtp_url(url)
    assert not error.value.retry and "hunter2" not in str(error.value)


@pytest.mark.parametrize("text", ["bob@x.org,", ";bob@x.org", " bob@x.org ; ,", "<bob@x.org>, "])
def test_a_list_of_recipients_may_begin_or_end_with_a_separator(text):
    address = parse_smtp_url(f"mailtos://ada:hunter2@example.org?to={text}")
    assert [str(recipient) for recipient in address.recipients] == ["bob@x.org"]


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
def test_a_mail_url_means_the_same_as_in_apprise(url):
    apprise = pytest.importorskip(
        "apprise", reason="needs apprise: pip install 'agentd-routines[notify]'"
    )
    own_address, apprise_address = (
        parse_smtp_url(url),
        apprise.Apprise.instantiate(url, suppress_exceptions=False),
    )
    assert is_mail(url)
    assert (own_address.server, own_address.port, own_address.mode) == (
        apprise_address.smtp_host.strip("[]"),
        apprise_address.port,
        apprise_address.secure_mode,
    )
    assert (own_address.user, own_address.password) == (
        apprise_address.user or "",
        apprise_address.password or "",
    )
    assert own_address.sender.addr_spec == apprise_address.from_addr[1]
    assert [recipient.addr_spec for recipient in own_address.recipients] == [
        address for _, address in apprise_address.targets
    ]
    assert {recipient.addr_spec for recipient in own_address.cc} == apprise_address.cc and {
        recipient.addr_spec for recipient in own_address.bcc
    } == apprise_address.bcc
    assert (own_address.verifies, own_address.timeout) == (
        apprise_address.verify_certificate,
        apprise_address.socket_connect_timeout,
    )


def test_a_mail_url_with_encryption_is_left_to_apprise():
    assert not is_mail("mailtos://ada:s3cret@example.org?pgp=encrypt") and not is_mail(
        "slack://a/b/c"
    )
