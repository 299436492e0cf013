"""Run LLM agents on a schedule.

models.py errors.py durations.py plurals.py token_estimate.py
              what all packages share; standard library only
system/       clock, timer, watched files, safe opening of files, messages to systemd
telemetry/    logs, redaction, journald, metrics, spans
definitions/  config.toml, routines, skills, schedules and patterns as values; paths
store/        the journal: tables, repositories, migrations, retention, PostgreSQL
policy/       may this call run? deny > ask > allow
sandbox/      how a program of a tool is confined, and limited
injection/    does what a tool brought back give orders?
providers/    vendors of models, wire formats, retries, prices, budgets
memory/       what earlier runs left behind, found again
delivery/     reports on their way to their targets, incidents
tools/        what a model may call: registry, executor, built-in tools, MCP servers
agent/        from a goal to a reply: prompt, loop, transcript, conversations
runs/         the life of a run, from its claim to its end
scheduler/    when runs start: engine, slots, triggers, run queue, cluster
api/          the HTTP API over the Unix socket
chat/         people read, answer and approve in a chat such as Telegram
web/          the page that `agentctl ui` serves
cli/          agentctl
app/          agentd: wiring, lifecycle, doctor, commands
testing.py    for tests, yours too: a fake clock, a scripted model, the daemon in the test's process

A package imports only what stands above it, and no sibling: policy, sandbox and injection are
siblings, and so are providers, memory and delivery, and api and chat. cli/ stands beside them all,
see tests/test_architecture.py.

Where it happens:

a slot is claimed        scheduler/slot_ledger.py, by a row of store/slots.py
a run is executed        runs/run.py
a prompt is rendered     agent/prompt.py
a verdict is made        policy/policy.py, of each part of a call in policy/verdicts.py
a tool is run            agent/tool_calls.py, tools/executor.py
a report is sent         delivery/outbox.py
a memory is forgotten    memory/erasure/erasure.py
a route of the API       api/routes.py
a verb of agentctl       cli/verbs.py
"""

__all__ = [
    "Agent",
    "AgentOptions",
    "AgentServices",
    "AllowAll",
    "AnthropicBaseProvider",
    "Chunk",
    "ClaudeProvider",
    "Database",
    "Effect",
    "FunctionCall",
    "FunctionDefinition",
    "FunctionRegistry",
    "Image",
    "LLMMessage",
    "LLMProvider",
    "LLMResponse",
    "LoopLimits",
    "Memory",
    "MiniMaxProvider",
    "OpenAIProvider",
    "OpenSourceProvider",
    "Policy",
    "ProviderError",
    "Reply",
    "Status",
    "ToolContext",
    "ToolExecutor",
    "ToolFailed",
    "Usage",
    "Verdict",
    "agent_callable",
    "auto_discover_and_register",
    "create_provider",
    "register_class_methods",
    "register_instance_methods",
    "register_module_functions",
]
__version__ = "0.2.0"

# Where the public names are; each is imported when it is first asked for, and type checkers read
# __init__.pyi. Nothing is imported here: each sandboxed command imports this package in its
# supervisor (tests/system/test_syscalls.py).
_PUBLIC = {
    "Agent": "daemon.agent.agent",
    "AgentOptions": "daemon.agent.agent",
    "AgentServices": "daemon.agent.agent",
    "AllowAll": "daemon.agent.tool_calls",
    "AnthropicBaseProvider": "daemon.providers.anthropic_base",
    "Chunk": "daemon.models",
    "ClaudeProvider": "daemon.providers.claude",
    "Database": "daemon.store.database",
    "Effect": "daemon.models",
    "FunctionCall": "daemon.models",
    "FunctionDefinition": "daemon.tools.registry",
    "FunctionRegistry": "daemon.tools.registry",
    "Image": "daemon.models",
    "LLMMessage": "daemon.models",
    "LLMProvider": "daemon.providers",
    "LLMResponse": "daemon.models",
    "LoopLimits": "daemon.agent.loop",
    "Memory": "daemon.memory.memory",
    "MiniMaxProvider": "daemon.providers.minimax",
    "OpenAIProvider": "daemon.providers.openai",
    "OpenSourceProvider": "daemon.providers.open_source",
    "Policy": "daemon.policy.policy",
    "ProviderError": "daemon.errors",
    "Reply": "daemon.models",
    "Status": "daemon.models",
    "ToolContext": "daemon.models",
    "ToolExecutor": "daemon.tools.executor",
    "ToolFailed": "daemon.errors",
    "Usage": "daemon.models",
    "Verdict": "daemon.models",
    "agent_callable": "daemon.tools.discovery",
    "auto_discover_and_register": "daemon.tools.discovery",
    "create_provider": "daemon.providers",
    "register_class_methods": "daemon.tools.discovery",
    "register_instance_methods": "daemon.tools.discovery",
    "register_module_functions": "daemon.tools.discovery",
}


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        message = f"module 'daemon' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)
