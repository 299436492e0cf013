"""The views of the page: each asks the daemon and returns a template with its context.

`VIEWS` and `ACTIONS` have their routes, `MENU` what the menu lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from daemon.cli.call import quote
from daemon.cli.client import ApiError, Client
from daemon.web.charts import WORST_FIRST, make_heat_map
from daemon.web.queries import request_items
from daemon.web.today import show_today
from daemon.web.transcript import transcript_context
from daemon.web.usage import show_usage

Context = dict[str, Any]
View = Callable[..., tuple[str, Context]]

HEAT_MAP_DAYS = 5 * 7
MAX_ROUTINES = 2000
PAGE_SIZE = 50


class PageMoved(Exception):
    """The page has another path."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


class MenuEntry(NamedTuple):
    """A view that the menu lists."""

    path: str
    label: str


def show_routines(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show every routine as a card, and how each day of the last weeks went."""
    status = client.request("GET", "/v1/status?counts=false")
    last_day = datetime.now(ZoneInfo(status["zone"])).date()
    days = [last_day - timedelta(days=ago) for ago in reversed(range(HEAT_MAP_DAYS))]
    outcomes = client.request("GET", f"/v1/days?days={HEAT_MAP_DAYS}")["items"]
    # the time before the first outcome would be nothing but empty squares
    first_day = min((item["day"] for item in outcomes), default="")
    shown_days = [day for day in days if day.isoformat() >= first_day or day in days[-7:]]
    routine_by_name = {routine["name"]: routine for routine in _request_routines(client)}
    rows = make_heat_map(outcomes, list(routine_by_name), shown_days)
    return "routines.html", {
        "title": "Routines",
        "can_edit": bool(status.get("edit")),
        "routines": routine_by_name,
        "rows": [(name, cells) for name, cells in rows if any(cell.kind for cell in cells)],
        "empty_rows": [name for name, cells in rows if not any(cell.kind for cell in cells)],
        "days": shown_days,
    }


def _request_routines(client: Client) -> list[Any]:
    return request_items(client, "/v1/routines?limit=500", MAX_ROUTINES)


def show_routine(client: Client, *, name: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show one routine: its definition, its slots, its runs."""
    quoted_name = quote(name)
    try:
        definition = client.request("GET", f"/v1/routines/{quoted_name}")
    except ApiError as error:
        # runs of `ask` and rehearsals have no routine's file, and that of others may be gone
        runs_path = f"/runs?routine={quoted_name}"
        if (
            error.code != "not_found"
            or not client.request("GET", f"/v1{runs_path}&limit=1")["items"]
        ):
            raise
        raise PageMoved(runs_path) from None
    try:
        explanation = str(client.request("GET", f"/v1/routines/{quoted_name}/why")["sentence"])
    except ApiError as error:
        explanation = str(error)
    try:
        source = client.request("GET", f"/v1/routines/{quoted_name}/source")
    except ApiError as error:
        source = {"path": definition["path"] or "", "text": "", "problem": str(error)}
    slots_path = f"/v1/slots?routine={quoted_name}&scheduled=true&limit=20"
    # None: the page may change the file. A text: why not; empty where the file could not be read.
    read_only = source.get("read_only", "")
    return "routine.html", {
        "title": name,
        "routine": definition,
        "explanation": explanation,
        "source": source,
        "can_edit": read_only is None,
        "read_only": read_only,
        "done": query.get("done", ""),
        "slots": client.request("GET", slots_path)["items"],
        "runs": client.request("GET", f"/v1/runs?routine={quoted_name}&limit=20")["items"],
    }


def show_runs(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show runs, newest first."""
    filters = {key: query[key] for key in ("routine", "status", "cursor") if query.get(key)}
    path = f"/v1/runs?limit={PAGE_SIZE}"
    for key, value in filters.items():
        path += f"&{key}={quote(value)}"
    answer = client.request("GET", path)
    names = [routine["name"] for routine in _request_routines(client)]
    if filters.get("routine") and filters["routine"] not in names:
        names.append(filters["routine"])
    return "runs.html", {
        "title": "Runs",
        "runs": answer["items"],
        "next": answer["next"],
        "filters": filters,
        "names": names,
        "statuses": [status for status in WORST_FIRST if status not in ("missed", "silent", "due")],
    }


def show_run(client: Client, *, run_id: str, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show a run as a transcript: its prompt, what it did and by which rule, what it used."""
    record = client.request("GET", f"/v1/runs/{quote(run_id)}")
    if record["id"] != run_id:
        raise PageMoved(f"/runs/{record['id']}")
    return "run.html", transcript_context(client, record)


def show_approvals(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show which calls wait for an approval, exactly what they would do, and the latest answers."""
    answer = client.request("GET", f"/v1/approvals?status=pending&limit={PAGE_SIZE}")
    pending_approvals, has_more = answer["items"], answer["next"] is not None
    latest = client.request("GET", f"/v1/approvals?limit={PAGE_SIZE}")["items"]
    count = f" ({len(pending_approvals)}{'+' if has_more else ''})" if pending_approvals else ""
    return "approvals.html", {
        "title": f"Approvals{count}",
        "pending": [
            {**approval, **_request_exact_call(client, approval["id"])}
            for approval in pending_approvals
        ],
        "has_more": has_more,
        "just_answered": (
            _request_exact_call(client, query["said"]) if query.get("said") else None
        ),
        "answered": [approval for approval in latest if approval["status"] != "pending"],
    }


def _request_exact_call(client: Client, approval_id: str) -> Context:
    """Return one approval with the exact call, without the number of runs that wait for it."""
    approval: Context = client.request("GET", f"/v1/approvals/{quote(approval_id)}")
    return {key: value for key, value in approval.items() if key != "calls"}


def show_approval(
    client: Client, *, approval_id: str, query: Mapping[str, str]
) -> tuple[str, Context]:
    """Show one approval, what allowing its call for good would write, and the buttons."""
    record = client.request("GET", f"/v1/approvals/{quote(approval_id)}")
    proposal = None
    if record["status"] == "pending" and query.get("for") == "good":
        proposal = client.request("GET", f"/v1/approvals/{quote(approval_id)}/proposal")
    return "approval.html", {
        "title": f"Approval of {record['tool']}",
        "approval": record,
        "proposal": proposal,
    }


def show_deliveries(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show what is wrong, where reports went, and which did not arrive."""
    status, include_closed = query.get("status", ""), query.get("over") == "1"
    path = f"/v1/deliveries?limit={PAGE_SIZE}"
    if query.get("cursor"):
        path += f"&cursor={quote(query['cursor'])}"
    if status:
        path += f"&status={quote(status)}"
    answer = client.request("GET", path)
    incidents = client.request("GET", f"/v1/incidents?limit=200&all={int(include_closed)}")
    return "deliveries.html", {
        "title": "Deliveries and incidents",
        "incidents": incidents["items"],
        "deliveries": answer["items"],
        "next": answer["next"],
        "status_filter": status,
        "include_closed": include_closed,
        "last_action": (
            query.get("done") if query.get("done") in ("retry", "drop", "ack") else None
        ),
        "id": query.get("id", ""),
    }


def show_memory(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show memory items, or the hits of a search; each links to its place in the run."""
    question = query.get("q", "").strip()
    context: Context = {
        "title": "Memory",
        "question": question,
        "hits": [],
        "items": [],
        "next": None,
    }
    if question:
        context["title"] = f"Memory: {question[:80]}"
        path = f"/v1/memory/search?query={quote(question)}&limit=20&window=1"
        context["hits"] = client.request("GET", path)["items"]
    else:
        path = f"/v1/memory/items?limit={PAGE_SIZE}"
        if query.get("cursor"):
            path += f"&cursor={quote(query['cursor'])}"
        answer = client.request("GET", path)
        context |= {"items": answer["items"], "next": answer["next"]}
    return "memory.html", context


def show_live(client: Client, *, query: Mapping[str, str]) -> tuple[str, Context]:
    """Show what happens right now, in all runs."""
    return "live.html", {
        "title": "Live",
        "active": client.request("GET", "/v1/status?counts=false")["active"],
    }


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
    ("/", show_today),
    ("/routines", show_routines),
    ("/routines/{name}", show_routine),
    ("/runs", show_runs),
    ("/runs/{run_id}", show_run),
    ("/approvals", show_approvals),
    ("/approvals/{approval_id}", show_approval),
    ("/usage", show_usage),
    ("/deliveries", show_deliveries),
    ("/memory", show_memory),
    ("/live", show_live),
)


class Action(NamedTuple):
    """What a button of the page does.

    A POST to `path` sends the `fields` of the form to `api_path` of the API, and then shows
    `next_path`, in which `{new_id}` is the id in the API's answer; of a button on a card of the
    list of routines, `card_path` if there is one.
    """

    path: str
    api_path: str
    next_path: str
    fields: tuple[str, ...] = ()
    card_path: str = ""


CARD_PATH = "/routines#r{card}"
ACTIONS = (
    Action("/routines/{name}/run", "/v1/routines/{name}/run", "/runs/{new_id}"),
    Action(
        "/routines/{name}/pause",
        "/v1/routines/{name}/pause",
        "/routines/{name}",
        card_path=CARD_PATH,
    ),
    Action(
        "/routines/{name}/resume",
        "/v1/routines/{name}/resume",
        "/routines/{name}",
        card_path=CARD_PATH,
    ),
    Action("/runs/{run_id}/cancel", "/v1/runs/{run_id}/cancel", "/runs/{run_id}"),
    Action(
        "/approvals/{approval_id}/approve",
        "/v1/approvals/{approval_id}/approve",
        "/approvals?said={approval_id}",
        ("remember",),
    ),
    Action(
        "/approvals/{approval_id}/reject",
        "/v1/approvals/{approval_id}/reject",
        "/approvals?said={approval_id}",
    ),
    Action(
        "/deliveries/{delivery_id}/retry",
        "/v1/deliveries/{delivery_id}/retry",
        "/deliveries?done=retry&id={delivery_id}",
    ),
    Action(
        "/deliveries/{delivery_id}/drop",
        "/v1/deliveries/{delivery_id}/drop",
        "/deliveries?done=drop&id={delivery_id}",
    ),
    Action(
        "/incidents/{incident_id}/ack",
        "/v1/incidents/{incident_id}/ack",
        "/deliveries?done=ack&id={incident_id}",
    ),
)


def perform(
    client: Client, action: Action, path_parameters: Mapping[str, str], form: Mapping[str, str]
) -> str:
    """Perform the action of a button; return the path of the page to show next."""
    quoted_parameters = {key: quote(value) for key, value in path_parameters.items()}
    body = {key: form[key] for key in action.fields if key in form}
    answer = client.request("POST", action.api_path.format(**quoted_parameters), body)
    if action.card_path and re.fullmatch("[0-9]{1,4}", form.get("card", "")):
        return action.card_path.format(card=form["card"])
    return action.next_path.format(**quoted_parameters, new_id=answer.get("id", ""))
