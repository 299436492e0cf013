"""Which items of a run are new: the daemon knows what it has reported, whatever the model says.

Theory of operation. A routine with `[dedupe]` reports through the tool `report_items` and in no
other way. Each call's result says which of its items are new; from then on the journal alone
decides, so a run that is resumed or played again comes to the same report. What was reported is
known as seen in the very commit that hands the report to the outbox: a run that dies before that
has reported nothing, and the next one reports the same items.
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
LONGEST_TITLE = 300

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
    """What a run has reported, each item once."""

    new: Sequence[Json]
    seen: Sequence[Json]
    sightings: Sequence[ReportedItem]
    """Of all of them: what is still listed stays known."""

    @property
    def silence(self) -> str:
        """Why there is nothing to tell."""
        count = len(self.seen)
        if not count:
            return "nothing new: no items"
        return f"nothing new: {count} item{'' if count == 1 else 's, all'} seen before"


def key_of(item: Json, by: str) -> str:
    """Return what tells an item from others; empty if it does not say."""
    value = _line(unicodedata.normalize("NFC", str(item.get(by) or "")))
    return _line(normal_url(value)) if by == "url" else value


def normal_url(url: str) -> str:
    """Return one form for addresses that surely name the same thing (RFC 3986, 6.2); another text
    as it is.

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
    shown = "" if port is None or str(port) == _PORTS[scheme] else f":{port}"
    query = "&".join(part for part in parts.query.split("&") if part and not _TRACKING.match(part))
    # `#!/x` and `#/x` are how pages without a server of their own name what they show
    fragment = parts.fragment if parts.fragment.startswith(("!", "/")) else ""
    path = _without_dots(_escaped(parts.path)) or "/"
    return urlunsplit(
        (scheme, f"{user}{at}{host}{shown}", path, _escaped(query), _escaped(fragment))
    )


def _escaped(text: str) -> str:
    """Return text with its escapes in one form: none where none is needed, else in capitals."""

    if _BROKEN.search(text):
        return text

    def one(found: re.Match[str]) -> str:
        (byte,) = unquote_to_bytes(found[0])
        return chr(byte) if byte in _UNRESERVED else found[0].upper()

    return _ESCAPE.sub(one, text)


def _without_dots(path: str) -> str:
    """Return a path without `.` and `..` (RFC 3986, 5.2.4)."""
    parts, kept = path.split("/"), list[str]()
    for part in parts:
        if part == "..":
            kept = kept[:-1] if len(kept) > 1 else kept
        elif part != ".":
            kept.append(part)
    return "/".join([*kept, ""] if parts[-1] in (".", "..") else kept)


def reported(steps: Iterable[Step], by: str, *, before: str | None = None) -> ReportedItems | None:
    """Return what the calls of a run have reported, or those before the call of that key; None if
    there was none.
    """
    calls: dict[str, Json] = {}
    results: dict[str, Json] = {}
    for step in steps:
        if step.body.get("tool") == REPORT_ITEMS and step.call_id:
            (calls if step.kind is StepKind.CALL else results)[step.call_id] = step.body
    keys = sorted((key for key in calls if results.get(key, {}).get("ok")), key=_place)
    if before is not None:
        keys = [key for key in keys if _place(key) < _place(before)]
    if not keys:
        return None
    told: dict[str, tuple[Json, bool]] = {}
    for key in keys:
        fresh = frozenset(_answer(results[key]).get("new_at", ()))
        for number, item in enumerate(calls[key].get("arguments", {}).get("items", ())):
            if name := key_of(item, by):
                told.setdefault(name, (item, number in fresh))
    return ReportedItems(
        new=[item for item, new in told.values() if new],
        seen=[item for item, new in told.values() if not new],
        sightings=[sighting(item, by) for item, _ in told.values()],
    )


def sighting(item: Json, by: str) -> ReportedItem:
    key = key_of(item, by)
    return ReportedItem(
        digest=digest_of(key), key=key, title=_line(item.get("title"))[:LONGEST_TITLE]
    )


def _place(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.split(".") if part.isdigit())


def _answer(body: Json) -> Json:
    try:
        found = json.loads(body["text"])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def judged(reply: Reply, haul: ReportedItems | None) -> Reply:
    """Return the reply with the new items as its report, in silence if there are none.

    Whatever else the model wrote is not delivered. One that wrote a report but reported no item by
    the tool has not done its task.
    """
    if reply.status is not Status.SUCCEEDED:
        return reply
    if haul is None:
        if reply.silent:
            return reply
        detail = (
            f"the agent wrote a report without {REPORT_ITEMS}, so nobody knows what of it is new"
        )
        return replace(reply, status=Status.FAILED, detail=detail)
    if not haul.new:
        return replace(reply, content="", silent=True, detail=haul.silence)
    return replace(reply, content=report(haul), silent=False)


def report(haul: ReportedItems) -> str:
    """Return the new items in Markdown."""
    seen = f", {len(haul.seen)} seen before" if haul.seen else ""
    return "\n".join([f"{len(haul.new)} new{seen}", "", *(_shown(item) for item in haul.new)])


def _shown(item: Json) -> str:
    title, text, date, url = (_line(item.get(part)) for part in ("title", "text", "date", "url"))
    head = f"- **{title}**" + (f", {date}" if date else "")
    return "\n".join([head, *(f"  {line}" for line in (text, url) if line)])


def _line(value: object) -> str:
    return " ".join(str(value or "").split())
