"""Send reports by SMTP, to the recipients of a `mailto://` or `mailtos://` URL.

Each recipient gets a mail of its own. smtplib blocks, so mails are sent in a thread.
"""

from __future__ import annotations

import asyncio
import os
import smtplib
import socket
import ssl
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from daemon.delivery.channels.base import DeliveryProgress
from daemon.delivery.channels.mail_message import make_mails
from daemon.delivery.channels.mail_url import SmtpUrl, make_url_error, parse_smtp_url
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt
from daemon.system.http_client import describe_connection_error, shared_tls_context
from daemon.telemetry.redaction import is_ordinary_word

if TYPE_CHECKING:
    from daemon.telemetry.redaction import Secrets


class _Sockets:
    """The sockets of one connection, which another thread may shut down at any moment."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._is_shut_down = False

    def add(self, new_socket: socket.socket) -> None:
        """Add a socket, and shut it down at once if the others are shut down already."""
        self._sockets.append(new_socket)
        if self._is_shut_down:
            self.shut_down()

    def close(self) -> None:
        """Close the sockets that are still open, as after a connection that failed to start."""
        for open_socket in self._sockets:
            open_socket.close()

    def shut_down(self) -> None:
        """Make every blocking call on these sockets return, in whatever thread it waits."""
        self._is_shut_down = True
        for open_socket in tuple(self._sockets):
            with suppress(OSError):
                # Not SSLSocket.shutdown: it drops the TLS state first, while the other thread may
                # be writing.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)


class _Connection(smtplib.SMTP):
    """An SMTP connection that registers its sockets in `sockets` before it waits for the server;
    with `tls`, encrypted from the start.

    smtplib reads the greeting in its constructor, which calls `connect`. A server that sends the
    greeting one byte at a time would hold the thread for hours, as the timeout applies to each
    read; shutting down the socket ends that.
    """

    def __init__(
        self,
        sockets: _Sockets,
        host: str,
        port: int,
        timeout: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._sockets, self._tls, self._server_name = sockets, tls, host
        super().__init__(host, port, timeout=timeout)

    def connect(
        self, host: str = "localhost", port: int = 0, source_address: object = None
    ) -> tuple[int, bytes]:
        """Connect and return the status and text of the server's greeting."""
        self.sock = socket.create_connection((host, port), self.timeout)
        self._sockets.add(self.sock)
        if self._tls is not None:
            self._encrypt(self._tls)
        self.file = None
        return self.getreply()

    def upgrade_to_tls(self, context: ssl.SSLContext) -> None:
        """Encrypt the connection by STARTTLS (RFC 3207).

        smtplib's own starttls registers nothing during the handshake, and needs what smtplib's own
        `connect` leaves behind.
        """
        self.ehlo_or_helo_if_needed()
        if not self.has_extn("starttls"):
            raise smtplib.SMTPNotSupportedError(
                "it does not offer STARTTLS. mode=ssl in the address of the target uses TLS from "
                "the start, mode=insecure none."
            )
        code, text = self.docmd("STARTTLS")
        if code != 220:
            raise smtplib.SMTPResponseException(code, text)
        self._encrypt(context)
        # What was read before, and what the server offered, was not protected (section 4.2).
        self.file = None
        code, text = self.ehlo()
        if code != 250:
            raise smtplib.SMTPResponseException(code, text)

    def _encrypt(self, context: ssl.SSLContext) -> None:
        assert self.sock is not None  # noqa: S101  the caller has just connected
        self.sock = context.wrap_socket(
            self.sock, server_hostname=self._server_name, do_handshake_on_connect=False
        )
        self._sockets.add(self.sock)
        self.sock.do_handshake()  # only now, as a handshake may block as well


