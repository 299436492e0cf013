"""API keys and models found on the machine are announced, offered at the first start at a terminal
before anything is logged, and never used silently.
"""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from daemon.app.first_start import detect_models, is_first_start
from daemon.app.setup.vendors import VENDORS
from daemon.definitions.config.config import Config
from daemon.definitions.config.tables import ProviderConfig, StoreConfig
from tests.app.setup.terminal import terminal
from tests.fakes.vendor import FakeVendor

NOBODY = ("127.0.0.1", 1)
OFFER = "or Enter to start without one: "


async def ollama(answer: bytes):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + answer)
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def test_a_found_api_key_or_ollama_is_announced_with_its_command():
    async with await ollama(json.dumps({"models": [{"name": "qwen3:8b"}]}).encode()) as server:
        key, local = await detect_models(
            "offline",
            {"OPENAI_API_KEY": "x", "MINIMAX_API_KEY": ""},
            server.sockets[0].getsockname(),
            timeout=30,
        )
    assert key.announcement == (
        "$OPENAI_API_KEY is set but is not used. To have it write the reports: "
        "agentctl setup --provider gpt"
    )
    assert local.announcement.startswith("Ollama answers on this machine but is not used")
    assert local.models == ["qwen3:8b"]


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"models": 3}', b'{"models": [{}]}'])
async def test_another_server_at_the_ollama_port_offers_no_models(answer):
    async with await ollama(answer) as server:
        (suggestion,) = await detect_models(
            "offline", {}, server.sockets[0].getsockname(), timeout=30
        )
    assert suggestion.models == []


async def test_no_model_is_suggested_if_a_provider_is_configured():
    assert await detect_models("claude", {"OPENAI_API_KEY": "x"}, NOBODY) == []
    assert await detect_models("offline", {}, NOBODY) == []


async def test_every_vendor_with_a_key_is_detected():
    env = {vendor.key_variable: "x" for vendor in VENDORS.values() if vendor.key_variable}
    names = [model.name for model in await detect_models("offline", env, NOBODY)]
    assert names == [vendor.name for vendor in VENDORS.values() if not vendor.is_local]


def test_a_start_is_the_first_one_while_nothing_is_configured(tmp_path):
    provider = ProviderConfig(kind="scripted", replies=["x"])
    assert is_first_start(Config(), tmp_path)
    assert not is_first_start(Config(providers={"a": provider}), tmp_path)
    assert not is_first_start(Config(providers={"a": provider}, provider="a"), tmp_path)
    assert not is_first_start(Config(store=StoreConfig(url_env="URL")), tmp_path)
    (tmp_path / "agentd.db").touch()
    assert not is_first_start(Config(), tmp_path)


async def test_the_offer_comes_before_any_log_line_and_only_once(home):
    home.env["ANTHROPIC_API_KEY"] = "sk-ant-test"
    async with terminal(*home.places, env=home.env, cwd=home.folder) as screen:
        await screen.shows("Found: $ANTHROPIC_API_KEY is set")
        await screen.shows(OFFER)
        assert not home.state.exists(), "nothing runs, and nothing was logged, before the answer"
        screen.type("\n")
        await screen.shows("Starting without a model")
        await screen.shows("agentctl setup --provider claude")
        assert (await home.agentctl("status")).code == 0
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.end() == 0
    async with terminal(*home.places, env=home.env, cwd=home.folder) as screen:
        await screen.shows("agentctl setup --provider claude")
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.end() == 0
        assert OFFER not in screen.text
    assert (home.folder / "config.toml").read_text() == ""


@pytest.mark.parametrize("is_in_setup", [False, True], ids=["the offer", "a question of setup"])
async def test_ctrl_c_at_a_question_of_the_first_start_starts_nothing(home, is_in_setup):
    async with terminal(*home.places, env=home.env, cwd=home.folder) as screen:
        await screen.shows(OFFER)
        if is_in_setup:
            screen.type("y\n")
            await screen.shows("Which model shall write the reports?")
            await screen.shows("Enter for no")
        screen.type("\x03")
        if is_in_setup:
            await screen.shows("stopped: nothing was changed")
        await screen.shows("not started; `agentd` asks again, and Enter at its question starts it")
        assert await screen.end() == 130
        assert "Traceback" not in screen.text
    assert not home.state.exists()
    assert (home.folder / "config.toml").read_text() == ""


@pytest.mark.slow
async def test_a_setup_that_fails_is_no_reason_not_to_start(home):
    home.env |= {"ANTHROPIC_API_KEY": "sk-ant-test-0123456789", "HTTPS_PROXY": "http://127.0.0.1:1"}
    async with terminal(*home.places, env=home.env, cwd=home.folder) as screen:
        await screen.shows(OFFER)
        screen.type("y\n")
        await screen.shows("Enter for 1:")
        screen.type("claude\n")
        await screen.shows("The key is that of $ANTHROPIC_API_KEY.")
        await screen.shows("nothing was changed")
        await screen.shows("`agentctl setup` tries again")
        await screen.shows("Ctrl-C")
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.end() == 0
        assert "sk-ant" not in screen.text


@pytest.mark.parametrize("answer", ["q", "a URL"])
async def test_a_first_start_goes_on_after_setup_with_a_model_or_without_one(home, answer):
    async with (
        FakeVendor(["I am ready."]) as vendor,
        terminal(*home.places, env=home.env, cwd=home.folder) as screen,
    ):
        vendor.models = [{"id": "mine-1"}]
        await screen.shows(OFFER)
        screen.type("y\n")
        await screen.shows("Enter for ")
        if answer == "q":
            screen.type("q\n")
            await screen.shows("No model was set up")
        else:
            screen.type(f"{vendor.url}/v1\n")
            await screen.shows("Enter for none:")
            screen.type("\n")
            await screen.shows("Enter for 1:")
            screen.type("\n")
            for _ in range(2):  # a target, a routine
                await screen.shows("[y/N]")
                screen.type("\n")
        await screen.shows("Ctrl-C")
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.end() == 0
    assert "start the daemon" not in screen.text, "it starts by itself"
    assert ("[providers.local]" in (home.folder / "config.toml").read_text()) == (answer != "q")


async def test_a_first_start_ends_by_naming_the_routine_that_was_just_written(home):
    home.routine("daily-report", '[run]\nprompt = "x"\n')
    home.routine("weekly", '[run]\nprompt = "x"\n')
    async with (
        FakeVendor(["I am ready."]) as vendor,
        terminal(*home.places, env=home.env, cwd=home.folder) as screen,
    ):
        vendor.models = [{"id": "mine-1"}]
        await screen.shows(OFFER)
        for question, answer in (
            ("Enter for ", f"{vendor.url}/v1"),
            ("Enter for none:", ""),
            ("Enter for 1:", ""),
            ("chat or phone, too?", ""),
            ("of your own now?", "y"),
            ("Enter for morning:", ""),
            ("When does it run?", ""),
            ("What shall it do", "Plan my day."),
        ):
            screen.type("y\n" if question == "Enter for " else "")
            await screen.shows(question)
            screen.type(f"{answer}\n")
        await screen.shows("In another terminal:")
        await screen.shows("run morning  ")
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.end() == 0


async def test_without_a_terminal_nothing_is_asked(home):
    home.env["ANTHROPIC_API_KEY"] = "sk-ant-test"
    process = await home.spawn("agentd", *home.places)
    lines = [(await process.stdout.readline()).decode()]
    while lines[-1] and "agentctl setup --provider claude" not in lines[-1]:
        lines.append((await process.stdout.readline()).decode())
    assert lines[-1]
    assert OFFER not in "".join(lines)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0
