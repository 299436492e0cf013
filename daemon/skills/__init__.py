"""Skills: guides that an agent reads when it needs them, in the open Agent Skills format (https://agentskills.io).

A skill is a folder with a SKILL.md: front matter says what it is for (the first level, in the catalogue), the text
below how it is done (the second, once it is chosen), files beside it hold the details (the third, by the tool `skill`).
Not in this room: who chooses (agent/routing.py).
"""

from daemon.skills.shelf import Shelf, Skill, load

__all__ = ["Shelf", "Skill", "load"]
