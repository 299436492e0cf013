"""The views of the page: each asks the daemon and returns a template with what it shows.

`VIEWS` is the table of them. Everything that comes from a run is hostile until proved otherwise: templates escape what
they print, and no text of a run ever becomes a link, an image or a script.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from markupsafe import Markup

from daemon.control.call import quote
from daemon.control.client import Problem
from daemon.control.page import pictures
from daemon.control.page.pictures import Moment
from daemon.control.render import absolute, relative, span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jinja2 import Environment

    from daemon.control.client import Client

    Context = dict[str, Any]
    View = Callable[..., tuple[str, Context]]

TEMPLATES, STATIC = Path(__file__).parent / "templates", Path(__file__).parent / "static"
MOST_SLOTS = 3000  # on the time line; a minutely routine has 1,440 a day
WEEKS = 5  # of the heat map
MOST_STEPS = 100_000  # of one run
PER_PAGE = 50


class Redirect(Exception):
    """What was asked for is found elsewhere."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


class Entry(NamedTuple):
    """A view that the menu shows."""

    path: str
    label: str


def today(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Yesterday's leftovers, today and tomorrow: what ran, what runs, what is due."""
    status = client.ask("GET", "/v1/status")
    zone = ZoneInfo(status["zone"])
    now = datetime.now(zone)
    begin = datetime(now.year, now.month, now.day, tzinfo=zone)
    end = begin + timedelta(days=2)
    slots = _all(client, f"/v1/slots?since={_iso(begin)}&limit=1000", MOST_SLOTS)
    runs = _all(client, "/v1/runs?limit=200", 200)
    fires = _all(client, "/v1/next?days=2&count=1000", MOST_SLOTS)
    statuses = {run["id"]: run for run in runs}
    rows: dict[str, list[Moment]] = {}
    for slot in slots:
        run = statuses.get(slot["run"])
        kind = _kind(run) if run else ("succeeded" if slot["run"] else slot["outcome"])
        at = _local(slot["first"], zone)
        said = kind.replace("_", " ") + (f", {slot['reason'].replace('_', ' ')}" if slot["reason"] else "")
        more = f" ({slot['count']} slots)" if slot["count"] > 1 else ""
        href = f"/runs/{slot['run']}" if slot["run"] else f"/routines/{quote(slot['routine'])}"
        rows.setdefault(slot["routine"], []).append(Moment(max(at, begin), kind, f"{at:%H:%M} {said}{more}", href))
    for fire in fires:
        at = _local(fire["at"], zone)
        rows.setdefault(fire["routine"], []).append(Moment(at, "due", f"{at:%a %H:%M} due", ""))
    lines = [(name, pictures.time_line(moments, begin, end)) for name, moments in sorted(rows.items())]
    return "today.html", {
        "title": "Today",
        "status": status,
        "lines": lines,
        "hours": pictures.hours(begin, end),
        "now": pictures.place(now, begin, end),
        "latest": runs[:8],
        "failed": [run for run in runs if _kind(run) in ("failed", "timed_out", "interrupted") and _recent(run, begin)],
        "undelivered": client.ask("GET", "/v1/deliveries?status=failed&limit=5")["items"],
    }


def routines(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Every routine, and how each day of the last weeks went."""
    status = client.ask("GET", "/v1/status")
    now = datetime.now(ZoneInfo(status["zone"])).date()
    count = WEEKS * 7
    days = [now - timedelta(days=count - 1 - place) for place in range(count)]
    items = client.ask("GET", f"/v1/days?days={count}")["items"]
    known = _all(client, "/v1/routines?limit=500", 2000)
    rows = pictures.heat_map(items, [routine["name"] for routine in known], days)
    return "routines.html", {
        "title": "Routines",
        "routines": {routine["name"]: routine for routine in known},
        "rows": rows,
        "days": days,
    }


def routine(client: Client, *, name: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """One routine: its definition, its slots, its runs."""
    found = client.ask("GET", f"/v1/routines/{quote(name)}")
    return "routine.html", {
        "title": name,
        "routine": found,
        "why": _why(client, name),
        "slots": client.ask("GET", f"/v1/slots?routine={quote(name)}&limit=20")["items"],
        "runs": client.ask("GET", f"/v1/runs?routine={quote(name)}&limit=20")["items"],
    }


def runs(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Runs, newest first."""
    asked = {key: query[key] for key in ("routine", "status", "cursor") if query.get(key)}
    target = "/v1/runs?" + "&".join(f"{key}={quote(value)}" for key, value in {"limit": str(PER_PAGE), **asked}.items())
    answer = client.ask("GET", target)
    return "runs.html", {
        "title": "Runs",
        "runs": answer["items"],
        "next": answer["next"],
        "asked": asked,
        "names": [each["name"] for each in _all(client, "/v1/routines?limit=500", 2000)],
        "statuses": [status for status in pictures.WORST_FIRST if status not in ("missed", "silent", "due")],
    }


def run(client: Client, *, name: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """One run as a transcript: what it was told, what it did and by which rule, what it used."""
    found = client.ask("GET", f"/v1/runs/{quote(name)}")
    if found["id"] != name:
        raise Redirect(f"/runs/{found['id']}")
    steps = _all(client, f"/v1/runs/{found['id']}/steps?limit=1000", MOST_STEPS)
    return "run.html", {"title": found["routine"], "run": found, "turns": turns_of(steps), "prompt": prompt_of(steps)}


def transcript(client: Client, name: str) -> str:
    """Return one run as a page that needs nothing besides itself, for whoever has no daemon."""
    found = client.ask("GET", f"/v1/runs/{quote(name)}")
    steps = _all(client, f"/v1/runs/{found['id']}/steps?limit=1000", MOST_STEPS)
    style = (STATIC / "style.css").read_text("utf-8")
    context = {"title": found["routine"], "run": found, "turns": turns_of(steps), "prompt": prompt_of(steps)}
    return render("alone.html", {**context, "style": Markup(style)})  # noqa: S704  # a file of ours


def usage(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Tokens by day and by routine."""
    days = 30
    items = client.ask("GET", f"/v1/days?days={days}")["items"]
    status = client.ask("GET", "/v1/status")
    now = datetime.now(ZoneInfo(status["zone"])).date()
    by_day = {f"{now - timedelta(days=days - 1 - place):%Y-%m-%d}": {"input": 0, "output": 0} for place in range(days)}
    by_routine: dict[str, dict[str, int]] = {}
    for item in items:
        for part, count in item["tokens"].items():
            by_day[item["day"]][part] += count
            mine = by_routine.setdefault(item["routine"], {"input": 0, "output": 0, "runs": 0})
            mine[part] += count
        by_routine[item["routine"]]["runs"] += sum(
            count for kind, count in item["outcomes"].items() if kind not in ("missed", "skipped")
        )
    rows = sorted(by_routine.items(), key=lambda row: -(row[1]["input"] + row[1]["output"]))
    return "usage.html", {"title": "Usage", "bars": pictures.bars(by_day, ("input", "output")), "rows": rows}


def deliveries(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Where reports went, and which did not arrive."""
    asked = query.get("status", "")
    cursor = f"&cursor={quote(query['cursor'])}" if query.get("cursor") else ""
    target = f"/v1/deliveries?limit={PER_PAGE}{cursor}" + (f"&status={quote(asked)}" if asked else "")
    answer = client.ask("GET", target)
    return "deliveries.html", {
        "title": "Deliveries",
        "deliveries": answer["items"],
        "next": answer["next"],
        "asked": asked,
    }


def memory(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """What is remembered, searched; each hit leads to the place in its run."""
    asked = query.get("q", "").strip()
    if asked:
        hits = client.ask("GET", f"/v1/memory/search?query={quote(asked)}&limit=20&window=1")["items"]
        return "memory.html", {"title": "Memory", "asked": asked, "hits": hits, "items": []}
    items = client.ask("GET", "/v1/memory/items?limit=50")["items"]
    return "memory.html", {"title": "Memory", "asked": "", "hits": [], "items": items}


def live(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """What happens right now, in all runs."""
    return "live.html", {"title": "Live", "active": client.ask("GET", "/v1/status")["active"]}


VIEWS = (
    Entry("/", "Today"),
    Entry("/routines", "Routines"),
    Entry("/runs", "Runs"),
    Entry("/usage", "Usage"),
    Entry("/deliveries", "Deliveries"),
    Entry("/memory", "Memory"),
    Entry("/live", "Live"),
)
ROUTES: tuple[tuple[str, View], ...] = (
    (r"/", today),
    (r"/routines", routines),
    (r"/routines/(?P<name>[^/]+)", routine),
    (r"/runs", runs),
    (r"/runs/(?P<name>[0-9A-Za-z]+)", run),
    (r"/usage", usage),
    (r"/deliveries", deliveries),
    (r"/memory", memory),
    (r"/live", live),
)


def view_of(path: str) -> tuple[View, dict[str, str]] | None:
    """Return the view of a path and what the path names; None if there is no such page."""
    from urllib.parse import unquote

    for pattern, view in ROUTES:
        if found := re.fullmatch(pattern, path):
            return view, {key: unquote(value) for key, value in found.groupdict().items()}
    return None


# What a button of the page may ask of the daemon, and where the browser is sent afterwards.
ACTS = (
    (r"/routines/(?P<name>[^/]+)/run", "/v1/routines/{name}/run", "/runs/{id}"),
    (r"/routines/(?P<name>[^/]+)/pause", "/v1/routines/{name}/pause", "/routines/{name}"),
    (r"/routines/(?P<name>[^/]+)/resume", "/v1/routines/{name}/resume", "/routines/{name}"),
    (r"/runs/(?P<name>[0-9A-Za-z]+)/cancel", "/v1/runs/{name}/cancel", "/runs/{name}"),
)


def act(client: Client, path: str, form: Mapping[str, str]) -> str:
    """Do what a button stands for; return where to go then."""
    for pattern, target, then in ACTS:
        if found := re.fullmatch(pattern, path):
            name = found["name"]
            answer = client.ask("POST", target.format(name=name), {key: form[key] for key in form})
            return then.format(name=name, id=answer.get("id", ""))
    raise Problem(404, {"detail": f"there is no {path}"})


# --- a transcript ---


def prompt_of(steps: list[Any]) -> list[tuple[str, str]]:
    """Return the frozen prompt by section."""
    for step in steps:
        if step["kind"] == "prompt":
            system, found, place = step["body"]["system"], [], 0
            for name, length in (step["body"].get("sections") or {"system": len(system)}).items():
                found.append((name, system[place : place + length]))
                place += length + 2  # sections stand a blank line apart
            return found
    return []


def turns_of(steps: list[Any]) -> list[Context]:
    """Return the steps as a reader meets them: a call together with its result, turn by turn."""
    results = {step["call"]: step for step in steps if step["kind"] == "result"}
    turns: dict[int, list[Context]] = {}
    for step in steps:
        if step["kind"] in ("prompt", "result"):
            continue
        entry = {"step": step, "result": results.get(step["call"]) if step["kind"] == "call" else None}
        turns.setdefault(step["iteration"], []).append(entry)
    return [{"number": number, "entries": entries} for number, entries in turns.items()]


# --- texts and times ---


@cache
def environment() -> Environment:
    """Return the templates, which escape whatever they print and stumble over a name that is not there."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "json": partial(json.dumps, ensure_ascii=False),
        "when": _when,
        "ago": _ago,
        "span": span,
        "number": _number,
        "kind": _kind,
        "words": _words,
    }
    made.filters |= {"seg": lambda text: quote(str(text)), "short": lambda run: str(run)[-8:]}
    return made


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    return environment().get_template(template).render({"views": VIEWS, "here": "", "title": "agentd", **context})


def _shown(value: object) -> object:
    """Return what a template prints as a browser may show it: no control characters, nothing that turns text."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in value)


def _kind(found: Mapping[str, Any]) -> str:
    """Return a run's status, told apart where it ended well with nothing to say."""
    return "silent" if found["silent"] and found["status"] == "succeeded" else str(found["status"])


def _words(text: str) -> str:
    return text.replace("_", " ")


def _when(iso: str | None) -> str:
    return absolute(datetime.fromisoformat(iso).astimezone(), datetime.now().astimezone()) if iso else ""


def _ago(iso: str | None) -> str:
    return relative(datetime.fromisoformat(iso).astimezone(), datetime.now().astimezone()) if iso else ""


def _number(value: float) -> str:
    return f"{value:,}"


def _local(iso: str, zone: ZoneInfo) -> datetime:
    return datetime.fromisoformat(iso).astimezone(zone)


def _iso(at: datetime) -> str:
    return quote(at.isoformat())


def _recent(run: Mapping[str, Any], begin: datetime) -> bool:
    return datetime.fromisoformat(run["created"]) >= begin


def _why(client: Client, name: str) -> str:
    try:
        return str(client.ask("GET", f"/v1/routines/{quote(name)}/why")["sentence"])
    except Problem as error:
        return str(error)


def _all(client: Client, target: str, most: int) -> list[Any]:
    """Return the items of a list, page after page, up to so many."""
    answer = client.ask("GET", target)
    items = list(answer["items"])
    while answer["next"] is not None and len(items) < most:
        answer = client.ask("GET", f"{target}&cursor={quote(answer['next'])}")
        items += answer["items"]
    return items
