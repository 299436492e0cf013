"""What a server may cost us: memory, time and lines of the log, however much it sends."""

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import pytest
import pytest_asyncio
from mcp.shared.message import SessionMessage
from mcp.types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest
from structlog.testing import capture_logs

from daemon.definitions.config.tables import McpConfig
from daemon.errors import ToolFailed
from daemon.tools.executor import MAX_LOGGED
from daemon.tools.mcp.server import (
    MAX_ERROR_CHARACTERS,
    MAX_LISTED_CHARACTERS,
    MAX_STDERR_BYTES,
    McpServer,
    _StderrFile,
)
from daemon.tools.mcp.servers import MAX_TOOLS
from daemon.tools.mcp.transport import MAX_MESSAGE, MAX_REQUESTS, open_limited
from tests.tools.mcp.test_servers import Shop, open_accepted_tools

# A server whose answers stand in `answers`, by method: a text is written as it is. Without any it
# is silent; what is asked for in vain has an error, as the client waits ten seconds for each
# answer.
SERVER = """
import json, sys

refuse = lambda request: {"code": -32601, "message": "Method not found"}
answers = {
    "initialize": lambda request: {
        "protocolVersion": request["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    },
    "ping": lambda request: {},
    "tools/list": lambda request: {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
}
exec(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    if answers and "method" in request and "id" in request:
        answer = answers.get(request["method"], refuse)(request)
        if isinstance(answer, dict):
            kind = "error" if "code" in answer else "result"
            answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], kind: answer}) + "\\n"
        sys.stdout.write(answer)
        sys.stdout.flush()
"""


def config_of(change):
    """Return the config of a server whose `answers` some lines of Python have changed."""
    return {"command": [sys.executable, "-I", "-S", "-c", SERVER, change], "timeout": "20s"}


@asynccontextmanager
async def open_server(change):
    server = McpServer("hostile", McpConfig.model_validate(config_of(change)))
    yield server
    await server.close()


@pytest_asyncio.fixture
async def shop(tmp_path):
    async with open_accepted_tools(tmp_path) as accepted_tools:
        shops = []

        def open_shop(**changes):
            configs = {name: config_of(change) for name, change in changes.items()}
            shops.append(Shop(configs, accepted_tools))
            return shops[-1]

        yield open_shop
        for each in shops:
            await each.servers.close()


async def test_a_line_that_does_not_end_ends_the_connection():
    change = f"answers['tools/list'] = lambda request: 'x' * {MAX_MESSAGE + 200_000}"
    async with open_server(change) as server:
        with capture_logs() as logs, pytest.raises(ToolFailed, match="Connection closed"):
            await server.tools()
    assert "mcp.message_too_long" in [entry["event"] for entry in logs]


async def test_a_run_that_is_cancelled_does_not_wait_for_a_server_that_is_slow_to_end():
    async with open_server("import atexit, time; atexit.register(time.sleep, 0.5)") as server:
        await server.tools()
        connection = server._connection_task
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0)  # until it waits
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not connection.done()
        await asyncio.wait([connection])


async def test_the_end_of_a_connection_leaves_its_stderr_to_the_next_one():
    async with open_server("import atexit, time; atexit.register(time.sleep, 0.5)") as server:
        await server.tools()
        connection = server._connection_task
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0)  # until it waits
        closing.cancel()
        await asyncio.wait([closing])
        await server.tools()
        await asyncio.wait([connection])
        assert server._stderr_file is not None


async def test_a_list_of_tools_that_does_not_end_is_left():
    change = (
        "schema = {'type': 'object'}\n"
        "answers['tools/list'] = lambda request: {'nextCursor': 'more', 'tools': ["
        "{'name': 't', 'description': 'd' * 600_000, 'inputSchema': schema}]}"
    )
    async with open_server(change) as server:
        assert len(await server.tools()) == MAX_LISTED_CHARACTERS // 600_000 + 1


async def test_tools_that_are_skipped_fill_no_log(shop):
    change = (
        "schema = {'type': 'object'}\n"
        "answers['tools/list'] = lambda request: "
        "{'tools': [{'name': 't', 'inputSchema': schema}] * 5_000}"
    )
    same = shop(same=change)
    with capture_logs() as logs:
        await same.servers.register_tools(["same__*"])
    assert same.registry.names() == ["same__t"]
    warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert warnings == ["mcp.tool_skipped"] * (MAX_TOOLS - 1) + ["mcp.tools_left_out"]


