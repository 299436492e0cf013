"""What a person reads when the daemon has started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from daemon import __version__

if TYPE_CHECKING:
    from daemon.app import App

# where vendors' own programs look for a key; finding one is said, never used
KEYS = {
    "ANTHROPIC_API_KEY": "claude",
    "OPENAI_API_KEY": "openai",
    "MINIMAX_API_KEY": "minimax",
    "DEEPSEEK_API_KEY": "deepseek",
}
OLLAMA = ("127.0.0.1", 11434)


def banner(app: App) -> str:
    """Return which config won, what will run when, and what to type next."""
    place, engine = app.place, app.engine
    lines = [
        f"agentd {__version__} is up",
        f"  config    {place.config.file}",
        f"  state     {place.state}",
        f"  provider  {place.config.provider}{'' if place.config.provider != 'offline' else NO_MODEL}",
        f"  socket    {place.socket}",
        "",
        f"Routines, and when they run next ({app.zone.key}):",
    ]
    width = max((len(name) for name in (*engine.routines, *engine.faults)), default=0)
    lines += [f"  {name:<{width}}  {_when(app, name)}" for name in sorted(engine.routines)]
    for name, error in sorted(engine.faults.items()):
        lines.append(f"  {name:<{width}}  invalid; the others run:")
        lines += [f"  {'':<{width}}    {fault}" for fault in error.faults]
    if not (engine.routines or engine.faults):
        lines.append(f"  none in {place.config.routines_path}")
    example = next(iter(sorted(engine.routines)), None)
    if example:
        lines += ["", f"In another terminal: agentctl run {example}, agentctl list, agentctl logs -f. Ctrl-C stops."]
    return "\n".join(lines)


NO_MODEL = " (no model is asked: reports are the gathered facts, laid out)"


def _when(app: App, name: str) -> str:
    fires = app.engine.next_fires(name, 3)
    words = app.engine.words(app.engine.routines[name])
    if name in app.engine.states and app.engine.states[name].paused:
        return f"{words}; paused"
    return f"{words}: {', '.join(_local(moment, app) for moment in fires)}" if fires else words


def _local(moment: datetime, app: App) -> str:
    return f"{moment.astimezone(app.zone):%a %d %b %H:%M}"


def found_keys(provider: str, env: Mapping[str, str]) -> list[str]:
    """Return a line for each model key in the environment that no configured provider uses."""
    if provider != "offline":
        return []
    return [
        f"${variable} is set but not used. To ask that model: uncomment [providers.{name}] in config.toml and set"
        f' provider = "{name}".'
        for variable, name in KEYS.items()
        if env.get(variable)
    ]


async def ollama_answers() -> bool:
    """Say whether an Ollama server listens on this machine."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(0.5):
            _, writer = await asyncio.open_connection(*OLLAMA)
            writer.close()
            return True
    return False
