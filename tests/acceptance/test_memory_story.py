"""What a user lives through with memory: a real daemon, the real agentctl."""

from __future__ import annotations

import json
import sqlite3

import pytest

from daemon.agent.prompt import PREVIOUS_REPORT_CHARACTERS
from daemon.memory.erasure.erasure import REPORT_CHARACTERS

SECRET = "The bicycle lock opens with 4711-XYZZY"

AGENT = """
[run]
mode = "agent"
prompt = "{prompt}"
provider = "rehearsal"
tools = ["memory_store", "memory_recall"]
memory = "recall+store"
"""

CONFIG = """
timezone = "Europe/Berlin"
[providers.rehearsal]
kind = "scripted"
replies = {replies}
"""

POLICY = """
version = 1
[[rule]]
tool = "memory_*"
effect = "allow"
"""


def storing(key: str, text: str) -> str:
    """Return a scripted reply that keeps a text."""
    return (
        f'{{ text = "", tool_calls = [{{ name = "memory_store", id = "c", '
        f"arguments = {{ key = {json.dumps(key)}, content = {json.dumps(text)} }} }}] }}"
    )


async def daily(home, *replies: str) -> None:
    """Write a home in which the routine `daily` gets these replies, in order, and start it."""
    home.write("config.toml", CONFIG.format(replies=f"[{', '.join(replies)}]"))
    home.write("policy.toml", POLICY)
    home.routine("daily", AGENT.format(prompt="Look after the shed."))
    await home.start()


async def lived(home) -> str:
    ended = await home.agentctl("run", "daily", "--json")
    assert ended.code == 0, ended.out + ended.err
    runs = (await home.agentctl("runs", "--json")).json["items"]
    return runs[0]["id"]


def let_wait(home, run: str) -> None:
    """Have a run that has ended be one that is under way."""
    connection = sqlite3.connect(home.state / "agentd.db")
    connection.execute("UPDATE run SET status = 'waiting', ended = NULL WHERE id = ?", (run,))
    connection.commit()
    connection.close()


def traces(home, *texts: str) -> list[str]:
    """Return which texts stand anywhere in the database's files."""
    data = b"".join(path.read_bytes() for path in home.state.glob("agentd.db*"))
    return [
        text for text in texts if text.encode() in data or text.lower().encode() in data.lower()
    ]


@pytest.mark.process
async def test_what_a_run_kept_is_found_with_its_anchor_and_its_reasons(home) -> None:
    await daily(home, storing("shed:lock", SECRET), '"All is well in the shed."')
    run = await lived(home)
    found = (
        await home.agentctl_process("memory", "search", "how does the bicycle lock open?", "--json")
    ).json["items"]
    assert found[0]["key"] == "shed:lock"
    assert found[0]["anchor"]["run"] == run
    assert found[0]["why"]["words"] > 0
    shown = await home.agentctl_process(
        "memory", "search", "all well in the shed", "--why", "--expand", "1"
    )
    assert shown.code == 0
    assert "because: words +" in shown.out
    assert f"agentctl inspect {run[-8:]}" in shown.out
    assert "Look after the shed." in shown.out
    nothing = await home.agentctl_process("memory", "search", "quokka")
    assert (nothing.code, nothing.out) == (0, "Nothing is remembered about that.\n")


async def test_forgetting_shows_first_and_leaves_no_byte_behind(home) -> None:
    await daily(
        home, storing("shed:lock", SECRET), '"I kept how the lock opens."', '"Nothing new."'
    )
    first = await lived(home)
    second = await lived(home)  # its prompt recalls what the first one kept
    prompt = (await home.agentctl("inspect", second, "--full")).out
    assert SECRET in prompt
    assert traces(home, SECRET) == [SECRET]

    looked = await home.agentctl("memory", "forget", "--key", "shed:lock")
    assert looked.code == 5
    assert "1 item would go" in looked.out
    assert first in looked.out
    assert second in looked.out
    assert "Nothing was deleted. With --yes it will be." in looked.out
    assert traces(home, SECRET) == [SECRET]

    done = await home.agentctl("memory", "forget", "--key", "shed:lock", "--yes")
    assert done.code == 0, done.err
    assert "forgot 1 item, quotes in 2 runs" in done.out
    assert traces(home, SECRET, "XYZZY") == []
    assert "[forgotten]" in (await home.agentctl("inspect", second, "--full")).out
    assert (await home.agentctl("memory", "forget", "--key", "shed:lock", "--yes")).code == 4


