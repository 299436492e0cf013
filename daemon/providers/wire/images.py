"""Pictures: what the bytes are, and whether a vendor takes them."""

from __future__ import annotations

import base64

from daemon.models import Image

# A type that the bytes belie is a 400, so a file's name is not asked.
_MARKS = (
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF87a"),
    ("image/gif", b"GIF89a"),
)
# The strictest limit there is (Anthropic's).
LARGEST = 5_000_000


def image_of(data: bytes) -> Image:
    """Return a picture to show to a model; ValueError says why these bytes are none that vendors take."""
    kind = next((kind for kind, mark in _MARKS if data.startswith(mark)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        raise ValueError("is no PNG, JPEG, GIF or WebP picture")
    if len(data) > LARGEST:
        raise ValueError(f"has {len(data) / 1e6:.1f} MB; vendors take {LARGEST / 1e6:g} MB at most")
    return Image(data=data, media_type=kind)


def encoded(image: Image) -> str:
    """Return a picture's bytes as the vendors want them."""
    return base64.b64encode(image.data).decode()


def address(image: Image) -> str:
    """Return a picture as the address that holds it."""
    return f"data:{image.media_type};base64,{encoded(image)}"
