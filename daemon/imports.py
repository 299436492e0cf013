"""What libraries import and declare for what they could do besides, and need not for us: a quarter of a start's time.

Three things save it. A module that others want by its name only is `Late`: empty until somebody wants something in it.
What somebody wants of it at once, while being imported, is at hand. And to declare a class or a pattern compiles less
of what hardly ever runs.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import threading
import typing
from _operator import _compare_digest as compare_digest  # hmac's own, without OpenSSL
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from daemon import values


@contextmanager
def frugal() -> Iterator[None]:
    """Import libraries in here, before any thread is started: some modules are replaced by stand-ins meanwhile.

    structlog would import rich and colorama, where they are installed, for a console that is not ours (45 ms), and
    greenlet; starlette what reads forms; pydantic and APScheduler read the entry points of all packages, four times,
    for plugins (12 ms with a hundred packages, and 11 for the reader); uvicorn has a command line of its own (8 ms) and
    log files to read (5 ms), APScheduler pools of processes (6 ms); asyncio and hashlib load OpenSSL (8 ms and 6 MiB),
    which a daemon does without until it speaks TLS. What is imported already stays.
    """
    absent: dict[str, Any] = dict.fromkeys(("rich", "colorama", "greenlet", "multipart", "python_multipart"))
    for name, attributes in STAND_INS.items():
        absent[name] = ModuleType(name)
        vars(absent[name]).update(attributes)
    absent["uvicorn.main"] = _UvicornMain("uvicorn.main")
    absent = {name: instead for name, instead in absent.items() if name not in sys.modules}
    late = [kind(name, at_hand()) for name, (kind, at_hand) in LATE.items() if name not in sys.modules]
    sys.modules.update(absent)  # None: to import it fails at once
    sys.modules.update({module.__name__: module for module in late})
    try:
        with _cheap_declarations():
            yield
    finally:
        for name in absent:
            del sys.modules[name]
        for module in late:
            module.settle()


class Late(ModuleType):
    """A module that is read when somebody wants something in it, whoever that is and in whatever thread.

    What is `at_hand` is there until it settles, for those who are imported together with it.
    """

    def __init__(self, name: str, at_hand: Mapping[str, Any]) -> None:
        super().__init__(name)
        vars(self).update(at_hand)
        self._at_hand, self._lock, self._is_read = tuple(at_hand), threading.RLock(), False

    def __getattr__(self, name: str) -> Any:  # only for what is not there
        if name.startswith("__"):  # whoever looks through all modules asks for these
            raise AttributeError(name)
        self._read()
        try:
            return vars(self)[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def _read(self) -> None:
        with self._lock:
            if self._is_read:
                return
            package = self.__name__.rpartition(".")[0]
            spec = PathFinder.find_spec(self.__name__, sys.modules[package].__path__ if package else None)
            if spec is None or spec.loader is None:
                raise ModuleNotFoundError(f"No module named {self.__name__!r}", name=self.__name__)
            self.__spec__, self.__loader__, self.__file__ = spec, spec.loader, spec.origin
            self.__package__ = spec.parent
            self._is_read = True  # whoever comes back here meanwhile gets what is there by then
            spec.loader.exec_module(self)

    def settle(self) -> None:
        """Forget what was at hand: from now on all that comes out of here is real."""
        if not self._is_read:
            for name in self._at_hand:
                delattr(self, name)
        self._settle_in_package()

    def _settle_in_package(self) -> None:
        package, _, child = self.__name__.rpartition(".")
        if package in sys.modules:
            setattr(sys.modules[package], child, self)
        elif package:  # nobody wanted it
            del sys.modules[self.__name__]


class _LatePackage(Late):
    """A package, in which others are found while it is unread itself."""

    def __init__(self, name: str, at_hand: Mapping[str, Any]) -> None:
        super().__init__(name, at_hand)
        spec = PathFinder.find_spec(name)
        self.__path__ = (spec and spec.submodule_search_locations) or []


class _LateTLS(Late):
    """The module `ssl`, of which asyncio asks for every socket whether it is one of its own: unread, it has none."""

    def __getattr__(self, name: str) -> Any:
        if name == "SSLSocket" and sys._getframe(1).f_globals["__name__"] == "asyncio.base_events":
            return ()
        return super().__getattr__(name)


class _LateOpenSSL(Late):
    """A module that has Python's own make of what is wanted most, and keeps it at hand."""

    def settle(self) -> None:
        self._settle_in_package()


@contextmanager
def _cheap_declarations() -> Iterator[None]:
    """Let libraries declare classes and us declare patterns without most of the work of that."""
    import typing_extensions

    changed: list[tuple[Any, str, Any]] = [
        (dataclasses, "dataclass", _dataclass),
        (typing, "TypedDict", _TypedDict(typing.TypedDict)),
        (typing_extensions, "TypedDict", _TypedDict(typing_extensions.TypedDict)),
        # the same few words stand in a thousand annotations, and each would be compiled to see whether it can be
        (typing, "compile", cache(compile)),
        (re, "compile", _pattern),
    ]
    before = [(module, name, getattr(module, name, compile)) for module, name, _ in changed]
    for module, name, cheap in changed:
        setattr(module, name, cheap)
    try:
        yield
    finally:
        for module, name, real in before:
            setattr(module, name, real)


