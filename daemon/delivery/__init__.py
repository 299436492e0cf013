"""Reports on their way to their targets: which ends are delivered where, in what words, and until
when it is tried.

outbox.py sends, targets.py knows the targets, channels/ has one file for each kind of target,
incidents/ tells people what is wrong. Not here: the outbox's rows, which the journal commits
together with the end of a run.
"""
