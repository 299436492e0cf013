"""Run all parts, or some, for so many minutes, and print a table of what was broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.parts import PARTS
from tests.chaos.storm import Broken, table


async def run_parts(
    names: Sequence[str], folder: Path, seconds: float
) -> list[tuple[str, float, Broken]]:
    """Run parts one after the other, each for so many seconds; return how long each took."""
    results = []
    for name in names:
        began = time.monotonic()
        breaches = await PARTS[name](folder / name, seconds)
        results.append((name, time.monotonic() - began, breaches))
        print(f"{name}: {'BROKEN' if breaches.is_broken else 'ok'}", *breaches.examples, sep="\n  ")
        sys.stdout.flush()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all parts together")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="one part; repeatable")
    options = parser.parse_args()
    names = options.only or list(PARTS)
    with tempfile.TemporaryDirectory(prefix="agentd-chaos-") as folder:
        results = asyncio.run(run_parts(names, Path(folder), options.minutes * 60 / len(names)))
    print(table(results))
    return int(any(breaches.is_broken for _, _, breaches in results))


if __name__ == "__main__":
    sys.exit(main())
