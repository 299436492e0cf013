"""The functions that ship with us, each in its file with a `register` that main.py calls.

Not here: the registry and how a call is run (functions/), whether a call is allowed (policy/), the user's own tools.
"""
