"""Find out what a call would do, before any rule is asked: its words, its files, and exactly what would run.

The line that is judged is the line that runs: both are this module's `Planned`, and the shell tool runs nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from daemon.models import Effect, Json
from daemon.policy import web
from daemon.policy.judge import Part
from daemon.policy.language import OTHER, TOOLS, Rule
from daemon.policy.lexer import MAX_WORDS, Command, Joint, Redirect, Unreadable, Word, read
from daemon.policy.options import Usage
from daemon.policy.profiles import Allowed, program_name, read_only
from daemon.policy.reach import Place, Reach, refuse_devices
from daemon.values import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCommand:
    """One program as it runs."""

    program: str
    """Its plain name."""
    argv: tuple[str, ...]
    """The first word may be an absolute path in a system folder."""
    redirects: tuple[Redirect, ...]
    stdin: Place | None
    answers: tuple[int, ...]
    """Exit codes that are no failure."""
    reads_only: bool = False
    """Its words fit a profile, so it changes nothing."""
    folder: Place | None = None
    """Tool git: the repository; every other command starts in the workspace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """One pipeline as it runs, if the one before ended as its joint wants."""

    joint: Joint
    commands: tuple[PlannedCommand, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One call, understood."""

    parts: tuple[Part, ...]
    line: tuple[Planned, ...] = ()
    """Tool shell: what runs."""


def understand(tool: str, arguments: Json, reach: Reach, rules: Sequence[Rule] = ()) -> Request:
    """Return what a call would do; raise Unreadable if that cannot be told. `rules` are those of its routine."""
    subject = TOOLS.get(tool, OTHER)
    if subject.acts_on == "nothing":
        return Request(parts=(Part(tool=tool),))
    asked = arguments.get(subject.argument, subject.default) if isinstance(arguments, dict) else None
    if not isinstance(asked, str):
        raise Unreadable(f"{tool} lacks its {subject.argument}", f"give {subject.argument} as text")
    if subject.acts_on == "command":
        return _line(asked, reach, rules)
    if subject.acts_on == "git":
        return _git(asked, arguments.get("repository", "."), reach)
    if subject.acts_on == "script":
        return _script(asked, arguments.get("arguments", ()))
    if subject.acts_on == "action":
        done_to = arguments.get(subject.object)
        return Request(
            parts=(Part(tool=tool, words=(asked, done_to) if isinstance(done_to, str) and done_to else (asked,)),)
        )
    if subject.acts_on == "web":
        return Request(parts=(Part(tool=tool, target=web.target(asked, str(arguments.get("method", "GET")))),))
    return Request(parts=(_path(tool, asked, reach, writing=subject.acts_on == "writing"),))


def _path(tool: str, asked: str, reach: Reach, *, writing: bool) -> Part:
    try:
        return Part(tool=tool, paths=(reach.find(asked, writing=writing).names,))
    except Unreadable as refusal:
        return Part(tool=tool, paths=((asked,),), refusal=refusal)


def _script(name: str, arguments: object) -> Request:
    given = list(arguments) if isinstance(arguments, list | tuple) else [arguments]
    words = [word for word in given if isinstance(word, str)]
    if len(words) < len(given):
        raise Unreadable("the arguments of a script are texts", 'write "arguments": ["one", "two"]')
    return Request(parts=(Part(tool="script", words=(name, *words) if name else ()),))


def _git(command: str, repository: object, reach: Reach) -> Request:
    """Understand a command for git, read in the repository that it is for.

    What does not only look is refused, whatever a rule says: that is what the tool is.
    """
    place = reach.find(repository if isinstance(repository, str) else "")
    there = replace(reach, workspace=place.real, readable=())
    pipelines = read(f"git {command}")
    first = pipelines[0].commands[0]
    if len(pipelines) > 1 or len(pipelines[0].commands) > 1 or first.redirects or first.stdin:
        raise Unreadable("the tool git runs one command of git and nothing besides", "leave out | && || ; < and >")
    words = tuple(_expanded(first.words, there))
    usage, places, misfit = _usage(read_only()["git"], words, there)
    part = Part(
        tool="git",
        words=tuple(word.text for word in words[1:]),
        paths=(place.names, *(reach.find(each.real).names for each in places)),
        misfit=misfit,
        refusal=misfit,
    )
    planned = PlannedCommand(
        program="git",
        argv=usage.argv,
        redirects=(),
        stdin=None,
        answers=read_only()["git"].answers,
        reads_only=True,
        folder=place,
    )
    return Request(parts=(part,), line=(Planned(joint=";", commands=(planned,)),))


# --- command lines -------------------------------------------------------------------------------------


def _line(line: str, reach: Reach, rules: Sequence[Rule]) -> Request:
    parts: list[Part] = []
    planned: list[Planned] = []
    for pipeline in read(line):
        commands = [_command(each, reach, rules, piped=place > 0) for place, each in enumerate(pipeline.commands)]
        parts += [part for part, _ in commands]
        planned.append(Planned(joint=pipeline.joint, commands=tuple(command for _, command in commands)))
        if sum(len(part.words) for part in parts) > 2 * MAX_WORDS:
            raise Unreadable("* and ? stand for too many names in this line", "narrow them, or use find")
    return Request(parts=tuple(parts), line=tuple(planned))


def _command(command: Command, reach: Reach, rules: Sequence[Rule], *, piped: bool) -> tuple[Part, PlannedCommand]:
    words = tuple(_expanded(command.words, reach))
    name = words[0].text
    refusal: Unreadable | None = None
    stdin: Place | None = None
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
        misfit = Unreadable(f"{name} would read standard input, and there is none", "name a file, or write < FILE")
    part = Part(
        tool="shell",
        words=usage.argv if misfit is None else tuple(word.text for word in plain),
        paths=tuple(place.names for place in (*places, *([stdin] if stdin else ()))),
        trees=tuple(reach.find(tree).names[0] for tree in usage.trees),
        wanted=usage.wanted,
        passes_over=bool(allowed and allowed.excludes),
        misfit=misfit,
        refusal=refusal,
    )
    if misfit is not None:
        part = replace(part, paths=(*part.paths, *_guessed(plain, reach)))
    argv = (words[0].text, *_passing_over(usage, allowed, rules)[1:])
    return part, PlannedCommand(
        program=name,
        argv=argv,
        redirects=command.redirects,
        stdin=stdin,
        answers=allowed.answers if allowed else (),
        reads_only=misfit is None and refusal is None,
    )


def _expanded(words: Sequence[Word], reach: Reach) -> Iterator[Word]:
    for word in words:
        if word.pattern:
            yield from reach.expand(word)
        else:
            yield word


def _usage(
    allowed: Allowed | None, words: Sequence[Word], reach: Reach
) -> tuple[Usage, tuple[Place, ...], Unreadable | None]:
    """Return how a command fits its profile, and the files it reads; or why it does not fit."""
    bare = Usage(tuple(word.text for word in words))
    if allowed is None:
        return bare, (), Unreadable(f"{words[0].text} is not in the profile read-only")
    try:
        usage = bare if _asks_for_help(words) else allowed.usage(words)
        places = tuple(reach.find(path) for path in (*usage.files, *usage.trees) if path != os.devnull)
        for place in places:
            refuse_devices(place)
    except Unreadable as misfit:
        return bare, (), misfit
    return usage, places, None


def _asks_for_help(words: Sequence[Word]) -> bool:
    return len(words) == 2 and words[1].text in ("--help", "--version") and words[0].text not in ("git", "test", "[")


def _guessed(words: Sequence[Word], reach: Reach) -> Iterator[tuple[str, ...]]:
    """Yield what might be files among the words of a program that no profile knows, for rules that forbid."""
    for word in words[1:]:
        for text in {word.text, word.text.partition("=")[2]} - {""}:
            try:
                yield reach.find(text).names
            except Unreadable:
                yield (text,)


def _passing_over(usage: Usage, allowed: Allowed | None, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return the words with those added that keep a program, reading a whole tree, off what is forbidden."""
    if not usage.trees or allowed is None or allowed.excludes is None:
        return usage.argv
    added: list[str] = []
    for rule in rules:
        for glob in rule.paths if rule.effect is Effect.DENY and rule.takes(usage.argv) else ():
            if pattern := glob.base or glob.folder:
                added += allowed.excludes(pattern, glob.base is None)
    end = usage.argv.index("--") if "--" in usage.argv else len(usage.argv)
    return (*usage.argv[:end], *dict.fromkeys(added), *usage.argv[end:])
