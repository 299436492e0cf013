"""Is this installation sound? What was found, and how to mend it.

In this room: survey.py looks, checks.py judges what it saw. Not in this room: any mending.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.app.doctor.check import Check
from daemon.app.doctor.checks import judge
from daemon.definitions.paths import find_config, find_socket, find_state, socket_in, user_home

if TYPE_CHECKING:
    from daemon.api.schemas import CheckView
    from daemon.definitions.config.config import Config


def examine(config: Config, state: Path, socket: Path, env: Mapping[str, str]) -> list[CheckView]:
    """Look at the installation of a running daemon."""
    from daemon.app.doctor.survey import survey

    return [_view(row) for row in judge(survey(config.file, state, socket, env))]


def main(options: argparse.Namespace) -> int:
    """Look at the installation without a daemon; 1 if something is wrong.

    `config`, `state` and `json` are options.
    """
    from daemon.app.doctor.survey import survey
    from daemon.cli.doctor import write_checks
    from daemon.cli.render import stdout_stream

    env, uid, home = os.environ, os.getuid(), user_home()
    file = find_config(options.config, env, Path.cwd(), home)
    state = (options.state or find_state(env, home, uid=uid)).absolute()
    where = socket_in(state, uid=uid) if options.state else find_socket(state, env, uid=uid)
    rows = [_view(row) for row in judge(survey(file, state, where, env))]
    sound = all(row["state"] != "fail" for row in rows)
    out = stdout_stream()
    if options.json:
        import json

        out.write_line(json.dumps({"ok": sound, "checks": rows}, ensure_ascii=False))
    else:
        write_checks(out, rows)
    return 0 if sound else 1


def _view(row: Check) -> CheckView:
    return {"name": row.name, "state": row.state, "found": row.found, "fix": row.fix}
