"""The golden set: what users see of agentd, written down, so that everything behind it can be moved
and renamed.

`scenarios.py` tells what a user lives through, with the real `agentd` and `agentctl` as processes
and the real control socket; nothing of the product is imported. What each surface showed when the
set was made stands in `recorded/SCENARIO/`:

    cli.txt       each command line with its output (`2>` is stderr) and exit code
    api.txt       each request to the control API with status, content type and JSON (keys sorted)
    log.txt       the events of the log, fields sorted, those of the same moment sorted
    files.txt     the files in home and state: modes, names, text of reports
    metrics.txt   what a monitoring system is told
    and others: openapi.txt, journal.txt (tables), vendor.txt (what models were asked),
    webhooks.txt, case.txt

The clock stands still but where a scenario sets it (libfaketime), so times are compared as they
are; `normalise.py` is the one list of what cannot be pinned.

**Recorded files are never edited**; `digests.txt` notices. When the test fails, its difference says
what is seen now:

- It is not meant: mend the product.
- Something has another name: an entry in `renames.toml`.
- Something behaves differently, and an issue says so: an entry in `changes.toml` with the number of
  the issue.

A review of a move or a rename reads these two tables; both name their issue, and an entry that
applies nowhere fails.

A new scenario or surface: write it in `scenarios.py`, then `python -m tests.golden.record SCENARIO`
at a commit that still behaves as is to be held. It leaves files alone that exist.

The commands are started as `pyproject.toml` names them. `driver.py` names the three log events that
it waits for.
"""
