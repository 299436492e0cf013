"""What libraries import for what they could do besides, and need not for us: a quarter of the time a start takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def frugal() -> Iterator[None]:
    """Import libraries in here, before any thread is started: some modules are replaced by stand-ins meanwhile.

    structlog would import rich and colorama, where they are installed, for a console that is not ours (45 ms), and
    greenlet; starlette what reads forms; pydantic and APScheduler read the entry points of all packages, four times,
    for plugins (12 ms with a hundred packages, and 11 for the reader); uvicorn has a command line of its own (8 ms) and
    log files to read (5 ms), APScheduler pools of processes (6 ms). What is imported already stays.
    """
    absent: dict[str, Any] = dict.fromkeys(("rich", "colorama", "greenlet", "multipart", "python_multipart"))
    for name, attributes in STAND_INS.items():
        absent[name] = ModuleType(name)
        vars(absent[name]).update(attributes)
    absent["uvicorn.main"] = _UvicornMain("uvicorn.main")
    absent = {name: instead for name, instead in absent.items() if name not in sys.modules}
    sys.modules.update(absent)  # None: to import it fails at once
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _no_plugins(**_: Any) -> tuple[()]:
    return ()


def _no_version(name: str) -> str:
    raise ModuleNotFoundError(name=name)


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
}


class _UvicornMain(ModuleType):
    """What `uvicorn/__init__.py` wants of `uvicorn.main`: the server, which lives elsewhere, and two commands."""

    main = run = None

    @property
    def Server(self) -> Any:  # noqa: N802  theirs
        from uvicorn.server import Server

        return Server
