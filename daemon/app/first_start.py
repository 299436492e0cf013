"""Models that could be asked while none is: announced, at a terminal asked about once, and never
used silently.

The daemon does not wait for an answer: it has begun to work when the question is put. A yes changes
two things in the config, whose text is otherwise left as it is, and says so; a no is remembered.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from daemon.models import Json

# Where vendors' own programs look for a key, and the table of the shipped config that would use it.
KEYS = {"ANTHROPIC_API_KEY": ("claude", "claude"), "OPENAI_API_KEY": ("gpt", "openai")}
KEYS["MINIMAX_API_KEY"] = ("minimax", "minimax")
OLLAMA = ("127.0.0.1", 11434)
ANSWER_SECONDS = 0.5  # what is on this machine answers at once
MAX_MODELS_NAMED = 8  # of those that Ollama has


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectedModel:
    """A provider of models that could be asked while none is."""

    name: str
    """Of its table in the config."""
    kind: str
    finding: str
    """What was detected, in words."""
    settings: Mapping[str, str]
    """The keys of its table, but for kind and model."""
    models: Sequence[str] = ()
    """The names of its models, where they are known."""

    @property
    def announcement(self) -> str:
        """How to use the provider, in a line."""
        variable = self.settings.get("api_key_env")
        key = f' with api_key_env = "{variable}"' if variable else ""
        return (
            f"{self.finding}. To ask that model: uncomment [providers.{self.name}] in "
            f'config.toml{key}, and set provider = "{self.name}"'
        )

    @property
    def question(self) -> str:
        """The question to a person at the terminal."""
        if self.models:
            bill, choice = "", f"Which of {', '.join(self.models[:MAX_MODELS_NAMED])}?"
        else:
            bill = " Its vendor bills each run."
            choice = "Which model, as the vendor writes it?"
        return (
            f"{self.finding}. Shall it write the reports?{bill}\n{choice} A name, or Enter for no:"
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
    detected = [
        DetectedModel(
            name=name,
            kind=kind,
            finding=f"${variable} is set but not used",
            settings={"api_key_env": variable},
        )
        for variable, (name, kind) in KEYS.items()
        if env.get(variable)
    ]
    models = await _list_ollama_models(*ollama, timeout)
    if models is not None:
        detected.append(
            DetectedModel(
                name="local",
                kind="open_source",
                finding="Ollama answers on this machine but is not used",
                settings={"base_url": f"http://{ollama[0]}:{ollama[1]}/v1"},
                models=models,
            )
        )
    return detected


async def _list_ollama_models(host: str, port: int, timeout: float) -> list[str] | None:
    """Return the models of an Ollama; None if nothing listens there."""
    answer = None
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


def can_answer(fd: int = 0) -> bool:
    """Return whether a person at the terminal can answer. In the background, reading would stop the
    process.
    """
    try:
        return os.isatty(fd) and os.isatty(1) and os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


class ProviderSuggestion:
    """Ask at the terminal about detected providers, one after the other, until one is accepted."""

    def __init__(
        self,
        detected: Sequence[DetectedModel],
        config: Path,
        *,
        write: Callable[[str], None],
        remember: Callable[[str, str], Awaitable[None]],
        tasks: asyncio.TaskGroup,
        fd: int = 0,
        can_answer: Callable[[int], bool] = can_answer,
    ) -> None:
        """`config` is the file that an accepted provider is written into, `fd` is where the answers
        are read from. `remember` keeps an answer under a key.
        """
        self._questions, self._config, self._write = list(detected), config, write
        self._remember, self._tasks = remember, tasks
        self._fd, self._can_answer = fd, can_answer

    def ask(self) -> None:
        """Put the next question, if there is one, and read the answer whenever it comes."""
        asyncio.get_running_loop().remove_reader(self._fd)
        if self._questions and self._can_answer(self._fd):
            self._write(f"\n{self._questions[0].question}")
            asyncio.get_running_loop().add_reader(self._fd, self._read_answer)

    def _read_answer(self) -> None:
        if not self._can_answer(self._fd):
            # the daemon was sent into the background: the line is for another program
            asyncio.get_running_loop().remove_reader(self._fd)
            return
        line = os.read(self._fd, 4096).decode(errors="replace")
        detected = self._questions.pop(0)
        if not line:  # Ctrl-D, or the terminal is gone
            self._questions.clear()
        answer = line.strip()
        if answer.lower() in ("", "n", "no"):
            self._tasks.create_task(self._keep_answer(detected, "no"), name="model declined")
        else:
            self._questions.clear()
            self._accept(detected, "" if answer.lower() in ("y", "yes") else answer)
        self.ask()

    def _accept(self, detected: DetectedModel, model: str) -> None:
        """Write the provider into the config, with its first model if none was named."""
        model = model or (detected.models[0] if detected.models else "")
        if not model:
            self._write(f"It needs a model's name. {detected.announcement}")
            return
        name = detected.name
        try:
            enable(self._config, detected, model)
        except (OSError, ValueError) as error:
            self._write(f"{self._config} was not changed: {error}. {detected.announcement}")
            return
        self._write(f'{self._config} now has [providers.{name}] and provider = "{name}"')
        self._tasks.create_task(self._keep_answer(detected, "yes"), name="model accepted")

    async def _keep_answer(self, detected: DetectedModel, answer: str) -> None:
        await self._remember(answer_key(detected), answer)


def answer_key(detected: DetectedModel) -> str:
    """Return the key under which a person's answer is remembered."""
    return f"asked:{detected.name}"


def enable(config: Path, detected: DetectedModel, model: str) -> None:
    """Write a config that asks this model.

    Raises ValueError or OSError, and changes nothing, if the config cannot be changed.
    """
    file = config.resolve()
    status = file.stat()
    if status.st_uid != os.geteuid():
        raise ValueError("it belongs to another user")
    text = with_provider(file.read_text("utf-8"), detected, model)
    draft, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(draft, "w", encoding="utf-8") as opened:
            os.fchmod(draft, status.st_mode & 0o777)
            opened.write(text)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def with_provider(text: str, detected: DetectedModel, model: str) -> str:
    """Return a config's text that asks this model; ValueError where that cannot be done by adding a
    few lines.
    """
    config, line = tomllib.loads(text), f'provider = "{detected.name}"'
    if detected.name in config.get("providers", {}):
        raise ValueError(f"it has a [providers.{detected.name}] already")
    first_table = re.search(r"^\s*\[", text, re.MULTILINE)
    head, tables = text, ""
    if first_table:
        head, tables = text[: first_table.start()], text[first_table.start() :]
    head, count = re.subn(
        r"^provider[ \t]*=[ \t]*[\"'][^\"'\n]*[\"']", line, head, count=1, flags=re.MULTILINE
    )
    if not count:
        head = f"{head.rstrip()}\n{line}\n\n".lstrip()
    table: dict[str, Any] = {"kind": detected.kind, "model": model, **detected.settings}
    new_text = (
        f"{head}{tables.rstrip()}\n\n# Agreed to at the "
        f"terminal.\n{tomli_w.dumps({'providers': {detected.name: table}})}"
    )
    new_config: Json = {
        **config,
        "provider": detected.name,
        "providers": {**config.get("providers", {}), detected.name: table},
    }
    if tomllib.loads(new_text) != new_config:  # TOML written in a way that the lines above miss
        raise ValueError("its lines are not where they usually are")
    return new_text
