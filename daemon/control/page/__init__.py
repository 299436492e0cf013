"""A page to look at: what `agentctl ui` serves on a loopback port while it runs.

gate.py says who may look, app.py is the Starlette application, command.py serves it, views.py asks the daemon and says
what a page shows, pictures.py turns numbers into shapes; templates/ and static/ are how it looks. Everything shown
comes over the control socket: there is no SQL here and no file of the daemon's, and the daemon listens on no port.
"""
