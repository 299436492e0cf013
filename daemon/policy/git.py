"""git, read-only: the sub-commands and options that only look.

That is half of the matter: a repository's own config may name programs that a plain `git diff` runs. The shell tool
runs git on a view of the repository without that config (tools/repository.py), and the options added here keep it from
running what attributes ask for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from daemon.policy.grammars import Grammar
from daemon.policy.lexer import Unreadable, Word
from daemon.policy.options import Parsed, Program, Usage, synopses

# Sub-commands and their options. Which operands are paths is seen to below, since a revision may look like one. Not
# --text: files whose changes are not to be shown are declared binary (tools/repository.py).
_TABLE = """
git status     TEXT*
               -sbz -u?WORD --short --branch --show-stash --porcelain[=WORD] --long --null --untracked-files[=WORD]
               --ignored[=WORD] --column[=WORD] --no-column --ahead-behind --no-ahead-behind --renames --no-renames
               --find-renames[=NUM]
git log        TEXT*
               COMMITS PRETTY CHANGES -t -c
git diff       TEXT*
               CHANGES --cached --staged --merge-base -0123 --base --ours --theirs
git show       TEXT*
               COMMITS PRETTY CHANGES -t -c
git shortlog   TEXT*
               COMMITS -nsec -w?WORD --summary --numbered --email --group=TEXT --format=LOG
git rev-list   TEXT*
               COMMITS PRETTY --count --objects --disk-usage[=WORD] --timestamp --quiet
git rev-parse  TEXT*
               -q --short[=NUM] --abbrev-ref[=WORD] --verify --quiet --symbolic --symbolic-full-name --show-toplevel
               --show-prefix --show-cdup --is-inside-work-tree --is-inside-git-dir --is-bare-repository --all
               --is-shallow-repository --branches[=TEXT] --tags[=TEXT] --remotes[=TEXT] --since=DATE --until=DATE
git describe   TEXT*
               --tags --all --always --long --contains --exact-match --first-parent --dirty[=TEXT] --abbrev=NUM
               --candidates=NUM --match=TEXT --exclude=TEXT
git ls-files   TEXT*
               -cdmosuktvz --cached --deleted --modified --others --ignored --stage --unmerged --killed --directory
               --no-empty-directory --exclude-standard --error-unmatch --full-name --abbrev[=NUM] --eol --deduplicate
git blame      TEXT+
               -bltfnsewp -L:TEXT -M?NUM -C?NUM --root --show-stats --show-name --show-number --show-email
               --porcelain --line-porcelain --since=DATE --date=TEXT --abbrev=NUM --minimal --first-parent
               --color-lines --color-by-age
git branch     TEXT*
               REFS -r --all --remotes --show-current --verbose --abbrev=NUM --no-abbrev
git tag        TEXT*
               REFS -n?NUM
git remote
               -v --verbose
git stash      TEXT
               -n:NUM -NUM --oneline --format=LOG --pretty[=LOG] --date=TEXT --max-count=NUM
