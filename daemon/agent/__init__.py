"""From a goal to a reply: the prompt, the loop, and the transcript that both a live and a resumed
run read from.

Not here: how a vendor is spoken to (providers/), what a call may do (policy/), how a tool works
(tools/), and when a run starts or ends (runs/).
"""
