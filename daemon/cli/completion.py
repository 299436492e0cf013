"""`agentctl completion bash|zsh|fish`: a completion script, made from the table of verbs.

The scripts hold the verbs and options of this version; the names of routines come from the daemon
at each TAB.
"""

from __future__ import annotations

from collections.abc import Mapping

from daemon.cli.call import DONE, USAGE, Call
from daemon.cli.verbs import AGENTD_VERBS, VERBS, Verb

# Shell commands that print the names of all routines, or ids of what there is.
_LIST_ROUTINES = (
    "agentctl list --json 2>/dev/null"
    r""" | sed 's/{"name": "/\n&/g'"""
    r""" | sed -n 's/^{"name": "\([a-z0-9-]*\)".*/\1/p'"""
)
_PRINT_IDS = (
    r""" 2>/dev/null | sed 's/{"id": /\n&/g' | sed -n 's/^{"id": "\{0,1\}\([0-9A-Z]*\).*/\1/p'"""
)
_LIST_RUNS = f"agentctl runs --json{_PRINT_IDS}"
_LIST_APPROVALS = f"agentctl approvals --json{_PRINT_IDS}"
_LIST_DELIVERIES = f"agentctl deliveries --status failed --json{_PRINT_IDS}"
_LIST_INCIDENTS = f"agentctl incidents --json{_PRINT_IDS}"
# By argument of a verb, the command that lists what may stand there.
_SOURCES = {
    "routine": _LIST_ROUTINES,
    "run": _LIST_RUNS,
    "approval": _LIST_APPROVALS,
}

_BASH = """# agentctl completion bash > ~/.local/share/bash-completion/completions/agentctl
_agentctl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{verbs}"
    else
        case $verb in
{cases}
        esac
{sources}
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _agentctl agentctl
_agentd() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words="--config --state"
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{agentd_verbs} --config --state --version --help"
    elif [ "${{COMP_WORDS[1]}}" = once ]; then
        words="$words $({routines})"
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _agentd agentd
"""
_ZSH = """#compdef agentctl agentd
# agentctl completion zsh > ~/.zfunc/_agentctl    (with `fpath+=~/.zfunc` before compinit in .zshrc)
local -a verbs words
if [[ $service == agentd ]]; then
    if (( CURRENT == 2 )); then
        compadd -- {agentd_verbs}
    elif [[ $words[2] == once ]]; then
        compadd -- ${{(f)"$({routines})"}}
    else
        _files
    fi
    return
fi
verbs=({verbs})
if (( CURRENT == 2 )); then
    _describe verb verbs
    return
fi
local verb=$words[2]
case $verb in
{cases}
esac
{sources}
_describe word words || _files
"""


def print_completion(call: Call) -> int:
    """Print the completion script for a shell."""
    if call.shell not in ("bash", "zsh", "fish"):
        call.err.write_line("agentctl completion: for bash, zsh or fish?")
        return USAGE
    words_by_verb = {name: _words_of(verb) for name, verb in VERBS.items()}
    summaries = {name: verb.summary for name, verb in VERBS.items()}
    sources = _verbs_by_source(VERBS)
    formatters = {"bash": _format_bash, "zsh": _format_zsh, "fish": _format_fish}
    call.out.write_line(formatters[call.shell](words_by_verb, summaries, sources).rstrip())
    return DONE


def _words_of(verb: Verb) -> list[str]:
    """Return the options of a verb, and the words that may stand behind it."""
    words = [*verb.words]
    for names, settings in verb.options:
        words += [name for name in names if name.startswith("--")]
        words += settings.get("choices", ()) if not names[0].startswith("-") else ()
    return [*words, "--json"] if verb.has_json else words


def _verbs_by_source(verbs: Mapping[str, Verb]) -> dict[str, list[str]]:
    """Return, by the command that lists names or ids, the verbs behind which these may stand."""
    sources: dict[str, list[str]] = {
        _LIST_DELIVERIES: ["deliveries"],
        _LIST_INCIDENTS: ["ack"],
    }
    for name in sorted(verbs):
        for names, _ in verbs[name].options:
            argument = names[0].lstrip("-")
            if argument in _SOURCES:
                sources.setdefault(_SOURCES[argument], []).append(name)
            if names[0] == "run":  # the name of a routine means its last run
                sources.setdefault(_LIST_ROUTINES, []).append(name)
    return sources


def _format_bash(
    words_by_verb: Mapping[str, list[str]],
    _summaries: Mapping[str, str],
    sources: Mapping[str, list[str]],
) -> str:
    return _BASH.format(
        verbs=" ".join(words_by_verb),
        cases="\n".join(
            f'            {verb}) words="{" ".join(names)}" ;;'
            for verb, names in words_by_verb.items()
        ),
        sources="\n".join(
            f'        case $verb in {"|".join(names)}) words="$words $({command})" ;; esac'
            for command, names in sources.items()
        ),
        agentd_verbs=" ".join(AGENTD_VERBS),
        routines=_LIST_ROUTINES,
    )


def _format_zsh(
    words_by_verb: Mapping[str, list[str]],
    summaries: Mapping[str, str],
    sources: Mapping[str, list[str]],
) -> str:
    return _ZSH.format(
        # a colon ends the name of a verb
        verbs=" ".join(
            _quote(f"{verb}:{summary.replace(':', ' -')}") for verb, summary in summaries.items()
        ),
        cases="\n".join(
            f"    {verb}) words=({' '.join(names)}) ;;" for verb, names in words_by_verb.items()
        ),
        sources="\n".join(
            f'case $verb in ({"|".join(names)}) words+=(${{(f)"$({command})"}}) ;; esac'
            for command, names in sources.items()
        ),
        agentd_verbs=" ".join(AGENTD_VERBS),
        routines=_LIST_ROUTINES,
    )


def _format_fish(
    words_by_verb: Mapping[str, list[str]],
    summaries: Mapping[str, str],
    sources: Mapping[str, list[str]],
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
        for name in words_by_verb[verb]:
            kind = f"-l {name.removeprefix('--')}" if name.startswith("--") else f"-a {name}"
            lines.append(f"complete -c agentctl -n {condition} {kind}")
    for command, names in sources.items():
        condition = f"'__fish_seen_subcommand_from {' '.join(names)}'"
        lines.append(f"complete -c agentctl -n {condition} -a {_quote(f'({command})')}")
    agentd_verbs = " ".join(AGENTD_VERBS)
    lines.append(f"complete -c agentd -n __fish_use_subcommand -a {_quote(agentd_verbs)}")
    condition = "'__fish_seen_subcommand_from once'"
    lines.append(f"complete -c agentd -n {condition} -a {_quote(f'({_LIST_ROUTINES})')}")
    return "\n".join(lines)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"
