"""Event triggers as a user sees them: real daemon, real files, real sockets, kill -9."""

import hmac
import json
import os
import stat
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from daemon.definitions.paths import hooks_socket_for
from tests.acceptance.story import Vendor
from tests.api.harness import ask

INBOX = """
[trigger]
watch = ["inbox/*.csv"]
settle = "1s"
[run]
prompt = "What landed?"
[[gather]]
name = "content"
tool = "file_read"
args = { path = "{path}" }
"""
POLICY = 'version = 1\n[[rule]]\ntool = "file_read"\neffect = "allow"\n'
SAY = '[run]\nprompt = "Say hello."\n'
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def model(vendor):
    return f"""
provider = "local"
[providers.local]
kind = "open_source"
base_url = "{vendor.url}/v1"
model = "local"
"""


@pytest.fixture
def watching_home(home):
    """A home with a routine for its inbox."""
    home.routine("inbox", INBOX)
    home.write("policy.toml", POLICY)
    (home.workspace / "inbox").mkdir(parents=True)
    return home


async def runs(home, name):
    return (await home.agentctl("runs", name, "--json")).json["items"]


async def inspect_run(home, run):
    return (await home.agentctl("inspect", run, "--json")).json


async def post(home, name, body=b"{}", **headers):
    sent_headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return await ask(hooks_socket_for(home.socket), "POST", f"/v1/hooks/{name}", body, sent_headers)


def signature(body, message="m-1", secret=SECRET):
    now = datetime.now(UTC)
    signature = Webhook(secret).sign(message, now, body.decode())
    return {
        "webhook_id": message,
        "webhook_timestamp": str(int(now.timestamp())),
        "webhook_signature": signature,
    }


# --- files


async def test_files_in_the_inbox_are_reported_without_a_model(shipped_home):
    await shipped_home.start()
    assert "when a file lands in inbox/*" in shipped_home.output
    inbox = shipped_home.workspace / "inbox"
    inbox.mkdir()
    (inbox / "bill.txt").write_text("Pay 12 euros to Ada.")
    (inbox / "photo.jpg").write_bytes(b"\xff\xd8\0\0")
    (inbox / "server.key").write_text("-----BEGIN PRIVATE KEY-----")
    (log_line,) = await shipped_home.wait_for_log("run.finished", routine="inbox-watch")
    assert log_line["status"] == "succeeded"
    await shipped_home.wait_for_log("delivery.arrived", routine="inbox-watch")
    (report,) = (shipped_home.workspace / "reports" / "inbox-watch").glob("*.md")
    text = report.read_text()
    assert "Pay 12 euros to Ada." in text
    assert "photo.jpg is a binary file" in text
    assert "server.key" in text and "BEGIN PRIVATE KEY" not in text
    result = await shipped_home.agentctl("inspect", log_line["run"])
    assert "Input" in result.out and "inbox/bill.txt" in result.out
    result = await inspect_run(shipped_home, log_line["run"])
    assert result["input"] == {"paths": ["inbox/bill.txt", "inbox/photo.jpg", "inbox/server.key"]}
    by_hand = await shipped_home.agentctl("run", "inbox-watch")
    assert by_hand.code == 0 and "bill.txt" in by_hand.out


@pytest.mark.process
async def test_files_that_landed_while_the_daemon_was_down_run_once_per_version(
    watching_home,
):
    await watching_home.start()
    await watching_home.stop()
    file = watching_home.workspace / "inbox" / "a.csv"
    file.write_text("one")
    for _ in range(2):
        await watching_home.start()
        await watching_home.wait_for_log("run.finished", routine="inbox")
        await watching_home.kill()
    await watching_home.start()
    file.write_text("another")
    await watching_home.wait_for_log("run.finished", 2, routine="inbox")
    first, second = reversed(await runs(watching_home, "inbox"))
    assert first["trigger"] == "watch"
    assert [(await inspect_run(watching_home, run["id"]))["input"] for run in (first, second)] == [
        {"paths": ["inbox/a.csv"]}
    ] * 2


@pytest.mark.process
async def test_kill_9_during_a_file_run_continues_the_same_run(watching_home):
    async with Vendor([{"text": "never arrives", "hang": True}, "One file."]) as vendor:
        watching_home.write("config.toml", model(vendor))
        await watching_home.start()
        (watching_home.workspace / "inbox" / "a.csv").write_text("one")
        await vendor.wait_for_requests(1)
        await watching_home.kill()
        await watching_home.start()
        await watching_home.wait_for_log("run.finished", routine="inbox")
        (run,) = await runs(watching_home, "inbox")
        assert (run["status"], run["headline"]) == ("succeeded", "One file.")
        first, second = (request.body["messages"] for request in vendor.requests)
        assert first == second
        assert "inbox/a.csv" in first[-1]["content"]


