"""Incidents that no run reports: a model that does not answer, a database that accepts no
writes.
"""
