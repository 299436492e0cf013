"""What is wrong in a file or a folder is named with its place and with a way out that works."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.acceptance.story import Home

pytestmark = pytest.mark.timeout(300)

HELLO = '[run]\nprompt = "Say hello."\n[[deliver]]\nto = "log"\n'
TO_MAIL = '[run]\nprompt = "Say hello."\n[[deliver]]\nto = "mail"\n'
MAIL = '[targets.mail]\nkind = "mail"\nurl_file = "mail.url"\n'
ADDRESS = "mailto://relay.lan:25?from=agentd@example.org&to=ann@example.org\n"


async def test_list_says_which_fault_keeps_a_config_from_being_taken_up_until_it_is_mended(
    home: Home,
) -> None:
    home.routine("hello", HELLO)
    await home.start()
    home.write("config.toml", MAIL)
    home.routine("morning", TO_MAIL)
    assert (await home.agentctl("reload")).code == 5
    listing = await home.agentctl("list")
    assert "Not all that the files say is in force:\n" in listing.out
    assert "config.toml:3: targets.mail.url_file: no such file: " in listing.out
    assert "morning" not in listing.out
    home.write("mail.url", ADDRESS)
    assert (await home.agentctl("reload")).code == 0
    mended_listing = await home.agentctl("list")
    assert "in force" not in mended_listing.out
    assert "morning" in mended_listing.out


async def test_a_run_by_hand_takes_up_what_was_saved_a_moment_ago(home: Home) -> None:
    """In one process after another, so that the files are seldom left alone for a second."""
    script = '[run]\nmode = "script"\n[[gather]]\nname = "x"\ntool = "shell"\n'
    home.routine("say", f'{script}args = {{ command = "echo old" }}\n')
    home.write("policy.toml", policy_that_allows("echo", "old"))
    await home.start()
    assert "old" in (await home.agentctl("run", "say")).out
    home.routine("say", f'{script}args = {{ command = "echo new" }}\n')
    home.write("policy.toml", policy_that_allows("echo", "new"))
    assert "new" in (await home.agentctl("run", "say")).out
    home.write("policy.toml", "version = 'one'\n")  # what is in force stays
    assert "new" in (await home.agentctl("run", "say")).out


def policy_that_allows(*words: str) -> str:
    return f'version = 1\n[[rule]]\ntool = "shell"\neffect = "allow"\nargv = {json.dumps(words)}\n'


@pytest.mark.process
@pytest.mark.slow
async def test_the_command_that_validate_names_for_a_missing_address_lets_the_daemon_start(
    home: Home,
) -> None:
    home.write("config.toml", MAIL)
    home.routine("morning", TO_MAIL)
    verdict = await home.agentd("validate")
    assert verdict.code == 1
    (note,) = [line for line in verdict.out.splitlines() if "url_file" in line]
    assert "(found" not in note, "a file that is not there was not found"
    command = re.search(r"; create it: (\(umask 077; cat > .+\)), one line, then Ctrl-D$", note)
    assert command, note
    subprocess.run(["sh", "-c", command[1]], input=ADDRESS.encode(), check=True)
    assert (await home.agentd("validate")).code == 0
    await home.start()
    assert "morning" in (await home.agentctl("list")).out


@pytest.mark.parametrize(
    ("table", "kind", "ours"),
    [
        ("providers", "anthropic", "claude"),
        ("providers", "ollama", "open_source"),
        ("targets", "email", "mail"),
        ("targets", "smtp", "mail"),
    ],
)
async def test_a_kind_by_the_name_that_others_give_it_is_answered_with_ours(
    table: str, kind: str, ours: str, home: Home
) -> None:
    home.write("config.toml", f'[{table}.mine]\nkind = "{kind}"\n')
    verdict = await home.agentd("validate")
    assert verdict.code == 1
    (line,) = [line for line in verdict.out.splitlines() if f'(found "{kind}")' in line]
    assert f"config.toml:2: {table}.mine.kind: " in line
    assert line.endswith(f'did you mean "{ours}"?')


@pytest.mark.parametrize("key", ['api_key_env = "KEY_OF_NOBODY"', 'api_key_file = "no.key"'])
async def test_a_provider_that_no_routine_uses_stops_nothing_by_its_missing_key(
    key: str, home: Home
) -> None:
    home.write("config.toml", f'[providers.unused]\nkind = "claude"\nmodel = "m"\n{key}\n')
    home.routine("hello", HELLO)
    assert (await home.agentd("validate")).code == 0
    await home.start()
    assert (await home.agentctl("run", "hello")).code == 0


@pytest.mark.process
@pytest.mark.parametrize(
    "verb", [(), ("once", "hello"), ("restore", "backup.db")], ids=["start", "once", "restore"]
)
async def test_a_state_folder_that_cannot_be_used_is_one_sentence_with_a_way_out(
    verb: tuple[str, ...], home: Home
) -> None:
    home.routine("hello", HELLO)
    await home.agentd("once", "hello")
    assert (await home.agentd("backup", home.folder / "backup.db")).code == 0
    home.write("file", "")
    places = ("--config", home.folder / "config.toml", "--state", home.folder / "file" / "state")
    result = await home.run_process("agentd", *verb, *places)
    assert (result.code, result.out) == (78, "")
    (line,) = result.err.splitlines()
    assert "the state folder cannot be used: Not a directory; " in line
    assert "--state" in line.partition("; ")[2]
