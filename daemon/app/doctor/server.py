"""The database of `[store] url`: whether it answers, is ours to use, and has the right time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from daemon.errors import DaemonError
from daemon.store.offline import DatabaseServer, probe

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config

# Leases are measured by the server's clock alone; when a slot is due, by ours.
_SKEW = 5.0


def look(config: Config | None, env: Mapping[str, str]) -> DatabaseServer | str | None:
    """Return what there is to see of the server, or why nothing is; None where the journal is in a
    file.
    """
    try:
        url = config.store_url(env) if config else ""
        return probe(url) if url else None
    except DaemonError as error:
        return str(error)


def rows(state: DatabaseServer | str | None) -> Iterator[tuple[str, str, str, str]]:
    """Yield (name, state, found, fix)."""
    if state is None:
        return
    if isinstance(state, str):
        yield "database", "fail", state, "start the server, or mend [store] in config.toml"
        return
    server = f"{state.place}, PostgreSQL {state.version}"
    if state.reads_only:
        yield (
            "database",
            "fail",
            f"{server}, which only reads",
            "name the server that writes in [store] url",
        )
    elif state.schema > state.newest:
        text = f"{server}, of a newer agentd (schema {state.schema}, this one knows {state.newest})"
        yield "database", "fail", text, "upgrade agentd on this machine as well"
    else:
        tables = (
            f"schema {state.schema}"
            if state.schema
            else "no tables yet: the first start makes them"
        )
        yield "database", "ok", f"{server}, {tables}", ""
    if abs(state.ahead) > _SKEW:
        text = (
            f"that of the server is {abs(state.ahead):.0f} s "
            f"{'ahead of' if state.ahead > 0 else 'behind'} ours"
        )
        yield "server clock", "warn", text, "let both machines follow a time server"
