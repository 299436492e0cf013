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
WIDEST = 8_000  # pixels of an edge, likewise
# Frames of a JPEG that say how large it is: all of SOF0 to SOF15 but three that are something else.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def image_of(data: bytes) -> Image:
    """Return a picture to show to a model; ValueError says why these bytes are none that vendors
    take.
    """
    kind = next((kind for kind, mark in _MARKS if data.startswith(mark)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        raise ValueError("is no PNG, JPEG, GIF or WebP picture")
    if max(size := _pixels(data)) > WIDEST:
        raise ValueError(f"has {size[0]} x {size[1]} pixels; vendors take {WIDEST} at most")
    if len(data) > LARGEST:
        raise ValueError(f"has {len(data) / 1e6:.1f} MB; vendors take {LARGEST / 1e6:g} MB at most")
    return Image(data=data, media_type=kind)


def _pixels(data: bytes) -> tuple[int, int]:
    """Return the width and height that a picture gives itself; zeros where that cannot be told."""
    if data.startswith(b"\x89PNG") and len(data) >= 24:
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if data.startswith(b"GIF8") and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data.startswith(b"\xff\xd8"):
        return _pixels_of_jpeg(data)
    if data[12:16] == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return 0, 0


def _pixels_of_jpeg(data: bytes) -> tuple[int, int]:
    """Walk from marker to marker up to the frame."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in _FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return 0, 0


def encoded(image: Image) -> str:
    """Return a picture's bytes as the vendors want them."""
    return base64.b64encode(image.data).decode()


def address(image: Image) -> str:
    """Return a picture as the address that holds it."""
    return f"data:{image.media_type};base64,{encoded(image)}"
