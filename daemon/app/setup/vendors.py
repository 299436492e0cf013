"""The vendors that setup knows, and what of them this machine has: keys and local servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from daemon.errors import ProviderError
from daemon.providers import create_provider

# Seconds for the list of a server on this machine.
_LOCAL_TIMEOUT = 1.0
_MAX_NAME = 200  # characters: a longer name is no model's
ANY_MODEL = "any model"  # stands for one while the list of models is asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Vendor:
    """A vendor of models, or a server on this machine."""

    name: str
    """The name of the vendor, and of its table in config.toml."""
    title: str
    kind: str
    key_variable: str = ""
    """The environment variable in which the vendor's key usually is; empty if none is needed."""
    base_url: str = ""
    """The address of the vendor; empty for that of the kind of provider."""

    @property
    def is_local(self) -> bool:
        return not self.key_variable


VENDORS: Mapping[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        Vendor(name="claude", title="Anthropic", kind="claude", key_variable="ANTHROPIC_API_KEY"),
        Vendor(name="gpt", title="OpenAI", kind="openai", key_variable="OPENAI_API_KEY"),
        Vendor(name="minimax", title="MiniMax", kind="minimax", key_variable="MINIMAX_API_KEY"),
        Vendor(
            name="deepseek",
            title="DeepSeek",
            kind="open_source",
            key_variable="DEEPSEEK_API_KEY",
            base_url="https://api.deepseek.com/v1",
        ),
        Vendor(
            name="kimi",
            title="Moonshot",
            kind="open_source",
            key_variable="MOONSHOT_API_KEY",
            base_url="https://api.moonshot.ai/v1",
        ),
        Vendor(
            name="glm",
            title="Z.ai",
            kind="open_source",
            key_variable="ZAI_API_KEY",
            base_url="https://api.z.ai/api/paas/v4",
        ),
        Vendor(
            name="gemini",
            title="Google",
            kind="open_source",
            key_variable="GEMINI_API_KEY",
            base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        Vendor(
            name="mistral",
            title="Mistral",
            kind="open_source",
            key_variable="MISTRAL_API_KEY",
            base_url="https://api.mistral.ai/v1",
        ),
        Vendor(
            name="openrouter",
            title="OpenRouter",
            kind="open_source",
            key_variable="OPENROUTER_API_KEY",
            base_url="https://openrouter.ai/api/v1",
        ),
        Vendor(
            name="ollama",
            title="Ollama on this machine",
            kind="open_source",
            base_url="http://127.0.0.1:11434/v1",
        ),
        Vendor(
            name="llamacpp",
            title="llama.cpp on this machine",
            kind="open_source",
            base_url="http://127.0.0.1:8080/v1",
        ),
        Vendor(
            name="lmstudio",
            title="LM Studio on this machine",
            kind="open_source",
            base_url="http://127.0.0.1:1234/v1",
        ),
        Vendor(
            name="vllm",
            title="vLLM on this machine",
            kind="open_source",
            base_url="http://127.0.0.1:8000/v1",
        ),
    )
}


def find_keys(env: Mapping[str, str]) -> list[Vendor]:
    """Return the vendors whose key is in the environment."""
    return [vendor for vendor in VENDORS.values() if env.get(vendor.key_variable, "").strip()]


async def find_servers(
    servers: Sequence[Vendor] | None = None, *, timeout: float = _LOCAL_TIMEOUT
) -> list[tuple[Vendor, int]]:
    """Ask the local servers for their models, all at once; return (server, number of models) of
    those that answer with a list.
    """
    if servers is None:
        servers = [vendor for vendor in VENDORS.values() if vendor.is_local]
    counts = await asyncio.gather(*(_count_models(server, timeout) for server in servers))
    return [
        (server, count) for server, count in zip(servers, counts, strict=True) if count is not None
    ]


async def _count_models(server: Vendor, timeout: float) -> int | None:
    provider = create_provider(
        server.kind, name=server.name, model=ANY_MODEL, base_url=server.base_url, timeout=timeout
    )
    try:
        return len([model for model in await provider.list_models() if is_usable(model.name)])
    except ProviderError:
        return None
    finally:
        await provider.close()


def is_usable(name: str) -> bool:
    """Return whether the name of a model can be shown, and be meant: no control characters."""
    return 0 < len(name) <= _MAX_NAME and name.isprintable() and not any(map(str.isspace, name))
