"""`doctor`: checks an installation, and says how to mend what is wrong; it mends nothing itself.

survey.py finds out what there is, checks.py judges it, command.py shows the result.
"""
