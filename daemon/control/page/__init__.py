"""A page to look at: what `agentctl ui` serves on a loopback port while it runs.

gate.py says who may look, server.py speaks HTTP, views.py asks the daemon and says what a page shows, pictures.py turns
numbers into shapes; templates/ and static/ are how it looks. Everything shown comes over the control socket: there is
no SQL here and no file of the daemon's, and the daemon itself listens on no port.
"""
