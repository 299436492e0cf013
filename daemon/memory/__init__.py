"""Memory: items by key, archived runs as segments with anchors, and one full-text index over both.

Other packages use memory.py. Not here: which runs may be archived; their routines decide that.
"""
