"""What a model may call: registry, executor, ways to find functions, built-in tools, tools of MCP
servers.

Not here: whether a call is allowed (policy/), how its program is confined (sandbox/).
"""
