"""How a program of a tool runs: confined as far as this machine can, within limits, and with nothing of it left behind.

running.py starts a line of programs and collects what they put out, supervisor.py is the process that runs the line and
leaves nothing behind, output.py keeps the two ends of a long output.
Not here: what may run (policy/), and what a model reads of it (tools/).
"""

from daemon.sandbox.running import Ended, Running, run

__all__ = ["Ended", "Running", "run"]
