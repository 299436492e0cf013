"""`agentd target test NAME`: send a short message through the channel of a target.

The message is sent by this process, so a daemon need not run. Keys and addresses come from the same
places as the daemon's, except what only its service has (systemd credentials, its environment).
"""

from __future__ import annotations

import asyncio
import json
import os
import smtplib
import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from daemon.definitions.config.tables import BUILT_IN_TARGETS, KINDS_BY_KEY, TargetConfig
from daemon.definitions.words import display
from daemon.delivery.targets import Targets, find_missing_extra
from daemon.errors import DeliveryFailed, NotFound
from daemon.models import Delivery, DeliveryStatus, Json, Report, Status, new_id
from daemon.system.http_client import root_cause
from daemon.telemetry.log import configure
from daemon.telemetry.redaction import Secrets

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config

_SEND_LIMIT = 60.0  # seconds; the channels' own timeouts are shorter
_NO_ROTATION = 1 << 62  # bytes: only the daemon may set its log file aside
_NAME = "target-test"  # stands for a routine's name


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTest:
    """What came of a test message; its texts hold no secrets."""

    target: str
    kind: str
    receipt: str = ""
    """What the target said when it took the message."""
    error: str = ""
    """Why the target did not take the message; empty if it did."""
    advice: str = ""
    """What to do about the error."""

    @property
    def text(self) -> str:
        if self.error:
            return f"{self.target} ({self.kind}) took no test message: {self.error}\n{self.advice}"
        return f"{self.target} ({self.kind}) took a test message: {self.receipt}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressParts:
    """Where the parts of a target's address were written, in words for `look at …`."""

    whole: str
    server: str
    """Host and port."""
    host: str
    account: str
    """User and password."""
    mailboxes: str
    """The sender and the recipients of mails."""
    encryption: str

    @classmethod
    def written_in(cls, place: str) -> AddressParts:
        """Return the parts of an address that is one URL, written in one place."""
        return cls(
            whole=place,
            server=f"host and port in {place}",
            host=f"the host in {place}",
            account=f"both in {place}",
            mailboxes=f"from= and to= in {place}",
            encryption=f"the port and mode= (ssl, starttls or insecure) in {place}",
        )


def print_target_test(
    config: Config, name: str, *, state: Path, env: Mapping[str, str], as_json: bool
) -> int:
    """Send a test message to a target and print what came of it; return 1 if it was not taken."""
    result = send_test_message(config, name, state=state, env=env)
    if as_json:
        fields = {
            "target": result.target,
            "kind": result.kind,
            "delivered": not result.error,
            "receipt": result.receipt or None,
            "error": result.error or None,
            "advice": result.advice or None,
        }
        sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
    else:
        note = "sent by this command itself, as the daemon would send it"
        sys.stdout.write(f"{result.text}\n" + ("" if result.error else f"({note})\n"))
    return 1 if result.error else 0


def send_test_message(
    config: Config,
    name: str,
    *,
    state: Path,
    env: Mapping[str, str],
    address: AddressParts | None = None,
) -> TargetTest:
    """Send a test message to a target, and return what came of it.

    `address` is where the address was written, unless that is where the config says. Runs an event
    loop of its own. Raises NotFound for an unknown target, ConfigError if its address
    is missing.
    """
    if name not in config.target_names:
        names = sorted(config.target_names)
        similar_names = get_close_matches(name, names, 1)
        hint = f"; did you mean {similar_names[0]}?" if similar_names else ""
        raise NotFound(f"there is no target {name!r}{hint}; known are {', '.join(names)}")
    table = config.targets.get(name)
    chat = config.chat.get(name)
    kind = chat.kind if chat else table.kind if table else name
    # only this target: an address that another one lacks would raise ConfigError
    own_config = config.model_copy(update={"targets": {name: table} if table else {}})
    secrets = Secrets()
    workspace = config.workspace_path(state)
    targets = Targets(own_config, workspace=workspace, env=env, secrets=secrets)
    log_file = state / "logs" / "agentd.jsonl" if kind == "log" else None
    configure(
        level=config.log.level,
        console=False,
        file=log_file,
        secrets=secrets,
        max_bytes=_NO_ROTATION,
    )
    receipt, obstacle = "", _find_obstacle(kind, config)
    failure = DeliveryFailed(obstacle) if obstacle else None
    if failure is None:
        if kind in KINDS_BY_KEY["path"]:
            workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            delivery = _test_delivery(name, kind, table)
            receipt = asyncio.run(
                _send_to_chat(config, delivery, secrets) if chat else _send(targets, delivery)
            )
        except DeliveryFailed as error:
            failure = error
        except TimeoutError as error:
            failure = DeliveryFailed(f"no answer within {_SEND_LIMIT:g} s")
            failure.__cause__ = error
    if failure is not None:
        address = address or AddressParts.written_in(_address_place(config, name, table))
        advice = _advise(kind, failure, address)
        return TargetTest(target=name, kind=kind, error=secrets.redact(str(failure)), advice=advice)
    return TargetTest(target=name, kind=kind, receipt=secrets.redact(receipt))


