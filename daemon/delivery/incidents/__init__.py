"""Incidents that are noticed beside the runs: a model that does not answer, a database that takes
nothing.
"""
