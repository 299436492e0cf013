"""Packages import downwards only, siblings do not know each other, and each third party has its
place.
"""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import pytest

DAEMON = Path(__file__).parents[1] / "daemon"

# From the ground up. A package imports packages of lower layers only, so packages of one layer are
# siblings that do not know each other.
LAYERS = (
    "models errors durations plurals token_estimate",
    "system",
    "telemetry",
    "definitions",
    "store",
    "policy sandbox injection",
    "providers memory delivery",
    "tools",
    "agent",
    "runs",
    "scheduler",
    "api chat",
    "web app",
    "testing",
)

# The command line stands beside the layers: it is a client of the socket. These it may import
# besides itself; of all packages only the web page and the command line of agentd may import it.
FOR_THE_CLI = (
    "daemon.models",
    "daemon.errors",
    "daemon.durations",
    "daemon.plurals",
    "daemon.definitions.paths",
    "daemon.__version__",
)
CLI_IS_FOR = ("cli", "web", "app")

# Third parties and the only packages that import them.
HOSTS = {
    "anthropic": "providers",
    "apprise": "delivery",
    "apscheduler": "scheduler",
    "certifi": "system",
    "dbus_fast": "delivery",
    "docstring_parser": "tools",
    "genai_prices": "providers",
    "httpcore": "tools",
    "httpx": "chat delivery memory providers tools",
    "httpx2": "providers system tools",
    "idna": "policy",
    "jinja2": "web",
    "jsonschema": "runs",
    "markdown_it": "cli delivery",
    "markupsafe": "web",
    "mcp": "cli tools",
    "openai": "providers",
    "procrastinate": "scheduler",
    "psycopg": "scheduler store",
    "rich": "cli",
    "sqlalchemy": "memory store",
    "sqlmodel": "memory store",
    "standardwebhooks": "api delivery",
    "starlette": "api web",
    "tzlocal": "definitions",
    "uvicorn": "api",
    "watchfiles": "system",
}

# What the client must not drag in: it starts for every `agentctl list`, and most of its time is
# imports.
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

# What a start does without: it serves runs, commands, other ways to start, or the network, and
# comes when one needs it.
NOT_YET = frozenset(
    [
        "daemon.agent.agent",
        "daemon.agent.loop",
        "daemon.agent.prompt",
        "daemon.agent.tool_calls",
        "daemon.agent.transcript",
        "daemon.api.public",
        "daemon.chat.chats",
        "daemon.chat.inbound",
        "daemon.delivery.digest",
        "daemon.delivery.sanitize",
        "daemon.injection.check",
        "daemon.memory.markdown_mirror",
        "daemon.providers.traced",
        "daemon.runs.context",
        "daemon.runs.rehearsal.rehearsals",
        "daemon.runs.run",
        "daemon.runs.tracing",
        "daemon.store.maintenance",
        "daemon.telemetry.span_exporter",
        "pydantic.dataclasses",
        "pydantic.networks",
        "standardwebhooks",
        "urllib.request",
    ]
)