def _find_obstacle(kind: str, config: Config) -> str:
    """Return why a message cannot arrive at a target of this kind; empty if it can."""
    if kind == "desktop":
        return find_missing_extra(kind)
    if kind == "log" and config.log.level in ("warning", "error"):
        return f'[log] level = "{config.log.level}" keeps reports of successful runs out of the log'
    return ""


async def _send(targets: Targets, delivery: Delivery) -> str:
    async with asyncio.timeout(_SEND_LIMIT):
        receipt = await targets.channel(delivery.target).send(delivery)
    return receipt.detail


async def _send_to_chat(config: Config, delivery: Delivery, secrets: Secrets) -> str:
    """Send a test message to a chat. Without a store: nobody replies to it."""
    from daemon.chat.base import ChatFailed
    from daemon.chat.chats import open_chat

    chat, options = open_chat(config, delivery.target, secrets), delivery.options
    try:
        async with asyncio.timeout(_SEND_LIMIT):
            message = await chat.send(
                config.chat[delivery.target].report_conversation,
                f"**{options['title']}**\n\n{options['text']}",
            )
    except ChatFailed as error:
        raise DeliveryFailed(str(error), retry=error.retry) from None
    finally:
        await chat.close()
    return f"message {message}"


def _test_delivery(name: str, kind: str, table: TargetConfig | None) -> Delivery:
    """Return a test message to a target, as the outbox would pass it to the channel."""
    now, run = datetime.now(UTC), new_id()
    host = os.uname().nodename
    options: Json = {
        "notice": "target.test",
        "title": f"A test of the target {name}",
        "text": f'agentd on {host} reaches you here: reports with `to = "{name}"` arrive.',
    }
    if kind in KINDS_BY_KEY["path"]:
        # Never the name of a report, which the test would replace.
        path = table.path if table and table.path else f"reports/{_NAME}.md"
        options["path"] = str(PurePosixPath(path).with_name(f"{_NAME}.md"))
    report = Report(
        run=run, routine=_NAME, slot=now, status=Status.SUCCEEDED, text=str(options["text"])
    )
    return Delivery(
        id=1,
        run=run,
        routine=_NAME,
        target=name,
        options=options,
        status=DeliveryStatus.PENDING,
        attempts=0,
        next_at=now,
        receipt=None,
        error=None,
        report=report,
        created=now,
    )


def _address_place(config: Config, name: str, table: TargetConfig | None) -> str:
    """Return where the address of a target is written."""
    if table and table.url_file:
        return display(config.folder / Path(table.url_file).expanduser())
    if table and table.url_env:
        return f"${table.url_env}"
    table_name = "chat" if name in config.chat else "targets"
    return f"[{table_name}.{name}] of {display(config.file)}"


def _advise(kind: str, failure: BaseException, address: AddressParts) -> str:
    """Return what to do about a failure, in a sentence."""
    if kind == "desktop":  # first, as a session that does not answer is no matter of a network
        return "notifications need a desktop session, which a service or an ssh login has not"
    match root_cause(failure):
        case smtplib.SMTPResponseException(smtp_code=534 | 535):
            return (
                f"the server refuses the user or the password: look at {address.account}; Gmail "
                "and others take an app password, not the account's own"
            )
        case smtplib.SMTPResponseException(smtp_code=550 | 553 | 554):
            return f"the server refuses an address: look at {address.mailboxes}"
        case ssl.SSLCertVerificationError():
            return "the server's certificate is not trusted here"
        case ssl.SSLError() | smtplib.SMTPNotSupportedError() if kind == "mail":
            return f"look at {address.encryption}"
        case ConnectionRefusedError():
            return f"nothing listens there: look at {address.server}"
        case socket.gaierror():
            return f"there is no such host, or no network: look at {address.host}"
        case TimeoutError() | asyncio.CancelledError():  # which asyncio.timeout begins with
            return "no answer came: a firewall, or another port?"
        case DeliveryFailed(status=401 | 403 | 404 | 410):
            return f"the service does not take it there: look at {address.whole}"
    if kind in BUILT_IN_TARGETS:
        return f"look at the folder and its disk, and at {address.whole}"
    return f"look at {address.whole}"
