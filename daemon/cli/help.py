"""`agentctl help`, and what is said of a verb that there is not."""

from __future__ import annotations

import sys

from daemon.cli.call import DONE, EXIT_CODES, USAGE, Call
from daemon.cli.verbs import VERBS


def show_help(call: Call) -> int:
    """Tell which verbs there are, or how one is used."""
    wanted = [word for word in call.rest if not word.startswith("-")]
    if wanted and wanted[0] in VERBS:
        verb = VERBS[wanted[0]]
        if verb.raw and wanted[0] != "help":
            return verb.act(Call(call.socket, {"rest": ["--help"]}))
        verb.read(wanted[0], ["--help"])  # prints, and ends the process
    if wanted and wanted[0] not in VERBS:
        return say_unknown(wanted[0])
    call.out.say(
        "agentctl speaks to the agentd of this user.\n\nagentctl [--socket PATH] [--json] VERB …\n"
    )
    for name, verb in VERBS.items():
        call.out.say(f"  {name:<12}{verb.about}")
    say_more = (
        "`agentctl help VERB` shows a verb's options and examples; --json prints what the daemon "
        "answered."
    )
    call.out.say(f"\n{say_more}\n\nExample:\n  agentctl help run\n\nExit codes:")
    for code, about in EXIT_CODES:
        call.out.say(f"  {code}  {about}")
    return DONE


def say_unknown(name: str) -> int:
    """Say that there is no such verb, and which one is near; return the exit code."""
    from difflib import get_close_matches

    near = get_close_matches(name, VERBS, 1)
    told = f"did you mean {near[0]!r}?" if near else "`agentctl help` shows what there is"
    sys.stderr.write(f"agentctl: there is no verb {name!r}; {told}\n")
    return USAGE
