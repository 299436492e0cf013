"""`agentctl completion bash|zsh|fish`: a completion script, made from the table of verbs.

The scripts hold the verbs and options of this version; the names of routines come from the daemon
at each TAB.
"""

from __future__ import annotations

from collections.abc import Mapping

from daemon.cli.call import DONE, USAGE, Call

# A shell command that prints the names of all routines.
_LIST_ROUTINES = (
    "agentctl list --json 2>/dev/null"
    r""" | sed 's/{"name": "/\n&/g'"""
    r""" | sed -n 's/^{"name": "\([a-z0-9-]*\)".*/\1/p'"""
)

_BASH = """# agentctl completion bash > ~/.local/share/bash-completion/completions/agentctl
_agentctl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{verbs}"
    else
        case $verb in
{cases}
        esac
        case $verb in {routines}) words="$words $({names})" ;; esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _agentctl agentctl
"""
_ZSH = """#compdef agentctl
# agentctl completion zsh > ~/.zfunc/_agentctl    (with `fpath+=~/.zfunc` before compinit in .zshrc)
local -a verbs words
verbs=({verbs})
if (( CURRENT == 2 )); then
    _describe verb verbs
    return
fi
case $words[2] in
{cases}
esac
case $words[2] in ({routines}) words+=(${{(f)"$({names})"}}) ;; esac
_describe word words || _files
"""


def print_completion(call: Call) -> int:
    """Print the completion script for a shell."""
    from daemon.cli.verbs import VERBS

    if call.shell not in ("bash", "zsh", "fish"):
        call.err.write_line("agentctl completion: for bash, zsh or fish?")
        return USAGE
    options = {
        verb_name: [
            *(name for names, _ in verb.options for name in names if name.startswith("--")),
            "--json",
        ]
        for verb_name, verb in VERBS.items()
    }
    summaries = {name: verb.summary for name, verb in VERBS.items()}
    verbs_of_routines = sorted(
        name
        for name, verb in VERBS.items()
        if any(names[0] in ("routine", "run") for names, _ in verb.options)
    )
    if call.shell == "bash":
        script = _format_bash(options, verbs_of_routines)
    elif call.shell == "zsh":
        script = _format_zsh(options, summaries, verbs_of_routines)
    else:
        script = _format_fish(options, summaries, verbs_of_routines)
    call.out.write_line(script.rstrip())
    return DONE


def _format_bash(options: Mapping[str, list[str]], verbs_of_routines: list[str]) -> str:
    cases = "\n".join(
        f'            {verb}) words="{" ".join(names)}" ;;' for verb, names in options.items()
    )
    return _BASH.format(
        verbs=" ".join(options),
        cases=cases,
        routines="|".join(verbs_of_routines),
        names=_LIST_ROUTINES,
    )


def _format_zsh(
    options: Mapping[str, list[str]], summaries: Mapping[str, str], verbs_of_routines: list[str]
) -> str:
    # a colon ends the name of a verb
    verbs = " ".join(
        _quote(f"{verb}:{summary.replace(':', ' -')}") for verb, summary in summaries.items()
    )
    cases = "\n".join(
        f"    {verb}) words=({' '.join(names)}) ;;" for verb, names in options.items()
    )
    return _ZSH.format(
        verbs=verbs, cases=cases, routines="|".join(verbs_of_routines), names=_LIST_ROUTINES
    )


def _format_fish(
    options: Mapping[str, list[str]], summaries: Mapping[str, str], verbs_of_routines: list[str]
) -> str:
    lines = [
        "# agentctl completion fish > ~/.config/fish/completions/agentctl.fish",
        "complete -c agentctl -f",
    ]
    for verb, summary in summaries.items():
        lines.append(
            f"complete -c agentctl -n __fish_use_subcommand -a {verb} -d {_quote(summary)}"
        )
        condition = f"'__fish_seen_subcommand_from {verb}'"
        lines += [
            f"complete -c agentctl -n {condition} -l {name.removeprefix('--')}"
            for name in options[verb]
        ]
    condition = f"'__fish_seen_subcommand_from {' '.join(verbs_of_routines)}'"
    lines.append(f"complete -c agentctl -n {condition} -a {_quote(f'({_LIST_ROUTINES})')}")
    return "\n".join(lines)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"
