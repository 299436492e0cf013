"""`agentctl replay` and `freeze`: with a daemon, or without one by agentd.

agentd prints its results by the functions of this module, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from daemon.cli.agentd_commands import exec_agentd
from daemon.cli.call import DONE, NOT_FOUND, NOT_SUCCEEDED, REFUSED, USAGE, Call, quote
from daemon.cli.client import Unreachable
from daemon.cli.render import BOLD, DIM, GREEN, RED, YELLOW, OutputStream, humanize
from daemon.cli.runs import find_run
from daemon.plurals import pluralize

# The files by which a folder is known as a frozen run.
FROZEN_RUN_FILES = ("SHA256SUMS", "case.json")
CHANGE_DESCRIPTIONS = {
    "model": "with another model",
    "prompt": "with another prompt",
    "policy": "by another policy",
}
MAX_DIFF_LINES = 40


def replay(call: Call) -> int:
    """Replay a run, and show whether it came out identical; exit code 1 if it did not."""
    options = {
        name: getattr(call, name)
        for name in ("model", "prompt", "policy")
        if getattr(call, name) is not None
    }
    if _is_frozen_run(call.run):
        _exec_agentd_replay(call, options)
    body: dict[str, str] = {}
    for name, value in options.items():
        if name == "model":
            body[name] = value
            continue
        try:
            body[name] = Path(value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            call.err.write_line(f"agentctl: --{name} {value} cannot be read: {reason}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else USAGE
    try:
        path = f"/v1/runs/{quote(find_run(call)['id'])}/replay"
        result = call.client.request("POST" if body else "GET", path, body or None)
    except Unreachable:
        if "model" in options or "prompt" in options:
            raise  # only the daemon asks a model, and counts what that costs
        _exec_agentd_replay(call, options)
    if call.json:
        call.print_json(result)
        return exit_code_of_replay(result)
    return write_replay(call.out, result)


def _is_frozen_run(run: str) -> bool:
    folder = Path(run)
    try:
        return folder.is_dir() and (
            "/" in run or any((folder / name).is_file() for name in FROZEN_RUN_FILES)
        )
    except OSError:  # no path is so long, or nobody may look into the folder
        return False


def _exec_agentd_replay(call: Call, options: Mapping[str, str]) -> NoReturn:
    arguments = [call.run]
    for name, value in options.items():
        arguments += [f"--{name}", value]
    if call.json:
        arguments.append("--json")
    exec_agentd(["replay", *arguments])


def freeze(call: Call) -> int:
    """Write a run into a folder of its own."""
    try:
        run_id = quote(find_run(call)["id"])
        frozen_run = call.client.request(
            "GET", f"/v1/runs/{run_id}/frozen?folder={quote(call.folder)}"
        )
    except Unreachable:
        exec_agentd(["freeze", call.run, call.folder])
    if call.json:
        call.print_json({"run": frozen_run["run"], "files": sorted(frozen_run["files"])})
        code = write_frozen_run(call.err, call.err, frozen_run, call.folder)
        return DONE if code == DONE else USAGE
    return write_frozen_run(call.out, call.err, frozen_run, call.folder)


def exit_code_of_replay(result: Mapping[str, Any]) -> int:
    """Return 0 if the replay was identical, else 1."""
    return DONE if result["identical"] else NOT_SUCCEEDED


def write_replay(out: OutputStream, result: Mapping[str, Any]) -> int:
    """Write how the replay compares with the recorded run; return the exit code."""
    outcome = out.paint("identical", GREEN) if result["identical"] else out.paint("changed", RED)
    change = f", {CHANGE_DESCRIPTIONS[result['changed']]}" if result["changed"] else ""
    tokens = result["asked"]["input"] + result["asked"]["output"]
    if not tokens:
        cost = "no model was asked, nothing was spent"
    elif result["usd"] is None:
        cost = f"{tokens:,} tokens were asked for, at a price nobody knows"
    else:
        cost = f"{tokens:,} tokens were asked for, ${result['usd']:.4f}"
    out.write_line(
        f"{outcome}: {out.paint(out.sanitize(result['routine']), BOLD)} run {result['run']}"
        f"{change}, {pluralize(result['steps'], 'step')}; {cost}"
    )
    if result["outside"]:
        out.write_line(f"  as far as it went: {out.sanitize(result['outside'])}")
    for note in result["missing"]:
        out.write_line(out.paint(f"  not kept: {out.sanitize(note)}", YELLOW))
    for difference in result["differences"]:
        position = difference["at"]
        if difference["seq"] is not None:
            position = f"step {difference['seq']}, {position}"
        out.write_title(f"{out.sanitize(position)}: {out.sanitize(difference['what'])}")
        _write_diff(out, difference["diff"])
    _write_list(
        out, "Refused here, as the recorded run never made these calls", result["never_made"]
    )
    _write_list(
        out,
        "Here a person would be asked; it went on as if the answer were yes",
        result["would_ask"],
    )
    if result["changed"] and not result["identical"]:
        out.write_line()
        out.write_line(f"recorded: {_describe_end(out, result['recorded'])}")
        out.write_line(f"replayed: {_describe_end(out, result['played'])}")
    return exit_code_of_replay(result)


def _write_diff(out: OutputStream, diff: str) -> None:
    lines = diff.splitlines()
    for line in lines[:MAX_DIFF_LINES]:
        colour = {"-": RED, "+": GREEN, "@": DIM}.get(line[:1], "")
        out.write_line(out.paint(f"  {out.sanitize(line)}", colour))
    if len(lines) > MAX_DIFF_LINES:
        text = f"  … {len(lines) - MAX_DIFF_LINES} more lines: --json has them all"
        out.write_line(out.paint(text, DIM))


def _write_list(out: OutputStream, title: str, lines: Sequence[str]) -> None:
    if lines:
        out.write_title(title)
        for line in lines:
            out.write_line(f"  {out.sanitize(line)}")


def _describe_end(out: OutputStream, end: Mapping[str, Any]) -> str:
    detail = f": {out.sanitize(end['detail'])}" if end["detail"] else ""
    calls = pluralize(len(end["calls"]), "call")
    return f"{humanize(end['status'])}{detail}, {calls}, {end['tokens']:,} tokens"


def write_frozen_run(
    out: OutputStream, err: OutputStream, frozen_run: Mapping[str, Any], folder: str
) -> int:
    """Write the files of a frozen run into a new or empty folder; return the exit code.

    The files belong to the user of this process, not to that of the daemon.
    """
    path, files = Path(folder), frozen_run["files"]
    try:
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            err.write_line(
                f"agentctl: {folder} is not empty; a frozen run wants a folder of its own"
            )
            return REFUSED
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (path / name).open("x", encoding="utf-8", newline="") as file:
                file.write(text)
    except OSError as error:
        err.write_line(f"agentctl: {error.filename or folder} cannot be written: {error.strerror}")
        return NOT_SUCCEEDED
    out.write_line(
        f"run {frozen_run['run']} lies in {folder}, {pluralize(len(files), 'file')}, secrets taken "
        "out."
    )
    out.write_line(f"In CI, with neither daemon nor key: agentctl replay {folder}")
    return DONE
