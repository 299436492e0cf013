"""The recipes that agentd ships: routine files to copy.

They are all files of examples/, and those of routines/ that `agentd init` writes.

The comment at the head of a recipe says what it is for and which lines it needs in config.toml and
policy.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from daemon.app.commands.init import ROUTINES, shipped_folder
from daemon.definitions.words import did_you_mean
from daemon.errors import Refused


def find_recipes() -> dict[str, Path]:
    """Return the files of all recipes by name, in the order of their names."""
    files = list((shipped_folder() / "examples").glob("*.toml"))
    # in a checkout, other files of this folder are routines of the person who uses it
    files += [shipped_folder() / "routines" / f"{name}.toml" for name in ROUTINES]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def find_recipe(name: str) -> Path:
    """Return the file of a recipe. Raises Refused, with the names there are, for an unknown one."""
    recipes = find_recipes()
    if name not in recipes:
        raise Refused(f"there is no recipe {name!r}; {did_you_mean(name, recipes)}")
    return recipes[name]


def needed_lines(text: str, file: str) -> str:
    """Return the lines of TOML that a recipe's comment asks for in a file, such as config.toml;
    empty if there are none.
    """
    match = re.search(rf"^# In {re.escape(file)}:\n((?:#   .*\n)+)", text, re.MULTILINE)
    return re.sub(r"^#   ", "", match[1], flags=re.MULTILINE) if match else ""
