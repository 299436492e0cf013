"""Find out what a call would do, before any rule is asked: its words, its files, and exactly what
would run.

The line that is judged is the line that runs: both are this module's `Planned`, and the shell tool
runs nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daemon.models import Effect, Json
from daemon.policy import git, web
from daemon.policy.globs import Glob
from daemon.policy.judge import CallPart
from daemon.policy.lexer import MAX_WORDS, Command, Joint, Redirect, Unreadable, Word, read
from daemon.policy.options import ParsedCommand
from daemon.policy.policy_file import OTHER, TOOLS, Rule
from daemon.policy.profiles import Allowed, program_name, read_only
from daemon.policy.reachable_paths import CallPath, Reach, refuse_devices


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCommand:
    """One program as it runs."""

    program: str
    """Its plain name."""
    argv: tuple[str, ...]
    """The first word may be an absolute path in a system folder."""
    redirects: tuple[Redirect, ...]
    stdin: CallPath | None
    answers: tuple[int, ...]
    """Exit codes that are no failure."""
    reads_only: bool = False
    """Its words fit a profile, so it changes nothing."""
    folder: CallPath | None = None
    """Tool git: the repository; every other command starts in the workspace."""
    denied: tuple[str, ...] = ()
    """Program git: patterns of the files in the repository that must not be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """One pipeline as it runs, if the one before ended as its joint wants."""

    joint: Joint
    commands: tuple[PlannedCommand, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One call, understood."""

    parts: tuple[CallPart, ...]
    line: tuple[Planned, ...] = ()
    """Tool shell: what runs."""


def understand(
    tool: str,
    arguments: Json,
    reach: Reach,
    rules: Sequence[Rule] = (),
    file_rules: Sequence[Rule] = (),
) -> Request:
    """Return what a call would do; raise Unreadable if that cannot be told.

    `rules` are those of its routine, `file_rules` those of them that speak of reading files: git
    shows files, too.
    """
    subject = TOOLS.get(tool, OTHER)
    if subject.acts_on == "nothing":
        return Request(parts=(CallPart(tool=tool),))
    asked = (
        arguments.get(subject.argument, subject.default) if isinstance(arguments, dict) else None
    )
    if not isinstance(asked, str):
        raise Unreadable(f"{tool} lacks its {subject.argument}", f"give {subject.argument} as text")
    if subject.acts_on == "command":
        return _line(asked, reach, rules, file_rules)
    if subject.acts_on == "git":
        return _git(asked, arguments.get("repository", "."), reach, rules, file_rules)
    if subject.acts_on == "script":
        return _script(asked, arguments.get("arguments", ()))
    if subject.acts_on == "action":
        done_to = arguments.get(subject.object)
        return Request(
            parts=(
                CallPart(
                    tool=tool,
                    words=(asked, done_to) if isinstance(done_to, str) and done_to else (asked,),
                ),
            )
        )
    if subject.acts_on == "web":
        return Request(
            parts=(
                CallPart(tool=tool, target=web.target(asked, str(arguments.get("method", "GET")))),
            )
        )
    return Request(parts=(_path(tool, asked, reach, writing=subject.acts_on == "writing"),))


def _path(tool: str, asked: str, reach: Reach, *, writing: bool) -> CallPart:
    try:
        return CallPart(tool=tool, paths=(reach.find(asked, writing=writing).names,))
    except Unreadable as refusal:
        return CallPart(tool=tool, paths=((asked,),), refusal=refusal)


def _script(name: str, arguments: object) -> Request:
    given = list(arguments) if isinstance(arguments, list | tuple) else [arguments]
    words = [word for word in given if isinstance(word, str)]
    if len(words) < len(given):
        raise Unreadable("the arguments of a script are texts", 'write "arguments": ["one", "two"]')
    return Request(parts=(CallPart(tool="script", words=(name, *words) if name else ()),))


def _git(
    command: str,
    repository: object,
    reach: Reach,
    rules: Sequence[Rule],
    file_rules: Sequence[Rule],
) -> Request:
    """Understand a command for git, read in the repository that it is for.

    What does not only look is refused, whatever a rule says: that is what the tool is.
    """
    place = reach.find(repository if isinstance(repository, str) else "")
    there = replace(reach, workspace=place.real, readable=())
    pipelines = read(f"git {command}")
    first = pipelines[0].commands[0]
    if len(pipelines) > 1 or len(pipelines[0].commands) > 1 or first.redirects or first.stdin:
        raise Unreadable(
            "the tool git runs one command of git and nothing besides",
            "leave out | && || ; < and >",
        )
    words = tuple(_expanded(first.words, there))
    usage, _, misfit = _usage(read_only()["git"], words, there)
    asked = tuple(word.text for word in words[1:])
    denying = _denying((*(rule for rule in rules if rule.takes(asked)), *file_rules))
    denied = _in_repository(denying, place, reach)
    argv = usage.argv
    if misfit is None:
        try:
            argv = git.command_line(words, is_path=_is_path(there), denied=denied)
        except Unreadable as error:
            misfit = error
    # under the name that was written as well as under the one it leads to: in history no link need
    # have been there
    names = {
        path: reach.find(str(Path(place.real, path))).names for path in (*usage.files, *usage.trees)
    }
    part = CallPart(
        tool="git",
        words=asked,
        paths=(place.names, *(names[path] for path in (*usage.files, *usage.trees) if path != ".")),
        trees=tuple(place.names if path == "." else names[path] for path in usage.trees),
        excluded=denying,
        misfit=misfit,
        refusal=misfit,
    )
    planned = PlannedCommand(
        program="git",
        argv=argv,
        redirects=(),
        stdin=None,
        answers=read_only()["git"].answers,
        reads_only=True,
        folder=place,
        denied=denied,
    )
    return Request(parts=(part,), line=(Planned(joint=";", commands=(planned,)),))


def _denying(rules: Sequence[Rule]) -> tuple[Glob, ...]:
    return tuple(
        dict.fromkeys(glob for rule in rules if rule.effect is Effect.DENY for glob in rule.paths)
    )


def _in_repository(globs: Sequence[Glob], place: CallPath, reach: Reach) -> tuple[str, ...]:
    """Return the patterns of what globs cover in a repository, relative to it; raise Unreadable for
    all of it.
    """
    patterns = {pattern for glob in globs for name in place.names for pattern in glob.beneath(name)}
    if "**" in patterns:
        raise Unreadable(
            f"everything in {place.asked} is denied by a rule", "name another repository"
        )
    inside = os.path.relpath(reach.workspace, place.real)
    if not inside.startswith(
        "."
    ):  # the workspace lies in the repository, and its files go by their paths in it
        folder = re.sub(r"[*?[\\]", "?", inside)
        patterns |= {
            f"{folder}/{glob.pattern}"
            for glob in globs
            if not (glob.floating or glob.pattern[0] == "/")
        }
    return tuple(sorted(patterns))


def _refuse_outside(paths: Iterable[str], reach: Reach) -> None:
    """Refuse what lies outside the workspace: git takes two such paths for no matter of its
    repository.

    It then compares whole folders (`git diff A B` is `diff --no-index A B`), and no pathspec keeps
    it off anything.
    """
    for path in paths:
        real = reach.find(path).real
        if real != reach.workspace and not real.startswith(reach.workspace.rstrip("/") + "/"):
            raise Unreadable(
                f"git: {path} lies outside the workspace",
                "write diff -r for folders; git is for its own",
            )


def _is_path(reach: Reach) -> Callable[[str], bool]:
    """Return how to tell whether git would take an operand for files: it is one, or is a
    pattern.
    """

    def is_path(operand: str) -> bool:
        if "*" in operand or "?" in operand or "[" in operand:
            return "{" not in operand
        return reach.on_disk and os.path.lexists(Path(reach.workspace, operand))

    return is_path


# --- command lines
# -------------------------------------------------------------------------------------


def _line(line: str, reach: Reach, rules: Sequence[Rule], file_rules: Sequence[Rule]) -> Request:
    parts: list[CallPart] = []
    planned: list[Planned] = []
    for pipeline in read(line):
        commands = [
            _command(each, reach, rules, file_rules, piped=place > 0)
            for place, each in enumerate(pipeline.commands)
        ]
        parts += [part for part, _ in commands]
        planned.append(
            Planned(joint=pipeline.joint, commands=tuple(command for _, command in commands))
        )
        if sum(len(part.words) for part in parts) > 2 * MAX_WORDS:
            raise Unreadable(
                "* and ? stand for too many names in this line", "narrow them, or use find"
            )
    return Request(parts=tuple(parts), line=tuple(planned))


def _command(
    command: Command,
    reach: Reach,
    rules: Sequence[Rule],
    file_rules: Sequence[Rule],
    *,
    piped: bool,
) -> tuple[CallPart, PlannedCommand]:
    words = tuple(_expanded(command.words, reach))
    name = words[0].text
    refusal: Unreadable | None = None
    stdin: CallPath | None = None
    try:
        name = program_name(name)
        if command.stdin and command.stdin.text != os.devnull:
            stdin = reach.find(command.stdin.text)
            refuse_devices(stdin)
    except Unreadable as error:
        refusal = error
    allowed = read_only().get(name)
    plain = (Word(name), *words[1:])
    usage, places, misfit = _usage(allowed, plain, reach)
    if usage.stdin and not piped and command.stdin is None:
        misfit = Unreadable(
            f"{name} would read standard input, and there is none", "name a file, or write < FILE"
        )
    asked = usage.argv if misfit is None else tuple(word.text for word in plain)
    argv, excluded, denied = usage.argv, tuple[Glob, ...](), tuple[str, ...]()
    taking = [rule for rule in rules if rule.takes(asked)]
    if name == "git":
        excluded = _denying((*taking, *file_rules))
        try:
            _refuse_outside((*usage.files, *usage.trees), reach)
            denied = _in_repository(excluded, reach.find("."), reach)
            if misfit is None:
                argv = git.command_line(plain, is_path=_is_path(reach), denied=denied)
        except Unreadable as error:
            refusal = refusal or error
    elif usage.trees and allowed and allowed.excludes:
        excluded = tuple(glob for glob in _denying(taking) if glob.base or glob.folder)
        options = [
            option
            for glob in excluded
            if (pattern := glob.base or glob.folder)
            for option in allowed.excludes(pattern, glob.base is None)
        ]
        end = len(argv) if usage.options_end is None else usage.options_end
        argv = (*argv[:end], *dict.fromkeys(options), *argv[end:])
    part = CallPart(
        tool="shell",
        words=asked,
        paths=tuple(place.names for place in (*places, *([stdin] if stdin else ()))),
        trees=tuple(_trees(usage, reach)),
        wanted=usage.wanted,
        excluded=excluded,
        misfit=misfit,
        refusal=refusal,
    )
    if misfit is not None:
        part = replace(part, paths=(*part.paths, *_guessed(plain, reach)))
    argv = (words[0].text, *argv[1:])
    return part, PlannedCommand(
        program=name,
        argv=argv,
        redirects=command.redirects,
        stdin=stdin,
        answers=allowed.answers if allowed else (),
        reads_only=misfit is None and refusal is None,
        denied=denied,
    )


def _trees(usage: ParsedCommand, reach: Reach) -> Iterator[tuple[str, ...]]:
    """Yield the folders of which every file is read, each under its names; nothing lies beneath a
    file.
    """
    for path in usage.trees:
        place = reach.find(path)
        if reach.on_disk and os.path.isfile(place.real):  # noqa: PTH113 - Path raises for a name that is too long
            continue
        holds_workspace = reach.workspace.startswith(place.real.rstrip("/") + "/")
        yield (
            (*place.names, ".") if holds_workspace else place.names
        )  # what is in the workspace goes by its path there


def _expanded(words: Sequence[Word], reach: Reach) -> Iterator[Word]:
    for word in words:
        if word.pattern:
            yield from reach.expand(word)
        else:
            yield word


def _usage(
    allowed: Allowed | None, words: Sequence[Word], reach: Reach
) -> tuple[ParsedCommand, tuple[CallPath, ...], Unreadable | None]:
    """Return how a command fits its profile, and the files it reads; or why it does not fit."""
    bare = ParsedCommand(tuple(word.text for word in words))
    if allowed is None:
        return bare, (), Unreadable(f"{words[0].text} is not in the profile read-only")
    try:
        usage = bare if _asks_for_help(words) else allowed.usage(words)
        places = tuple(
            reach.find(path) for path in (*usage.files, *usage.trees) if path != os.devnull
        )
        for place in places:
            refuse_devices(place)
        for path in usage.no_folders:
            if reach.on_disk and os.path.isdir(reach.find(path).real):  # noqa: PTH112 - as above
                problem = (
                    f"{words[0].text}: {path} is a folder, and would be read with what is in it"
                )
                raise Unreadable(
                    problem, f"name files, or write {words[0].text} -r for two folders"
                )
    except Unreadable as misfit:
        return bare, (), misfit
    return usage, places, None


def _asks_for_help(words: Sequence[Word]) -> bool:
    return (
        len(words) == 2
        and words[1].text in ("--help", "--version")
        and words[0].text not in ("git", "test", "[")
    )


def _guessed(words: Sequence[Word], reach: Reach) -> Iterator[tuple[str, ...]]:
    """Yield what might be files among the words of a program that no profile knows, for rules that
    forbid.
    """
    for word in words[1:]:
        for text in {word.text, word.text.partition("=")[2]} - {""}:
            try:
                yield reach.find(text).names
            except Unreadable:
                yield (text,)
