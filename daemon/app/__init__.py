"""The program agentd: its command line, its wiring, its life from the start to the last run
suspended.

entry.py is where it begins, main.py the command line, wiring.py builds the daemon from its parts,
lifecycle.py serves until a signal, reload.py takes changed files into force. commands/ has what
agentd does without a daemon, doctor/ the check of an installation, setup/ the first config.
"""
