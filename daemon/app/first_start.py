"""What a start says of models while the config asks none, and the offer to set one up.

At the first start at a terminal a person is asked, before the daemon runs and logs anything,
whether `agentd setup` shall set up a model. Otherwise an API key in the environment and an Ollama
on this machine are announced; none is used without a yes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.app.setup import FIRST_START_VARIABLE
from daemon.app.setup.questions import EndOfInput, Interrupted, read_line, say
from daemon.app.setup.vendors import VENDORS, find_keys
from daemon.cli.call import start_command
from daemon.definitions.config.loading import load_config

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config

OLLAMA = ("127.0.0.1", 11434)
ANSWER_SECONDS = 0.5  # an Ollama on this machine answers at once
# Seconds that the offer waits: whoever starts a daemon in a terminal that nobody looks at gets it.
OFFER_SECONDS = 60.0
INTERRUPTED = 130  # as after any Ctrl-C


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectedModel:
    """A provider of models that could be asked while none is."""

    name: str
    """The name by which `agentctl setup --provider` takes the provider."""
    finding: str
    """What was detected, in words."""
    models: Sequence[str] = ()
    """The names of the provider's models, where they are known."""

    @property
    def announcement(self) -> str:
        """How to use the provider, in a line."""
        return (
            f"{self.finding} but is not used. To have it write the reports: "
            f"agentctl setup --provider {self.name}"
        )


async def detect_models(
    provider: str,
    env: Mapping[str, str],
    ollama: tuple[str, int] = OLLAMA,
    *,
    timeout: float = ANSWER_SECONDS,
) -> list[DetectedModel]:
    """Return the providers that could be asked, if `provider`, that of the config, asks none.

    `ollama` is the host and port of an Ollama, which gets `timeout` seconds to answer.
    """
    if provider != "offline":
        return []
    detected_models = [
        DetectedModel(name=vendor.name, finding=f"${vendor.key_variable} is set")
        for vendor in find_keys(env)
    ]
    models = await _list_ollama_models(*ollama, timeout)
    if models is not None:
        name = VENDORS["ollama"].name
        detected_models.append(
            DetectedModel(name=name, finding="Ollama answers on this machine", models=models)
        )
    return detected_models


async def _list_ollama_models(host: str, port: int, timeout: float) -> list[str] | None:
    """Return the models of an Ollama; none if its answer is not understood, None if nothing listens
    there.
    """
    answer: bytes | None = None  # until a connection is open
    with suppress(OSError, TimeoutError, ValueError, LookupError, TypeError):
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port)
            answer = b""
            try:
                writer.write(f"GET /api/tags HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                answer = await reader.read()
            finally:
                writer.close()
        return [
            str(model["name"]) for model in json.loads(answer.partition(b"\r\n\r\n")[2])["models"]
        ]
    return None if answer is None else []


def _how_to_start(config: Path) -> str:
    """Return what to do after a Ctrl-C; setup may have written a model before."""
    command = start_command()
    if load_config(config).providers:
        return f"`{command}` starts it"
    return f"`{command}` asks again, and Enter at its question starts it without a model"


def can_answer(fd: int = 0) -> bool:
    """Return whether a person at the terminal can answer. In the background, reading would stop the
    process.
    """
    try:
        return os.isatty(fd) and os.isatty(1) and os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def is_first_start(config: Config, state: Path) -> bool:
    """Return whether nothing is configured yet, and no daemon has run on the state folder."""
    store = config.store
    has_database = bool(store.url or store.url_file or store.url_env)
    return (
        config.provider == "offline"
        and not config.providers
        and not has_database
        and not (state / "agentd.db").exists()
    )


def offer_setup(config: Path, state: Path, env: Mapping[str, str]) -> bool:
    """Ask the person at the terminal whether to set up a model, and do so; return whether the start
    goes on.

    It ends where the person says so by Ctrl-C, here or in one of the questions of setup.
    """
    detected_models = asyncio.run(detect_models("offline", env))
    say("No model is set up yet: reports are the gathered facts, laid out.")
    if detected_models:
        say(f"Found: {', '.join(model.finding for model in detected_models)}.")
    question = "Set up a model now? It takes a minute. y, or Enter to start without one: "
    try:
        answer = read_line(question, timeout=OFFER_SECONDS)
    except EndOfInput:
        answer = ""
    except Interrupted:
        say(f"\nnot started; {_how_to_start(config)}")
        return False
    if answer is None:
        say(f"\n(no answer in {OFFER_SECONDS:g} s)")
    if answer is None or answer.lower() not in ("y", "yes"):
        say("Starting without a model; `agentctl setup` sets one up at any time.")
        return True
    # A process of its own: what setup imports would stay in the daemon's memory. A Ctrl-C is for
    # that process, which tells by its exit code.
    earlier_handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        command = [sys.executable, "-m", "daemon.app.main", "setup"]
        command += ["--config", str(config), "--state", str(state)]
        setup_env = {**env, FIRST_START_VARIABLE: "1"}
        code = subprocess.run(command, check=False, env=setup_env).returncode
    finally:
        signal.signal(signal.SIGINT, earlier_handler)
    if code == INTERRUPTED:
        say(f"not started; {_how_to_start(config)}")
        return False
    if code:
        say("Starting without a model; `agentctl setup` tries again.")
    return True
