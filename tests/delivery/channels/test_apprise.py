"""Chats by apprise against a real receiver, and mail by apprise only if encrypted."""

import json

import pytest

pytest.importorskip("apprise", reason="needs apprise: pip install 'agentd-routines[notify]'")

from daemon.delivery.channels.apprise import (
    AppriseChannel,
    _choose_format,
    _make_messages,
    load_plugin,
)
from daemon.delivery.message import Message
from daemon.delivery.sanitize import neutralize
from daemon.errors import DeliveryFailed
from daemon.models import Status
from daemon.telemetry.redaction import Secrets
from tests.delivery.receivers import Receiver

TELEGRAM, DISCORD = (
    "tgram://123456789:abcdefg_hijklmnop/12315544/",
    "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
)
# More than the service with the most room takes: first much that is rendered longer or shorter than
# it is written, then much of which little is.
DENSE, PLAIN = "**word** <b> & \n\n", "**word** <b> & " + "words of a report " * 7 + "\n\n"


def channel(url):
    return AppriseChannel(url, secrets=Secrets())


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
def test_no_message_exceeds_the_limit_of_its_service(url, attaches):
    plugin = load_plugin(url)
    plugin.attachment_support = attaches
    letter = Message(title="T" * 300, about="Run `01J`", body=DENSE * 600 + PLAIN * 300)
    messages = _make_messages(letter, "01J", plugin, _choose_format(plugin))
    assert all(len(message.body) <= plugin.body_maxlen for message in messages)
    assert all(len(message.title) <= plugin.title_maxlen for message in messages)
    assert [bool(message.attachment) for message in messages] == (
        [True] if attaches else [False] * len(messages)
    )


def test_a_title_of_a_tainted_report_ends_with_no_address_where_it_is_cut():
    plugin = load_plugin("json://127.0.0.1/x")
    for length in range(plugin.title_maxlen - 20, plugin.title_maxlen):
        title = neutralize("x" * length + ",evil.com." + "1" * 99)
        letter = Message(title=title, about="", body="b", sanitize=neutralize)
        [message] = _make_messages(letter, "01J", plugin, _choose_format(plugin))
        assert len(message.title) <= plugin.title_maxlen
        assert "evil.com…" not in message.title


def test_the_output_of_a_script_is_shown_as_code():
    plugin = load_plugin(TELEGRAM)
    message = Message(title="disks", about="Run `01J`", body="  a *b*\nc", verbatim=True)
    (part,) = _make_messages(message, "01J", plugin, _choose_format(plugin))
    assert "  a *b*\nc" in part.body
    assert "<pre" in part.body


async def test_a_service_with_markdown_receives_markdown(delivery):
    async with Receiver(200).open() as receiver:
        await channel(f"json://127.0.0.1:{receiver.port}/x").send(
            delivery("**All** is well.", status=Status.SUCCEEDED)
        )
    payload = json.loads(receiver.posts[0].body)
    assert payload["message"].endswith("**All** is well.") and payload["type"] == "info"


async def test_a_secret_in_the_url_appears_in_no_error(delivery):
    secrets = Secrets()
    secrets.add("hunter2hunter2")
    for url in ("nonsense://user:hunter2hunter2@host", "hunter2hunter2", "tgram://hunter2hunter2"):
        with pytest.raises(DeliveryFailed) as error:
            await AppriseChannel(url, secrets=secrets).send(delivery())
        assert (
            "hunter2" not in str(error.value).replace("this hunter2hunter2: URL", "")
            and not error.value.retry
        )
