"""git, read-only: the sub-commands and options that only look, and that show nothing of files that
rules forbid.

That alone is not enough: a repository's own config may name programs that a plain `git diff`
runs. The shell tool runs git on a view of the repository without that config
(tools/builtin/repository.py), and the options added here keep it from running what attributes ask
for.

git shows whatever object it is given the name of, also a file's text without its path, past every
rule on paths. So each revision is handed to it as REVISION^{commit}, which is a commit or an error,
and a file in one as REVISION^{commit}:PATH, whose path is judged. What differs between commits is
shown, counted and searched only outside the paths that are forbidden: they are excluded by
pathspecs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from daemon.policy.grammars import Grammar
from daemon.policy.lexer import CallRejected, Word
from daemon.policy.options import ParsedArguments, ParsedCommand, Program, option_table
from daemon.policy.tables import load_table, program_fields_of

# These fields are the text of whatever a tag or branch names, or are made by running gpg.
_RAW_FIELD = re.compile(r"(?:^|[%(*:-])\*?(?:raw|signature)\b")


def _check_branch_or_tag(arguments: ParsedArguments) -> None:
    for name, value in arguments.options:
        if name in ("--format", "--sort") and _RAW_FIELD.search(value or ""):
            raise CallRejected(
                f"{arguments.name} {name}={value} may show a file without its name",
                "use other fields",
            )
    if arguments.operands and not arguments.has("--list", "-l"):
        raise CallRejected(
            f"{arguments.name} {arguments.operands[0].text} would change a branch or tag",
            "add --list",
        )


def _check_show(arguments: ParsedArguments) -> None:
    for name in ("--all", "--branches", "--tags", "--remotes", "-g", "--walk-reflogs"):
        if arguments.has(name):
            raise CallRejected(
                f"git show {name} may show a file without its name",
                "name the commits, or use git log -p",
            )


def _check_stash(arguments: ParsedArguments) -> None:
    if arguments.operands[0].text != "list":
        raise CallRejected(
            "git stash without list would change the work tree", "write git stash list"
        )


# More fields of options.Program, by command.
_CODE_BY_COMMAND: Mapping[str, Mapping[str, Any]] = {
    "git show": {"check": _check_show},
    "git branch": {"check": _check_branch_or_tag},
    "git tag": {"check": _check_branch_or_tag},
    "git stash": {"check": _check_stash},
}


def _fill_fragments(options: str) -> str:
    """Return options with each <NAME> replaced by the fragment of that name."""
    fragments = load_table("git")["fragments"]
    return re.sub(r"<([A-Z]+)>", lambda match: str(fragments[match[1]]), options)


@cache
def subcommands() -> Mapping[str, Program]:
    """Return the sub-commands that may be used, by name."""
    commands = load_table("git")["commands"].items()
    tables = {
        f"git {name}": {**fields, "options": _fill_fragments(fields["options"])}
        for name, fields in commands
    }
    return {
        fields["name"].removeprefix("git "): Program(**fields)
        for fields in program_fields_of(tables, _CODE_BY_COMMAND)
    }


_SYNOPSIS = (
    "log, status, diff, show, shortlog, rev-list, rev-parse, describe, ls-files, blame, branch "
    "--list, tag --list, "
    "remote -v, stash list; no -c, no -C"
)


def _split_subcommand(words: Sequence[Word]) -> tuple[Program, Sequence[Word]]:
    """Return the sub-command, and the words that are for it; raise CallRejected for what may change
    something.
    """
    remaining = list(words[1:])
    while remaining and remaining[0].text in ("--no-pager", "-P", "--no-optional-locks"):
        remaining.pop(0)
    program = subcommands().get(remaining[0].text) if remaining else None
    if program is None:
        command = f"git {remaining[0].text}" if remaining else "git alone"
        raise CallRejected(
            f"{command} is not known here to change nothing", f"git takes {_SYNOPSIS}"
        )
    return program, remaining


# Options of git itself, before the sub-command, that take the next word as their value.
_GLOBAL_OPTIONS_WITH_VALUE = frozenset(
    {
        "-c",
        "-C",
        "--attr-source",
        "--config-env",
        "--exec-path",
        "--git-dir",
        "--namespace",
        "--shallow-file",
        "--super-prefix",
        "--work-tree",
    }
)


def without_global_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command of git without the options before its sub-command."""
    remaining = list(words[1:])
    while remaining and remaining[0].startswith("-"):
        del remaining[: 2 if remaining[0] in _GLOBAL_OPTIONS_WITH_VALUE else 1]
    return (*words[:1], *remaining)


# An alias in config may be any sub-command, other keys name programs, and so does the folder in
# which git looks for its sub-commands.
_OPTIONS_WITH_CONFIG = frozenset({"-c", "--config-env", "--exec-path"})


def brings_config(words: Sequence[str]) -> bool:
    """Tell whether a command of git has config of its own before its sub-command, so that it may
    run any other one.
    """
    end = len(words) - len(without_global_options(words)) + 1
    return any(word.partition("=")[0] in _OPTIONS_WITH_CONFIG for word in words[1:end])


