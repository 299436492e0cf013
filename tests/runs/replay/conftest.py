from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.replaying import ReplayedApp

POLICY = """
version = 1
[[rule]]
tool = "file_read"
effect = "allow"
[[rule]]
tool = "file_write"
effect = "allow"
paths = ["reports/**"]
[routine.shop]
tainted_tools = ["file_write"]
"""
ROUTINE = """
[run]
mode = "agent"
prompt = "Read notes.txt and say what to buy."
tools = ["file_read", "file_write", "shell"]
"""
READ = '{ name = "file_read", arguments = { path = "notes.txt" } }'
WRITE = '{ name = "file_write", arguments = { path = "reports/out.md", content = "milk" } }'
SHELL = '{ name = "shell", arguments = { command = "rm -rf /" } }'
REPLIES = f"""
  {{ text = "I look.", tool_calls = [{READ}] }},
  {{ text = "I keep it.", tool_calls = [{WRITE}, {SHELL}] }},
  "Buy milk.",
"""
OTHER = """
  { text = "I look.", tool_calls = [{ name = "file_read", arguments = { path = "notes.txt" } }] },
  { text = "And there.", tool_calls = [{ name = "file_read", arguments = { path = "other.txt" } }] },
  "Buy milk; the other list could not be read.",
"""  # noqa: E501


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """`agentd replay` sets up a log of its own in this process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def app(tmp_path: Path) -> ReplayedApp:
    """A home whose routine reads, writes and is denied something; `other` is a model that does
    otherwise.
    """
    app = ReplayedApp(tmp_path)
    app.write(
        "config.toml",
        f'provider = "fake"\n[providers.fake]\nkind = "scripted"\nreplies = [{REPLIES}{OTHER}]\n'
        f'[providers.other]\nkind = "scripted"\nmodel = "other-1"\nreplies = [{OTHER}]\n'
        "price = { input = 1.0, output = 2.0 }\n",
    )
    app.write("policy.toml", POLICY)
    app.write_routine("shop", ROUTINE)
    (app.state / "workspace").mkdir(parents=True, mode=0o700)
    (app.state / "workspace" / "notes.txt").write_text("buy milk\n")
    return app
