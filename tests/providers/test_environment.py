"""What the environment may and may not do to a request."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fakes.vendor import FakeVendor
from tests.providers.calls import KEY, TRANSPORTS, Opener, user

AMBUSH = {
    "OPENAI_API_KEY": "sk-somebody-elses-key",
    "OPENAI_ADMIN_KEY": "sk-an-admins-key",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/elsewhere",
    "OPENAI_ORG_ID": "org-else",
    "OPENAI_PROJECT_ID": "proj-else",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer stolen\nX-Ambush: 1",
    "ANTHROPIC_API_KEY": "sk-ant-somebody-elses-key",
    "ANTHROPIC_AUTH_TOKEN": "somebody-elses-token",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/elsewhere",
    "ANTHROPIC_CUSTOM_HEADERS": "anthropic-version: 2023-06-01\nX-Ambush: 1",
    "ANTHROPIC_PROFILE": "somebody-else",
}


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_stray_variable_cannot_redirect_or_sign_a_request(
    way: str, provider_for: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in AMBUSH.items():
        monkeypatch.setenv(name, value)
    async with FakeVendor(["hello"]) as vendor:
        await provider_for(way, vendor).chat([user("hi")])
    (request,) = vendor.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["user-agent"] == "agentd"
    headers = " ".join(f"{name}: {value}" for name, value in request.headers.items())
    for stray in ("else", "mbush", "stolen", "admin", "2023-06-01", "x-stainless-os"):
        assert stray not in headers


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_a_proxy_of_the_environment_is_used(
    way: str, provider_for: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeVendor(["through the proxy"]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        answer = await provider_for(way, "http://vendor.example").chat([user("hi")])
        monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
        async with FakeVendor(["directly"]) as vendor:
            direct = await provider_for(way, vendor).chat([user("hi")])
    assert answer.content == "through the proxy"
    assert proxy.requests[0].path.startswith("http://vendor.example/")
    assert direct.content == "directly"


def test_choosing_a_provider_loads_no_sdk() -> None:
    """An idle daemon has none of them: `create_provider` imports ours, the first call theirs."""
    program = """
import sys
from daemon.providers import create_provider
for kind in ("openai", "claude", "minimax", "open_source", "offline", "scripted"):
    create_provider(kind, model="m", base_url="http://127.0.0.1:9/v1", api_key="k", replies=["x"])
    heavy = {"openai", "anthropic", "httpx", "httpx2", "sqlmodel", "apscheduler"} & set(sys.modules)
    assert not heavy, (kind, heavy)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_provider_loads_its_own_sdk_only() -> None:
    program = """
import asyncio, sys
from daemon.providers import create_provider
asyncio.run(create_provider("open_source", model="m", base_url="http://127.0.0.1:9/v1").load())
assert "httpx" in sys.modules and not {"openai", "anthropic", "httpx2"} & set(sys.modules)
asyncio.run(create_provider("openai", model="m", base_url="http://127.0.0.1:9/v1").load())
assert "openai" in sys.modules and "anthropic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
