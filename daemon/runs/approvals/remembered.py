"""approvals.toml: calls that a person allowed for good, until they are revoked.

The file is in the state folder. Only agentd adds entries; people may remove some by hand. A
remembered call must be the same word for word, run the same program from the same place, for the
same routine, in a run that has read nothing of strangers (or whose routine names the tool in
`tainted_tools`). What stands in files it is given may change; so may its program, as updates do
that.

Processes that share a database share the entries, too: each writes them into its own file, so an
answer given to one holds for all.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import structlog

from daemon.definitions.reading import load_toml
from daemon.definitions.values import Items, Table
from daemon.definitions.words import display
from daemon.errors import ConfigError, DaemonError, Fault, NotFound, Refused
from daemon.models import Approval, Json
from daemon.policy.tables import word_list
from daemon.runs.approvals.request import format_request

log = structlog.get_logger()

NAME = "approvals.toml"
_HEAD = """\
# Calls that were allowed for good, by `agentctl approve ID --remember`: each exactly as it stands here, for its
# routine, as long as the run has read nothing of strangers. `agentctl approvals --revoke ID` takes one out again.

"""  # noqa: E501
# Tools whose calls are programs or change what agentd itself is.
_NEVER = ("script", "routine", "config", "subagent")


class RememberedCall(Table):
    """One call that was allowed for good."""

    id: str
    """Of the approval it came from."""
    routine: str
    tool: str
    what: str
    """For people."""
    call: str
    """Exactly, as JSON."""
    by: str
    at: datetime


class File(Table):
    """All of approvals.toml."""

    version: Literal[1] = 1
    remembered: Items[RememberedCall] = ()


class Remembered:
    """The calls that people allowed for good, as approvals.toml has them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fault = ""
        """Why the file cannot be used; empty if it can."""
        self._version: tuple[int, int, int] | None = None
        self._file = File()

    def allows(self, request: Json) -> str:
        """Return the entry that allows this call, as a rule is named; empty if none does."""
        essence = _essence(request)
        entries = self.entries()
        match = next((entry for entry in entries if json.loads(entry.call) == essence), None)
        return f"{NAME} ({match.id})" if match else ""

    def entries(self) -> Sequence[RememberedCall]:
        """Return what is remembered; nothing as long as the file cannot be trusted."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._version, self._file, self.fault = None, File(), ""
            return ()
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if version != self._version:
            self._version, self._file, self.fault = version, File(), ""
            try:
                self._file = self._read(status)
            except ConfigError as error:
                self.fault = str(error)
                log.warning("approvals.unreadable", fault=self.fault)
        return self._file.remembered

    def _read(self, status: os.stat_result) -> File:
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            problem = "could have been written by others, so nothing in it holds"
            raise ConfigError(
                Fault(file=display(self.path), key="", found="", problem=problem, hint="chmod 600")
            )
        file = load_toml(self.path, File)
        for index, entry in enumerate(file.remembered):
            try:
                json.loads(entry.call)
            except ValueError:
                key = f"remembered[{index}].call"
                fault = Fault(
                    file=display(self.path), key=key, found=entry.call[:60], problem="is not JSON"
                )
                raise ConfigError(fault) from None
        return file

    def proposal(self, approval: Approval) -> tuple[str, str]:
        """Return the diff that remembering the call would make, and the token that confirms it.

        Raises Refused for a call that cannot be remembered.
        """
        if reason := _reason_against(approval):
            raise Refused(
                (  # noqa: UP034
                    f"this cannot be remembered: {reason}; approve it once, or write a rule into "
                    "policy.toml"
                )
            )
        entries = self.entries()
        if self.fault:
            raise Refused(f"nothing is remembered as long as {NAME} cannot be read: {self.fault}")
        old_text, new_text = (
            _text(entries),
            _text((*entries, _entry(approval, by="", at=approval.created))),
        )
        lines = difflib.unified_diff(
            old_text.splitlines(), new_text.splitlines(), NAME, NAME, n=0, lineterm=""
        )
        return "\n".join(lines), hashlib.sha256(new_text.encode()).hexdigest()[:16]

    def add(self, approval: Approval, *, by: str, at: datetime) -> RememberedCall:
        """Remember a call."""
        entry = _entry(approval, by=by, at=at)
        self._write((*self.entries(), entry))
        return entry

    def revoke(self, id_: str) -> RememberedCall:
        """Forget a call by the id of its approval, or the end of that id. Raises NotFound."""
        entries = self.entries()
        matches = [entry for entry in entries if len(id_) >= 4 and entry.id.endswith(id_.upper())]
        if len(matches) != 1:
            raise NotFound(
                f"nothing is remembered as {id_!r}; `agentctl approvals --remembered` shows what is"
            )
        self._write([entry for entry in entries if entry is not matches[0]])
        return matches[0]

    def learn(self, shared_entries: str) -> None:
        """Write the calls that the processes of a shared database remember into the file, unless
        the file cannot be read.
        """
        entries = File.model_validate_json(shared_entries).remembered
        if list(self.entries()) != list(entries) and not self.fault:
            self._write(entries)

    def _write(self, entries: Sequence[RememberedCall]) -> None:
        temporary_path = self.path.with_name(f".{NAME}.new")
        try:
            temporary_path.unlink(missing_ok=True)
            descriptor = os.open(
                temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(_text(entries))
                file.flush()
                os.fsync(file.fileno())
            temporary_path.replace(self.path)
        except OSError as error:
            raise DaemonError(f"{self.path} cannot be written: {error.strerror}") from error


def apply_change(
    shared_entries: str | None,
    own_entries: Sequence[RememberedCall],
    change: Callable[[Sequence[RememberedCall]], Sequence[RememberedCall]],
) -> str:
    """Return the calls that the processes of a shared database remember, after a change, as JSON.

    `shared_entries` are those before it, as JSON; None where nothing is shared yet: then the
    entries of this process are the first.
    """
    entries = (
        own_entries
        if shared_entries is None
        else File.model_validate_json(shared_entries).remembered
    )
    return File(remembered=tuple(change(entries))).model_dump_json()


def _text(entries: Sequence[RememberedCall]) -> str:
    import tomli_w

    return _HEAD + tomli_w.dumps(
        {"version": 1, "remembered": [entry.model_dump() for entry in entries]}
    )


def _entry(approval: Approval, *, by: str, at: datetime) -> RememberedCall:
    request = approval.approval_request.request
    return RememberedCall(
        id=approval.id,
        routine=approval.routine,
        tool=approval.approval_request.tool,
        what=format_request(request),
        call=json.dumps(_essence(request), sort_keys=True, ensure_ascii=False),
        by=by,
        at=at.astimezone(UTC).replace(microsecond=0),
    )


def _essence(request: Json) -> Json:
    """Return what a call must have in common with the remembered one."""
    essence = {key: request[key] for key in ("tool", "routine", "folder")}
    if not (line := request.get("line")):
        return essence | {"arguments": request["arguments"]}
    return essence | {
        "line": [
            [joint, [_command_essence(command) for command in commands]] for joint, commands in line
        ]
    }


def _command_essence(command: Json) -> Json:
    return {
        "argv": command["argv"],
        "program": (command["program"] or {}).get("path"),
        "streams": command["streams"],
        "stdin": (command.get("stdin") or {}).get("path"),
    }


def _reason_against(approval: Approval) -> str:
    """Return why a call may not be allowed for good; empty if it may."""
    approval_request = approval.approval_request
    if approval_request.taint:
        return "the run had read what strangers wrote, who may have chosen these very words"
    if approval_request.tool in _NEVER:
        return f"a call of {approval_request.tool} is a program of its own"
    for _, commands in approval_request.request.get("line", ()):
        for command in commands:
            name = str(command["argv"][0]).rpartition("/")[2]
            if command["program"] is None:
                return f"{name} is not installed, and whatever comes by that name would be allowed"
            if name in word_list("programs", "run_anything") | word_list(
                "programs", "obey_files"
            ) or _versioned(name):
                return f"{name} runs whatever it is told to"
    return ""


def _versioned(name: str) -> bool:
    """Return whether a program is an interpreter by a name with its version: `python3.11`,
    `perl5.36`.
    """
    return name.rstrip("0123456789.") in word_list("programs", "run_anything")
