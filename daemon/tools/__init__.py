"""What a model may call: registry, executor, ways to find functions, built-in tools, tools of MCP
servers.

registry.py makes the JSON schema of a function, executor.py runs one call of it. builtin/ has a
file for each built-in tool, mcp/ the tools of MCP servers, user_tools.py those of the user.

Not here: whether a call is allowed (policy/), how its program is confined (sandbox/).
"""
