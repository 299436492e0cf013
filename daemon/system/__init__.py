"""What the operating system offers: clock, timer, watched files, safe opening of files, system
calls, messages to systemd.

Not here: anything that knows what a routine or a run is.
"""
