"""The images that a routine shows to its model (`media` of `[run]`): matched by its globs, judged
by the policy like any file that the tool `file_read` reads, and read once.

An image that cannot be shown is no failure: the notes of the run name it and say why, and so does
the prompt.
"""

from __future__ import annotations

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
    candidates: list[str] = []
    notes: list[str] = []
    for glob in globs:
        paths = list(new_files) if glob == PATH_PLACEHOLDER else _match(glob, workspace)
        if not paths:
            notes.append(
                f"no file fits {glob}" if glob != PATH_PLACEHOLDER else "no file has landed"
            )
        candidates += paths
    images: list[Image] = []
    lines: list[str] = []
    bytes_left = MAX_TOTAL_BYTES
    for path in dict.fromkeys(candidates):
        try:
            if len(images) == MAX_IMAGES:
                raise ValueError(f"{MAX_IMAGES} pictures are shown at most")
            image = parse_image(_read(path, policy, routine))
            if len(image.data) > bytes_left:
                raise ValueError(f"all together would have more than {MAX_TOTAL_BYTES / 1e6:g} MB")
        except (ValueError, OSError, CallRejected) as problem:
            notes.append(f"{path} is not shown: {getattr(problem, 'strerror', None) or problem}")
            continue
        images.append(image)
        lines.append(f"{len(images)}. {path}")
        bytes_left -= len(image.data)
    lines += [f"- {note}" for note in notes]
    facts: tuple[Fact, ...] = ()
    if lines:
        name = "pictures shown with this message"
        facts = (Fact(name=name, tool="media", ok=True, text="\n".join(lines)),)
    taint = Taint.TAINTED if candidates else Taint.NONE
    return AttachedImages(images=tuple(images), facts=facts, notes=tuple(notes), taint=taint)


def _match(glob: str, workspace: Path) -> list[str]:
    """Return the files that match a glob; of more than MAX_IMAGES the newest come first.

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
    # a version begins with the time of the last change
    newest = sorted(versions, key=lambda path: int(versions[path].partition("-")[0]), reverse=True)
    paths = sorted(newest[:MAX_IMAGES]) + newest[MAX_IMAGES:]
    return paths if root == workspace else [os.fspath(root / path) for path in paths]


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
