"""The kinds of targets that setup knows, and the address that each makes of a few answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_MAIL_ADDRESS = re.compile(r"[^@\s,;<>\"]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetKind:
    """A way to reach a person, and what has to be known for it."""

    title: str
    kind: str
    """The key `kind` of the target's table in config.toml."""
    name: str
    """The name of the target's table, unless a flag gives another."""
    to: str
    """The question for `--to`: what the address of this kind is."""
    to_example: str
    """An address of this kind."""
    server: str = ""
    """The SMTP server, if there is one by default."""
    needs_server: bool = False
    needs_user: bool = False
    hidden_question: str = ""
    """The question for the password or token; empty if the kind needs none."""


TARGET_KINDS: Mapping[str, TargetKind] = {
    "relay": TargetKind(
        title="mail, by a mail server that takes it without a password",
        kind="mail",
        name="mail",
        to="The mail address that gets the reports:",
        to_example="ada@example.org",
        server="localhost:25",
        needs_server=True,
    ),
    "gmail": TargetKind(
        title="mail, by Gmail with an app password",
        kind="mail",
        name="mail",
        to="The mail address that gets the reports:",
        to_example="ada@example.org",
        server="smtp.gmail.com:587",
        needs_user=True,
        hidden_question="The app password (myaccount.google.com/apppasswords; it stays unseen):",
    ),
    "smtp": TargetKind(
        title="mail, by another account",
        kind="mail",
        name="mail",
        to="The mail address that gets the reports:",
        to_example="ada@example.org",
        needs_server=True,
        needs_user=True,
        hidden_question="Its password (it stays unseen):",
    ),
    "ntfy": TargetKind(
        title="a notification on the phone, by ntfy.sh",
        kind="apprise",
        name="phone",
        to="The topic (whoever knows it can read along):",
        to_example="reports-4f7b2a9c",
    ),
    "telegram": TargetKind(
        title="a message by a Telegram bot",
        kind="apprise",
        name="chat",
        to="The chat's number:",
        to_example="123456789",
        hidden_question="The bot's token, as @BotFather gave it (it stays unseen):",
    ),
    "webhook": TargetKind(
        title="JSON, posted to a server of yours",
        kind="webhook",
        name="ops",
        to="The URL:",
        to_example="https://example.org/hooks/agentd",
    ),
}


def check_answer(kind: str, *, to: str, server: str = "", user: str = "", secret: str = "") -> str:
    """Return what is wrong with the answers for a kind of target; empty if nothing is."""
    target_kind = TARGET_KINDS[kind]
    if target_kind.kind == "mail" and not _MAIL_ADDRESS.fullmatch(to):
        return f"--to {to!r} is no mail address"
    if kind == "ntfy" and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", to):
        return f"--to {to!r} is no topic: use letters, digits, - and _"
    if kind == "telegram" and not re.fullmatch(r"-?\d{1,20}|@[A-Za-z0-9_]{1,32}", to):
        return f"--to {to!r} is no chat: a number, or @ and the name of a channel"
    if kind == "webhook" and not re.fullmatch(r"https?://[^\s/]+\S*", to):
        return "--to is no URL such as https://example.org/hooks/agentd"
    if target_kind.needs_server:
        host, _, port = server.partition(":")
        is_port = not port or (port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536)
        if not _HOST.fullmatch(host) or not is_port:
            return f"--smtp {server!r} is no server: write HOST or HOST:PORT"
    if target_kind.needs_user and not re.fullmatch(r"[!-~]+", user):
        return f"--user {user!r} is no account"
    if kind == "gmail" and not _MAIL_ADDRESS.fullmatch(user):
        return f"--user {user!r} is no mail address"
    if target_kind.hidden_question and not (secret.isascii() and secret.isprintable()):
        return "the password or token holds a character that none has"
    if kind == "telegram" and not re.fullmatch(r"\d+:[A-Za-z0-9_-]+", secret):
        return "the token of a bot looks like 123456:ABC-DEF"
    return ""


def make_address(
    kind: str, *, to: str, hostname: str, server: str = "", user: str = "", secret: str = ""
) -> str:
    """Return the URL of a target of this kind; `check_answer` has nothing against the answers.

    `hostname` is that of this machine, from which a relay's mails come.
    """
    recipient = quote(to, safe="@")
    if kind == "relay":
        return f"mailto://{server}?from={quote(f'agentd@{hostname}', safe='@')}&to={recipient}"
    if kind in ("gmail", "smtp"):
        if kind == "gmail":
            secret = secret.replace(" ", "")  # Google shows it in four groups
        host, _, port = (server or TARGET_KINDS[kind].server).partition(":")
        mode = "ssl" if port == "465" else "starttls"
        sender = user if "@" in user else f"{user}@{host}"
        account = f"{quote(user, safe='')}:{quote(secret, safe='')}"
        return (
            f"mailtos://{account}@{host}:{port or '587'}"
            f"?mode={mode}&from={quote(sender, safe='@')}&to={recipient}"
        )
    if kind == "ntfy":
        return f"ntfys://ntfy.sh/{to}"
    if kind == "telegram":
        return f"tgram://{secret}/{to}"
    return to
