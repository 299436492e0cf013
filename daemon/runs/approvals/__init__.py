"""Calls that a person has to allow: what exactly is asked, where the answers lie, what is
remembered of them.

request.py says what a call would do, byte for byte; approver.py decides about the calls of one run;
remembered.py keeps the answers that hold for good in approvals.toml; approvals.py is where people
answer, and lets questions expire.

Not here: whether a person has to be asked at all (policy/), how a run waits (runs/run.py, store/).
"""