async def test_a_watched_link_out_of_the_workspace_starts_no_run(watching_home, tmp_path):
    (tmp_path / "secret.csv").write_text("secret")
    inbox = watching_home.workspace / "inbox"
    (inbox / "link.csv").symlink_to(tmp_path / "secret.csv")
    (inbox / "plain.csv").write_text("plain")
    await watching_home.start()
    (log_line,) = await watching_home.wait_for_log("run.finished", routine="inbox")
    run_view = await inspect_run(watching_home, log_line["run"])
    assert run_view["input"] == {"paths": ["inbox/plain.csv"]}
    assert "secret" not in json.dumps(run_view)


# --- chains


@pytest.mark.process
async def test_a_chained_run_survives_kill_9_and_receives_the_report_before(home):
    home.routine("backup", '[run]\nprompt = "Back up."\n')
    home.routine("report", '[trigger]\nafter = ["backup"]\n[run]\nprompt = "Report."\n')
    turns = [
        {"text": "All is backed up.", "when": "Back up."},
        {"text": "never arrives", "hang": True, "when": "Report."},
        {"text": "It went well.", "when": "Report."},
    ]
    async with Vendor(turns) as vendor:
        home.write("config.toml", model(vendor))
        await home.start()
        assert "after backup succeeded" in home.output
        assert (await home.agentctl("run", "backup")).code == 0
        await vendor.wait_for_requests(2)
        await home.kill()
        await home.start()
        await home.wait_for_log("run.finished", routine="report")
        (parent,), (child,) = await runs(home, "backup"), await runs(home, "report")
        assert (child["trigger"], child["headline"]) == ("after", "It went well.")
        run_view = await inspect_run(home, child["id"])
        assert (run_view["event"], run_view["input"]["report"]) == (
            parent["id"],
            "All is backed up.",
        )
        assert "All is backed up." in vendor.requests[-1].body["messages"][-1]["content"]


async def test_a_cycle_of_after_triggers_is_refused_while_other_routines_run(home):
    home.routine("a", '[trigger]\nafter = ["b"]\n[run]\nprompt = "x"\n')
    home.routine("b", '[trigger]\nafter = ["a"]\n[run]\nprompt = "x"\n')
    home.routine("c", SAY)
    await home.start()
    assert "goes round in a circle: a → b → a" in home.output
    items = (await home.agentctl("list", "--json")).json["items"]
    assert {row["name"]: row["state"] for row in items} == {
        "a": "invalid",
        "b": "invalid",
        "c": "on",
    }


# --- webhooks


@pytest.mark.process
async def test_a_webhook_message_starts_one_run_even_after_kill_9(home):
    home.routine("door", '[trigger]\nwebhook = true\n[run]\nprompt = "Who is there?"\n')
    await home.start()
    assert str(hooks_socket_for(home.socket)) in home.output
    assert stat.S_IMODE(hooks_socket_for(home.socket).stat().st_mode) == 0o660
    answer = await post(home, "door", b'{"who": "Ada"}', webhook_id="m-1")
    assert answer.status == 202
    run = json.loads(answer.raw)["run"]
    await home.wait_for_log("run.finished", run=run)
    await home.kill()
    await home.start()
    again = await post(home, "door", b'{"who": "Ada"}', webhook_id="m-1")
    assert (again.status, json.loads(again.raw)["run"]) == (202, run)
    run_view = await inspect_run(home, run)
    assert (run_view["trigger"], run_view["input"]) == ("webhook", {"who": "Ada"})
    assert "Ada" in run_view["report"]
    assert len(await runs(home, "door")) == 1
    assert (await post(home, "other")).status == 404
    assert await home.stop() == 0
    assert not hooks_socket_for(home.socket).exists()


async def test_with_a_secret_only_signed_webhooks_start_runs_and_the_secret_may_change(home):
    home.routine("door", '[trigger]\nwebhook = true\n[run]\nprompt = "x"\n')
    home.write("config.toml", '[hooks]\nsecret_file = "hooks.secret"\n')
    home.write("hooks.secret", SECRET)
    await home.start()
    assert (await post(home, "door")).status == 401
    assert (await post(home, "door", **signature(b"{}"))).status == 202
    new_secret = "whsec_" + "b" * 40
    home.write("hooks.secret", new_secret)
    assert (await home.agentctl("reload")).code == 0
    assert (await post(home, "door", **signature(b"{}"))).status == 401
    assert (await post(home, "door", **signature(b"{}", secret=new_secret))).status == 202
    assert SECRET not in (home.state / "logs" / "agentd.jsonl").read_text()


