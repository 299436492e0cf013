"""Folders watched for files: which files fit, what is there now, and when it has come to rest.

In this room: globs (patterns.py), one look at a folder (looking.py), and the watcher that rings when files have been
left alone (watcher.py). Not in this room: which of them were handled before, and what is run for them.
"""

from daemon.watching.looking import Look, look
from daemon.watching.patterns import PatternError, Patterns, parse
from daemon.watching.watcher import Measures, Watch, Watcher

__all__ = ["Look", "Measures", "PatternError", "Patterns", "Watch", "Watcher", "look", "parse"]
