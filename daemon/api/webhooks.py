"""Webhooks, on a socket of their own: a user who can connect to it can start the routines with
`webhook = true`, and do nothing else.

A body is the run's input. Where the routine names a sender, every request must be signed as that
sender does; else, where the config names a secret, by the rules of Standard Webhooks
(https://www.standardwebhooks.com). The sender's id of a message is the event: a message that is
sent twice starts one run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from standardwebhooks import WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.api.application import make_application
from daemon.api.bodies import parse_json, read_body, refuse_lone_surrogates
from daemon.api.connections import ConnectionLimits
from daemon.api.embedded_uvicorn import SocketServer
from daemon.api.listener import open_listener
from daemon.api.problems import (
    InvalidRequest,
    make_problem,
)
from daemon.api.signatures import verify
from daemon.errors import DaemonError
from daemon.models import Run, new_id
from daemon.runs.settings import WebhookSender
from daemon.system.http_body import is_deeper

if TYPE_CHECKING:
    from daemon.runs.settings import LiveSettings
    from daemon.telemetry.redaction import Secrets

log = structlog.get_logger()

PATH = "/v1/hooks/{name}"
MAX_ID_LENGTH = MAX_NAME_LENGTH = 256
# Levels of lists and objects in a body: deeper ones exhaust the stack of programs that read them.
MAX_DEPTH = 50
# More requests wait, with their bodies unparsed: parsed, a body takes several times its bytes.
MAX_CONCURRENT_STARTS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooks:
    """The parts of the daemon that the webhook socket uses."""

    version: str
    start: Callable[..., Awaitable[Run]]
    """`start(routine, event=…, body=…)`. Raises NotFound, Refused."""
    sender_of: Callable[[str], str | None]
    """The name of the sender whose signature a routine demands; None if it demands none, or there
    is no such routine.
    """
    settings: LiveSettings
    secrets: Secrets
    """The passwords and keys that are redacted in a body before the journal gets it."""


def make_hooks_application(hooks: Hooks) -> Starlette:
    """Return the ASGI application with the route of webhooks."""

    concurrent_starts = asyncio.Semaphore(MAX_CONCURRENT_STARTS)

    async def receive(request: Request) -> Response:
        raw_body = await read_body(request)
        async with concurrent_starts:
            return await start_run(request, raw_body)

    async def start_run(request: Request, raw_body: bytes) -> Response:
        # answers and the log repeat the name; no routine has a longer one, as no file has
        name = request.path_params["name"][:MAX_NAME_LENGTH]
        sender_name = hooks.sender_of(name)
        try:
            sender = _find_sender(hooks.settings, sender_name)
            message_id = _read_message_id(sender, request.headers, raw_body)
        except WebhookVerificationError as error:
            log.warning("webhook.unsigned", counted=str(error), routine=name, reason=str(error))
            return make_problem(
                HTTPStatus.UNAUTHORIZED, f"the signature does not hold: {error}", "signature"
            )
        is_github = sender is not None and sender.kind == "github"
        event = request.headers.get("x-github-event", "") if is_github else ""
        if event == "ping":  # sent once, when the webhook is made
            return Response(b'{"pong":true}', media_type="application/json")
        body = parse_json(raw_body)
        if is_deeper(body, MAX_DEPTH):
            raise InvalidRequest(
                f"the body is nested more than {MAX_DEPTH} levels deep",
                HTTPStatus.UNPROCESSABLE_ENTITY,
            )
        refuse_lone_surrogates(raw_body, body)
        if is_github:  # the body itself does not say what has happened
            body = {"event": event[:MAX_ID_LENGTH], "payload": body}
        # in a thread, as a body that was made to be slow keeps nobody else waiting there
        body = await asyncio.to_thread(hooks.secrets.redact_json, body)
        try:
            run = await hooks.start(name, event=message_id, body=body)
        except DaemonError as error:
            log.info("webhook.refused", routine=name, message=message_id, reason=str(error))
            raise
        log.info("webhook.taken", routine=name, message=message_id, run=run.id)
        answer = {"run": run.id, "routine": run.routine, "status": run.status.value}
        return Response(json.dumps(answer), HTTPStatus.ACCEPTED, media_type="application/json")

    return make_application([Route(PATH, receive, methods=["POST"])])


def _find_sender(settings: LiveSettings, name: str | None) -> WebhookSender | None:
    """Return who must have signed a request; None if nobody must.

    Raises WebhookVerificationError if the config does not name the sender any more.
    """
    if name is not None:
        if name not in settings.senders:
            raise WebhookVerificationError(f"config.toml has no [hooks.senders.{name}]")
        return settings.senders[name]
    secret = settings.webhook_secret
    return None if secret is None else WebhookSender(kind="standard", secret=secret)


def _read_message_id(
    sender: WebhookSender | None, headers: Mapping[str, str], raw_body: bytes
) -> str:
    """Return the sender's id of a message, a new one if it has none.

    Raises WebhookVerificationError if its signature is not valid, InvalidRequest if the id cannot
    be used.
    """
    id_ = verify(sender, headers, raw_body) if sender else headers.get("webhook-id")
    message_id = id_ or new_id()
    if len(message_id) > MAX_ID_LENGTH or not message_id.isprintable():
        raise InvalidRequest(f"the id of a message is at most {MAX_ID_LENGTH} printable characters")
    return message_id


class HookServer(SocketServer):
    """The webhook socket.

    Its file is open to a group, such as that of a proxy: 0660, and so is the folder where the
    config names one.
    """

    def __init__(
        self,
        hooks: Hooks,
        path: Path,
        env: Mapping[str, str] | None = None,
        *,
        group: int | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        listener = open_listener(path, env or {}, name="hooks", group=group)
        super().__init__(
            make_hooks_application(hooks),
            listener,
            {"agentd-version": hooks.version},
            limits=limits,
        )
