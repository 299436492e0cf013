"""What operators see of the process: logs, secrets taken out of them, journald's fields, metrics,
spans.

Not here: what is measured or traced. Whoever does the work says so.
"""
