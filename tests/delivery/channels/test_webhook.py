"""Webhooks are signed and arrive once, despite faulty receivers."""

import base64
import json
from dataclasses import replace

import pytest
from standardwebhooks import Webhook

from daemon.delivery.channels.webhook import WebhookChannel, _shorten
from daemon.errors import DeliveryFailed
from daemon.models import Status, Taint
from tests.delivery.receivers import Receiver

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


def channel(receiver, *, secret=SECRET, timeout=60.0, limit=None):
    return WebhookChannel(receiver.url, secret=secret, timeout=timeout, limit=limit)


async def test_a_report_is_posted_with_a_standard_webhooks_signature(delivery):
    async with Receiver().open() as receiver:
        receipt = await channel(receiver).send(delivery("# Morning\n\nAll is well. 中", id_=7))
    [post] = receiver.posts
    payload = Webhook(SECRET).verify(post.body, post.headers)
    assert payload["type"] == "run.succeeded"
    assert (payload["data"]["title"], payload["data"]["report"]) == ("Morning", "All is well. 中")
    assert (
        payload["data"]["routine"] == "daily-report"
        and payload["data"]["slot"] == "2026-11-20T07:30:00+00:00"
    )
    assert post.headers["webhook-id"] == "01JAAAAAAAAAAAAAAAAAAAAAAA-7"
    assert receipt.detail == "204 Told for 01JAAAAAAAAAAAAAAAAAAAAAAA-7"


async def test_the_same_delivery_has_the_same_id_at_every_attempt(delivery):
    async with Receiver(503).open() as receiver:
        with pytest.raises(DeliveryFailed):
            await channel(receiver).send(delivery())
        await channel(receiver).send(delivery())
    assert len({post.headers["webhook-id"] for post in receiver.posts}) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503])
async def test_temporary_refusal_is_retried(delivery, status):
    async with Receiver(status).open() as receiver:
        with pytest.raises(DeliveryFailed, match=f"it answered {status}") as error:
            await channel(receiver).send(delivery())
    assert error.value.retry


@pytest.mark.parametrize("status", [400, 410, 413, 422])
async def test_permanent_refusal_is_given_up(delivery, status):
    async with Receiver(status).open() as receiver:
        with pytest.raises(DeliveryFailed) as error:
            await channel(receiver).send(delivery())
    assert not error.value.retry


async def test_retry_follows_the_retry_after_of_the_receiver(delivery):
    answer = b"HTTP/1.1 429 Slow\r\nretry-after: 120\r\ncontent-length: 8\r\n\r\nslow  do"
    async with Receiver(answer).open() as receiver:
        with pytest.raises(DeliveryFailed, match="it answered 429 Slow: slow do") as error:
            await channel(receiver).send(delivery())
    assert error.value.after == 120


@pytest.mark.parametrize(
    "header", ["soon", "Fri, 20 Nov 99999999999999999999 09:01:30 GMT", "9" * 5000, ""]
)
async def test_a_retry_after_that_is_no_time_is_a_failure_like_any_other(delivery, header):
    answer = f"HTTP/1.1 503 Busy\r\nretry-after: {header}\r\ncontent-length: 0\r\n\r\n"
    async with Receiver(answer.encode()).open() as receiver:
        with pytest.raises(DeliveryFailed, match="it answered 503 Busy") as error:
            await channel(receiver).send(delivery())
    assert error.value.retry


async def test_a_redirect_is_not_followed_and_no_receipt(delivery):
    async with Receiver(
        b"HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n"
    ).open() as receiver:
        with pytest.raises(DeliveryFailed, match="redirects are not followed"):
            await channel(receiver).send(delivery())
    assert len(receiver.posts) == 1


