"""The rows of `doctor` about the database server of `[store] url`: whether it answers and can be
used, and whether its clock is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from daemon.app.doctor.check import Check
from daemon.errors import DaemonError
from daemon.store.offline import DatabaseServer, probe
from daemon.store.workers import MAX_CLOCK_SKEW

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config


def find_server(config: Config | None, env: Mapping[str, str]) -> DatabaseServer | str | None:
    """Return the server of the journal, or why it could not be asked; None where the journal is in
    a file.
    """
    try:
        url = config.store_url(env) if config else ""
        return probe(url) if url else None
    except DaemonError as error:
        return str(error)


def check_server(server: DatabaseServer | str | None) -> Iterator[Check]:
    """Judge the answer of `find_server`."""
    if server is None:
        return
    if isinstance(server, str):
        fix = "start the server, or mend [store] in config.toml"
        yield Check(name="database", state="fail", found=server, fix=fix)
        return
    name = f"{server.place}, PostgreSQL {server.version}"
    if server.reads_only:
        fix = "name the server that writes in [store] url"
        yield Check(name="database", state="fail", found=f"{name}, which only reads", fix=fix)
    elif server.schema > server.newest:
        text = f"{name}, of a newer agentd (schema {server.schema}, this one knows {server.newest})"
        fix = "upgrade agentd on this machine as well"
        yield Check(name="database", state="fail", found=text, fix=fix)
    elif server.schema:
        yield Check(name="database", state="ok", found=f"{name}, schema {server.schema}")
    else:
        text = f"{name}, no tables yet: the first start makes them"
        yield Check(name="database", state="ok", found=text)
    # Leases are measured by the clock of the server alone, but when a slot is due by the clock of
    # this machine.
    if abs(server.ahead) > MAX_CLOCK_SKEW.total_seconds():
        direction = "ahead of" if server.ahead > 0 else "behind"
        yield Check(
            name="server clock",
            state="warn",
            found=f"that of the server is {abs(server.ahead):.0f} s {direction} ours",
            fix="let both machines follow a time server",
        )
