"""Several processes on one database: who hands runs on, who executes them, and what becomes of
those of the dead.

The journal is the only truth; procrastinate distributes run ids and nothing else. Whatever queues a
run defers its id in the same transaction (a trigger in the database: queue.py), and NOTIFY wakes a
worker at once. An id that comes twice, late or not at all does no harm: the journal gives a run to
one owner under a fence, and each process looks at every heartbeat for what was lost (heartbeat.py).
What other processes should hear of at once, such as that a run is to be stopped, comes by NOTIFY as
well (listener.py).

Not here: leases and fences (store/leases.py, store/runs.py), what a run does.
"""
