"""The life of a run, from its claim to its end: run.py, and what a run finds around itself:
context.py.

Facts gathered before the first model call, gates, events, approvals, sub-agents, rehearsals,
replays. Not here: when a run starts (scheduler/), what the agent does in it (agent/).
"""
