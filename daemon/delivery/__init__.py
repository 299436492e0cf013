"""Deliver reports to their targets: how a report is worded, through which channel, and when it is
tried again.

outbox.py sends what is due; targets.py makes the channel of each target; channels/ has one file
for each kind of channel; incidents/ reports faults of the daemon's own surroundings. Not here: the
rows of the outbox, which the journal commits together with the end of a run (store/outbox.py).
"""
