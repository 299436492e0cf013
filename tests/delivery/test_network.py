"""Network outages lose no delivery and repeat only unconfirmed ones."""

from collections import Counter

import pytest

from daemon.definitions.config.config import Config
from daemon.delivery.outbox import Outbox
from daemon.delivery.targets import Targets
from daemon.models import DeliveryStatus
from daemon.store.incidents import IncidentSettings
from daemon.telemetry.redaction import Secrets
from tests.delivery.receivers import Mailbox, Receiver
from tests.delivery.wire import Wire

CUTS = [
    ["frozen"],
    ["reset"],
    pytest.param(
        ["frozen", "reset", "frozen", "reset"], marks=[pytest.mark.soak, pytest.mark.timeout(300)]
    ),
]


def outbox_of(journal, clock, workspace, targets):
    config = Config.model_validate({"targets": targets})
    channels = Targets(config, workspace=workspace, env={}, secrets=Secrets())
    return Outbox(journal=journal, channel=channels.channel, clock=clock)


async def news(journal, kind):
    return [
        delivery
        for delivery in await journal.outbox.find(limit=500)
        if delivery.options.get("notice") == kind
    ]


@pytest.mark.parametrize("cuts", CUTS, ids="-".join)
async def test_network_outage_loses_no_webhook_and_is_one_incident_with_one_recovery(
    journal, clock, workspace, end_run, cuts
):
    journal.incidents.settings = IncidentSettings(to=("log",))
    async with Receiver().open() as receiver, Wire(receiver.port).open() as wire:
        way = {"kind": "webhook", "url": f"http://127.0.0.1:{wire.port}/hook", "timeout": "1s"}
        outbox = outbox_of(journal, clock, workspace, {"far": way})
        sent_count = 0
        for mode in ["open", *cuts, "open"]:
            wire.mode = mode
            for _ in range(4):  # attempts, some minutes apart: more than make an incident
                await end_run([("far", {})], report=f"report {sent_count}")
                sent_count += 1
                clock.advance(hours=1)
                await outbox.flush()
        clock.advance(hours=2)
        await outbox.flush()
        deliveries = [
            delivery
            for delivery in await journal.outbox.find(limit=500)
            if delivery.target == "far"
        ]
        assert len(deliveries) == sent_count and {delivery.status for delivery in deliveries} == {
            DeliveryStatus.DELIVERED
        }
        arrivals = Counter(post.headers["webhook-id"] for post in receiver.posts)
        assert len(arrivals) == sent_count and set(arrivals.values()) == {1}, (
            "what went through was heard to"
        )
    assert (
        len(await news(journal, "incident.opened"))
        == len(await news(journal, "incident.recovered"))
        == 1
    )
    assert await journal.incidents.find() == []


async def test_unconfirmed_webhook_is_sent_again_with_the_same_id(
    journal, clock, workspace, end_run
):
    async with Receiver().open() as receiver, Wire(receiver.port).open() as wire:
        way = {"kind": "webhook", "url": f"http://127.0.0.1:{wire.port}/hook", "timeout": "1s"}
        outbox = outbox_of(journal, clock, workspace, {"far": way})
        await end_run([("far", {})])
        for mode in ("deaf", "deaf", "open"):
            wire.mode = mode
            await outbox.flush()
            clock.advance(hours=1)
        (delivery,) = await journal.outbox.find()
        assert delivery.status is DeliveryStatus.DELIVERED and delivery.attempts == 3
        assert [post.headers["webhook-id"] for post in receiver.posts] == [
            f"{delivery.run}-{delivery.id}"
        ] * 3


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_each_mail_is_sent_once_after_a_network_outage(journal, clock, workspace, end_run):
    journal.incidents.settings = IncidentSettings(to=("log",))
    async with Mailbox().open() as box, Wire(box.port).open() as wire:
        url = box.url.replace(str(box.port), str(wire.port)) + "&cto=1"
        outbox = outbox_of(journal, clock, workspace, {"mail": {"kind": "mail", "url": url}})
        await end_run([("mail", {})], report="# Report 1\n\nAll is well.")
        for mode in ("frozen", "reset", "frozen", "open"):
            wire.mode = mode
            if mode == "open":
                await end_run([("mail", {})], report="# Report 2\n\nAll is well.")
            await outbox.flush()
            clock.advance(hours=1)
        assert Counter(mail["subject"].rpartition(": ")[2] for mail in box.mails) == {
            "Report 1": 1,
            "Report 2": 1,
        }
        await outbox.flush()  # the word of recovery
    assert await journal.incidents.find() == []
    openings, over = (
        await news(journal, "incident.opened"),
        await news(journal, "incident.recovered"),
    )
    assert (len(openings), len(over)) == (1, 1)