async def test_a_forgotten_run_leaves_a_row_that_says_so(home) -> None:
    await daily(home, '"The walrus weighs 912 kg."', '"All quiet."', '"Quiet again."')
    first = await lived(home)
    second = await lived(home)  # its prompt shows the report before it
    done = await home.agentctl("memory", "forget", "--run", first, "--yes", "--json")
    assert done.code == 0, done.err
    told = done.json
    assert told["done"]
    assert [run["id"] for run in told["runs"]] == [first]
    assert [item["key"] for item in told["items"]] == [f"run:{first}"]
    assert second in told["quotes"]
    assert traces(home, "The walrus weighs 912 kg.", "912 kg") == []
    inspected = await home.agentctl("inspect", first)
    assert inspected.code == 0
    assert "What this run did was forgotten" in inspected.out
    assert (await home.agentctl("list")).code == 0
    await lived(home)  # and life goes on


async def test_a_forgotten_report_is_told_to_no_later_run(home) -> None:
    await daily(home, '"The walrus weighs 912 kg."', '"All quiet."')
    first = await lived(home)
    done = await home.agentctl("memory", "forget", "--run", first, "--yes")
    assert done.code == 0, done.err
    second = await lived(home)
    assert "walrus" not in (await home.agentctl("inspect", second, "--full")).out


async def test_forgetting_by_words_takes_whole_runs(home) -> None:
    await daily(home, '"The walrus weighs 912 kg."', '"All quiet."')
    await lived(home)
    await lived(home)
    assert (await home.agentctl("memory", "forget", "--query", "walrus kg", "--yes")).code == 0
    assert traces(home, "walrus") == []
    assert (await home.agentctl("memory", "forget", "--query", "walrus kg")).code == 4
    assert (await home.agentctl("memory", "forget")).code == 2


async def test_a_run_under_way_is_not_torn_apart(home) -> None:
    await daily(home, '"The walrus weighs 912 kg."')
    run = await lived(home)
    let_wait(home, run)
    told = (await home.agentctl("memory", "forget", "--run", run)).out
    assert f"run {run} is under way: cancel it first" in told


async def test_memory_moves_to_another_home_and_back_again_changes_nothing(home, tmp_path) -> None:
    await daily(home, storing("shed:lock", SECRET), '"All is well in the shed."')
    await lived(home)
    await home.agentctl("memory", "pin", "shed:lock")
    copy = tmp_path / "copy.jsonl"
    assert (await home.agentctl("memory", "export", copy)).code == 0
    assert copy.stat().st_mode & 0o777 == 0o600
    assert (await home.agentctl("memory", "export", copy)).code == 1  # never over another file
    assert (await home.agentctl("memory", "forget", "--routine", "daily", "--yes")).code == 0
    assert traces(home, "XYZZY") == []
    taken = await home.agentctl("memory", "import", copy)
    assert taken.code == 0, taken.err
    assert taken.out == "read 6 items and 1 run; 4 were known already\n"  # what every start keeps
    again = await home.agentctl("memory", "import", copy)
    assert again.out == "read 6 items and 1 run; 7 were known already\n"
    items = {
        each["key"]: each
        for each in (await home.agentctl("memory", "list", "--json")).json["items"]
    }
    assert items["shed:lock"]["pinned"]
    assert items["shed:lock"]["text"] == SECRET
    found = (await home.agentctl("memory", "search", "all well in the shed", "--json")).json[
        "items"
    ]
    assert any(hit["anchor"]["type"] == "response" for hit in found)


async def test_a_line_that_is_no_export_is_named(home, tmp_path) -> None:
    await daily(home)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"form": "agentd-memory/1"}\n{"item": "k", "text": "t"}\n')
    ended = await home.agentctl("memory", "import", bad)
    assert ended.code == 5
    assert "line 2 is no line of an export: 'category' is missing" in ended.err
    assert (await home.agentctl("memory", "import", tmp_path / "none")).code == 1


async def test_stats_pin_check_and_reindex_answer_in_a_line(home) -> None:
    await daily(home, storing("shed:lock", SECRET), '"All is well in the shed."')
    await lived(home)
    assert "shed:lock is pinned" in (await home.agentctl("memory", "pin", "shed:lock")).out
    wrong = await home.agentctl("memory", "pin", "shed:luck")
    assert (wrong.code, "nothing is kept under 'shed:luck'" in wrong.err) == (4, True)
    stats = (await home.agentctl("memory", "stats")).out
    assert "1 pinned" in stats
    assert "whole" in stats
    assert (await home.agentctl("memory", "reindex")).out == "the index was made anew\n"
    assert (await home.agentctl("memory", "check")).out == "the index is as it should be\n"
    assert (await home.agentctl("memory", "show", "shed:lock")).out.endswith(f"{SECRET}\n")
    assert (await home.agentctl("memory")).code == 2