async def test_a_webhook_secret_readable_by_others_stops_the_start_with_its_remedy(home):
    home.write("config.toml", '[hooks]\nsecret_file = "hooks.secret"\n')
    home.write("hooks.secret", SECRET)
    (home.folder / "hooks.secret").chmod(0o644)
    result = await home.agentd()
    assert result.code == 78
    assert "hooks.secret_file" in result.err and "chmod 600" in result.err


async def test_the_first_webhook_routine_of_a_running_daemon_opens_the_socket(home):
    home.routine("hello", SAY)
    await home.start()
    assert not hooks_socket_for(home.socket).exists()
    home.routine("door", '[trigger]\nwebhook = true\n[run]\nprompt = "x"\n')
    assert (await home.agentctl("reload")).code == 0
    assert (await post(home, "door")).status == 202


async def test_a_push_to_github_starts_a_routine_as_gh_webhook_forward_hands_it_on(home):
    """`gh webhook forward` posts the body and the headers of GitHub's own request."""
    home.routine(
        "review",
        '[trigger]\nwebhook = true\nsender = "github"\n[run]\nprompt = "What was pushed?"\n',
    )
    home.routine("typo", '[trigger]\nwebhook = true\nsender = "githup"\n[run]\nprompt = "x"\n')
    home.write(
        "config.toml",
        '[hooks.senders.github]\nkind = "github"\nsecret_file = "github.secret"\n',
    )
    home.write("github.secret", "short")
    result = await home.agentd("validate")
    assert (
        "hooks.senders.github.secret_file: holds a secret of less than 16 characters" in result.out
    )
    secret = "0123456789abcdef0123456789abcdef"
    home.write("github.secret", secret)
    result = await home.agentd("validate")
    assert (
        'typo.toml:3: trigger.sender: no such sender in config.toml (found "githup"); did you mean'
        in result.out
    )
    await home.start()
    body = json.dumps(
        {"ref": "refs/heads/main", "commits": [{"message": "mend the lock"}]}
    ).encode()

    def headers(event, delivery, key=secret):
        return {
            "Accept": "*/*",
            "Content_Type": "application/json",
            "User_Agent": "GitHub-Hookshot/1234567",
            "X_Github_Delivery": delivery,
            "X_Github_Event": event,
            "X_Github_Hook_Id": "292430182",
            "X_Github_Hook_Installation_Target_Type": "repository",
            "X_Hub_Signature_256": f"sha256={hmac.new(key.encode(), body, 'sha256').hexdigest()}",
        }

    assert (await post(home, "review", body)).status == 401
    assert (await post(home, "review", body, **headers("push", "d-1", "wrong" * 4))).status == 401
    assert (await post(home, "review", body, **headers("ping", "d-0"))).status == 200
    answer = await post(home, "review", body, **headers("push", "d-1"))
    assert answer.status == 202
    again = await post(home, "review", body, **headers("push", "d-1"))
    run = json.loads(answer.raw)["run"]
    assert json.loads(again.raw)["run"] == run
    await home.wait_for_log("run.finished", run=run)
    run_view = await inspect_run(home, run)
    assert run_view["input"] == {"event": "push", "payload": json.loads(body)}
    assert "mend the lock" in run_view["report"]
    assert len(await runs(home, "review")) == 1
    assert secret not in (home.state / "logs" / "agentd.jsonl").read_text()


# --- several triggers

SEVERAL = """
[[trigger]]
{clock}
timezone = "Europe/Berlin"
skip = ["2031-12-24/2032-01-06", "holidays.ics"]

[[trigger]]
webhook = true

[[trigger]]
watch = ["inbox/*.csv"]
settle = "0.1s"

[run]
prompt = "What is new?"
overlap = "queue_one"
"""
HOLIDAYS = """\
BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Leap day
DTSTART;VALUE=DATE:{day}
END:VEVENT
END:VCALENDAR
"""


