"""The web page that `agentctl ui` serves on a loopback port while it runs.

command.py serves it, access.py decides who may see it, views.py asks the daemon and chooses what a
page shows, charts.py turns numbers into shapes; templates/ and static/ are how it looks. Everything
shown comes over the control socket: there is no SQL here and no file of the daemon's, and the
daemon itself listens on no port.
"""
