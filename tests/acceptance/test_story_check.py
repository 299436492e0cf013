"""A report is checked by a schema and by a judge of another vendor, as a user has it set up."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.story import Vendor

SCHEMA = {
    "type": "object",
    "required": ["hosts"],
    "properties": {"hosts": {"type": "array", "items": {"type": "string"}}},
}
ROUTINE = """
[run]
mode = "agent"
prompt = "List the hosts as JSON."
{run}
[check]
schema = "hosts.schema.json"
repair = 1
[check.judge]
provider = "judge"
rubric = "Names web1 and web2."
"""
ONE, BOTH = '{"hosts": ["web1"]}', '{"hosts": ["web1", "web2"]}'


def config(author, judge):
    return f"""
provider = "author"
[providers.author]
kind = "open_source"
base_url = "{author.url}/v1"
model = "gpt-5-mini"
api_key = "right"
[providers.judge]
kind = "claude"
base_url = "{judge.url}"
model = "claude-haiku-4-5"
api_key = "right"
"""


@pytest.fixture
def checked_home(home):
    home.routine("hosts", ROUTINE.format(run=""))
    home.workspace.mkdir(parents=True)
    (home.workspace / "hosts.schema.json").write_text(json.dumps(SCHEMA))
    return home


async def test_a_report_fails_its_check_is_repaired_and_succeeds(checked_home):
    answers = [ONE, BOTH, '{"hosts": "web1"}', ONE]
    async with (
        Vendor(answers) as author,
        Vendor(["FAIL: web2 is missing.", "PASS", "FAIL: web2 is missing."], name="j") as judge,
    ):
        checked_home.write("config.toml", config(author, judge))
        assert (await checked_home.agentd("validate")).code == 0
        await checked_home.start()
        result = await checked_home.agentctl("run", "hosts")
        assert (result.code, "web2" in result.out) == (0, True), result.err
        result = await checked_home.agentctl("run", "hosts")
        assert result.code == 1
        output = (await checked_home.agentctl("inspect", "last")).out
        assert "failed: the check failed: the judge said no: web2 is missing." in output
        assert "$.hosts: expected array, found" in output
        assert "told what is wrong with its report" in output
        usage = (await checked_home.agentctl("usage", "--by", "model")).out
        assert "claude-haiku-4-5" in usage
        replay = await checked_home.agentctl("replay", "last")
        assert replay.code == 0, replay.out
        assert (author.refusals, judge.refusals) == ([], [])
        # the third report does not fit the schema, so nobody is paid to judge it
        assert (len(author.requests), len(judge.requests)) == (4, 3)


@pytest.mark.process
async def test_kill_9_after_the_verdict_does_not_ask_the_judge_again(checked_home):
    async with (
        Vendor([ONE, {"text": "never arrives", "hang": True}, BOTH]) as author,
        Vendor(["FAIL: web2 is missing.", "PASS"], name="j") as judge,
    ):
        checked_home.write("config.toml", config(author, judge))
        await checked_home.start()
        run = (await checked_home.agentctl("run", "hosts", "--detach")).out.strip()
        await author.wait_for_requests(2)
        await checked_home.kill()
        await checked_home.start()
        event = await checked_home.until(run, "run_ended")
        assert (event["status"], event["report"]) == ("succeeded", BOTH)
        assert len(judge.requests) == 2, "one verdict for each report"
        assert len(author.requests) == 3
