"""The views of the page: each asks the daemon and returns a template with what it shows; `MENU`
lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from daemon.cli.call import quote
from daemon.cli.client import Client, Problem
from daemon.web import charts, transcript
from daemon.web.queries import all_of
from daemon.web.today import today
from daemon.web.usage import usage

Context = dict[str, Any]
View = Callable[..., tuple[str, Context]]

WEEKS = 5  # of the heat map
PER_PAGE = 50


class SeeOther(Exception):
    """What was asked for is found elsewhere."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


class MenuEntry(NamedTuple):
    """A view that the menu shows."""

    path: str
    label: str


def routines(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Every routine, and how each day of the last weeks went."""
    status = client.request("GET", "/v1/status")
    now = datetime.now(ZoneInfo(status["zone"])).date()
    count = WEEKS * 7
    days = [now - timedelta(days=count - 1 - place) for place in range(count)]
    items = client.request("GET", f"/v1/days?days={count}")["items"]
    known = all_of(client, "/v1/routines?limit=500", 2000)
    rows = charts.heat_map(items, [routine["name"] for routine in known], days)
    return "routines.html", {
        "title": "Routines",
        "routines": {routine["name"]: routine for routine in known},
        "rows": rows,
        "days": days,
    }


def routine(client: Client, *, name: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """One routine: its definition, its slots, its runs."""
    found = client.request("GET", f"/v1/routines/{quote(name)}")
    return "routine.html", {
        "title": name,
        "routine": found,
        "why": _why(client, name),
        "slots": client.request("GET", f"/v1/slots?routine={quote(name)}&limit=20")["items"],
        "runs": client.request("GET", f"/v1/runs?routine={quote(name)}&limit=20")["items"],
    }


def runs(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Runs, newest first."""
    asked = {key: query[key] for key in ("routine", "status", "cursor") if query.get(key)}
    target = "/v1/runs?" + "&".join(
        f"{key}={quote(value)}" for key, value in {"limit": str(PER_PAGE), **asked}.items()
    )
    answer = client.request("GET", target)
    return "runs.html", {
        "title": "Runs",
        "runs": answer["items"],
        "next": answer["next"],
        "asked": asked,
        "names": [each["name"] for each in all_of(client, "/v1/routines?limit=500", 2000)],
        "statuses": [
            status for status in charts.WORST_FIRST if status not in ("missed", "silent", "due")
        ],
    }


def run(client: Client, *, name: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """One run as a transcript: what it was told, what it did and by which rule, what it used."""
    found = client.request("GET", f"/v1/runs/{quote(name)}")
    if found["id"] != name:
        raise SeeOther(f"/runs/{found['id']}")
    return "run.html", transcript.context_of(client, found)


def approvals(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """What waits for a person's word, with exactly what would happen; and what was said lately."""
    waiting = client.request("GET", "/v1/approvals?status=pending&limit=50")["items"]
    return "approvals.html", {
        "title": f"Approvals ({len(waiting)})" if waiting else "Approvals",
        "waiting": [{**each, **_exactly(client, each["id"])} for each in waiting],
        "said": _exactly(client, query["said"]) if query.get("said") else None,
        "answered": [
            each
            for each in client.request("GET", "/v1/approvals?limit=50")["items"]
            if each["status"] != "pending"
        ],
    }


def approval(client: Client, *, name: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """One question, what allowing it for good would write, and the buttons."""
    found = client.request("GET", f"/v1/approvals/{quote(name)}")
    proposal = None
    if found["status"] == "pending" and query.get("for") == "good":
        proposal = client.request("GET", f"/v1/approvals/{quote(name)}/proposal")
    return "approval.html", {
        "title": f"Approval of {found['tool']}",
        "asked": found,
        "proposal": proposal,
    }


def _exactly(client: Client, name: str) -> Context:
    """Return one question with exactly what would happen."""
    found: Context = client.request("GET", f"/v1/approvals/{quote(name)}")
    return {key: value for key, value in found.items() if key != "calls"}


def deliveries(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """What is wrong, where reports went, and which did not arrive."""
    asked, over = query.get("status", ""), query.get("over") == "1"
    cursor = f"&cursor={quote(query['cursor'])}" if query.get("cursor") else ""
    target = f"/v1/deliveries?limit={PER_PAGE}{cursor}" + (
        f"&status={quote(asked)}" if asked else ""
    )
    answer = client.request("GET", target)
    return "deliveries.html", {
        "title": "Deliveries and incidents",
        "incidents": client.request("GET", f"/v1/incidents?limit=200&all={int(over)}")["items"],
        "deliveries": answer["items"],
        "next": answer["next"],
        "asked": asked,
        "over": over,
        "done": query.get("done") if query.get("done") in ("retry", "drop", "ack") else None,
        "id": query.get("id", ""),
    }


def memory(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """What is remembered, searched; each hit leads to the place in its run."""
    asked = query.get("q", "").strip()
    if asked:
        hits = client.request("GET", f"/v1/memory/search?query={quote(asked)}&limit=20&window=1")[
            "items"
        ]
        return "memory.html", {
            "title": f"Memory: {asked[:80]}",
            "asked": asked,
            "hits": hits,
            "items": [],
        }
    items = client.request("GET", "/v1/memory/items?limit=50")["items"]
    return "memory.html", {"title": "Memory", "asked": "", "hits": [], "items": items}


def live(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """What happens right now, in all runs."""
    return "live.html", {"title": "Live", "active": client.request("GET", "/v1/status")["active"]}


MENU = (
    MenuEntry("/", "Today"),
    MenuEntry("/routines", "Routines"),
    MenuEntry("/runs", "Runs"),
    MenuEntry("/approvals", "Approvals"),
    MenuEntry("/deliveries", "Deliveries"),
    MenuEntry("/usage", "Usage"),
    MenuEntry("/memory", "Memory"),
    MenuEntry("/live", "Live"),
)
VIEWS: tuple[tuple[str, View], ...] = (
    ("/", today),
    ("/routines", routines),
    ("/routines/{name}", routine),
    ("/runs", runs),
    ("/runs/{name}", run),
    ("/approvals", approvals),
    ("/approvals/{name}", approval),
    ("/usage", usage),
    ("/deliveries", deliveries),
    ("/memory", memory),
    ("/live", live),
)


class Action(NamedTuple):
    """What a button of the page asks of the daemon, which fields of its form go along, and which
    page comes next.
    """

    path: str
    target: str
    then: str
    fields: tuple[str, ...] = ()


ACTIONS = (
    Action("/routines/{name}/run", "/v1/routines/{name}/run", "/runs/{id}"),
    Action("/routines/{name}/pause", "/v1/routines/{name}/pause", "/routines/{name}"),
    Action("/routines/{name}/resume", "/v1/routines/{name}/resume", "/routines/{name}"),
    Action("/runs/{name}/cancel", "/v1/runs/{name}/cancel", "/runs/{name}"),
    Action(
        "/approvals/{name}/approve",
        "/v1/approvals/{name}/approve",
        "/approvals?said={name}",
        ("remember",),
    ),
    Action("/approvals/{name}/reject", "/v1/approvals/{name}/reject", "/approvals?said={name}"),
    Action(
        "/deliveries/{name}/retry",
        "/v1/deliveries/{name}/retry",
        "/deliveries?done=retry&id={name}",
    ),
    Action(
        "/deliveries/{name}/drop", "/v1/deliveries/{name}/drop", "/deliveries?done=drop&id={name}"
    ),
    Action("/incidents/{name}/ack", "/v1/incidents/{name}/ack", "/deliveries?done=ack&id={name}"),
)


def perform(
    client: Client, action: Action, names: Mapping[str, str], form: Mapping[str, str]
) -> str:
    """Do what a button stands for; return the path of the page that comes next."""
    quoted = {key: quote(value) for key, value in names.items()}
    body = {key: form[key] for key in action.fields if key in form}
    answer = client.request("POST", action.target.format(**quoted), body)
    return action.then.format(**quoted, id=answer.get("id", ""))


def _why(client: Client, name: str) -> str:
    try:
        return str(client.request("GET", f"/v1/routines/{quote(name)}/why")["sentence"])
    except Problem as error:
        return str(error)
