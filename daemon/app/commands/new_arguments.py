"""The command line of `agentd new`."""

from __future__ import annotations

from daemon.app.commands.new import FACT_TEMPLATES
from daemon.app.commands.pages import is_url
from daemon.app.commands.recipes import find_recipes
from daemon.cli.parser import Parser


def build_new_parser(program: str = "agentd new") -> Parser:
    """Return the parser of `program`, without the options that say where config and state are."""
    parser = Parser(
        prog=program, description="write a routine from a schedule in plain words or a recipe"
    )
    parser.add_argument("name", help="the routine's name, and its file's")
    parser.add_argument(
        "schedule",
        nargs="*",
        metavar="WORD",
        help="when it runs, such as: weekdays at 9am; without quotes or in quotes",
    )
    parser.add_argument(
        "--recipe", metavar="RECIPE", help=f"begin with one of {', '.join(find_recipes())}"
    )
    parser.add_argument(
        "--prompt", metavar="TEXT", help="what it does; without it, the file waits for you"
    )
    parser.add_argument(
        "--to",
        dest="targets",
        metavar="TARGET,…",
        type=_split_names,
        action="extend",
        default=[],
        help="where reports go: file, log, desktop or [targets] of config.toml; default: file",
    )
    look = parser.add_mutually_exclusive_group()
    look.add_argument(
        "--look",
        dest="facts",
        metavar="FACT,…",
        type=_split_facts,
        action="extend",
        help=f"what it gathers before the model is asked, of {', '.join(FACT_TEMPLATES)}, or the "
        "URL of a page; default: what the prompt speaks of",
    )
    look.add_argument(
        "--no-look", dest="facts", action="store_const", const=[], help="gather nothing"
    )
    parser.add_argument("--stdout", action="store_true", help="print the file and write nothing")
    parser.add_argument("--json", action="store_true")
    return parser


def _split_facts(text: str) -> list[str]:
    """Return the facts in a list with commas; a comma may also stand in a URL."""
    facts: list[str] = []
    for part in _split_names(text):
        if facts and is_url(facts[-1]) and part not in FACT_TEMPLATES and not is_url(part):
            facts[-1] += f",{part}"
        else:
            facts.append(part)
    return facts


def _split_names(text: str) -> list[str]:
    """Return the names in a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
