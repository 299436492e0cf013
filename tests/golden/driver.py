"""Drive a real agentd and agentctl under a clock that stands still, and record what a user sees of
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import http.server
import json
import os
import queue
import re
import shutil
import signal
import socket
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tests.fakes.vendor import FakeVendor, Turn
from tests.golden.normalise import Normaliser
from tests.preloaded import BlockingProcess

ROOT = Path(__file__).parents[2]
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
DAY = "2031-03-03"  # a Monday, after the times that real files have
# The log events that are waited for: the daemon has seen the clock that was set, has read its
# files, has kept the old.
CLOCK_SET, RELOADED, KEPT = "engine.clock_set", "engine.reloaded", "definitions.kept"
UMASK = 0o022  # what agentctl writes for its user has modes that depend on it
# seconds that anything is waited for; more than a busy machine needs, less than the limit of a test
LIMIT = 300.0


SITE = Path(__file__).with_name("site")


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("agentd", timeout=LIMIT)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Result:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Stage:
    """A home, a state folder and a clock of their own, and the text of each surface so far.

    The processes are placed by environment variables and the current folder, as on a person's
    machine, so that the recorded command lines hold no paths: config in `home/`, data in `state/`,
    socket in `run/`.
    """

    def __init__(self) -> None:
        # directly in /tmp: the length of a path decides where lines are broken, and a socket's has
        # at most 107 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="golden-", dir="/tmp"))
        self.folder.chmod(
            0o711
        )  # tools of a root daemon run as another user, who has to get through
        self.home, self.state, self.run = (self.folder / name for name in ("home", "state", "run"))
        for path in (self.home, self.run):
            path.mkdir(mode=0o700)
        self.home.chmod(0o711)
        self.clock = self.folder / "clock"
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{SITE}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.folder),
            "USER": "ada",
            "LOGNAME": "ada",
            "STATE_DIRECTORY": str(self.state),
            "XDG_RUNTIME_DIR": str(self.run),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            "LINES": "40",
            "NO_COLOR": "1",
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # else a thread that waits for the interpreter does so by a busy loop
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
            "AGENTD_LONGEST_SLEEP": "0.05",
        }
        self.daemon: BlockingProcess | None = None
        self.followers: list[Follower] = []
        self.vendor: VendorThread | None = None
        self.receiver: Receiver | None = None
        self.cli: list[str] = []
        self.api: list[str] = []
        self.metrics = ""
        self.others: dict[str, str] = {}
        """More surfaces, by the name of their file."""
        self.set_clock("08:00:00")

    def close(self) -> None:
        """Stop whatever is still running and remove the folder."""
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(LIMIT)
            except TimeoutError:
                self.daemon.kill()
                self.daemon.wait(LIMIT)
        if self.daemon:
            self.daemon_out.close()
            self.daemon_err.close()
        for follower in self.followers:
            follower.kill()
        for server in (self.vendor, self.receiver):
            if server:
                server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what a scenario is made of

    def set_clock(self, moment: str) -> None:
        """Let the clock stand at a moment: a time of the first day, or a date and a time.

        All processes see it.
        """
        moment = moment if " " in moment else f"{DAY} {moment}"
        new = self.clock.with_suffix(".new")
        new.write_text(moment)
        new.rename(self.clock)
        if self.daemon and self.daemon.poll() is None:
            self.wait_for_log(CLOCK_SET, now=f"{moment.replace(' ', 'T')}+00:00")

    def write(self, name: str, text: str, mode: int = 0o600) -> None:
        """Write a file beside config.toml."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o711)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def start_vendor(self, turns: list[Turn]) -> str:
        """Start a vendor of models with this script and return its address."""
        self.vendor = VendorThread(turns)
        return self.vendor.url

    def make_workspace(self, files: dict[str, str]) -> None:
        """Put files into the workspace before the daemon makes it."""
        self.state.mkdir(mode=0o700, exist_ok=True)
        workspace = self.state / "workspace"
        workspace.mkdir(mode=0o700, exist_ok=True)
        for name, text in files.items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(text)
            (workspace / name).chmod(0o644)

    def start(self) -> None:
        """Start the daemon and return when it has said what it says at its start."""
        number = sum(line.startswith("$ agentd &") for line in self.cli)
        self.daemon_out = (self.folder / f"out{number}").open("w+")
        self.daemon_err = (self.folder / f"err{number}").open("w+")
        self.daemon = self._fork("agentd", (), self.daemon_out, self.daemon_err)

        def is_up() -> bool:
            assert self.daemon
            assert self.daemon.poll() is None, Path(self.daemon_err.name).read_text()
            if not Path(self.daemon_out.name).stat().st_size:
                return False
            with contextlib.suppress(OSError):
                return self.ask("GET", "/v1/status")[0] == 200
            return False

        self.wait(is_up, "the daemon to answer")
        self._record_command(
            "agentd &", Result(0, Path(self.daemon_out.name).read_text(), ""), code=False
        )

    def stop(self) -> None:
        """Stop the daemon, as systemd would, and record what it says."""
        assert self.daemon
        before = Path(self.daemon_out.name).read_text()
        self.daemon.terminate()
        code = self.daemon.wait(LIMIT)
        self._record_command(
            "kill -TERM $!", Result(code, Path(self.daemon_out.name).read_text()[len(before) :], "")
        )
        self.daemon_out.close()
        self.daemon_err.close()

    def agentctl(self, *words: str, stdin: str | None = None) -> Result:
        """Run a command line of agentctl to its end and record it."""
        return self._run("agentctl", words, stdin, record=True)

    def agentd(self, *words: str) -> Result:
        """Run a command line of agentd to its end and record it."""
        return self._run("agentd", words, None, record=True)

    def reload(self, edit: Callable[[], object], *, fault: bool = False) -> None:
        """Edit files and let the daemon read them for `agentctl reload`; it also reads them by
        itself, a second later.

        It stands still until the files are edited and `agentctl` waits for its answer, so that it
        cannot have read them by itself before: that second begins when it goes on. `fault`: it will
        keep the old.
        """
        assert self.daemon
        event, times = (KEPT, 1) if fault else (RELOADED, 2)
        before = sum(line["event"] == event for line in self.log_lines())
        daemon = self.daemon

        def edit_while_it_waits(process: BlockingProcess) -> None:
            try:
                self.wait(
                    lambda: _waits_for_an_answer(process.pid), "agentctl to wait for the daemon"
                )
                edit()
            finally:
                daemon.send_signal(signal.SIGCONT)

        daemon.send_signal(signal.SIGSTOP)
        self._run("agentctl", ("reload",), None, record=True, meanwhile=edit_while_it_waits)
        self.wait_for_log(event, before + times)

    def quietly(self, *words: str) -> Result:
        """Run a command line of agentctl that is not recorded."""
        return self._run("agentctl", words, None, record=False)

    def begin(self, *words: str) -> Follower:
        """Start a command line of agentctl that does not end by itself."""
        self.followers.append(Follower(self, words))
        return self.followers[-1]

    def run_until_heard(self, routine: str, follower: Follower) -> None:
        """Run a routine again and again until a follower has told of it."""

        def is_heard() -> bool:
            if routine in follower.text():
                return True
            self.post_unrecorded(f"/v1/routines/{routine}/run")
            self.wait_for_run(self.run_id(routine))
            return False

        self.wait(is_heard, f"{follower.words} to tell of {routine}")

    def record_follower(self, follower: Follower, *, holding: str, interrupt: bool = False) -> None:
        """Record those lines of a follower that hold a text; it ends with the daemon, or by
        Ctrl-C.
        """
        if interrupt:
            follower.process.send_signal(signal.SIGINT)
        result = follower.end()
        lines = sorted(
            line for line in result.out.splitlines() if holding in line
        )  # their order is not promised
        shown = " ".join(("agentctl", *follower.words))
        self._record_command(
            f"{shown}  # lines with {holding}", Result(result.code, "\n".join(lines), result.err)
        )

    def record_vendor(self) -> None:
        """Record what the vendor of models was asked, as the surface `vendor`."""
        assert self.vendor
        lines = []
        for request in self.vendor.vendor.requests:
            lines += [f"POST {request.path}", _indented(request.body), ""]
        self.others["vendor.txt"] = "\n".join(lines)

    def record_folder(self, name: str) -> None:
        """Record the files of a folder in home, as a surface of its own."""
        lines = []
        for path in sorted((self.home / name).iterdir()):
            lines += [f"--- {path.name}", *(_pretty_file(path)), ""]
        self.others[f"{name}.txt"] = "\n".join(lines)

    def document(self, target: str) -> str:
        """Return a JSON document of the API over several lines."""
        return _indented(self.ask("GET", target)[2]) + "\n"

    def get(self, target: str, *, without: tuple[str, ...] = ()) -> Any:
        """Ask the control API, record its answer but for the values of these keys, and return
        it.
        """
        return self._exchange("GET", target, None, without)

    def post(self, target: str, body: dict[str, Any] | None = None) -> Any:
        """Send something to the control API, record its answer, and return it."""
        return self._exchange("POST", target, body)

    def read_metrics(self) -> None:
        """Record what a monitoring system is told, as the surface `metrics`."""
        result = self.quietly("metrics")
        assert result.code == 0, result.err
        self.metrics = result.out

    def post_unrecorded(self, target: str) -> None:
        """Send something to the control API; record nothing."""
        self.ask("POST", target, {})

    def pending_approval(self) -> dict[str, Any]:
        """Return the one call that waits for a person."""
        (approval,) = (
            each
            for each in self.ask("GET", "/v1/approvals")[2]["items"]
            if each["status"] == "pending"
        )
        return dict(approval)

    # --- waiting

    def wait(self, is_so: Callable[[], object], what: str) -> Any:
        """Wait until something is so, and return what `is_so` returned."""
        end = time.monotonic() + LIMIT
        while not (value := is_so()):
            if time.monotonic() > end:
                raise AssertionError(
                    f"waited {LIMIT:.0f} s in vain for {what}; the log:\n{self.log_text()}"
                )
            time.sleep(0.02)
        return value

    def run_id(self, routine: str) -> str:
        """Return the id of the last run of a routine, once there is one."""

        def look() -> str | None:
            items = self.ask("GET", f"/v1/runs?routine={routine}&limit=1")[2].get("items")
            return items[0]["id"] if items else None

        return str(self.wait(look, f"a run of {routine}"))

    def wait_for_run(self, run: str, *statuses: str) -> None:
        """Wait until a run has one of these statuses; by default until it has ended."""
        wanted = statuses or (
            "succeeded",
            "failed",
            "cancelled",
            "skipped",
            "timed_out",
            "interrupted",
        )
        self.wait(
            lambda: self.ask("GET", f"/v1/runs/{run}")[2].get("status") in wanted,
            f"run {run} to be {wanted}",
        )

    def wait_for_runs(self, routine: str, count: int) -> None:
        """Wait until a routine has had so many runs."""
        self.wait(
            lambda: (
                len(self.ask("GET", f"/v1/runs?routine={routine}")[2].get("items", ())) >= count
            ),
            f"{count} runs of {routine}",
        )

    def wait_for_slots(self, routine: str, rows: int) -> None:
        """Wait until there are so many rows about the slots of a routine."""
        self.wait(
            lambda: (
                len(self.ask("GET", f"/v1/slots?routine={routine}")[2].get("items", ())) >= rows
            ),
            f"{rows} rows of slots of {routine}",
        )

    def wait_for_routine(self, name: str) -> None:
        """Wait until the daemon has read a routine."""
        self.wait(lambda: self.ask("GET", f"/v1/routines/{name}")[0] == 200, f"routine {name}")

    def wait_for_step(self, run: str, kind: str) -> None:
        """Wait until a run has a step of this kind."""
        self.wait(
            lambda: any(
                step["kind"] == kind
                for step in self.ask("GET", f"/v1/runs/{run}/steps")[2]["items"]
            ),
            f"a step {kind} of run {run}",
        )

    def wait_for_put_off(self, run: str) -> None:
        """Wait until a run is to go on later."""
        self.wait(
            lambda: self.ask("GET", f"/v1/runs/{run}")[2].get("not_before"),
            f"run {run} to be put off",
        )

    def _deliveries(self, run: str) -> list[dict[str, Any]]:
        return list(self.ask("GET", f"/v1/deliveries?run={run}")[2]["items"])

    def wait_for_delivery(self, run: str, count: int = 1) -> None:
        """Wait until so many deliveries of a run have arrived."""
        self.wait_for_run(run)
        self.wait(
            lambda: sum(each["status"] == "delivered" for each in self._deliveries(run)) >= count,
            f"{count} deliveries of run {run}",
        )

    def wait_for_settled_deliveries(self, run: str) -> None:
        """Wait until nothing of a run is still to be delivered."""
        self.wait_for_run(run)
        self.wait(
            lambda: all(
                each["status"] in ("delivered", "failed", "dropped")
                for each in self._deliveries(run)
            ),
            f"the deliveries of run {run}",
        )

    def wait_for_attempts(self, run: str, target: str, count: int) -> None:
        """Wait until a delivery of a run has been tried so often."""
        self.wait_for_run(run)
        self.wait(
            lambda: any(
                each["target"] == target and each["attempts"] >= count
                for each in self._deliveries(run)
            ),
            f"{count} attempts to deliver run {run} to {target}",
        )

    def wait_for_incident(self, times: int) -> None:
        """Wait until something is wrong that has happened so often."""

        def look() -> bool:
            items = self.ask("GET", "/v1/incidents")[2]["items"]
            return any(item["count"] >= times and not item["closed"] for item in items)

        self.wait(look, f"an incident that happened {times} times")

    def wait_for_no_incident(self) -> None:
        """Wait until nothing is wrong any more."""
        self.wait(
            lambda: not self.ask("GET", "/v1/incidents")[2]["items"], "the end of an incident"
        )

    def wait_for_log(self, event: str, times: int = 1, **fields: Any) -> None:
        """Wait until the log holds so many lines of an event with these fields."""
        wanted = {"event": event, **fields}
        self.wait(
            lambda: (
                len([line for line in self.log_lines() if wanted.items() <= line.items()]) >= times
            ),
            f"{times} x {wanted} in the log",
        )

    def ask(
        self, method: str, target: str, body: dict[str, Any] | None = None
    ) -> tuple[int, str, Any]:
        """Ask the control API and return status, content type and body; record nothing."""
        connection = UnixConnection(self.run / "agentd.sock")
        try:
            headers = {"content-type": "application/json"} if body is not None else {}
            connection.request(
                method, target, json.dumps(body) if body is not None else None, headers
            )
            answer = connection.getresponse()
            kind, raw = answer.headers.get("content-type", ""), answer.read().decode()
        finally:
            connection.close()
        return (
            answer.status,
            kind,
            json.loads(raw) if "json" in kind and "ndjson" not in kind else raw,
        )

    # --- recording

    def _fork(
        self, name: str, words: tuple[str, ...], out: IO[str], err: IO[str], stdin: str = ""
    ) -> BlockingProcess:
        return BlockingProcess(
            name,
            words,
            env=self.env,
            cwd=self.home,
            streams=(out.fileno(), err.fileno()),
            stdin=stdin,
            umask=UMASK,
        )

    def _run(
        self,
        name: str,
        words: tuple[str, ...],
        stdin: str | None,
        *,
        record: bool,
        meanwhile: Callable[[BlockingProcess], object] | None = None,
    ) -> Result:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self._fork(name, words, out, err, stdin or "")
            if meanwhile:
                meanwhile(process)
            code = process.wait(LIMIT)
            out.seek(0)
            err.seek(0)
            result = Result(code, out.read(), err.read())
        if record:
            shown = " ".join(
                [name, *(f"'{word}'" if " " in word or not word else word for word in words)]
            )
            self._record_command(f"{shown} < {stdin!r}" if stdin else shown, result)
        return result

    def _record_command(self, shown: str, result: Result, *, code: bool = True) -> None:
        out = [_pretty(line) for line in result.out.splitlines()]
        if shown.startswith("agentctl logs"):
            out.sort(
                key=lambda line: re.sub(r"[0-9A-Z]{26}", "", line)
            )  # the order of what happens at once
        # whether the first line of the report is shown as progress, too, depends on who is faster
        err = [
            line
            for line in result.err.splitlines()
            if not line.strip() or line.strip() not in result.out.split("\n")
        ]
        lines = [f"$ {shown}", *out, *(f"2> {line}".rstrip() for line in err)]
        self.cli.append("\n".join([*lines, *([f"[exit {result.code}]"] if code else []), ""]))

    def _exchange(
        self, method: str, target: str, body: dict[str, Any] | None, without: tuple[str, ...] = ()
    ) -> Any:
        status, kind, answer = self.ask(method, target, body)
        answer = _leave_out(answer, without)
        lines = [
            f"{method} {target}"
            + (f" {json.dumps(body, sort_keys=True)}" if body is not None else "")
        ]
        lines += [
            f"{status} {kind}",
            answer.rstrip("\n") if isinstance(answer, str) else _indented(answer),
            "",
        ]
        self.api.append("\n".join(lines))
        return answer

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the whole lines of the log file."""
        return [json.loads(line) for line in self.log_text().split("\n")[:-1]]

    def log_text(self) -> str:
        path = self.state / "logs" / "agentd.jsonl"
        return path.read_text() if path.exists() else ""

    def _files(self) -> Iterator[str]:
        """Yield what lies in the state folder (logs and database by name only), and in home what
        was not there.
        """
        for top in (self.home, self.state):
            for path in sorted([top, *top.rglob("*")] if top.exists() else []):
                about = path.lstat()
                name = path.relative_to(self.folder)
                yield f"{stat.filemode(about.st_mode)} {name}"
                shown = (
                    name.parts[0] == "state"
                    and path.is_file()
                    and name.suffix in (".md", ".txt", ".json", ".toml")
                )
                if shown:
                    yield from (f"  | {line}".rstrip() for line in path.read_text().splitlines())

    def schema(self) -> str:
        """Return the tables of the journal, as SQLite holds them."""
        connection = sqlite3.connect(f"file:{self.state / 'agentd.db'}?mode=ro", uri=True)
        try:
            rows = connection.execute(
                (  # noqa: UP034
                    "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY tbl_name, type "
                    "DESC, name"
                )
            ).fetchall()
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        finally:
            connection.close()
        lines = [f"user_version {version}"]
        for kind, name, table, sql in rows:
            lines += [
                "",
                f"{kind} {name} of {table}",
                *(" ".join(sql.split()).replace(", ", ",\n  ") if sql else "").splitlines(),
            ]
        return "\n".join(lines) + "\n"

    def surfaces(self, scenario: str) -> dict[str, str]:
        """Return the text of each surface by the name of its file, normalised."""
        raw = {
            "cli.txt": "\n".join(self.cli),
            "api.txt": "\n".join(self.api),
            "log.txt": _log_surface(self.log_lines()),
            "files.txt": "\n".join(self._files()) + "\n",
            "metrics.txt": self.metrics,
            **self.others,
        }
        normaliser = Normaliser(scenario, folder=self.folder, texts=raw.values())
        return {
            name: normaliser.normalise(name, text) for name, text in raw.items() if text.strip()
        }


class Follower:
    """A command line of agentctl that goes on until it is ended, writing into a file."""

    def __init__(self, stage: Stage, words: tuple[str, ...]) -> None:
        self.words = words
        number = len(list(stage.folder.glob("follower*")))
        self._out = (stage.folder / f"follower{number}").open("w+")
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed at its end
        self.process = stage._fork("agentctl", words, self._out, self._err)

    def text(self) -> str:
        """Return what it has said so far."""
        return Path(self._out.name).read_text()

    def kill(self) -> None:
        """End it, if it goes on."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        self._out.close()
        self._err.close()

    def end(self) -> Result:
        """Wait for its end."""
        code = self.process.wait(LIMIT)
        self._err.seek(0)
        result = Result(code, self.text(), self._err.read())
        self._out.close()
        self._err.close()
        return result


