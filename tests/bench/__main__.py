"""`python -m tests.bench [--quick] [--list] [ROW…]`: measure and print one table.

`python -m tests.bench year` is a table of its own, see year.py.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Iterable

from tests.bench import (
    append,
    client,
    cluster,
    cpu,
    crowd,
    fire,
    guard,
    idle,
    journal,
    page,
    recall,
    sandbox,
    start,
    thousands,
    year,
)
from tests.bench.measure import FULL, QUICK, Bench, Effort, Row, table

ROWS: dict[str, Bench] = {
    **cpu.ROWS,
    **crowd.ROWS,
    **start.ROWS,
    **client.ROWS,
    **idle.ROWS,
    **thousands.ROWS,
    **fire.ROWS,
    **journal.ROWS,
    **append.ROWS,
    **recall.ROWS,
    **sandbox.ROWS,
    **guard.ROWS,
    **page.ROWS,
    **cluster.ROWS,
}


def main() -> int:
    if sys.argv[1:2] == ["year"]:
        return year.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Costs, as ratios to measured floors."
    )
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="rows whose name begins so; all if none is named"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller rounds: a rough idea"
    )
    parser.add_argument("--list", action="store_true", help="say which rows there are")
    options = parser.parse_args()
    names = [name for name in ROWS if not options.rows or name.startswith(tuple(options.rows))]
    if options.list or not names:
        sys.stdout.write("\n".join(ROWS) + "\n")
        return 0 if options.list else 2
    load, cores = os.getloadavg()[0], os.cpu_count()
    sys.stdout.write(
        (  # noqa: UP034
            f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {cores} "  # noqa: E501
            "cores, "
        )
    )
    sys.stdout.write(f"load {load:.1f}\n\n")
    for line in table(_measure(names, QUICK if options.quick else FULL)):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return 0


def _measure(names: Iterable[str], effort: Effort) -> Iterable[Row]:
    """Yield the rows; one that cannot be measured says so and does not keep the others from it."""
    for name in names:
        try:
            yield from ROWS[name](effort)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            yield Row(name=name, ours="not measured", note=str(error).strip().splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
