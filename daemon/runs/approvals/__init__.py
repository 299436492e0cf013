"""Calls that a person has to allow.

request.py says what a call would do, byte for byte; approver.py decides about the calls of one run;
remembered.py keeps the calls that were allowed for good in approvals.toml; approvals.py records the
answers of people and expires requests.

Not here: whether a person has to be asked at all (policy/), how a run waits (runs/run.py, store/).
"""
