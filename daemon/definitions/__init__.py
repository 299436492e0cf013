"""The files that users write, as values: config.toml, routines, skills, schedules; and the paths of
these files.

All faults of a file are reported at once, each with its key and a hint. pydantic checks structure
and types in one pass; what depends on several fields is checked by `CrossFieldCheck`s, each with
the keys it reads (reading.py). When the first pass finds faults, the broken entries are taken out
and the remaining ones are validated once more, so that checks which read none of the broken entries
report their faults as well.

Not here: policy.toml (policy/), and what becomes of a routine (scheduler/, runs/).
"""
