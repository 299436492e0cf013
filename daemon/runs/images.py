"""The images that a routine shows to its model (`media` of `[run]`): matched by its globs, judged
by the policy like any file that the tool `file_read` reads, and read once.

An image that cannot be shown is no failure: the notes of the run name it and say why, and so does
the prompt.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from daemon.definitions.routines.checks import PATH_PLACEHOLDER
from daemon.models import Fact, Image, Taint
from daemon.policy.lexer import CallRejected
from daemon.providers.wire.images import MAX_BYTES, parse_image
from daemon.system.file_scan import scan_files
from daemon.system.patterns import Patterns
from daemon.system.safe_open import open_beneath

if TYPE_CHECKING:
    from daemon.policy.policy import Policy

# Anthropic lowers the limit of an image's size for requests with more than 20.
MAX_IMAGES = 20
# Of all images together. A request to Anthropic has at most 32 MB, base64 adds a third, and the
# journal keeps the images.
MAX_TOTAL_BYTES = 10_000_000
# A run that has found so many files that cannot be shown reads no others.
MAX_FAILURES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachedImages:
    """The images that a run shows to its model, and what to say of them."""

    images: tuple[Image, ...] = ()
    facts: tuple[Fact, ...] = ()
    """One fact for the prompt, which names the images and says why others are not shown; none
    without any.
    """
    notes: tuple[str, ...] = ()
    """Why others are not shown, for people who look at the run."""
    taint: Taint = Taint.NONE
    """Tainted if any file was found: anybody may have named it, or written into it."""


def load_images(
    globs: Sequence[str], new_files: Sequence[str], *, policy: Policy, routine: str
) -> AttachedImages:
    """Return the images that match the globs; `{path}` among these stands for `new_files`, whose
    landing started the run.

    Blocks.
    """
    workspace = Path(policy.reach.workspace)
    # when each file was changed last, in the order of the globs and of names
    candidates: dict[str, float] = {}
    notes: list[str] = []
    for glob in globs:
        if glob == PATH_PLACEHOLDER:
            # what has just landed is new, whenever it was written
            matches = dict.fromkeys(new_files, math.inf)
        else:
            matches = _match(glob, workspace)
        if not matches:
            notes.append(
                f"no file fits {glob}" if glob != PATH_PLACEHOLDER else "no file has landed"
            )
        for path, changed in matches.items():
            candidates[path] = max(changed, candidates.get(path, changed))
    images: dict[str, Image] = {}
    bytes_left = MAX_TOTAL_BYTES
    failures = 0
    for number, path in enumerate(sorted(candidates, key=candidates.__getitem__, reverse=True)):
        more = f"{len(candidates) - number} more not shown"
        if failures == MAX_FAILURES:
            notes.append(f"{more}: too many before them cannot be shown")
            break
        is_full = len(images) == MAX_IMAGES
        if not is_full:
            try:
                image = parse_image(_read(path, policy, routine))
            except (ValueError, OSError, CallRejected) as problem:
                reason = getattr(problem, "strerror", None) or problem
                notes.append(f"{path} is not shown: {reason}")
                failures += 1
                continue
            is_full = len(image.data) > bytes_left
        if is_full:
            notes.append(
                f"{more}: {MAX_IMAGES} pictures and {MAX_TOTAL_BYTES / 1e6:g} MB are shown at most"
            )
            break
        images[path] = image
        bytes_left -= len(image.data)
    shown_paths = [path for path in candidates if path in images]
    lines = [f"{number}. {path}" for number, path in enumerate(shown_paths, 1)]
    lines += [f"- {note}" for note in notes]
    facts: tuple[Fact, ...] = ()
    if lines:
        name = "pictures shown with this message"
        facts = (Fact(name=name, tool="media", ok=True, text="\n".join(lines)),)
    return AttachedImages(
        images=tuple(images[path] for path in shown_paths),
        facts=facts,
        notes=tuple(notes),
        taint=Taint.TAINTED if candidates else Taint.NONE,
    )


def _match(glob: str, workspace: Path) -> dict[str, float]:
    """Return the files that match a glob by their names, and when each was changed last, in
    nanoseconds since 1970.

    Files in the workspace are relative to it.
    """
    root, pattern = workspace, glob
    if glob.startswith(("/", "~")):
        # the folder before the first wildcard, and the pattern below it
        parts = PurePosixPath(os.path.expanduser(glob)).parts  # noqa: PTH111  a glob is no Path
        fixed_count = 0
        while fixed_count < len(parts) - 1 and not set(parts[fixed_count]) & set("*?["):
            fixed_count += 1
        root, pattern = Path(*parts[:fixed_count]), "/".join(parts[fixed_count:])
    versions = scan_files(root, Patterns([pattern])).files
    # A version begins with the time of the last change, which is negative before 1970.
    changed: dict[str, float] = {
        path: int(version.rsplit("-", 2)[0]) for path, version in sorted(versions.items())
    }
    if root == workspace:
        return changed
    return {os.fspath(root / path): moment for path, moment in changed.items()}


def _read(path: str, policy: Policy, routine: str) -> bytes:
    """Return the content of a file that the policy lets the tool `file_read` read.

    Raises ValueError, OSError or CallRejected with what is in the way.
    """
    file_path = policy.reach.resolve(path)
    for name in file_path.names:
        verdict = policy.judge("file_read", {"path": name}, routine=routine)
        if not verdict.allows:
            raise ValueError(f"the policy does not allow it: {verdict.reason or verdict.rule}")
    with os.fdopen(open_beneath(file_path.root, file_path.path_in_root), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no file")
        if status.st_size > MAX_BYTES:
            raise ValueError(
                f"has {status.st_size / 1e6:.1f} MB; vendors take {MAX_BYTES / 1e6:.1f} MB at most"
            )
        return file.read(MAX_BYTES + 1)
