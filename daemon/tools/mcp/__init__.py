"""Tools of MCP servers: found when a run first needs them, called like any other, trusted by
nobody.
"""
