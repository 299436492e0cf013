"""The page of a daemon with ten thousand runs: how long its server takes for each view."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.bench import installation
from tests.bench.history import fill, now
from tests.bench.measure import Bench, Effort, Row, median, ms

_RUNS = 10_000
_BAR = 0.2  # seconds; what a person takes for at once
_VIEWS = (
    "/", "/routines", "/routines/bench-0", "/runs", "/runs?status=failed", "/runs/{run}", (
        "/approvals"
    ), (
        "/deliveries"
    ),
    "/deliveries?status=failed", "/usage", "/memory", "/memory?q=certificate+backup", "/live",
)  # fmt: skip


def _views(effort: Effort) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        config = installation.build(Path(folder) / "h", "http://127.0.0.1:9", width=8)
        routines = [f"bench-{number}" for number in range(8)]
        count = effort.scaled(_RUNS)
        state = config.parent / "state"
        run = asyncio.run(fill(state / "agentd.db", count, end=now(), routines=routines))
        command = installation.agentctl("--json", "--socket", str(state / "agentd.sock"), "ui")
        with (
            installation.Daemon(config),
            subprocess.Popen(
                command, env=installation.environment(config), stdout=subprocess.PIPE, text=True
            ) as server,
        ):
            assert server.stdout
            browser = _Browser(json.loads(server.stdout.readline())["url"])
            times = {
                view: browser.times(view.format(run=run), effort.rounds + 1) for view in _VIEWS
            }
            browser.close()
            server.send_signal(signal.SIGINT)
    slowest = max(times, key=lambda view: median(times[view]))
    for view, durations in times.items():
        if view == slowest:
            worst = median(durations)
            note = (
                f"of {len(_VIEWS)} views, with {count:,} runs; the first time {ms(max(durations))}"
            )
            yield Row(
                name=f"page, slowest view: {view}",
                ours=ms(worst),
                bar=_BAR * 1000,
                value=worst * 1000,
                note=note,
            )
        elif effort.rounds > 1:
            yield Row(name=f"  {view}", ours=ms(median(durations)))


class _Browser:
    """What a browser says to the page, without the browser."""

    def __init__(self, link: str) -> None:
        base, _, token = link.partition("/#")
        self._connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=60)
        self._connection.request("POST", "/enter", token, {"Origin": base})
        answer = self._connection.getresponse()
        answer.read()
        self._cookie = answer.getheader("Set-Cookie", "").partition(";")[0]

    def times(self, path: str, count: int) -> list[float]:
        """Return how long each answer took, from the question to its last byte."""
        return [self._time(path) for _ in range(count)]

    def close(self) -> None:
        self._connection.close()

    def _time(self, path: str) -> float:
        begin = time.perf_counter()
        self._connection.request("GET", path, headers={"Cookie": self._cookie})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            msg = f"{path}: {answer.status} {text[-500:].decode()}"
            raise RuntimeError(msg)
        return time.perf_counter() - begin


ROWS: dict[str, Bench] = {"page": _views}
