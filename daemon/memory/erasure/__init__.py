"""Forget for good: first a plan that is shown, then gone from memory, the journal, the index and
the mirror.
"""