@pytest.mark.parametrize(
    "lie", ["cut", b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n"]
)
async def test_an_incomplete_answer_is_no_receipt(delivery, lie):
    async with Receiver(lie).open() as receiver:
        with pytest.raises(DeliveryFailed) as error:
            await channel(receiver).send(delivery())
    assert error.value.retry


@pytest.mark.parametrize("trick", [None, "drip"])
async def test_a_hanging_or_slow_receiver_times_out(delivery, trick):
    async with Receiver(trick).open() as receiver:
        with pytest.raises(DeliveryFailed, match=r"no whole answer within 0.2 s"):
            await channel(receiver, timeout=0.2).send(delivery())


async def test_an_unreachable_receiver_is_retried(delivery):
    receiver = Receiver()
    async with receiver.open():
        pass
    with pytest.raises(DeliveryFailed) as error:
        await channel(receiver).send(delivery())
    assert error.value.retry and "ConnectError" in str(error.value)


async def test_a_long_report_is_posted_in_parts_and_a_retry_resumes_at_the_failed_part(delivery):
    text = "\n\n".join(f"Paragraph {number}: " + "word " * 60 for number in range(12))
    async with Receiver(204, 503).open() as receiver:
        hook = channel(receiver, limit=2000)
        with pytest.raises(DeliveryFailed):
            await hook.send(delivery(text))
        receipt = await hook.send(delivery(text))
    assert all(len(post.body) <= 2000 for post in receiver.posts)
    bodies = [json.loads(post.body)["data"] for post in receiver.posts]
    parts = [body["part"] for body in bodies]
    assert parts == [1, 2, *range(2, bodies[0]["parts"] + 1)], "a part that arrived was sent again"
    assert receipt.detail.endswith(f"in {bodies[0]['parts']} parts")
    whole = "\n\n".join(body["report"] for body in [bodies[0], *bodies[2:]])
    assert whole.split() == text.split()


@pytest.mark.parametrize("word", ["nothing ", "没有回答，"])
async def test_a_long_reason_and_a_long_title_leave_room_for_the_report(delivery, word):
    failure = delivery("It was warm. " * 30, status=Status.FAILED, detail=word * 150)
    report = delivery(f"# {word * 100}\n\n{'It was warm. ' * 30}")
    for whole in (failure, report):
        async with Receiver().open() as receiver:
            await channel(receiver, limit=1000).send(whole)
        assert all(len(post.body) <= 1000 for post in receiver.posts)
        assert "It was warm." in "".join(
            json.loads(post.body)["data"]["report"] for post in receiver.posts
        )


@pytest.mark.parametrize("word", ["nothing ", "没有回答，", "\x01\x1f", "🦊"])
def test_a_long_reason_is_shortened_in_few_steps_and_no_more_than_it_has_to_be(word):
    whole, lengths = word * 10_000, []

    def sanitize(text):
        lengths.append(len(text))
        return text

    text = _shorten(whole, 3_750, sanitize)
    assert text.endswith("…") and whole.startswith(text[:-1])
    assert 3_744 < len(json.dumps(text, ensure_ascii=False).encode()) <= 3_750
    assert len(lengths) < 50


@pytest.mark.parametrize("taint", [Taint.NONE, Taint.TAINTED])
async def test_parts_of_a_tainted_report_are_sanitized_again(delivery, taint):
    """A cut through `x@name` leaves `@name`, a mention."""
    whole = delivery("x@name" * 600)
    whole = replace(whole, report=replace(whole.report, taint=taint))
    async with Receiver().open() as receiver:
        for limit in range(1_500, 1_506):
            await channel(receiver, limit=limit).send(whole)
    parts = [json.loads(post.body)["data"]["report"] for post in receiver.posts]
    assert all(len(post.body) <= 1_505 for post in receiver.posts)
    assert any(part.startswith("@name") for part in parts) is not bool(taint)


async def test_the_webhook_type_names_the_ending_of_the_run(delivery):
    async with Receiver().open() as receiver:
        bad = delivery("", status=Status.TIMED_OUT, detail="not done within 600 s")
        await channel(receiver, secret=None).send(replace(bad, id=9))
    [post] = receiver.posts
    payload = json.loads(post.body)
    assert (
        payload["type"] == "run.timed_out" and payload["data"]["detail"] == "not done within 600 s"
    )
    assert "webhook-signature" not in post.headers
