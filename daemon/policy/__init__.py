"""May this call run? One file says so: deny > ask > allow, and what it does not name is denied.

lexer.py reads a command line, options.py, programs.py, grammars.py and git.py know which words only read, by the
tables in tables/*.toml, reach.py where tools may look, requests.py puts that together, judge.py asks the rules,
policy.py is the file in force. Nothing here runs a command or opens a file for a model: that is tools/. What a run may
cost is not decided here.
"""

from daemon.policy.lexer import Unreadable
from daemon.policy.policy import Policy
from daemon.policy.reach import Place, Reach
from daemon.policy.requests import Planned, PlannedCommand

__all__ = ["Place", "Planned", "PlannedCommand", "Policy", "Reach", "Unreadable"]
