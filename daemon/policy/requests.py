"""Analyze a call before it is judged: its words, the files it touches, and exactly what would run.

The command line that is judged is the one that runs: both are the `PlannedPipeline`s of this
module, and the shell tool runs nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daemon.models import Effect, Json
from daemon.policy import git, web
from daemon.policy.globs import Glob, any_covers
from daemon.policy.lexer import (
    CallRejected,
    Command,
    Operator,
    Redirect,
    Word,
    parse_line,
)
from daemon.policy.options import ParsedCommand
from daemon.policy.policy_file import TOOLS, UNKNOWN_TOOL, Rule
from daemon.policy.profiles import ReadOnlyProgram, program_name, read_only_programs
from daemon.policy.reachable_paths import (
    CallPath,
    ReachablePaths,
    WildcardSearch,
    refuse_devices,
)
from daemon.policy.verdicts import CallPart, covers_words


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCommand:
    """One program as it runs."""

    program: str
    """The plain name of the program, without a folder."""
    argv: tuple[str, ...]
    """The first word may be an absolute path in a system folder."""
    redirects: tuple[Redirect, ...]
    stdin: CallPath | None
    success_codes: tuple[int, ...]
    """Exit codes that are no failure."""
    reads_only: bool = False
    """Whether the words fit a profile: then the program changes nothing."""
    folder: CallPath | None = None
    """Tool git: the repository; every other command starts in the workspace."""
    denied_patterns: tuple[str, ...] = ()
    """Program git: patterns of the files in the repository that must not be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPipeline:
    """One pipeline as it runs, if the one before ended as its operator wants."""

    operator: Operator
    commands: tuple[PlannedCommand, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What one call would do."""

    parts: tuple[CallPart, ...]
    line: tuple[PlannedPipeline, ...] = ()
    """Tools shell and git: what runs."""


def analyze_call(
    tool: str,
    arguments: Json,
    reach: ReachablePaths,
    rules: Sequence[Rule] = (),
    file_rules: Sequence[Rule] = (),
) -> Request:
    """Return what a call would do; raise CallRejected if that cannot be told.

    `rules` are those that apply to the tool in its routine, `file_rules` those that apply to
    reading files there: git shows files, too.
    """
    properties = TOOLS.get(tool, UNKNOWN_TOOL)
    if properties.acts_on == "nothing":
        return Request(parts=(CallPart(tool=tool),))
    subject_text = (
        arguments.get(properties.argument, properties.default)
        if isinstance(arguments, dict)
        else None
    )
    if not isinstance(subject_text, str):
        raise CallRejected(
            f"{tool} lacks its {properties.argument}", f"give {properties.argument} as text"
        )
    if properties.acts_on == "command":
        return _analyze_line(subject_text, reach, rules, file_rules)
    if properties.acts_on == "git":
        return _analyze_git(
            subject_text, arguments.get("repository", "."), reach, rules, file_rules
        )
    if properties.acts_on == "script":
        return _analyze_script(subject_text, arguments.get("arguments", ()))
    if properties.acts_on == "action":
        object_name = arguments.get(properties.object)
        has_object = isinstance(object_name, str) and object_name
        words = (subject_text, str(object_name)) if has_object else (subject_text,)
        return Request(parts=(CallPart(tool=tool, words=words),))
    if properties.acts_on == "web":
        is_plain = (
            arguments.keys() <= {"url", "method", "headers", "body"}
            and arguments.get("headers") in (None, {})
            and arguments.get("body") is None
        )
        method = str(arguments.get("method", "GET"))
        target = web.parse_target(subject_text, method, is_plain=is_plain)
        return Request(parts=(CallPart(tool=tool, target=target),))
    for_writing = properties.acts_on == "writing"
    return Request(parts=(_analyze_path(tool, subject_text, reach, for_writing=for_writing),))


def _analyze_path(tool: str, text: str, reach: ReachablePaths, *, for_writing: bool) -> CallPart:
    try:
        return CallPart(tool=tool, paths=(reach.resolve(text, for_writing=for_writing).names,))
    except CallRejected as refusal:
        return CallPart(tool=tool, paths=((text,),), refusal=refusal)


def _analyze_script(name: str, arguments: object) -> Request:
    values = list(arguments) if isinstance(arguments, list | tuple) else [arguments]
    words = [word for word in values if isinstance(word, str)]
    if len(words) < len(values):
        raise CallRejected(
            "the arguments of a script are texts", 'write "arguments": ["one", "two"]'
        )
    return Request(parts=(CallPart(tool="script", words=(name, *words) if name else ()),))


def _analyze_git(
    command: str,
    repository: object,
    reach: ReachablePaths,
    rules: Sequence[Rule],
    file_rules: Sequence[Rule],
) -> Request:
    """Analyze a call of the tool git, whose paths are relative to the repository that it names.

    A command that may change something is refused, whatever a rule says: the tool only reads.
    """
    repository_path = reach.resolve(repository if isinstance(repository, str) else "")
    repository_reach = replace(reach, workspace=repository_path.real, readable=())
    # models write the program, too, as in a line of the shell
    pipelines = parse_line(f"git {command.strip().removeprefix('git ')}")
    command_words = pipelines[0].commands[0]
    if (
        len(pipelines) > 1
        or len(pipelines[0].commands) > 1
        or command_words.redirects
        or command_words.stdin
    ):
        raise CallRejected(
            "the tool git runs one command of git and nothing besides",
            "leave out | && || ; < and >",
        )
    words = tuple(_expand_words(command_words.words, repository_reach, WildcardSearch()))
    parsed_command, _, mismatch = _fit_profile(read_only_programs()["git"], words, repository_reach)
    written_words = tuple(word.text for word in words[1:])
    # without the options of git itself that stand before the sub-command
    run_words = parsed_command.argv[1:] if mismatch is None else written_words
    matching_rules = [rule for rule in rules if covers_words(rule, run_words, written_words)]
    if any_covers(_denied_globs(matching_rules), *repository_path.names):
        # the rule that denies the repository says so, and why
        part = CallPart(
            tool="git",
            words=run_words,
            written_words=written_words,
            paths=(repository_path.names,),
        )
        return Request(parts=(part,))
    denied_globs = _denied_globs((*matching_rules, *file_rules))
    denied_patterns = _denied_in_repository(denied_globs, repository_path, reach)
    argv = parsed_command.argv
    if mismatch is None:
        try:
            argv = git.make_command_line(
                words, is_path=_path_predicate(repository_reach), denied_patterns=denied_patterns
            )
        except CallRejected as error:
            mismatch = error
    # Under the name that was written as well as under the one it leads to: a link may not have been
    # there in earlier commits.
    names = {
        path: reach.resolve(str(Path(repository_path.real, path))).names
        for path in (*parsed_command.files, *parsed_command.trees)
    }
    part = CallPart(
        tool="git",
        words=run_words,
        written_words=written_words,
        paths=(
            repository_path.names,
            *(
                names[path]
                for path in (*parsed_command.files, *parsed_command.trees)
                if path != "."
            ),
        ),
        trees=tuple(
            repository_path.names if path == "." else names[path] for path in parsed_command.trees
        ),
        excluded_globs=denied_globs,
        mismatch=mismatch,
        refusal=mismatch,
    )
    planned_command = PlannedCommand(
        program="git",
        argv=argv,
        redirects=(),
        stdin=None,
        success_codes=read_only_programs()["git"].success_codes,
        reads_only=True,
        folder=repository_path,
        denied_patterns=denied_patterns,
    )
    return Request(
        parts=(part,), line=(PlannedPipeline(operator=";", commands=(planned_command,)),)
    )


def _denied_globs(rules: Sequence[Rule]) -> tuple[Glob, ...]:
    return tuple(
        dict.fromkeys(glob for rule in rules if rule.effect is Effect.DENY for glob in rule.paths)
    )


def _denied_in_repository(
    globs: Sequence[Glob], repository_path: CallPath, reach: ReachablePaths
) -> tuple[str, ...]:
    """Return the patterns of what globs cover in a repository, relative to it; raise CallRejected
    for all of it.
    """
    patterns = {
        pattern
        for glob in globs
        for name in repository_path.names
        for pattern in glob.relative_to(name)
    }
    if "**" in patterns:
        raise CallRejected(
            f"everything in {repository_path.text} is denied by a rule", "name another repository"
        )
    repository_folder = repository_path.real.rstrip("/") + "/"
    # the workspace lies in the repository, and its files go by their paths in it
    if reach.workspace.startswith(repository_folder):
        folder = re.sub(r"[*?[\\]", "?", reach.workspace.removeprefix(repository_folder))
        patterns |= {
            f"{folder}/{pattern}"
            for glob in globs
            if not (glob.at_any_depth or glob.pattern[0] == "/")
            for pattern in glob.patterns
        }
    return tuple(sorted(patterns))


def _refuse_outside(paths: Iterable[str], reach: ReachablePaths) -> None:
    """Raise CallRejected for a path outside the workspace.

    With two such paths git leaves its repository aside and compares whole folders (`git diff A B`
    is `diff --no-index A B`), and no pathspec excludes a file then.
    """
    for path in paths:
        real = reach.resolve(path).real
        if real != reach.workspace and not real.startswith(reach.workspace.rstrip("/") + "/"):
            raise CallRejected(
                f"git: {path} lies outside the workspace",
                "write diff -r for folders; git is for its own",
            )


def _path_predicate(reach: ReachablePaths) -> Callable[[str], bool]:
    """Return a function that tells whether git takes an operand for files: one that exists, or a
    pattern of names.
    """

    def is_path(operand: str) -> bool:
        if "*" in operand or "?" in operand or "[" in operand:
            return "{" not in operand
        return reach.on_disk and os.path.lexists(Path(reach.workspace, operand))

    return is_path


# --- command lines


def _analyze_line(
    line: str, reach: ReachablePaths, rules: Sequence[Rule], file_rules: Sequence[Rule]
) -> Request:
    parts: list[CallPart] = []
    planned_pipelines: list[PlannedPipeline] = []
    search = WildcardSearch()
    for pipeline in parse_line(line):
        commands = [
            _analyze_command(command, reach, rules, file_rules, search, piped=index > 0)
            for index, command in enumerate(pipeline.commands)
        ]
        parts += [part for part, _ in commands]
        planned_pipelines.append(
            PlannedPipeline(
                operator=pipeline.operator, commands=tuple(command for _, command in commands)
            )
        )
    return Request(parts=tuple(parts), line=tuple(planned_pipelines))


def _analyze_command(
    command: Command,
    reach: ReachablePaths,
    rules: Sequence[Rule],
    file_rules: Sequence[Rule],
    search: WildcardSearch,
    *,
    piped: bool,
) -> tuple[CallPart, PlannedCommand]:
    words = tuple(_expand_words(command.words, reach, search))
    name = words[0].text
    refusal: CallRejected | None = None
    stdin: CallPath | None = None
    try:
        name = program_name(name)
        if command.stdin and command.stdin.text != os.devnull:
            stdin = reach.resolve(command.stdin.text)
            refuse_devices(stdin)
    except CallRejected as error:
        refusal = error
    profile = read_only_programs().get(name)
    named_words = (Word(name), *words[1:])
    parsed_command, paths, mismatch = _fit_profile(profile, named_words, reach)
    if parsed_command.stdin and not piped and command.stdin is None:
        mismatch = CallRejected(
            f"{name} would read standard input, and there is none", "name a file, or write < FILE"
        )
    written_words = tuple(word.text for word in named_words)
    word_texts = parsed_command.argv if mismatch is None else written_words
    argv, excluded_globs, denied_patterns = (
        parsed_command.argv,
        tuple[Glob, ...](),
        tuple[str, ...](),
    )
    matching_rules = [rule for rule in rules if covers_words(rule, word_texts, written_words)]
    if name == "git":
        excluded_globs = _denied_globs((*matching_rules, *file_rules))
        try:
            _refuse_outside((*parsed_command.files, *parsed_command.trees), reach)
            denied_patterns = _denied_in_repository(excluded_globs, reach.resolve("."), reach)
            if mismatch is None:
                argv = git.make_command_line(
                    named_words, is_path=_path_predicate(reach), denied_patterns=denied_patterns
                )
        except CallRejected as error:
            refusal = refusal or error
    elif parsed_command.trees and profile and profile.exclude_options:
        excluded_globs = tuple(
            glob for glob in _denied_globs(matching_rules) if glob.plain_name or glob.folder_name
        )
        options = [
            option
            for glob in excluded_globs
            if (pattern := glob.plain_name or glob.folder_name)
            for option in profile.exclude_options(pattern, glob.plain_name is None)
        ]
        end = len(argv) if parsed_command.options_end is None else parsed_command.options_end
        argv = (*argv[:end], *dict.fromkeys(options), *argv[end:])
    part = CallPart(
        tool="shell",
        words=word_texts,
        written_words=written_words,
        paths=tuple(path.names for path in (*paths, *([stdin] if stdin else ()))),
        trees=tuple(_tree_names(parsed_command, reach)),
        name_globs=parsed_command.name_globs,
        excluded_globs=excluded_globs,
        mismatch=mismatch,
        refusal=refusal,
    )
    if mismatch is not None:
        possible_paths = tuple(_possible_paths(named_words, reach))
        part = replace(part, paths=(*part.paths, *possible_paths))
        if profile and profile.exclude_options and _is_let_without_profile(matching_rules):
            # it reads whole folders, and with options that are not known perhaps all of them
            part = replace(part, trees=(reach.resolve(".").names, *possible_paths))
    argv = (words[0].text, *argv[1:])
    return part, PlannedCommand(
        program=name,
        argv=argv,
        redirects=command.redirects,
        stdin=stdin,
        success_codes=profile.success_codes if profile else (),
        reads_only=mismatch is None and refusal is None,
        denied_patterns=denied_patterns,
    )


def _is_let_without_profile(rules: Iterable[Rule]) -> bool:
    """Tell whether one of the rules for a command allows it, or asks, whatever its options are."""
    return any(rule.effect is not Effect.DENY and not rule.profile for rule in rules)


def _tree_names(parsed_command: ParsedCommand, reach: ReachablePaths) -> Iterator[tuple[str, ...]]:
    """Yield the folders of which every file is read, each under its names; nothing lies beneath a
    file.
    """
    for path in parsed_command.trees:
        folder = reach.resolve(path)
        if reach.on_disk and os.path.isfile(folder.real):  # noqa: PTH113 - Path raises for a name that is too long
            continue
        holds_workspace = reach.workspace.startswith(folder.real.rstrip("/") + "/")
        # what is in the workspace goes by its path there
        yield ((*folder.names, ".") if holds_workspace else folder.names)


def _expand_words(
    words: Sequence[Word], reach: ReachablePaths, search: WildcardSearch
) -> list[Word]:
    expanded_words: list[Word] = []
    for word in words:
        names = reach.expand(word, search) if word.pattern else (word,)
        search.count_words(len(names))
        expanded_words += names
    return expanded_words


# Programs that look at what a path names, and open it only if it is a folder: they may be shown a
# socket or a device.
_OPEN_NO_FILE = frozenset({"[", "du", "find", "ls", "readlink", "realpath", "stat", "test"})


def _fit_profile(
    profile: ReadOnlyProgram | None, words: Sequence[Word], reach: ReachablePaths
) -> tuple[ParsedCommand, tuple[CallPath, ...], CallRejected | None]:
    """Return the command as its profile parses it, the files and folders it reads, and None; for a
    command that does not fit: its words, no files, and why.
    """
    unparsed_command = ParsedCommand(tuple(word.text for word in words))
    if profile is None:
        refusal = CallRejected(f"{words[0].text} is not in the profile read-only")
        return unparsed_command, (), refusal
    try:
        parsed_command = unparsed_command if _asks_for_help(words) else profile.parse_command(words)
        paths = tuple(
            reach.resolve(path)
            for path in (*parsed_command.files, *parsed_command.trees)
            if path != os.devnull
        )
        for call_path in paths if words[0].text not in _OPEN_NO_FILE else ():
            refuse_devices(call_path)
        for path in parsed_command.no_folders:
            if reach.on_disk and os.path.isdir(reach.resolve(path).real):  # noqa: PTH112 - as above
                problem = (
                    f"{words[0].text}: {path} is a folder, and would be read with what is in it"
                )
                raise CallRejected(
                    problem, f"name files, or write {words[0].text} -r for two folders"
                )
    except CallRejected as mismatch:
        return unparsed_command, (), mismatch
    return parsed_command, paths, None


def _asks_for_help(words: Sequence[Word]) -> bool:
    return (
        len(words) == 2
        and words[1].text in ("--help", "--version")
        and words[0].text not in ("git", "test", "[")
    )


def _possible_paths(words: Sequence[Word], reach: ReachablePaths) -> Iterator[tuple[str, ...]]:
    """Yield what might be files among the words of a program that no profile knows, for rules that
    forbid.
    """
    for word in words[1:]:
        for text in {word.text, word.text.partition("=")[2]} - {""}:
            try:
                yield reach.resolve(text).names
            except CallRejected:
                yield (text,)
