"""From a goal to a reply: the prompt, the loop, and the transcript that both a live and a resumed
run read from.

agent.py has the agent, loop.py its loop; prompt.py renders the system prompt, transcript.py the
messages that a model is sent; tool_calls.py runs the calls that it asks for. conversations/ has
the turns of a person's talk.

Not here: how a vendor is spoken to (providers/), what a call may do (policy/), how a tool works
(tools/), and when a run starts or ends (runs/).
"""
