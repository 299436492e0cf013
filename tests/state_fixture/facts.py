"""What an installation says of its history, in a form that is the same each time it is asked."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from datetime import datetime
from typing import Any

from tests.state_fixture.installation import PLACE, ZONE, Installation

LEFT = datetime.fromisoformat("2026-03-04 11:05:00").replace(tzinfo=ZONE)
"""When the daemon of the fixture was killed."""
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
QUESTIONS = ("where is the parcel?", "code of the garage")
UNITS = {"d": "day", "h": "hour", "min": "minute"}
LONGEST = 120
"""Of a longer text the beginning, the length and a digest are recorded."""


async def facts_of(box: Installation, waiting: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of everything that was over when the daemon was killed, as JSON by
    verb.
    """
    moving = {str(value) for value in waiting.values()}
    runs = [
        run
        for run in await pages(box, "runs")
        if run["id"] not in moving and _is_old(run["created"])
    ]
    slots = [row for row in await pages(box, "slots") if _is_old(row["last"])]
    names = {run["routine"] for run in await pages(box, "runs") if run["id"] in moving}
    inspected = await ask_all(box, [("inspect", run["id"]) for run in runs])
    listed = await pages(box, "list")
    routines = {row["name"] for row in listed}
    moments = sorted(
        {
            (row["routine"], row[end])
            for row in slots
            for end in ("first", "last")
            if row["routine"] in routines
        }
    )
    reasons = await ask_all(
        box, [("why", name, "--at", moment[:16] + "Z") for name, moment in moments]
    )
    facts = {
        "runs": {run["id"]: run for run in runs},
        "inspect": {
            run["id"]: _with_short_steps(answer)
            for run, answer in zip(runs, inspected, strict=True)
        },
        "slots": slots,
        "why": {
            " ".join(key): {
                field: _with_whole_units(value) if isinstance(value, str) else value
                for field, value in answer.items()
            }
            for key, answer in zip(moments, reasons, strict=True)
        },
        "list": {
            row["name"]: {
                key: row[key] for key in ("description", "state", "paused_why", "made_by", "last")
            }
            | {"words": row["words"].partition("; not on this machine")[0]}
            for row in listed
            if row["name"] not in names
        },
        "deliveries": [
            row
            for row in await pages(box, "deliveries")
            if row["run"] in {run["id"] for run in runs}
        ],
        "incidents": [
            row for row in await pages(box, "incidents", "--all") if _is_old(row["opened"])
        ],
        "approvals": [
            row for row in await pages(box, "approvals", "--all") if row["run"] not in moving
        ],
        "remembered": (await box.json("approvals", "--remembered"))["items"],
        "quarantine": await pages(box, "quarantine"),
        "audit": [row for row in await pages(box, "audit") if _is_old(row["at"])],
        "seen": (await box.json("seen", "feed"))["items"],
        "memory": [
            row
            for row in await pages(box, "memory", "list")
            if not row["key"].startswith("agentd:") and _is_old(row["updated"])
        ],
    }
    for by in ("routine", "model", "day"):
        facts[f"usage by {by}"] = {
            row["key"]: row
            for row in (await box.json("usage", "--by", by, "--days", 365))["items"]
            if row["key"] not in names and (by != "day" or row["key"] < "2026-03-04")
        }
    for question in QUESTIONS:
        hits = (await box.json("memory", "search", "-n", 8, question))["items"]
        facts[f"memory search {question}"] = sorted(
            (
                {key: hit[key] for key in ("key", "text", "routine", "tainted", "anchor")}
                for hit in hits
                if not (hit["key"] or "").startswith("agentd:")
            ),
            key=json.dumps,
        )
    result: dict[str, Any] = json.loads(
        json.dumps(facts).replace(str(box.place) + "/", str(PLACE) + "/")
    )
    return {verb: _shorten(answer) for verb, answer in result.items()}


async def ask_all(box: Installation, questions: list[tuple[str, ...]]) -> list[Any]:
    """Ask several things, some at a time; return the answers in the same order."""
    places = asyncio.Semaphore(3)

    async def ask(words: tuple[str, ...]) -> Any:
        async with places:
            return await box.json(*words)

    return await asyncio.gather(*(ask(words) for words in questions))


async def pages(box: Installation, *words: str) -> list[Any]:
    """Return all items that a verb lists."""
    limit = (
        ()
        if words[0] in ("list", "quarantine", "approvals") or words[:2] == ("memory", "list")
        else ("-n", "500")
    )
    items: list[Any] = (await box.json(*words, *limit))["items"]
    return items


def differences(expected: Any, actual: Any, where: str = "") -> list[str]:
    """Return each place in which two facts differ, in words."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        lines = [f"{where}/{key}: is gone" for key in expected if key not in actual]
        return lines + [
            line
            for key in expected
            if key in actual
            for line in differences(expected[key], actual[key], f"{where}/{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = enumerate(zip(expected, actual, strict=True))
        return [
            line
            for index, (expected_item, actual_item) in pairs
            for line in differences(expected_item, actual_item, f"{where}/{index}")
        ]
    return [] if expected == actual else [f"{where}: was {expected!r}, is {actual!r}"]


def write(facts: dict[str, Any]) -> str:
    """Return facts as JSON with one line for each thing."""
    parts = []
    for verb, answer in facts.items():
        pairs = answer.items() if isinstance(answer, dict) else [(None, item) for item in answer]
        lines = [
            ("" if key is None else json.dumps(key) + ": ")
            + json.dumps(item, ensure_ascii=False, separators=(",", ":"))
            for key, item in pairs
        ]
        begin, end = "{}" if isinstance(answer, dict) else "[]"
        parts.append(f"{json.dumps(verb)}: {begin}\n" + ",\n".join(lines) + f"\n{end}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _with_whole_units(text: str) -> str:
    """Write durations as the version of the fixture did: `12 hours`, where it is `12 h` today."""

    def unit(match: re.Match[str]) -> str:
        number, short = match.groups()
        return f"{number} {UNITS[short]}{'' if number == '1' else 's'}"

    return re.sub(r"\b(\d+) (d|h|min)\b", unit, text)


def _is_old(moment: str) -> bool:
    return datetime.fromisoformat(moment) < LEFT


def _with_short_steps(run: dict[str, Any]) -> dict[str, Any]:
    for step in run["steps"]:
        for key, value in step["body"].items():
            text = json.dumps(value, sort_keys=True, ensure_ascii=False)
            # long ones are told by their digest
            step["body"][key] = value if len(text) <= LONGEST else text
    # they are made of the steps
    return {key: value for key, value in run.items() if key != "calls"}


def _shorten(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    if isinstance(value, str):
        if MOMENT.fullmatch(value) and not _is_old(value):
            return "later"
        if len(value) > LONGEST:
            digest = hashlib.sha256(value.encode()).hexdigest()[:16]
            return f"{value[:40]}… ({len(value)}, SHA-256 {digest})"
    return value
