"""What a person reads when the daemon has started."""

import asyncio
from pathlib import Path

from daemon.banner import KEYS, MANY, models_at_hand

NOBODY = ("127.0.0.1", 1)
SHIPPED = Path(__file__).parents[1] / "config.toml"


async def test_a_key_or_an_ollama_that_lies_about_is_told_with_how_to_use_it():
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as server:
        place = server.sockets[0].getsockname()
        key, ollama = await models_at_hand("offline", {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": ""}, place)
    assert key.startswith("$OPENAI_API_KEY is set but not used. To ask that model: uncomment [providers.gpt]")
    assert 'api_key_env = "OPENAI_API_KEY"' in key
    assert "Ollama answers on this machine but is not used" in ollama


async def test_who_asks_a_model_already_is_told_of_no_other():
    assert await models_at_hand("claude", {"OPENAI_API_KEY": "x"}, NOBODY) == []
    assert await models_at_hand("offline", {}, NOBODY) == []


def test_the_shipped_config_has_every_table_that_is_named():
    text = SHIPPED.read_text("utf-8")
    for name in (*KEYS.values(), "local"):
        assert f"# [providers.{name}]" in text


async def test_thousands_of_routines_are_counted_rather_than_listed(home):
    for number in range(MANY + 12):
        home.routine(f"r{number:03}", '[run]\nprompt = "x"\n')
        home.routine(f"bad{number:03}", "nope = 1\n")
    home.routine("l" * 100, '[run]\nprompt = "x"\n')
    await home.start()
    assert "and 13 more: agentctl list" in home.said
    assert "and 12 more that are invalid: agentctl list" in home.said
    assert all(len(line) < 160 for line in home.said.splitlines() if " r0" in line)
