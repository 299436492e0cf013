"""What a plain `pytest` leaves out, and why: whole folders and files. A single test of a file that
is quick otherwise is marked `slow` where it stands.

`slow` is what takes more than about a second, or one of many such that hold a promise from all
sides. Of what a newcomer looks at first, some test is quick: the first start, a run, an approval, a
cancellation, a reload, a replay, kill -9, the policy, memory and delivery. `pytest -m 'not soak'`
runs the slow ones, too, as `.ci/run` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ALL_TESTS = ".venv/bin/pytest -m 'not soak'"
"""The command that leaves out no slow test."""
REASONS = {
    "acceptance/approvals": "kills a daemon at each write",
    "acceptance/cluster": "several daemons on one PostgreSQL",
    "acceptance/page/test_deciding.py": "a browser and a daemon",
    "acceptance/page/test_editing.py": "a browser and a daemon",
    "acceptance/page/test_following.py": "a browser and a daemon",
    "acceptance/page/test_page.py": "a browser and a daemon",
    "acceptance/systemd": "boots a machine",
    "acceptance/test_approved_calls.py": "a daemon for each kind of tool",
    "acceptance/test_bad_input.py": "daemons that are given everything wrong",
    "acceptance/test_durations.py": "a pytest of its own",
    "acceptance/test_endless_answers.py": "answers without end",
    "acceptance/test_failing_parts.py": "a daemon for each part that fails",
    "acceptance/test_faketime.py": "daemons on turned clocks",
    "acceptance/test_inspect.py": "runs of daemons, looked at from outside",
    "acceptance/test_killed.py": "kills a daemon at each write",
    "acceptance/test_offspring_story.py": "agents that make routines, over restarts",
    "acceptance/test_server_away.py": "a PostgreSQL that comes and goes",
    "acceptance/test_server_not_started.py": "a server that is not there, tried until given up",
    "acceptance/test_silent_connections.py": "daemons with few descriptors",
    "acceptance/test_socket_activation.py": "daemons that are given their socket",
    "acceptance/test_stopping.py": "daemons stopped in each way",
    "acceptance/test_story_chat.py": "daemons with a chat",
    "acceptance/test_story_check.py": "judges, over kill -9",
    "acceptance/test_story_crontab.py": "a crontab of five lines, all tried",
    "acceptance/test_story_pace.py": "runs that come again, over kill -9",
    "acceptance/test_story_postgres.py": "daemons on PostgreSQL",
    "acceptance/test_story_program.py": "daemons whose model is a program",
    "acceptance/test_story_triggers.py": "files and webhooks, over kill -9",
    "acceptance/test_talk_story.py": "conversations, over kill -9",
    "acceptance/test_top.py": "terminals",
    "acceptance/test_trial.py": "days of observed runs",
    "acceptance/test_vendors_at_once.py": "27 vendors that fail",
    "acceptance/test_waiting_people.py": "people who wait for a daemon",
    "agent/test_vendors_limits.py": "answers that each vendor cuts",
    "api/test_connections.py": "hundreds of connections",
    "api/test_damaged_rows.py": "each column of each row damaged",
    "api/test_routine_sources.py": "each fault in each way to save a routine",
    "app/commands/test_backup.py": "backups of daemons, over restarts",
    "app/commands/test_edit.py": "editors, daemons and terminals",
    "app/commands/test_logs.py": "waits for logs to grow",
    "app/commands/test_rename.py": "daemons that rename",
    "app/commands/test_target.py": "services that fail in each way",
    "app/commands/test_transfer.py": "an installation that moves to PostgreSQL and back",
    "app/setup/test_setup.py": "each answer to each question",
    "cli/test_mcp.py": "an MCP server for each test",
    "delivery/test_network.py": "a network that is away",
    "fakes": "the fake vendor beside the vendors' own libraries",
    "fuzz": "many hostile files, answers and arguments",
    "golden/test_golden.py": "stories of daemons, compared with recordings",
    "memory/test_embedding_index.py": "vectors by each way to compare them",
    "memory/test_repair.py": "each damage of an index",
    "memory/test_retention.py": "many runs to be removed",
    "memory/test_transfer.py": "fifty questions to two memories",
    "policy/test_traced_programs.py": "programs that are traced",
    "providers/test_answer_limits.py": "answers longer than they may be",
    "providers/test_connections.py": "hundreds of calls of vendors",
    "providers/test_environment.py": "the SDK of each vendor, loaded",
    "providers/test_failing_vendors.py": "each vendor failing in each way",
    "runs/test_images.py": "pictures for each vendor",
    "runs/test_judge.py": "each verdict of a judge",
    "runs/test_output_files.py": "files written by hostile models",
    "runs/test_report_schema.py": "reports that do not fit",
    "runs/test_safe_reads.py": "addresses asked for in each way",
    "runs/test_script.py": "programs as runs, each ending",
    "sandbox/test_confined.py": "attacks from within each sandbox",
    "scheduler/cluster": "queues on PostgreSQL",
    "scheduler/test_peers.py": "two daemons on one state",
    "scheduler/test_setbacks.py": "any changes of the clock",
    "scheduler/test_waits.py": "any changes of the clock",
    "state_fixture": "the state of the first version, opened and continued",
    "store/test_crash.py": "kill -9 of writers",
    "store/test_machine.py": "any order of writes",
    "store/test_postgres.py": "servers that crash and restart",
    "system/test_notify.py": "a daemon beneath systemd",
    "system/test_settled_files.py": "files that are still written",
    "system/test_watch.py": "folders that change, watched by the kernel",
    "telemetry/test_journald.py": "a journal that comes and goes",
    "telemetry/test_tracing.py": "receivers that fail",
    "test_compromised_clients.py": "clients and models that obey strangers",
    "test_compromised_trial.py": "a trial of a model that obeys strangers",
    "test_crash_points.py": "a death at each commit",
    "test_packaging.py": "wheels, built and type-checked",
    "test_recipes.py": "each recipe, run",
    "test_unattended.py": "twelve routines, five runs each",
    "tools/builtin/test_never_shown.py": "each git command on each denied file",
    "tools/builtin/test_output_files.py": "outputs as long as they may be",
    "tools/builtin/test_repository.py": "each way to mislead git",
    "tools/builtin/test_sandboxed.py": "programs in each sandbox",
    "tools/mcp/test_servers.py": "real MCP servers",
}
"""Why a folder or file of `tests/` is slow."""


def is_slow(file: Path) -> bool:
    """Tell whether a file of tests is slow, by itself or with its folder."""
    if not file.is_relative_to(TESTS):  # a test that a test has written
        return False
    path = file.relative_to(TESTS)
    return any(str(part) in REASONS for part in (path, *path.parents))


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark the tests that are slow because of where they stand."""
    slow_files = {file for file in {item.path for item in items} if is_slow(file)}
    for item in items:
        if item.path in slow_files:
            item.add_marker("slow")
