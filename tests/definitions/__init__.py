from __future__ import annotations

import re

from daemon.errors import Fault


def without_place(fault: Fault) -> str:
    """Return a fault as people read it, without the file and line that it begins with."""
    return re.sub(rf"^{re.escape(fault.file)}(:\d+)?: ", "", str(fault))
