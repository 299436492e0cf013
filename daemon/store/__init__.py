"""The record: one SQLite database on the state folder, written by one thread.

In this room: the database and its writer (database.py), the journal of slots, runs, steps and deliveries
(journal.py over slots.py, runs.py, outbox.py), the tables (sql/, tables.py) and the lock on the state folder (lock.py).
Not in this room: what a run does, when a slot is due, how a report is sent, what memory holds.
"""
