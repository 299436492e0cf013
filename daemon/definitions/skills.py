"""Read skills: folders with instructions (SKILL.md) for a kind of task.

Each is read by itself, so that a skill with faults does not affect the others.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemon.definitions.syntax import unreadable_file_fault
from daemon.definitions.words import display, show_value
from daemon.errors import ConfigError, Fault, ToolFailed

SKILL_FILE = "SKILL.md"
MAX_DEPTH = 64  # levels of lists and tables in a front matter
MAX_GUIDE_LENGTH = 200_000  # characters of one file
# https://agentskills.io/specification
MAX_NAME_LENGTH, MAX_DESCRIPTION_LENGTH = 64, 1024
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """A skill: its description, its guide and the folder with its further files."""

    name: str
    description: str
    guide: str
    """The text of its SKILL.md."""
    folder: Path
    always: bool = False
    """Whether its guide is in every prompt with skills."""


@dataclass(frozen=True, slots=True)
class SkillCatalog:
    """The skills of a folder, and the faults of those that cannot be used, each by name."""

    skills: Mapping[str, Skill] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)

    def list_skills(self, names: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """Return (name, description) of all skills, or of those in `names` that exist."""
        return [
            (name, self.skills[name].description)
            for name in (names or self.skills)
            if name in self.skills
        ]

    def guides(self, names: Iterable[str]) -> str:
        """Return the guides of these skills, each under its name."""
        skills = [self.skills[name] for name in dict.fromkeys(names) if name in self.skills]
        return "\n\n".join(f"## Skill: {skill.name}\n{skill.guide}" for skill in skills)

    def read_guide(self, name: str, file: str = "") -> str:
        """Return a skill's guide, or one of its files, cut to MAX_GUIDE_LENGTH.

        Raises ToolFailed, with the names that exist, for an unknown skill or file.
        """
        skill = self.skills.get(name)
        if skill is None:
            raise ToolFailed(
                f"there is no skill {name}; there are: {', '.join(self.skills) or 'none'}"
            )
        if not file:
            files = ", ".join(list_files(skill.folder))
            return skill.guide + (f"\n\nFiles of this skill: {files}" if files else "")
        root = skill.folder.resolve()
        try:
            path = (root / file).resolve()
            if not path.is_relative_to(root) or not path.is_file():
                files = ", ".join(list_files(skill.folder)) or "none"
                raise ToolFailed(f"{name} has no file {display(file)}; it has: {files}")
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            raise ToolFailed(f"{file} is not text; what it is for says the skill's guide") from None
        except (OSError, RuntimeError, ValueError) as error:  # links that form a circle, a NUL
            reason = getattr(error, "strerror", None) or "it is no path of a file"
            raise ToolFailed(f"{display(file)} cannot be read: {reason}") from None
        excess = len(text) - MAX_GUIDE_LENGTH
        if excess > 0:
            return f"{text[:MAX_GUIDE_LENGTH]}\n[… cut: {excess} more characters]"
        return text


def load_skills(folder: Path) -> SkillCatalog:
    """Read a folder of skills; a missing folder has none, and one that cannot be read has a fault
    under its own name.
    """
    skills: dict[str, Skill] = {}
    faults: dict[str, Fault] = {}
    try:
        entries = sorted(entry.name for entry in os.scandir(folder) if _is_folder(entry))
    except (FileNotFoundError, NotADirectoryError):
        return SkillCatalog()
    except OSError as error:
        fault = unreadable_file_fault(folder, error)
        return SkillCatalog(faults={display(folder.name): fault})
    for name in entries:
        try:
            skills[name] = _read(folder / name)
        except ConfigError as error:
            faults[display(name)] = error.faults[0]
    return SkillCatalog(skills, faults)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and not entry.name.startswith(".")
    except OSError:  # links that form a circle
        return False


def list_files(folder: Path) -> list[str]:
    """Return the paths of the files of a skill in its folder, sorted, without its SKILL.md and
    hidden ones.
    """
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path.as_posix()
        for path in paths
        if path.as_posix() != SKILL_FILE and not any(part.startswith(".") for part in path.parts)
    ]


def _read(folder: Path) -> Skill:
    path = folder / SKILL_FILE
    try:
        text = _read_text(path).replace("\r\n", "\n")
    except FileNotFoundError:
        raise _fault(path, "", "", f"is missing; a skill is a folder with a {SKILL_FILE}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _fault(
            path, "", "", f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        ) from None
    if len(text) > MAX_GUIDE_LENGTH:
        problem = f"is too long for a guide, of which {MAX_GUIDE_LENGTH:,} characters are read"
        raise _fault(path, "", "", problem, "move details into files beside it")
    front_matter = _FRONT_MATTER.match(text)
    if front_matter is None:
        raise _fault(
            path, "", "", "has no front matter", "begin it with ---, name: …, description: …, ---"
        )
    return _build_skill(
        path, _parse_front_matter(path, front_matter[1]), text[front_matter.end() :].strip()
    )


def _read_text(path: Path) -> str:
    """Return the text of a regular file, cut behind MAX_GUIDE_LENGTH. Raises OSError and
    UnicodeDecodeError.
    """
    # the writer of a pipe is not waited for
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        # bytes: a character takes four at most, and one more shows that the text goes on
        content = file.read(4 * (MAX_GUIDE_LENGTH + 1))
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    return decoder.decode(content, final=len(content) <= 4 * MAX_GUIDE_LENGTH)


def _parse_front_matter(path: Path, text: str) -> Mapping[str, Any]:
    """Return the keys of a front matter; all scalars are texts, as written."""
    import yaml

    try:
        # Aliases of aliases would stand for more than any memory holds, and what YAML takes for
        # numbers and dates need not exist.
        depth = 0
        for event in yaml.parse(text, yaml.BaseLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:  # the parser's time grows with the square of the levels
                raise _fault(path, "", "", "its front matter is nested too deeply")
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
                problem = "is no YAML that is read here: it has aliases (*name) or tags (!!name)"
                position = f"line {event.start_mark.line + 2}" if event.start_mark else ""
                raise _fault(path, position, "", problem)
        data = yaml.load(text, yaml.BaseLoader)  # noqa: S506  # it makes texts, lists and dicts only
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f"line {mark.line + 2}" if mark else "its front matter"
        raise _fault(
            path, position, "", f"is no YAML: {getattr(error, 'problem', None) or error}"
        ) from None
    if not isinstance(data, dict):
        raise _fault(path, "", "", "its front matter is no list of keys")
    return data


def _build_skill(path: Path, data: Mapping[str, Any], guide: str) -> Skill:
    name, description, folder = data.get("name"), data.get("description"), path.parent
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        problem = f"is made of a-z, 0-9 and single -, at most {MAX_NAME_LENGTH} of them"
        raise _fault(path, "name", show_value(name), problem)
    if name != folder.name:
        problem = f"has to be that of its folder, {display(folder.name)}"
        raise _fault(path, "name", show_value(name), problem)
    if (
        not isinstance(description, str)
        or not 0 < len(description.strip()) <= MAX_DESCRIPTION_LENGTH
    ):
        problem = (
            f"has to say what it is for and when, in at most {MAX_DESCRIPTION_LENGTH} characters"
        )
        raise _fault(path, "description", show_value(description), problem)
    table = data.get("metadata")
    metadata: Mapping[str, Any] = table if isinstance(table, dict) else {}
    always = str(data.get("always", metadata.get("always"))).casefold() in ("true", "yes", "on")
    return Skill(
        name=name,
        description=" ".join(description.split()),
        guide=guide,
        folder=folder,
        always=always,
    )


def _fault(path: Path, key: str, value: str, problem: str, hint: str = "") -> ConfigError:
    return ConfigError(Fault(file=display(path), key=key, found=value, problem=problem, hint=hint))
