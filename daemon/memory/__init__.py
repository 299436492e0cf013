"""What earlier runs left behind, found again: items by key, runs in segments with anchors, one
full-text index.

memory.py is what the other packages use. Not here: what of a run may be remembered at all, which
its routine says.
"""
