"""The same database on a PostgreSQL server, so that several daemons and workers share it.

In this room: the connection kind that runs the journal's statements there (connection.py), what
they say differently (dialect.py), the one writer and its commits (database.py), the tables
(migrations.py, sql/ where they differ). Not in this room: any statement of the journal. Each stands
once, in the file of what it is about. Nothing is imported from here unless `[store] url` says so:
psycopg and SQLAlchemy cost 30 MiB.
"""
