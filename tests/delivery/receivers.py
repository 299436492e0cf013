"""Those who take reports, on real sockets: an HTTP server that fails, hangs and lies, a mailbox, a
desktop.
"""

from __future__ import annotations

import asyncio
import email
import warnings
from contextlib import asynccontextmanager
from email import policy

from aiosmtpd.smtp import SMTP, AuthResult


class Post:
    """One request as it arrived."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = {
            name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)
        }
        self.body = body


class Receiver:
    """An HTTP server that answers by a list of raw answers, and 204 after that; a number is a plain
    status.

    None: it hangs. "cut": it promises more than it sends. "drip": it sends byte by byte, for ever.
    """

    def __init__(self, *plan) -> None:
        self.plan, self.posts = list(plan), []

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            self.posts.append(Post(head[:-4], await reader.readexactly(size)))
            await self._answer(self.plan.pop(0) if self.plan else 204, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, answer, reader, writer):
        match answer:
            case None:
                await reader.read()  # until the other side gives up
            case "drip":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
                while True:
                    writer.write(b".")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            case "cut":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            case int():
                writer.write(f"HTTP/1.1 {answer} Told\r\ncontent-length: 0\r\n\r\n".encode())
            case bytes():
                writer.write(answer)
        await writer.drain()


class Mailbox:
    """An SMTP server that takes what it is told to take."""

    def __init__(self, *plan: str) -> None:
        self.plan, self.mails = list(plan), []
        self.envelopes: list[tuple[list[str], bytes]] = []
        """The recipients of each mail, and its bytes."""

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - its name is aiosmtpd's
        answer = self.plan.pop(0) if self.plan else "250 taken"
        if answer.startswith("250"):
            self.envelopes.append((envelope.rcpt_tos, envelope.content))
            self.mails.append(email.message_from_bytes(envelope.content, policy=policy.default))
        return answer

    @asynccontextmanager
    async def open(self, *, tls=None, mode="insecure", user="", password=""):
        """Listen; with a TLS context in the mode `ssl` or `starttls`, with a user only to who knows
        the password.
        """

        def is_known(server, session, envelope, mechanism, data):
            is_valid = (data.login, data.password) == (user.encode(), password.encode())
            return AuthResult(success=is_valid, handled=False)

        def session():
            context = tls if mode == "starttls" else None
            more = {
                "authenticator": is_known,
                "auth_required": True,
                "auth_require_tls": mode == "starttls",
            }
            # it does not see the TLS that it is spoken to by
            with warnings.catch_warnings(action="ignore"):
                return SMTP(
                    self, enable_SMTPUTF8=True, tls_context=context, **(more if user else {})
                )

        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            session, "127.0.0.1", 0, ssl=tls if mode == "ssl" else None
        )
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"mailto://127.0.0.1:{self.port}/?from=agentd@example.org&to=ada@example.org&mode=insecure"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
