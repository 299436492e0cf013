"""What a scripted provider may be told to answer: the check of `replies` in config.toml, and of
those that a program passes to `ScriptedProvider`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from daemon.models import Usage

_REPLY_KEYS = ("finish_reason", "reasoning", "text", "tool_calls", "usage")
_CALL_KEYS = ("arguments", "id", "invalid", "name")
_USAGE_KEYS = tuple(field.name for field in fields(Usage))

ReplyFault = tuple[tuple[str | int, ...], str, Any]
"""The path of a value within a reply, what is wrong with it, and the value, None if missing."""


def find_reply_fault(reply: object) -> ReplyFault | None:
    """Return the first fault of a reply, None if it is valid."""
    if isinstance(reply, str):
        return None
    if not isinstance(reply, dict):
        return (), "a reply is a text or a table", reply
    if fault := _find_unknown_key(reply, (), "a reply", _REPLY_KEYS):
        return fault
    for key in ("finish_reason", "reasoning", "text"):
        if not isinstance(reply.get(key, ""), str):
            return (key,), "expected text in quotes", reply[key]
    calls = reply.get("tool_calls", ())
    if not isinstance(calls, list | tuple):
        return ("tool_calls",), 'expected a list of tables, like [{ name = "shell" }]', calls
    for index, call in enumerate(calls):
        if fault := _find_call_fault(call, ("tool_calls", index)):
            return fault
    return _find_usage_fault(reply.get("usage", {}))


def _find_call_fault(call: object, path: tuple[str | int, ...]) -> ReplyFault | None:
    if not isinstance(call, dict):
        return path, 'a tool call is a table, like { name = "shell" }', call
    if fault := _find_unknown_key(call, path, "a tool call", _CALL_KEYS):
        return fault
    if "name" not in call:
        return (*path, "name"), "is missing; a tool call needs a name", None
    for key in ("id", "invalid", "name"):
        if key in call and not isinstance(call[key], str):
            return (*path, key), "expected text in quotes", call[key]
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return (*path, "arguments"), "the arguments of a tool call are a table", arguments
    return None


def _find_usage_fault(usage: object) -> ReplyFault | None:
    if not isinstance(usage, dict):
        return ("usage",), "expected a table, like { input = 1200, output = 85 }", usage
    if fault := _find_unknown_key(usage, ("usage",), "usage", _USAGE_KEYS):
        return fault
    for key, value in usage.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return ("usage", key), "expected a whole number of tokens", value
    return None


def _find_unknown_key(
    table: dict[str, Any], path: tuple[str | int, ...], name: str, keys: tuple[str, ...]
) -> ReplyFault | None:
    for key, value in table.items():
        if key not in keys:
            return (*path, key), f"unknown key, {name} knows {', '.join(keys)}", value
    return None
