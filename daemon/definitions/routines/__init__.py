"""Routines: what to do, when, and where the report goes; one TOML file each.

routine.py has their keys as models, checks.py the cross-field checks, folder.py reads a folder of
them and compares it with the one before, chains.py checks which routine follows which (`after`),
source.py replaces the text of a file.
Not here: when a routine is due (definitions/schedule.py), and what became of its runs (store/).
"""
