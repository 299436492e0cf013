"""Files of routines edited and created over the daemon's socket, with `[ui] edit` on and off."""

import json
import os
import tomllib
from hashlib import sha256

import pytest

from daemon.api.routine_sources import MAX_TEXT_BYTES
from daemon.definitions.config.tables import is_settable
from tests.api.harness import ask

TIDY = '# mine\n[trigger]\ncron = "0 7 * * *"\n[run]\nprompt = "Tidy up."\n'
LATER = TIDY.replace("0 7", "30 8")
TARGET = "/v1/routines/tidy/source"
NEW = {"If-None-Match": "*"}


@pytest.fixture
async def daemon(home):
    """A daemon with `[ui] edit`, and one routine."""
    home.write("config.toml", 'timezone = "Europe/Berlin"\n[ui]\nedit = true\n')
    home.routine("tidy", TIDY)
    home.file = home.folder / "routines" / "tidy.toml"
    home.file.chmod(0o640)
    await home.start()
    return home


async def put(home, text, headers, target=TARGET):
    return await ask(home.socket, "PUT", target, json.dumps({"text": text}).encode(), headers)


async def put_as_seen(home, text, target=TARGET):
    """Replace a file that was read just before."""
    source = (await ask(home.socket, "GET", target)).json
    return await put(home, text, {"If-Match": f'"{source["digest"]}"'}, target)


async def test_a_valid_text_replaces_the_file_counts_at_once_and_is_in_the_audit(daemon):
    source = (await ask(daemon.socket, "GET", TARGET)).json
    assert (source["text"], source["read_only"]) == (TIDY, None)
    assert source["digest"] == sha256(TIDY.encode()).hexdigest()
    answer = await put(daemon, LATER, {"If-Match": f'"{source["digest"]}"'})
    assert answer.status == 200, answer.raw
    assert daemon.file.read_text() == LATER
    assert daemon.file.stat().st_mode & 0o777 == 0o640
    assert answer.json["digest"] == sha256(LATER.encode()).hexdigest()
    routine = (await ask(daemon.socket, "GET", "/v1/routines/tidy")).json
    assert routine["words"] == "at 08:30, Europe/Berlin"
    (row,) = (await ask(daemon.socket, "GET", "/v1/audit")).json["items"]
    assert (row["kind"], row["routine"], row["actor"]) == ("edited", "tidy", f"uid {os.getuid()}")
    assert row["body"]["before"] == source["digest"]
    assert row["body"]["after"] == answer.json["digest"]
    assert [path.name for path in daemon.file.parent.iterdir()] == ["tidy.toml"]
    audit = await daemon.agentctl("audit")
    assert f"{source['digest'][:12]} to {answer.json['digest'][:12]}, by uid" in audit.out


async def test_a_text_with_faults_is_answered_with_all_of_them_and_not_written(daemon):
    faulty = TIDY.replace("0 7", "61 7") + 'modell = "x"\ntools = ["shel"]\n'
    answer = await put_as_seen(daemon, faulty)
    assert (answer.status, answer.json["code"]) == (422, "invalid")
    assert {fault["key"] for fault in answer.json["faults"]} >= {"trigger.cron", "run.modell"}
    folder = daemon.folder / "validated"
    (folder / "routines").mkdir(parents=True)
    (folder / "config.toml").write_text("")
    (folder / "policy.toml").write_text("version = 1\n")
    (folder / "routines" / "tidy.toml").write_text(faulty)
    verdict = await daemon.run("agentd", "validate", folder, "--json")
    assert {fault["problem"] for fault in verdict.json["faults"]} == {
        fault["problem"] for fault in answer.json["faults"]
    }
    assert daemon.file.read_text() == TIDY
    assert (await ask(daemon.socket, "GET", "/v1/audit")).json["items"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[trigger\n", ":1: is not TOML"),
        (TIDY + '[trigger.nothing]\n', "nothing"),
        (TIDY + '[origin]\nroutine = "tidy"\nrun = "x"\n', "origin"),
        (TIDY.replace('cron = "0 7 * * *"', 'after = "no-such"'), "no-such"),
        (TIDY.replace('cron = "0 7 * * *"', 'after = "tidy"'), "tidy"),
        (TIDY.replace("[run]\n", '[run]\nprovider = "nobody"\n'), "nobody"),
        ("", "run"),
    ],
)  # fmt: skip
async def test_each_kind_of_fault_is_found(daemon, text, problem):
    answer = await put_as_seen(daemon, text)
    assert answer.status == 422
    assert problem in answer.json["detail"]
    assert daemon.file.read_text() == TIDY


