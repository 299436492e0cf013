"""Whatever comes in at the door of webhooks is answered, within bounds and never as a fault of
ours; nothing that the sender has not signed starts a run.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from daemon.api.bodies import MAX_BODY_BYTES
from daemon.api.webhooks import Hooks, make_hooks_application
from daemon.models import Status
from tests.fuzz.hostile import broken_documents, to_json
from tests.fuzz.test_loaders import bounded_memory
from tests.properties import scaled_settings
from tests.replaying import ReplayedApp

FUZZ = settings(
    scaled_settings(400, fewest=60, suppress=[HealthCheck.data_too_large]),
    phases=(Phase.explicit, Phase.generate),
)
SECRET = "c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtb3ItbW9yZQ=="  # as Standard Webhooks writes keys
SENDERS = ("github", "gitlab", "stripe", "standard")
CONFIG = """
[hooks.senders.{kind}]
kind = "{kind}"
secret_file = "{kind}.secret"
"""
ROUTINE = """
[trigger]
webhook = true
{sender}
[run]
prompt = "Say what came."
"""
LONG_PATH = "/v1/hooks/" + "x" * 20_000
# What people may read in an answer, whatever was sent.
MAX_ANSWER_BYTES = 4_000

Headers = Sequence[tuple[bytes, bytes]]


@dataclass
class Answer:
    status: int
    headers: Headers
    body: bytearray = field(default_factory=bytearray)


class Door:
    """The application of the webhook socket, with a daemon behind it that executes each run."""

    def __init__(self, folder: Path) -> None:
        self.app = ReplayedApp(folder)
        config = '[providers.fake]\nkind = "offline"\n'
        for kind in SENDERS:
            self.app.write(f"{kind}.secret", SECRET)
            self.app.write_routine(kind, ROUTINE.format(sender=f'sender = "{kind}"'))
            config += CONFIG.format(kind=kind)
        self.app.write("config.toml", 'provider = "fake"\n' + config)
        self.app.write_routine("anybody", ROUTINE.format(sender=""))

    async def open(self) -> None:
        await self.app.__aenter__()
        daemon = self.app.daemon
        await self.app.engine.start(await daemon.reloader.load_routines())
        assert set(self.app.engine.webhook_routines) == {"anybody", *SENDERS}
        self.application = make_hooks_application(
            Hooks(
                version="9.9",
                start=self.app.engine.start_by_webhook,
                sender_of=self.app.engine.webhook_sender_of,
                settings=daemon.settings,
                secrets=daemon.installation.secrets,
            )
        )

    async def ask(
        self,
        method: str,
        path: str,
        headers: Headers,
        pieces: Sequence[bytes],
        *,
        cut: bool = False,
    ) -> Answer:
        """Send a request whose body comes in pieces, its end missing if `cut`; return the answer
        once the run that it started has ended.
        """
        messages = [
            {"type": "http.request", "body": piece, "more_body": cut or number < len(pieces)}
            for number, piece in enumerate(pieces, 1)
        ]
        answers: list[Answer] = []

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answers.append(Answer(message["status"], message["headers"]))
            else:
                answers[0].body += message["body"]

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("utf-8", "replace"),
            "root_path": "",
            "query_string": b"",
            "headers": list(headers),
            "client": None,
            "server": None,
        }
        await self.application(scope, receive, send)
        [answer] = answers
        if answer.status == 202:
            run = await self.app.finish(json.loads(answer.body)["run"])
            assert run.status is Status.SUCCEEDED, run.detail
        return answer


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, runner: asyncio.Runner) -> Iterator[Door]:
    door = Door(tmp_path_factory.mktemp("door"))
    runner.run(door.open())
    yield door
    runner.run(door.app.__aexit__(None, None, None))  # replays the runs


def signed(kind: str, body: bytes, number: int) -> dict[bytes, bytes]:
    """Return the headers by which a sender of this kind signs a body."""
    secret, now = SECRET.encode(), str(int(time.time())).encode()
    id_ = f"m-{number}".encode()
    if kind == "github":
        digest = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
        return {b"x-hub-signature-256": b"sha256=" + digest, b"x-github-delivery": id_}
    if kind == "gitlab":
        return {b"x-gitlab-token": secret, b"idempotency-key": id_}
    if kind == "stripe":
        digest = hmac.new(secret, now + b"." + body, hashlib.sha256).hexdigest().encode()
        return {b"stripe-signature": b"t=" + now + b",v1=" + digest}
    key = base64.b64decode(SECRET)
    digest = base64.b64encode(
        hmac.new(key, id_ + b"." + now + b"." + body, hashlib.sha256).digest()
    )
    return {
        b"webhook-id": id_,
        b"webhook-timestamp": now,
        b"webhook-signature": b"v1," + digest,
    }


def check(answer: Answer, statuses: set[int]) -> None:
    assert answer.status in statuses, (answer.status, bytes(answer.body))
    assert len(answer.body) < MAX_ANSWER_BYTES
    json.loads(answer.body)
    assert all(b"\r" not in value and b"\n" not in value for _, value in answer.headers)


bodies = (
    broken_documents(
        [{"type": "x", "id": "evt_1", "data": {"a": [1, 2.5, "x"]}}], ["id", "event"]
    ).map(to_json)
    | st.binary(max_size=60)
    | st.sampled_from([b"", b" ", b"[" * 51 + b"]" * 51, b"\xef\xbb\xbf{}", b"x" * MAX_BODY_BYTES])
    | st.sampled_from([b'"' + b"x" * MAX_BODY_BYTES + b'"'])
)
# h11 and uvicorn let neither NUL nor line ends pass in values, and pass names in lower case.
values = st.binary(max_size=40).map(lambda value: value.translate(None, b"\0\r\n")) | (
    st.sampled_from(
        [
            *(b"", b"\xff", b"9" * 5_000, b"x" * 60_000, b"," * 500, b"ping", b"nan", b"inf"),
            *(b"t=1,v1=", b"t=1e999,v1=a", b"t=" + b"9" * 13 + b",v1=a", b"v1=a," * 2_000),
            *(b"v1,", b"v1,=", b"v1,\xc3\xa9", b"v1,a b v2", b"sha256=", b"sha256=" + b"0" * 64),
        ]
    )
)
names = st.sampled_from(
    [
        *(b"webhook-id", b"webhook-timestamp", b"webhook-signature", b"x-hub-signature-256"),
        *(b"x-github-delivery", b"x-github-event", b"x-gitlab-token", b"x-gitlab-event-uuid"),
        *(b"idempotency-key", b"stripe-signature", b"content-length", b"content-type"),
        *(b"transfer-encoding", b"content-encoding", b"expect", b"host", b"cookie", b"x-odd"),
    ]
)
headers = st.lists(st.tuples(names, values), max_size=6)
numbers = st.integers(0, 10**9)


def in_pieces(body: bytes, cuts: Sequence[float]) -> list[bytes]:
    """Return a body in pieces that begin at these shares of it."""
    places = [0, *sorted(int(cut * len(body)) for cut in cuts), len(body)]
    return [body[begin:end] for begin, end in pairwise(places)]


# Most requests reach the handler of webhooks.
methods = st.sampled_from(["POST"] * 12 + ["GET", "PUT", "HEAD", "OPTIONS", "BREW", "post", "A-Z"])
HOOKS = [*SENDERS, "nobody", "", ".", "..", "../..", "anybody/", "ANYBODY", "%2e", "a\0b"]
any_paths = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
paths = st.one_of(
    st.just("/v1/hooks/anybody"),
    st.sampled_from(["anybody"] * 10 + HOOKS).map(lambda name: f"/v1/hooks/{name}"),
    st.sampled_from(["/v1/hooks/anybody"] * 4 + [LONG_PATH]),
    any_paths.map(lambda text: f"/{text}"),
)
shares = st.lists(st.floats(0, 1), max_size=4)


@FUZZ
@given(
    method=methods,
    path=paths,
    headers=headers,
    body=bodies,
    cuts=shares,
    is_cut=st.booleans(),
)
def test_any_request_is_answered_and_none_as_our_fault(
    door: Door,
    runner: asyncio.Runner,
    method: str,
    path: str,
    headers: Headers,
    body: bytes,
    cuts: list[float],
    is_cut: bool,
) -> None:
    with bounded_memory():
        answer = runner.run(door.ask(method, path, headers, in_pieces(body, cuts), cut=is_cut))
    if method == "HEAD":
        assert answer.status in (404, 405)
        return
    check(answer, {202, 400, 401, 404, 405, 409, 413, 422})
    if answer.status == 202:
        assert (method, path, is_cut) == ("POST", "/v1/hooks/anybody", False)


@FUZZ
@given(
    kind=st.sampled_from(SENDERS),
    body=bodies.filter(lambda body: len(body) <= MAX_BODY_BYTES),
    number=numbers,
    cuts=shares,
)
def test_a_signed_body_of_any_bytes_starts_a_run_or_is_refused_for_what_it_is(
    door: Door,
    runner: asyncio.Runner,
    kind: str,
    body: bytes,
    number: int,
    cuts: list[float],
) -> None:
    headers = [*signed(kind, body, number).items()]
    with bounded_memory():
        answer = runner.run(door.ask("POST", f"/v1/hooks/{kind}", headers, in_pieces(body, cuts)))
    is_text = kind != "standard" or _is_utf8(body)
    check(answer, {202, 400, 422} if is_text else {401})


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@FUZZ
@given(
    kind=st.sampled_from(SENDERS),
    signer=st.sampled_from(SENDERS),
    number=numbers,
    position=st.integers(0, 3),
    value=values,
    change=st.sampled_from(["value", "removed", "body", "twice", "sender"]),
)
@example("standard", "standard", 0, 1, b"1e400", "value")
@example("standard", "standard", 0, 2, b"v1,\xc3\xa9", "value")
@example("stripe", "stripe", 0, 0, b"t=" + b"9" * 5_000 + b",v1=a", "value")
@example("gitlab", "gitlab", 0, 0, b"\xff", "value")
def test_a_request_that_its_sender_has_not_signed_starts_nothing(
    door: Door,
    runner: asyncio.Runner,
    kind: str,
    signer: str,
    number: int,
    position: int,
    value: bytes,
    change: str,
) -> None:
    body = b'{"id": "evt_1"}'
    headers = [*signed(kind, body, number).items()]
    secured = [name for name, _ in headers if name not in UNSIGNED]
    name = secured[position % len(secured)]
    if change == "value":
        headers = [(key, value if key == name else old) for key, old in headers]
    elif change == "removed":
        headers = [(key, old) for key, old in headers if key != name]
    elif change == "twice":  # Starlette takes the first of two
        headers.insert(0, (name, value))
    elif change == "sender" and signer != kind:
        headers = [*signed(signer, body, number).items()]
    elif kind != "gitlab":  # whose token signs no body
        body += b" "
    else:
        headers = []
    answer = runner.run(door.ask("POST", f"/v1/hooks/{kind}", headers, [body]))
    check(answer, {401})


# What a sender does not sign: the ids of messages, but for that of Standard Webhooks.
UNSIGNED = {b"x-github-delivery", b"idempotency-key"}
