"""The pictures that a routine wants its model to see: found by its globs, judged like any file,
read once.

A picture that cannot be shown is no failure: the run says which one and why, and so does the
prompt.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from daemon.definitions.routines.rules import PATH
from daemon.models import Fact, Image, Taint
from daemon.policy.lexer import Unreadable
from daemon.providers.wire.images import MAX_BYTES, parse_image
from daemon.system.file_scan import look
from daemon.system.patterns import Patterns
from daemon.system.safe_open import open_beneath

if TYPE_CHECKING:
    from daemon.policy.policy import Policy

# From the twenty-first on Anthropic takes only small ones.
MOST = 20
# A request of Anthropic's has at most 32 MB, base64 makes a third more of them, and the journal
# keeps what was shown.
TOGETHER = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Pictures:
    """What a run shows to its model, and what it does not."""

    images: tuple[Image, ...] = ()
    facts: tuple[Fact, ...] = ()
    """The names of those shown, and why others are not, for the prompt."""
    notes: tuple[str, ...] = ()
    """The latter, for whoever looks at the run."""

    @property
    def taint(self) -> Taint:
        """Anybody may have written into a picture."""
        return Taint.TAINTED if self.images else Taint.NONE


def look_at(
    globs: Sequence[str], landed: Sequence[str], *, policy: Policy, routine: str
) -> Pictures:
    """Return the pictures that globs fit; `{path}` among them stands for the files that landed.

    Blocks.
    """
    workspace = Path(policy.reach.workspace)
    wanted, notes = list[str](), list[str]()
    for glob in globs:
        found = list(landed) if glob == PATH else _matching(glob, workspace)
        if not found:
            notes.append(f"no file fits {glob}" if glob != PATH else "no file has landed")
        wanted += found
    wanted = list(dict.fromkeys(wanted))
    images, shown, room = list[Image](), list[str](), TOGETHER
    for path in wanted:
        try:
            if len(images) == MOST:
                raise ValueError(f"{MOST} pictures are shown at most")
            image = parse_image(_read(path, policy, routine))
            if len(image.data) > room:
                raise ValueError(f"all together would have more than {TOGETHER / 1e6:g} MB")
        except (ValueError, OSError, Unreadable) as problem:
            notes.append(f"{path} is not shown: {getattr(problem, 'strerror', None) or problem}")
            continue
        images.append(image)
        shown.append(f"{len(images)}. {path}")
        room -= len(image.data)
    text = "\n".join([*shown, *(f"- {note}" for note in notes)])
    facts = (
        (Fact(name="pictures shown with this message", tool="media", ok=True, text=text),)
        if text
        else ()
    )
    return Pictures(images=tuple(images), facts=facts, notes=tuple(notes))


def _matching(glob: str, workspace: Path) -> list[str]:
    """Return the files that a glob fits, the newest before those that are too many."""
    root, inside = workspace, glob
    if glob.startswith(("/", "~")):
        root, inside = _split(glob)
    files = look(root, Patterns([inside])).files
    newest = sorted(files, key=lambda path: int(files[path].partition("-")[0]), reverse=True)
    kept = sorted(newest[:MOST]) + newest[MOST:]
    return kept if root == workspace else [os.fspath(root / path) for path in kept]


def _split(glob: str) -> tuple[Path, str]:
    """Part an absolute glob into the folder before its first wildcard and the rest."""
    parts = PurePosixPath(os.path.expanduser(glob)).parts  # noqa: PTH111  a glob is no Path
    magic = next(
        (place for place, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1
    )
    return Path(*parts[:magic]), "/".join(parts[magic:])


def _read(path: str, policy: Policy, routine: str) -> bytes:
    """Return what is in a file that the tool file_read may read; ValueError, OSError,
    Unreadable.
    """
    place = policy.reach.find(path)
    for verdict in _verdicts(place.names, policy, routine):
        raise ValueError(verdict)
    with os.fdopen(open_beneath(place.root, place.inside), "rb") as opened:
        about = os.fstat(opened.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("is no file")
        if about.st_size > MAX_BYTES:
            raise ValueError(
                f"has {about.st_size / 1e6:.1f} MB; vendors take {MAX_BYTES / 1e6:g} MB at most"
            )
        return opened.read(MAX_BYTES + 1)


def _verdicts(names: Sequence[str], policy: Policy, routine: str) -> Iterator[str]:
    for name in names:
        verdict = policy.judge("file_read", {"path": name}, routine=routine)
        if not verdict.allows:
            yield f"the policy does not allow it: {verdict.reason or verdict.rule}"
