"""The tools that ship with agentd, each in its file with a `register` that app/wiring.py calls."""
