"""Calls that a person has to allow: what exactly is asked, where the answers lie, what is remembered of them.

request.py says what a call would do, byte for byte; desk.py rules on the calls of one run; remembered.py keeps the
answers that hold for good in approvals.toml; approvals.py is what people answer at, and lets questions expire.
Not here: whether a person has to be asked at all (policy/), how a run waits (run, store/).
"""

from daemon.approvals.approvals import Approvals
from daemon.approvals.remembered import Remembered
from daemon.approvals.request import CallDescriber

# desk.py is imported by whoever lives runs: the daemon starts without it
__all__ = ["Approvals", "CallDescriber", "Remembered"]
