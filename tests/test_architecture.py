"""The house stands as it was drawn: floors, families that do not know each other, and guests that have one host."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "daemon"

# From the ground up. A room imports rooms of lower floors only, so rooms of one floor are blind to each other.
FLOORS = (
    "models errors places beneath bell clock crontab http_body http_client journald neutral notify redact",
    "facts http_limit novelty retry",
    "definitions errands events forecast log metrics phrases schedule shipped store timer",
    "config due reload watching",
    "delivery functions injection memory policy providers routines sandbox skills",
    "almanac hindrances patience rehearsed shortage",
    "archive chain digest forget ledger mcp mirror money overlay outages recollection summary tools traces upkeep why",
    "agent needs",
    "approvals gather intercept pictures screen",
    "run",
    "replay talk",
    "executors host occasions",
    "delegation fleet rehearsals replays",
    "arrivals",
    "engine",
    "control",
    "backup doctor drafting encore new offspring rename transfer unit validate webhooks",
    "app",
    "life",
    "banner offer",
    "main",
)

# Third parties and the only rooms that know them: to replace one is to open these doors and no other.
HOSTS = {
    "anthropic": "providers",
    "apprise": "delivery",
    "apscheduler": "engine",
    "dbus_fast": "delivery",
    "docstring_parser": "functions",
    "certifi": "http_client",
    "procrastinate": "fleet",
    "httpcore": "tools",
    "genai_prices": "money",
    "httpx": "delivery memory providers tools",
    "idna": "policy",
    "httpx2": "http_limit mcp providers",
    "markdown_it": "delivery",
    "jinja2": "control",
    "markupsafe": "control",
    "mcp": "mcp",
    "openai": "providers",
    "psycopg": "fleet store",
    "rich": "control",
    "sqlalchemy": "store memory",
    "sqlmodel": "store memory",
    "standardwebhooks": "control delivery",
    "starlette": "control",
    "uvicorn": "control",
    "watchfiles": "bell",
}

# What the client must not drag in: it starts for every `agentctl list`, and most of its time is imports.
HEAVY = frozenset(
    [
        "anthropic",
        "apscheduler",
        "genai_prices",
        "httpx",
        "httpx2",
        "jinja2",
        "openai",
        "pydantic",
        "sqlalchemy",
        "sqlmodel",
    ]
)

# What the idle daemon does without until a run needs it.
LATER = frozenset(
    [
        "anthropic",
        "apprise",
        "genai_prices",
        "httpcore",
        "httpx",
        "httpx2",
        "openai",
        "opentelemetry",
        "sqlalchemy",
        "sqlmodel",
    ]
)

# What a start does without: it serves runs, commands, other ways to start, or the network, and comes when one needs it.
NOT_YET = frozenset(
    [
        *("urllib.request", "standardwebhooks", "pydantic.networks", "pydantic.dataclasses"),
        *("daemon.agent", "daemon.control.public", "daemon.digest", "daemon.host", "daemon.injection", "daemon.mirror"),
        *("daemon.neutral", "daemon.rehearsals", "daemon.run", "daemon.traces", "daemon.upkeep"),
    ]
)

# Names that say "everything else".
NO_ROOMS = frozenset(
    ["base_classes", "common", "core", "helper", "helpers", "manager", "misc", "service", "util", "utils"]
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file of the house, parsed."""

    name: str
    """Without the package: `store.journal`, `run`; the package itself is empty."""
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]


@cache
def modules() -> tuple[Module, ...]:
    paths = [path for path in HOUSE.rglob("*.py") if "_shipped" not in path.parts]
    return tuple(Module(name=_name(path), tree=ast.parse(path.read_bytes())) for path in sorted(paths))


def _name(path: Path) -> str:
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names that these import statements mention; `from a import b` is `a.b`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what is executed when a module is imported: no bodies of functions, nothing for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from (deeper for other in node.orelse for deeper in (other, *at_import(other)))
            continue
        yield node
        yield from at_import(node)


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{inside}{node.name}", node
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from functions(node, f"{inside}{node.name}." if named else inside)


def floor_of(room: str) -> int:
    for number, rooms in enumerate(FLOORS):
        if room in rooms.split():
            return number
    pytest.fail(f"{room} stands on no floor: give it one in FLOORS")


def test_every_room_stands_on_a_floor():
    rooms = {module.room for module in modules()} - {""}
    known = {room for floor in FLOORS for room in floor.split()}
    assert rooms == known


def test_arrows_point_down():
    wrong = {
        f"{module.name} imports {name}"
        for module in modules()
        for name in imports(ast.walk(module.tree))
        if name.startswith("daemon.") and (room := name.split(".")[1]) != module.room and room != "__version__"
        if module.room == "" or floor_of(room) >= floor_of(module.room)
    }
    assert not wrong


def test_a_guest_has_one_host():
    wrong = {
        f"{module.name} imports {name}"
        for module in modules()
        for name in imports(ast.walk(module.tree))
        if module.room not in HOSTS.get(name.partition(".")[0], module.room).split()
    }
    assert not wrong


