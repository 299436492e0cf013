"""Shell completion of verbs and options."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import io
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from daemon.app import main as agentd_main
from daemon.app.commands.policy_arguments import add_policy_verbs
from daemon.cli import memory
from daemon.cli.main import main
from daemon.cli.parser import Parser
from daemon.cli.verbs import AGENTD_VERBS, VERBS
from daemon.models import ApprovalRequest
from tests.api.harness import ApiHarness


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_and_option_is_offered(capsys, shell):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(verb in script for verb in VERBS) and "days" in script and "--detach"[2:] in script


def test_bash_completes_verbs_and_options(capsys):
    main(["completion", "bash"])
    script = capsys.readouterr().out
    words_by_line = {
        ("agentctl", "dele"): "",
        ("agentctl", "deliv"): "deliveries",
        ("agentctl", "run", "--de"): "--detach",
    }
    for words, completions in words_by_line.items():
        line = " ".join(f'"{word}"' for word in words)
        ask = (
            f"{script}\nCOMP_WORDS=({line}) COMP_CWORD={len(words) - 1}\n_agentctl\necho "
            f'"${{COMPREPLY[@]}}"'
        )
        process = subprocess.run(
            ["bash", "-c", ask], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert (process.stdout.strip(), process.stderr) == (completions, "")


def test_an_unknown_shell_is_a_usage_error(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert shutil.which("bash")


async def complete(folder: Path, socket: Path, *words: str) -> set[str]:
    """Return what bash offers for the last of these words, with an agentctl that asks a daemon."""
    with contextlib.redirect_stdout(io.StringIO()) as script:
        assert main(["completion", "bash"]) == 0
    program = folder / "agentctl"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m daemon.cli.main --socket "{socket}" "$@"\n'
    )
    program.chmod(0o755)
    line = " ".join(f'"{word}"' for word in words)
    commands = (
        f"{script.getvalue()}\nCOMP_WORDS=({line}) COMP_CWORD={len(words) - 1}\n_{words[0]}\n"
        'echo "${COMPREPLY[@]}"'
    )
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", commands, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    out, err = await process.communicate()
    assert err == b""
    return set(out.decode().split())


async def test_bash_completes_names_and_ids_of_the_daemon(harness: ApiHarness, tmp_path: Path):
    ask = functools.partial(complete, tmp_path, harness.path)
    run = await harness.complete_run()
    assert await ask("agentctl", "inspect", run.id[:4]) == {run.id}
    assert await ask("agentctl", "report", "da") == {"daily-report"}
    request = ApprovalRequest(
        call_id="1.0",
        tool="shell",
        request={"tool": "shell", "arguments": {"command": "df"}},
        digest="0" * 64,
        rule="rule 1",
    )
    parked_run = await harness.journal.approvals.park(
        await harness.take("heartbeat"), [request], timeout=timedelta(days=9999), detail="shell"
    )
    (approval,) = await harness.journal.approvals.find_of_run(parked_run.id)
    assert await ask("agentctl", "approve", "0") == {approval.id}
    assert await ask("agentd", "once", "heart") == {"heartbeat"}


async def test_bash_completes_words_behind_a_verb_and_the_verbs_of_agentd(tmp_path: Path):
    ask = functools.partial(complete, tmp_path, tmp_path / "none.sock")
    assert await ask("agentctl", "policy", "ex") == {"explain"}
    assert await ask("agentctl", "deliveries", "re") == {"retry"}
    assert await ask("agentctl", "memory", "re") == {"reindex"}
    assert await ask("agentctl", "service", "in") == {"install"}
    assert await ask("agentctl", "logs", "--fo") == {"--follow"}
    assert await ask("agentd", "wo") == {"worker"}
    assert await ask("agentd", "--co") == {"--config"}


def choices_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the verbs of a parser."""
    (verbs,) = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return set(verbs.choices)


def test_the_words_of_verbs_with_a_parser_of_their_own_are_those_of_the_parser():
    assert set(AGENTD_VERBS) == choices_of(agentd_main.build_parser())
    assert set(VERBS["memory"].words) == choices_of(memory._make_parser())
    policy_parser = Parser(prog="agentctl policy")
    list(add_policy_verbs(policy_parser))
    assert set(VERBS["policy"].words) == choices_of(policy_parser)


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_the_script_for_zsh_is_valid(capsys, tmp_path):
    main(["completion", "zsh"])
    (tmp_path / "_agentctl").write_text(capsys.readouterr().out)
    subprocess.run(["zsh", "-n", tmp_path / "_agentctl"], check=True)


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_the_script_for_fish_is_valid(capsys, tmp_path):
    main(["completion", "fish"])
    (tmp_path / "agentctl.fish").write_text(capsys.readouterr().out)
    subprocess.run(["fish", "-n", tmp_path / "agentctl.fish"], check=True)
