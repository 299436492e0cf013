"""Add a table to config.toml, whose comments and other lines stay, and write secrets beside it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from daemon.definitions.config.checks import CONFIG_CHECKS
from daemon.definitions.config.config import Config
from daemon.definitions.reading import parse
from daemon.errors import Refused
from daemon.models import Json
from daemon.system.file_lock import lock_file
from daemon.system.replace_file import replace_file

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_REMARK = "# Written by `agentctl setup`."
_MAX_LOCK_SECONDS = 10.0  # a change takes a fraction of that


def with_table(
    text: str,
    kind: str,
    name: str,
    table: Mapping[str, Any],
    *,
    default: bool = False,
    replace: bool = False,
    remark: str = _REMARK,
) -> str:
    """Return the text of a config with a table `[kind.name]` at its end, below the comment
    `remark`.

    With `default` the key `provider` names it. Raises ValueError if there is such a table and not
    `replace`, or if this cannot be done by adding, removing and replacing a few lines.
    """
    config = tomllib.loads(text)
    tables: Json = dict(config.get(kind, {}))
    if name in tables:
        if not replace:
            raise ValueError(f"it has a [{kind}.{name}] already")
        text = _without_table(text, kind, name)
    tables.pop(name, None)
    new_config: Json = {**config, kind: {**tables, name: dict(table)}}
    if default:
        text = _with_provider(text, name)
        new_config["provider"] = name
    new_text = f"{text.rstrip()}\n\n{remark}\n{tomli_w.dumps({kind: {name: table}})}".lstrip()
    try:
        is_as_meant = tomllib.loads(new_text) == new_config
    except tomllib.TOMLDecodeError:
        is_as_meant = False
    if not is_as_meant:  # TOML written in a way that the lines above miss
        raise ValueError("its lines are not where they usually are")
    return new_text


def _with_provider(text: str, name: str) -> str:
    """Return the text with `provider = "name"`, in the place of the present line."""
    first_table = _TABLE.search(text)
    end = first_table.start() if first_table else len(text)
    head, tables = text[:end], text[end:]
    line = f'provider = "{name}"'
    head, count = re.subn(
        r"^provider[ \t]*=[ \t]*[\"'][^\"'\n]*[\"']", line, head, count=1, flags=re.MULTILINE
    )
    if not count:
        head = f"{head.rstrip()}\n{line}\n\n".lstrip()
    return head + tables


def _without_table(text: str, kind: str, name: str) -> str:
    """Return the text without a table and the tables in it; comments before the next one stay."""
    key = rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')"
    pattern = rf"^[ \t]*\[[ \t]*{kind}[ \t]*\.[ \t]*{key}[ \t]*(?:\.[^\]\n]*)?\]"
    header = re.compile(pattern, re.MULTILINE)
    while table := header.search(text):
        next_table = _TABLE.search(text, table.end())
        end = next_table.start() if next_table else len(text)
        block = text[table.start() : end]
        last_setting = max(
            (match.end() for match in re.finditer(r"^(?![ \t]*(?:#|$)).*\n?", block, re.MULTILINE)),
            default=len(block),
        )
        before = text[: table.start()].removesuffix(f"{_REMARK}\n")
        text = before + block[last_setting:] + text[end:]
    return text


@contextmanager
def lock_config(file: Path) -> Iterator[None]:
    """Lock a config file while the body reads, changes and writes it, so that of two programs that
    do so at once neither loses the change of the other.

    Raises ValueError if another program keeps the lock, OSError if there is no such folder.
    """
    # the folder, as the file itself is replaced by another one
    folder = os.open(file.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            lock_file(folder, _MAX_LOCK_SECONDS)
        except TimeoutError as error:
            raise ValueError(str(error)) from None
        except OSError:
            pass  # a network file system may lock no folder; that is no reason to change nothing
        yield
    finally:
        os.close(folder)


def write_config(file: Path, text: str) -> None:
    """Replace a config file, at once or not at all; its mode stays. Call it within `lock_config`.

    Raises ConfigError if the daemon would refuse the text, ValueError or OSError if the file cannot
    be replaced.
    """
    parse(tomllib.loads(text), Config, file=file, checks=CONFIG_CHECKS)
    target = file.resolve()
    status = target.stat()
    if status.st_uid != os.geteuid():
        raise ValueError("it belongs to another user")
    replace_file(target, text.encode(), mode=status.st_mode & 0o777)


def write_secret(file: Path, secret: str) -> None:
    """Write a secret into a file of mode 0600, at once or not at all."""
    replace_file(file, f"{secret}\n".encode())


def check_secret(file: Path, secret: str, *, replace: bool) -> None:
    """Raise Refused if the file holds another secret and not `replace`."""
    if not replace and file.exists() and file.read_text("utf-8", "replace").strip() != secret:
        raise Refused(f"{file} holds another secret; --replace overwrites it")


def check_table(file: Path, kind: str, name: str, *, replace: bool, has_file: bool) -> None:
    """Raise Refused if the config has a table `[kind.name]` already and not `replace`."""
    if not has_file or replace:
        return
    config = tomllib.loads(file.read_text("utf-8-sig"))
    if name in config.get(kind, {}):
        raise Refused(f"{file} has a [{kind}.{name}] already; --replace overwrites it")
