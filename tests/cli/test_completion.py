"""TAB offers the verbs and options that there are."""

import shutil
import subprocess

import pytest

from daemon.cli.main import main
from daemon.cli.verbs import VERBS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_and_option_is_offered(capsys, shell):
    assert main(["completion", shell]) == 0
    told = capsys.readouterr().out
    assert all(verb in told for verb in VERBS) and "days" in told and "--detach"[2:] in told


def test_bash_completes_verbs_and_options(capsys):
    main(["completion", "bash"])
    script = capsys.readouterr().out
    asked = {
        ("agentctl", "dele"): "",
        ("agentctl", "deliv"): "deliveries",
        ("agentctl", "run", "--de"): "--detach",
    }
    for words, wanted in asked.items():
        typed = " ".join(f'"{word}"' for word in words)
        ask = (
            f"{script}\nCOMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}\n_agentctl\necho "
            f'"${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(
            ["bash", "-c", ask], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert (done.stdout.strip(), done.stderr) == (wanted, "")


def test_an_unknown_shell_is_a_slip(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert shutil.which("bash")