def _parse_git(words: Sequence[Word]) -> ParsedCommand:
    if len(words) == 2 and words[1].text == "--version":
        return ParsedCommand(("git", "--version"))
    program, subcommand_words = _split_subcommand(words)
    program.parse_command(subcommand_words)  # refuses what does not fit
    arguments = program.parse_arguments(subcommand_words)
    paths = tuple(
        path
        for index, word in enumerate(arguments.operands)
        if (path := _path_in(word.text, in_revision=_takes_revision_path(arguments, index)))
    )
    trees: tuple[str, ...] = ()
    if _shows_files(program.name, arguments):
        operands_after_end = (
            arguments.operands[arguments.before_end :] if arguments.options_end is not None else ()
        )
        trees = (*paths, *(() if operands_after_end else (".",)))
    return ParsedCommand(
        ("git", *(word.text for word in subcommand_words)), files=paths, trees=trees
    )


def make_command_line(
    words: Sequence[Word], *, is_path: Callable[[str], bool], denied_patterns: Iterable[str]
) -> tuple[str, ...]:
    """Return the command line that runs: git can read it in one way only, and it excludes the files
    that must not be shown.

    `is_path` tells whether an operand stands for files of the work tree; `denied_patterns` are
    relative to the work tree, as globs.py has them. Raises CallRejected for a command that might
    show files of these patterns, and for an operand that is no plain revision.
    """
    if len(words) == 2 and words[1].text == "--version":
        return ("git", "--version")
    program, subcommand_words = _split_subcommand(words)
    arguments, name = program.parse_arguments(subcommand_words), program.name
    subcommand = name.removeprefix("git ")
    options = [*program.safety_options_for(arguments), *_joined_options(arguments)]
    operands = [word.text for word in arguments.operands]
    if name == "git stash":
        return ("git", "stash", *operands, *options)
    if name in ("git branch", "git tag", "git remote"):
        return ("git", subcommand, *options, *(("--", *operands) if operands else ()))
    if name == "git rev-parse":  # shows nothing but ids
        return (
            "git",
            "rev-parse",
            *options,
            *(
                _make_unambiguous(name, operand) if ":" in operand else operand
                for operand in operands
            ),
        )

    if name in _WITHOUT_REVISIONS:
        revisions, paths = [], operands
    elif name == "git describe":
        revisions, paths = operands, []
    elif arguments.options_end is not None:
        revisions, paths = operands[: arguments.before_end], operands[arguments.before_end :]
    else:
        paths = [operand for operand in operands if is_path(operand)]
        if name == "git blame" and operands and not paths:
            paths = operands[-1:]
        revisions = [operand for operand in operands if operand not in paths]
    # the log of a branch goes by its plain name; it holds commits only
    if not arguments.has("-g", "--walk-reflogs"):
        revisions = [_make_unambiguous(name, operand) for operand in revisions]
    elif any(not _REVISION.fullmatch(operand) for operand in revisions):
        raise CallRejected(
            f"{name} --walk-reflogs takes the names of branches only", "write git log -g BRANCH"
        )
    if name == "git shortlog" and not revisions:
        # else it would read a log from standard input, there being no terminal
        revisions = ["HEAD"]
    if name == "git blame" and len(paths) != 1:
        raise CallRejected("git blame takes one file", "write git blame [REVISION] -- FILE")
    if name == "git describe":
        return ("git", "describe", *options, *revisions)

    exclusions = sorted(
        {operand for pattern in denied_patterns for operand in _exclusion_pathspecs(pattern)}
    )
    if exclusions and name == "git blame" and arguments.has("-C"):
        raise CallRejected("git blame -C searches files that must not be shown", "leave out -C")
    if exclusions and _shows_files(name, arguments):
        if arguments.has("--follow"):
            if (
                not {option for option, _ in arguments.options if option in _content_options()}
                <= _NAMES_AND_NUMBERS
            ):
                problem = (
                    "git log --follow may show a file from when it had a name that must not be "
                    "shown"
                )
                raise CallRejected(
                    problem,
                    "leave out --follow, or show names and numbers only: --stat, --name-status",
                )
        else:
            if name not in ("git diff", *_WITHOUT_REVISIONS) and not paths:
                # commits that changed only excluded files are shown all the same
                options += ["--full-history", "--sparse"]
            paths = [*(paths or ["."]), *exclusions]
    return ("git", subcommand, *options, *revisions, "--", *paths)


_WITHOUT_REVISIONS = ("git status", "git ls-files")
_WITH_REVISION_PATHS = ("git show", "git rev-parse")
# Options of log that tell which files were changed and how much, and nothing of what is in them.
_NAMES_AND_NUMBERS = frozenset(
    {
        "--name-only",
        "--name-status",
        "--stat",
        "--shortstat",
        "--numstat",
        "--summary",
        "--compact-summary",
    }
)


@cache
def _content_options() -> frozenset[str]:
    """Return the options that make log show or search what was changed."""
    plain = option_table(_fill_fragments("<COMMITS> <PRETTY>"), False).names
    return option_table(_fill_fragments("<CHANGES> -t -c"), False).names - plain


