"""`agentd setup`: a model, a target of reports and a first routine, by questions or by flags.

Not here: what a first start says (`first_start.py`), and the test of a target
(`commands/target.py`).
"""

# Set for a setup that the first start of a daemon has begun.
FIRST_START_VARIABLE = "AGENTD_FIRST_START"
