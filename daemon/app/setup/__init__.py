"""`agentd setup`: a model, a target of reports and a first routine, by questions or by flags.

Not here: what a first start says (`first_start.py`), and the test of a target
(`commands/target.py`).
"""
