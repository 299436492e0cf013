"""What libraries look for while they are imported, and need not find for us: a quarter of the time a start takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def frugal() -> Iterator[None]:
    """Import libraries in here, before any thread is started, as if nothing were installed but what they need.

    structlog imports rich and colorama, where they are installed, for a console that is not ours (45 ms); pydantic and
    APScheduler read the entry points of all packages, four times, for plugins (12 ms with a hundred packages, and 11
    for the reader); uvicorn imports click and multiprocessing for a command line of its own (8 ms). What is imported
    already stays.
    """
    absent: dict[str, Any] = {  # None: to import it fails at once
        "rich": None,
        "colorama": None,
        "importlib.metadata": _Metadata("importlib.metadata"),
        "uvicorn.main": _UvicornMain("uvicorn.main"),
    }
    absent = {name: instead for name, instead in absent.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


class _Metadata(ModuleType):
    """Knows of no plugin and no version."""

    PackageNotFoundError = ModuleNotFoundError

    @staticmethod
    def entry_points(**_: Any) -> tuple[()]:
        return ()

    @staticmethod
    def version(name: str) -> str:
        raise ModuleNotFoundError(name=name)


class _UvicornMain(ModuleType):
    """What `uvicorn/__init__.py` wants of `uvicorn.main`: the server, which lives elsewhere, and two commands."""

    main = run = None

    @property
    def Server(self) -> Any:  # noqa: N802  theirs
        from uvicorn.server import Server

        return Server
