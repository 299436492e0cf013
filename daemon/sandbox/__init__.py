"""Run the programs of tools: confined as well as this machine can, within limits, and without
processes left behind.

running.py starts a command line and collects its output, supervisor.py is the process that runs the
line and kills all that is left of it, output.py keeps both ends of a long output. sandbox.py
describes how a program is confined, confine.py takes rights away, detection.py finds out by
attempts to escape (escape_tests.py) which sandbox works here, current.py remembers the result,
user.py chooses the user that programs run as if the daemon is root.

Not here: what may run (policy/), and what a model reads of it (tools/).
"""
