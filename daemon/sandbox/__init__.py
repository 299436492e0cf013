"""How a program of a tool runs: confined as far as this machine can, within limits, and with nothing of it left behind.

running.py starts a line of programs and collects what they put out, supervisor.py is the process that runs the line and
leaves nothing behind, output.py keeps the two ends of a long output. sandbox.py says what a program is started in,
confine.py takes the rights away, trial.py finds out by an intruder what really holds, ladder.py keeps the answer,
tenant.py says who programs run as when we are root.
Not here: what may run (policy/), and what a model reads of it (tools/).
"""

from daemon.sandbox.bounds import Bounds, Level, Limits, Mode
from daemon.sandbox.ladder import Confining, Ladder, unconfined
from daemon.sandbox.running import Ended, Running, run
from daemon.sandbox.sandbox import Probe, Sandbox, UnusableSandbox, User
from daemon.sandbox.tenant import in_the_way, settle, tenant

__all__ = [
    "Bounds",
    "Confining",
    "Ended",
    "Ladder",
    "Level",
    "Limits",
    "Mode",
    "Probe",
    "Running",
    "Sandbox",
    "UnusableSandbox",
    "User",
    "in_the_way",
    "run",
    "settle",
    "tenant",
    "unconfined",
]
