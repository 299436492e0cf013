"""The process under measurement: `python -m tests.bench.worker module:factory '{…}'`, then a number
per line on stdin.

The factory is an async context manager that yields `async round(count)`; what that returns is added
to the sample.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time


async def main(target: str, arguments: str) -> None:
    module, _, name = target.partition(":")
    factory = getattr(importlib.import_module(module), name)
    samples = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the code under measurement prints is no sample

    def say(sample: dict[str, object]) -> None:
        samples.write(json.dumps(sample) + "\n")
        samples.flush()

    async with factory(**json.loads(arguments)) as do_round:
        say({})
        for line in sys.stdin:
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            answer = await do_round(int(line))
            sample = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            say(sample | (answer or {}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
