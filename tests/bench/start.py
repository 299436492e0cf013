"""How long until something answers: the daemon its socket, and a model's first byte by three
ways.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import floors, installation
from tests.bench.measure import Bench, Effort, Row, median, ms, ratio
from tests.bench.vendor import Vendor


def _to_first_byte(vendor: Vendor, start: Callable[[], float]) -> float:
    """Start something; return how long it took until its first request began to arrive."""
    vendor.forget()
    begin = start()
    return vendor.first_byte - begin


def _httpx(vendor: Vendor) -> float:
    return _to_first_byte(vendor, lambda: floors.python(floors.HTTPX_FIRST_BYTE, vendor.chat_url))


def _sdk(vendor: Vendor) -> float:
    return _to_first_byte(vendor, lambda: floors.python(floors.SDK_FIRST_BYTE, f"{vendor.url}/v1"))


def _anthropic(vendor: Vendor) -> float:
    return _to_first_byte(vendor, lambda: floors.python(floors.ANTHROPIC_FIRST_BYTE, vendor.url))


_FLOORS = {"openai": _sdk, "responses": _sdk, "claude": _anthropic, "minimax": _anthropic}


@contextmanager
def _house(kind: str = "open_source") -> Iterator[tuple[Vendor, Path]]:
    """A vendor and a config; the state has seen a first start, as all but the first find it."""
    with tempfile.TemporaryDirectory() as folder, Vendor() as vendor:
        config = installation.build(Path(folder) / "h", vendor.url, kind=kind)
        with installation.Daemon(config):
            pass
        yield vendor, config


def _compare(
    effort: Effort,
    name: str,
    bar: float | None,
    floor: Callable[[], float],
    ours: Callable[[], float],
) -> Row:
    if effort.warmed:
        floor(), ours()  # the first of each reads the disk
    times = [(floor(), ours()) for _ in range(effort.rounds)]
    floor_times, own_times = [pair[0] for pair in times], [pair[1] for pair in times]
    return Row(
        name=name,
        floor=ms(median(floor_times)),
        ours=ms(median(own_times)),
        ratio=ratio(own_times, floor_times),
        bar=bar,
    )


def _start(effort: Effort, kind: str = "open_source") -> Iterable[Row]:
    with _house(kind) as (vendor, config):

        def answers() -> float:
            with installation.Daemon(config) as daemon:
                daemon.ask("/v1/status")
                return time.monotonic() - daemon.begun

        yield _compare(
            effort, f"start to socket{_by(kind)} / httpx", 3, lambda: _httpx(vendor), answers
        )


def _once(
    effort: Effort, name: str, bar: float | None, kind: str, floor: Callable[[Vendor], float]
) -> Iterable[Row]:
    with _house(kind) as (vendor, config):

        def once() -> float:
            begin = time.monotonic()
            subprocess.run(
                [*installation.agentd(config), "once", "bench-0"],
                env=installation.environment(config),
                check=True,
                capture_output=True,
            )
            return begin

        yield _compare(
            effort, name, bar, lambda: floor(vendor), lambda: _to_first_byte(vendor, once)
        )


def _run(effort: Effort, kind: str = "open_source") -> Iterable[Row]:
    with _house(kind) as (vendor, config), installation.Daemon(config) as daemon:
        command = installation.agentctl("run", "bench-0")
        daemon.command(command)  # warm
        times = [
            _to_first_byte(vendor, lambda: daemon.command(command)) for _ in range(effort.rounds)
        ]
        took = median(times)
        yield Row(
            name=f"agentctl run to first byte{_by(kind)}",
            ours=ms(took),
            value=took * 1000,
            note="ms",
        )


ROWS: dict[str, Bench] = {
    "start-socket": _start,
    "start-once": lambda effort: _once(effort, "agentd once / httpx", 8, "open_source", _httpx),
    "start-once-sdk": lambda effort: _once(
        effort, "agentd once, SDK / python + SDK", None, "openai", _sdk
    ),
    "start-run": _run,
}


def _by(kind: str) -> str:
    return "" if kind == "open_source" else f", {kind}"


def _of(kind: str, floor: Callable[[Vendor], float]) -> dict[str, Bench]:
    return {
        f"start-socket:{kind}": lambda effort: _start(effort, kind),
        f"start-once:{kind}": lambda effort: _once(
            effort, f"agentd once, {kind} / python + SDK", None, kind, floor
        ),
        f"start-run:{kind}": lambda effort: _run(effort, kind),
    }


for _kind, _floor in _FLOORS.items():
    ROWS |= _of(_kind, _floor)