# Names that say "everything else".
EMPTY_NAMES = frozenset(
    [
        "base_classes",
        "common",
        "core",
        "helper",
        "helpers",
        "manager",
        "misc",
        "service",
        "util",
        "utils",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file beneath daemon/, parsed."""

    name: str
    """Without `daemon.`: `store.journal`, `models`; the package itself is empty."""
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """The dotted names that the module imports anywhere."""
        return tuple(imports(self.nodes))


@cache
def modules() -> tuple[Module, ...]:
    """Return all modules, by their names. They stay: to look for garbage among their half a million
    nodes takes longer than to parse them.
    """
    paths = [path for path in DAEMON.rglob("*.py") if "_shipped" not in path.parts]
    gc.disable()
    parsed = tuple(
        Module(name=_name(path), tree=ast.parse(path.read_bytes())) for path in sorted(paths)
    )
    gc.freeze()
    gc.enable()
    return parsed


def _name(path: Path) -> str:
    parts = path.relative_to(DAEMON).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names that these import statements mention; `from a import b` is `a.b`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what is executed when a module is imported: no bodies of functions, nothing for type
    checkers only.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from (
                deeper for statement in node.orelse for deeper in (statement, *at_import(statement))
            )
            continue
        yield node
        yield from at_import(node)


def functions(
    tree: ast.AST, inside: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{inside}{node.name}", node
        has_name = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from functions(node, f"{inside}{node.name}." if has_name else inside)


def layer_of(package: str) -> int:
    for number, packages in enumerate(LAYERS):
        if package in packages.split():
            return number
    return len(LAYERS)  # another test says that it stands on none


@cache
def module_names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def module_named(name: str) -> str:
    """Return the module that a dotted name `daemon.a.b` is or lies in, without `daemon.`."""
    names = module_names()
    parts = name.split(".")[1:]
    while parts and ".".join(parts) not in names:
        parts.pop()
    return ".".join(parts)


def is_wrong(importer: str, name: str) -> bool:
    """Say whether a module may not import a dotted name of ours."""
    if name.startswith("daemon.__"):
        return False
    package, package_name = importer.partition(".")[0], name.split(".")[1]
    # daemon/__init__.py offers the public names, each when it is asked for
    if package in (
        "",
        package_name,
    ):
        return False
    if package == "cli":
        return not name.startswith(FOR_THE_CLI)
    if package_name == "cli":
        return package not in CLI_IS_FOR
    return layer_of(package_name) >= layer_of(package)


def wrong_arrows() -> set[str]:
    """Return each import that points upwards or to a sibling, as `importer -> imported`."""
    return {
        f"{module.name or 'daemon'} -> {module_named(name)}"
        for module in modules()
        for name in module.imports
        if name.startswith("daemon.") and is_wrong(module.name, name)
    }


def circles(*, at_run_time: bool = False) -> set[str]:
    """Return the modules of each circle of imports, joined by spaces; `at_run_time`: of what
    importing executes.
    """
    graph = {}
    for module in modules():
        names_imported = imports(at_import(module.tree)) if at_run_time else module.imports
        names = {module_named(name) for name in names_imported if name.startswith("daemon.")}
        graph[module.name] = sorted(names - {"", module.name})
    cycles: set[str] = set()
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        """Find strongly connected modules by Tarjan's algorithm."""
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for neighbour in graph[name]:
            if neighbour not in numbers:
                visit(neighbour)
                lowest[name] = min(lowest[name], lowest[neighbour])
            elif neighbour in stack:
                lowest[name] = min(lowest[name], numbers[neighbour])
        if lowest[name] == numbers[name]:
            circle = []
            while not circle or circle[-1] != name:
                circle.append(stack.pop())
            if len(circle) > 1:
                cycles.add(" ".join(sorted(circle)))

    for name in graph:
        if name not in numbers:
            visit(name)
    return cycles


def test_every_package_stands_on_a_layer():
    packages = {module.package for module in modules()} - {"", "cli"}
    assert packages <= {package for layer in LAYERS for package in layer.split()}


def test_packages_import_only_lower_layers():
    assert not wrong_arrows()


def test_no_import_cycles_between_modules():
    assert not circles()


def test_third_party_packages_are_imported_only_by_their_owner():
    wrong = {
        f"{module.name} imports {name}"
        for module in modules()
        for name in module.imports
        if (packages := HOSTS.get(name.partition(".")[0]))
        and module.package not in packages.split()
    }
    assert not wrong


def test_ctypes_is_used_by_the_table_of_system_calls_only():
    users = {
        module.name
        for module in modules()
        for name in module.imports
        if name.partition(".")[0] == "ctypes"
    }
    assert users == {"system.syscalls"}


def test_relative_imports_are_not_used():
    wrong = [
        module.name
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not wrong


@cache
def imported_by_each() -> dict[str, list[str]]:
    """Return what importing each of our modules imports itself."""
    return {module.name: list(imports(at_import(module.tree))) for module in modules()}


def reached_from(*starts: str) -> set[str]:
    """Return every name that importing these modules imports, directly or not."""
    imports_by_module = imported_by_each()
    modules_reached: set[str] = set()
    todo = list(starts)
    while todo:
        name = todo.pop()
        for module in imports_by_module[name]:
            if module in modules_reached:
                continue
            modules_reached.add(module)
            parts = module.split(".")
            if parts[0] == "daemon":
                todo += [
                    package
                    for n in range(1, len(parts))
                    if (package := ".".join(parts[1 : n + 1])) in imports_by_module
                ]
    return modules_reached


def test_the_client_imports_neither_sdk_nor_sql_nor_pydantic():
    drags = {
        name for name in reached_from("cli.main", "cli.client") if name.partition(".")[0] in HEAVY
    }
    assert not drags


def python(code: str, *arguments: str, cwd: Path | None = None, path: Path = DAEMON.parent) -> str:
    """Run code in a fresh interpreter that finds modules in `path` and leaves no trace; return what
    it printed.
    """
    process = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", code, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@cache
def loaded_by(*names: str) -> set[str]:
    """Return the modules in memory once the modules `names` are imported in a fresh interpreter."""
    return set(python(f"import {', '.join(names)}, sys; print(*sys.modules)").split())


def packages_loaded_by(*names: str) -> set[str]:
    """Return the top-level packages of the modules that `loaded_by` returns."""
    return {name.partition(".")[0] for name in loaded_by(*names)}


DAEMON_START = ("daemon.app.main", "daemon.app.wiring", "daemon.app.lifecycle")


def test_starting_the_client_loads_no_heavy_package():
    packages = packages_loaded_by("daemon.cli.main", "daemon.cli.client")
    assert not packages & (HEAVY | {"asyncio", "argparse"})


def test_the_daemon_starts_without_sdk_and_sqlmodel():
    assert not packages_loaded_by(*DAEMON_START) & LATER


def test_starting_the_daemon_loads_no_deferred_module():
    assert not loaded_by(*DAEMON_START) & NOT_YET


# Imports modules in a fresh interpreter and prints what they did besides: written, bound, started,
# or read from the environment by a file of ours (what libraries read of it is their affair).
SPY = """
import importlib, os, sys, threading
folder, names = sys.argv[1], sys.argv[2:]
seen = []

def asked_by_us(frame):
    while frame and frame.f_code.co_filename in ("<string>", os.__file__, "<frozen os>", "<frozen _collections_abc>"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(folder)

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
"""  # noqa: E501

# What extras of pyproject.toml bring, and the tests' own environment need not have.
OPTIONAL = (
    "apprise",
    "dbus_fast",
    "mcp",
    "numpy",
    "onnxruntime",
    "opentelemetry",
    "procrastinate",
    "psycopg",
    "rich",
)


@pytest.mark.slow
def test_importing_a_module_reads_and_writes_nothing(tmp_path):
    absent = {name for name in OPTIONAL if find_spec(name) is None}
    names = [
        f"daemon.{module.name}".rstrip(".")
        for module in modules()
        if absent.isdisjoint(
            imported_name.partition(".")[0] for imported_name in reached_from(module.name)
        )
    ]
    assert python(SPY, str(DAEMON), *names, cwd=tmp_path).split("\n") == ["", ""]
    assert list(tmp_path.iterdir()) == []


def test_the_import_spy_reports_reads_and_writes(tmp_path):
    (tmp_path / "noisy.py").write_text(
        (  # noqa: UP034
            "import os, "
            "pathlib\nos.environ.get('HOME')\nos.getenv('X')\npathlib.Path('left.txt').touch()\n"
        )
    )
    output = python(SPY, str(tmp_path), "noisy", cwd=tmp_path, path=tmp_path)
    assert output.split("\n")[:3] == ["reads $HOME", "reads $X", "writes left.txt"]


def test_no_module_has_an_empty_name_like_utils():
    wrong = [module.name for module in modules() if EMPTY_NAMES & set(module.name.split("."))]
    assert not wrong


def test_every_package_and_module_has_a_docstring():
    silent = [module.name for module in modules() if not ast.get_docstring(module.tree)]
    assert not silent


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own_nodes(node)


# These take note of a cancellation, do what must be done, and raise it then.
RAISED_LATER = {"sandbox.running:_run_uncancelled", "runs.run:uninterrupted"}


def test_no_function_swallows_a_cancellation():
    errors = {
        f"{module.name}:{name}"
        for module in modules()
        for name, function in functions(module.tree)
        for node in own_nodes(function)
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        if "CancelledError" in ast.dump(node.type)
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    }
    assert errors == RAISED_LATER


def test_each_listed_third_party_package_is_imported():
    packages = {name.partition(".")[0] for module in modules() for name in module.imports}
    assert packages >= HOSTS.keys()
