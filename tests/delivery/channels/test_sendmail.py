"""Mail by the program sendmail, against a real program."""

import asyncio
import email
import os
import signal
from dataclasses import replace
from email import policy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.app.commands.validate import examine
from daemon.app.doctor.service_checks import survey_service
from daemon.definitions.config.loading import load_config
from daemon.delivery.channels.mail_url import (
    is_mail,
    parse_sendmail_url,
    parse_smtp_url,
)
from daemon.delivery.channels.sendmail import (
    SendmailChannel,
    find_program_fault,
    write_input,
)
from daemon.delivery.targets import Targets
from daemon.errors import DeliveryFailed
from daemon.models import Status
from daemon.telemetry.redaction import Secrets, parts_of_address
from tests.properties import scaled_settings

# Writes each call beside itself and ends as the file `plan` says: a list of commands of the shell,
# one for each call; after that it takes everything.
PROGRAM = """#!/bin/sh
folder=$(dirname "$0")
number=$(ls "$folder" | grep -c '^mail-')
cat > "$folder/mail-$number"
env > "$folder/env-$number"
printf '%s\\n' "$@" > "$folder/arguments-$number"
eval "$(sed -n "$((number + 1))p" "$folder/plan")"
"""


class Program:
    """The program sendmail, as a script in a folder of its own."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "sendmail"
        folder.mkdir()
        self.write(PROGRAM)
        self.plan()

    def write(self, text):
        self.path.write_text(text)
        self.path.chmod(0o755)

    def plan(self, *commands):
        (self.folder / "plan").write_text("\n".join(commands))

    def channel(self, url="?to=ada@example.org&from=agentd@example.org", **env):
        return SendmailChannel(f"sendmail://{url}&program={self.path}", env=env, host="box")

    @property
    def mails(self):
        return [
            email.message_from_bytes(path.read_bytes(), policy=policy.default)
            for path in sorted(self.folder.glob("mail-*"))
        ]

    @property
    def arguments(self):
        paths = sorted(self.folder.glob("arguments-*"))
        return [path.read_text().splitlines() for path in paths]


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path / "program")


async def test_a_report_is_handed_to_sendmail(program, delivery):
    program.plan("echo 'queued as 4Bx7'")
    receipt = await program.channel().send(delivery("# Morning\n\n.\n\nAll is **well**."))
    [mail] = program.mails
    assert program.arguments == [["-i", "-f", "agentd@example.org", "--", "ada@example.org"]]
    assert (mail["subject"], mail["to"]) == ("[box] daily-report: Morning", "ada@example.org")
    assert mail.get_body(("plain",)).get_content().startswith("# Morning\n\n.\n\nAll is **well**.")
    assert mail["references"] == "<routine.daily-report.box@example.org>"
    assert b"\r" not in (program.folder / "mail-0").read_bytes()
    assert receipt.detail == f"{program.path} took it: queued as 4Bx7"


async def test_sendmail_takes_users_of_this_machine(program, delivery):
    await program.channel("?to=root,%20Ada%20<ada>&name=Täglich&x=").send(delivery("Täglich: 中"))
    assert [arguments[-1] for arguments in program.arguments] == ["root", "ada"]
    first, second = program.mails
    assert (first["to"], second["to"]) == ("root", "Ada <ada>")
    assert first["from"].addresses[0].display_name == "Täglich"
    assert program.arguments[0][2] == first["from"].addresses[0].username
    assert first["message-id"] == "<01JAAAAAAAAAAAAAAAAAAAAAAA.1.0@box>"
    assert first.get_body(("plain",)).get_content().startswith("Täglich: 中")


async def test_sendmail_gets_a_small_environment(program, delivery):
    await program.channel(HOME="/home/ada", API_KEY="hunter2").send(delivery())
    lines = (program.folder / "env-0").read_text().splitlines()
    env = dict(line.split("=", 1) for line in lines)
    assert env.pop("HOME") == "/home/ada" and env.pop("PATH").startswith("/usr/sbin:")
    # the shell adds its own
    assert env.keys() <= {"LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.parametrize(
    ("ending", "text", "is_tried_again"),
    [
        ("echo queue full >&2; exit 75", "ended with 75 (EX_TEMPFAIL): queue full", True),
        ("exit 69", "ended with 69 (EX_UNAVAILABLE)", True),
        ("exit 68", "ended with 68 (EX_NOHOST)", True),
        ("exit 78", "ended with 78 (EX_CONFIG)", True),
        ("exit 1", "ended with 1", True),
        ("kill -9 $$", "was ended by signal 9", True),
        ("echo no such user >&2; exit 67", "ended with 67 (EX_NOUSER): no such user", False),
        ("exit 65", "ended with 65 (EX_DATAERR)", False),
        ("exit 64", "ended with 64 (EX_USAGE)", False),
    ],
)
async def test_the_exit_code_of_sendmail_decides_on_a_retry(
    program, delivery, ending, text, is_tried_again
):
    program.plan(ending)
    channel = program.channel()
    with pytest.raises(DeliveryFailed) as error:
        await channel.send(delivery())
    assert str(error.value) == f"{program.path} {text}"
    assert error.value.retry is is_tried_again
    assert (await channel.send(delivery())).detail == f"{program.path} took it"
    first, second = program.mails
    assert first["message-id"] == second["message-id"]


async def test_each_recipient_gets_one_mail_though_another_is_refused(program, delivery):
    program.plan("exit 67", "exit 75")
    url = "?to=gone@x.org,full@x.org,ada@x.org&cc=bob@x.org&bcc=cleo@x.org&from=a@x.org"
    channel, report = program.channel(url), delivery()
    with pytest.raises(DeliveryFailed, match="EX_TEMPFAIL") as error:
        await channel.send(report)
    assert error.value.retry
    recipients = [arguments[-1] for arguments in program.arguments]
    assert recipients == [f"{name}@x.org" for name in ("gone", "bob", "cleo", "full", "ada")]
    with pytest.raises(DeliveryFailed, match="EX_NOUSER") as error:
        await channel.send(report)
    assert not error.value.retry
    assert [arguments[-1] for arguments in program.arguments][5:] == ["bob@x.org"]
    assert all(mail["bcc"] is None for mail in program.mails)


async def test_the_receipt_counts_the_recipients_of_sendmail(program, delivery):
    receipt = await program.channel("?to=ada@x.org,bob@x.org&from=a@x.org").send(delivery())
    assert receipt.detail == f"{program.path} took it for 2 recipients"


async def test_a_recipient_is_never_an_option_of_sendmail(program, delivery):
    await program.channel("?to=-bs@example.org&from=-oQ@example.org").send(delivery())
    assert program.arguments == [["-i", "-f", "-oQ@example.org", "--", "-bs@example.org"]]


@pytest.mark.slow
async def test_a_program_that_does_not_end_is_killed_and_the_mail_is_retried(program, delivery):
    os.mkfifo(program.folder / "held")
    # whoever reads it comes to its end when no process holds it any more
    contents = asyncio.create_task(asyncio.to_thread((program.folder / "held").read_text))
    program.plan('exec 3> "$folder/held"; echo busy; sleep 1000 & wait')
    with pytest.raises(DeliveryFailed, match=r"did not end within 4 s: busy$") as error:
        await program.channel("?to=ada@x.org&from=a@x.org&cto=4").send(delivery())
    assert error.value.retry
    assert await asyncio.wait_for(contents, 30) == ""


async def test_a_cancelled_delivery_ends_sendmail(program, delivery):
    os.mkfifo(program.folder / "held")
    program.plan('exec 3> "$folder/held"; echo started >&3; sleep 1000 & wait')
    sending = asyncio.create_task(program.channel().send(delivery()))
    file = await asyncio.to_thread((program.folder / "held").open)
    with file:
        assert await asyncio.to_thread(file.readline) == "started\n"
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await asyncio.wait_for(asyncio.to_thread(file.read), 30) == ""


async def test_endless_output_of_sendmail_is_cut(program, delivery):
    program.plan("head -c 3000000 /dev/zero | tr '\\\\0' x; exit 75")
    with pytest.raises(DeliveryFailed) as error:
        await program.channel().send(delivery())
    assert 1900 < len(str(error.value)) < 2200


async def test_a_program_that_does_not_read_the_mail_has_not_taken_it(program, delivery):
    program.write("#!/bin/sh\nexec <&-\nexit 0\n")
    report = "\n\n".join("word " * 100 for _ in range(2000))  # more than a pipe holds
    with pytest.raises(DeliveryFailed, match="did not read the mail") as error:
        await program.channel().send(delivery(report))
    assert error.value.retry


async def test_a_program_that_was_gone_before_the_mail_came_has_not_taken_it():
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", "exec <&-; exit 0", stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    while not process.stdin.is_closing():  # asyncio has just seen that nobody reads
        await asyncio.sleep(0)
    assert not await write_input(process.stdin, b"Subject: heartbeat")
    assert await process.wait() == 0


async def test_a_process_that_sendmail_leaves_behind_does_not_hold_the_mail(program, delivery):
    program.plan('sleep 1000 & echo $! > "$folder/pid"; echo queued')
    receipt = await program.channel().send(delivery())
    assert receipt.detail == f"{program.path} took it: queued"
    os.kill(int((program.folder / "pid").read_text()), signal.SIGKILL)  # it was not ended


@pytest.mark.parametrize("mode", [None, 0o644])
async def test_a_missing_program_is_named_and_the_mail_is_retried(program, delivery, mode):
    if mode is None:
        program.path.unlink()
    else:
        program.path.chmod(mode)
    with pytest.raises(DeliveryFailed, match=r"sendmail: .*; program=PATH") as error:
        await program.channel().send(delivery())
    assert error.value.retry


async def test_a_long_report_is_attached_to_the_mail_of_sendmail(program, delivery):
    text = "\n\n".join(f"Paragraph {number} " + "word " * 100 for number in range(100))
    await program.channel().send(delivery(text))
    [attachment] = program.mails[0].iter_attachments()
    assert attachment.get_filename() == "daily-report.md"
    assert attachment.get_content().split()[-len(text.split()) :] == text.split()


async def test_failures_are_mailed_by_sendmail(program, delivery):
    report = delivery("", status=Status.FAILED, detail="no key. Name one.")
    await program.channel().send(replace(report, routine="daily-report"))
    assert program.mails[0]["subject"] == "[box] daily-report failed: no key"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sendmail://", "lacks a recipient"),
        ("sendmail://?from=ada@example.org", "lacks a recipient"),
        ("sendmail://ada@example.org", "no host and no path"),
        ("sendmail:///usr/sbin/sendmail?to=ada", "no host and no path"),
        ("sendmail://?to=ada&program=msmtp", "no absolute path"),
        ("sendmail://?to=ada&program=/bin/a%00b", "no absolute path"),
        ("sendmail://?to=-bs", "to= has what is no mail address"),
        ("sendmail://?to=|/bin/sh", "to= has what is no mail address"),
        ("sendmail://?to=/var/mail/x", "to= has what is no mail address"),
        ("sendmail://?to=ada%0Abob", ""),
        ("sendmail://?to=ada&name=a%0D%0ABcc:%20eve", "name= has what no name has"),
        ("sendmail://?to=ada&cto=soon", "cto="),
        ("sendmail://?to=ada&+Subject=x", "no header that may be added"),
        ("mailto://?to=ada", "does not begin with sendmail://"),
    ],
)
def test_an_invalid_sendmail_url_is_refused_with_the_reason(url, problem):
    if not problem:
        addresses = parse_sendmail_url(url).recipients
        assert [address.addr_spec for address in addresses] == ["ada", "bob"]
        return
    with pytest.raises(DeliveryFailed, match=problem) as error:
        parse_sendmail_url(url)
    assert not error.value.retry


_TEXT = st.text('ab@.<>,;"\\ %0AD|/-&=+?:[]()\r\n\0é') | st.text()


@scaled_settings()
@given(
    st.sampled_from(["sendmail://?to=", "mailto://h?to=", "mailtos://"]),
    _TEXT,
    st.sampled_from(["from", "name", "cc", "bcc", "reply", "program", "cto", "+X-A", "mode"]),
    _TEXT,
)
def test_a_mail_url_is_parsed_or_refused(scheme, recipients, key, value):
    url = f"{scheme}{recipients}&{key}={value}"
    parse = parse_sendmail_url if scheme.startswith("sendmail") else parse_smtp_url
    try:
        address = parse(url)
    except DeliveryFailed:
        return
    for recipient in (*address.recipients, address.sender):
        assert recipient.addr_spec and len(recipient.addr_spec.splitlines()) == 1


def test_program_fault_names_what_is_in_the_way(program, tmp_path):
    assert is_mail("sendmail://?to=ada")
    status = tmp_path / "status"
    status.write_text("Name:\tagentd\nNoNewPrivs:\t0\n")
    assert find_program_fault(str(program.path), status=status) == ""
    assert "program=PATH" in find_program_fault(str(tmp_path / "none"), status=status)
    assert "is no program" in find_program_fault(str(tmp_path), status=status)
    status.write_text("Name:\tagentd\nNoNewPrivs:\t1\n")
    assert find_program_fault(str(program.path), status=status) == ""
    postdrop = program.folder / "postdrop"
    postdrop.touch()
    postdrop.chmod(0o2755)
    link = tmp_path / "link"
    link.symlink_to(program.path)
    assert find_program_fault(str(link), status=status) == (
        f"{postdrop} needs rights that NoNewPrivileges= of the unit keeps from it; "
        "mailto://localhost?to=ADDRESS reaches the same mail system"
    )


@pytest.fixture
def config_file(program, tmp_path):
    """A config with a target of sendmail, which others may read: it holds no password."""
    (tmp_path / "routines").mkdir()
    (tmp_path / "policy.toml").write_text("version = 1\n")
    file = tmp_path / "config.toml"
    file.write_text(
        '[targets.mail]\nkind = "mail"\n'
        f'url = "sendmail://?to=ada@example.org&program={program.path}"\n'
    )
    file.chmod(0o644)
    return file


async def test_a_target_of_sendmail_is_used_checked_and_validated(
    program, config_file, tmp_path, delivery
):
    config = load_config(config_file)
    targets = Targets(config, workspace=tmp_path, env={}, secrets=Secrets())
    assert (await targets.channel("mail").send(delivery())).detail == f"{program.path} took it"
    assert survey_service(config, tmp_path, {}).targets == (
        ("mail", "mail", "", "", str(program.path)),
    )
    assert not examine(config_file, env={}, state=tmp_path / "state").notes
    program.path.unlink()
    fault = f"{program.path}: No such file or directory; program=PATH in the address of the target"
    [(_, _, problem, *_)] = survey_service(config, tmp_path, {}).targets
    assert problem.startswith(fault)
    checkup = examine(config_file, env={}, state=tmp_path / "state")
    assert [note.partition(": targets.mail: ")[2][: len(fault)] for note in checkup.notes] == [
        fault
    ]
    assert not checkup.missing_parts and not checkup.faults


def test_the_path_of_a_program_is_no_secret():
    url = "sendmail://?to=ada@example.org&program=/opt/msmtpf9pNx3/bin/sendmail"
    assert not list(parts_of_address(url))


def test_validate_names_what_is_wrong_with_the_address_of_a_mailbox(config_file, tmp_path):
    config_file.write_text('[targets.mail]\nkind = "mail"\nurl_env = "MAIL"\n')
    env = {"MAIL": "mailtos://ada:hunter2hunter2@example.org?mode=tls"}
    notes = examine(config_file, env=env, state=tmp_path / "state").notes
    assert any("mode=tls is none of" in note for note in notes)
    assert not any("hunter2" in note for note in notes)
