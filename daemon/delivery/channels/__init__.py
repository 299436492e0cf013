"""Channels: one file for each way to reach a target, which also knows what failures are worth a
retry there. base.py has what they share.
"""
