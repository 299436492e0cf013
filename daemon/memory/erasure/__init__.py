"""Erasure: plan what is deleted, then delete it from memory, the journal, the index and the
database file.

erasure.py plans and erases; memory_rows.py does so in the tables of memory, journal_rows.py in
those of runs.
"""
