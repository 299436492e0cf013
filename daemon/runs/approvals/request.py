"""Describe exactly what a call would do, so that an approval is bound to that and nothing else.

A command line is bound to its words, to the very bytes of its programs and of the files they are
given (a script whose content changes is another script), to the folder it runs in and to the policy
it was judged by. A call of the tool `script` is bound to the bytes of its script. One
`CallDescriber` describes a call when a person is asked, answers, and when the call starts.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from daemon.models import Json
from daemon.policy.lexer import CallRejected
from daemon.policy.policy import Policy
from daemon.policy.reachable_paths import ReachablePaths
from daemon.policy.requests import PlannedCommand
from daemon.store.audit import digest
from daemon.tools.builtin.script import ScriptSettings

__all__ = ["CallDescriber", "describe", "describe_change", "digest", "format_request"]

# A larger file is not read for a question: its size, inode and time of change have to do.
MAX_HASHED_BYTES = 64 * 1024 * 1024
MAX_FILES = 200
MAX_PATH_CHARACTERS = 4096
MAX_LISTED_CHARACTERS = 2_000  # of one call in a list of calls
MIN_PART_CHARACTERS = 30  # that are shown of each argument or word of a call that is cut
# What a call acts upon: a person reads it first.
FIRST_ARGUMENTS = ("path", "url", "command", "method")


class CallDescriber:
    """Describe calls by the policy and the folder of scripts that are in force at that moment."""

    def __init__(self, settings: ScriptSettings) -> None:
        self._settings = settings

    async def describe(self, tool: str, arguments: Json, *, routine: str) -> Json:
        """Return exactly what a call would do. `routine` is its name in the policy."""
        policy, scripts = self._settings.policy, self._settings.config.scripts_path
        return await asyncio.to_thread(
            describe, policy, tool, arguments, routine=routine, scripts=scripts
        )


def describe(policy: Policy, tool: str, arguments: Json, *, routine: str, scripts: Path) -> Json:
    """Return exactly what a call would do, as JSON. Reads files, so call it in a thread.

    `routine` is the name by which the policy knows the routine, `scripts` the folder of scripts.
    """
    request: Json = {
        "tool": tool,
        "routine": routine,
        "policy": policy.hash,
        "folder": policy.reach.workspace,
    }
    if tool == "script" and (name := PurePath(str(arguments.get("name", ""))).name):
        # the approval is for this text of the script, not for what it says tomorrow
        request["script"] = _identify(scripts / name)
    line = policy.plan(tool, arguments, routine=routine)[1]
    if not line:
        return request | {
            "arguments": arguments,
            "files": dict(_identify_files(_words_in(arguments), policy.reach)),
        }
    planned_line = [
        [
            pipeline.operator,
            [_describe_command(command, policy.reach) for command in pipeline.commands],
        ]
        for pipeline in line
    ]
    return request | {"arguments": arguments, "line": planned_line}


def _describe_command(command: PlannedCommand, reach: ReachablePaths) -> Json:
    from daemon.tools.builtin.command_lines import find_program

    program = find_program(command.argv[0])
    streams = [[redirect.fd, redirect.to.value] for redirect in command.redirects]
    description: Json = {
        "argv": list(command.argv),
        "program": _identify(program) if program else None,
        "streams": streams,
    }
    if command.stdin:
        description["stdin"] = _identify(Path(command.stdin.real))
    return description | {"files": dict(_identify_files(command.argv[1:], reach))}


def _words_in(value: Any) -> list[str]:
    """Return the short texts among the arguments of a call: any of them may name a file."""
    if isinstance(value, str):
        return [value] if len(value) < MAX_PATH_CHARACTERS else []
    if isinstance(value, Mapping):
        return [word for item in value.values() for word in _words_in(item)]
    if isinstance(value, list):
        return [word for item in value for word in _words_in(item)]
    return []


def _identify_files(words: Iterable[str], reach: ReachablePaths) -> Iterator[tuple[str, Json]]:
    """Yield (word, identity) for each file that words may name, MAX_FILES at most."""
    count = 0
    for word in words:
        for text in dict.fromkeys((word, word.partition("=")[2])):
            try:
                path = Path(reach.resolve(text).real) if text else None
                is_file = path is not None and path.is_file()
            except (CallRejected, ValueError, OSError):  # a name has no 300 letters
                continue
            if path is not None and is_file and count < MAX_FILES:
                count += 1
                yield text, _identify(path)


def _identify(path: Path) -> Json:
    """Return the path of a file and the SHA-256 of its content; of one larger than
    MAX_HASHED_BYTES size, inode and time of change instead.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_HASHED_BYTES:
                return {
                    "path": str(path),
                    "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
                }
    except OSError:
        return {"path": str(path), "sha256": None}
    return {
        "path": str(path),
        "size": status.st_size,
        "inode": status.st_ino,
        "changed": status.st_mtime_ns,
    }