async def test_a_summary_is_asked_for_where_it_is_wanted_and_what_it_costs_is_the_runs(
    home,
) -> None:
    made = json.dumps(
        {
            "summary": "The shed was looked after.",
            "facts": [{"text": "Anna Weber owns the shed.", "from": 1}],
        }
    )
    reply = f"{{ text = {json.dumps(made)}, usage = {{ input = 100, output = 20 }} }}"
    config = (
        CONFIG.format(replies=f'["She owns it and all is well.", {reply}]')
        + "[memory]\nsummarise = true\n"
    )
    home.write("config.toml", config)
    home.write("policy.toml", POLICY)
    home.routine("daily", AGENT.format(prompt="Look after the shed."))
    await home.start()
    run = await lived(home)
    hit, *_ = (
        await home.agentctl("memory", "search", "who owns the shed? Anna Weber", "--json")
    ).json["items"]
    assert hit["text"] == "Anna Weber owns the shed."
    assert hit["anchor"]["type"] == "summary"
    around = (await home.agentctl("memory", "search", "Anna Weber", "--expand", "1")).out
    assert "She owns it and all is well." in around
    items = {
        each["key"]: each["text"]
        for each in (await home.agentctl("memory", "list", "--json")).json["items"]
    }
    assert items[f"run:{run}"].endswith("The shed was looked after.")
    usage = (await home.agentctl("inspect", run, "--json")).json["usage"]
    assert usage["input"] >= 100
    assert usage["output"] >= 20


async def test_a_person_edits_memory_in_a_file(home) -> None:
    home.write(
        "config.toml",
        CONFIG.format(replies=f"[{storing('user:tea', 'Green tea')}]")
        + "[memory]\nmirror = true\n",
    )
    home.write("policy.toml", POLICY)
    home.routine("daily", AGENT.format(prompt="Look after the shed."))
    await home.start()
    await home.agentctl("run", "daily")
    file = home.workspace / "MEMORY.md"
    while not file.exists() or "## user:tea" not in file.read_text():
        await home.agentctl("status")
    file.write_text(file.read_text().replace("Green tea", "Black tea"))
    while "Black tea" not in (await home.agentctl("memory", "list")).out:
        pass
    assert "Black tea" in file.read_text()


def test_as_much_of_a_report_is_looked_for_as_prompts_show() -> None:
    assert REPORT_CHARACTERS == PREVIOUS_REPORT_CHARACTERS


LONG = (
    f"The walrus is called Ada, and {'she swims, dives, and eats, and then ' * 9}opens the door "
    "with 4711-XYZZY."
)


async def test_what_a_later_prompt_shows_of_a_forgotten_run_goes_too_however_short_or_cut(
    home,
) -> None:
    short, cut = "It is 4711-XYZZY.", f"On a line of its own.\n{LONG}"
    await daily(home, json.dumps(short), json.dumps(cut), '"All quiet."', '"Quiet again."')
    first, second = await lived(home), await lived(home)
    third = await lived(home)
    prompt = (await home.agentctl("inspect", third, "--full")).out
    assert f"- agent: {short}" in prompt
    assert "- goal: Look after the shed." in prompt
    for run in (first, second):
        assert (await home.agentctl("memory", "forget", "--run", run, "--yes")).code == 0
    gone = ("4711", "she swims", "called Ada", "of its own")
    prompt = (await home.agentctl("inspect", third, "--full")).out
    assert [words for words in gone if words in prompt] == []
    assert "- goal: Look after the shed." in prompt, "others said so"
    assert traces(home, *gone) == []


async def test_a_run_under_way_keeps_what_it_was_told_and_that_is_said(home) -> None:
    await daily(home, '"The walrus weighs 912 kg."', '"All quiet."')
    first, second = await lived(home), await lived(home)
    let_wait(home, second)
    told = (await home.agentctl("memory", "forget", "--run", first)).out
    assert (
        f"what run {second} was told of it, which is under way: let it end, or cancel it, first"
        in told
    )
