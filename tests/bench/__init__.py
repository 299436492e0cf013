"""Benchmarks: what the daemon costs, as ratios to floors that are measured in the same run.

    python -m tests.bench                 every row, some minutes
    python -m tests.bench --quick cpu     the rows whose name begins with "cpu", roughly
    python -m tests.bench --list          which rows there are
    python -m tests.bench year            what grows in a year, a table of its own (year.py)

Floor and candidate take turns, round by round, each in a process of its own and with the vendor in
a third one; a row is the median of the ratios of the rounds. CPU ratios repeat within 15 %, wall
times on a busy machine do not. Not here: assertions. A bar that is missed is marked in the table
and fails nothing.
"""
