"""The record: one SQLite database in the state folder, written by one thread, or a PostgreSQL server's.

In this room: the database and its writer (database.py over connection.py and library.py; postgres/ where `[store] url`
says so: opening.py); the journal (journal.py) of slots, runs, steps, deliveries and incidents (slots.py, accounts.py,
runs.py over rows.py and texts.py, outbox.py, incidents.py) and what a run needs of it (runstore.py);
the tables (sql/, tables.py); the lock on the state folder (lock.py).
Not in this room: when a slot is due, what a run does, how a report is sent, what memory keeps.
"""

from daemon.store.database import Database
from daemon.store.incidents import Alerting
from daemon.store.journal import Claim, Journal, RoutineState, SlotRow, Streak, Told
from daemon.store.leases import Worker
from daemon.store.lock import StateLock, lock_state
from daemon.store.opening import open_database

__all__ = [
    "Alerting",
    "Claim",
    "Database",
    "Journal",
    "RoutineState",
    "SlotRow",
    "StateLock",
    "Streak",
    "Told",
    "Worker",
    "lock_state",
    "open_database",
]
