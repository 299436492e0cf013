"""The program agentd: its command line, its wiring, its life from the start to the last run
suspended.
"""
