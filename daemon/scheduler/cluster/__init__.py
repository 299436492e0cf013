"""Several processes on one PostgreSQL database: how runs reach the process that executes them, and
how runs of a process that died are taken over.

The state of runs is in the journal alone; procrastinate distributes run ids and nothing else. A
trigger of the database (queue.sql) queues the id in the transaction that queues the run, and NOTIFY
wakes a worker at once. An id that comes twice, late or not at all does no harm: the journal gives a
run to one owner under a fence, and each heartbeat queues ids that were lost (heartbeat.py). What
other processes have to learn at once, such as that a run is to be stopped, comes by NOTIFY as well
(listener.py).

Leases are in store/workers.py, fences in store/runs.py.
"""