async def test_the_words_of_an_error_are_cut(shop):
    change = "answers['tools/call'] = lambda request: {'code': 1, 'message': 'no ' * 500_000}"
    wordy = shop(wordy=change)
    await wordy.servers.register_tools(["wordy__*"])
    with capture_logs() as logs:
        result = await wordy.call("wordy__t")
    assert not result.ok
    assert len(result.text) < MAX_ERROR_CHARACTERS + 100
    assert max(len(json.dumps(entry)) for entry in logs) < MAX_LOGGED + 500


async def test_the_log_has_the_beginning_of_a_failure_only(shop):
    change = (
        "answers['tools/call'] = lambda request: "
        "{'isError': True, 'content': [{'type': 'text', 'text': 'no ' * 500_000}]}"
    )
    wordy = shop(wordy=change)
    await wordy.servers.register_tools(["wordy__*"])
    with capture_logs() as logs:
        assert not (await wordy.call("wordy__t")).ok
    (entry,) = [entry for entry in logs if entry["event"] == "tool.failed"]
    assert len(entry["detail"]) == MAX_LOGGED


async def test_a_server_that_does_not_come_up_delays_no_run_without_it(shop):
    both = shop(silent="answers.clear()", quick="pass")
    silent = asyncio.create_task(both.servers.register_tools(["silent__*"]))
    await asyncio.sleep(0)
    await both.servers.register_tools(["quick__*"])
    assert both.registry.names() == ["quick__t"]
    assert not silent.done()
    silent.cancel()


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"properties": {"x": True}}, ""),
        ({"properties": {"x": {"enum": 5}}}, ""),
        ({"properties": {"x": {"type": {"a": 1}}}}, ""),
        ({"properties": {"x": {"type": [["string"]]}}}, ""),
        ({"required": ["y"], "properties": {"y": True}}, "`y` is missing"),
        (
            {"required": ["y"], "properties": {"y": {"type": ["string", 5], "description": [1]}}},
            "`y` is missing (string or 5, [1])",
        ),
    ],
)
async def test_a_schema_that_says_odd_things_is_no_fault_of_a_call(shop, schema, fault):
    change = (
        f"schema = {{'type': 'object'}} | {schema!r}\n"
        "tools = [{'name': 't', 'inputSchema': schema}]\n"
        "answers['tools/list'] = lambda request: {'tools': tools}\n"
        "answers['tools/call'] = lambda request: {'content': [{'type': 'text', 'text': 'fine'}]}"
    )
    odd = shop(odd=change)
    await odd.servers.register_tools(["odd__*"])
    result = await odd.call("odd__t", x="v")
    assert result.ok is not bool(fault)
    assert fault in result.text


async def test_a_pattern_for_what_a_tool_answers_is_not_tried(shop):
    change = (
        "schema = {'type': 'object'}\n"
        "wanted = {'type': 'object', 'properties': {'x': {'pattern': '^(a+)+$'}}}\n"
        "tools = [{'name': 't', 'inputSchema': schema, 'outputSchema': wanted}]\n"
        "answers['tools/list'] = lambda request: {'tools': tools}\n"
        "answers['tools/call'] = lambda request: "
        # each further letter takes twice as long
        "{'content': [], 'structuredContent': {'x': 'a' * 22 + '!'}}"
    )
    odd = shop(odd=change)
    await odd.servers.register_tools(["odd__*"])
    result = await odd.call("odd__t")
    assert result.ok, result.text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"jsonrpc": "2.0", "id": %d, "result": {"content": [', "Invalid JSON: EOF"),
        ('{"jsonrpc": "2.0", "id": %d, "result": {"x": ' + "9" * 5_000 + "}}", "out of range"),
        ('{"result": {"x": ' + "[" * 9_000 + '}, "jsonrpc": "2.0", "id": %d}', "recursion limit"),
        ('{"jsonrpc": "2.0", "id": %d, "result": {"x": "\\ud800"}}', "hex escape"),
        ('{"jsonrpc": "2.0", "id": %d, "result": 7}', "no message of JSON-RPC 2.0"),
        ('{"jsonrpc": "2.0", "id": "%d", "result": {"\x1b[31m": }}', "Invalid JSON"),
        ('{"jsonrpc": "1.0", "id": %d, "result": {}}', "no message of JSON-RPC 2.0"),
    ],
)
async def test_an_answer_that_is_no_message_fails_its_call_at_once(answer, reason):
    change = f"answers['tools/call'] = lambda request: {answer!r} % request['id'] + '\\n'"
    async with open_server(change) as server:
        with (
            capture_logs() as logs,
            pytest.raises(ToolFailed, match="no message of MCP") as failure,
        ):
            await server.call("t", {})
        assert reason in str(failure.value)
        assert str(failure.value).endswith("what came of it is unknown")
        assert str(failure.value).isprintable()
        (entry,) = [entry for entry in logs if entry["event"] == "mcp.no_message"]
        assert entry["line"].isprintable()
        assert len(entry["line"]) <= 200
        with pytest.raises(ToolFailed):  # it is asked on
            await server.call("t", {})
        assert server.connections == 1


