"""The life of a run, from its claim to its end.

run.py tells that life, execute.py the work in it; context.py is what one run is given of the
daemon; recorder.py writes its steps. gather.py collects facts before the first model call and
checks the gates, events.py publishes what happens. approvals/ has the calls that a person has to
allow, subagents.py the runs that a run starts, rehearsal/ the runs that only try a routine, replay/
the recorded runs that are executed again.

Not here: when a run starts (scheduler/), what the agent does in it (agent/).
"""
