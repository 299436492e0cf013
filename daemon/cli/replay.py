"""`replay` and `freeze`: ask the daemon, or do without one."""

from __future__ import annotations

from pathlib import Path

from daemon.cli.call import DONE, NOT_FOUND, USAGE, Call, quote
from daemon.cli.client import Unreachable
from daemon.cli.handover import hand_over
from daemon.cli.replay_report import exit_code, lay_down, write
from daemon.cli.run_names import run_named

FROZEN = ("SHA256SUMS", "case.json")


def replay(call: Call) -> int:
    """Play a run again, and say whether it came out identical."""
    run, changed = call.run, {name: getattr(call, name) for name in ("model", "prompt", "policy")}
    given = {name: value for name, value in changed.items() if value is not None}
    if _is_folder(run):
        hand_over(_words("replay", call, given))
    body: dict[str, str] = {}
    for name, value in given.items():
        if name == "model":
            body[name] = value
            continue
        try:
            body[name] = Path(value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            call.err.say(
                (  # noqa: UP034
                    f"agentctl: --{name} {value} cannot be read: "
                    f"{getattr(error, 'strerror', None) or error}"
                )
            )
            return NOT_FOUND if isinstance(error, FileNotFoundError) else USAGE
    try:
        place = f"/v1/runs/{quote(run_named(call)['id'])}/replay"
        told = call.client.ask("POST" if body else "GET", place, body or None)
    except Unreachable:
        if "model" in given or "prompt" in given:
            raise  # somebody has to be asked, and to count what that costs
        hand_over(_words("replay", call, given))
    if call.json:
        call.say_json(told)
        return exit_code(told)
    return write(call.out, told)


def freeze(call: Call) -> int:
    """Write a run into a folder of its own."""
    try:
        run = run_named(call)["id"]
        told = call.client.ask("GET", f"/v1/runs/{quote(run)}/frozen?folder={quote(call.folder)}")
    except Unreachable:
        hand_over(["freeze", call.run, call.folder])
    if call.json:
        call.say_json({"run": told["run"], "files": sorted(told["files"])})
        return DONE if lay_down(call.err, call.err, told, call.folder) == DONE else USAGE
    return lay_down(call.out, call.err, told, call.folder)


def _is_folder(run: str) -> bool:
    folder = Path(run)
    return folder.is_dir() and ("/" in run or any((folder / name).is_file() for name in FROZEN))


def _words(verb: str, call: Call, given: dict[str, str]) -> list[str]:
    changed = [word for name, value in given.items() for word in (f"--{name}", value)]
    return [verb, call.run, *changed, *(["--json"] if call.json else [])]
