"""For the person who writes the policy: is it sound, what does it say and why, what would another one have said?

recorded.py finds the calls of earlier runs in the journal, compare.py judges them by two policies, suggest.py writes
the narrowest section they would have fitted into, notes.py says what is sound and still worth a second look, command.py
is the command line. Nothing here changes a file or runs a call.
"""

from daemon.drafting.desk import Desk

__all__ = ["Desk"]
