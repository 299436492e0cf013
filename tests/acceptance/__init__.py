"""Tests that drive agentd from outside: real processes, sockets, files and signals.

The modules they test may move: these tests change by scripted renames only.
"""
