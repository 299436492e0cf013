"""`agentd` as agentctl starts it, for verbs that work without a daemon: usage says agentctl."""

from __future__ import annotations

import sys

from daemon.app.main import main

if __name__ == "__main__":
    sys.exit(main(program="agentctl"))
