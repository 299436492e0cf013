"""`agentd doctor`, and the same checks for a daemon that runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.app.doctor.check import Check
from daemon.app.doctor.checks import judge
from daemon.definitions.paths import find_config, find_socket, find_state, socket_in, user_home

if TYPE_CHECKING:
    from daemon.api.schemas import CheckView
    from daemon.definitions.config.config import Config
    from daemon.tools.registry import FunctionRegistry


def examine(
    config: Config,
    state: Path,
    socket: Path,
    env: Mapping[str, str],
    *,
    own_tools: FunctionRegistry,
) -> list[CheckView]:
    """Check the installation of a running daemon, which has loaded `own_tools`."""
    from daemon.app.doctor.survey import survey

    checks = judge(survey(config.file, state, socket, env, own_tools=own_tools))
    return [_view_of_check(check) for check in checks]


def main(options: argparse.Namespace) -> int:
    """Check the installation without a daemon; return 1 if something is wrong.

    The options are `config`, `state`, `socket`, `json` and `deep`.
    """
    from daemon.app.doctor.database_file import renew_damaged_indexes
    from daemon.app.doctor.survey import survey
    from daemon.cli.doctor import write_checks
    from daemon.cli.render import stdout_stream

    env, uid, home = os.environ, os.getuid(), user_home()
    file = find_config(options.config, env, Path.cwd(), home)
    state = (options.state or find_state(env, home, uid=uid)).absolute()
    socket = options.socket or (
        socket_in(state, uid=uid) if options.state else find_socket(state, env, uid=uid)
    )
    facts = survey(file, state, socket, env, deep=options.deep)
    service = replace(facts.service, database=renew_damaged_indexes(facts.service.database))
    rows = [_view_of_check(check) for check in judge(replace(facts, service=service))]
    is_sound = all(row["state"] != "fail" for row in rows)
    out = stdout_stream()
    if options.json:
        import json

        out.write_line(json.dumps({"ok": is_sound, "checks": rows}, ensure_ascii=False))
    else:
        write_checks(out, rows)
    return 0 if is_sound else 1


def _view_of_check(check: Check) -> CheckView:
    return {"name": check.name, "state": check.state, "found": check.found, "fix": check.fix}
