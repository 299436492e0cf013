"""People who speak to the agent: `ask` and `tell`, conversations that go on, and which run a
message belongs to.

Not here: what a run does with a message (agent/), how an answer reaches a terminal (api/, cli/).
"""
