"""One call of agentctl: what was asked for, whom to ask, where to write, and how it may end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from daemon.cli.client import Client, Problem, find
from daemon.cli.render import stderr_page, stdout_page

# Exit codes, as scripts know them (`agentctl help` lists them).
DONE, NOT_SUCCEEDED, USAGE, UNREACHABLE, NOT_FOUND, REFUSED, UNDELIVERED, SKIPPED, WAITING = range(
    9
)
DETACHED = 130  # as after any Ctrl-C: a script must not go on as if the run had succeeded

EXIT_CODES = (
    (DONE, "done (run: succeeded, its report delivered or on its way)"),
    (NOT_SUCCEEDED, "the run did not succeed, or something is wrong"),
    (USAGE, "the command line is wrong"),
    (UNREACHABLE, "no daemon answers"),
    (NOT_FOUND, "there is nothing of that name"),
    (REFUSED, "refused"),
    (UNDELIVERED, "the run succeeded, but its report could not be delivered"),
    (SKIPPED, "the run was skipped"),
    (WAITING, "the run waits for an approval"),
)
OF_STATUS = {
    "succeeded": DONE,
    "skipped": SKIPPED,
    "waiting": WAITING,
    "queued": DONE,
    "running": DONE,
}
OF_PROBLEM = {
    "not_found": NOT_FOUND,
    "refused": REFUSED,
    "busy": REFUSED,
    "invalid": REFUSED,
    "foreign": REFUSED,
    "bad_request": USAGE,
    "no_route": USAGE,
}


class Call:
    """One call of agentctl: what was asked for, whom to ask, where to write."""

    def __init__(self, socket: str | None, options: dict[str, Any]) -> None:
        self.options = options
        self.json: bool = options.get("json", False)
        self.socket = socket
        self.out, self.err = stdout_page(), stderr_page()
        self._client: Client | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def client(self) -> Client:
        """The daemon; Unreachable if there is none."""
        if self._client is None:
            named = bool(self.socket or os.environ.get("AGENTD_SOCKET"))
            self._client = find(places(self.socket, os.environ), named=named)
        return self._client

    def ask(self, method: str, target: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer; None where it was all that is wanted, and has been printed as it
        came.
        """
        if not self.json:
            return self.client.ask(method, target, body)
        self.out.say(self.client.text(method, target, body))
        return None

    def items(self, target: str) -> list[Any]:
        """Return all items of a list, however many pages they come in."""
        answer = self.client.ask("GET", target)
        items = list(answer["items"])
        while answer["next"] is not None:
            answer = self.client.ask("GET", f"{target}&cursor={quote(answer['next'])}")
            items += answer["items"]
        return items

    def say_json(self, value: Any) -> int:
        """Print what was put together from several answers."""
        import json

        self.out.say(json.dumps(value, ensure_ascii=False))
        return DONE


def places(named: str | None, env: Mapping[str, str]) -> Iterator[str]:
    """Yield where the daemon may listen, in order.

    Its likely place comes before daemon.definitions.paths is asked, and pathlib imported, for the
    others: 4 ms, a third of what Python itself takes.
    """
    likely = named or env.get("AGENTD_SOCKET") or f"{env.get('XDG_RUNTIME_DIR', '')}/agentd.sock"
    if likely != "/agentd.sock":
        yield likely
    from daemon.definitions.paths import socket_places, user_home

    for place in map(os.fspath, socket_places(named, env, user_home(), uid=os.getuid())):
        if place != likely:
            yield place


def exit_code_of(status: str, deliveries: Iterable[str]) -> int:
    """Return the exit code for a run of this status, whose deliveries have these."""
    code = OF_STATUS.get(status, NOT_SUCCEEDED)
    return UNDELIVERED if code == DONE and "failed" in deliveries else code


def quote(text: str) -> str:
    """Return text as part of a URL (RFC 3986); urllib.parse would cost 4 ms."""
    if not text:
        raise Problem(404, {"code": "not_found", "detail": "nothing has an empty name"})
    safe = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    return "".join(
        chr(byte) if byte in safe else f"%{byte:02X}"
        for byte in text.encode(errors="surrogateescape")
    )


NEW = 'agentctl new NAME "weekdays at 9am"'
"""What somebody without routines types next."""


def start_command() -> str:
    """Return what starts the daemon here: its unit if one is installed, else the command beside
    this one.
    """
    units = (
        (
            f"{os.environ.get('HOME', '')}/.config/systemd/user/agentd.service",
            "systemctl --user start agentd",
        ),
        ("/etc/systemd/system/agentd.service", "systemctl start agentd"),
    )
    for unit, command in units:
        if os.access(unit, os.F_OK):
            return command
    folder, slash, _ = sys.argv[0].rpartition("/")
    beside = f"{folder}/agentd"
    return beside if slash and os.access(beside, os.X_OK) else "agentd"
