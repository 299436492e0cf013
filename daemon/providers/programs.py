"""Programs as models: what can be said of one without starting it (command.py does)."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence

# In a word of the command: replaced by the name of the model.
MODEL_PLACEHOLDER = "{model}"
# A name that is no option of the program, as a routine or an agent may choose it.
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")


def find_program(program: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of a program, found by PATH of `environment` unless it is a path itself;
    None if there is none that can be executed.
    """
    if "/" in program:
        return shutil.which(os.path.expanduser(program))  # noqa: PTH111  # no Path for a program
    return shutil.which(program, path=environment.get("PATH", os.defpath))


def describe_missing_program(program: str) -> str:
    """Say that a program is not there, and what to do."""
    if "/" in program:
        return (
            f"there is no program {program} that can be executed; install it, or correct the path"
        )
    return (
        f"there is no program {program} on agentd's PATH; install it, or write its whole path "
        f"(`command -v {program}` prints it)"
    )


def check_model(command: Sequence[str], model: str) -> str:
    """Return why a model cannot be chosen for a command; empty if it can."""
    if not any(MODEL_PLACEHOLDER in word for word in command[1:]):
        return f"its command has no word {MODEL_PLACEHOLDER}, so no model can be chosen"
    if not _MODEL.fullmatch(model):
        return "a model's name begins with a letter or digit, and has only these and . _ : / @ -"
    return ""
