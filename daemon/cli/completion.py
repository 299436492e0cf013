"""`agentctl completion bash|zsh|fish`: what a shell offers after TAB, read off the table of verbs.

The scripts hold the verbs and options as they are now; names of routines are asked of the daemon at
each TAB.
"""

from __future__ import annotations

from collections.abc import Mapping

from daemon.cli.call import DONE, USAGE, Call

_NAMES = (
    'agentctl list --json 2>/dev/null | sed \'s/{"name": "/\\n&/g\' | sed -n \'s/^{"name": '
    '"\\([a-z0-9-]*\\)".*/\\1/p\''
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


def completion(call: Call) -> int:
    """Print what a shell is to know of agentctl."""
    from daemon.cli.verbs import VERBS

    if call.shell not in ("bash", "zsh", "fish"):
        call.err.say("agentctl completion: for bash, zsh or fish?")
        return USAGE
    options = {name: _options(verb.options) for name, verb in VERBS.items()}
    about = {name: verb.about for name, verb in VERBS.items()}
    takers = sorted(
        name
        for name, verb in VERBS.items()
        if any(names[0] in ("routine", "run") for names, _ in verb.options)
    )
    call.out.say(
        {"bash": _bash, "zsh": _zsh, "fish": _fish}[call.shell](options, about, takers).rstrip()
    )
    return DONE


def _options(options: tuple[tuple[tuple[str, ...], dict[str, object]], ...]) -> list[str]:
    return [*(name for names, _ in options for name in names if name.startswith("--")), "--json"]


def _bash(options: Mapping[str, list[str]], about: Mapping[str, str], takers: list[str]) -> str:
    cases = "\n".join(
        f'            {verb}) words="{" ".join(names)}" ;;' for verb, names in options.items()
    )
    return _BASH.format(verbs=" ".join(about), cases=cases, routines="|".join(takers), names=_NAMES)


def _zsh(options: Mapping[str, list[str]], about: Mapping[str, str], takers: list[str]) -> str:
    verbs = " ".join(_quoted(f"{verb}:{text.replace(':', ' -')}") for verb, text in about.items())
    cases = "\n".join(
        f"    {verb}) words=({' '.join(names)}) ;;" for verb, names in options.items()
    )
    return _ZSH.format(verbs=verbs, cases=cases, routines="|".join(takers), names=_NAMES)


def _fish(options: Mapping[str, list[str]], about: Mapping[str, str], takers: list[str]) -> str:
    lines = [
        "# agentctl completion fish > ~/.config/fish/completions/agentctl.fish",
        "complete -c agentctl -f",
    ]
    for verb, text in about.items():
        lines.append(f"complete -c agentctl -n __fish_use_subcommand -a {verb} -d {_quoted(text)}")
        seen = f"'__fish_seen_subcommand_from {verb}'"
        lines += [f"complete -c agentctl -n {seen} -l {name[2:]}" for name in options[verb]]
    seen = f"'__fish_seen_subcommand_from {' '.join(takers)}'"
    return "\n".join([*lines, f"complete -c agentctl -n {seen} -a {_quoted('(' + _NAMES + ')')}"])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"
