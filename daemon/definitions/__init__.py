"""The files that users write, as values: config.toml, routines, skills, schedules; and where these
files lie.

Every fault of a file is reported at once, each with its place and its way out. pydantic judges
shape and types in one pass; what no single field can know stands in a table of `Rule`s, each with
the keys it reads (reading.py). When the first pass finds faults, the broken entries are taken out
and the rest is validated once more, so that rules which read none of the broken entries are judged
as well.

Not here: policy.toml (policy/), and what becomes of a routine (scheduler/, runs/).
"""
