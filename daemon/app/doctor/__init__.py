"""Is this installation sound? survey.py looks, checks.py judges what it saw, command.py shows it.

Nothing is mended.
"""
