"""Tools of MCP servers: found when a run first needs them, called like any other, trusted by nobody.

In this room: one server and the way to it (server.py, over the official SDK, which is imported with the first call),
all of config.toml's (servers.py). What they offer is registered as `NAME__tool`; what may be called says the policy,
and what they answer is the word of a stranger.
"""

from daemon.mcp.servers import Servers

__all__ = ["Servers"]
