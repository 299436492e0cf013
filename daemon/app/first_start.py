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
PATIENCE = 0.5  # seconds; what is on this machine answers at once
FEW = 8  # models of Ollama that are named


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectedModel:
    """A model that could be asked."""

    name: str
    """Of its table in the config."""
    kind: str
    what: str
    """What was found, in words."""
    settings: Mapping[str, str]
    """The keys of its table, but for kind and model."""
    models: Sequence[str] = ()
    """Those it has, where that is known."""

    @property
    def announced(self) -> str:
        """How to use it, in a line."""
        more = "".join(
            f' with {key} = "{value}"'
            for key, value in self.settings.items()
            if key == "api_key_env"
        )
        how = (
            f"uncomment [providers.{self.name}] in config.toml{more}, and set provider = "
            f'"{self.name}"'
        )
        return f"{self.what}. To ask that model: {how}"

    @property
    def question(self) -> str:
        """What somebody at the terminal is asked."""
        bill = "" if self.models else " Its vendor bills each run."
        which = (
            f"Which of {', '.join(self.models[:FEW])}?"
            if self.models
            else "Which model, as the vendor writes it?"
        )
        return f"{self.what}. Shall it write the reports?{bill}\n{which} A name, or Enter for no:"


async def at_hand(
    provider: str,
    env: Mapping[str, str],
    ollama: tuple[str, int] = OLLAMA,
    *,
    patience: float = PATIENCE,
) -> list[DetectedModel]:
    """Return each model that could be asked, while none is."""
    if provider != "offline":
        return []
    found = [
        DetectedModel(
            name=name,
            kind=kind,
            what=f"${variable} is set but not used",
            settings={"api_key_env": variable},
        )
        for variable, (name, kind) in KEYS.items()
        if env.get(variable)
    ]
    if (models := await _models_of(*ollama, patience)) is not None:
        address = f"http://{ollama[0]}:{ollama[1]}/v1"
        what, settings = "Ollama answers on this machine but is not used", {"base_url": address}
        found.append(
            DetectedModel(
                name="local", kind="open_source", what=what, settings=settings, models=models
            )
        )
    return found


async def _models_of(host: str, port: int, patience: float) -> list[str] | None:
    """Return the models of an Ollama; None if nothing listens there."""
    answer = None
    with suppress(OSError, TimeoutError, ValueError, LookupError, TypeError):
        async with asyncio.timeout(patience):
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


def at_the_terminal(fd: int = 0) -> bool:
    """Tell whether somebody sits there who can answer: in the background reading would stop the
    process.
    """
    try:
        return os.isatty(fd) and os.isatty(1) and os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


class ProviderSuggestion:
    """Asks about what was found, one after the other, until one is agreed to."""

    def __init__(
        self,
        found: Sequence[DetectedModel],
        config: Path,
        *,
        say: Callable[[str], None],
        remember: Callable[[str, str], Awaitable[None]],
        tasks: asyncio.TaskGroup,
        fd: int = 0,
        present: Callable[[int], bool] = at_the_terminal,
    ) -> None:
        self._left, self._config, self._say = list(found), config, say
        self._remember, self._tasks = remember, tasks
        self._fd, self._present = fd, present

    def ask(self) -> None:
        """Put the next question, if there is one, and hear the answer whenever it comes."""
        asyncio.get_running_loop().remove_reader(self._fd)
        if self._left and self._present(self._fd):
            self._say(f"\n{self._left[0].question}")
            asyncio.get_running_loop().add_reader(self._fd, self._heard)

    def _heard(self) -> None:
        if not self._present(
            self._fd
        ):  # sent into the background meanwhile: what is typed is for somebody else
            asyncio.get_running_loop().remove_reader(self._fd)
            return
        line = os.read(self._fd, 4096).decode(errors="replace")
        found = self._left.pop(0)
        if not line:  # Ctrl-D, or the terminal is gone
            self._left.clear()
        model = line.strip()
        if model.lower() in ("", "n", "no"):
            self._tasks.create_task(self._note(found, "no"), name="model declined")
        else:
            self._left.clear()
            self._agreed(found, "" if model.lower() in ("y", "yes") else model)
        self.ask()

    def _agreed(self, found: DetectedModel, model: str) -> None:
        model = model or (found.models[0] if found.models else "")
        if not model:
            self._say(f"It needs a model's name. {found.announced}")
            return
        try:
            enable(self._config, found, model)
        except (OSError, ValueError) as error:
            self._say(f"{self._config} was not changed: {error}. {found.announced}")
            return
        self._say(f'{self._config} now has [providers.{found.name}] and provider = "{found.name}"')
        self._tasks.create_task(self._note(found, "yes"), name="model agreed to")

    async def _note(self, found: DetectedModel, answer: str) -> None:
        await self._remember(asked(found), answer)


def asked(found: DetectedModel) -> str:
    """Return under which name the answer is remembered."""
    return f"asked:{found.name}"


def enable(config: Path, found: DetectedModel, model: str) -> None:
    """Write a config that asks this model; ValueError or OSError if it cannot be changed, and then
    it is not.
    """
    file = config.resolve()
    about = file.stat()
    if about.st_uid != os.geteuid():
        raise ValueError("it belongs to another user")
    text = with_provider(file.read_text("utf-8"), found, model)
    draft, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(draft, "w", encoding="utf-8") as opened:
            os.fchmod(draft, about.st_mode & 0o777)
            opened.write(text)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def with_provider(text: str, found: DetectedModel, model: str) -> str:
    """Return a config's text that asks this model; ValueError where that cannot be done by adding a
    few lines.
    """
    old, line = tomllib.loads(text), f'provider = "{found.name}"'
    if found.name in old.get("providers", {}):
        raise ValueError(f"it has a [providers.{found.name}] already")
    tables = re.search(r"^\s*\[", text, re.MULTILINE)
    head, rest = (text[: tables.start()], text[tables.start() :]) if tables else (text, "")
    head, count = re.subn(
        r"^provider[ \t]*=[ \t]*[\"'][^\"'\n]*[\"']", line, head, count=1, flags=re.MULTILINE
    )
    if not count:
        head = f"{head.rstrip()}\n{line}\n\n".lstrip()
    table: dict[str, Any] = {"kind": found.kind, "model": model, **found.settings}
    new = (
        f"{head}{rest.rstrip()}\n\n# Agreed to at the "
        f"terminal.\n{tomli_w.dumps({'providers': {found.name: table}})}"
    )
    wanted: Json = {
        **old,
        "provider": found.name,
        "providers": {**old.get("providers", {}), found.name: table},
    }
    if tomllib.loads(new) != wanted:  # a way to write TOML that was not thought of above
        raise ValueError("its lines are not where they usually are")
    return new
