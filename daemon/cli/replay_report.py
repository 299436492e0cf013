"""What came of playing a run again, for people; and a frozen run written into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.cli.call import DONE, NOT_SUCCEEDED, REFUSED
from daemon.cli.render import BOLD, DIM, GREEN, RED, YELLOW, OutputStream, counted, words

_WISHES = {
    "model": "with another model",
    "prompt": "with another prompt",
    "policy": "by another policy",
}
SHOWN = 40  # lines of a diff


def exit_code(told: Mapping[str, Any]) -> int:
    """Return how a replay ends: 0 identical, 1 changed."""
    return DONE if told["identical"] else NOT_SUCCEEDED


def write(page: OutputStream, told: Mapping[str, Any]) -> int:
    """Write how the two runs compare, and return the exit code."""
    wish = f", {_WISHES[told['changed']]}" if told["changed"] else ""
    verdict = page.paint("identical", GREEN) if told["identical"] else page.paint("changed", RED)
    subject = f"{page.paint(page.safe(told['routine']), BOLD)} run {told['run']}"
    page.say(f"{verdict}: {subject}{wish}, {counted(told['steps'], 'step')}; {_cost(told)}")
    if told["outside"]:
        page.say(f"  as far as it went: {page.safe(told['outside'])}")
    for each in told["missing"]:
        page.say(page.paint(f"  not kept: {page.safe(each)}", YELLOW))
    for each in told["differences"]:
        place = f"step {each['seq']}, {each['at']}" if each["seq"] is not None else each["at"]
        page.title(f"{page.safe(place)}: {page.safe(each['what'])}")
        _diff(page, each["diff"])
    _list(page, "Refused here, as the recorded run never made these calls", told["never_made"])
    _list(
        page,
        "Here a person would be asked; it went on as if the answer were yes",
        told["would_ask"],
    )
    if told["changed"] and not told["identical"]:
        before, after = told["recorded"], told["played"]
        page.say()
        page.say(f"recorded: {_end(page, before)}")
        page.say(f"replayed: {_end(page, after)}")
    return exit_code(told)


def _cost(told: Mapping[str, Any]) -> str:
    tokens = told["asked"]["input"] + told["asked"]["output"]
    if not tokens:
        return "no model was asked, nothing was spent"
    price = "at a price nobody knows" if told["usd"] is None else f"${told['usd']:.4f}"
    return f"{tokens:,} tokens were asked for, {price}"


def _end(page: OutputStream, end: Mapping[str, Any]) -> str:
    detail = f": {page.safe(end['detail'])}" if end["detail"] else ""
    return (
        f"{words(end['status'])}{detail}, {counted(len(end['calls']), 'call')}, {end['tokens']:,} "
        "tokens"
    )


def _list(page: OutputStream, title: str, lines: list[str]) -> None:
    if lines:
        page.title(title)
        for line in lines:
            page.say(f"  {page.safe(line)}")


def _diff(page: OutputStream, text: str) -> None:
    lines = text.splitlines()
    for line in lines[:SHOWN]:
        colour = {"-": RED, "+": GREEN, "@": DIM}.get(line[:1], "")
        page.say(page.paint(f"  {page.safe(line)}", colour) if colour else f"  {page.safe(line)}")
    if len(lines) > SHOWN:
        page.say(page.paint(f"  … {len(lines) - SHOWN} more lines: --json has them all", DIM))


def lay_down(page: OutputStream, errors: OutputStream, told: Mapping[str, Any], folder: str) -> int:
    """Write the files of a frozen run into a new or empty folder, as whoever asked for it."""
    from pathlib import Path

    place = Path(folder)
    try:
        if place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
            errors.say(f"agentctl: {folder} is not empty; a frozen run wants a folder of its own")
            return REFUSED
        place.mkdir(parents=True, exist_ok=True)
        for name, text in told["files"].items():
            with (place / name).open("x", encoding="utf-8", newline="") as file:
                file.write(text)
    except OSError as error:
        errors.say(f"agentctl: {error.filename or folder} cannot be written: {error.strerror}")
        return NOT_SUCCEEDED
    page.say(
        (  # noqa: UP034
            f"run {told['run']} lies in {folder}, {counted(len(told['files']), 'file')}, secrets "
            "taken out."
        )
    )
    page.say(f"In CI, with neither daemon nor key: agentctl replay {folder}")
    return DONE