async def test_a_file_that_was_changed_meanwhile_is_left_alone(daemon):
    old = {"If-Match": sha256(TIDY.encode()).hexdigest()}
    daemon.file.write_text(TIDY.replace("Tidy", "Clean"))
    answer = await put(daemon, LATER, old)
    assert (answer.status, answer.json["code"]) == (412, "changed")
    assert answer.json["detail"] == f"{daemon.file} was changed meanwhile"
    assert "Clean" in daemon.file.read_text()


@pytest.mark.parametrize(
    ("headers", "status", "word"),
    [
        ({}, 428, "If-Match"),
        ({"If-Match": "*"}, 422, "If-Match"),
        ({"If-Match": '"1", "2"'}, 422, "If-Match"),
        ({"If-Match": "a" * 64, "If-None-Match": "*"}, 428, "If-Match"),
        ({"If-None-Match": '"x"'}, 428, "If-None-Match"),
        (NEW, 412, "nothing is overwritten"),
    ],
)
async def test_a_change_without_the_digest_of_the_file_is_refused(daemon, headers, status, word):
    answer = await put(daemon, LATER, headers)
    assert (answer.status, word in answer.json["detail"]) == (status, True)
    assert daemon.file.read_text() == TIDY


async def test_of_many_changes_to_one_state_of_a_file_one_wins(daemon):
    import asyncio

    old = {"If-Match": sha256(TIDY.encode()).hexdigest()}
    texts = [TIDY.replace("Tidy", f"Tidy {number}") for number in range(8)]
    answers = await asyncio.gather(*(put(daemon, text, old) for text in texts))
    assert sorted(answer.status for answer in answers) == [200] + [412] * 7
    winner = next(text for text, answer in zip(texts, answers, strict=True) if answer.status == 200)
    assert daemon.file.read_text() == winner


async def test_a_new_routine_is_created_and_runs(daemon):
    answer = await put(daemon, TIDY, NEW, "/v1/routines/sweep/source")
    assert answer.status == 200, answer.raw
    file = daemon.file.with_name("sweep.toml")
    assert (file.read_text(), file.stat().st_mode & 0o777) == (TIDY, 0o600)
    assert (await daemon.agentctl("run", "sweep", "--json")).json["status"] == "succeeded"
    rows = (await ask(daemon.socket, "GET", "/v1/audit")).json["items"]
    assert [(row["kind"], row["body"]["before"]) for row in rows] == [("created", "")]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("tidy", 412), ("..%2Fpolicy", 409), ("a%2Fb", 409), ("Big%20One", 422), (".hidden", 422),
        ("ask", 422), ("a%00b", 422), ("%C3%BC", 422), ("..", 422), ("x" * 300, 409),
    ],
)  # fmt: skip
async def test_a_name_that_agentctl_new_refuses_is_refused(daemon, name, status):
    files = sorted(daemon.folder.rglob("*.toml"))
    answer = await put(daemon, TIDY, NEW, f"/v1/routines/{name}/source")
    assert answer.status == status, answer.raw
    assert sorted(daemon.folder.rglob("*.toml")) == files


