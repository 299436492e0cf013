"""The webhook socket: one route, optional signatures, one run per message."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from standardwebhooks import Webhook

from daemon.api.webhooks import Hooks, HookServer
from daemon.errors import ConfigError, NotFound, Refused, SocketBusy
from daemon.models import Run
from daemon.runs.settings import WebhookSender
from daemon.telemetry.log import _LibraryHandler, configure
from daemon.telemetry.redaction import Secrets
from tests.api.harness import Answer, ask

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Office:
    """Starts runs for messages, each once."""

    def __init__(self) -> None:
        self.runs_by_event: dict[str, Run] = {}
        self.bodies: list[Any] = []
        self.webhook_secret: str | None = None
        self.senders: dict[str, WebhookSender] = {}
        self.routine_senders: dict[str, str] = {}
        self.secrets = Secrets()

    async def start(self, name: str, *, event: str, body: Any) -> Run:
        if name == "busy":
            raise Refused("busy does not run now: it is paused; send it again later")
        if name != "door":
            raise NotFound(f"there is no webhook {name!r} here")
        if event not in self.runs_by_event:
            self.bodies.append(body)
            id_ = f"RUN{len(self.runs_by_event)}"
            now = datetime.now(UTC)
            self.runs_by_event[event] = Run(
                id=id_, routine=name, definition="", trigger="webhook", slot=now, created=now
            )
        return self.runs_by_event[event]


class Desk:
    """The socket with an office behind it."""

    def __init__(self, path: Path) -> None:
        self.office = Office()
        hooks = Hooks(
            version="9.9",
            start=self.office.start,
            sender_of=lambda name: self.office.routine_senders.get(name),
            settings=self.office,
            secrets=self.office.secrets,
        )
        self.server = HookServer(hooks, path)
        self.path = self.server.path

    async def post(
        self, body: bytes = b"{}", *, name: str = "door", headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await ask(self.path, "POST", f"/v1/hooks/{name}", body, headers)


@pytest.fixture
async def approver(tmp_path: Path) -> AsyncIterator[Desk]:
    approver = Desk(tmp_path / "run" / "agentd-hooks.sock")
    serving = asyncio.create_task(approver.server.serve())
    await approver.server.ready()
    yield approver
    approver.server.stop()
    await serving
    assert not approver.path.exists()


def sign(
    body: bytes, *, id_: str = "m-1", secret: str = SECRET, age: float = 0.0
) -> dict[str, str]:
    moment = datetime.now(UTC) - timedelta(seconds=age)
    signature = Webhook(secret).sign(id_, moment, body.decode())
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": signature,
    }


async def test_a_message_is_accepted_with_the_id_of_its_run(approver: Desk) -> None:
    answer = await approver.post(b'{"who": "Ada"}')
    assert answer.status == 202
    assert json.loads(answer.raw) == {"run": "RUN0", "routine": "door", "status": "queued"}
    assert answer.headers["agentd-version"] == "9.9"
    assert approver.office.bodies == [{"who": "Ada"}]


async def test_the_same_webhook_id_is_the_same_run(approver: Desk) -> None:
    answers = [await approver.post(headers={"webhook-id": "m-1"}) for _ in range(2)]
    assert {json.loads(answer.raw)["run"] for answer in answers} == {"RUN0"}
    assert json.loads((await approver.post(headers={"webhook-id": "m-2"})).raw)["run"] == "RUN1"


async def test_webhooks_without_an_id_start_a_run_each(approver: Desk) -> None:
    assert [json.loads((await approver.post()).raw)["run"] for _ in range(2)] == ["RUN0", "RUN1"]


@pytest.mark.parametrize(
    "body", [b"", b"[1, 2]", b'"text"', b"null", '{"中": "文"}'.encode(), b"0"]
)
async def test_a_webhook_body_may_be_any_json(approver: Desk, body: bytes) -> None:
    assert (await approver.post(body)).status == 202
    assert approver.office.bodies == [json.loads(body or b"{}")]


async def test_a_webhook_body_may_begin_with_a_byte_order_mark(approver: Desk) -> None:
    assert (await approver.post(b'\xef\xbb\xbf{"a": 1}')).status == 202
    assert approver.office.bodies == [{"a": 1}]


@pytest.mark.parametrize(
    ("body", "status", "expected_text"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b'{"a": NaN}', 400, "not JSON: NaN"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", 400, "a number in it has too many digits"),
        (b'{"a": -1e999}', 400, "-1e999 is larger than any number"),
        (b'{"a": ["\\uD83D"]}', 400, "half of a surrogate pair, \\ud83d"),
        (b'{"a": "\xed\xa0\xbd"}', 400, "not JSON in UTF-8"),
        ('{"a": "\ud83d"}'.encode("utf-16", "surrogatepass"), 400, "not JSON in UTF-8"),
        (b"[" * 60 + b"]" * 60, 422, "nested more than 50 levels"),
        (b'"' + b"x" * 1_000_000 + b'"', 413, "over 1000000 bytes"),
    ],
)
async def test_an_invalid_webhook_body_is_refused(
    approver: Desk, body: bytes, status: int, expected_text: str
) -> None:
    answer = await approver.post(body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert expected_text in json.loads(answer.raw)["detail"]
    assert approver.office.runs_by_event == {}
    assert (await approver.post()).status == 202, "it lives on"


@pytest.mark.parametrize(("name", "status"), [("nothing", 404), ("busy", 409)])
async def test_a_webhook_that_cannot_start_a_run_gets_the_reason(
    approver: Desk, name: str, status: int
) -> None:
    answer = await approver.post(name=name)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize("id_", ["x" * 257, "\x7f"])
async def test_an_unreadable_webhook_id_is_refused(approver: Desk, id_: str) -> None:
    assert (await approver.post(headers={"webhook-id": id_})).status == 400


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v1/hooks/door", 405),
        ("POST", "/v1/hooks/door/more", 404),
        ("GET", "/v1/status", 404),
        ("POST", "/v1/routines/door/run", 404),
        ("POST", "/v1/hooks/", 404),
    ],
)
async def test_the_webhook_socket_has_no_other_route(
    approver: Desk, method: str, target: str, status: int
) -> None:
    assert (await ask(approver.path, method, target, b"{}")).status == status
    assert approver.office.runs_by_event == {}


async def test_secrets_in_a_body_are_not_kept(approver: Desk) -> None:
    approver.office.secrets.add("a-secret-of-the-house")
    await approver.post(b'{"token": "a-secret-of-the-house"}')
    assert "a-secret-of-the-house" not in json.dumps(approver.office.bodies)


# --- signatures


async def test_a_signed_message_is_accepted_and_its_bytes_are_what_was_signed(
    approver: Desk,
) -> None:
    approver.office.webhook_secret = SECRET
    body = '{ "spaces":  "and 中文" }'.encode()
    assert (await approver.post(body, headers=sign(body))).status == 202
    assert list(approver.office.runs_by_event) == ["m-1"]


async def test_one_of_several_signatures_is_enough(approver: Desk) -> None:
    approver.office.webhook_secret = SECRET
    headers = sign(b"{}")
    headers["webhook-signature"] = f"v2,abc v1,bm90IGl0 {headers['webhook-signature']}"
    assert (await approver.post(headers=headers)).status == 202


def forge_headers() -> dict[str, dict[str, str]]:
    good = sign(b"{}")
    return {
        "unsigned": {},
        "another secret": sign(b"{}", secret="whsec_" + "b" * 32),
        "another body": sign(b'{"a": 1}'),
        "another id": good | {"webhook-id": "m-2"},
        "too old": sign(b"{}", age=600),
        "of the future": sign(b"{}", age=-600),
        "another time": good | {"webhook-timestamp": str(int(good["webhook-timestamp"]) + 1)},
        "no time": good | {"webhook-timestamp": "soon"},
        "endless time": good | {"webhook-timestamp": "1e400"},
        "no signature": {key: value for key, value in good.items() if key != "webhook-signature"},
        "nonsense": good | {"webhook-signature": "nonsense"},
        "not base64": good | {"webhook-signature": "v1,!"},
    }


@pytest.mark.parametrize("kind", list(forge_headers()))
async def test_an_invalid_signature_starts_no_run(approver: Desk, kind: str) -> None:
    approver.office.webhook_secret = SECRET
    answer = await approver.post(headers=forge_headers()[kind])
    assert (answer.status, json.loads(answer.raw)["code"]) == (401, "signature")
    assert approver.office.runs_by_event == {}


async def test_invalid_signatures_do_not_fill_the_log(approver: Desk, tmp_path: Path) -> None:
    approver.office.webhook_secret = SECRET
    log = tmp_path / "log.jsonl"
    configure(level="info", console=False, file=log, secrets=Secrets())
    try:
        for number in range(20):
            assert (await approver.post(name=f"door{number}")).status == 401
        assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == [
            "webhook.unsigned"
        ]
    finally:
        # writes what was only counted
        configure(level="info", console=False, file=None, secrets=Secrets())
        structlog.reset_defaults()
        root = logging.getLogger()
        for handler in [
            handler for handler in root.handlers if isinstance(handler, _LibraryHandler)
        ]:
            root.removeHandler(handler)
    assert json.loads(log.read_text().splitlines()[-1])["repeated"] == 19


async def test_a_signed_body_that_is_not_utf_8_is_refused(approver: Desk) -> None:
    approver.office.webhook_secret = SECRET
    assert (await approver.post(b"\xff", headers=sign(b"{}"))).status == 401


# --- the signatures of known senders

OTHER_SECRET = "a secret shared with them"


def expect(approver: Desk, kind: Any, secret: str = OTHER_SECRET) -> None:
    """Let the webhooks of `door` demand the signature of a sender."""
    approver.office.senders = {"them": WebhookSender(kind=kind, secret=secret)}
    approver.office.routine_senders = {"door": "them"}


def digest(message: bytes, secret: str = OTHER_SECRET) -> str:
    return hmac.new(secret.encode(), message, "sha256").hexdigest()


def github(body: bytes, event: str = "push", secret: str = OTHER_SECRET) -> dict[str, str]:
    return {
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-Hub-Signature-256": f"sha256={digest(body, secret)}",
    }


def stripe(body: bytes, *, age: float = 0.0, secret: str = OTHER_SECRET) -> dict[str, str]:
    moment = str(int(time.time() - age))
    signature = digest(moment.encode() + b"." + body, secret)
    return {"Stripe-Signature": f"t={moment},v1={'0' * 64},v1={signature},v0=abc"}


async def test_the_signature_of_github_is_that_of_its_documentation(approver: Desk) -> None:
    # the example of docs.github.com: "It's a Secret to Everybody", "Hello, World!"
    expect(approver, "github", "It's a Secret to Everybody")
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    answer = await approver.post(b"Hello, World!", headers={"X-Hub-Signature-256": signature})
    assert answer.status == 400  # the signature holds, and then the body is no JSON
    answer = await approver.post(b"Hello, World?", headers={"X-Hub-Signature-256": signature})
    assert answer.status == 401


async def test_a_delivery_of_github_is_one_run_that_knows_the_event(approver: Desk) -> None:
    expect(approver, "github")
    body = b'{"ref": "refs/heads/main"}'
    for _ in range(2):
        assert (await approver.post(body, headers=github(body))).status == 202
    assert list(approver.office.runs_by_event) == ["72d3162e-cc78-11e3-81ab-4c9367dc0958"]
    assert approver.office.bodies == [{"event": "push", "payload": {"ref": "refs/heads/main"}}]


async def test_the_ping_of_github_is_answered_and_starts_no_run(approver: Desk) -> None:
    expect(approver, "github")
    body = b'{"zen": "Keep it logically awesome.", "hook_id": 1}'
    answer = await approver.post(body, headers=github(body, "ping"))
    assert (answer.status, json.loads(answer.raw)) == (200, {"pong": True})
    forgery = github(body, "ping", secret="another")
    assert (await approver.post(body, headers=forgery)).status == 401
    assert approver.office.runs_by_event == {}


async def test_an_event_of_gitlab_is_one_run(approver: Desk) -> None:
    expect(approver, "gitlab")
    headers = {"X-Gitlab-Token": OTHER_SECRET, "X-Gitlab-Event-UUID": "13792a34"}
    for key in ("a", "a", "b"):
        assert (await approver.post(headers={**headers, "Idempotency-Key": key})).status == 202
    assert (await approver.post(headers=headers)).status == 202
    assert list(approver.office.runs_by_event) == ["a", "b", "13792a34"]


async def test_an_event_of_stripe_is_one_run(approver: Desk) -> None:
    secret = "whsec_test_secret"
    expect(approver, "stripe", secret)
    body = b'{"id": "evt_1", "type": "invoice.paid"}'
    for age in (0, 290):
        answer = await approver.post(
            body, headers=stripe(body, age=age, secret="whsec_test_secret")
        )
        assert answer.status == 202
    assert list(approver.office.runs_by_event) == ["evt_1"]
    assert approver.office.bodies == [json.loads(body)]


def not_theirs() -> dict[str, tuple[str, dict[str, str]]]:
    good = github(b"{}")
    moment, _, signatures = stripe(b"{}")["Stripe-Signature"].partition(",")
    return {
        "github, unsigned": ("github", {}),
        "github, another secret": ("github", github(b"{}", secret="another")),
        "github, another body": ("github", github(b'{"a": 1}')),
        "github, sha1 only": ("github", {"X-Hub-Signature": "sha1=abc"}),
        "github, no hex": ("github", good | {"X-Hub-Signature-256": "sha256=\u00fc"}),
        "github, signed as Standard Webhooks": ("github", sign(b"{}")),
        "gitlab, unsigned": ("gitlab", {}),
        "gitlab, another token": ("gitlab", {"X-Gitlab-Token": "another"}),
        "stripe, unsigned": ("stripe", {}),
        "stripe, another secret": ("stripe", stripe(b"{}", secret="another")),
        "stripe, another body": ("stripe", stripe(b'{"a": 1}')),
        "stripe, too old": ("stripe", stripe(b"{}", age=400)),
        "stripe, of the future": ("stripe", stripe(b"{}", age=-400)),
        "stripe, another time": (
            "stripe",
            {"Stripe-Signature": f"t={int(moment[2:]) + 1},{signatures}"},
        ),
        "stripe, two times": ("stripe", {"Stripe-Signature": f"t=1,{moment},{signatures}"}),
        "stripe, no time": ("stripe", {"Stripe-Signature": signatures}),
        "stripe, endless time": ("stripe", {"Stripe-Signature": f"t={'9' * 5000},{signatures}"}),
        "stripe, no signature": ("stripe", {"Stripe-Signature": moment}),
        "standard, unsigned": ("standard", {}),
        "standard, signed as GitHub": ("standard", good),
    }


@pytest.mark.parametrize("kind", list(not_theirs()))
async def test_what_a_sender_did_not_sign_starts_no_run(approver: Desk, kind: str) -> None:
    sender, headers = not_theirs()[kind]
    expect(approver, sender, SECRET if sender == "standard" else OTHER_SECRET)
    answer = await approver.post(headers=headers)
    assert (answer.status, json.loads(answer.raw)["code"]) == (401, "signature")
    assert approver.office.runs_by_event == {}


async def test_a_sender_that_the_config_lost_opens_no_door(approver: Desk) -> None:
    approver.office.routine_senders = {"door": "gone"}
    answer = await approver.post()
    assert (answer.status, "hooks.senders.gone" in answer.raw.decode()) == (401, True)


async def test_a_sender_counts_for_its_routine_and_the_common_secret_for_the_others(
    approver: Desk,
) -> None:
    expect(approver, "github")
    approver.office.webhook_secret = SECRET
    assert (await approver.post(headers=sign(b"{}"))).status == 401
    assert (await approver.post(headers=github(b"{}"))).status == 202
    assert (await approver.post(name="other", headers=github(b"{}"))).status == 401
    assert (await approver.post(name="other", headers=sign(b"{}"))).status == 404


# --- the file


async def test_the_socket_may_be_opened_to_a_group(approver: Desk) -> None:
    assert stat.S_IMODE(approver.path.stat().st_mode) == 0o660
    assert stat.S_IMODE(approver.path.parent.stat().st_mode) == 0o700


async def test_the_webhook_socket_of_a_running_daemon_is_not_replaced(approver: Desk) -> None:
    with pytest.raises(SocketBusy):
        Desk(approver.path)


def test_a_file_in_place_of_the_webhook_socket_is_reported(tmp_path: Path) -> None:
    (tmp_path / "agentd-hooks.sock").write_text("mine")
    with pytest.raises(ConfigError, match="in the way"):
        Desk(tmp_path / "agentd-hooks.sock")


def test_only_a_socket_of_that_name_is_taken_over_from_systemd(tmp_path: Path) -> None:
    env = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "control"}
    hooks = Hooks(
        version="",
        start=Office().start,
        sender_of=lambda name: None,
        settings=SimpleNamespace(webhook_secret=None, senders={}),
        secrets=Secrets(),
    )
    server = HookServer(hooks, tmp_path / "agentd-hooks.sock", env)
    assert server.path == tmp_path / "agentd-hooks.sock"
    server._listener_socket.close()
