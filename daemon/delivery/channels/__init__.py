"""One file for each kind of target: how a report gets there, and which failures are worth another
attempt.
"""
