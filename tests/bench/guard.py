"""What it costs to judge a call and to look at what it brought, against the least Python could do
with the text.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from tests.bench.floors import Round
from tests.bench.measure import ROOT, Bench, Effort, Row, Worker, in_turns, median, ratio

PAGE = 6_000  # characters


def _lines() -> list[str]:
    from tests.policy.lines import ALLOWED

    return list(ALLOWED)


def _pages() -> list[str]:
    """Return pages of documents and code, as tools bring them."""
    files = (
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "daemon").glob("*.py")),
    )
    text = "\n".join(file.read_text() for file in files)
    return [text[at : at + PAGE] for at in range(0, len(text) - PAGE, PAGE)]


def _again(things: list[str], count: int) -> Iterable[str]:
    return islice((text for _ in range(count // len(things) + 1) for text in things), count)


@asynccontextmanager
async def judge_lines() -> AsyncIterator[Round]:
    """Judge command lines by the policy that ships."""
    from daemon.policy.policy import Policy
    from tests.policy.fixture import build

    lines = _lines()
    with tempfile.TemporaryDirectory() as folder:
        policy = Policy.load(ROOT / "policy.toml", workspace=build(Path(folder)))

        async def round_(count: int) -> None:
            for line in _again(lines, count):
                policy.judge("shell", {"command": line}, routine="daily-report")

        yield round_


@asynccontextmanager
async def split_lines() -> AsyncIterator[Round]:
    """Cut command lines into words, as the standard library does."""
    import shlex

    lines = _lines()

    async def round_(count: int) -> None:
        for line in _again(lines, count):
            shlex.split(line)

    yield round_


@asynccontextmanager
async def check_pages() -> AsyncIterator[Round]:
    """Look for orders to the model in pages."""
    from daemon.injection.check import check_tool_result

    pages = _pages()

    async def round_(count: int) -> None:
        for page in _again(pages, count):
            check_tool_result("http_request", page)

    yield round_


@asynccontextmanager
async def words() -> AsyncIterator[Round]:
    """Find the words of pages."""
    import re

    pages, word = _pages(), re.compile(r"\w+")

    async def round_(count: int) -> None:
        for page in _again(pages, count):
            word.findall(page)

    yield round_


def _row(
    effort: Effort, name: str, count: int, floor: str, ours: str, *, unit: str
) -> Iterable[Row]:
    count = effort.scaled(count)
    with (
        Worker(f"tests.bench.guard:{floor}") as floor_worker,
        Worker(f"tests.bench.guard:{ours}") as worker,
    ):
        floor_samples, own_samples = in_turns(effort, count, floor_worker, worker)
    factor = 1e6 if unit == "us" else 1e3
    seconds = median(sample.cpu for sample in own_samples) / count * factor
    times = ratio([sample.cpu for sample in own_samples], [sample.cpu for sample in floor_samples])
    yield Row(
        name=name,
        floor=f"{median(sample.cpu for sample in floor_samples) / count * factor:.2f} {unit}",
        ours=f"{seconds:.2f} {unit}",
        note=f"{times:.1f} times the floor",
    )


ROWS: dict[str, Bench] = {
    "verdict": lambda effort: _row(
        effort, "verdict on a line / shlex.split", 3000, "split_lines", "judge_lines", unit="us"
    ),
    "injection": lambda effort: _row(
        effort, "injection check, 6 kB / \\w+", 200, "words", "check_pages", unit="ms"
    ),
}
