"""`agentctl help`: the verbs one needs most, all verbs, or the options of one."""

from __future__ import annotations

import sys

from daemon.cli.call import DONE, EXIT_CODES, USAGE, Call, start_command
from daemon.cli.render import BOLD, OutputStream
from daemon.cli.verbs import COMMON_VERBS, GROUPS, SYNONYMS, VERBS


def show_help(call: Call) -> int:
    """Print the options of a verb, or which verbs there are: at a terminal those one needs most,
    with --all or into a pipe all of them. Returns the exit code.
    """
    names = [argument for argument in call.rest if not argument.startswith("-")]
    if names and names[0] not in VERBS:
        return report_unknown_verb(names[0])
    if names:
        verb = VERBS[names[0]]
        if verb.parses_itself and names[0] != "help":
            return verb.run(Call(call.socket, {"rest": ["--help"]}))
        # Ends the process after printing, except for `help`, whose options are those below.
        verb.parse(names[0], ["--help"])
    if "--all" in call.rest:
        _write_every_verb(call.out, group_all_verbs())
    elif call.out.is_terminal:
        _write_common_verbs(call.out)
    else:  # for grep and scripts: a flat list
        _write_every_verb(call.out, {"": tuple(VERBS)})
    return DONE


def _write_common_verbs(out: OutputStream) -> None:
    out.write_line("agentctl speaks to the agentd of this user: agentctl VERB …")
    _write_verbs(out, COMMON_VERBS)
    hidden_count = len(VERBS) - sum(map(len, COMMON_VERBS.values()))
    out.write_line()
    out.write_line(f"`agentctl help --all` shows {hidden_count} more verbs and the exit codes,")
    out.write_line("`agentctl help VERB` a verb's options and examples.")


def _write_every_verb(out: OutputStream, verbs_by_group: dict[str, tuple[str, ...]]) -> None:
    out.write_line("agentctl speaks to the agentd of this user.")
    out.write_line()
    out.write_line("agentctl [--socket PATH] [--json] VERB …")
    _write_verbs(out, verbs_by_group)
    out.write_line()
    out.write_line(
        "`agentctl help VERB` shows a verb's options and examples; --json prints what the daemon "
        "answered."
    )
    out.write_line("\nExample:\n  agentctl help run\n\nExit codes:")
    for code, meaning in EXIT_CODES:
        out.write_line(f"  {code}  {meaning}")


def group_all_verbs() -> dict[str, tuple[str, ...]]:
    """Return the names of all verbs by group, in the order of GROUPS; verbs without a group are in
    the last one.
    """
    grouped_names = {name for names in GROUPS.values() for name in names}
    ungrouped_names = tuple(name for name in VERBS if name not in grouped_names)
    last_group = list(GROUPS)[-1]
    return {**GROUPS, last_group: GROUPS[last_group] + ungrouped_names}


def _write_verbs(out: OutputStream, verbs_by_group: dict[str, tuple[str, ...]]) -> None:
    for group, names in verbs_by_group.items():
        out.write_line()
        if group:
            out.write_line(out.paint(group, BOLD))
        for name in names:
            line = f"  {name:<15} {VERBS[name].summary}"
            out.write_line(line if out.width is None else out.truncate(line, out.width))


def report_unknown_verb(name: str) -> int:
    """Print that there is no such verb, and which command may be meant; return the exit code."""
    if name == "restart":
        hint = f"stop it with `agentctl stop`, then start it: {start_command()}"
    elif name == "start":
        hint = f"`{start_command()}` starts the daemon, `agentctl run ROUTINE` a routine"
    elif name in SYNONYMS:
        commands = " or ".join(f"`{command}`" for command in SYNONYMS[name])
        hint = f"what there is for that: {commands}"
    else:
        from difflib import get_close_matches

        similar = get_close_matches(name, [*VERBS, *SYNONYMS, "restart", "start"], 1)
        if similar and similar[0] not in VERBS:
            return report_unknown_verb(similar[0])
        hint = f"did you mean {similar[0]!r}?" if similar else "`agentctl help` shows what there is"
    sys.stderr.write(f"agentctl: there is no verb {name!r}; {hint}\n")
    return USAGE
