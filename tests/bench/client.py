"""What a person waits for: `agentctl list`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.bench import house
from tests.bench.measure import Bench, Effort, Row, median, ms, ratio


def _took(argv: Sequence[str], config: Path) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, env=house.environment(config), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def _list(effort: Effort) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        config = house.build(Path(folder) / "h", "http://127.0.0.1:9", width=5)
        nothing, command = [sys.executable, "-c", "pass"], house.agentctl("list")
        with house.Daemon(config):
            _took(nothing, config), _took(command, config)
            times = [(_took(nothing, config), _took(command, config)) for _ in range(effort.rounds * 4)]
    theirs, mine = [pair[0] for pair in times], [pair[1] for pair in times]
    note = "" if Path(command[0]).name == "agentctl" else "without the installed script"
    yield Row(
        name="agentctl list / python -c pass",
        floor=ms(median(theirs)),
        ours=ms(median(mine)),
        ratio=ratio(mine, theirs),
        bar=2.8,
        note=note,
    )


ROWS: dict[str, Bench] = {"list": _list}
