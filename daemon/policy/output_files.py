"""The files that a tainted run may write without a person being asked: below `out/<routine>/`.

Theory of operation. Strangers may steer a tainted run, so what it writes here is theirs: plain data
in a folder of its routine, which no program runs or obeys by itself and for which no routine waits.
A rule that allows `file_write` for the path is needed as in every run. Nobody is asked below
`out/`: what does not fit there is denied, and the run is told what would fit. Whoever reads such a
file later is tainted by it, as by every file.

Names are of ASCII letters, so that none looks like another one. Not here: the sum of a routine's
files, which is counted while one is written (tools/builtin/files.py).
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from daemon.policy.globs import Glob, any_covers
from daemon.policy.lexer import CallRejected
from daemon.policy.tables import word_list

if TYPE_CHECKING:
    from daemon.definitions.config.config import Config
    from daemon.definitions.routines.routine import Routine

FOLDER = "out"
MAX_FILE_BYTES = 1_000_000
# Of the folder of one routine: bytes, and files and folders.
MAX_SUM_BYTES = 20_000_000
MAX_ENTRIES = 500
_MAX_FOLDERS = 4  # below the routine's own
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", re.ASCII)
_FILE_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,79})\.([a-z]{2,4})", re.ASCII)
_TABLES = frozenset({"csv", "tsv"})
# Control and format characters, surrogates, and code points that nobody has assigned.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Cn", "Co"})
# What may end a cell: whatever a spreadsheet takes for separators, quotes and line ends.
_CELL_ENDS = re.compile(r"[,;|\"'\x00-\x1f\x7f-\x9f\u2028\u2029]")
# A first line that names a separator, which may be any letter (`sep=A`), or one by which Excel
# reads symbolic links (SYLK), whose formulas begin with no sign.
_READING_INSTRUCTION = re.compile(r"""[\s"']*(?:(?i:sep)\s*=|ID["']*;)""")
# A sign behind another mark, which a person may take for a separator; and a blank, likewise.
_SIGN_BEHIND_MARK = re.compile(r"(?<=[^\w\s=@+-]) *[=@+-]")
# What a formula does more than to calculate: call a function, a program, or a cell elsewhere.
_FORMULA_ACTION = re.compile(r"(?<=[^\W\d]) *\(|[|!\[]")
# A wildcard of a glob, or a field of a template.
_FIELD = re.compile(r"[*?\[{]")
_SIGNED_NUMBER = re.compile(r"[+-](?:[0-9][0-9.:]*%?)?", re.ASCII)


def output_folder(routine: str) -> str:
    """Return the folder of a routine; one that an agent made shares its maker's, so that making
    routines makes no room.
    """
    return f"{FOLDER}/{routine.partition('/')[0]}"


def example_paths(folder: str) -> Iterator[str]:
    """Yield a path in a folder for each kind of file that may be written there."""
    return (f"{folder}/x.{ending}" for ending in sorted(word_list("files", "output")))


def is_below_out(names: Iterable[str]) -> bool:
    """Tell whether a path lies below `out/` of the workspace under one of its names, in whichever
    case a file system compares them.
    """
    return any(_fold(name.partition("/")[0]) == FOLDER for name in names)


def explain_refusal(
    names: Sequence[str],
    content: str | None,
    *,
    routine: str,
    folders_in_use: Iterable[str] = (),
    trusted_globs: Iterable[Glob] = (),
) -> CallRejected | None:
    """Return why a tainted run of a routine may not write a file below `out/`; None if it may.

    `names` are those of the path, relative to the workspace: more than one if a link leads to it.
    With `content` None only the names are judged. `folders_in_use` are folders and files that the
    daemon looks at by itself; `trusted_globs` are those of `[injection] trust`, files in which
    orders to agents raise no suspicion.
    """
    folder, name = output_folder(routine), names[0]
    forms = f"{folder}/NAME.EXT, EXT one of {', '.join(sorted(word_list('files', 'output')))}"
    if len(names) > 1:
        return CallRejected(f"a link leads to {name}", f"write {forms}")
    *parts, last_part = name.removeprefix(f"{folder}/").split("/")
    file_name = _FILE_NAME.fullmatch(last_part)
    if not routine or not name.startswith(f"{folder}/"):
        return CallRejected(f"{name} is not below {folder}/", f"write {forms}")
    if file_name is None or file_name[2] not in word_list("files", "output"):
        return CallRejected(f"{name} is no plain name of a plain kind of file", f"write {forms}")
    if len(parts) > _MAX_FOLDERS or not all(map(_FOLDER_NAME.fullmatch, parts)):
        return CallRejected(f"{name} lies in no plain folder", f"write {forms}")
    if obeyed_name := next(filter(_is_read_by_programs, (file_name[1], *parts)), None):
        return CallRejected(f"programs read {obeyed_name} by themselves", "use another name")
    if used_path := next((path for path in folders_in_use if _overlaps(name, path)), None):
        return CallRejected(
            f"{used_path} is watched, delivered to or searched by agentd",
            f"another folder of {folder}/",
        )
    if any_covers(trusted_globs, name):
        return CallRejected(f"{name} is named by [injection] trust", "use another name")
    if content is None:
        return None
    if len(content.encode(errors="surrogatepass")) > MAX_FILE_BYTES:
        return CallRejected(f"{name} would have more than {MAX_FILE_BYTES:,} bytes", "write less")
    if problem := _explain_content(file_name[2], content):
        return CallRejected(f"{name} {problem[0]}", problem[1])
    return None


def _explain_content(ending: str, content: str) -> tuple[str, str] | None:
    """Return what some program would do by itself with a table or a JSON file, and what to write
    instead; None if none would do anything.

    Such files are written as they are: taking out a character could make a formula of a text.
    Texts for people (md, txt) are made harmless when they are written (tools/builtin/files.py).
    """
    if ending in _TABLES or ending == "json":
        text = content.replace("\r\n", "\n")
        if any(unicodedata.category(char) in _INVISIBLE and char not in "\t\n" for char in text):
            return "holds control or invisible characters", "leave them out"
    if ending in _TABLES:
        table = unicodedata.normalize("NFKC", content)
        if start := _READING_INSTRUCTION.match(table):
            return f"says how it is to be read ({start[0].strip()!r:.40})", "begin with other words"
        if cell := _find_formula(table):
            return f"has a cell that is a formula ({cell!r:.40})", "begin no cell with = + - or @"
    if ending == "json":
        try:
            json.loads(content, object_pairs_hook=_refuse_references)
        except (ValueError, RecursionError) as error:
            return (
                f"is no JSON of plain data: {error}",
                "write JSON, no key of it with $ or @ first",
            )
    return None


def _refuse_references(pairs: list[tuple[str, object]]) -> None:
    """Raise ValueError for keys by which editors and other readers fetch an address (`$schema`,
    `$ref`, `@context`).
    """
    for key, _ in pairs:
        if _fold(key).strip().startswith(("$", "@")):
            raise ValueError(f"the key {key!r:.40} may name an address to fetch")


def _is_read_by_programs(name: str) -> bool:
    folded_name = _fold(name).replace("_", "-")
    return any(
        fnmatchcase(folded_name, pattern) for pattern in word_list("files", "read_by_programs")
    )


def _find_formula(table: str) -> str | None:
    """Return the first cell of a table that is a formula for some spreadsheet; None if none is.

    A person may choose another separator when the table is opened. For these, only formulas that do
    more than calculate are found, as `a - b` and `(-5)` stand in many texts.
    """
    for cell in _CELL_ENDS.split(table):
        text = cell.strip()
        if text[:1] in ("=", "@"):
            return text
        if text[:1] in ("+", "-") and not _SIGNED_NUMBER.fullmatch(text):
            return text
    for text in re.split(r"[,;\n\t]", table):
        sign = _SIGN_BEHIND_MARK.search(text)
        if sign and _FORMULA_ACTION.search(text, sign.end()):
            return text[sign.start() :].strip()
    return next(
        (word for word in table.split() if word[0] in "=@+-" and _FORMULA_ACTION.search(word)), None
    )


def _overlaps(name: str, path: str) -> bool:
    """Tell whether a file lies in a folder, or a file or folder has the place of the other."""
    name, path = f"{_fold(name)}/", f"{_fold(path)}/"
    return path == "./" or name.startswith(path) or path.startswith(name)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def folders_in_use(config: Config, routines: Iterable[Routine], workspace: Path) -> tuple[str, ...]:
    """Return the folders and files in or around `out/` that the daemon looks at by itself or
    delivers to, relative to the workspace; `.` is the whole workspace.

    Globs and templates count as the folder that their fixed part names.
    """
    patterns = [target.path for target in config.targets.values() if target.path]
    for routine in routines:
        for trigger in routine.triggers:
            patterns += trigger.watch
        for delivery in routine.deliver:
            if delivery.path and _may_name_out(delivery.path):
                patterns.append(delivery.path.replace("{routine}", routine.name))
    names = {_fixed_part(pattern) for pattern in patterns if _may_name_out(pattern)}
    root = os.path.realpath(workspace)
    paths = [
        *config.identity_paths,
        config.folder / "skills",
        config.folder / "tools",
        config.routines_path,
        config.scripts_path,
    ]
    for server in config.mcp.values():
        folder = config.folder / Path(server.cwd or ".").expanduser()
        words = (*server.command, *([server.cwd] if server.cwd else ()))
        paths += [folder / Path(word).expanduser() for word in words if "/" in word]
    for path in paths:
        real = os.path.realpath(path)
        if real.startswith(f"{root}/{FOLDER}/") or f"{root}/{FOLDER}" == real:
            names.add(real[len(root) + 1 :])
    return tuple(sorted(names))


@lru_cache(maxsize=256)  # ten thousand routines have a few templates between them
def _may_name_out(pattern: str) -> bool:
    """Tell whether a glob or a template may be about `out/`; never wrongly no."""
    first_part = pattern.partition("/")[0]
    return (
        ".." in pattern
        or first_part in ("", ".")
        or _FIELD.search(first_part) is not None
        or _fold(first_part) == FOLDER
    )


def _fixed_part(pattern: str) -> str:
    """Return the folder that a glob or a template names before its first wildcard or field, or the
    whole path if it has none.
    """
    parts = PurePosixPath(os.path.normpath(pattern)).parts
    fixed_parts = [*parts]
    for index, part in enumerate(parts):
        if _FIELD.search(part):
            fixed_parts = [*parts[:index]]
            break
    return "/".join(fixed_parts) or "."
