"""The journal: one SQLite database in the state folder, written by one thread, or a PostgreSQL
server's.

database.py over connection.py, or postgres/ where `[store] url` says so (opening.py), holds the
connections and the one writer. journal.py holds the repositories of the journal, each in a file of
its own: runs.py, slots.py, routines.py, workers.py, approvals.py, outbox.py, incidents.py,
spending.py, audit.py, history.py, seen_items.py, chat_messages.py and key_values.py. Their
statements run on either database over the Connection of connection.py; queries/ has the SQLModel
selects for what people ask; records.py has the values that both return. rows.py, run_rows.py and
approval_rows.py read and write rows in the transaction of a caller, texts.py those of the texts
that prompts share.

tables.py and memory_tables.py define the tables, and schema.py writes the files of a new database
from them; sql/ has the migrations of an old one. maintenance.py checks the database (integrity.py)
and deletes what is old (retention.py) every day; clock_corrections.py moves waits after the clock
was set. read_only.py and offline.py open the database without a daemon. lock.py holds the lock on
the state folder.

Not here: when a slot is due, what a run does, how a report is sent, what memory keeps.
"""
