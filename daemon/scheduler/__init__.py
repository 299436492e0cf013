"""When runs start: the engine wakes up, slots are claimed in the ledger once each, and the run
queue takes them.

Not here: what a run does (runs/), what a cron line means (definitions/).
"""
