"""The same database on a PostgreSQL server, so that several daemons and workers share it.

`connection.py` runs the journal's statements by psycopg, `database.py` has the one writer and its
commits, `migrations.py` brings the tables up to date by the files in sql/. No statement of the
journal is here: each stands once, in the file of what it is about. Nothing is imported from here
unless `[store] url` says so: psycopg costs 8 MiB.
"""
