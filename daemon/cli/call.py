"""One call of agentctl: its options, its client, its output, and how it may end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from daemon.cli.client import ApiError, Client, open_first
from daemon.cli.render import DIM, stderr_stream, stdout_stream

if TYPE_CHECKING:
    from typing import Any

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
    (75, "try later: a daemon has the state folder, or its database server is away"),
    (78, "a file cannot be used: config, policy, a routine, or the database"),
    (DETACHED, "Ctrl-C ended the command"),
)
EXIT_CODE_BY_STATUS = {
    "succeeded": DONE,
    "skipped": SKIPPED,
    "waiting": WAITING,
    "queued": DONE,
    "running": DONE,
}
EXIT_CODE_BY_PROBLEM = {
    "not_found": NOT_FOUND,
    "refused": REFUSED,
    "busy": REFUSED,
    "invalid": REFUSED,
    "foreign": REFUSED,
    "read_only": REFUSED,
    "bad_request": USAGE,
    "no_route": USAGE,
}

MAX_LIMIT = 1000  # of -n: items of one answer; the API refuses more

# What somebody without routines types next.
NEW_ROUTINE_COMMAND = 'agentctl new NAME "weekdays at 9am"'


class Call:
    """One call of agentctl; each option of its verb is an attribute (`call.limit`).

    `socket` is the path that the command line names, or None.
    """

    def __init__(self, socket: str | None, options: dict[str, Any]) -> None:
        self.options = options
        self.json: bool = options.get("json", False)
        self.socket = socket
        self.out, self.err = stdout_stream(), stderr_stream()
        self._client: Client | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def client(self) -> Client:
        """The client of the daemon; raises Unreachable if there is none."""
        if self._client is None:
            is_trusted = bool(self.socket or os.environ.get("AGENTD_SOCKET"))
            paths = socket_candidates(self.socket, os.environ)
            self._client = open_first(paths, is_trusted=is_trusted)
        return self._client

    def close(self) -> None:
        """Close the connection to the daemon, if there is one."""
        if self._client is not None:
            self._client.close()

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer, or with --json print the answer as it came and return None."""
        if not self.json:
            return self.client.request(method, path, body)
        self.out.write_line(self.client.request_text(method, path, body))
        return None

    def request_and_print(self, method: str, path: str) -> Any:
        """Return the answer; with --json also print it as it came. For a verb whose exit code
        depends on it.
        """
        import json

        text = self.client.request_text(method, path)
        if self.json:
            self.out.write_line(text)
        return json.loads(text)

    def request_items(self, path: str) -> list[Any]:
        """Return all items of a list, from all its pages."""
        return [item for page in self.request_pages(path) for item in page]

    def request_pages(self, path: str) -> Iterator[list[Any]]:
        """Yield the pages of a list, each as soon as it is there; there is at least one."""
        answer = self.client.request("GET", path)
        yield answer["items"]
        while answer["next"] is not None:
            answer = self.client.request("GET", f"{path}&cursor={quote(answer['next'])}")
            yield answer["items"]

    def write_hint_for_more(self, answer: Mapping[str, Any], other_way: str) -> None:
        """Say that a list has left items out behind its `limit`, if it has, and how to see them;
        `other_way` where it is as long as a list can be.
        """
        if answer["next"] is not None:
            text = f"there are more: {hint_for_more(self.limit, other_way)}"
            self.out.write_line(self.out.paint(text, DIM))

    def print_json(self, value: Any) -> int:
        """Print a value that was put together from several answers; return DONE."""
        import json

        self.out.write_line(json.dumps(value, ensure_ascii=False))
        return DONE


def socket_candidates(socket_option: str | None, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths where the daemon may listen, the likeliest first.

    The likeliest path comes before daemon.definitions.paths, and with it pathlib, is imported for
    the others: 4 ms, a third of what Python itself takes.
    """
    likeliest = (
        socket_option or env.get("AGENTD_SOCKET") or f"{env.get('XDG_RUNTIME_DIR', '')}/agentd.sock"
    )
    if likeliest != "/agentd.sock":
        yield likeliest
    from daemon.definitions.paths import socket_paths, user_home

    for path in map(os.fspath, socket_paths(socket_option, env, user_home(), uid=os.getuid())):
        if path != likeliest:
            yield path


def exit_code_of(status: str, delivery_statuses: Iterable[str]) -> int:
    """Return the exit code for a run of this status, and of the statuses of its deliveries."""
    code = EXIT_CODE_BY_STATUS.get(status, NOT_SUCCEEDED)
    return UNDELIVERED if code == DONE and "failed" in delivery_statuses else code


def hint_for_more(limit: int, other_way: str) -> str:
    """Return how to see what a list of `limit` has left out; `other_way` where it is as long as a
    list can be.
    """
    if limit >= MAX_LIMIT:
        return other_way
    return f"-n {min(limit * 5, MAX_LIMIT)} shows them"


def quote(text: str) -> str:
    """Return text as part of a URL (RFC 3986); raise ApiError if it is empty.

    urllib.parse would cost 4 ms.
    """
    if not text:
        raise ApiError(404, {"code": "not_found", "detail": "nothing has an empty name"})
    unreserved_bytes = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    return "".join(
        chr(byte) if byte in unreserved_bytes else f"%{byte:02X}"
        for byte in text.encode(errors="surrogateescape")
    )


def start_command() -> str:
    """Return the command that starts the daemon on this machine.

    It starts the systemd unit if one is installed, else the `agentd` beside this `agentctl`.
    """
    home = os.environ.get("HOME", "")
    units = (
        (f"{home}/.config/systemd/user/agentd.service", "systemctl --user start agentd"),
        ("/etc/systemd/system/agentd.service", "systemctl start agentd"),
    )
    for unit, command in units:
        if os.access(unit, os.F_OK):
            return command
    folder, slash, _ = sys.argv[0].rpartition("/")
    agentd = f"{folder}/agentd"
    return agentd if slash and os.access(agentd, os.X_OK) else "agentd"


def agentctl_command() -> str:
    """Return the command by which a shell in the current folder reaches agentctl.

    Where it is not on the PATH that is the path of the `agentctl` beside this program.
    """
    from pathlib import Path
    from shlex import quote as shell_quote
    from shutil import which

    if which("agentctl"):
        return "agentctl"
    for program in (sys.argv[0], sys.executable):
        agentctl = Path(program).absolute().with_name("agentctl")
        if "/" in program and os.access(agentctl, os.X_OK):
            folder = Path.cwd()
            is_below = agentctl.is_relative_to(folder)
            return shell_quote(str(agentctl.relative_to(folder) if is_below else agentctl))
    return "agentctl"