def test_relative_imports_are_not_used():
    wrong = [
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not wrong


@cache
def imported_by_each() -> dict[str, list[str]]:
    """Return what importing each module of the house imports itself."""
    return {module.name: list(imports(at_import(module.tree))) for module in modules()}


def reached_from(*starts: str) -> set[str]:
    """Return every name that importing these modules imports, through the whole house."""
    imported = imported_by_each()
    reached: set[str] = set()
    todo = list(starts)
    while todo:
        name = todo.pop()
        for found in imported[name]:
            if found in reached:
                continue
            reached.add(found)
            parts = found.split(".")
            if parts[0] == "daemon":
                todo += [place for n in range(1, len(parts)) if (place := ".".join(parts[1 : n + 1])) in imported]
    return reached


def test_the_client_imports_neither_sdk_nor_sql_nor_pydantic():
    drags = {name for name in reached_from("control.cli", "control.client") if name.partition(".")[0] in HEAVY}
    assert not drags


def python(code: str, *arguments: str, cwd: Path | None = None, path: Path = HOUSE.parent) -> str:
    """Run code in a fresh interpreter that finds modules in `path` and leaves no trace; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", code, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(*names: str) -> set[str]:
    """Return the top-level packages in memory once these modules are imported for real."""
    printed = python(f"import {', '.join(names)}, sys; print(*sys.modules)")
    return {name.partition(".")[0] for name in printed.split()}


def test_the_client_really_is_light():
    assert not loaded_by("daemon.control.cli", "daemon.control.client") & (HEAVY | {"asyncio", "argparse"})


def test_the_daemon_starts_without_sdk_and_sqlmodel():
    assert not loaded_by("daemon.main", "daemon.app") & LATER


def test_a_start_imports_nothing_that_can_come_later():
    printed = python("import daemon.main, sys\nfrom daemon import app, life\nprint(*sys.modules)")
    assert not set(printed.split()) & NOT_YET


# Imports modules in a fresh interpreter and prints what they did besides: written, bound, started, or read from the
# environment by a file of ours (what libraries read of it is their affair).
SPY = """
import importlib, os, sys, threading
house, names = sys.argv[1], sys.argv[2:]
seen = []

def asked_by_us(frame):
    while frame and frame.f_code.co_filename in ("<string>", os.__file__, "<frozen os>", "<frozen _collections_abc>"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(house)

class Environment(type(os.environ)):
    def __getitem__(self, key):
        if asked_by_us(sys._getframe(1)):
            seen.append(f"reads ${key}")
        return super().__getitem__(key)

ACTS = {"os.mkdir", "os.remove", "os.rename", "os.chmod", "os.putenv", "os.fork", "socket.bind", "socket.connect",
        "sqlite3.connect", "subprocess.Popen", "signal.signal"}

def hook(event, args):
    if event in ACTS:
        seen.append(f"{event} {args}")
    elif event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen.append(f"writes {args[0]}")

spy = Environment.__new__(Environment)
spy.__dict__.update(os.environ.__dict__)
os.environ = spy
sys.addaudithook(hook)
for name in names:
    importlib.import_module(name)
seen += [f"starts {thread.name}" for thread in threading.enumerate() if thread is not threading.main_thread()]
print("\\n".join(seen))
"""


# What extras of pyproject.toml bring, and the tests' own environment need not have.
OPTIONAL = ("apprise", "dbus_fast", "mcp", "numpy", "onnxruntime", "opentelemetry", "procrastinate", "psycopg", "rich")


def test_importing_a_module_does_nothing(tmp_path):
    absent = {name for name in OPTIONAL if find_spec(name) is None}
    names = [
        f"daemon.{module.name}".rstrip(".")
        for module in modules()
        if absent.isdisjoint(found.partition(".")[0] for found in reached_from(module.name))
    ]
    assert python(SPY, str(HOUSE), *names, cwd=tmp_path).split("\n") == ["", ""]
    assert list(tmp_path.iterdir()) == []


def test_the_spy_would_notice(tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import os, pathlib\nos.environ.get('HOME')\nos.getenv('X')\npathlib.Path('left.txt').touch()\n"
    )
    printed = python(SPY, str(tmp_path), "noisy", cwd=tmp_path, path=tmp_path)
    assert printed.split("\n")[:3] == ["reads $HOME", "reads $X", "writes left.txt"]


def test_rooms_are_named_after_what_is_in_them():
    wrong = [module.name for module in modules() if NO_ROOMS & set(module.name.split("."))]
    assert not wrong


def test_every_folder_has_a_sign_and_every_file_a_first_sentence():
    silent = [module.name for module in modules() if not ast.get_docstring(module.tree)]
    assert not silent


def own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own(node)


# These take note of a cancellation, do what must be done, and raise it then.
RAISED_LATER = {"sandbox.running:_to_the_end"}


def test_a_cancellation_is_passed_on():
    swallowed = {
        f"{module.name}:{name}"
        for module in modules()
        for name, function in functions(module.tree)
        for node in own(function)
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        if "CancelledError" in ast.dump(node.type) and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    }
    assert swallowed == RAISED_LATER


@cache
def known_anywhere() -> set[str]:
    """Return the top-level packages that any room imports."""
    return {found.partition(".")[0] for module in modules() for found in imports(ast.walk(module.tree))}


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_the_list_of_guests_is_not_out_of_date(name):
    assert name in known_anywhere()