class MailChannel:
    """Sends reports to the recipients of a mail URL."""

    def __init__(self, url: str, *, secrets: Secrets, host: str = "") -> None:
        """`host` is the name of this machine in subjects; by default the one it has."""
        self._url, self._secrets, self._host = url, secrets, host or os.uname().nodename
        self._progress = DeliveryProgress()
        self._refusals: dict[int, smtplib.SMTPResponseException] = {}
        """By id of the delivery: the server's answer for the first recipient it refused for
        good.
        """

    async def send(self, delivery: Delivery) -> Receipt:
        """Send the report; the receipt has the number of recipients.

        Raises DeliveryFailed if the server refuses a recipient; the other recipients get their mail
        nevertheless.
        """
        address = parse_smtp_url(self._url)
        if not is_ordinary_word(address.password):
            self._secrets.add_word(address.password)
        sockets = _Sockets()
        try:
            count = await asyncio.to_thread(self._send_all, address, delivery, sockets)
        except asyncio.CancelledError:
            sockets.shut_down()
            raise
        recipients = f" for {count} recipients" if count > 1 else ""
        return Receipt(detail=f"{address.server} took it{recipients}")

    def _send_all(self, address: SmtpUrl, delivery: Delivery, sockets: _Sockets) -> int:
        """Send the mails that have not been sent yet, one to each recipient; return the number of
        all mails. Runs in a thread.
        """
        server, port, timeout = address.server, address.port, address.timeout
        temporary_error: smtplib.SMTPResponseException | None = None
        try:
            mails = list(make_mails(address, delivery, self._host))
            context = shared_tls_context() if address.verifies else _unverified_context()
            tls = context if address.mode == "ssl" else None
            with closing(_Connection(sockets, server, port, timeout, tls)) as connection:
                if address.mode == "starttls":
                    connection.upgrade_to_tls(context)
                if address.user and address.password:
                    connection.login(address.user, address.password)
                for number, (recipient, mail) in self._progress.remaining(delivery, mails):
                    answer: smtplib.SMTPResponseException | None = None
                    try:
                        connection.send_message(mail, address.sender.addr_spec, [recipient])
                    except smtplib.SMTPRecipientsRefused as error:
                        answer = smtplib.SMTPResponseException(
                            *next(iter(error.recipients.values()))
                        )
                    except smtplib.SMTPDataError as error:
                        answer = error
                    if answer is not None:
                        if answer.smtp_code == 421:  # the server has closed the connection
                            raise answer
                        if not 500 <= answer.smtp_code < 600:
                            temporary_error = answer
                            continue
                        self._refusals.setdefault(delivery.id, answer)
                    self._progress.mark_done(delivery, number)
                # The mails have arrived, whatever the server answers to QUIT.
                with suppress(OSError, smtplib.SMTPException):
                    connection.quit()
        except (OSError, smtplib.SMTPException) as error:
            failure = self._make_failure(error, address)
            if not failure.retry:
                self._end_delivery(delivery)
            raise failure from error
        except ValueError as error:  # an impossible host name or header
            self._end_delivery(delivery)
            raise make_url_error(str(error)) from None
        finally:
            sockets.close()
        if temporary_error:
            raise self._make_failure(temporary_error, address) from temporary_error
        if refusal := self._end_delivery(delivery):
            raise self._make_failure(refusal, address) from refusal
        return len(mails)

    def _end_delivery(self, delivery: Delivery) -> smtplib.SMTPResponseException | None:
        """Drop the progress of a delivery that ends here, and return the refusal it met, if any."""
        self._progress.clear(delivery)
        return self._refusals.pop(delivery.id, None)

    def _make_failure(self, error: Exception, address: SmtpUrl) -> DeliveryFailed:
        """Return a server's error as a DeliveryFailed; only a permanent one (5xx) is not retried.

        A refused login (535) is retried, as somebody may correct the password within the day.
        """
        retry = True
        reason = describe_connection_error(error)
        if isinstance(error, smtplib.SMTPResponseException):
            answer: bytes | str = error.smtp_error
            text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
            reason = f"it answered {error.smtp_code} {' '.join(text.split())[:300]}"
            retry = not 500 <= error.smtp_code < 600 or isinstance(
                error, smtplib.SMTPAuthenticationError
            )
        return DeliveryFailed(
            self._secrets.redact(f"{address.server}:{address.port}: {reason}"), retry=retry
        )


def _unverified_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate, for `verify=no`."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
