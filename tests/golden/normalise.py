"""What cannot be pinned, in one list: everything else in a golden file is compared as it is.

Prefer to pin a value (by the clock, the environment, the config of a scenario). What stands here is
lost to the test, so an entry takes as little as it can and leaves the names around it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

# A heading of a report, and the lines up to the next one, behind what the surface puts before each
# line.
FACTS = (
    r"^((?: +\| )|(?: +))(### (?:Host|Load|Memory|Disks|Units|Errors|Updates)|## What changed)\n"
    r"(?:\1(?!#).*\n| *\|?\n)*"
)
# What the doctor looks for only on some machines.
CHECKS = (
    r"write outside|read a secret|reach [\w ]+|exceed its limits|survive its "
    r"end|bubblewrap|landlock|profiles|"
    r"user of tools|service|linger"
)

# (surface, pattern, replacement, reason). The surface is a glob over "scenario/file.txt"; patterns
# are of the module re with MULTILINE; they are applied from the first to the last. Inside JSON a
# replacement has to leave JSON.
RULES: tuple[tuple[str, str, str, str], ...] = (
    # --- this machine and this process
    ("*", re.escape(str(ROOT)), "<source>", "where the project lies"),
    ("*", re.escape(sys.executable), "<python>", "which Python runs it"),
    ("*", rf"\b{re.escape(VERSION)}\b", "<version>", (
        "the version of the product moves with each release"
    )),
    ("*", r"127\.0\.0\.1:\d+", "127.0.0.1:<port>", "servers of the tests take any free port"),
    ("*", r"\bprocess \d+", "process <pid>", "process ids"),
    ("*", r"\(pid \d+\)", "(pid <pid>)", "process ids"),
    ("*", r'"pid": \d+', '"pid": "<pid>"', "process ids"),
    ("*", r"\buid \d+", "uid <uid>", "who runs the tests"),
    ("*", r'"uid:\d+"', '"uid:<uid>"', "who runs the tests"),
    ("*", rf'"host": "{re.escape(os.uname().nodename)}"', '"host": "<host>"', (
        "the name of the machine"
    )),
    ("*", r"/run/user/\d+", "/run/user/<uid>", "who runs the tests"),
    ("*/cli.txt", rf"(agentd on |@){re.escape(os.uname().nodename)}\b", r"\1<host>", (
        "the name of the machine"
    )),
    ("*/cli.txt", r"^  root  .*\n(?:            and who.*\n)?", "", (
        "only a daemon of root's says so"
    )),
    ("*/files.txt", r"^drwx--[x-]--[x-] state$", "drwx--?--? state", (
        "another user gets through where root is"
    )),
    ("*/files.txt", r"^\S+ state/agentd\.db-(?:shm|wal)\n", "", (
        "SQLite's own, gone with the last reader"
    )),
    ("*/cli.txt", r"^Ollama answers on this machine.*\n", "", "what runs on this machine"),
    ("*/files.txt", r"^\S+ state/trial-.*\n", "", (
        "left by a process that ended while it tried the sandbox"
    )),
    # --- how programs are confined depends on what is installed
    ("*/cli.txt", r"^(  sandbox +)\S.*$", r"\1<sandbox>", "bubblewrap or another way"),
    ("*", r'^   +"sandbox": "\w*",\n', "", "a step may name another than its run"),
    ("*", r'"sandbox": "\w*"', '"sandbox": "<sandbox>"', "bubblewrap or another way"),
    ("*", r'"sandbox": null', '"sandbox": "<sandbox>"', "bubblewrap or another way"),
    ("*/cli.txt", r", (?:bubblewrap|landlock|profiles)$", "", (
        "bubblewrap or another way, in lines of the audit"
    )),
    ("*/log.txt", r'(sandbox\.\w+) \{.*\}$', r"\1 {}", "bubblewrap or another way"),
    ("*/cli.txt", r"^(\S+ \S+ +\w+ +sandbox\.\w+) .*$", r"\1", "bubblewrap or another way"),
    # --- the facts of this machine, and what the doctor finds on it
    (
        "first_start/*",
        FACTS,
        r"\1\2\n\1<facts>\n",
        "facts of this machine",
    ),
    ("first_start/cli.txt", r"… \d+ more lines?", "… <n> more lines", "facts of this machine"),
    ("first_start/*", r'"report": ".*### Host.*"', '"report": "<facts>"', "facts of this machine"),
    (
        "first_start/cli.txt",
        rf"^[✓!✗]  (?:  )?(?:{CHECKS})  .*\n",
        "",
        "what there is to confine programs with, and who looks",
    ),
    (
        "first_start/cli.txt",
        r"^[✓!✗]  (Python|SQLite|state|disk|log|clock|limits|sandbox)  .*",
        r"?  \1  <found>",
        "what the doctor finds on this machine",
    ),
    ("first_start/cli.txt", r"^[!✗] +[\w ]+: .*\n\n?", "", (
        "what the doctor advises on this machine"
    )),
    (
        "first_start/cli.txt",
        r"\n*^(?:all is well|\d+ things? to mend)\n\[exit [01]\]",
        "\n<verdict>",
        "what the doctor finds on this machine",
    ),
    (
        "first_start/cli.txt",
        r"(^\?  sandbox  <found>\n)(?:(?!<verdict>).*\n)*?(?=<verdict>)",
        r"\1",
        "what the doctor advises on this machine",
    ),
    # --- what is looked at some real seconds after the start, or not any more
    ("*/log.txt", r"^\S+ \w+ doctor\..*\n", "", (
        "the doctor looks ten real seconds after the start"
    )),
    ("*/cli.txt", r"^\S+ \S+ +\w+ +doctor\..*\n", "", (
        "the doctor looks ten real seconds after the start"
    )),
    # --- how long something took by the real clock, how big a file is
    ("*/cli.txt", r"^( +\+\d.*?|2>  .*?)  [\d.]+ (?:ms|s|min)(?:, |(?=$|  ))", r"\1  ", (
        "real durations; none of 0"
    )),
    ("*/cli.txt", r", [\d.]+ (?:ms|s|min) of work", ", <duration> of work", "real durations"),
    ("*", r'"active": [\d.e-]+', '"active": "<seconds>"', "real durations"),
    ("*", r'"(seconds|duration)": [\d.e-]+', r'"\1": "<seconds>"', "real durations"),
    ("*/case.txt", r'"seconds": [\d.e-]+', '"seconds": "<seconds>"', "real durations"),
    ("*", r'"pause": [\d.]+', '"pause": "<seconds>"', "drawn by lot"),
    ("*/cli.txt", r"\bpause=[\d.]+", "pause=<seconds>", "drawn by lot"),
    ("*/metrics.txt", r"^(agentd_loop_lag_seconds\S*) .*$", r"\1 <n>", "real durations"),
    ("*", r'"bytes": \d{5,}', '"bytes": "<bytes>"', "the size of a database"),
    ("*/cli.txt", r"\((?:\d+|\d+\.\d) [kMG]B\)", "(<size>)", "the size of a database"),
    ("*/cli.txt", r", \d+\.\d MB", ", <size>", "the size of a database"),
    ("*/metrics.txt", r"^(agentd_database_size_bytes) .*$", r"\1 <bytes>", (
        "the size of a database"
    )),
    ("*", r'"confirm": "[0-9a-f]{16}"', '"confirm": "<digest>"', "follows from an id"),
    ("*/webhooks.txt", r"^(webhook-signature): .*$", r"\1: <signature>", "follows from an id"),
    # --- what the standard library decides
    ("*/cli.txt", r"(?<=[ \[])-(\w) (\S+), --([\w-]+) \2", r"-\1, --\3 \2", (
        "Python 3.13 names it once"
    )),
    ("*/cli.txt", r"^(  +-[^\n]{18,})\n {20,}(?=\S)", r"\1  ", (
        "argparse breaks the line where the names are long"
    )),
    ("memory_recall/cli.txt", r"^\d\.\d\d  (?=\S)", "<score>  ", "random ids are words, too"),
    ("memory_recall/cli.txt", r"([+-])\d\.\d\d(?=,|$)", r"\1<score>", "random ids are words, too"),
    (
        "memory_recall/*",
        r'"(relevance|words|run|length|name|type|age)": -?\d\.\d+',
        r'"\1": "<score>"',
        "random ids are words, too",
    ),
    ("follow_events/log.txt", r'^.*"routine": "ping".*\n', "", (
        "it runs until a follower has heard of it"
    )),
    ("*", r"\b01[0-9A-HJKMNP-TV-Z]{6,23}(?=\W?…)", "<id, cut>", (
        "where a text is cut, within an id"
    )),
    (
        "run_with_tools/vendor.txt",
        r'^( "model": "local",\n)(?! "stream")',
        r'\1 "stream": true,\n "stream_options": {\n  "include_usage": true\n },\n',
        (
            "a run is streamed while somebody follows it: `agentctl run` may come after the first "
            "question was asked"
        ),
    ),
    ("park_and_approve/cli.txt", r"^2> +I write\.\n", "", (
        "whether it is shown depends on who is faster"
    )),
    (
        "memory_recall/cli.txt",
        r"^2> +(?:All is well|Nothing new) in the shed\.\n",
        "",
        "whether a last message is shown as progress, too, depends on who is faster",
    ),
    # --- the alignment of columns, whose width comes from values that stand here
    ("*/cli.txt", r"(?<=\S)  +", "  ", "columns are as wide as the ids and durations in them"),
    ("*", r"[ \t]+$", "", "what is left of columns"),
)  # fmt: skip

# Once the lines of the log are sorted.
RULES_FOR_LOGS: tuple[tuple[str, str, str], ...] = (
    (
        r'^\S+ \w+ \w+\.reloaded \{"added": \[\], "changed": \[\], "removed": \[\]\}\n',
        "",
        "how often files are read that have not changed depends on when the watcher saw them",
    ),
    (
        r"^\S+ \w+ \w+\.clock_set .*\n",
        "",
        "a clock that stands still is taken for one that was set, now and then",
    ),
    (
        r"^(.* (?:definitions\.|routine\.invalid).*\n)\1+",
        r"\1",
        "the same fault is told whenever the files are read",
    ),
)

# Ids and digests, each told from the others by the order in which they appear.
ULID = r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"
HEX = r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-f])"


class Normaliser:
    """Replaces in the surfaces of one scenario what differs from run to run; ids are numbered over
    all of them.
    """

    def __init__(self, scenario: str, *, folder: Path, texts: Iterable[str]) -> None:
        self.scenario, self.folder = scenario, folder
        self.whole: dict[str, str] = {}
        """The id that an end of an id stands for."""
        self.names: dict[str, str] = {}
        for text in texts:
            for match in re.finditer(ULID, text):
                self.whole |= {match[0][-length:]: match[0] for length in (6, 8, 26)}
        self.id_pattern = re.compile(
            rf"{ULID}|\b[0-9A-HJKMNP-TV-Z]{{8}}\b|\b[0-9A-HJKMNP-TV-Z]{{6}}\b|{HEX}"
        )

    def normalise(self, file: str, text: str) -> str:
        """Return the text of a surface without what cannot be pinned."""
        text = text.replace(str(self.folder), "<folder>").replace(
            self.folder.name, "<name of folder>"
        )
        for where, pattern, replacement, _ in RULES:
            if fnmatchcase(f"{self.scenario}/{file}", where):
                text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        if file == "log.txt":
            text = sort_log(text, key=lambda line: self.id_pattern.sub("", line))
            for pattern, replacement, _ in RULES_FOR_LOGS:
                text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        return self.id_pattern.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        if len(match[0]) >= 32:
            whole, kind = match[0], "digest"
        elif match[0] in self.whole:
            whole, kind = self.whole[match[0]], "id"
        else:
            return match[0]
        if whole not in self.names:
            number = sum(name.startswith(f"<{kind} ") for name in self.names.values()) + 1
            self.names[whole] = f"<{kind} {number}>"
        return self.names[whole]


def without_numbers(line: str) -> str:
    """Return a normalised line without the numbers of its ids."""
    return re.sub(r"<(?:id|digest) \d+>", "", line)


# The sandbox is tried beside the first runs: whether that is done before a daemon stops is chance.
_BY_CHANCE = re.compile(r"^\S+ \w+ sandbox\.\w+ ")
_BY_CHANCE_SHOWN = re.compile(
    r"^\S+ \S+ +\w+ +sandbox\.\w+"
)  # the same as `agentctl logs` shows it


def sort_log(text: str, key: Callable[[str], str] = without_numbers) -> str:
    """Sort the fields of each event, and the events of the same moment, whose order is not
    promised.
    """
    lines = []
    for line in text.splitlines():
        if _BY_CHANCE.match(line):
            continue
        head, brace, fields = line.partition(" {")
        if brace:
            with contextlib.suppress(ValueError):
                line = (
                    f"{head} "
                    f"{json.dumps(json.loads('{' + fields), sort_keys=True, ensure_ascii=False)}"
                )
        lines.append(line)
    return "".join(
        f"{line}\n" for line in sorted(lines, key=lambda line: (line.partition(" ")[0], key(line)))
    )


def sort_cli_logs(text: str) -> str:
    """Sort the events that `agentctl logs` shows of the same moment, but for those of the sandbox's
    trial.
    """
    blocks = text.split("\n$ ")
    for number, block in enumerate(blocks):
        if block.startswith("agentctl logs") and "--json" not in block:
            command, *lines = block.split("\n")
            events = [
                line
                for line in lines
                if re.match(r"\d{4}-", line) and not _BY_CHANCE_SHOWN.match(line)
            ]
            rest = [line for line in lines if not re.match(r"\d{4}-", line)]
            blocks[number] = "\n".join([command, *sorted(events, key=without_numbers), *rest])
    return "\n$ ".join(blocks)


def sort_json(text: str) -> str:
    """Sort the keys of each JSON value that stands over several lines, and of each line of a
    log.
    """
    lines: list[str] = []
    start = None
    for line in text.split("\n"):
        lines.append(line)
        if line in ("{", "["):
            start = len(lines) - 1
        elif line in ("}", "]") and start is not None:
            try:
                value = json.loads("\n".join(lines[start:]))
            except ValueError:
                continue
            lines[start:] = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).split(
                "\n"
            )
            start = None
    return "\n".join(lines)