async def test_nothing_is_written_where_the_page_may_not_edit(home):
    home.routine("tidy", TIDY)
    await home.start()
    status = (await ask(home.socket, "GET", "/v1/status")).json
    assert status["edit"] is False
    for answer in (
        await put_as_seen(home, LATER),
        await put(home, LATER, NEW, "/v1/routines/sweep/source"),
    ):
        assert (answer.status, answer.json["code"]) == (403, "switched_off")
        assert "[ui]" in answer.json["detail"] and "\n" not in answer.json["detail"]
    assert (home.folder / "routines" / "tidy.toml").read_text() == TIDY
    assert "[ui]" in (await ask(home.socket, "GET", TARGET)).json["read_only"]
    home.write("config.toml", "[ui]\nedit = true\n")
    await home.agentctl("reload")
    assert (await put_as_seen(home, LATER)).status == 200


async def test_a_text_that_is_too_long_or_no_text_is_refused(daemon):
    digest = {"If-Match": sha256(TIDY.encode()).hexdigest()}
    long = await put(daemon, TIDY + "#" * MAX_TEXT_BYTES, digest)
    assert (long.status, "agentctl edit" in long.json["detail"]) == (413, True)
    longer = await put(daemon, "#" * 1_000_000, digest)
    assert longer.status == 413
    body = b'{"text": "# \\ud800"}'
    assert (await ask(daemon.socket, "PUT", TARGET, body, digest)).status == 422
    assert (await ask(daemon.socket, "PUT", TARGET, b"[]", digest)).status == 400
    assert (await ask(daemon.socket, "PUT", TARGET, b"{}", digest)).status == 422
    longest = TIDY + "#" + "é" * ((MAX_TEXT_BYTES - len(TIDY)) // 2 - 1) + "\n"
    assert (await put_as_seen(daemon, longest)).status == 200
    assert daemon.file.read_text() == longest


async def test_a_link_is_followed_within_the_folder_of_routines_only(daemon):
    inside = daemon.file.parent / "shared" / "tidy.txt"
    inside.parent.mkdir()
    daemon.file.rename(inside)
    daemon.file.symlink_to(inside)
    assert (await put_as_seen(daemon, LATER)).status == 200
    assert daemon.file.is_symlink() and inside.read_text() == LATER
    outside = daemon.folder / "elsewhere.toml"
    inside.rename(outside)
    daemon.file.unlink()
    daemon.file.symlink_to(outside)
    source = (await ask(daemon.socket, "GET", TARGET)).json
    assert source["read_only"] == (
        f"{daemon.file} is a link to {outside}, outside of the folder of routines; edit it there"
    )
    answer = await put_as_seen(daemon, TIDY)
    assert (answer.status, answer.json["detail"]) == (409, source["read_only"])
    assert outside.read_text() == LATER and daemon.file.is_symlink()


async def test_a_routine_of_an_agent_is_adopted_before_it_is_edited(daemon):
    folder = daemon.state / "routines.d"
    folder.mkdir()
    source = TIDY.replace("[run]\n", '[run]\nmode = "agent"\n') + (
        '[origin]\nroutine = "tidy"\nrun = "01J00000000000000000000000"\n'
    )
    (folder / "errand.toml").write_text(source)
    await daemon.agentctl("reload")
    target = "/v1/routines/errand/source"
    answer = await put_as_seen(daemon, TIDY, target)
    assert (answer.status, "agentctl adopt errand" in answer.json["detail"]) == (409, True)
    assert (folder / "errand.toml").read_text() == source
    assert (await put(daemon, TIDY, NEW, target)).status == 412
    assert (await daemon.agentctl("adopt", "errand")).code == 0
    assert (await put_as_seen(daemon, TIDY, target)).status == 200


async def test_a_routine_with_faults_is_mended_and_a_file_in_another_encoding_is_not_touched(
    daemon,
):
    daemon.file.write_text(TIDY.replace("0 7", "61 7"))
    await daemon.agentctl("reload")
    assert (await put_as_seen(daemon, LATER)).status == 200
    assert (await ask(daemon.socket, "GET", "/v1/routines/tidy")).json["faults"] == []
    latin = LATER.replace("Tidy", "Räume").encode("latin-1")
    daemon.file.write_bytes(latin)
    answer = await put_as_seen(daemon, LATER)
    assert (answer.status, "not UTF-8" in answer.json["detail"]) == (409, True)
    assert daemon.file.read_bytes() == latin


async def test_a_file_that_cannot_be_written_is_told_and_is_in_the_audit(daemon):
    name = "x" * 245  # the name of the draft beside it is too long
    file = daemon.file.with_name(f"{name}.toml")
    file.write_text(TIDY)
    await daemon.agentctl("reload")
    answer = await put_as_seen(daemon, LATER, f"/v1/routines/{name}/source")
    assert (answer.status, "cannot be written" in answer.json["detail"]) == (409, True)
    assert file.read_text() == TIDY
    rows = (await ask(daemon.socket, "GET", "/v1/audit")).json["items"]
    assert [row["kind"] for row in rows] == ["not_written", "edited"]
    assert "cannot be written" in rows[0]["body"]["problem"]


@pytest.mark.root
async def test_a_file_of_another_user_is_not_replaced(daemon):
    os.chown(daemon.file, 65534, -1)
    answer = await put_as_seen(daemon, LATER)
    assert (answer.status, "uid 65534" in answer.json["detail"]) == (409, True)
    assert daemon.file.read_text() == TIDY and daemon.file.stat().st_uid == 65534


async def test_a_change_counts_although_another_file_has_faults(daemon):
    daemon.write("policy.toml", "version = ")
    answer = await put_as_seen(daemon, LATER)
    assert answer.status == 200
    assert daemon.file.read_text() == LATER
    daemon.write("policy.toml", "version = 1\n")
    await daemon.agentctl("reload")
    routine = (await ask(daemon.socket, "GET", "/v1/routines/tidy")).json
    assert routine["words"] == "at 08:30, Europe/Berlin"


def test_no_agent_may_switch_editing_on():
    assert not is_settable("ui.edit")


async def test_a_web_page_from_elsewhere_cannot_send_a_change(daemon):
    digest = {"If-Match": sha256(TIDY.encode()).hexdigest()}
    answer = await put(daemon, LATER, {**digest, "Origin": "http://evil.example"})
    assert (answer.status, answer.json["code"]) == (403, "browser")
    assert daemon.file.read_text() == TIDY


async def test_recipes_are_listed_as_they_are_shipped(daemon):
    recipes = (await ask(daemon.socket, "GET", "/v1/recipes")).json["items"]
    assert {"heartbeat", "daily-report"} <= {recipe["name"] for recipe in recipes}
    for recipe in recipes:
        assert "run" in tomllib.loads(recipe["text"])


async def test_the_openapi_document_names_the_headers_of_a_change(daemon):
    paths = (await ask(daemon.socket, "GET", "/v1/openapi.json")).json["paths"]
    operation = paths["/v1/routines/{name}/source"]["put"]
    names = {(parameter["name"], parameter["in"]) for parameter in operation["parameters"]}
    assert names == {("name", "path"), ("If-Match", "header"), ("If-None-Match", "header")}
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["text"]


async def test_the_openapi_document_says_where_a_body_must_be_sent(daemon):
    paths = (await ask(daemon.socket, "GET", "/v1/openapi.json")).json["paths"]
    bodies = [
        operation["requestBody"]
        for item in paths.values()
        for operation in item.values()
        if "requestBody" in operation
    ]
    assert {body["required"] for body in bodies} == {True, False}
    for body in bodies:
        must_be_sent = body["content"]["application/json"]["schema"]["required"]
        assert body["required"] == bool(must_be_sent)
    assert paths["/v1/routines/{name}/rename"]["post"]["requestBody"]["required"]
