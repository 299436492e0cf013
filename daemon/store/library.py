"""SQLite itself, as a process uses it that reads and writes from several threads.

By default SQLite counts every byte it allocates, under one lock for all connections of a process. Two threads that
search the memory wait for each other at it some twenty times a search, and take one and a half times the CPU that one
takes. Nobody here asks for the count.
"""

from __future__ import annotations

import ctypes
import sys

_MEMSTATUS = 9  # SQLITE_CONFIG_MEMSTATUS, https://sqlite.org/c3ref/c_config_covering_index_scan.html


def count_no_memory() -> bool:
    """Let SQLite keep no count of its memory, in all of this process; tell whether it keeps none.

    To be called while nothing is open, as it is told so before it begins only: else nothing changes.
    """
    if sys.platform != "linux":  # elsewhere a function with a varying number of arguments may be called otherwise
        return False
    import _sqlite3

    # the module leads to the library that it uses, be it the system's or one of its own
    library = ctypes.PyDLL(getattr(_sqlite3, "__file__", None))
    try:
        used = library.sqlite3_memory_used
        malloc, free = library.sqlite3_malloc, library.sqlite3_free
        shutdown, config, initialize = library.sqlite3_shutdown, library.sqlite3_config, library.sqlite3_initialize
    except AttributeError:  # it is inside the interpreter, and shows nothing of itself
        return False
    used.restype = ctypes.c_int64
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_int], [ctypes.c_void_p]
    if used():
        return False  # something is open
    some = malloc(8)
    counts = bool(used())
    free(some)
    if counts:
        # the lock of the interpreter is held from here on: nobody opens anything meanwhile
        shutdown()
        counts = bool(config(_MEMSTATUS, 0))
        initialize()
    return not counts