# Libraries whose classes were looked at.
_KNOWN = frozenset(["annotated_types", "h11", "pydantic", "pydantic_core", "starlette", "structlog", "uvicorn"])
_library_dataclass: Any = dataclasses.dataclass
_compile = re.compile


def _dataclass(cls: Any = None, /, **options: Any) -> Any:
    """Make a library's dataclass the way ours are made, where it wants no more than ours can."""
    ours: Any = values.dataclass
    make = ours if _caller() in _KNOWN and options.keys() <= values.OPTIONS else _library_dataclass
    return make(**options) if cls is None else make(cls, **options)


class _TypedDict:
    """What makes typed dictionaries: plain ones for libraries, which never ask what is in them."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        entries: tuple[type, ...] = (_Plain,) if _caller() in _KNOWN else self._real.__mro_entries__(bases)
        return entries

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._real(*args, **options)


class _Plain(dict[str, Any]):
    def __init_subclass__(cls, **_: Any) -> None:  # total=False and the like
        super().__init_subclass__()


def _pattern(pattern: Any, flags: int = 0) -> Any:
    """Compile a library's pattern; one of ours when it is first used, as few are by a daemon that has nothing to do."""
    return LatePattern(pattern, flags) if _caller() == "daemon" else _compile(pattern, flags)


class LatePattern:
    """A regular expression that is compiled when it is first used; then it is as fast as any."""

    def __init__(self, pattern: Any, flags: int = 0) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:  # only for what is not there
        compiled = _compile(self.pattern, self._flags)
        for each in ("findall", "finditer", "flags", "fullmatch", "match", "search", "split", "sub", "subn"):
            setattr(self, each, getattr(compiled, each))
        return getattr(compiled, name)


def _caller() -> str:
    """Return the package from which the function was called that asks."""
    name: str = sys._getframe(2).f_globals["__name__"]
    return name.partition(".")[0]


def _no_plugins(**_: Any) -> tuple[()]:
    return ()


def _no_version(name: str) -> str:
    raise ModuleNotFoundError(name=name)


def _console(**options: Any) -> Any:
    """Return what renders lines if nobody configures structlog; the first line reads the real one."""

    def render(*line: Any) -> Any:
        from structlog.dev import ConsoleRenderer

        return ConsoleRenderer(**options)(*line)

    return render


def _structlog_dev() -> dict[str, Any]:
    told = _functions("structlog.dev", "set_exc_info")
    return {"ConsoleRenderer": _console, "_has_colors": sys.platform != "win32", **told}


def _functions(module: str, *names: str) -> dict[str, Any]:
    """Return functions for those who import them by name; the first call reads the module."""

    def function(name: str) -> Any:
        return lambda *args, **options: getattr(import_module(module), name)(*args, **options)

    return {name: function(name) for name in names}


def _own_hashes() -> dict[str, Any]:
    """Return the hash functions that this Python has itself; some distributions leave them to OpenSSL."""
    found: dict[str, Any] = {}
    for module, names in (("_sha256", ["sha256"]), ("_sha2", ["sha256"]), ("_blake2", ["blake2b", "blake2s"])):
        with suppress(ModuleNotFoundError):
            own = import_module(module)
            found |= {name: getattr(own, name) for name in names}
    return found


# What of these modules is named by those who import them; none of it is ever used.
STAND_INS: dict[str, dict[str, Any]] = {
    "importlib.metadata": {
        "entry_points": _no_plugins,
        "version": _no_version,
        "PackageNotFoundError": ModuleNotFoundError,
    },
    "logging.config": {},
    "configparser": {"RawConfigParser": object},
    "apscheduler.executors.pool": {"ThreadPoolExecutor": None},
    "starlette.formparsers": {"FormParser": None, "MultiPartException": None, "MultiPartParser": None},
}

# What these modules are asked for while others are imported; later, there is all of them.
LATE: dict[str, tuple[type[Late], Callable[[], dict[str, Any]]]] = {
    "asyncio.sslproto": (Late, dict),
    "difflib": (Late, lambda: _functions("difflib", "get_close_matches")),
    "email.utils": (Late, lambda: _functions("email.utils", "format_datetime", "formatdate")),
    "hashlib": (_LateOpenSSL, _own_hashes),
    "hmac": (_LateOpenSSL, lambda: {"compare_digest": compare_digest}),
    "html": (_LatePackage, dict),
    "http.client": (Late, dict),
    "http.cookies": (Late, dict),
    "pickle": (Late, lambda: {"PicklingError": Exception}),
    "shutil": (Late, dict),
    "ssl": (_LateTLS, lambda: {"CERT_NONE": 0, "PROTOCOL_TLS_SERVER": 17}),
    "structlog.dev": (Late, _structlog_dev),
    "structlog.stdlib": (Late, dict),
    "structlog.testing": (Late, lambda: {"ReturnLogger": None, "ReturnLoggerFactory": None}),
    "structlog.threadlocal": (Late, dict),
    "tempfile": (Late, dict),
}


class _UvicornMain(ModuleType):
    """What `uvicorn/__init__.py` wants of `uvicorn.main`: the server, which lives elsewhere, and two commands."""

    main = run = None

    @property
    def Server(self) -> Any:  # noqa: N802  theirs
        from uvicorn.server import Server

        return Server
