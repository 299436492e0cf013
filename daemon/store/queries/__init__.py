"""What people ask for, as SQLModel selects: lists of runs, deliveries, incidents, approvals and
audit rows, usage, the export.

In this package: functions of a session, which return values of models.py and of the repositories,
and session.py, which runs them in one snapshot. Not in this package: anything that a start or a run
needs. Its modules are imported by the first query, in the thread of a reader: SQLModel costs
20 MiB.
"""
