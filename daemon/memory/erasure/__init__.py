"""Erasure: plan what is deleted, then delete it from memory, the journal, the index and the
database file.
"""
