"""Read, check and replace the text of a routine's file, for `agentctl edit` and the API.

A new text is checked as the daemon checks it before anything is written, and the file is replaced
only if nobody has changed it since it was read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from daemon.definitions.key_lines import with_lines
from daemon.definitions.reading import CrossFieldCheck, decode, parse_toml
from daemon.definitions.routines.chains import find_broken_chains
from daemon.definitions.routines.checks import PEOPLE_CHECKS
from daemon.definitions.routines.folder import FolderContents, name_faults, routine_of
from daemon.definitions.routines.routine import Routine, RoutineDefinition
from daemon.definitions.words import display
from daemon.errors import ConfigError, FileChanged, NotFound, Refused
from daemon.system.replace_file import replace_file

MAX_SOURCE_BYTES = 1_000_000


def path_of_new(folder: Path, name: str) -> Path:
    """Return the path for the file of a new routine. Raises Refused if `name` is no file name."""
    path = folder / f"{name}.toml"
    if path.name != f"{name}.toml" or "\0" in name:
        raise Refused(f"{name!r} is no name: a routine's name is made of a-z, 0-9 and -")
    return path


def read_source(path: Path) -> bytes:
    """Return the content of a routine's file. Raises NotFound, and Refused if it is too large, not
    a regular file, or cannot be read.
    """
    try:
        # without O_NONBLOCK, opening a pipe would wait for its writer
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Refused(f"{path} is not a regular file")
            content = file.read(MAX_SOURCE_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"{path} is gone") from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_SOURCE_BYTES:
        raise Refused(f"{path} is over {MAX_SOURCE_BYTES:,} bytes; look at it with an editor")
    return content


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    return sha256(content).hexdigest()


def check_source(
    content: bytes,
    path: Path,
    *,
    checks: Sequence[CrossFieldCheck[RoutineDefinition]],
    routines: FolderContents,
) -> Routine:
    """Return the routine that a person's file at `path` would be with this content.

    Raises ConfigError with all faults: of the name, the text, the keys, those that `checks` find,
    and names of other `routines` that do not exist.
    """
    name = path.name.removesuffix(".toml")
    try:
        text = decode(content, path)
        data = parse_toml(text, path)
    except ConfigError as error:
        raise ConfigError(*name_faults(name, path), *error.faults) from None
    routine = routine_of(data, path, checks=(*PEOPLE_CHECKS, *checks), text=text)
    all_routines = {**routines.routines, name: routine}
    if chain_error := find_broken_chains(all_routines, unreadable=routines.faults).get(name):
        raise ConfigError(*with_lines(chain_error.faults, text))
    return routine


def replace_source(path: Path, content: bytes, *, digest: str, folder: Path | None = None) -> None:
    """Replace the content of a routine's file atomically. The file keeps its mode and group; of a
    symbolic link, the file it leads to is replaced.

    Raises FileChanged if the present content has not this `digest`. Raises Refused if the file
    belongs to another user, lies outside of `folder`, or cannot be written.
    """
    refuse_file_of_another(path)
    file = resolve_source(path, folder)
    try:
        if digest_of(file.read_bytes()) != digest:
            raise FileChanged(f"{display(path)} was changed meanwhile")
        status = file.stat()
        replace_file(file, content, mode=status.st_mode & 0o777, group=status.st_gid)
    except OSError as error:
        raise Refused(f"{display(path)} cannot be written: {error.strerror}") from None


def resolve_source(path: Path, folder: Path | None = None) -> Path:
    """Return the file that a routine's path leads to. Raises Refused for a link that leads out of
    `folder`.
    """
    file = path.resolve()
    if folder is not None and not file.is_relative_to(folder.resolve()):
        raise Refused(
            f"{display(path)} is a link to {display(file)}, outside of the folder of routines; "
            "edit it there"
        )
    return file


def explain_agent_owned(name: str) -> str:
    """Return why the file of a routine that an agent made cannot be edited."""
    return f"an agent made {name}; `agentctl adopt {name}` makes it yours, to be edited"


def refuse_file_of_another(path: Path) -> None:
    """Raise Refused for a file of another user: replacing it would make it the caller's."""
    try:
        owner = path.stat().st_uid
    except OSError as error:
        raise Refused(f"{display(path)} cannot be read: {error.strerror}") from None
    if owner != os.geteuid():
        problem = f"{display(path)} belongs to another user (uid {owner}); edit it as that user"
        raise Refused(problem)
