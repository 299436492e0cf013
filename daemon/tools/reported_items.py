"""Which items of a run are new: the journal knows what was reported, whatever the model says.

Theory of operation. A routine with `[dedupe]` reports through the tool `report_items` and in no
other way. The result of each call says which of its items are new; from then on the steps alone
decide, so a run that is resumed or replayed comes to the same report. Items are marked as seen in
the very commit that puts the report into the outbox: a run that dies before that has reported
nothing, and the next one reports the same items.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from daemon.models import Json, Reply, ReportedItem, Status, Step, StepKind, digest_of

REPORT_ITEMS = "report_items"
MAX_TITLE_CHARACTERS = 300

# Parameters that only say where a reader came from. Anything else in a query may name the thing
# itself: it stays.
_TRACKING = re.compile(
    r"(?i)(utm_\w+|gclid|dclid|gbraid|wbraid|fbclid|msclkid|yclid|twclid|igshid|mc_cid|mc_eid|_hsenc|_hsmi)(=|$)"
)
_PORTS = {"http": "80", "https": "443"}
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedItems:
    """The items that a run has reported, each once."""

    new_items: Sequence[Json]
    old_items: Sequence[Json]
    """Those that an earlier run has reported."""
    sightings: Sequence[ReportedItem]
    """All of them, as the journal keeps them: an item that is still listed stays known."""

    @property
    def silence_reason(self) -> str:
        """Why there is nothing to report."""
        count = len(self.old_items)
        if not count:
            return "nothing new: no items"
        return f"nothing new: {count} item{'' if count == 1 else 's, all'} seen before"


def item_key(item: Json, key_field: str) -> str:
    """Return the key of an item, in which it differs from all others; empty if it has none."""
    value = _one_line(unicodedata.normalize("NFC", str(item.get(key_field) or "")))
    return _one_line(normalize_url(value)) if key_field == "url" else value


def normalize_url(url: str) -> str:
    """Return one form for all URLs that surely name the same page (RFC 3986, 6.2); a text that is
    no web address is returned as it is.

    Scheme and host are in lower case, a default port, a fragment and the parameters of `_TRACKING`
    are gone. What only may be the same is not: http and https, with and without a slash at the end,
    parameters in another order.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not parts.hostname:
        return url
    user, at, _ = parts.netloc.rpartition("@")
    host = parts.hostname.rstrip(".") or parts.hostname
    host = f"[{host}]" if ":" in host else host
    port_suffix = "" if port is None or str(port) == _PORTS[scheme] else f":{port}"
    parameters = parts.query.split("&")
    query = "&".join(item for item in parameters if item.strip() and not _TRACKING.match(item))
    # single-page applications name the page that they show by `#!/x` or `#/x`
    fragment = parts.fragment if parts.fragment.startswith(("!", "/")) else ""
    path = _remove_dot_segments(_normalize_escapes(parts.path)) or "/"
    netloc = f"{user}{at}{host}{port_suffix}"
    return urlunsplit(
        (scheme, netloc, path, _normalize_escapes(query), _normalize_escapes(fragment))
    )


def _normalize_escapes(text: str) -> str:
    """Return text with its percent-escapes in one form: none where none is needed, else in
    capitals.
    """
    if _BROKEN.search(text):
        return text

    def normalize(escape: re.Match[str]) -> str:
        (byte,) = unquote_to_bytes(escape[0])
        return chr(byte) if byte in _UNRESERVED else escape[0].upper()

    return _ESCAPE.sub(normalize, text)


def _remove_dot_segments(path: str) -> str:
    """Return a path without `.` and `..` (RFC 3986, 5.2.4)."""
    segments = path.split("/")
    output: list[str] = []
    for segment in segments:
        if segment == "..":
            if len(output) > 1:
                output.pop()
        elif segment != ".":
            output.append(segment)
    if segments[-1] in (".", ".."):
        output.append("")
    return "/".join(output)


def collect_items(
    steps: Iterable[Step], key_field: str, *, before: str | None = None
) -> ReportedItems | None:
    """Return the items that the calls of `report_items` among the steps have reported.

    `before` is the id of a call: only calls before it count. Returns None if there was no such
    call.
    """
    calls: dict[str, Json] = {}
    results: dict[str, Json] = {}
    for step in steps:
        if step.body.get("tool") == REPORT_ITEMS and step.call_id:
            (calls if step.kind is StepKind.CALL else results)[step.call_id] = step.body
    call_ids = sorted(
        (call_id for call_id in calls if results.get(call_id, {}).get("ok")), key=_position
    )
    if before is not None:
        call_ids = [call_id for call_id in call_ids if _position(call_id) < _position(before)]
    if not call_ids:
        return None
    items: dict[str, Json] = {}
    new_keys: set[str] = set()
    for call_id in call_ids:
        new_indexes = frozenset(_result_value(results[call_id]).get("new_at", ()))
        for index, item in enumerate(calls[call_id].get("arguments", {}).get("items", ())):
            key = item_key(item, key_field)
            if not key or key in items:
                continue
            items[key] = item
            if index in new_indexes:
                new_keys.add(key)
    return ReportedItems(
        new_items=[item for key, item in items.items() if key in new_keys],
        old_items=[item for key, item in items.items() if key not in new_keys],
        sightings=[sighting(item, key_field) for item in items.values()],
    )


def sighting(item: Json, key_field: str) -> ReportedItem:
    """Return an item as the journal keeps it."""
    key = item_key(item, key_field)
    title = _one_line(item.get("title"))[:MAX_TITLE_CHARACTERS]
    return ReportedItem(digest=digest_of(key), key=key, title=title)


def _position(call_id: str) -> tuple[int, ...]:
    """Return where in its run a call stands: the id `3.0` is that of the first call of iteration
    3.
    """
    return tuple(int(number) for number in call_id.split(".") if number.isdigit())


def _result_value(body: Json) -> Json:
    """Return what the tool returned; empty where the step holds something else."""
    if isinstance(body.get("value"), dict):  # of a script, whose steps keep it beside the text
        return dict(body["value"])
    try:
        value = json.loads(body["text"])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def report_new_items(reply: Reply, items: ReportedItems | None) -> Reply:
    """Return the reply with the new items as its report, silent if there are none.

    Whatever else the model wrote is not delivered. A model that wrote a report but reported no item
    by the tool has not done its task: the reply is a failure.
    """
    if reply.status is not Status.SUCCEEDED:
        return reply
    if items is None:
        if reply.silent:
            return reply
        detail = (
            f"the agent wrote a report without {REPORT_ITEMS}, so nobody knows what of it is new"
        )
        return replace(reply, status=Status.FAILED, detail=detail)
    if not items.new_items:
        return replace(reply, content="", silent=True, detail=items.silence_reason)
    return replace(reply, content=format_report(items), silent=False)


def format_report(items: ReportedItems) -> str:
    """Return the new items in Markdown."""
    suffix = f", {len(items.old_items)} seen before" if items.old_items else ""
    lines = [f"{len(items.new_items)} new{suffix}", ""]
    for item in items.new_items:
        title, date = _one_line(item.get("title")), _one_line(item.get("date"))
        lines.append(f"- **{title}**" + (f", {date}" if date else ""))
        details = (_one_line(item.get("text")), _one_line(item.get("url")))
        lines += [f"  {line}" for line in details if line]
    return "\n".join(lines)


def _one_line(value: object) -> str:
    return " ".join(str(value or "").split())
