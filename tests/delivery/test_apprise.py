"""Mail and chats by apprise, against a real mail server and a real receiver."""

import json

import pytest

from daemon.delivery.apprise import AppriseChannel, _form, _messages, service
from daemon.delivery.letter import Letter
from daemon.errors import DeliveryFailed
from daemon.models import Status
from daemon.redact import Secrets
from tests.delivery.receivers import Mailbox, Receiver

TELEGRAM, DISCORD = "tgram://123456789:abcdefg_hijklmnop/12315544/", "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"


def channel(url):
    return AppriseChannel(url, secrets=Secrets())


async def test_a_report_comes_as_mail_in_html_and_in_words(delivery):
    async with Mailbox().open() as box:
        receipt = await channel(box.url).send(delivery("# Morning\n\n**All** is well: <b>&</b> 中\n\n- one\n- two"))
    [mail] = box.mails
    assert mail["subject"] == "Morning" and mail["to"] == "ada@example.org"
    page = mail.get_body(("html",)).get_content()
    assert "<strong>All</strong>" in page and "<li>one</li>" in page and "&lt;b&gt;" in page and "中" in page
    words = mail.get_body(("plain",)).get_content()
    assert "All is well" in words and "**" not in words and "scheduled for 2026-11-20 08:30 CET" in words
    assert receipt.detail == "E-Mail took it"


async def test_mail_in_words_only_if_the_url_says_so(delivery):
    async with Mailbox().open() as box:
        await channel(f"{box.url}&format=text").send(delivery("## Disks\n\n**All** is [well](https://example.org)."))
    words = box.mails[0].get_content().replace("\r\n", "\n")
    assert words.startswith("Run 01JAAAAAAAAAAAAAAAAAAAAAAA, scheduled for 2026-11-20 08:30 CET\n\nDisks\n-----\n\n")
    assert words.endswith("All is well (https://example.org).\n")


async def test_a_mail_server_that_says_later_is_tried_later_and_its_reason_is_kept(delivery):
    async with Mailbox("451 try again later").open() as box:
        with pytest.raises(DeliveryFailed, match="451") as caught:
            await channel(box.url).send(delivery())
        await channel(box.url).send(delivery())
    assert caught.value.retry and len(box.mails) == 1


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


@pytest.mark.parametrize(
    "url",
    [
        TELEGRAM,
        DISCORD,
        "ntfy://topic",
        "json://127.0.0.1/x",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#x",
    ],
)
@pytest.mark.parametrize("attaches", [True, False])
def test_no_message_is_longer_than_its_service_takes(url, attaches):
    plugin = service(url)
    plugin.attachment_support = attaches
    letter = Letter(title="T" * 300, about="Run `01J`", body="**word** <b> & \n\n" * 4000)
    messages = _messages(letter, "01J", plugin, _form(plugin))
    assert all(len(message.body) <= plugin.body_maxlen for message in messages)
    assert all(len(message.title) <= plugin.title_maxlen for message in messages)
    assert [bool(message.attached) for message in messages] == ([True] if attaches else [False] * len(messages))


async def test_a_service_gets_what_it_can_show(delivery):
    async with Receiver(200).open() as receiver:
        await channel(f"json://127.0.0.1:{receiver.port}/x").send(delivery("**All** is well.", status=Status.SUCCEEDED))
    told = json.loads(receiver.posts[0].body)
    assert told["message"].endswith("**All** is well.") and told["type"] == "info"


async def test_a_secret_in_the_url_is_in_no_error(delivery):
    secrets = Secrets()
    secrets.add("hunter2hunter2")
    async with Mailbox("535 no: hunter2hunter2").open() as box:
        with pytest.raises(DeliveryFailed) as caught:
            await AppriseChannel(box.url, secrets=secrets).send(delivery())
    assert "hunter2hunter2" not in str(caught.value)
    for url in ("nonsense://user:hunter2hunter2@host", "hunter2hunter2", "tgram://hunter2hunter2"):
        with pytest.raises(DeliveryFailed) as caught:
            await AppriseChannel(url, secrets=secrets).send(delivery())
        assert "hunter2" not in str(caught.value).replace("this hunter2hunter2: URL", "") and not caught.value.retry