@pytest.mark.process
async def test_a_schedule_a_webhook_and_files_start_one_routine(home):
    (home.workspace / "inbox").mkdir(parents=True)
    (home.workspace / "holidays.ics").write_text(HOLIDAYS.format(day="20280229"))
    home.routine("news", SEVERAL.format(clock='every = "2s"'))
    await home.start()
    assert "every 2 seconds, Europe/Berlin, but not on" in home.output
    await home.wait_for_log("run.finished", routine="news")
    first = (await runs(home, "news"))[-1]
    assert first["trigger"] == "every"
    sentence = (await home.agentctl("why", "news", "--at", first["slot"])).out
    assert 'by every = "2s"' in sentence

    home.routine("news", SEVERAL.format(clock='cron = "0 4 29 2 *"'))
    assert (await home.agentctl("reload")).code == 0
    answer = await post(home, "news", b'{"who": "Ada"}', webhook_id="m-1")
    assert answer.status == 202
    await home.wait_for_log("run.finished", run=json.loads(answer.raw)["run"])
    (home.workspace / "inbox" / "a.csv").write_text("1,2")
    await home.wait_for_log("run.started", routine="news", trigger="watch")
    triggers = {run["trigger"] for run in await runs(home, "news")}
    assert triggers == {"every", "webhook", "watch"}

    words = (
        "at 04:00 on the 29th of February, Europe/Berlin, but not on 2031-12-24 to 2032-01-06 and "
        "the days of holidays.ics; or by webhook; or when a file lands in inbox/*.csv"
    )
    (item,) = (await home.agentctl("list", "--json")).json["items"]
    assert (item["words"], item["by_hand"]) == (words, False)
    table = (await home.agentctl("list")).out
    assert f"  {words[:59]}…\n" in table
    assert words in " ".join((await home.agentctl("show", "news")).out.split())
    starts = (await home.agentctl("next", "news", "--json")).json["items"]
    assert starts[0]["at"].startswith("2032-02-29"), "the leap day of 2028 is skipped"
    sentence = (await home.agentctl("why", "news", "--at", "2028-02-29T04:00")).out
    assert 'on a day to skip (skip = "holidays.ics: Leap day")' in " ".join(sentence.split())
    definition = (await home.agentctl("show", "news", "--json")).json["definition"]
    assert [bool(trigger["watch"]) for trigger in definition["trigger"]] == [False, False, True]

    (home.workspace / "holidays.ics").write_text(HOLIDAYS.format(day="20320229"))
    await home.wait_for_log("definitions.reloaded", 2, changed=["news"])  # by itself
    starts = (await home.agentctl("next", "news", "--json")).json["items"]
    assert starts[0]["at"].startswith("2028-02-29")
    (home.workspace / "holidays.ics").write_text("gone")
    result = await home.agentd("validate")
    assert "news.toml:5: trigger[0].skip[1]: line 1: is no property of a calendar" in result.out


# --- machines


async def test_a_routine_of_another_machine_is_listed_with_the_reason(home):
    home.routine("far", '[trigger]\nevery = "1s"\nmachines = ["box-*"]\n[run]\nprompt = "x"\n')
    await home.start()
    (item,) = (await home.agentctl("list", "--json")).json["items"]
    assert (item["state"], item["next"], item["last"]) == ("elsewhere", None, None)
    assert f"not on this machine: {os.uname().nodename} is none of box-*" in item["words"]
    assert "not on this machine" in (await home.agentctl("list")).out
    assert "not on this machine" in home.output


# --- hot reload


