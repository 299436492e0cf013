"""Routines: what to do, when, and where the report goes; one TOML file each.

Routines as values, the rules they keep, and the difference between two folders of them. Not here:
when the next one is due (definitions/schedule.py), what became of one (store/), and any change to a
file: they are the user's.
"""
