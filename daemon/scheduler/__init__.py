"""When runs start: the engine wakes up, slots are claimed once each, and the run queue takes the
runs.

engine.py wakes up when a routine is due; slot_ledger.py claims the slot, by a row that only one
process can write (store/slots.py). slots.py decides which slots start, skip_reasons.py why one does
not, explain.py says so to a person. triggers.py has what starts runs besides the clock, pacing.py
the routines whose runs say when to come again, backoff.py the pauses after failures, run_queue.py
how many runs are executed at once, agent_routines.py the routines that agents made, forecast.py
what coming runs will use. routine_times.py makes the schedule of a routine, routine_checks.py
checks routines against the config and the tools. cluster/ is for several processes on one database.

Not here: what a run does (runs/), what a cron line means (definitions/).
"""
