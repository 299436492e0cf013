"""How a program of a tool runs: confined as far as this machine can, within limits, and with
nothing of it left behind.

running.py starts a line of programs and collects what they put out, supervisor.py is the process
that runs the line and leaves nothing behind, output.py keeps the two ends of a long output.
sandbox.py says what a program is started in, confine.py takes the rights away, detection.py finds
out by attempts to escape (escape_tests.py) what really holds, current.py keeps the answer, user.py
says who programs run as when we are root.

Not here: what may run (policy/), and what a model reads of it (tools/).
"""
