"""Each Python that libfaketime is loaded into reads this at its start.

libfaketime 0.9.10 refuses what Python >= 3.11 sleeps by (clock_nanosleep until a monotonic moment)
where the monotonic clock is left alone; a lock that nobody releases is waited for by another call.
"""

import _thread
import time


def sleep(seconds: float) -> None:
    lock = _thread.allocate_lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


time.sleep = sleep