"""
_FRAGMENTS = {
    "COMMITS": """
        -iEFPgm -NUM -n:NUM --max-count=NUM --skip=NUM --since=DATE --after=DATE --until=DATE --before=DATE
        --author=TEXT --committer=TEXT --grep=TEXT --all-match --invert-grep --regexp-ignore-case --extended-regexp
        --fixed-strings --perl-regexp --merges --no-merges --min-parents=NUM --max-parents=NUM --first-parent --all
        --branches[=TEXT] --tags[=TEXT] --remotes[=TEXT] --exclude=TEXT --reverse --topo-order --date-order
        --author-date-order --left-right --left-only --right-only --cherry-pick --cherry-mark --cherry --boundary
        --simplify-by-decoration --simplify-merges --full-history --dense --sparse --ancestry-path --walk-reflogs
        --date=TEXT""",
    "PRETTY": """
        --oneline --pretty[=LOG] --format=LOG --abbrev-commit --no-abbrev-commit --abbrev=NUM --graph
        --decorate[=WORD] --no-decorate --source --parents --children --relative-date --no-notes --encoding=WORD
        --follow --color[=WORD] --no-color --expand-tabs[=NUM] --no-expand-tabs --log-size""",
    "CHANGES": """
        -pusbwWRz -U:NUM -M?NUM -C?NUM -B?WORD -l:NUM -S:TEXT -G:TEXT -I:TEXT --patch --no-patch --unified=NUM --raw
        --patch-with-stat --minimal --patience --histogram --diff-algorithm=WORD --anchored=TEXT --stat[=WORD]
        --compact-summary --numstat --shortstat --dirstat[=WORD] --cumulative --summary --name-only --name-status
        --word-diff[=WORD] --word-diff-regex=TEXT --color-words[=TEXT] --color-moved[=WORD] --no-color-moved
        --color[=WORD] --no-color --no-renames --check --full-index --abbrev[=NUM] --break-rewrites[=WORD]
        --find-renames[=NUM] --find-copies[=NUM] --find-copies-harder --irreversible-delete --diff-filter=WORD
        --pickaxe-all --pickaxe-regex --relative --no-relative --ignore-cr-at-eol --ignore-space-at-eol
        --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines=TEXT
        --inter-hunk-context=NUM --function-context --exit-code --quiet --no-prefix --src-prefix=TEXT
        --dst-prefix=TEXT --no-ext-diff --no-textconv --cc --ws-error-highlight=WORD""",
    "REFS": """
        -ail -v --list --sort=TEXT --format=LOG --contains=TEXT? --no-contains=TEXT? --merged=TEXT?
        --no-merged=TEXT? --points-at=TEXT --color[=WORD] --no-color --column[=WORD] --no-column --ignore-case
        --omit-empty""",
}


def _only_listing(parsed: Parsed) -> None:
    if parsed.operands and not parsed.has("--list", "-l"):
        raise Unreadable(f"{parsed.name} {parsed.operands[0].text} would change a branch or tag", "add --list")


def _only_the_list(parsed: Parsed) -> None:
    if parsed.operands[0].text != "list":
        raise Unreadable("git stash without list would change the work tree", "write git stash list")


_NO_HELPERS = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
# What else is known of a sub-command; the fields are those of options.Program.
_MORE: Mapping[str, Mapping[str, Any]] = {
    "git status": {"add": lambda _: ("--ignore-submodules=all",)},
    "git log": {"add": lambda _: _NO_HELPERS},
    "git diff": {"add": lambda _: _NO_HELPERS},
    "git show": {"add": lambda _: _NO_HELPERS},
    "git blame": {"add": lambda _: ("--no-textconv",)},
    "git branch": {"check": _only_listing},
    "git tag": {"check": _only_listing},
    "git stash": {"check": _only_the_list},
}


@cache
def _subcommands() -> Mapping[str, Program]:
    text = re.sub("|".join(_FRAGMENTS), lambda match: " ".join(_FRAGMENTS[match[0]].split()), _TABLE)
    return {
        name.removeprefix("git "): Program(
            **{"name": name, "operands": operands, "options": options, **_MORE.get(name, {})}
        )
        for name, operands, options in synopses(text)
    }


_SYNOPSIS = (
    "log, status, diff, show, shortlog, rev-list, rev-parse, describe, ls-files, blame, branch --list, tag --list, "
    "remote -v, stash list; no -c, no -C"
)


def _git(words: Sequence[Word]) -> Usage:
    rest = list(words[1:])
    while rest and rest[0].text in ("--no-pager", "-P", "--no-optional-locks"):
        rest.pop(0)
    if len(words) == 2 and words[1].text == "--version":
        return Usage(("git", "--version"))
    program = _subcommands().get(rest[0].text) if rest else None
    if program is None:
        what = f"git {rest[0].text}" if rest else "git alone"
        raise Unreadable(f"{what} is not known here to change nothing", f"git takes {_SYNOPSIS}")
    usage = program.usage(rest)
    operands = [word.text for word in program.parsed(rest).operands]
    # without a revision shortlog would read a log from standard input, there being no terminal
    head = ("HEAD",) if rest[0].text == "shortlog" and not operands else ()
    argv = usage.argv
    if rest[0].text in _SHOWING:
        end = argv.index("--") if "--" in argv else len(argv)
        argv = (*(_as_commit(each) if each in operands else each for each in argv[:end]), *argv[end:])
    return Usage(("git", *argv, *head), files=tuple(path for each in operands if (path := _path_in(each))))


# These show whatever object an id stands for: also a file's text, past every rule on paths.
_SHOWING = ("show", "diff")
_ID = re.compile(r"[0-9a-f]{4,64}")


def _as_commit(operand: str) -> str:
    """Return a revision so that ids in it can only be those of commits."""
    if re.search(r"\^\{(?:blob|object)?\}", operand):
        raise Unreadable(f"git: {operand} may be a file without its name", "write COMMIT:PATH")
    return "".join(
        f"{each}^{{commit}}" if _ID.fullmatch(each) else each for each in re.split(r"(\.{2,3}|^\^)", operand)
    )


def _path_in(operand: str) -> str:
    """Return what an operand would read if it is a path: a revision is one that does not exist."""
    if operand.startswith(":"):
        raise Unreadable(f"git: {operand} is not read here", "write plain paths, relative to the workspace")
    return operand.partition(":")[2] if ":" in operand else operand


GIT = Grammar("git", _git, answers=(1,))
