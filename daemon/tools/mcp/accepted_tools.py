"""What MCP servers offered when it was accepted, and what they offer now.

The first tools of a server are accepted as they are. When a later listing differs from them, in a
name, a description or a schema, that is an incident until a person has accepted the change or the
server offers the accepted tools again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import structlog

from daemon.errors import NotFound, Refused
from daemon.models import Json

if TYPE_CHECKING:
    from daemon.delivery.outbox import Outbox
    from daemon.store.journal import Journal

log = structlog.get_logger()

MAX_NAMES_IN_ALERT = 8
_CAUSE = "its tools have changed"


class McpTool(NamedTuple):
    """One tool of a server."""

    name: str
    description: str
    parameters: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTools:
    """The tools of one server: the accepted ones, and those of its last listing."""

    server: str
    accepted: tuple[McpTool, ...]
    accepted_at: datetime
    offered: tuple[McpTool, ...]
    offered_at: datetime
    """When the last listing that differed from the one before was made."""
    problems: Mapping[str, str]
    """By name of an offered tool, why no run is offered it."""

    @property
    def digest(self) -> str:
        """SHA-256 over names, descriptions and schemas of the offered tools, in hex."""
        text = json.dumps(sorted(self.offered, key=lambda tool: tool.name), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def changed_names(self) -> list[str]:
        """Names of offered tools that were not accepted as they are now."""
        accepted_by_name = {tool.name: tool for tool in self.accepted}
        return [tool.name for tool in self.offered if accepted_by_name.get(tool.name) != tool]

    @property
    def removed_names(self) -> list[str]:
        """Names of accepted tools that are not offered any more."""
        offered_names = {tool.name for tool in self.offered}
        return [tool.name for tool in self.accepted if tool.name not in offered_names]

    @property
    def has_changed(self) -> bool:
        return bool(self.changed_names or self.removed_names)

    def describe_change(self) -> str:
        """Say in words which tools differ from the accepted ones.

        The names are the server's: of them only what names of tools are made of is quoted.
        """
        accepted_names = {tool.name for tool in self.accepted}
        kinds = {
            "new": [name for name in self.changed_names if name not in accepted_names],
            "changed": [name for name in self.changed_names if name in accepted_names],
            "gone": self.removed_names,
        }
        parts = []
        for kind, names in kinds.items():
            if names:
                quoted_names = [clean_name(name) for name in names[:MAX_NAMES_IN_ALERT]]
                more = len(names) - len(quoted_names)
                parts.append(
                    f"{kind}: {', '.join(quoted_names)}{f' and {more} more' if more else ''}"
                )
        return f"what it offers is not what was accepted ({'; '.join(parts)})"


def clean_name(name: str) -> str:
    """Return a tool's name with every character replaced that vendors refuse, at most 64 long."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def incident_subject(server: str) -> str:
    return f"mcp {server}"


class AcceptedTools:
    """Keeps in the journal what servers offer and what of it was accepted."""

    def __init__(self, journal: Journal, outbox: Outbox, *, clock: Callable[[], datetime]) -> None:
        self._journal, self._outbox, self._clock = journal, outbox, clock

    async def get(self, server: str) -> ServerTools | None:
        """Return what is known of a server; None if it was never listed, or if another version of
        agentd wrote what this one cannot read.
        """
        text = await self._journal.key_values.get(_key(server))
        return _restore(server, text) if text else None

    async def record(
        self, server: str, offered: Sequence[McpTool], problems: Mapping[str, str]
    ) -> ServerTools:
        """Write what a server offers now; open its incident if that is a change, or close it."""
        now, old_tools = self._clock(), await self.get(server)
        if old_tools is None:
            tools = ServerTools(
                server=server,
                accepted=tuple(offered),
                accepted_at=now,
                offered=tuple(offered),
                offered_at=now,
                problems=dict(problems),
            )
            await self._write(tools)
            log.info("mcp.accepted", server=server, tools=len(offered), by="first use")
            return tools
        tools = replace(old_tools, offered=tuple(offered), offered_at=now, problems=dict(problems))
        if tools.digest == old_tools.digest and tools.problems == old_tools.problems:
            return old_tools
        # the incident first: if the process ends between the two, the next listing reports it again
        if tools.has_changed and tools.digest != old_tools.digest:
            await self._report(tools)
        await self._write(tools)
        if old_tools.has_changed and not tools.has_changed:
            await self._resolve(server, "offers again what was accepted")
        return tools

    async def accept(self, server: str, digest: str) -> ServerTools:
        """Accept what a server offers. Raises NotFound if it was never listed, and Refused if what
        it offers is not what `digest` is of.
        """
        tools = await self.get(server)
        if tools is None:
            raise NotFound(
                f"the MCP server {server} has not been asked for its tools yet; the first run, or "
                "`agentctl preview`, of a routine that names them asks"
            )
        if tools.digest != digest:
            raise Refused(
                f"the tools of {server} have changed again; `agentctl mcp` shows what they are now"
            )
        tools = replace(tools, accepted=tools.offered, accepted_at=self._clock())
        await self._write(tools)
        await self._resolve(server, "its tools were accepted")
        log.info("mcp.accepted", server=server, tools=len(tools.offered), by="a person")
        return tools

    async def _report(self, tools: ServerTools) -> None:
        detail = tools.describe_change()
        log.warning("mcp.tools_changed", server=tools.server, detail=detail)
        await self._journal.incidents.report(
            incident_subject(tools.server),
            detail,
            cause=_CAUSE,
            advice="Runs that are offered the changed tools are tainted from their start until "
            f"somebody accepts them: `agentctl mcp` shows them, `agentctl mcp accept "
            f"{tools.server}` accepts them.",
        )
        self._outbox.wake()

    async def _resolve(self, server: str, reason: str) -> None:
        subject = incident_subject(server)
        await self._journal.incidents.resolve(subject, title=f"{subject}: {reason}")
        self._outbox.wake()

    async def _write(self, tools: ServerTools) -> None:
        record = {
            "accepted": tools.accepted,
            "accepted_at": tools.accepted_at.isoformat(),
            "offered": tools.offered,
            "offered_at": tools.offered_at.isoformat(),
            "problems": tools.problems,
        }
        await self._journal.key_values.put(_key(tools.server), json.dumps(record))


def _key(server: str) -> str:
    return f"mcp:{server}"


def _restore(server: str, text: str) -> ServerTools | None:
    try:
        record = json.loads(text)
        return ServerTools(
            server=server,
            accepted=tuple(McpTool(*tool) for tool in record["accepted"]),
            accepted_at=datetime.fromisoformat(record["accepted_at"]),
            offered=tuple(McpTool(*tool) for tool in record["offered"]),
            offered_at=datetime.fromisoformat(record["offered_at"]),
            problems=record["problems"],
        )
    except (ValueError, TypeError, KeyError) as error:
        log.warning("mcp.record_unreadable", server=server, error=str(error))
        return None
