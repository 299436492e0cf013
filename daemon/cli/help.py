"""`agentctl help`: the verbs, or the options of one."""

from __future__ import annotations

import sys

from daemon.cli.call import DONE, EXIT_CODES, USAGE, Call
from daemon.cli.verbs import VERBS


def show_help(call: Call) -> int:
    """Show which verbs there are, or how one is used."""
    names = [argument for argument in call.rest if not argument.startswith("-")]
    if names and names[0] not in VERBS:
        return report_unknown_verb(names[0])
    if names:
        verb = VERBS[names[0]]
        if verb.parses_itself and names[0] != "help":
            return verb.run(Call(call.socket, {"rest": ["--help"]}))
        verb.parse(names[0], ["--help"])  # prints, and ends the process; of `help` it returns
    out = call.out
    out.write_line("agentctl speaks to the agentd of this user.")
    out.write_line()
    out.write_line("agentctl [--socket PATH] [--json] VERB …")
    out.write_line()
    for name, verb in VERBS.items():
        out.write_line(f"  {name:<12}{verb.summary}")
    out.write_line()
    out.write_line(
        "`agentctl help VERB` shows a verb's options and examples; --json prints what the daemon "
        "answered."
    )
    out.write_line("\nExample:\n  agentctl help run\n\nExit codes:")
    for code, meaning in EXIT_CODES:
        out.write_line(f"  {code}  {meaning}")
    return DONE


def report_unknown_verb(name: str) -> int:
    """Print that there is no such verb, and the most similar one; return the exit code."""
    from difflib import get_close_matches

    similar = get_close_matches(name, VERBS, 1)
    hint = f"did you mean {similar[0]!r}?" if similar else "`agentctl help` shows what there is"
    sys.stderr.write(f"agentctl: there is no verb {name!r}; {hint}\n")
    return USAGE
