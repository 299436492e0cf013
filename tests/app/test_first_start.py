"""Models that lie about are announced, at a terminal asked about once, and never used silently."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import termios
import tomllib
from pathlib import Path

import pytest

from daemon.app.first_start import KEYS, DetectedModel, detect_models, enable, with_provider
from daemon.definitions.config.loading import load_config

NOBODY = ("127.0.0.1", 1)
SHIPPED = Path(__file__).parents[2] / "config.toml"
CLAUDE = DetectedModel(
    name="claude",
    kind="claude",
    finding="a key is set",
    settings={"api_key_env": "ANTHROPIC_API_KEY"},
)


async def ollama(answer: bytes):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + answer)
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def test_a_key_or_an_ollama_that_lies_about_is_told_with_how_to_use_it():
    async with await ollama(json.dumps({"models": [{"name": "qwen3:8b"}]}).encode()) as server:
        key, local = await detect_models(
            "offline",
            {"OPENAI_API_KEY": "x", "MINIMAX_API_KEY": ""},
            server.sockets[0].getsockname(),
            timeout=30,
        )
    assert key.announcement.startswith(
        "$OPENAI_API_KEY is set but not used. To ask that model: uncomment [providers.gpt]"
    )
    assert 'api_key_env = "OPENAI_API_KEY"' in key.announcement
    assert "Its vendor bills each run" in key.question
    assert "Ollama answers on this machine but is not used" in local.announcement
    assert "Which of qwen3:8b?" in local.question


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"models": 3}', b'{"models": [{}]}'])
async def test_something_else_at_the_place_of_an_ollama_is_asked_for_no_list(answer):
    async with await ollama(answer) as server:
        (found,) = await detect_models("offline", {}, server.sockets[0].getsockname(), timeout=30)
    assert found.models == []


async def test_who_asks_a_model_already_is_told_of_no_other():
    assert await detect_models("claude", {"OPENAI_API_KEY": "x"}, NOBODY) == []
    assert await detect_models("offline", {}, NOBODY) == []


def test_the_shipped_config_has_every_table_that_is_named():
    text = SHIPPED.read_text("utf-8")
    for name in (*(name for name, _ in KEYS.values()), "local"):
        assert f"# [providers.{name}]" in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but a comment",
        'provider = "offline"',
        'provider = \'offline\'   # for now\ntimezone = "UTC"\n[agent]\nname = "x"\n',
        'timezone = "UTC"\n\n[providers.local]\nkind = "scripted"\nreplies = ["x"]\n',
        '[agent]\nname = "x"\nprovider-like = 1',
    ],
)
def test_a_yes_adds_a_few_lines_and_leaves_the_others(text):
    new = with_provider(text, CLAUDE, 'a "model"')
    old = tomllib.loads(text)
    assert tomllib.loads(new) == {
        **old,
        "provider": "claude",
        "providers": {
            **old.get("providers", {}),
            "claude": {"kind": "claude", "model": 'a "model"', "api_key_env": "ANTHROPIC_API_KEY"},
        },
    }
    kept = [
        line for line in text.splitlines() if line.strip() and not line.startswith("provider =")
    ]
    assert [line for line in new.splitlines() if line in kept] == kept


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[providers.claude]\nkind = "claude"\nmodel = "m"', "has a"),
        ('"provider" = "offline"', "Cannot overwrite|lines|key"),
        ('workspace = """\n[x]\n"""\nprovider = "offline"', "Cannot overwrite|lines|key"),
        ('providers = { local = { kind = "scripted" } }', "lines|key|Cannot"),
    ],
)
def test_a_config_that_is_written_otherwise_is_left_alone(text, says):
    with pytest.raises(ValueError, match=says):
        with_provider(text, CLAUDE, "m")


def test_the_file_keeps_its_mode_and_the_link_that_leads_to_it(tmp_path):
    real, link = tmp_path / "real.toml", tmp_path / "config.toml"
    real.write_text(SHIPPED.read_text("utf-8"))
    real.chmod(0o640)
    link.symlink_to(real)
    enable(link, CLAUDE, "m")
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert load_config(link).provider == "claude"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.toml", "real.toml"]


class Terminal:
    """The daemon of a home in a terminal, and somebody who types."""

    def __init__(self, home):
        self.master, self._slave = os.openpty()
        self.home, self.seen = home, ""

    async def start(self):
        def take_the_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "daemon.app.main", *map(str, self.home.places)),
            env=self.home.env,
            cwd=self.home.folder,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=take_the_terminal,
        )
        os.close(self._slave)

    async def shows(self, text):
        loop = asyncio.get_running_loop()
        while text not in self.seen:
            ready = asyncio.Event()
            loop.add_reader(self.master, ready.set)
            await ready.wait()
            loop.remove_reader(self.master)
            self.seen += os.read(self.master, 65536).decode()

    def type(self, text):
        os.write(self.master, text.encode())

    async def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert await self.process.wait() == 0
        os.close(self.master)


async def test_at_a_terminal_it_is_asked_once_while_the_daemon_works_on(home):
    home.env["ANTHROPIC_API_KEY"] = "sk-ant-test"
    home.env["OPENAI_API_KEY"] = "sk-test"
    terminal = Terminal(home)
    await terminal.start()
    await terminal.shows("$ANTHROPIC_API_KEY is set but not used. Shall it write the reports?")
    assert (await home.agentctl("status")).code == 0, "nobody has answered yet"
    terminal.type("no\n")
    await terminal.shows("$OPENAI_API_KEY is set but not used. Shall it write the reports?")
    terminal.type("gpt-x\n")
    await terminal.shows('now has [providers.gpt] and provider = "gpt"')
    await home.logged("definitions.reloaded")
    assert load_config(home.folder / "config.toml").providers["gpt"].model == "gpt-x"
    await terminal.stop()
    (home.folder / "config.toml").write_text("")
    again = Terminal(home)
    await again.start()
    await again.shows("To ask that model: uncomment [providers.gpt]")
    await again.stop()
    asked = [line for line in again.seen.splitlines() if "Shall" in line]
    ollama = await detect_models(
        "offline", {}, timeout=30
    )  # of one that this machine has nobody had been asked
    assert [line for line in asked if not (ollama and "Ollama" in line)] == []