def _shows_files(name: str, arguments: ParsedArguments) -> bool:
    """Tell whether a sub-command shows or searches what is in files, or gives the ids that stand
    for it.
    """
    if name in ("git diff", "git show"):
        return True
    if name == "git log":
        return any(option in _content_options() for option, _ in arguments.options)
    if name == "git status":  # in its second form it gives the ids of what is in each changed file
        return any(
            option == "--porcelain" and value not in (None, "1", "v1")
            for option, value in arguments.options
        )
    if name == "git rev-list":
        return arguments.has("--objects", "--disk-usage")
    return name == "git ls-files" and arguments.has("-s", "--stage", "-u", "--unmerged", "--eol")


def _joined_options(arguments: ParsedArguments) -> Iterator[str]:
    """Yield each option as one word with its value joined to it, so that git cannot take the next
    word for the value.
    """
    for name, value in arguments.options:
        if name == "-NUM":
            yield f"-{value}"
        elif value is None:
            yield name
        elif name.startswith("--"):
            yield f"{name}={value}"
        elif value:
            yield name + value
        else:
            raise CallRejected(f"{arguments.name} {name} lacks its value", f"write {name}VALUE")


# The name of a branch, tag or commit, what it was at some time, and which of its ancestors.
_PLAIN_REVISION = (
    r"(?!-)(?=.)(?:(?!\.\.)[^\s~^:?*\[\\{}\x00-\x1f\x7f])*(?:@\{[^{}]*\})?(?:[~^]\d*|\^\{(?:commit)?"
    r"\})*"
)
_REVISION = re.compile(_PLAIN_REVISION)
_FILE_OF_REVISION = re.compile(f"({_PLAIN_REVISION}):(.*)", re.DOTALL)
_RANGE = re.compile(r"(.*?)(\.{2,3})(.*)", re.DOTALL)
# ^REVISION, or REVISION^@ and its like
_REVISION_AND_PARENTS = re.compile(r"(\^?)(.*?)(\^@|\^!|\^-\d*)?", re.DOTALL)


def _make_unambiguous(name: str, operand: str) -> str:
    """Return a revision, a range of them or REVISION:PATH, so that it can only name commits or a
    file by its path.
    """
    if parts := _FILE_OF_REVISION.fullmatch(operand):
        if name not in _WITH_REVISION_PATHS or ".." in parts[2]:
            alternative = (
                "write git diff REVISION REVISION -- PATH"
                if name == "git diff"
                else "write git show REVISION:PATH"
            )
            raise CallRejected(f"{name} does not take {operand} here", alternative)
        return f"{parts[1]}^{{commit}}:{parts[2]}"
    if parts := _RANGE.fullmatch(operand):
        if all(not side or _REVISION.fullmatch(side) for side in (parts[1], parts[3])):
            return parts[2].join(side and f"{side}^{{commit}}" for side in (parts[1], parts[3]))
    elif (parts := _REVISION_AND_PARENTS.fullmatch(operand)) and _REVISION.fullmatch(parts[2]):
        return f"{parts[1]}{parts[2]}^{{commit}}{parts[3] or ''}"
    problem = f"{name}: {operand} is neither a plain revision nor a file that is there"
    raise CallRejected(
        problem, "write names or ids of commits, with ~N ^N @{N} or .. between; files go behind --"
    )


def _takes_revision_path(arguments: ParsedArguments, index: int) -> bool:
    """Tell whether REVISION:PATH is read as such in the place of an operand; elsewhere a colon
    belongs to the name of a file.
    """
    if arguments.name == "git show" and arguments.options_end is not None:
        return index < arguments.before_end
    return arguments.name in _WITH_REVISION_PATHS


def _path_in(operand: str, *, in_revision: bool) -> str:
    """Return the path that an operand names, taken for a path: a revision is then a file that does
    not exist. With `in_revision` it is that of REVISION:PATH, empty for a revision's root folder.
    Raises CallRejected for `:…`.
    """
    if operand.startswith(":"):
        raise CallRejected(
            f"git: {operand} is not read here", "write plain paths, relative to the workspace"
        )
    parts = _FILE_OF_REVISION.fullmatch(operand) if in_revision else None
    return parts[2] if parts else operand


def _exclusion_pathspecs(pattern: str) -> Iterator[str]:
    """Yield the pathspecs that exclude all files of a pattern, in upper and lower case, and perhaps
    some others.
    """
    # git knows the cases of ASCII only, where İ, ı, ſ and the sign of Kelvin are cases of i, s and
    # k, too
    plain = "".join(
        char if char.isascii() or char.lower() == char.upper() else "*" for char in pattern
    )
    yield f":(exclude,icase,glob){plain}"
    for letter in re.finditer("[iks]", plain, re.IGNORECASE):
        before, after = (
            re.sub("[iks]", "*", part, flags=re.IGNORECASE)
            for part in (plain[: letter.start()], plain[letter.end() :])
        )
        yield f":(exclude,icase,glob){before}[^ -~]*{after}"


GIT = Grammar("git", _parse_git, success_codes=(1,))
