"""What people stumbled over who tried agentd, from outside: what validate says, the start keeps;
what a run says is what was the matter. Most of their findings are tests elsewhere, each with its
kind; these are told by several parts together.
"""

from __future__ import annotations

import pytest

from tests.acceptance.story import Home, Vendor

pytestmark = pytest.mark.timeout(300)

CLAUDE = 'provider = "mine"\n[providers.mine]\nkind = "claude"\nmodel = "m"\n'
MAIL = '[targets.mail]\nkind = "mail"\nurl_file = "mail.url"\n'
MISSING = {
    "a variable that is not set": (f'{CLAUDE}api_key_env = "KEY_OF_NOBODY"\n', None),
    "no key at all": (CLAUDE, None),
    "no file of the key": (f'{CLAUDE}api_key_file = "key"\n', None),
    "a key that others may read": (f'{CLAUDE}api_key_file = "key"\n', ("key", "sk-1\n", 0o644)),
    "an empty file of the key": (f'{CLAUDE}api_key_file = "key"\n', ("key", "", 0o600)),
    "no file of the address": (MAIL, None),
    "an address that others may read": (
        MAIL,
        ("mail.url", "mailto://relay.lan:25?from=a@b.org&to=c@d.org\n", 0o664),
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("case", MISSING)
async def test_validate_fails_where_the_daemon_refuses_to_start(case: str, home: Home) -> None:
    config, file = MISSING[case]
    home.write("config.toml", config)
    if file:
        name, text, mode = file
        home.write(name, text)
        (home.folder / name).chmod(mode)
    home.routine("work", '[run]\nprompt = "Work."\n[[deliver]]\nto = "log"\n')
    verdict = await home.agentd("validate")
    start = await home.run_process("agentd", *home.places)
    assert (verdict.code, start.code) == (1, 78), verdict.out + start.err
    (fault,) = start.err.splitlines()
    assert f"note: {fault.removeprefix('agentd: ')}" in verdict.out.splitlines()
    assert (await home.agentd("validate", "--elsewhere")).code == 0


def config_of(vendor: Vendor) -> str:
    return (
        f'provider = "local"\n[providers.local]\nkind = "open_source"\nmodel = "local"\n'
        f'base_url = "{vendor.url}/v1"\n'
    )


async def test_an_invented_figure_is_no_success_where_a_look_is_required(home: Home) -> None:
    home.write("policy.toml", 'version = 1\n[[rule]]\ntool = "sysinfo"\neffect = "allow"\n')
    home.routine(
        "disks",
        '[run]\nmode = "agent"\nprompt = "How full are the disks?"\ntools = ["sysinfo"]\n'
        'required_tools = ["sysinfo"]\n',
    )
    look = {"tool_calls": [{"name": "sysinfo", "arguments": {"parts": ["disks"]}}]}
    async with Vendor(["They are 42 % full.", look, "They are 7 % full."]) as vendor:
        home.write("config.toml", config_of(vendor))
        await home.start()
        first_result = await home.agentctl("run", "disks")
        second_result = await home.agentctl("run", "disks")
    assert first_result.code == 1
    assert "failed: a required tool was not called: sysinfo" in first_result.err
    assert second_result.code == 0, second_result.err
    assert "They are 7 % full." in second_result.out


async def test_a_run_without_a_key_says_that_none_was_sent_and_where_to_set_one(home: Home) -> None:
    home.routine("work", '[run]\nprompt = "Work."\n')
    refusal = {"error": 401, "message": "You did not provide an API key", "code": "invalid_api_key"}
    async with Vendor([refusal]) as vendor:
        home.write("config.toml", config_of(vendor))
        await home.start()
        result = await home.agentctl("run", "work")
    assert result.code == 1
    assert "no key was sent, and the vendor asks for one (401 invalid_api_key)" in result.err
    assert "set api_key_file or api_key_env in [providers.local]" in result.err


async def test_ask_is_not_told_of_a_tool_that_it_is_not_offered(home: Home) -> None:
    async with Vendor(["Good morning."]) as vendor:
        home.write("config.toml", config_of(vendor))
        await home.start()
        assert (await home.agentctl("ask", "Good morning!")).code == 0
        (request,) = vendor.requests
    tools = {tool["function"]["name"] for tool in request.body.get("tools", ())}
    assert "finish" not in tools
    assert "`finish" not in request.body["messages"][0]["content"]
