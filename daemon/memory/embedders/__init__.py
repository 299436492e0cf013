"""What a text means, as numbers: one port, and a file per way to get them.

None is needed; without one words decide.
"""