def describe_change(old_request: Json, new_request: Json) -> str:
    """Say what differs between two descriptions of one call; empty if nothing does."""
    if old_request == new_request:
        return ""
    if old_request["policy"] != new_request["policy"]:
        return "the policy has changed"
    if old_request["folder"] != new_request["folder"]:
        return f"the workspace has changed from {old_request['folder']} to {new_request['folder']}"
    if old_request.get("script") != new_request.get("script"):
        return (
            f"the script {(new_request.get('script') or old_request['script'])['path']} has changed"
        )
    old_files, new_files = _collect_identities(old_request), _collect_identities(new_request)
    paths = sorted(
        path
        for path in old_files.keys() | new_files.keys()
        if old_files.get(path) != new_files.get(path)
    )
    summary = "a program or a file of this call, or its folder, has changed"
    return f"{summary}: {', '.join(paths[:3])}" if paths else summary


def _collect_identities(value: Any) -> dict[str, Json]:
    """Return every program and file in a description of a call, by path."""
    if isinstance(value, list):
        return {path: file for item in value for path, file in _collect_identities(item).items()}
    if not isinstance(value, Mapping):
        return {}
    if "path" in value and ("sha256" in value or "inode" in value):
        return {str(value["path"]): dict(value)}
    return {
        path: file
        for key, item in value.items()
        if key != "arguments"
        for path, file in _collect_identities(item).items()
    }


def format_request(
    request: Json,
    *,
    id_: str = "",
    max_characters: int | None = None,
    redact: Callable[[str], str] = str,
    sanitize: Callable[[str], str] = str,
) -> str:
    """Return for people what a request would do: the line of a shell with the files that it reads
    as standard input, or the arguments, first what the call acts upon, then the short ones.

    A longer text than `max_characters` is cut argument by argument (word by word), so that the
    beginning of each is shown; None cuts nothing. With `id_`, the id of the approval, a cut text
    ends with the command that shows all. `redact` is called before anything is cut, as it does not
    recognize half a secret, `sanitize` with what is shown.
    """
    if line := request.get("line"):
        # what else the call says, such as the repository of git
        other_arguments = {
            name: item for name, item in request["arguments"].items() if name != "command"
        }
        parts = _words_of_line(line, request["folder"])
        parts += [f"({text})" for text in _format_arguments(other_arguments)]
        separator = " "
    else:
        parts, separator = _format_arguments(request["arguments"]), ", "
    redacted_parts = [redact(part) for part in parts]
    whole_text = redact(separator.join(parts))
    if whole_text != separator.join(redacted_parts):
        # a secret that is known by the words around it
        redacted_parts = [whole_text]
    text = sanitize(whole_text)
    if max_characters is None or len(text) <= max_characters:
        return text
    length = max_characters
    while length > MIN_PART_CHARACTERS and len(text) > max_characters:
        length = max(length * 3 // 4, MIN_PART_CHARACTERS)
        text = sanitize(separator.join(_cut(part, length) for part in redacted_parts))
    if len(text) > max_characters:
        # very many parts: the end of a line counts as much as its beginning
        head_length, tail_length = max_characters * 2 // 3, max_characters // 3
        count = len(text) - head_length - tail_length
        text = f"{text[:head_length]}… ({count:,} characters left out) …{text[-tail_length:]}"
        text = sanitize(text)  # half of a word may mean something by itself
    return f"{text} (agentctl approvals {id_} shows all)" if id_ else text


def _words_of_line(line: Sequence[Any], folder: str) -> list[str]:
    """Return the words of a planned line as a shell quotes them, with its operators."""
    words: list[str] = []
    for index, (operator, commands) in enumerate(line):
        for position, command in enumerate(commands):
            if position:
                words.append("|")
            elif index:
                words.append(operator)
            words += [shlex.quote(word) for word in command["argv"]]
            if stdin := command.get("stdin"):
                path = PurePath(stdin["path"])
                shown_path = path.relative_to(folder) if path.is_relative_to(folder) else path
                words += ["<", shlex.quote(str(shown_path))]
    return words


def _format_arguments(arguments: Json) -> list[str]:
    """Return `name = value` of each argument: what the call acts upon, then the others by length.

    The model chooses the order of the arguments: a long one in front must not hide the rest.
    """
    texts = {
        name: f"{name if name.isidentifier() else repr(name)} = {_sort_by_length(value)!r}"
        for name, value in arguments.items()
    }

    def rank(name: str) -> tuple[int, int]:
        if name in FIRST_ARGUMENTS:
            return FIRST_ARGUMENTS.index(name), 0
        return len(FIRST_ARGUMENTS), len(texts[name])

    return [texts[name] for name in sorted(texts, key=rank)]


def _sort_by_length(value: Any) -> Any:
    """Return a JSON value with the items of its objects ordered by length, the shortest first."""
    if isinstance(value, list):
        return [_sort_by_length(item) for item in value]
    if isinstance(value, Mapping):
        items = [(key, _sort_by_length(item)) for key, item in value.items()]
        return dict(sorted(items, key=lambda item: len(repr(item))))
    return value


def _cut(text: str, length: int) -> str:
    """Return a text, or its first `length` characters and how many are left out.

    A quoted text keeps its closing quote: nothing in it can pass for what stands behind it.
    """
    if len(text) <= length:
        return text
    closing_quote = text[-1] if text[-1] in "'\"" else ""
    return f"{text[:length]}…{closing_quote} ({len(text) - length:,} characters left out)"
