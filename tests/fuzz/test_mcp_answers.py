"""Whatever an MCP server answers, its tools are tools with bounded texts, and a call has a result
that can be recorded, or one named failure.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from daemon.definitions.config.tables import McpConfig
from daemon.errors import DaemonError
from daemon.models import FunctionCall
from daemon.store.rows import encode
from daemon.tools.executor import ToolExecutor
from daemon.tools.mcp.accepted_tools import AcceptedTools
from daemon.tools.mcp.servers import Servers
from daemon.tools.registry import FunctionRegistry
from tests.fuzz.hostile import Document, broken_documents, to_json
from tests.properties import scaled_settings
from tests.tools.mcp.test_servers import open_accepted_tools

SERVER = Path(__file__).with_name("mcp_server.py")
TOOLS = {
    "tools": [
        {
            "name": "look",
            "description": "Looks.",
            "inputSchema": {
                "type": "object",
                "properties": {"day": {"type": "string", "description": "which"}},
            },
            "annotations": {"readOnlyHint": True},
        }
    ],
    "nextCursor": None,
}
RESULT = {
    "content": [
        {"type": "text", "text": "fine"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "b"}},
    ],
    "structuredContent": {"day": ["Monday", 1.5]},
    "isError": False,
}
# Each example starts servers.
FUZZ = settings(
    scaled_settings(40, fewest=4, suppress=[HealthCheck.data_too_large, HealthCheck.too_slow]),
    phases=(Phase.explicit, Phase.generate),
)


def results(document: Document) -> st.SearchStrategy[str]:
    """Return results that are nearly right, as JSON text."""
    return broken_documents([document]).map(to_json).map(bytes.decode)


@FUZZ
@given(
    answers=st.lists(
        st.fixed_dictionaries({"tools": results(TOOLS), "call": results(RESULT)}),
        min_size=3,
        max_size=6,
    )
)
async def test_any_answer_of_an_mcp_server_is_a_result_or_a_named_failure(
    answers: list[dict[str, str]],
) -> None:
    with TemporaryDirectory() as folder:
        async with open_accepted_tools(Path(folder)) as accepted_tools:
            for number, pair in enumerate(answers):
                path = Path(folder) / f"{number}.json"
                path.write_text(json.dumps([pair]))
                await check_one_server(path, accepted_tools)


async def check_one_server(path: Path, accepted_tools: AcceptedTools) -> None:
    """Ask a server what it offers, and call each of its tools once."""
    registry = FunctionRegistry()
    config = McpConfig(
        command=[sys.executable, "-I", "-S", str(SERVER), str(path)],
        timeout=timedelta(milliseconds=500),
    )
    servers = Servers(
        {"hostile": config}, registry, secrets={"hostile": None}, accepted_tools=accepted_tools
    )
    try:
        try:
            await servers.register_tools(["hostile__*"])
        except DaemonError as error:
            assert_is_readable(str(error))
        executor = ToolExecutor(registry)
        for name in registry.names():
            result = await executor.run(FunctionCall(name=name, arguments={}))
            assert_is_readable(result.text)
            encode(result.value)
    finally:
        await servers.close()


def assert_is_readable(text: str) -> None:
    """It can be logged, stored and shown."""
    text.encode()
    assert len(text) < 2_000_000
