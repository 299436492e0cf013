"""Runs that die: the scenario that outlives a process, the process, and what is there at each
moment of its life.

Everything between the routine and its effects is the real thing: the journal on an SQLite file,
memory, policy, host, executor, approvals, sub-agents, outbox. Only what the outside sees is noted
down in the `CrashScenario`: what was asked, which tools started, what was sent.
"""