async def test_editing_renaming_and_deleting_a_routine_file_does_not_change_its_run(home):
    home.routine("work", '[run]\nprompt = "The old task."\n')
    home.routine("other", '[run]\nprompt = "The other task."\n')
    held_replies = [
        {"text": f"Done {n}.", "when": task, "together": 2}
        for n, task in enumerate(["The old", "The other"])
    ]
    async with Vendor([*held_replies, "New."]) as vendor:
        home.write("config.toml", model(vendor))
        await home.start()
        run = (await home.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        home.routine("work", '[run]\nprompt = "The new task."\n')
        await home.wait_for_log("definitions.reloaded", changed=["work"])
        (home.folder / "routines" / "work.toml").rename(home.folder / "routines" / "moved.toml")
        await home.wait_for_log("definitions.reloaded", removed=["work"], added=["moved"])
        (home.folder / "routines" / "moved.toml").unlink()
        await home.wait_for_log("definitions.reloaded", removed=["moved"])
        assert [
            routine["name"] for routine in (await home.agentctl("list", "--json")).json["items"]
        ] == ["other"]
        assert (await home.agentctl("run", "other")).code == 0
        event = await home.until(run, "run_ended")
        assert (event["status"], event["report"]) == ("succeeded", "Done 0.")
        assert "The old task." in vendor.requests[0].body["messages"][-1]["content"]
        assert (await inspect_run(home, run))["goal"] == "The old task."
        assert [item["id"] for item in await runs(home, "work")] == [run]
        result = await home.agentctl("run", "work")
        assert result.code == 4
        home.routine("work", '[run]\nprompt = "Back again."\n')
        await home.wait_for_log("definitions.reloaded", added=["work"])
        assert (await home.agentctl("run", "work")).code == 0
        assert "Back again." in vendor.requests[-1].body["messages"][-1]["content"]


@pytest.mark.process
async def test_kill_9_after_an_edit_continues_the_run_with_its_first_definition(home):
    home.routine("work", '[run]\nprompt = "The old task."\n')
    async with Vendor([{"text": "never arrives", "hang": True}, "Done."]) as vendor:
        home.write("config.toml", model(vendor))
        await home.start()
        run = (await home.agentctl("run", "work", "--detach")).out.strip()
        await vendor.wait_for_requests(1)
        (home.folder / "routines" / "work.toml").unlink()
        await home.wait_for_log("definitions.reloaded", removed=["work"])
        await home.kill()
        await home.start()
        await home.until(run, "run_ended")
        assert (await inspect_run(home, run))["report"] == "Done."
        assert "The old task." in vendor.requests[-1].body["messages"][-1]["content"]


async def test_an_unreadable_routines_folder_keeps_all_routines_and_is_reported(home):
    home.routine("hello", '[trigger]\nevery = "1h"\n[run]\nprompt = "Say hello."\n')
    home.routine("broken", "nope = 1\n")
    await home.start()
    assert [line["level"] for line in await home.wait_for_log("routine.invalid")] == ["warning"] * 2
    folder = home.folder / "routines"
    folder.rename(home.folder / "gone")
    folder.write_text("not a folder")
    reload_result = await home.agentctl("reload")
    assert reload_result.code != 0
    assert "the folder of routines cannot be read: Not a directory" in reload_result.err
    assert "the folder of routines cannot be read" in (await home.agentctl("status")).out
    assert (await home.agentctl("run", "hello")).code == 0
    folder.unlink()
    (home.folder / "gone" / "broken.toml").unlink()
    (home.folder / "gone").rename(folder)
    assert (await home.agentctl("reload")).code == 0
    assert "cannot be read" not in (await home.agentctl("status")).out


async def test_an_invalid_edit_keeps_the_last_valid_routine_and_is_shown_in_the_list(home):
    home.routine("hello", '[trigger]\nevery = "1h"\n[run]\nprompt = "Say hello."\n')
    await home.start()
    home.routine("hello", '[trigger]\nevry = "1h"\n[run]\nprompt = "Say goodbye."\n')
    await home.wait_for_log("routine.invalid")
    (item,) = (await home.agentctl("list", "--json")).json["items"]
    assert (item["state"], item["words"]) == ("on", "every hour")
    assert 'did you mean "every"?' in item["faults"][0]["text"]
    assert 'did you mean "every"?' in (await home.agentctl("list")).out
    assert (
        "1 on; 1 of them in the version before the file got a fault"
        in (await home.agentctl("status")).out
    )
    result = await home.agentctl("run", "hello")
    assert result.code == 0
    (run,) = await runs(home, "hello")
    assert (await inspect_run(home, run["id"]))["goal"] == "Say hello."
    home.routine("hello", '[trigger]\nevery = "2h"\n[run]\nprompt = "Say goodbye."\n')
    await home.wait_for_log("definitions.reloaded", changed=["hello"])
    (item,) = (await home.agentctl("list", "--json")).json["items"]
    assert (item["words"], item["faults"]) == ("every 2 hours", [])


async def test_a_routine_whose_only_moment_has_passed_never_starts_again(home):
    home.routine("past", '[trigger]\nat = 2020-01-01T09:00:00Z\n[run]\nprompt = "x"\n')
    home.routine("landing", '[trigger]\nwatch = ["inbox/*"]\n[run]\nprompt = "x"\n')
    both = '[[trigger]]\nat = 2020-01-01T09:00:00Z\n[[trigger]]\nwatch = ["inbox/*"]\n'
    home.routine("both", f'{both}[run]\nprompt = "x"\n')
    await home.start()
    lines = (await home.agentctl("list")).out.splitlines()
    rows = {line.split()[1]: line for line in lines[1:]}
    assert "never again" in rows["past"]
    assert "on its event" in rows["landing"] and "on its event" in rows["both"]
    result = await home.agentctl("next", "past")
    assert result.out.startswith("past never starts again by itself: it runs once at 2020-01-01")
    assert "landing starts at no known time" in (await home.agentctl("next", "landing")).out
