"""Hand reports to the program `sendmail` of this machine, which Postfix, Exim, OpenSMTPD, msmtp and
others bring: one mail for each recipient.

The program is run without a shell. It says by its exit code whether the mail is in its queue
(sysexits.h). From then on sending it is left to the program.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path

from daemon.delivery.channels.base import DeliveryProgress
from daemon.delivery.channels.mail_message import make_mails
from daemon.delivery.channels.mail_url import (
    SendmailUrl,
    make_url_error,
    parse_sendmail_url,
)
from daemon.errors import DeliveryFailed
from daemon.models import Delivery, Receipt

_EXIT_NAMES = {code: name for name, code in vars(os).items() if name.startswith("EX_")}
# The mail itself is refused. Whatever else it is, such as a host that is not found or a fault in
# the program's configuration, may be mended within the day in which the outbox retries.
_REFUSALS = frozenset([os.EX_USAGE, os.EX_DATAERR, os.EX_NOUSER])
# What the program finds its own programs and its configuration by.
_PASSED_VARIABLES = ("HOME", "LOGNAME", "USER", "TZ")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_OUTPUT = 2_000  # bytes
_KILL_LIMIT = 5.0  # seconds until a killed program is gone
_OUTPUT_GRACE = 1.0  # seconds until the output of a program that has ended is read


class SendmailChannel:
    """Hands reports to the program that a `sendmail://` URL names."""

    def __init__(self, url: str, *, env: Mapping[str, str], host: str = "") -> None:
        """`host` is the name of this machine in subjects; by default the one it has."""
        self._url, self._host = url, host or os.uname().nodename
        variables = {name: env[name] for name in _PASSED_VARIABLES if name in env}
        self._env = {"PATH": _PATH, "LC_ALL": "C.UTF-8", **variables}
        self._progress = DeliveryProgress()
        self._refusals: dict[int, DeliveryFailed] = {}
        """By id of the delivery, the failure for the first recipient that the program refused for
        good.
        """

    async def send(self, delivery: Delivery) -> Receipt:
        """Give the program the mails that it has not taken yet; the receipt has what it printed.

        Raises DeliveryFailed if the program refuses a recipient. The other recipients get their
        mail all the same, and a later call sends nothing to them again.
        """
        address = parse_sendmail_url(self._url)
        mails = await asyncio.to_thread(lambda: list(make_mails(address, delivery, self._host)))
        answer = ""
        temporary_failure: DeliveryFailed | None = None
        for number, (recipient, mail) in self._progress.remaining(delivery, mails):
            code, output = await self._run(address, recipient, mail)
            if code == 0:
                answer = output or answer
            else:
                failure = _make_failure(address.program, code, output)
                if failure.retry:
                    temporary_failure = failure
                    continue
                self._refusals.setdefault(delivery.id, failure)
            self._progress.mark_done(delivery, number)
        if temporary_failure:
            raise temporary_failure
        self._progress.clear(delivery)
        if refusal := self._refusals.pop(delivery.id, None):
            raise refusal
        recipients = f" for {len(mails)} recipients" if len(mails) > 1 else ""
        return Receipt(
            detail=f"{address.program} took it{recipients}" + (f": {answer}" if answer else "")
        )

    async def _run(
        self, address: SendmailUrl, recipient: str, mail: EmailMessage
    ) -> tuple[int, str]:
        """Run the program with one mail; return its exit code and the beginning of what it prints.

        Raises DeliveryFailed if it cannot be run, does not end in time, or does not read the mail.
        """
        program, sender = address.program, address.sender.addr_spec
        # Lines end as in files of this machine: the program converts them to those of SMTP.
        policy = SMTP.clone(
            cte_type="7bit", linesep="\n", utf8=not f"{sender}{recipient}".isascii()
        )
        try:
            content = mail.as_bytes(policy=policy)
        except ValueError as error:  # an impossible header
            raise make_url_error(str(error)) from None
        # -i: a line that is a dot does not end the mail
        command = [program, "-i", "-f", sender, "--", recipient]
        try:
            result = await _run_program(command, content, env=self._env, limit=address.timeout)
        except OSError as error:
            raise DeliveryFailed(_describe_start_failure(program, error)) from None
        quotation = f": {result.output}" if result.output else ""
        if result.code is None:
            raise DeliveryFailed(f"{program} did not end within {address.timeout:g} s{quotation}")
        if result.code == 0 and not result.has_read_all:
            raise DeliveryFailed(f"{program} did not read the mail{quotation}")
        return result.code, result.output


@dataclass(frozen=True, kw_only=True, slots=True)
class _ProgramResult:
    """How a program ended, and what it printed."""

    code: int | None
    """The exit code: negative if a signal ended the program, None if it did not end in time."""
    output: str
    """The beginning of what the program printed, on one line."""
    has_read_all: bool
    """Whether the program read all of the mail."""


async def _run_program(
    command: Sequence[str], content: bytes, *, env: Mapping[str, str], limit: float
) -> _ProgramResult:
    """Run a program with `content` as its input, for at most `limit` seconds. Raises OSError if it
    cannot be started.
    """
    output, reader = bytearray(), asyncio.StreamReader()
    # A pipe of our own: a process that the program leaves in the background may hold it open, and
    # asyncio would wait for that.
    read_end, write_end = os.pipe()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    collector = asyncio.create_task(_read_output(reader, output))
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=write_end,
                stderr=write_end,
                env=env,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        assert process.stdin is not None  # noqa: S101  it is a pipe
        code, has_read_all = None, False
        try:
            async with asyncio.timeout(limit):
                has_read_all, code = await asyncio.gather(
                    write_input(process.stdin, content), process.wait()
                )
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _KILL_LIMIT)
        await asyncio.wait([collector], timeout=_OUTPUT_GRACE)
        text = " ".join(output.decode(errors="replace").split())
        return _ProgramResult(code=code, output=text, has_read_all=has_read_all)
    finally:
        collector.cancel()
        transport.close()


async def write_input(pipe: asyncio.StreamWriter, content: bytes) -> bool:
    """Write the mail and close the pipe; return False if the program stopped reading before the
    end.
    """
    if pipe.is_closing():  # nobody reads any more, and a write to it would raise nothing
        return False
    try:
        pipe.write(content)
        await pipe.drain()
        pipe.close()
        await pipe.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


async def _read_output(reader: asyncio.StreamReader, output: bytearray) -> None:
    """Read until the end; add the first _MAX_OUTPUT bytes to `output`, and drop what follows, so
    that the program is not stopped by a full pipe.
    """
    while chunk := await reader.read(_MAX_OUTPUT):
        output += chunk[: _MAX_OUTPUT - len(output)]


def _make_failure(program: str, code: int, output: str) -> DeliveryFailed:
    """Return the DeliveryFailed for an exit code other than 0; its text has the name of the code in
    sysexits.h.
    """
    if code < 0:
        ending = f"was ended by signal {-code}"
    else:
        name = _EXIT_NAMES.get(code)
        ending = f"ended with {code}" + (f" ({name})" if name else "")
    text = f"{program} {ending}" + (f": {output}" if output else "")
    return DeliveryFailed(text, retry=code not in _REFUSALS)


def _describe_start_failure(program: str, error: OSError) -> str:
    return f"{program}: {error.strerror}; program=PATH in the address of the target names another"


def find_program_fault(program: str, *, status: Path = Path("/proc/self/status")) -> str:
    """Return why the program cannot send mails here, as far as that can be seen without running it;
    empty if there is no such reason.

    The programs of Postfix and others need the rights of a group to write into their queue. Where
    no program gains rights by being run (NoNewPrivileges=, as in the shipped units), they wait for
    ever. `status` is the file of this process that proc(5) describes.
    """
    try:
        mode = Path(program).stat().st_mode
    except OSError as error:
        return _describe_start_failure(program, error)
    if not stat.S_ISREG(mode) or not os.access(program, os.X_OK):
        return f"{program} is no program; program=PATH in the address of the target names another"
    try:
        may_gain_rights = "NoNewPrivs:\t1" not in status.read_text()
    except OSError:  # no Linux
        may_gain_rights = True
    if may_gain_rights:
        return ""
    for path in (Path(program), Path(program).resolve().with_name("postdrop")):
        with suppress(OSError):
            if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
                return (
                    f"{path} needs rights that NoNewPrivileges= of the unit keeps from it; "
                    "mailto://localhost?to=ADDRESS reaches the same mail system"
                )
    return ""
