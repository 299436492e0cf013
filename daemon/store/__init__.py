"""The journal: one SQLite database in the state folder, written by one thread, or a PostgreSQL
server's.

database.py over connection.py, or postgres/ where `[store] url` says so (opening.py), holds the
connections and the one writer. journal.py is the journal, with a file for each subject: slots,
runs, steps, deliveries, incidents. run_store.py says what a run needs of it, sql/ and tables.py
hold the tables, lock.py the lock on the state folder.

Not here: when a slot is due, what a run does, how a report is sent, what memory keeps.
"""
