"""The skills of one folder: read strictly, each fault with its place; one broken skill harms no
other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemon.definitions.words import display
from daemon.errors import ConfigError, Fault, ToolFailed

NAME = "SKILL.md"
LONGEST = 200_000  # characters of one file: more is no guide
# https://agentskills.io/specification
LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1024
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """What a skill is for, and where the rest of it is."""

    name: str
    description: str
    guide: str
    """The text of its SKILL.md."""
    folder: Path
    always: bool = False
    """Its guide is in every prompt that knows of skills."""


@dataclass(frozen=True, slots=True)
class SkillCatalog:
    """All skills of a folder, and what is wrong with the others."""

    skills: Mapping[str, Skill] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)

    def catalogue(self, names: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """Return names and descriptions, of all skills or of these."""
        return [
            (name, self.skills[name].description)
            for name in (names or self.skills)
            if name in self.skills
        ]

    def guides(self, names: Iterable[str]) -> str:
        """Return the guides of these skills, each under its name."""
        found = [self.skills[name] for name in dict.fromkeys(names) if name in self.skills]
        return "\n\n".join(f"## Skill: {skill.name}\n{skill.guide}" for skill in found)

    def read(self, name: str, file: str = "") -> str:
        """Return a skill's guide, or a file beside it; ToolFailed with what there is."""
        skill = self.skills.get(name)
        if skill is None:
            raise ToolFailed(
                f"there is no skill {name}; there are: {', '.join(self.skills) or 'none'}"
            )
        if not file:
            files = files_of(skill.folder)
            return skill.guide + (f"\n\nFiles of this skill: {', '.join(files)}" if files else "")
        root = skill.folder.resolve()
        path = (root / file).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            raise ToolFailed(
                f"{name} has no file {file}; it has: {', '.join(files_of(skill.folder)) or 'none'}"
            )
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            raise ToolFailed(f"{file} is not text; what it is for says the skill's guide") from None
        return (
            text
            if len(text) <= LONGEST
            else f"{text[:LONGEST]}\n[… cut: {len(text) - LONGEST} more characters]"
        )


def load(folder: Path) -> SkillCatalog:
    """Read a folder of skills; one that is not there holds none."""
    skills: dict[str, Skill] = {}
    faults: dict[str, Fault] = {}
    try:
        entries = sorted(
            entry.name
            for entry in os.scandir(folder)
            if entry.is_dir() and not entry.name.startswith(".")
        )
    except (FileNotFoundError, NotADirectoryError):
        return SkillCatalog()
    for name in entries:
        try:
            skills[name] = _read(folder / name)
        except ConfigError as error:
            faults[name] = error.faults[0]
    return SkillCatalog(skills, faults)


def files_of(folder: Path) -> list[str]:
    """Return the files of a skill besides its SKILL.md."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / NAME)
    return [
        path.relative_to(folder).as_posix()
        for path in found
        if not any(p.startswith(".") for p in path.parts[-2:])
    ]


def _read(folder: Path) -> Skill:
    path = folder / NAME
    try:
        text = path.read_text("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise _fault(path, "", "", f"is missing; a skill is a folder with a {NAME}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _fault(
            path, "", "", f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}"
        ) from None
    if len(text) > LONGEST:
        raise _fault(
            path,
            "",
            f"{len(text)} characters",
            "is too long for a guide",
            "move details into files beside it",
        )
    front = _FRONT.match(text)
    if front is None:
        raise _fault(
            path, "", "", "has no front matter", "begin it with ---, name: …, description: …, ---"
        )
    return _skill(path, _yaml(path, front[1]), text[front.end() :].strip())


def _yaml(path: Path, text: str) -> Mapping[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 2}" if mark else "its front matter"
        raise _fault(
            path, place, "", f"is no YAML: {getattr(error, 'problem', None) or error}"
        ) from None
    if not isinstance(data, dict):
        raise _fault(path, "", repr(data)[:80], "its front matter is no list of keys")
    return data


def _skill(path: Path, data: Mapping[str, Any], guide: str) -> Skill:
    name, description, folder = data.get("name"), data.get("description"), path.parent
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        problem = f"is made of a-z, 0-9 and single -, at most {LONGEST_NAME} of them"
        raise _fault(path, "name", str(name or ""), problem)
    if name != folder.name:
        raise _fault(path, "name", name, f"has to be that of its folder, {display(folder.name)}")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= LONGEST_DESCRIPTION:
        problem = f"has to say what it is for and when, in at most {LONGEST_DESCRIPTION} characters"
        raise _fault(path, "description", str(description or "")[:80], problem)
    given = data.get("metadata")
    metadata: Mapping[str, Any] = given if isinstance(given, dict) else {}
    always = data.get("always", metadata.get("always")) in (True, "true")
    return Skill(
        name=name,
        description=" ".join(description.split()),
        guide=guide,
        folder=folder,
        always=always,
    )


def _fault(path: Path, key: str, found: str, problem: str, hint: str = "") -> ConfigError:
    return ConfigError(Fault(file=display(path), key=key, found=found, problem=problem, hint=hint))
