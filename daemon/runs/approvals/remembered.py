"""approvals.toml: calls that a person allowed for good, until they are revoked.

The file is in the state folder. Only agentd adds entries; people may remove some by hand. A
remembered call must be the same word for word, run the same program from the same place, for the
same routine, in a run that has read nothing of strangers (or whose routine names the tool in
`tainted_tools`). The content of files that it names may change; so may its program, by an update.

Processes that share a database share the entries, too: each writes them into its own file, so an
answer given to one holds for all.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import structlog

from daemon.definitions.reading import load_toml
from daemon.definitions.values import Items, Table
from daemon.definitions.words import display
from daemon.errors import ConfigError, DaemonError, Fault, NotFound, Refused
from daemon.models import Approval, Json, Taint
from daemon.policy.tables import word_list
from daemon.runs.approvals.request import MAX_LISTED_CHARACTERS, format_request
from daemon.system.ownership import explain_other_writers
from daemon.system.replace_file import replace_file

log = structlog.get_logger()

FILE_NAME = "approvals.toml"
_HEADER = """\
# Calls that were allowed for good, by `agentctl approve ID --remember`: each exactly as it stands here, for its
# routine, as long as the run has read nothing of strangers. `agentctl approvals --revoke ID` takes one out again.

"""  # noqa: E501
# Tools whose calls are programs or change what agentd itself is.
_NEVER_REMEMBERED = ("script", "routine", "config", "subagent")


class RememberedCall(Table):
    """One call that was allowed for good."""

    id: str
    """The id of the approval by which the call was allowed."""
    routine: str
    """The name by which the policy knows it: `maker/name` if an agent made it."""
    tool: str
    what: str
    """The call in words, for people; `call` decides."""
    call: str
    """The whole call as JSON, which another call must equal."""
    by: str
    at: datetime


class ApprovalsFile(Table):
    """All of approvals.toml."""

    version: Literal[1] = 1
    remembered: Items[RememberedCall] = ()


class RememberedCalls:
    """The calls that people allowed for good, as approvals.toml has them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fault = ""
        """Why the file cannot be used; empty if it can."""
        self._version: tuple[int, int, int] | None = None
        self._file = ApprovalsFile()

    def find_rule(self, request: Json) -> str:
        """Return the name of the entry that allows this call, as of a rule; empty if none does."""
        compared_part = _compared_part(request)
        entries = self.load_entries()
        match = next((entry for entry in entries if json.loads(entry.call) == compared_part), None)
        return f"{FILE_NAME} ({match.id})" if match else ""

    def load_entries(self) -> Sequence[RememberedCall]:
        """Return the remembered calls, read again if the file has changed.

        None of them as long as the file cannot be read or others could write it; `fault` says why.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._version, self._file, self.fault = None, ApprovalsFile(), ""
            return ()
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if version != self._version:
            self._version, self._file, self.fault = version, ApprovalsFile(), ""
            try:
                self._file = self._read(status)
            except ConfigError as error:
                self.fault = str(error)
                log.warning("approvals.unreadable", fault=self.fault)
        return self._file.remembered

    def _read(self, status: os.stat_result) -> ApprovalsFile:
        if writers := explain_other_writers(status):
            problem, hint = f"{writers[0]}, so nothing in it holds", writers[1]
            raise ConfigError(
                Fault(file=display(self.path), key="", found="", problem=problem, hint=hint)
            )
        file = load_toml(self.path, ApprovalsFile)
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

    def propose(self, approval: Approval) -> tuple[str, str]:
        """Return the diff that remembering the call would make, and the token that confirms it.

        Raises Refused for a call that cannot be remembered.
        """
        if reason := _explain_refusal(approval):
            alternative = _describe_alternative(approval)
            raise Refused(f"this cannot be remembered: {reason}; approve it once, or {alternative}")
        entries = self.load_entries()
        if self.fault:
            raise Refused(
                f"nothing is remembered as long as {FILE_NAME} cannot be read: {self.fault}"
            )
        old_text, new_text = (
            _format_entries(entries),
            _format_entries((*entries, _make_entry(approval, by="", at=approval.created))),
        )
        lines = difflib.unified_diff(
            old_text.splitlines(), new_text.splitlines(), FILE_NAME, FILE_NAME, n=0, lineterm=""
        )
        return "\n".join(lines), hashlib.sha256(new_text.encode()).hexdigest()[:16]

    def add(self, approval: Approval, *, by: str, at: datetime) -> RememberedCall:
        """Remember a call."""
        entry = _make_entry(approval, by=by, at=at)
        self._write((*self.load_entries(), entry))
        return entry

    def revoke(self, id_: str) -> RememberedCall:
        """Forget a call by the id of its approval, or the end of that id. Raises NotFound."""
        entries = self.load_entries()
        matches = [entry for entry in entries if len(id_) >= 4 and entry.id.endswith(id_.upper())]
        if len(matches) != 1:
            raise NotFound(
                f"nothing is remembered as {id_!r}; `agentctl approvals --remembered` shows what is"
            )
        self._write([entry for entry in entries if entry is not matches[0]])
        return matches[0]

    def replace(self, shared_entries: str) -> None:
        """Replace the calls in the file by those that all processes of a shared database remember,
        given as JSON; a file that cannot be read stays as it is.
        """
        entries = ApprovalsFile.model_validate_json(shared_entries).remembered
        if list(self.load_entries()) != list(entries) and not self.fault:
            self._write(entries)

    def _write(self, entries: Sequence[RememberedCall]) -> None:
        try:
            replace_file(self.path, _format_entries(entries).encode())
        except OSError as error:
            raise DaemonError(f"{self.path} cannot be written: {error.strerror}") from error


def change_shared_entries(
    shared_entries: str | None,
    own_entries: Sequence[RememberedCall],
    *,
    new_entry: RememberedCall | None = None,
    revoked_id: str = "",
) -> str:
    """Return the calls that the processes of a shared database remember, after a change, as JSON.

    `shared_entries` are those before it, as JSON; None where nothing is shared yet: then the
    entries of this process are the first.
    """
    entries = (
        own_entries
        if shared_entries is None
        else ApprovalsFile.model_validate_json(shared_entries).remembered
    )
    replaced_ids = {revoked_id, new_entry.id if new_entry else ""}
    other_entries = [entry for entry in entries if entry.id not in replaced_ids]
    entries_after_change = (*other_entries, new_entry) if new_entry else tuple(other_entries)
    return ApprovalsFile(remembered=entries_after_change).model_dump_json()


def _format_entries(entries: Sequence[RememberedCall]) -> str:
    import tomli_w

    return _HEADER + tomli_w.dumps(
        {"version": 1, "remembered": [entry.model_dump() for entry in entries]}
    )


def _make_entry(approval: Approval, *, by: str, at: datetime) -> RememberedCall:
    request = approval.approval_request.request
    return RememberedCall(
        id=approval.id,
        routine=request["routine"],
        tool=approval.approval_request.tool,
        what=format_request(request, max_characters=MAX_LISTED_CHARACTERS),
        call=json.dumps(_compared_part(request), sort_keys=True, ensure_ascii=False),
        by=by,
        at=at.astimezone(UTC).replace(microsecond=0),
    )


def _compared_part(request: Json) -> Json:
    """Return what a call must have in common with the remembered one."""
    compared_part = {key: request[key] for key in ("tool", "routine", "folder")}
    if not (line := request.get("line")):
        return compared_part | {"arguments": request["arguments"]}
    return compared_part | {
        "line": [
            [operator, [_compared_part_of_command(command) for command in commands]]
            for operator, commands in line
        ]
    }


def _compared_part_of_command(command: Json) -> Json:
    return {
        "argv": command["argv"],
        "program": (command["program"] or {}).get("path"),
        "streams": command["streams"],
        "stdin": (command.get("stdin") or {}).get("path"),
    }


def _explain_refusal(approval: Approval) -> str:
    """Return why a call may not be allowed for good; empty if it may."""
    approval_request = approval.approval_request
    if approval_request.taint:
        return "the run had read what strangers wrote, who may have chosen these very words"
    if approval_request.tool in _NEVER_REMEMBERED:
        return f"a call of {approval_request.tool} is a program of its own"
    for _, commands in approval_request.request.get("line", ()):
        for command in commands:
            name = str(command["argv"][0]).rpartition("/")[2]
            if command["program"] is None:
                return f"{name} is not installed, and whatever comes by that name would be allowed"
            if (
                name in word_list("programs", "run_anything")
                or name in word_list("programs", "obey_files")
                or _is_versioned_interpreter(name)
            ):
                return f"{name} runs whatever it is told to"
    return ""


def _describe_alternative(approval: Approval) -> str:
    """Return which change of policy.toml lets the call happen without a question.

    The taint of a run asks only where nothing else does: a rule and `autonomy` ask in any run.
    """
    request = approval.approval_request
    # for a routine that an agent made, the table of its maker counts
    name = request.request["routine"].partition("/")[0]
    tools = f'[routine.{name}] tainted_tools = ["{request.tool}"]'
    if request.rule == "taint":
        address = "name whole addresses in a rule with safe = true, or "
        return (
            f"{address if request.tool == 'http_request' else ''}let the routine use the tool in "
            f"such runs, too: {tools} in policy.toml"
        )
    if request.rule == "default":
        change = "write a rule into policy.toml"
    elif request.rule.startswith("autonomy"):
        change = f"take {request.rule} out of policy.toml"
    else:
        change = f"change what asks in policy.toml: {request.rule}"
    untainted_approval = replace(approval, approval_request=replace(request, taint=Taint.NONE))
    if not request.taint or _explain_refusal(untainted_approval):
        return change
    return (
        f"{change}; or remember the same call of a run that has read nothing of strangers, and let "
        f"it hold in other runs: {tools} in policy.toml"
    )


def _is_versioned_interpreter(name: str) -> bool:
    """Return whether a program is an interpreter by a name with its version: `python3.11`,
    `perl5.36`.
    """
    return name.rstrip("0123456789.") in word_list("programs", "run_anything")
