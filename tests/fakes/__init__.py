"""Stand-ins for what cannot be had in a test: vendors of models, on a real loopback socket.

In this room: servers that answer as the vendors do and refuse what the vendors refuse, written from
their documentation. Not in this room: anything of `daemon`; a fake that shared its tables would
share its mistakes.
"""
