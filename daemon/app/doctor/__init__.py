"""`doctor`: checks an installation, and says how to mend what is wrong; it mends nothing itself,
but for damaged indexes with `--deep` (database_file.py).

survey.py finds out what there is, checks.py judges it, command.py shows the result.
"""