class VendorThread:
    """The fake vendor in a loop of its own."""

    def __init__(self, turns: list[Turn]) -> None:
        self._started: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(turns)), daemon=True)
        self._thread.start()
        self.url = self._started.get(timeout=LIMIT)

    async def _serve(self, turns: list[Turn]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with FakeVendor(turns) as vendor:
            self.vendor = vendor
            self._started.put(vendor.url)
            await self._stop.wait()

    def close(self) -> None:
        """Stop it and wait for its end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LIMIT)


def _waits_for_an_answer(pid: int) -> bool:
    """Tell whether a process has a socket and sleeps: it has sent its request, as nothing before
    that can block.
    """
    process = Path(f"/proc/{pid}")
    sockets = []
    for link in process.joinpath("fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            sockets += [link] if str(link.readlink()).startswith("socket:") else []
    return (
        bool(sockets) and process.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "S"
    )


class Receiver:
    """A server that takes webhooks and answers with one status after another."""

    def __init__(self, statuses: list[int]) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        left = list(statuses)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.requests.append(
                    (self.path, {key.lower(): text for key, text in self.headers.items()}, body)
                )
                self.send_response(left.pop(0) if left else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return what arrived: path, headers that are ours, body."""
        lines = []
        for path, headers, body in self.requests:
            lines += [f"POST {path}"]
            lines += [
                f"{key}: {text}"
                for key, text in sorted(headers.items())
                if key.startswith(("webhook-", "content-type"))
            ]
            lines += [_indented(json.loads(body)), ""]
        return "\n".join(lines)

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LIMIT)


def _pretty_file(path: Path) -> list[str]:
    text = path.read_text()
    with contextlib.suppress(ValueError):
        return _indented(json.loads(text)).splitlines()
    return text.splitlines()


def _pretty(line: str) -> str:
    """Return a line of JSON over several lines with sorted keys, anything else as it is."""
    if line.startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            return _indented(json.loads(line))
    return line.rstrip()


def _leave_out(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            key: "(left out)" if key in keys else _leave_out(each, keys)
            for key, each in value.items()
        }
    return [_leave_out(each, keys) for each in value] if isinstance(value, list) else value


def _indented(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)


def _log_surface(lines: list[dict[str, Any]]) -> str:
    """Return a line per event: when, how loud, its name, its fields."""
    texts = []
    for line in lines:
        fields = {key: value for key, value in line.items() if key not in ("at", "level", "event")}
        texts.append(
            (  # noqa: UP034
                f"{line['at']} {line['level']} {line['event']} "
                f"{json.dumps(fields, sort_keys=True, ensure_ascii=False)}"
            )
        )
    return "\n".join(texts) + "\n"