async def test_what_else_a_server_prints_does_no_harm():
    prints = [
        "",
        "npm notice New major version of npm available! \x1b[31m10 -> 11\x1b[0m",
        "{'jsonrpc': no JSON",
        "[]",
        '{"level": 30, "id": 4, "error": "no", "msg": "started"}',
        '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"id": 4, ',
        '{"jsonrpc": "2.0", "id": 4711, "result": 7}',
        "9" * 5_000,
        "[" * 9_000,
    ]
    change = (
        f"print(*{prints!r}, sep='\\n', flush=True)\n"
        f"noise = '\\n'.join({prints!r})\n"
        'fine = \'{"jsonrpc": "2.0", "id": %d, '
        '"result": {"content": [{"type": "text", "text": "fine"}]}}\'\n'
        "answers['tools/call'] = lambda request: "
        "noise.replace('4,', '%d,' % request['id']) + '\\n' + fine % request['id'] + '\\n'"
    )
    async with open_server(change) as server:
        with capture_logs() as logs:
            assert await server.call("t", {}) == "fine"
        (entry,) = [entry for entry in logs if entry["event"] == "mcp.no_message"]
        assert entry["line"].startswith("npm notice")
        assert entry["line"].isprintable()


async def test_few_requests_of_a_server_are_answered_at_a_time():
    from_server, to_client = anyio.create_memory_object_stream(1_000)
    to_server, from_client = anyio.create_memory_object_stream(1_000)

    @asynccontextmanager
    async def transport():
        async with from_server, to_client, to_server, from_client:
            yield to_client, to_server

    def request(number):
        return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="ping"))

    async with open_limited(transport()) as (read_stream, write_stream):
        for number in range(100):
            from_server.send_nowait(request(number))
            from_server.send_nowait(request(0))  # one that is repeated is no other
        notification = JSONRPCNotification(jsonrpc="2.0", method="notifications/message")
        from_server.send_nowait(SessionMessage(notification))
        received = []
        while not received or isinstance(received[-1].message, JSONRPCRequest):
            received.append(await read_stream.receive())
        assert [item.message.id for item in received[:-1]] == list(range(MAX_REQUESTS))

        error = JSONRPCError(jsonrpc="2.0", id=3, error=ErrorData(code=1, message="no"))
        await write_stream.send(SessionMessage(error))
        called_off = {"requestId": 4}
        notification = JSONRPCNotification(
            jsonrpc="2.0", method="notifications/cancelled", params=called_off
        )
        from_server.send_nowait(SessionMessage(notification))
        for number in range(200, 203):
            from_server.send_nowait(request(number))
        from_server.close()
        later = [item.message async for item in read_stream]
        assert [item.id for item in later if isinstance(item, JSONRPCRequest)] == [200, 201]


def test_what_a_server_writes_to_stderr_does_not_fill_the_disk():
    file = _StderrFile()

    def write(text):
        code = "import sys; sys.stderr.write(sys.argv[1] * int(sys.argv[2]))"
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, text, str(MAX_STDERR_BYTES // len(text) + 1)],
            stderr=file.stream,
            check=True,
        )

    write("early ")
    assert str(file).endswith("early")
    file.trim()
    assert str(file) == ""
    write("late")
    file.trim()
    assert str(file) == ""
    file.close()


async def test_a_server_without_ping_is_not_taken_for_gone():
    """The protocol of 2026-07-28 has none."""
    change = (
        "complete = {'resultType': 'complete', 'ttlMs': 0, 'cacheScope': 'private'}\n"
        "answers['server/discover'] = lambda request: {"
        "**complete, 'supportedVersions': ['2026-07-28'], 'capabilities': {'tools': {}}, "
        "'serverInfo': {'name': 'new', 'version': '1'}}\n"
        "del answers['ping']\n"
        "answers['tools/call'] = lambda request: {'code': 1, 'message': 'there is no such day'}\n"
    )
    async with open_server(change) as server:
        for _ in range(2):
            with pytest.raises(ToolFailed, match=r"^hostile: there is no such day$"):
                await server.call("t", {})
        assert server.connections == 1
